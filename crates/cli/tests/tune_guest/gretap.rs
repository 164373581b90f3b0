//! Headroom and firewall hooks in the way of gretap.

use serde_json::Value;

use crate::common::rig::Rig;
use crate::doctor::{examine, findings};

/// A host behind a bridge, whose frames all go to the bridge's other port.
const BENCH: &str = "
ip netns add plain
ip link add p0 type veth peer name h0 netns plain
ip -n plain address add 10.88.0.1/24 dev h0
ip -n plain link set h0 up
ip -n plain neigh add 10.88.0.9 lladdr 02:00:00:00:00:09 dev h0
ip link add br0 type bridge
ip link set p0 up
ip link set br0 up
ip link set p0 master br0
echo 'p:copies pskb_expand_head' >/sys/kernel/tracing/kprobe_events
echo 1 >/sys/kernel/tracing/events/kprobes/copies/enable
";

pub(super) const TUNNEL: &str = "
ip link add gt numtxqueues 2 type gretap local 10.81.0.1 remote 10.90.0.2
ip link set gt up
ip link set gt master br0
";
/// The other end is behind a card that requests no headroom, or behind one that requests some.
const BY_INTEL: &str = "ip route replace 10.90.0.2/32 via 10.81.0.2 dev intel\n";
const BY_VIRTIO: &str = "ip route replace 10.90.0.2/32 via 10.77.0.1 dev vio\n";
const GONE: &str = "ip link delete gt\nip route delete 10.90.0.2/32\n";

/// Makes card `vmx` a port of the bridge in place of the veth; `far` sends to it by its own card on the same wire. With a third
/// port the bridge would pass clones, and those are copied whatever room they have.
pub(super) const CARD: &str = "
ip link set p0 nomaster
ip address flush dev vmx
ip link set vmx master br0
ip -n far address add 10.88.0.2/24 dev far
ip -n far neigh add 10.88.0.9 lladdr 02:00:00:00:00:09 dev far
";
const NO_CARD: &str = "
ip link set vmx nomaster
ip link set p0 master br0
ip address add 10.82.0.1/24 dev vmx
ip -n far address delete 10.88.0.2/24 dev far
";
const VXLAN: &str = "
ip link add gt type vxlan id 7 local 10.81.0.1 remote 10.90.0.2 dstport 4789
ip link set gt up
ip link set gt master br0
";

/// Copies that the kernel made for headroom while 100 frames were sent, by its own count.
///
/// - `sender`: namespace of a host behind the bridge: `plain` behind a veth, `far` behind a card.
fn copies_of_100(rig: &Rig, sender: &str) -> u32 {
    let text = rig.succeed(&format!(
        "hits() {{ awk '$1 == \"copies\" {{ print $2 }}' /sys/kernel/tracing/kprobe_profile; }}
         sent() {{ cat /sys/class/net/gt/statistics/tx_packets; }}
         ip netns exec {sender} ping -q -c 3 -i 0.01 -W 1 10.88.0.9 >/dev/null || true
         before=$(hits) first=$(sent)
         ip netns exec {sender} ping -q -c 100 -i 0.005 -W 1 10.88.0.9 >/dev/null || true
         echo $(($(hits) - before)) $(($(sent) - first))",
    ));
    let (copies, sent) = text.trim().split_once(' ').expect("two numbers");
    assert!(sent.parse::<u32>().expect("a number") >= 100, "{text}");
    copies.parse().expect("a number")
}

