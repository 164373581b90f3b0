# A capture on the bridge, as a DHCP client holds one.
set -e
if [ "$1" = stop ]; then
    kill "$(cat capture.pid)"
else
    setsid sh -c 'echo $$ >capture.pid; exec tcpdump -p -i br0 -w /dev/null udp port 67' >/dev/null 2>&1 &
    until [ -s /proc/net/packet ] && grep -q ' 3 ' /proc/net/packet; do sleep 0.01; done
fi
