//! Additions for the guest of path `tunnel`: the modules of gretap, and `ip` with its libraries.

use super::Guest;

pub(super) const GUEST: Guest = Guest {
    file: "tunnel.cpio",
    modules: &["virtio_net", "virtio_mmio", "ip_gre"],
    init: INIT,
    packages: &PACKAGES,
    files: &[("bin", &["ip"]), ("lib", &LIBRARIES)],
};

/// Debian's iproute2 with its libraries: busybox's `ip` does not support gretap.
const PACKAGES: [&str; 10] = [
    "iproute2",
    "libbpf1",
    "libc6",
    "libcap2",
    "libelf1t64",
    "libmnl0",
    "libpcre2-8-0",
    "libselinux1",
    "libzstd1",
    "zlib1g",
];
const LIBRARIES: [&str; 11] = [
    "ld-linux-aarch64.so.1",
    "libbpf.so.1",
    "libc.so.6",
    "libcap.so.2",
    "libelf.so.1",
    "libmnl.so.0",
    "libpcre2-8.so.0",
    "libselinux.so.1",
    "libz.so.1",
    "libzstd.so.1",
    "libm.so.6",
];

/// Two tunnels to the same other end, the second with a key, checksums and sequence numbers; four
/// queues each; and two unused ones, made before and after there is a route: what a tunnel
/// learns of its way when it is made, headroom and MTU, shows in its MTU.
const INIT: &str = r#"#!/bin/busybox sh
b=/bin/busybox
export LD_LIBRARY_PATH=/lib
ip=/bin/ip
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs devtmpfs /dev
for module in MODULES; do
    $b insmod /modules/$module.ko || echo "wirepath-linux: no $module"
done
echo 1 >/proc/sys/net/ipv4/conf/all/arp_ignore
$ip link add early type gretap local 10.99.0.2 remote 10.99.0.3
$ip link set lo up
$ip link set eth0 mtu 1600 up
$ip address add 10.99.0.2/24 dev eth0
$ip link add late type gretap local 10.99.0.2 remote 10.99.0.4
ends="local 10.99.0.2 remote 10.99.0.1"
$ip link add gt0 numtxqueues 4 numrxqueues 4 type gretap $ends
$ip link add gt1 numtxqueues 4 numrxqueues 4 type gretap $ends key 7 csum seq
for n in 0 1; do
    $ip link set gt$n mtu 1500 up
    $ip address add 10.8$((n + 8)).0.2/24 dev gt$n
done
for name in early late gt0 gt1; do
    queues=$($b ls /sys/class/net/$name/queues | $b grep -c tx-)
    echo "wirepath-linux $name mtu=$($b cat /sys/class/net/$name/mtu) tx_queues=$queues."
done
$b nc -ll -p 47011 -e $b cat &
(cd /sys/class/net/gt1/statistics && $b nc -ll -p 47013 -e $b cat rx_fifo_errors rx_packets) &
for n in 8 9; do
    while :; do $b nc 10.8$n.0.1 47012 -e $b cat; $b sleep 1; done &
done
echo "wirepath-linux ready kernel=$($b uname -r)"
while :; do $b sleep 86400; done
"#;