/// A card leaves 64 bytes in front of a frame, whatever the bridge asks for.
fn from_a_card(rig: &Rig) {
    rig.succeed(CARD);
    let found = || {
        let report = examine(rig, "gt");
        let found = findings(&report, "tunnel-headroom");
        found.iter().map(|one| one.to_string()).collect::<Vec<_>>()
    };
    // Made before its route: it asks for 152 bytes, and would be content with 50.
    rig.succeed(&[GONE, TUNNEL, BY_VIRTIO].concat());
    let copies = copies_of_100(rig, "far");
    assert!(copies >= 100, "{copies} copies");
    let all = found();
    assert_eq!(all.len(), 1, "{all:?}");
    for word in [
        "frames that vmx receives are copied for tunnel gt",
        "possible",
        "NET_SKB_PAD",
        "recreate gt",
    ] {
        assert!(all[0].contains(word), "{word}: {all:?}");
    }
    // Made after it.
    rig.succeed(&[GONE, BY_VIRTIO, TUNNEL].concat());
    let copies = copies_of_100(rig, "far");
    assert!(copies < 20, "{copies} copies");
    assert_eq!(found(), Vec::<String>::new());
    // VXLAN asks for what the interface below needs: with a virtio card more than a card leaves, bound to it or not.
    rig.succeed(&[GONE, BY_VIRTIO, VXLAN].concat());
    let copies = copies_of_100(rig, "far");
    assert!(copies >= 100, "{copies} copies");
    let all = found();
    assert!(
        all.iter().any(|one| one.contains("frames that vmx receives") && one.contains("low")),
        "{all:?}"
    );
    // With plain Ethernet it fits.
    rig.succeed(&[GONE, BY_INTEL, VXLAN].concat());
    let copies = copies_of_100(rig, "far");
    assert!(copies < 20, "{copies} copies");
    assert_eq!(found(), Vec::<String>::new());
    rig.succeed(&[GONE, NO_CARD, BY_VIRTIO, TUNNEL].concat());
}

pub(crate) fn headroom_copies_and_hooks_are_found_and_their_twins_are_not(rig: &Rig) {
    rig.succeed(BENCH);
    let doctor = || examine(rig, "gt");
    let silent = |report: &Value| {
        for check in
            ["tunnel-headroom", "tunnel-queues", "tunnel-mtu", "hooks", "rule-count", "conntrack"]
        {
            assert!(findings(report, check).is_empty(), "{check}: {report:#}");
        }
        assert_eq!(report["unseen"], Value::Array(Vec::new()), "{report:#}");
    };

    // Created while the route led elsewhere: the bridge's ports keep too little headroom.
    rig.succeed(&[BY_INTEL, TUNNEL, BY_VIRTIO].concat());
    let copies = copies_of_100(rig, "plain");
    assert!(copies >= 100, "{copies} copies");
    let report = doctor();
    let found = findings(&report, "tunnel-headroom");
    assert_eq!(found.len(), 1, "{report:#}");
    let said = found[0].to_string();
    for word in ["bridge br0 passes to gt", "52 bytes", "leaves 50", "gre_tap_xmit", "skb_cow_head"]
    {
        assert!(said.contains(word), "{word}: {said}");
    }
    // The change that it names works.
    rig.succeed(found[0]["change"].as_str().expect("a command"));
    silent(&doctor());
    let copies = copies_of_100(rig, "plain");
    assert!(copies < 20, "{copies} copies");

    // Controls: created with a known route, and without any, which requests more than enough.
    for order in [[BY_VIRTIO, TUNNEL], [TUNNEL, BY_VIRTIO]] {
        rig.succeed(&[&[GONE][..], &order].concat().concat());
        let copies = copies_of_100(rig, "plain");
        assert!(copies < 20, "{order:?}: {copies} copies");
        silent(&doctor());
    }

    from_a_card(rig);

    let rules = "        ip saddr 10.1.0.1 counter\n".repeat(25);
    let rules = format!(
        "table ip seeded {{\n    chain out {{\n        type filter hook output priority 0;\n\
         {rules}    }}\n}}\ntable bridge seeded {{\n    chain way {{\n\
         type filter hook forward priority 0;\n        counter\n    }}\n}}\n"
    );
    let file = rig.put("rules", &rules);
    rig.succeed(&format!("nft -f {file}"));
    let report = doctor();
    let found = findings(&report, "rule-count");
    assert_eq!(found.len(), 1, "{report:#}");
    let said = format!("{} {}", found[0], report["facts"]);
    for word in [
        "25 firewall rules",
        "ip seeded out",
        "bridge seeded way",
        "ip output nft_do_chain_ipv4",
        "bridge forward nft_do_chain_bridge",
    ] {
        assert!(said.contains(word), "{word}: {said}");
    }
    rig.succeed("nft flush ruleset");
    silent(&doctor());

    // One queue is one too few for two CPUs.
    rig.succeed("ip link add one type gretap local 10.81.0.1 remote 10.90.0.3");
    let report = examine(rig, "one");
    let found = findings(&report, "tunnel-queues");
    assert_eq!(found.len(), 1, "{report:#}");
    assert!(found[0].to_string().contains("tunnel one has one transmit queue"), "{report:#}");
}
