//! The guest of these tests: three pairs of virtio-net cards, two of them behind an IOMMU.

use crate::common::rig::{Card, Machine, Rig};
use host::net;
use lab::TapHome;

pub(crate) const FAR_IP: &str = "10.91.0.2";
pub(crate) const ONE_IP: &str = "10.93.0.2";
pub(crate) const PLAIN_IP: &str = "10.92.0.2";
/// On VLAN 7 over `onea` and `oneb`.
pub(crate) const VLAN_IP: &str = "10.94.0.2";

/// `via` and `vib` have four queues each and reach the device's memory as zero-copy needs it; `plain`
/// and `plainb` do not. `onea` and `oneb` do, and have one queue: a card with spare ones takes some of
/// them for XDP, and may receive on them, where no zero-copy socket can be. The second of each pair is
/// in the namespace `far`.
const MACHINE: Machine = Machine {
    files: ["bzImage-newest", "rig-newest.cpio"],
    memory_mib: 1024,
    wires: &[
        "tap,id=a,queues=4,ifname=wp-a,script=no,downscript=no",
        "tap,id=b,queues=4,ifname=wp-b,script=no,downscript=no",
        "hubport,hubid=0,id=c",
        "hubport,hubid=0,id=d",
        "hubport,hubid=1,id=e",
        "hubport,hubid=1,id=f",
    ],
    cards: &[
        Card {
            name: "via",
            driver: Some("virtio_net"),
            mac: "52:54:00:00:01:01",
            device: "virtio-net-pci,netdev=a,mq=on,vectors=10,iommu_platform=on,disable-legacy=on",
        },
        Card {
            name: "vib",
            driver: None,
            mac: "52:54:00:00:01:02",
            device: "virtio-net-pci,netdev=b,mq=on,vectors=10,iommu_platform=on,disable-legacy=on",
        },
        Card {
            name: "plain",
            driver: Some("virtio_net"),
            mac: "52:54:00:00:01:03",
            device: "virtio-net-pci,netdev=c",
        },
        Card {
            name: "plainb",
            driver: None,
            mac: "52:54:00:00:01:04",
            device: "virtio-net-pci,netdev=d",
        },
        Card {
            name: "onea",
            driver: Some("virtio_net"),
            mac: "52:54:00:00:01:05",
            device: "virtio-net-pci,netdev=e,iommu_platform=on,disable-legacy=on",
        },
        Card {
            name: "oneb",
            driver: None,
            mac: "52:54:00:00:01:06",
            device: "virtio-net-pci,netdev=f,iommu_platform=on,disable-legacy=on",
        },
    ],
    connect,
    setup: SETUP,
};

/// A bridge between the two TAP interfaces.
fn connect(home: &TapHome) {
    let build = || -> Result<(), net::NetError> {
        let bridge = net::create_bridge("wp-br")?;
        for name in ["wp-a", "wp-b"] {
            let tap = net::link_named(name)?;
            net::set_master(tap.index, Some(bridge))?;
            net::set_up(tap.index, true)?;
        }
        net::set_up(bridge, true)
    };
    home.netns.run(build).expect("the namespace is entered").expect("a bridge");
}

const SETUP: &str = "
sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
ip netns add far
ip link set lo up
ip -n far link set lo up
for name in vib plainb oneb; do
    ip link set $name netns far
    ip -n far link set $name up
done
for name in via plain onea; do ip link set $name up; done
ethtool -L via combined 4
ip netns exec far ethtool -L vib combined 4
ip address add 10.91.0.1/24 dev via
ip address add 10.92.0.1/24 dev plain
ip address add 10.93.0.1/24 dev onea
ip -n far address add 10.91.0.2/24 dev vib
ip -n far address add 10.93.0.2/24 dev oneb
ip -n far address add 10.92.0.2/24 dev plainb
ip link add link onea name onea.7 type vlan id 7
ip -n far link add link oneb name oneb.7 type vlan id 7
ip link set onea.7 up
ip -n far link set oneb.7 up
ip address add 10.94.0.1/24 dev onea.7
ip -n far address add 10.94.0.2/24 dev oneb.7
for there in 10.91.0.2 10.92.0.2 10.93.0.2 10.94.0.2; do
    n=0
    until ping -qc 1 -W 1 $there >/dev/null; do n=$((n + 1)); [ $n -lt 30 ] || exit 1; done
done
# Without ARP beside the runs: this driver lost a zero-copy frame where its kernel sent a probe on the same queue.
for pair in via:vib:91:1 plain:plainb:92:3 onea:oneb:93:5 onea.7:oneb.7:94:5; do
    IFS=: read -r near far net n <<EOF
$pair
EOF
    ip neighbour replace 10.$net.0.2 dev $near lladdr 52:54:00:00:01:0$((n + 1)) nud permanent
    ip -n far neighbour replace 10.$net.0.1 dev $far lladdr 52:54:00:00:01:0$n nud permanent
done
for name in via plain onea; do ethtool -i $name | grep ^driver; done
";

/// Boots it with these programs of the host; `None` if that is not possible, and the reason is printed.
pub(crate) fn boot(programs: &[&str]) -> Option<Rig> {
    Rig::boot(&MACHINE, programs)
}
