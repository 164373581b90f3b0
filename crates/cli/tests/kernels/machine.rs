//! The guests: Debian's kernels, each with a pair of cards on one wire, the second of which is in the namespace `far`.

use crate::common::rig::{Card, Machine, USUAL};

pub(crate) const FAR_IP: &str = "10.93.0.2";

const BULLSEYE: [&str; 2] = ["bzImage-bullseye", "rig-bullseye.cpio"];
pub(crate) const BOOKWORM: [&str; 2] = ["bzImage-bookworm", "rig-bookworm.cpio"];
pub(crate) const TRIXIE: [&str; 2] = ["bzImage", "rig.cpio"];
pub(crate) const FROM_6_16: [&str; 2] = ["bzImage-6.16", "rig-6.16.cpio"];
pub(crate) const FROM_6_18: [&str; 2] = ["bzImage-6.18", "rig-6.18.cpio"];
pub(crate) const NEWEST: [&str; 2] = ["bzImage-newest", "rig-newest.cpio"];

/// Kernels of `cargo xtask kernels`, by where they come from, in ascending order.
pub(crate) const GUESTS: [(&str, Machine); 6] = [
    ("bullseye", Machine { files: BULLSEYE, ..VIRTIO }),
    ("bookworm", Machine { files: BOOKWORM, ..VIRTIO }),
    ("trixie", Machine { files: TRIXIE, ..VIRTIO }),
    ("trixie-backports", Machine { files: FROM_6_16, ..VIRTIO }),
    ("trixie-backports", Machine { files: FROM_6_18, ..VIRTIO }),
    ("trixie-backports", Machine { files: NEWEST, ..VIRTIO }),
];

/// Cards as zero-copy needs them: `via`, and `vib` in the namespace `far`; one queue each.
pub(crate) const VIRTIO: Machine = Machine {
    memory_mib: 1024,
    wires: &["hubport,hubid=0,id=a", "hubport,hubid=0,id=b"],
    cards: &[
        near("virtio_net", "virtio-net-pci,netdev=a,iommu_platform=on,disable-legacy=on"),
        far("virtio-net-pci,netdev=b,iommu_platform=on,disable-legacy=on"),
    ],
    setup: SETUP,
    ..USUAL
};

pub(crate) const fn near(driver: &'static str, device: &'static str) -> Card {
    Card { name: "via", driver: Some(driver), mac: "52:54:00:00:01:01", device }
}

pub(crate) const fn far(device: &'static str) -> Card {
    Card { name: "vib", driver: None, mac: "52:54:00:00:01:02", device }
}

const SETUP: &str = "
sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
ip netns add far
ip link set lo up
ip -n far link set lo up
ip link set vib netns far
ip -n far link set vib up
ip link set via up
ip address add 10.93.0.1/24 dev via
ip -n far address add 10.93.0.2/24 dev vib
n=0
until ping -qc 1 -W 1 10.93.0.2 >/dev/null; do n=$((n + 1)); [ $n -lt 30 ] || exit 1; done
ip neighbour replace 10.93.0.2 dev via lladdr 52:54:00:00:01:02 nud permanent
ip -n far neighbour replace 10.93.0.1 dev vib lladdr 52:54:00:00:01:01 nud permanent
ethtool -i via | grep ^driver
";
