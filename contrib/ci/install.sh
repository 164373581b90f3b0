#!/usr/bin/env bash
# Installs the program of a release into a folder, after a check of its SHA-256 and of the signature, and prints its path.
#   contrib/ci/install.sh RELEASE FOLDER [SHA256]
# RELEASE: a file or a folder of `cargo xtask release`, or the URL (https or file) of such a file. Of a folder the file for
# this machine is taken; a file that ends in .xz is unpacked.
# SHA256: checksum of the file; unless given, SHA256SUMS beside the file must have it.
# WIREPATH_SIGNERS: file with the public keys of which one must have signed SHA256SUMS, as `ssh-keygen -Y verify` reads
# them. The copy of this script in a signed release has its key inside; without either no signature is checked.
set -euo pipefail

# Filled in by `cargo xtask dist --sign`.
SIGNERS=''

die() {
    printf 'install.sh: %s\n' "$@" >&2
    exit 1
}

[[ $# -eq 2 || $# -eq 3 ]] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
release=$1 folder=$2 expected=${3:-}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# fetch URL FILE
fetch() {
    if command -v curl >/dev/null; then
        curl --fail --silent --show-error --location --proto '=https,file' --retry 3 --output "$2" "$1"
    else
        die "curl is not installed; install it, or give a file instead of $1"
    fi
}

if [ -d "$release" ]; then
    found=("$release"/wirepath-*-"$(uname -m)"-linux)
    [[ ${#found[@]} -eq 1 && -f ${found[0]} ]] ||
        die "$release has not exactly one file wirepath-VERSION-$(uname -m)-linux; name the file"
    release=${found[0]}
fi
name=${release##*/}
case $release in
    https://* | file://*)
        fetch "$release" "$work/$name" || die "cannot fetch $release"
        ;;
    *://*) die "$release is not an https or file URL" ;;
    *)
        [ -f "$release" ] || die "$release is not a file"
        cp "$release" "$work/$name"
        ;;
esac

# beside NAME: copies a file from beside the release.
beside() {
    case $release in
        *://*) fetch "${release%/*}/$1" "$work/$1" ;;
        *) cp "$(dirname "$release")/$1" "$work/$1" ;;
    esac 2>"$work/said"
}

signers=${WIREPATH_SIGNERS:-}
if [ -z "$signers" ] && [ -n "$SIGNERS" ]; then
    signers=$work/signers
    printf '%s\n' "$SIGNERS" >"$signers"
fi
if [ -z "$expected" ]; then
    beside SHA256SUMS || die "no SHA256SUMS beside $release; give the file's SHA-256"
    if [ -n "$signers" ]; then
        [ -f "$signers" ] || die "$signers is not a file of public keys: nothing is installed"
        command -v ssh-keygen >/dev/null ||
            die "ssh-keygen is not installed; install it (Debian: openssh-client), or give the file's SHA-256"
        beside SHA256SUMS.sig || die "no SHA256SUMS.sig beside $release, and the release must be signed: nothing is installed"
        ssh-keygen -Y verify -f "$signers" -I release@wirepath -n wirepath-release -s "$work/SHA256SUMS.sig" \
            <"$work/SHA256SUMS" >/dev/null 2>&1 ||
            die "SHA256SUMS beside $release is not signed by a known key: nothing is installed"
    fi
    # A line of sha256sum: the sum, a space, a space or an asterisk, the name.
    expected=$(awk -v name="$name" '{ file = $2; sub(/^\*/, "", file) } file == name { print $1; exit }' "$work/SHA256SUMS")
    [ -n "$expected" ] || die "SHA256SUMS beside $release has no line for $name"
fi
actual=$(sha256sum "$work/$name")
actual=${actual%% *}
[ "$actual" = "${expected,,}" ] || die "$release has the SHA-256 $actual, not $expected: nothing is installed"

case $name in
    *.xz)
        command -v xz >/dev/null || die "xz is not installed; install it (Debian: xz-utils), or give the file without .xz"
        xz --decompress --stdout "$work/$name" >"$work/wirepath"
        ;;
    *) mv "$work/$name" "$work/wirepath" ;;
esac
# Beside the program that it replaces, which may be running, and where programs may be executed.
mkdir -p "$folder"
trap 'rm -rf "$work" "$folder/wirepath.new"' EXIT
mv -f "$work/wirepath" "$folder/wirepath.new"
chmod 755 "$folder/wirepath.new"
"$folder/wirepath.new" --version >"$work/version" 2>&1 ||
    die "$release does not run on this machine ($(uname -m)): $(head -n 1 "$work/version")"
mv -f "$folder/wirepath.new" "$folder/wirepath"
echo "$(cd "$folder" && pwd)/wirepath"
