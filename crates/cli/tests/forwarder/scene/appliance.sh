# shellcheck shell=sh
# A forwarder with the faults of an access point: src - lan0, bridge br0, VXLAN tunnel tun0, wlan0 - sta.
# Names of the three namespaces are in $SRC, $AP and $STA.
set -e
TUNNEL=${TUNNEL:-vxlan id 7 dstport 4789}
export TUNNEL
for name in "$SRC" "$AP" "$STA"; do
    ip netns add "$name"
    ip netns exec "$name" sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
    ip -n "$name" link set lo up
done
ip link add c0 netns "$SRC" type veth peer name lan0 netns "$AP"
ip link add wlan0 netns "$AP" type veth peer name w0 mtu 1600 netns "$STA"
ip -n "$SRC" address add 10.20.0.1/24 dev c0
ip -n "$SRC" link set c0 up
ip -n "$STA" address add 192.168.20.1/32 dev lo
ip -n "$STA" address add 192.168.30.2/24 dev w0
ip -n "$STA" link set w0 up
ip -n "$STA" route add 192.168.10.1 via 192.168.30.1
# shellcheck disable=SC2086 # several words
ip -n "$STA" link add tun0 mtu 1500 type $TUNNEL \
    local 192.168.20.1 remote 192.168.10.1
ip -n "$STA" address add 10.20.0.2/24 dev tun0
ip -n "$STA" link set tun0 up
ip -n "$AP" link add br0 type bridge
ip -n "$AP" link set lan0 master br0 up
ip -n "$AP" link set br0 up
ip -n "$AP" address add 192.168.10.1/32 dev lo
ip -n "$AP" address add 192.168.30.1/24 dev wlan0
ip -n "$AP" link set wlan0 up
ip netns exec "$AP" sh hash.sh
ip netns exec "$AP" nft -f hooks.nft
ip netns exec "$AP" sh tun.sh queues 1
ip netns exec "$AP" sh capture.sh start
