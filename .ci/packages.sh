# shellcheck shell=bash
# Functions of the scripts in .ci that test packages, with those of need.sh. Sourced, not run.
# shellcheck source=.ci/need.sh
. .ci/need.sh

# newest TEST...: the newest file or folder in out/ that find's tests choose.
newest() {
    [ ! -d out ] || find out "$@" -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d ' ' -f 2-
}

# The newest folder of `cargo xtask release`.
newest_release() { newest -maxdepth 1 -type d -name 'wirepath-*'; }

# unpack IMAGE ROOT COPY: writes the layers of an image, as skopeo names it, into the folder ROOT; COPY is overwritten.
unpack() {
    rm -rf "$3"
    skopeo copy --quiet "$1" "dir:$3"
    mkdir -p "$2"
    for layer in $(skopeo inspect --format '{{range .Layers}}{{println .}}{{end}}' "dir:$3"); do
        tar -xzf "$3/${layer#sha256:}" -C "$2"
    done
}
