//! Nine faults of an access point that bridges a network card into a GRE tunnel, each planted alone: the observer
//! names it with its count, and nothing of the nine without it.

use std::fs;

use host::scratch::Scratch;
use serde_json::Value;
use testkit::{CONSTANT_HASH, XDP_PASS, bpf_object, is_installed};

use crate::common::rig::Rig;
use crate::gretap::{CARD, TUNNEL};

/// A host `plain` behind a port of the bridge, and the tunnel as its other port. All cards spread flows over both CPUs.
const ACCESS_POINT: &str = "
ip netns add plain
ip link add p0 numrxqueues 1 numtxqueues 1 type veth peer name h0 numrxqueues 1 numtxqueues 1 netns plain
ip -n plain address add 10.88.0.1/24 dev h0
ip -n plain link set h0 up
ip -n plain neigh add 10.88.0.9 lladdr 02:00:00:00:00:09 dev h0
ip link add br0 type bridge
ip link set p0 up
ip link set br0 up
ip link set p0 master br0
for card in p0 intel vmx vio; do
    for mask in /sys/class/net/$card/queues/rx-*/rps_cpus; do echo 3 >$mask; done
done
";
const ROUTE: &str = "ip route add 10.90.0.2/32 via 10.77.0.1 dev vio\n";
const NO_TUNNEL: &str = "ip link delete gt\n";

/// Chains without a rule, where bridged frames pass, and the tunnel's packets.
const EMPTY_CHAINS: &str = "
table bridge empty {
    chain before { type filter hook prerouting priority 0; }
    chain way { type filter hook forward priority 0; }
    chain behind { type filter hook postrouting priority 0; }
}
table ip empty {
    chain out { type filter hook output priority 0; }
    chain behind { type filter hook postrouting priority 0; }
}
";

/// Causes that the nine faults are found as.
const CAUSES: [&str; 9] = [
    "constant-hash",
    "tunnel-queues",
    "tunnel-headroom",
    "hooks",
    "taps",
    "bridge-netfilter",
    "receive-steering",
    "frame-copies",
    "queues-on-one-cpu",
];

struct Fault {
    plant: &'static str,
    undo: &'static str,
    cause: &'static str,
    /// In the finding, with the count.
    words: &'static [&'static str],
}

/// Those that frames of `plain` suffer.
const FAULTS: [Fault; 8] = [
    Fault {
        plant: "tc -n plain qdisc add dev h0 clsact
                tc -n plain filter add dev h0 egress bpf da obj /host/hash.o sec classifier",
        undo: "tc -n plain qdisc delete dev h0 clsact",
        cause: "constant-hash",
        words: &["the 64 flows that p0 receives have 1 hash", "64 flows with 1 hashes"],
    },
    Fault {
        plant: "ip link delete gt
                ip link add gt numtxqueues 1 type gretap local 10.81.0.1 remote 10.90.0.2
                ip link set gt up
                ip link set gt master br0",
        undo: "ip link delete gt
               ip link add gt numtxqueues 2 type gretap local 10.81.0.1 remote 10.90.0.2
               ip link set gt up
               ip link set gt master br0",
        cause: "tunnel-queues",
        words: &["gt has one transmit queue", "frames in the window through one queue"],
    },
    Fault {
        plant: "nft -f /host/chains",
        undo: "nft flush ruleset",
        cause: "hooks",
        words: &["chains without a rule", "bridge forward ran for", "for each received frame"],
    },
    Fault {
        plant: "echo root:x:0:0::/:/bin/sh >/etc/passwd
                tcpdump -Z root -i p0 -w /dev/null >/tmp/tcpdump.err 2>&1 &
                echo $! >/tmp/tcpdump
                n=0
                until grep -q ' 0003 ' /proc/net/packet; do
                    n=$((n + 1)); [ $n -lt 100 ] || { cat /tmp/tcpdump.err >&2; exit 9; }
                    sleep 0.1
                done",
        undo: "kill $(cat /tmp/tcpdump); while [ -e /proc/$(cat /tmp/tcpdump) ]; do sleep 0.1; done",
        cause: "taps",
        words: &[
            "tcpdump",
            "all packets on p0",
            "frames passed its filter",
            "of p0 by tpacket_rcv",
        ],
    },
    Fault {
        plant: "insmod /modules/br_netfilter.ko",
        undo: "rmmod br_netfilter",
        cause: "bridge-netfilter",
        words: &["bridge-nf-call-iptables=0", "functions for", "bridge forward ran for"],
    },
    Fault {
        plant: "echo 0 >/sys/class/net/p0/queues/rx-0/rps_cpus",
        undo: "echo 3 >/sys/class/net/p0/queues/rx-0/rps_cpus",
        cause: "receive-steering",
        words: &["p0 has one receive queue and no RPS", "of 64 flows in the window, all on CPU"],
    },
    // Of whole frames, into pages of 4 KiB: the driver of veth, for an XDP program.
    Fault {
        plant: "ip link set p0 xdp obj /host/pass.o sec xdp",
        undo: "ip link set p0 xdp off",
        cause: "frame-copies",
        words: &["[veth] copies frames of p0", "copies for"],
    },
    Fault {
        plant: "echo 1 >/sys/class/net/p0/queues/rx-0/rps_cpus",
        undo: "echo 3 >/sys/class/net/p0/queues/rx-0/rps_cpus",
        cause: "receive-steering",
        words: &["passes all packets to CPU 0", "of 64 flows in the window, all on CPU 0"],
    },
];

