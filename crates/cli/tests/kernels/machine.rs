//! The guests of the table: Debian's kernels, each with a pair of virtio-net cards behind an IOMMU.

use crate::common::rig::{Card, Machine};

pub(crate) const FAR_IP: &str = "10.93.0.2";

/// Kernels of `cargo xtask kernels`, by where they come from, in ascending order.
pub(crate) const GUESTS: [(&str, Machine); 6] = [
    ("bullseye", machine(["bzImage-bullseye", "rig-bullseye.cpio"])),
    ("bookworm", machine(["bzImage-bookworm", "rig-bookworm.cpio"])),
    ("trixie", machine(["bzImage", "rig.cpio"])),
    ("trixie-backports", machine(["bzImage-6.16", "rig-6.16.cpio"])),
    ("trixie-backports", machine(["bzImage-6.18", "rig-6.18.cpio"])),
    ("trixie-backports", machine(["bzImage-newest", "rig-newest.cpio"])),
];

/// `via`, and `vib` in the namespace `far`; one queue each.
const fn machine(files: [&'static str; 2]) -> Machine {
    Machine {
        files,
        memory_mib: 1024,
        wires: &["hubport,hubid=0,id=a", "hubport,hubid=0,id=b"],
        ports: &[],
        cards: &[
            Card {
                name: "via",
                driver: Some("virtio_net"),
                mac: "52:54:00:00:01:01",
                device: "virtio-net-pci,netdev=a,iommu_platform=on,disable-legacy=on",
            },
            Card {
                name: "vib",
                driver: None,
                mac: "52:54:00:00:01:02",
                device: "virtio-net-pci,netdev=b,iommu_platform=on,disable-legacy=on",
            },
        ],
        connect: |_| {},
        setup: SETUP,
    }
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
