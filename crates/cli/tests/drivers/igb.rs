//! Two cards of a driver that closes and opens its device for an XDP program: igb, in QEMU 8.0 and later.

use crate::busy_polling::settings_are_restored_after_a_kill;
use crate::common::rig::{Card, Machine, Rig, USUAL, has_model};
use crate::machine::{FILES, far_namespace};
use crate::{
    ARMS, Pair, every_arm_of_an_experiment_delivers, pings_are_answered_in_zero_copy_mode,
    the_host_receives_while_a_zero_copy_socket_sends,
};

const IGB: Pair = Pair { far_card: "igbb", far_ip: "10.96.0.2" };

const MACHINE: Machine = Machine {
    files: FILES,
    memory_mib: 768,
    wires: &["hubport,hubid=0,id=a", "hubport,hubid=0,id=b"],
    // Their virtual functions take slots of their bus.
    ports: &["pcie-root-port,id=pa,chassis=1", "pcie-root-port,id=pb,chassis=2"],
    cards: &[
        Card {
            name: "igba",
            driver: Some("igb"),
            mac: "52:54:00:00:01:09",
            device: "igb,bus=pa,netdev=a",
        },
        Card {
            name: "igbb",
            driver: None,
            mac: "52:54:00:00:01:0a",
            device: "igb,bus=pb,netdev=b",
        },
    ],
    setup: SETUP,
    ..USUAL
};

const SETUP: &str = "
sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
ip netns add far
ip link set lo up
ip -n far link set lo up
ip link set igbb netns far
ip -n far link set igbb up
ip link set igba up
ethtool -L igba combined 4
ip netns exec far ethtool -L igbb combined 4
ip address add 10.96.0.1/24 dev igba
ip -n far address add 10.96.0.2/24 dev igbb
ip neighbour replace 10.96.0.2 dev igba lladdr 52:54:00:00:01:0a nud permanent
ip -n far neighbour replace 10.96.0.1 dev igbb lladdr 52:54:00:00:01:09 nud permanent
n=0
until ping -qc 1 -W 1 10.96.0.2 >/dev/null; do n=$((n + 1)); [ $n -lt 30 ] || exit 1; done
ethtool -i igba | grep ^driver
";

#[test]
fn af_xdp_delivers_on_igb_in_zero_copy_mode() {
    if !has_model("igb") {
        return;
    }
    let Some(rig) = Rig::boot(&MACHINE, &["ip", "ethtool", "ping"]) else { return };
    pings_are_answered_in_zero_copy_mode(&rig, IGB);
    // Its interrupts are not counted: QEMU's model does not mask one by itself when it is raised, as the card does.
    settings_are_restored_after_a_kill(&rig, IGB);
    // As on a card with one queue.
    rig.succeed("ethtool -X igba equal 1");
    the_host_receives_while_a_zero_copy_socket_sends(&rig, IGB);
    rig.succeed("ethtool -X igba default");
    // A trial takes seconds: each attach, and each detach, resets the link.
    let options = format!("{ARMS} --time 60s");
    every_arm_of_an_experiment_delivers(&rig, far_namespace(&rig), IGB.far_ip, &options);
}
