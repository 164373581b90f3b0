//! AF_XDP on real drivers, in a Debian guest with the newest kernel: zero-copy, several queues, busy
//! polling. Skipped without QEMU and the guest of `cargo xtask linux-guest`.

mod busy_polling;
#[path = "../common/mod.rs"]
mod common;
mod igb;
mod machine;
mod rss;
mod suspension;

use common::rig::{FarEnd, Rig};
use machine::{FAR_IP, ONE_IP, PLAIN_IP, VLAN_IP, boot, boot_6_18, far_namespace};
use serde_json::Value;

/// Receive queues of each zero-copy card that has several.
const QUEUES: u64 = 4;

/// Two cards in namespaces of one guest.
#[derive(Clone, Copy)]
struct Pair {
    far_card: &'static str,
    far_ip: &'static str,
}

const FOUR_QUEUES: Pair = Pair { far_card: "vib", far_ip: FAR_IP };
const ONE_QUEUE: Pair = Pair { far_card: "oneb", far_ip: ONE_IP };

/// Runs `near` while `far` serves in the far namespace; the document of `near`.
fn with_far(rig: &Rig, far: &str, near: &str) -> Value {
    far_namespace(rig).serve(far, || rig.json(&format!("wirepath {near} --json")))
}

fn count(document: &Value, path: &str) -> u64 {
    document.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path}: {document}"))
}

fn round_trips(document: &Value) -> [u64; 3] {
    ["sent_count", "received_count", "lost_count"]
        .map(|name| count(document, &format!("/deliveries/round-trip/{name}")))
}

fn mode(document: &Value, name: &str) -> String {
    document["mode"][name].as_str().unwrap_or_default().to_owned()
}

/// The driver refuses with EINVAL what others refuse with EOPNOTSUPP.
fn zero_copy_falls_back_without_an_iommu(rig: &Rig) {
    let ping = format!("probe ping {PLAIN_IP} --no-peer -c 50 --arm bypass+native+zero-copy");
    let document = with_far(rig, "probe echo -i plainb", &ping);
    assert_eq!(round_trips(&document), [50, 50, 0], "{document}");
    assert_eq!(mode(&document, "near xdp"), "native, copy", "{document}");
    let notes = document["not_effective"].to_string();
    assert!(notes.contains("zero-copy"), "{document}");
    let refused = rig.run(&format!("wirepath {ping} --require-zero-copy"));
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    assert!(refused.stderr.contains("zero-copy is not offered"), "{}", refused.stderr);
}

/// Both ends in zero-copy mode, by every way of waiting; the frames are in the fill ring before the
/// device looks for them.
fn pings_are_answered_in_zero_copy_mode(rig: &Rig, Pair { far_card, far_ip }: Pair) {
    let engine = "--require-zero-copy --arm bypass+native+zero-copy";
    for more in ["", "+need-wakeup", "+spin", "+busy-poll", "+spin+busy-poll"] {
        let far = format!("probe echo -i {far_card} {engine}{more}");
        let near = format!("probe ping {far_ip} --no-peer -c 100 {engine}{more}");
        let document = with_far(rig, &far, &near);
        let far_out = rig.succeed("cat /tmp/far.out");
        assert_eq!(round_trips(&document), [100, 100, 0], "{more}: {document}\n{far_out}");
        assert!(mode(&document, "near xdp").ends_with("zero-copy"), "{more}: {document}");
        assert_eq!(count(&document, "/counters/near_ledger_unbalanced_count"), 0, "{document}");
        let empty = count(&document, "/counters/near_xdp_fill_ring_empty_count");
        // The driver counts once a queue while it sets the queue up; without frames it spins.
        assert!(empty <= QUEUES, "{more}: {document}");
        if more.contains("busy-poll") {
            assert_ne!(mode(&document, "near napi id"), "0", "{more}: {document}");
        }
    }
}

