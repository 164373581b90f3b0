# shellcheck shell=sh
# A capture on the bridge, as a DHCP client holds one. An undo may run again: a capture that is there is the one to start,
# and one that is too slow is ended.
set -e
is_there() { grep -q ' 0003 ' /proc/net/packet; }
if [ "$1" = stop ]; then
    kill "$(cat capture.pid)"
    for _ in $(seq 2000); do is_there || exit 0; sleep 0.01; done
    exit 1
fi
! is_there || exit 0
setsid sh -c 'echo $$ >capture.pid; exec tcpdump -Z root -p -i br0 -w /dev/null udp port 67' >/dev/null 2>&1 &
for _ in $(seq 2000); do ! is_there || exit 0; sleep 0.01; done
kill "$(cat capture.pid)"
exit 1
