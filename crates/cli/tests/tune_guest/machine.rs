//! The guest of these tests: cards of three drivers.

use crate::common::rig::{Card, Machine, Rig, USUAL};

const TAP: &str = "wp-tap";

/// `intel`, `vmx` and `far` are on one wire, and `far` is in a namespace of that name; `vio` has two
/// queues and a wire to the test.
pub(crate) const MACHINE: Machine = Machine {
    files: ["bzImage", "rig.cpio"],
    memory_mib: 512,
    wires: &[
        "tap,id=d,queues=2,ifname=wp-tap,script=no,downscript=no",
        "hubport,hubid=0,id=a",
        "hubport,hubid=0,id=b",
        "hubport,hubid=0,id=c",
    ],
    cards: &[
        Card {
            name: "intel",
            driver: Some("e1000e"),
            mac: "52:54:00:00:00:01",
            device: "e1000e,netdev=a",
        },
        Card {
            name: "vmx",
            driver: Some("vmxnet3"),
            mac: "52:54:00:00:00:02",
            device: "vmxnet3,netdev=b",
        },
        Card {
            name: "far",
            driver: None,
            mac: "52:54:00:00:00:03",
            device: "virtio-net-pci,netdev=c",
        },
        Card {
            name: "vio",
            driver: Some("virtio_net"),
            mac: "52:54:00:00:00:04",
            device: "virtio-net-pci,netdev=d,mq=on,vectors=6",
        },
    ],
    connect: |wire| wire.adopt(TAP).expect("QEMU has made it"),
    setup: SETUP,
    ..USUAL
};

/// The same with an older kernel, that of appliances.
pub(crate) const APPLIANCE: Machine =
    Machine { files: ["bzImage-bookworm", "rig-bookworm.cpio"], ..MACHINE };

/// Addresses: `intel` and `vmx` reach `far`.
const SETUP: &str = "
sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
# Two cards of one machine on one wire: each answers for its own address only.
sysctl -qw net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2
ip netns add far
ip link set far netns far
ip -n far link set lo up
ip -n far link set far up
ip -n far address add 10.81.0.2/24 dev far
ip -n far address add 10.82.0.2/24 dev far
ip link set lo up
for name in intel vmx vio; do ip link set $name up; done
ip address add 10.81.0.1/24 dev intel
ip address add 10.82.0.1/24 dev vmx
ip address add 10.77.0.2/24 dev vio
for there in 10.81.0.2 10.82.0.2 10.77.0.1; do
    n=0
    until ping -qc 1 -W 1 $there >/dev/null; do n=$((n + 1)); [ $n -lt 30 ] || exit 1; done
done
for name in intel vmx vio; do ethtool -i $name | grep ^driver; done
";

/// Boots it with these programs of the host; `None` if that is not possible, and the reason is printed.
pub(crate) fn boot(programs: &[&str]) -> Option<Rig> {
    Rig::boot(&MACHINE, programs)
}
