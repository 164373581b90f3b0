//! The tunnel's arms in their lab: every one carries the flow, keeps its order or is seen not to,
//! and accounts for each frame.

mod common;

use std::io::Write;
use std::time::Duration;

use common::alone;
use common::arms::{self, counter};
use model::{Arm, ArmPlan, Measurement};
use wirepath_paths::{Load, Path, Session};

fn tunnel() -> Box<dyn Path> {
    arms::path("tunnel")
}

fn load(kind: &str) -> Load {
    arms::load(tunnel().as_ref(), kind, Duration::from_millis(120))
}

/// Every frame that was sent arrived or was dropped where somebody counts.
#[track_caller]
fn balances(name: &str, m: &Measurement) {
    let delivery = m.deliveries["forward"];
    assert!(delivery.balances(), "{name}: {delivery:?}");
    assert!(delivery.received_count > 1000, "{name}: {delivery:?} {:?}", m.counters);
    assert_eq!(delivery.duplicated_count, 0, "{name}: {delivery:?}");
    assert_eq!(counter(m, "missing_count"), 0, "{name}: {delivery:?} {:?}", m.counters);
    for zero in ["in_flight_count", "pool_unbalanced_count", "passed_count", "late_count"] {
        assert_eq!(m.counters.get(zero).copied().unwrap_or(0), 0, "{name}: {:?}", m.counters);
    }
}

fn supported(arm: &Arm, load: &Load) -> bool {
    arms::supported(tunnel().as_ref(), arm, load)
}

fn open(load: &Load) -> Option<Box<dyn Session>> {
    supported(&Arm::baseline(), load).then(|| tunnel().open(load).expect("a lab"))
}

#[test]
fn every_arm_of_the_ladder_carries_the_flow_and_accounts_for_each_frame() {
    let _alone = alone();
    let load = load("flood");
    let path = tunnel();
    let peers = ["kernel".to_owned()];
    let listed =
        model::arms(&ArmPlan::Ladder, path.switches(), &peers, &mut |arm| path.support(arm, &load));
    let Some(mut session) = open(&load) else { return };
    let mut ran = 0;
    for (arm, support) in &listed {
        if !support.is_yes() {
            let _ = writeln!(std::io::stderr(), "skipped: {}: {support:?}", arm.name);
            continue;
        }
        // Twice: the second time the source knows its rate.
        for _ in 0..2 {
            let m = session.trial(arm).unwrap_or_else(|e| panic!("{}: {e}", arm.name));
            balances(&arm.name, &m);
            // What workers do to the order without restoration has a test of its own; the
            // kernel's steering moves a flow as a whole.
            if arm.name != "+parallel" {
                let reordered = m.deliveries["forward"].reordered_count;
                assert_eq!(reordered, 0, "{}: {:?}", arm.name, m.counters);
            }
            ran += 1;
        }
    }
    assert!(ran >= 20, "the ladder has its rungs: {listed:?}");
}

#[test]
fn workers_without_restoration_put_the_flow_out_of_order_and_with_it_they_do_not() {
    let _alone = alone();
    let load = load("work-100");
    let Some(mut session) = open(&load) else { return };
    let loose = Arm::of(["batch", "prepend", "parallel"]);
    if !supported(&loose, &load) {
        return;
    }
    let kept = Arm::of(["batch", "prepend", "parallel", "ordered"]);
    let mut reordered_count = 0;
    for _ in 0..20 {
        let m = session.trial(&loose).expect("it runs");
        balances("unordered", &m);
        reordered_count += m.deliveries["forward"].reordered_count;
        let m = session.trial(&kept).expect("it runs");
        balances("ordered", &m);
        assert_eq!(m.deliveries["forward"].reordered_count, 0, "{:?}", m.counters);
        let both_worked = ["worker_0_frame_count", "worker_1_frame_count"];
        assert!(both_worked.iter().all(|name| counter(&m, name) > 0), "{:?}", m.counters);
        if reordered_count > 0 {
            return;
        }
    }
    panic!("the meter saw no disorder in twenty trials that keep none");
}

#[test]
fn policer_inside_the_ordered_section_drops_its_share_and_stalls_nothing() {
    let _alone = alone();
    let load = load("police-50");
    let Some(mut session) = open(&load) else { return };
    let ordered = Arm::of(["batch", "prepend", "parallel", "ordered"]);
    if !supported(&ordered, &load) {
        return;
    }
    let m = session.trial(&ordered).expect("it runs");
    balances("policed", &m);
    assert_eq!(m.deliveries["forward"].reordered_count, 0, "{:?}", m.counters);
    let (policed, admitted) =
        (counter(&m, "forwarder_policed_count"), counter(&m, "admitted_count"));
    let share = policed as f64 / admitted as f64;
    assert!((0.45..0.55).contains(&share), "{policed} of {admitted}");
}

#[test]
fn testpmd_forwards_the_flow_in_order_and_its_cost_is_its_own() {
    let _alone = alone();
    let load = load("flood");
    let Some(mut session) = open(&load) else { return };
    for name in ["testpmd", "testpmd-packet"] {
        let peer = Arm::peer(name);
        if !supported(&peer, &load) {
            continue;
        }
        for _ in 0..2 {
            let m = session.trial(&peer).unwrap_or_else(|e| panic!("{name}: {e}"));
            let delivery = m.deliveries["forward"];
            assert!(delivery.balances() && delivery.received_count > 1000, "{name}: {delivery:?}");
            assert_eq!((delivery.reordered_count, delivery.duplicated_count), (0, 0), "{name}");
            let cost = m.costs["worker 0"];
            // It polls: as long as the trial, give or take its turns on a busy CPU.
            assert!(cost.user_ns > 0 && cost.user_ns < 4 * m.wall_ns, "{name}: {cost:?}");
        }
        // And leaves the interfaces to the next.
        balances("after testpmd", &session.trial(&Arm::baseline()).expect("it runs"));
    }
}

#[test]
fn arms_leave_the_lab_as_they_found_it() {
    let _alone = alone();
    let load = load("flood");
    let Some(mut session) = open(&load) else { return };
    // Each after the other kind, twice: what one left behind would be in the other's way.
    for ids in [&[][..], &["bypass", "batch"], &["no-netfilter", "no-capture"], &["bypass"], &[]] {
        if supported(&Arm::of(ids.iter().copied()), &load) {
            balances(
                &ids.join("+"),
                &session.trial(&Arm::of(ids.iter().copied())).expect("it runs"),
            );
        }
    }
}

#[test]
fn sizes_that_do_not_fit_the_lab_are_refused() {
    for (size_bytes, needle) in [(8, "24"), (1473, "1472")] {
        let load = Load { size_bytes, ..load("flood") };
        let error = tunnel().open(&load).err().expect("refused").to_string();
        assert!(error.contains(needle), "{error}");
    }
}
