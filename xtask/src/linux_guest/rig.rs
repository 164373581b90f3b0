//! The guest in which tests run the program itself, against drivers of real network cards.
//!
//! It contains only a shell and modules. The test provides programs, libraries and commands in a
//! folder that QEMU shares under the name `wirepath`. The contents of `root/` are copied to `/`,
//! including a shell `usr/bin/sh`, because busybox's would run its own `ip` instead of the installed
//! one. The guest then runs each `run.N` that appears, N counting from 0, and writes `out.N`, `err.N`
//! and, once both are complete, `code.N`.

use super::Guest;

/// With the kernel of the release, and its xdp-tools, which kernels from 6.18 on refuse and whose version of Debian
/// 12 has no generator that works.
pub(super) const GUEST: Guest = Guest {
    packages: &[
        "libbpf1",
        "libc6",
        "libelf1t64",
        "libzstd1",
        "wireguard-tools",
        "xdp-tools",
        "zlib1g",
    ],
    files: &[("xdp-tools", &XDP_TOOLS)],
    ..rig("rig.cpio", MODULES)
};
/// Three programs with the libraries that they need, beside those of the host.
const XDP_TOOLS: [&str; 10] = [
    "bin/wg",
    "xdp-bench",
    "xdp-trafficgen",
    "ld-linux-x86-64.so.2",
    "libbpf.so.1",
    "libc.so.6",
    "libelf.so.1",
    "libm.so.6",
    "libz.so.1",
    "libzstd.so.1",
];
/// With the newest kernel, whose CRC32c is built in.
pub(super) const NEWEST: Guest = rig("rig-newest.cpio", OTHERS_MODULES.split_at(1).1);

pub(super) const FROM_6_16: Guest = rig("rig-6.16.cpio", OTHERS_MODULES.split_at(1).1);
pub(super) const FROM_6_18: Guest = rig("rig-6.18.cpio", OTHERS_MODULES.split_at(1).1);
pub(super) const BOOKWORM: Guest = rig("rig-bookworm.cpio", OTHERS_MODULES);
pub(super) const BULLSEYE: Guest = rig("rig-bullseye.cpio", OTHERS_MODULES);

const fn rig(file: &'static str, modules: &'static [&'static str]) -> Guest {
    Guest { file, modules, init: INIT, packages: &[], files: &[] }
}

/// Modules of [`GUEST`] alone, in front of [`MODULES`].
const ENCRYPTION_COUNT: usize = 7;
const OTHERS_MODULES: &[&str] = MODULES.split_at(ENCRYPTION_COUNT).1;
const MODULES: &[&str] = &[
    // WireGuard, and IPsec with the parts of its cipher.
    "wireguard",
    "ctr",
    "ghash_generic",
    "gcm",
    "seqiv",
    "esp4",
    "xfrm_user",
    // Other modules request it by algorithm, and there is no modprobe to resolve that.
    "crc32c_generic",
    "virtio_pci",
    "9pnet_virtio",
    "9p",
    "virtio_net",
    "e1000e",
    "vmxnet3",
    "igb",
    "af_packet",
    "veth",
    "bridge",
    "br_netfilter",
    "vxlan",
    "8021q",
    "ip_gre",
    "nf_tables",
    "nf_conntrack",
    "sch_ingress",
    "cls_bpf",
    "tcp_diag",
    "udp_diag",
];

const INIT: &str = r#"#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t tracefs tracefs /sys/kernel/tracing
$b mount -t devtmpfs devtmpfs /dev
for module in MODULES; do
    # It changes the bridges of all tests: one that wants it loads it.
    [ $module != br_netfilter ] || continue
    $b insmod /modules/$module.ko || echo "wirepath-linux: no $module"
done
$b mkdir -p /etc /host /root /run/netns /tmp /var/lib
$b --install -s /bin
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 wirepath /host || {
    echo "wirepath-linux: no shared folder"
    poweroff -f
}
cp -a /host/root/. /
export PATH=/usr/bin:/bin HOME=/root
echo "wirepath-linux ready kernel=$(uname -r)"
n=0
while :; do
    if [ -e /host/run.$n ]; then
        /usr/bin/sh /host/run.$n </dev/null >/host/out.$n 2>/host/err.$n
        echo $? >/host/code
        mv /host/code /host/code.$n
        n=$((n + 1))
    else
        usleep 10000
    fi
done
"#;
