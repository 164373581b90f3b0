# shellcheck shell=sh
# A capture on the bridge, as a DHCP client holds one.
set -e
if [ "$1" = stop ]; then
    kill "$(cat capture.pid)"
else
    setsid sh -c 'echo $$ >capture.pid; exec tcpdump -Z root -p -i br0 -w /dev/null udp port 67' >/dev/null 2>&1 &
    for _ in $(seq 500); do if grep -q ' 0003 ' /proc/net/packet; then exit 0; fi; sleep 0.01; done
    exit 1
fi
