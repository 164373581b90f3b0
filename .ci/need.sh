# shellcheck shell=bash
# What ./run, ./test and .ci/run share: installing what is missing. Sourced, not run.

BUILD_PACKAGES=(clang gcc libc6-dev make pkg-config libelf-dev zlib1g-dev)

die() {
    printf '%s\n' "$@" >&2
    exit 1
}

# Runs a command as root, in the caller's environment and home.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo -E env "HOME=$HOME" "$@"
    else
        die "This needs root ($*), and sudo is not installed." "Run it as root."
    fi
}

# need_packages NAME...: installs those Debian packages that are missing.
need_packages() {
    if ! command -v apt-get >/dev/null; then
        echo "No apt-get here: please see to it that you have what Debian calls: $*" >&2
        return
    fi
    local name missing=()
    for name in "$@"; do
        case "$(dpkg-query -W -f '${db:Status-Abbrev}' "$name" 2>/dev/null || true)" in
            ii*) ;;
            *) missing+=("$name") ;;
        esac
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    echo "Installing: ${missing[*]}" >&2
    as_root apt-get update -qq >&2
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2 </dev/null
}

# Makes sure that cargo runs, and runs the toolchain of rust-toolchain.toml.
need_cargo() {
    # Just installed, perhaps, and the shell not started anew since.
    command -v cargo >/dev/null || PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
    command -v cargo >/dev/null || die \
        "Rust is not installed for $(id -un). Install it from https://rustup.rs and try again:" \
        "  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh" \
        "If it is there for another user, run this as that user: sudo is used where needed."
    cargo --version >/dev/null || die \
        "cargo does not run with the toolchain that rust-toolchain.toml asks for; install it:" \
        "  rustup toolchain install"
}