/// Sockets know the NAPI instance of their queue, which a veth does not name, and the device reads the
/// pages of the process, which a veth does not.
fn sockets_use_the_napi_instance_and_the_pages_that_a_veth_has_not(rig: &Rig) {
    let polls = "--arm epoll+epoll-busy-poll";
    let near = format!("probe ping {FAR_IP} --no-peer -c 50 {polls}");
    let document = with_far(rig, &format!("probe echo -i vib {polls}"), &near);
    assert_eq!(round_trips(&document)[1], 50, "{document}");
    assert_ne!(mode(&document, "near napi id"), "0", "{document}");
    assert!(!document["not_effective"].to_string().contains("epoll"), "{document}");
    let near =
        format!("probe send {FAR_IP} --no-peer -c 500 --rate 500 --size 1400 --arm zero-copy-send");
    let document = with_far(rig, "probe receive -i vib", &near);
    let counted = |name: &str| count(&document, &format!("/counters/near_zero_copy_send_{name}"));
    assert_eq!((counted("count"), counted("copied_count")), (500, 0), "{document}");
    assert!(!document["not_effective"].to_string().contains("zero-copy"), "{document}");
}

/// A zero-copy socket that only sends leaves the device frames to receive into. All of the host's traffic
/// arrives on the socket's queue. The pings begin when datagrams arrive, and end before the run.
fn the_host_receives_while_a_zero_copy_socket_sends(rig: &Rig, Pair { far_card, far_ip }: Pair) {
    let told = rig.succeed(&format!(
        "arrived() {{ ip netns exec far cat /sys/class/net/{far_card}/statistics/rx_packets; }}
         before=$(arrived)
         wirepath probe send {far_ip} --no-peer --time 6s --rate 1000 --json --arm bypass+native+zero-copy \
             --require-zero-copy >/tmp/send.json &
         n=0
         until [ $(arrived) -gt $((before + 100)) ]; do n=$((n + 1)); [ $n -lt 300 ] || exit 9; sleep 0.1; done
         ping -c 15 -i 0.3 -w 20 {far_ip}
         wait $! || true"
    ));
    assert!(testkit::unanswered(&told, 15).is_empty(), "{told}");
    let document = rig.json("cat /tmp/send.json");
    assert!(mode(&document, "near xdp").ends_with("zero-copy"), "{document}");
    assert!(count(&document, "/counters/forward_sent_count") > 100, "{document}");
    assert_eq!(count(&document, "/counters/near_ledger_unbalanced_count"), 0, "{document}");
}

/// Runs an experiment between two ends, as between hosts, in which every arm must deliver; its document.
fn every_arm_of_an_experiment_delivers(
    rig: &Rig,
    far: FarEnd<'_>,
    far_ip: &str,
    options: &str,
) -> Value {
    let document = far.serve(&format!("peer --listen {far_ip}:7117"), || {
        rig.json(&format!("wirepath prove probe --far peer:{far_ip} {options} --no-history --json"))
    });
    for arm in arms(&document) {
        assert_eq!(arm["failures"], serde_json::json!([]), "{options}: {arm}");
        assert!(arm["trials"].as_u64() > Some(0), "{options}: {arm}");
        let counters = &arm["counters"];
        let sum = |direction: &str, what: &str| -> u64 {
            counters[format!("{direction}_{what}_count")].as_u64().unwrap_or(0)
        };
        assert!(sum("forward", "sent") > 0, "{options}: {arm}");
        for end in ["near", "far"] {
            assert_eq!(sum(end, "xdp_map_missed"), 0, "{options}: {arm}");
            assert_eq!(sum(end, "xdp_untagged"), 0, "{options}: {arm}");
            assert_eq!(sum(end, "ledger_unbalanced"), 0, "{options}: {arm}");
            let mode = arm["mode"][format!("{end} xdp")].as_str().unwrap_or_default();
            let is_zero_copy = name(arm).contains("zero-copy");
            assert_eq!(mode.ends_with("zero-copy"), is_zero_copy, "{end}: {arm}");
        }
        let lost = &arm["metrics"]["lost_count"]["median"];
        assert_eq!(lost.as_f64().unwrap_or(0.0), 0.0, "{options}: {arm}");
    }
    document
}

fn arms(document: &Value) -> &Vec<Value> {
    document["arms"].as_array().unwrap_or_else(|| panic!("{document}"))
}

fn name(arm: &Value) -> &str {
    arm["name"].as_str().unwrap_or_else(|| panic!("{arm}"))
}

/// Arms of AF_XDP by what a driver must offer.
const ARMS: &str = "--arms spin,spin+bypass+native,spin+bypass+native+zero-copy,\
                    spin+bypass+native+zero-copy+busy-poll --trial 50ms";

