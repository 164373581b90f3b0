//! Two guests whose devices choose the receive queue by the RSS hash: AF_XDP takes every queue.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::Value;
use wire::flow::{TOEPLITZ_KEY, Toeplitz, Tuple};

use crate::common::rig::{FarEnd, Rig};
use crate::machine::{RSS_IP, RSS_NEAR_IP, plan_of_one_step};
use crate::{ARMS, arms, every_arm_of_an_experiment_delivers, name, round_trips};

const QUEUES: usize = 4;
const PINGS: u64 = 20;
/// Source ports whose flows hash to every queue.
const PORTS: Range<u16> = 9100..9106;
const ECHO_PORT: u16 = 9000;
const XDP: &str = "--arm bypass+native+zero-copy --require-zero-copy";

/// Frames that the XDP program saw on each receive queue.
type Seen = [u64; QUEUES];

fn seen(rig: &Rig, card: &str) -> Seen {
    let text = rig.succeed(&format!("ethtool -S {card}"));
    std::array::from_fn(|queue| {
        let name = format!("rx{queue}_xdp_packets: ");
        let value = text.lines().find_map(|line| line.trim().strip_prefix(&name));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name}: {text}"))
    })
}

/// Pings from each port, all of which are answered; the frames of each port that arrived on each queue.
fn pings(near: &Rig, beside: &Rig) -> Vec<Seen> {
    PORTS
        .map(|port| {
            let before = seen(beside, "rsb");
            let document = near.json(&format!(
            "wirepath probe ping {RSS_IP} --no-peer -c {PINGS} --source-port {port} {XDP} --json"
        ));
            assert_eq!(round_trips(&document), [PINGS, PINGS, 0], "{port}: {document}");
            let after = seen(beside, "rsb");
            std::array::from_fn(|queue| after[queue] - before[queue])
        })
        .collect()
}

/// Queue to which the table of a device with [`TOEPLITZ_KEY`] sends the flow from each port.
fn queues_by_hash() -> Vec<usize> {
    let toeplitz = Toeplitz::new(&TOEPLITZ_KEY);
    let ip = |text: &str| text.parse().expect("an address");
    PORTS
        .map(|port| {
            let ports = (port, ECHO_PORT);
            let tuple = Tuple::V4 { src: ip(RSS_NEAR_IP), dst: ip(RSS_IP), protocol: 17, ports };
            tuple.toeplitz(&toeplitz) as usize % QUEUES
        })
        .collect()
}

fn set_key(rig: &Rig, card: &str, key: [u8; 40]) {
    let key = key.map(|byte| format!("{byte:02x}")).join(":");
    rig.succeed(&format!("ethtool -X {card} hkey {key}"));
}

fn on(queues: &[usize]) -> Vec<Seen> {
    queues
        .iter()
        .map(|wanted| std::array::from_fn(|at| if at == *wanted { PINGS } else { 0 }))
        .collect()
}

/// No queue is named at either end. The table is changed while the program is attached, because an attach lets the
/// device forget it.
fn every_queue_of_the_hash_is_answered(near: &Rig, beside: &Rig, far: FarEnd<'_>) {
    set_key(beside, "rsb", TOEPLITZ_KEY);
    let spread = queues_by_hash();
    assert!((0..QUEUES).all(|queue| spread.contains(&queue)), "{spread:?}");
    far.serve(&format!("probe echo -i rsb --port {ECHO_PORT} {XDP}"), || {
        assert_eq!(pings(near, beside), on(&spread));
        let step = ["rss-table", "interface rsb", "0,1,2,3", "0"];
        let file = plan_of_one_step(beside, "rsb", step);
        beside.succeed(&format!("wirepath tune apply {file}"));
        assert_eq!(pings(near, beside), on(&vec![0; spread.len()]));
        beside.succeed("wirepath tune rollback");
        assert!(beside.succeed("ethtool -x rsb").contains(" 0     1     2     3 "));
    });
}

/// Verdict of each figure of each arm.
fn verdicts(document: &Value) -> BTreeMap<[String; 2], String> {
    let mut verdicts = BTreeMap::new();
    for arm in arms(document).iter().filter(|arm| arm["kind"] == "variant") {
        for (figure, metric) in arm["metrics"].as_object().expect("figures") {
            if let Some(verdict) = metric["verdict"].as_str() {
                verdicts.insert([name(arm).to_owned(), figure.clone()], verdict.to_owned());
            }
        }
    }
    verdicts
}

/// With a key of zeros every hash is 0, the table's first entry, and unlike a table it outlives an attach.
fn no_verdict_is_reversed_by_steering_all_flows_to_one_queue(
    near: &Rig,
    beside: &Rig,
    far: FarEnd<'_>,
) {
    let options = format!("{ARMS} --max-blocks 8 --time 100s");
    let spread = every_arm_of_an_experiment_delivers(near, far, RSS_IP, &options);
    for (rig, card) in [(near, "rsa"), (beside, "rsb")] {
        set_key(rig, card, [0; 40]);
    }
    let before = [seen(near, "rsa"), seen(beside, "rsb")];
    let steered = every_arm_of_an_experiment_delivers(near, far, RSS_IP, &options);
    let after = [seen(near, "rsa"), seen(beside, "rsb")];
    for (before, after) in before.iter().zip(after) {
        assert!(after[0] > before[0] && after[1..] == before[1..], "{before:?} {after:?}");
    }
    let [spread, steered] = [verdicts(&spread), verdicts(&steered)];
    assert!(spread.len() >= 4 && spread.keys().eq(steered.keys()), "{spread:?} {steered:?}");
    for (what, verdict) in spread {
        let both = [verdict.as_str(), steered[&what].as_str()];
        assert!(both != ["better", "worse"] && both != ["worse", "better"], "{what:?}: {both:?}");
    }
}

pub(crate) fn check(near: &Rig, beside: &Rig) {
    let far = FarEnd { rig: beside, inside: "" };
    every_queue_of_the_hash_is_answered(near, beside, far);
    no_verdict_is_reversed_by_steering_all_flows_to_one_queue(near, beside, far);
}
