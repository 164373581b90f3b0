//! The counts that each engine reports, in each direction, match to the datagram the faults that a
//! filter between the ends injected.

mod common;

use common::truth::{self, LOSS, ORDER};
use common::{alone, at_once, engines, sleeps};
use io::EngineSpec;
use sys::bpf::FaultSpec;

fn one_way_is_true(faults: &FaultSpec, engines: Vec<(&str, EngineSpec)>, ipv6: bool) {
    at_once(
        &engines,
        sleeps,
        || (),
        |(), (name, engine)| {
            let judged =
                truth::one_way(faults, engine, ipv6).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(
                judged.mismatch().is_none(),
                "{name}: {}",
                judged.mismatch().unwrap_or_default()
            );
            let hit = judged.injected.dropped + judged.injected.reordered;
            assert_eq!(hit, 104, "{name}: unexpected number of injected faults: {judged:?}");
        },
    );
}

fn echo_is_true(faults: &FaultSpec, engines: Vec<(&str, EngineSpec)>, ipv6: bool) {
    at_once(
        &engines,
        sleeps,
        || (),
        |(), (name, engine)| {
            let both = truth::echo(faults, engine, ipv6).unwrap_or_else(|e| panic!("{name}: {e}"));
            for (direction, judged) in ["forward", "return"].iter().zip(both) {
                let mismatch = judged.mismatch();
                assert!(
                    mismatch.is_none(),
                    "{name}, {direction}: {}",
                    mismatch.unwrap_or_default()
                );
                let hit = judged.injected.dropped + judged.injected.reordered;
                assert_eq!(hit, 80, "{name}, {direction}: unexpected fault count: {judged:?}");
            }
        },
    );
}

#[test]
fn lost_and_duplicated_datagrams_are_counted_to_the_datagram_one_way() {
    let _alone = alone();
    one_way_is_true(&LOSS, engines(), false);
}

#[test]
fn lost_and_duplicated_datagrams_are_counted_to_the_datagram_in_each_direction() {
    let _alone = alone();
    echo_is_true(&LOSS, engines(), false);
}

#[test]
fn reordered_datagrams_are_counted_to_the_datagram_one_way() {
    let _alone = alone();
    one_way_is_true(&ORDER, engines(), false);
}

#[test]
fn reordered_datagrams_are_counted_to_the_datagram_in_each_direction() {
    let _alone = alone();
    echo_is_true(&ORDER, engines(), false);
}

#[test]
fn faults_over_ipv6_are_counted_to_the_datagram_one_way_and_in_each_direction() {
    let _alone = alone();
    let names = ["udp, gso", "udp, io_uring", "packet", "xdp skb", "xdp native, spin, batch 64"];
    let engines: Vec<_> = engines().into_iter().filter(|(name, _)| names.contains(name)).collect();
    assert_eq!(engines.len(), names.len());
    one_way_is_true(&LOSS, engines.clone(), true);
    echo_is_true(&LOSS, engines, true);
}

#[test]
fn counts_that_are_off_by_one_are_detected() {
    use model::Delivery;
    use sys::bpf::FaultCounts;
    let injected = FaultCounts { seen: 100, dropped: 4, duplicated: 4, ..Default::default() };
    let reported = Delivery {
        sent_count: 100,
        received_count: 100,
        duplicated_count: Some(4),
        reordered_count: 0,
    };
    assert_eq!(truth::Judged { injected, reported }.mismatch(), None);
    // The fault of iperf3: a duplicate cancels a loss.
    let netted = Delivery { duplicated_count: Some(0), ..reported };
    assert!(truth::Judged { injected, reported: netted }.mismatch().is_some());
    let one_short = Delivery { received_count: 99, ..reported };
    assert!(truth::Judged { injected, reported: one_short }.mismatch().is_some());
}
