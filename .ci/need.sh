# shellcheck shell=bash
# Functions of ./run, ./test and the scripts in .ci that install missing tools. Sourced, not run.

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
        die "cannot run as root: $*: sudo is not installed; run this script as root"
    fi
}

# need_packages NAME...: installs missing Debian packages.
need_packages() {
    if ! command -v apt-get >/dev/null; then
        echo "apt-get not found; install the equivalents of these Debian packages: $*" >&2
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

# As need_packages, and no service of theirs is started.
need_unstarted_packages() (
    policy=/usr/sbin/policy-rc.d
    if command -v apt-get >/dev/null && [ ! -e "$policy" ]; then
        trap 'as_root rm -f "$policy"' EXIT
        trap 'exit 130' INT TERM HUP
        # 101: no action is allowed. Source: Debian's invoke-rc.d policy layer.
        as_root sh -c "printf '#!/bin/sh\nexit 101\n' >$policy; chmod +x $policy"
    fi
    need_packages "$@"
)

# need_go_program MODULE SKIPPED: builds a program of a Go module into target/tools, once.
need_go_program() {
    local tools=$PWD/target/tools name=${1%@*}
    name=${name%/v[0-9]*} name=${name##*/}
    [ ! -x "$tools/$name" ] || return 0
    command -v go >/dev/null || need_packages golang-go
    echo "Building $name ${1##*@}" >&2
    # The toolchain that its module asks for is downloaded if Debian's is older.
    GOTOOLCHAIN=auto GOBIN=$tools go install "$1" || echo "Cannot build $name: $2 will be skipped." >&2
}

# The message broker of a fleet. Debian 12 has 2.9, and 2.11 is needed.
need_nats_server() {
    need_go_program github.com/nats-io/nats-server/v2@v2.15.2 "tests of a fleet over servers"
}

# Reads `report --format benchfmt`.
need_benchstat() {
    need_go_program golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da "tests of the Go benchmark format"
}

# Installs the Python packages that read what the program writes into target/tools, once: Perfetto's schema, and
# HdrHistogram for Python. Perfetto's trace_processor is not among them: it is downloaded when first used, which no test does.
need_python_readers() {
    need_python_package perfetto 0.59.1
    need_python_package hdrhistogram 0.10.8
}

need_python_package() {
    local folder=$PWD/target/tools/$1
    [ ! -d "$folder" ] || return 0
    python3 -m pip --version >/dev/null 2>&1 || need_packages python3-pip
    python3 -m pip install --quiet --root-user-action ignore --disable-pip-version-check \
        --target "$folder" "$1==$2" >&2 || {
        rm -rf "$folder"
        echo "Cannot install the Python package $1: the tests that need it are skipped." >&2
    }
}

# Checks that cargo runs with the toolchain of rust-toolchain.toml.
need_cargo() {
    # Rust may have been installed after this shell was started.
    command -v cargo >/dev/null || PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
    command -v cargo >/dev/null || die \
        "Rust is not installed for $(id -un); install it from https://rustup.rs and run this again:" \
        "  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh" \
        "If it is installed for another user, run this as that user; sudo is used where needed."
    cargo --version >/dev/null || die \
        "cargo cannot run the toolchain of rust-toolchain.toml; install it:" \
        "  rustup toolchain install"
}
