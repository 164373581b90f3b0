# shellcheck shell=sh
# Remakes the tunnel with one property changed: `tun.sh queues 2`, `tun.sh order late`.
# A tunnel that is made before its route asks for more headroom than it needs.
set -e
TUNNEL=${TUNNEL:-vxlan id 7 dstport 4789}
queues=1 order=early
# shellcheck source=/dev/null
if [ -f tun.conf ]; then . ./tun.conf; fi
eval "$1=$2"
printf 'queues=%s order=%s\n' "$queues" "$order" >tun.conf
if [ -e /proc/net/dev ] && grep -q ' tun0:' /proc/net/dev; then ip link del tun0; fi
ip route del 192.168.20.1 2>/dev/null || true
if [ "$order" = late ]; then ip route add 192.168.20.1 via 192.168.30.2; fi
# shellcheck disable=SC2086 # several words
ip link add tun0 mtu 1500 numtxqueues "$queues" type $TUNNEL \
    local 192.168.10.1 remote 192.168.20.1
ip route replace 192.168.20.1 via 192.168.30.2
ip link set tun0 master br0 up
