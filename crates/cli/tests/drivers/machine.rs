//! The guests of these tests: three pairs of virtio-net cards in one guest, two of them behind an IOMMU, and a
//! pair with RSS between two guests.

use crate::common::rig::{Card, FarEnd, Machine, Rig, USUAL};
use host::net;
use lab::TapHome;

pub(crate) const FAR_IP: &str = "10.91.0.2";
pub(crate) const ONE_IP: &str = "10.93.0.2";
pub(crate) const PLAIN_IP: &str = "10.92.0.2";
/// On VLAN 7 over `onea` and `oneb`.
pub(crate) const VLAN_IP: &str = "10.94.0.2";
/// Of `rsa`, in the near guest.
pub(crate) const RSS_NEAR_IP: &str = "10.95.0.1";
/// Of `rsb`, in the other guest.
pub(crate) const RSS_IP: &str = "10.95.0.2";

/// A card whose device chooses the queue by the RSS hash. QEMU 7.2 does that by itself, and stops reading a queue of
/// the TAP interface for ever when a frame from it finds the ring of another queue full: the rings are as long as
/// they can be, and no flood belongs here.
macro_rules! rss_card {
    ($wire:literal) => {
        concat!(
            "virtio-net-pci,netdev=",
            $wire,
            ",mq=on,vectors=10,iommu_platform=on,disable-legacy=on,rss=on,hash=on,rx_queue_size=1024"
        )
    };
}

pub(crate) const FILES: [&str; 2] = ["bzImage-newest", "rig-newest.cpio"];

/// `via` and `vib` have four queues each and reach the device's memory as zero-copy needs it; `plain`
/// and `plainb` do not. `onea` and `oneb` do, and have one queue: a card with spare ones takes some of
/// them for XDP, and may receive on them, where no zero-copy socket can be. The second of each pair is
/// in the namespace `far`.
const MACHINE: Machine = Machine {
    files: FILES,
    memory_mib: 1024,
    wires: &[
        "tap,id=a,queues=4,ifname=wp-a,script=no,downscript=no",
        "tap,id=b,queues=4,ifname=wp-b,script=no,downscript=no",
        "hubport,hubid=0,id=c",
        "hubport,hubid=0,id=d",
        "hubport,hubid=1,id=e",
        "hubport,hubid=1,id=f",
        "tap,id=g,queues=4,ifname=wp-g,script=no,downscript=no",
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
        Card {
            name: "rsa",
            driver: Some("virtio_net"),
            mac: "52:54:00:00:01:07",
            device: rss_card!("g"),
        },
    ],
    connect: |home| bridge(home, "wp-br", ["wp-a", "wp-b"]),
    setup: SETUP,
    ..USUAL
};

/// The other end of `rsa`.
const BESIDE: Machine = Machine {
    files: FILES,
    memory_mib: 512,
    wires: &["tap,id=h,queues=4,ifname=wp-h,script=no,downscript=no"],
    cards: &[Card {
        name: "rsb",
        driver: Some("virtio_net"),
        mac: "52:54:00:00:01:08",
        device: rss_card!("h"),
    }],
    connect: |home| bridge(home, "wp-rss", ["wp-g", "wp-h"]),
    setup: SETUP_BESIDE,
    ..USUAL
};

fn bridge(home: &TapHome, name: &str, taps: [&str; 2]) {
    home.netns
        .run(|| -> Result<(), net::NetError> {
            let bridge = net::create_bridge(name)?;
            for tap in taps {
                let tap = net::link_named(tap)?;
                net::set_master(tap.index, Some(bridge))?;
                net::set_up(tap.index, true)?;
            }
            net::set_up(bridge, true)
        })
        .expect("the namespace is entered")
        .expect("a bridge");
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
for name in via plain onea rsa; do ip link set $name up; done
ethtool -L via combined 4
ethtool -L rsa combined 4
ip netns exec far ethtool -L vib combined 4
ip address add 10.91.0.1/24 dev via
ip address add 10.92.0.1/24 dev plain
ip address add 10.93.0.1/24 dev onea
ip address add 10.95.0.1/24 dev rsa
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
ip neighbour replace 10.95.0.2 dev rsa lladdr 52:54:00:00:01:08 nud permanent
for name in via plain onea rsa; do ethtool -i $name | grep ^driver; done
";

const SETUP_BESIDE: &str = "
sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
ip link set lo up
ip link set rsb up
ethtool -L rsb combined 4
ip address add 10.95.0.2/24 dev rsb
ip neighbour replace 10.95.0.1 dev rsb lladdr 52:54:00:00:01:07 nud permanent
n=0
until ping -qc 1 -W 1 10.95.0.1 >/dev/null; do n=$((n + 1)); [ $n -lt 30 ] || exit 1; done
ethtool -i rsb | grep ^driver
";

/// Boots them with these programs of the host; `None` if that is not possible, and the reason is printed.
pub(crate) fn boot(programs: &[&str]) -> Option<[Rig; 2]> {
    Rig::boot_all([&MACHINE, &BESIDE], programs)
}

/// Boots the near guest alone with the oldest kernel from 6.18 on, as [`boot`].
pub(crate) fn boot_6_18(programs: &[&str]) -> Option<Rig> {
    let machine = Machine { files: ["bzImage-6.18", "rig-6.18.cpio"], ..MACHINE };
    Rig::boot(&machine, programs)
}

/// The namespace `far` of the near guest.
pub(crate) fn far_namespace(rig: &Rig) -> FarEnd<'_> {
    FarEnd { rig, inside: "ip netns exec far" }
}

/// Puts a plan for an interface of the guest's own namespace into it; returns its file. The step has a knob, a target,
/// the value now and the new one.
pub(crate) fn plan_of_one_step(rig: &Rig, card: &str, step: [&str; 4]) -> String {
    let [knob, target, seen, value] = step;
    let plan = rig.succeed(&format!("wirepath tune plan --profile latency --interface {card}"));
    let head = plan.split("\n[[").next().expect("a plan");
    rig.put(
        "one-step.toml",
        format!(
            "{head}\n\n[[step]]\nknob = \"{knob}\"\ntarget = \"{target}\"\nseen = \"{seen}\"\n\
             value = \"{value}\"\nreason = \"a test\"\n"
        ),
    )
}
