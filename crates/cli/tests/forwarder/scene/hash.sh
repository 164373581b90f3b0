# shellcheck shell=sh
# Every frame from the LAN gets one hash, as some drivers' do.
set -e
tc qdisc add dev lan0 clsact
tc filter add dev lan0 ingress bpf da obj program.o sec classifier