/// The kernel's own VLAN device at the other end takes the tags of AF_XDP, and tags its answers.
fn af_xdp_and_vlan_devices_exchange_tagged_datagrams(rig: &Rig) {
    let xdp = "--arm bypass+native+zero-copy --require-zero-copy --vlan 7:3";
    let echo = |engine: &str| format!("probe echo -i oneb.7 {engine}");
    let ping = |engine: &str| format!("probe ping {VLAN_IP} --no-peer -c 50 {engine}");
    for (near, far) in [(xdp, "--vlan 7"), ("--vlan 7", xdp), (xdp, xdp), (xdp, "")] {
        let document = with_far(rig, &echo(far), &ping(near));
        assert_eq!(round_trips(&document), [50, 50, 0], "{near} to {far}: {document}");
        let untagged = document["counters"].get("near_xdp_untagged_count");
        assert_eq!(untagged, None, "{near} to {far}: {document}");
    }
    let other = rig.run(&format!("wirepath {}", ping("--arm bypass --vlan 8")));
    assert_eq!(other.code, 2, "{}", other.stderr);
    assert!(other.stderr.contains("onea.7 is the device of VLAN 7, not of 8"), "{}", other.stderr);
    const SHORT: &str =
        "--vlan 7 --arms spin+bypass+native --trial 50ms --max-blocks 6 --time 100s";
    let document = every_arm_of_an_experiment_delivers(rig, far_namespace(rig), VLAN_IP, SHORT);
    assert_eq!(document["load"]["vlan"], "7", "{document}");
    let lab = rig.json(&format!("wirepath prove probe {SHORT} --no-history --json"));
    assert!(lab["machine"]["nic"].as_str().is_some_and(|nic| nic.contains("VLAN 7")), "{lab}");
    for arm in arms(&lab) {
        assert_eq!(arm["failures"], serde_json::json!([]), "{arm}");
        assert_eq!(arm["counters"].get("near_xdp_untagged_count"), None, "{arm}");
    }
}

#[test]
fn af_xdp_delivers_on_virtio_net_in_zero_copy_mode() {
    let Some([rig, beside]) = boot(&["ip", "ethtool", "ping"]) else { return };
    suspension::check(&rig);
    busy_polling::check(&rig);
    zero_copy_falls_back_without_an_iommu(&rig);
    pings_are_answered_in_zero_copy_mode(&rig, FOUR_QUEUES);
    sockets_use_the_napi_instance_and_the_pages_that_a_veth_has_not(&rig);
    the_host_receives_while_a_zero_copy_socket_sends(&rig, ONE_QUEUE);
    rss::check(&rig, &beside);
    let options = format!("{ARMS} --max-blocks 6 --time 100s");
    every_arm_of_an_experiment_delivers(&rig, far_namespace(&rig), ONE_IP, &options);
    af_xdp_and_vlan_devices_exchange_tagged_datagrams(&rig);
}

/// Prints a row of docs/evidence/probe.md for each arm: what was sent and what arrived, with and without zero-copy.
#[test]
#[ignore = "a study: it prints figures"]
fn study_sent_and_received_in_zero_copy_mode() {
    let Some([rig, _beside]) = boot(&["ip", "ethtool", "ping"]) else { panic!("not booted") };
    let options = "--arms spin+bypass+native,spin+bypass+native+zero-copy --load flood --size 1400 \
                   --trial 500ms --max-blocks 11 --time 280s";
    let far = far_namespace(&rig);
    let document = far.serve(&format!("peer --listen {ONE_IP}:7117"), || {
        let far = format!("--far peer:{ONE_IP} {options} --no-history --json");
        rig.json(&format!("wirepath prove probe {far}"))
    });
    for arm in arms(&document) {
        for metric in ["sent_pps", "goodput_bps", "received_pps", "cpu_ns_per_packet", "lost_count"]
        {
            let figure = &arm["metrics"][metric];
            let [median, ratio, low, high] =
                ["median", "ratio", "low", "high"].map(|field| figure[field].as_f64());
            testkit::note(&format!(
                "{}: {metric} {median:?}, {ratio:?} [{low:?}, {high:?}], {}",
                name(arm),
                figure["verdict"]
            ));
        }
    }
}

#[test]
#[ignore = "needs a kernel of `cargo xtask kernels`; .ci/nightly runs it"]
fn interrupts_are_suspended_and_deferred_on_linux_6_18() {
    let Some(rig) = boot_6_18(&["ip", "ethtool", "ping"]) else { panic!("not booted") };
    let kernel = rig.succeed("uname -r");
    assert!(kernel.starts_with("6.18."), "{kernel}");
    suspension::check(&rig);
    busy_polling::check(&rig);
}