/// The doctor's report while a namespace sends 64 flows through the access point.
fn examine(rig: &Rig, sender: &str) -> Value {
    rig.json(&format!(
        "sent() {{ cat /sys/class/net/gt/statistics/tx_packets; }}
         ip netns exec {sender} wirepath probe send 10.88.0.9 --flows 64 --rate 400 --size 1000 --no-peer --pin 1 \
             --time 200s >/tmp/load 2>&1 &
         load=$!
         first=$(sent) n=0
         until [ $(($(sent) - first)) -gt 100 ]; do
             n=$((n + 1)); [ $n -lt 300 ] || {{ cat /tmp/load >&2; exit 9; }}
             sleep 0.1
         done
         wirepath doctor gt --observe 3s --flame /tmp/stacks.svg --json
         kill $load
         wait $load || true",
    ))
}

/// Findings of the nine faults, as cause and whole text.
fn found(report: &Value) -> Vec<(String, String)> {
    let all = report["findings"].as_array().expect("a list").iter();
    let own = all.filter(|one| CAUSES.iter().any(|cause| one["cause"] == *cause));
    own.map(|one| (one["cause"].as_str().expect("text").to_owned(), one.to_string())).collect()
}

fn is_named_alone(report: &Value, cause: &str, words: &[&str]) {
    let found = found(report);
    assert!(found.iter().all(|(other, _)| other == cause), "{cause} alone: {found:#?}");
    let Some((_, said)) = found.first() else { panic!("no {cause}: {report:#}") };
    for word in words {
        assert!(said.contains(word), "{word}: {said}");
    }
    testkit::note(&format!("{cause}: {said}"));
}

fn is_silent(report: &Value) {
    assert_eq!(found(report), Vec::new());
    assert_eq!(report["observed"]["sees_functions"], true, "{:#}", report["observed"]);
    assert_eq!(report["unseen"], Value::Array(Vec::new()), "{report:#}");
    assert!(
        report["observed"]["cost"]["ns_per_frame"].as_u64().is_some(),
        "{:#}",
        report["observed"]
    );
}

pub(crate) fn nine_faults_are_each_named_with_their_counts_and_their_twins_are_not(rig: &Rig) {
    if !is_installed("clang") {
        return;
    }
    let folder = Scratch::new().expect("a folder");
    for (name, source) in [("hash.o", CONSTANT_HASH), ("pass.o", XDP_PASS)] {
        let object = bpf_object(folder.path(), source);
        rig.put(name, fs::read(object).expect("a file"));
    }
    rig.put("chains", EMPTY_CHAINS);
    rig.succeed(&[ACCESS_POINT, ROUTE, TUNNEL].concat());

    is_silent(&examine(rig, "plain"));
    let folded = rig.succeed("cat /tmp/stacks.folded; head -c 5 /tmp/stacks.svg");
    assert!(folded.contains(";gre_tap_xmit") && folded.ends_with("<svg "), "{folded}");

    for Fault { plant, undo, cause, words } in &FAULTS {
        rig.succeed(plant);
        is_named_alone(&examine(rig, "plain"), cause, words);
        rig.succeed(undo);
    }
    is_silent(&examine(rig, "plain"));

    // Made before its route, the tunnel asks for more room than a card leaves.
    rig.succeed(&[CARD, NO_TUNNEL, "ip route delete 10.90.0.2/32\n", TUNNEL, ROUTE].concat());
    let words = ["frames that gt sends are copied for headroom", "gre_tap_xmit", "recreate gt"];
    is_named_alone(&examine(rig, "far"), "tunnel-headroom", &words);
    rig.succeed(&[NO_TUNNEL, TUNNEL].concat());
    is_silent(&examine(rig, "far"));
}
