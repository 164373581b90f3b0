#!/usr/bin/env bash
# Runs one experiment of Wirepath in a CI job and leaves its result as files: is this branch's server worse than the
# old one? It needs no root where users may make network namespaces.
#   contrib/ci/prove.sh [EXPERIMENT...]
# EXPERIMENT: arguments of `wirepath prove` without --fail-on, or `compare` with those of `wirepath compare`:
#   contrib/ci/prove.sh command --against './main/server -p 4433' --server './pr/server -p 4433' \
#       --client './bench $WIREPATH_FAR:4433' --metric 'p99_us=re:p99 ([0-9.]+) lower' --time 5m
#   contrib/ci/prove.sh compare ./main/sort ./pr/sort --time 2m
#   contrib/ci/prove.sh probe --against ./wirepath.main --arms spin+bypass
# WIREPATH_AGAINST, WIREPATH_SERVER, WIREPATH_CLIENT, WIREPATH_METRIC (one a line): options of an experiment `command`,
# which is run if there is no EXPERIMENT.
# Exit codes are those of Wirepath: 0 if nothing is shown to be worse by more than the difference that matters, 4 if a
# figure is worse, 5 if that is not decided. WIREPATH_UNDECIDED=pass makes that a warning and exit code 0.
# WIREPATH_OUT: folder of the result (default: wirepath-result).
set -euo pipefail

words=("$@")
[ $# -gt 0 ] || [ -z "${WIREPATH_AGAINST:-}" ] || words=(command)
[ ${#words[@]} -gt 0 ] || { sed -n '2,15s/^# \{0,1\}//p' "$0" >&2; exit 2; }
case ${WIREPATH_UNDECIDED:-fail} in
    pass | fail) ;;
    *) echo "WIREPATH_UNDECIDED is $WIREPATH_UNDECIDED; give pass or fail" >&2; exit 2 ;;
esac
command -v wirepath >/dev/null || {
    echo "wirepath is not installed: contrib/ci/install.sh installs the program of a release" >&2
    exit 1
}
if [ "${words[0]}" = command ]; then
    for option in against server client metric; do
        variable=WIREPATH_${option^^}
        while read -r value; do
            [ -z "$value" ] || words+=("--$option" "$value")
        done <<<"${!variable:-}"
    done
fi
case ${words[0]} in
    compare) ;;
    *) words=(prove "${words[@]}" --fail-on worse) ;;
esac

out=${WIREPATH_OUT:-wirepath-result}
mkdir -p "$out"
export WIREPATH_DATA="$out/data"

code=0
wirepath "${words[@]}" || code=$?
# Nothing was measured: a usage error, or a host that cannot run it.
[ -e "$WIREPATH_DATA/history.db" ] || exit "$code"

report() { wirepath report last --format "$1"; }
wirepath report last --json >"$out/result.json" || exit "$code"
wirepath report last --html "$out/report.html"
report markdown >"$out/summary.md"
report junit >"$out/junit.xml"
report bencher >"$out/bencher.json"
report openmetrics >"$out/metrics.txt"
if [ -n "${GITHUB_STEP_SUMMARY:-}" ]; then
    cat "$out/summary.md" >>"$GITHUB_STEP_SUMMARY"
    report github
fi
if [ "$code" -eq 5 ]; then
    text="Not decided when the time was up: give it more, or accept a larger difference."
    if [ -n "${GITHUB_STEP_SUMMARY:-}" ]; then echo "::warning title=Wirepath::$text"; else echo "$text" >&2; fi
    [ "${WIREPATH_UNDECIDED:-fail}" = fail ] || code=0
fi
exit "$code"
