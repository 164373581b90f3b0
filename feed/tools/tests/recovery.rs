//! Recovery against a server that loses requests and replies, and truncates replies.

use std::collections::{BTreeMap, BTreeSet};

use market::mold::{MoldHeader, MoldSession};
use proptest::prelude::*;
use wirepath_marketdata::recovery::{Action, Recovery, RecoveryLimits, RecoveryRequest};

const SESSION: MoldSession = MoldSession(*b"SESSION001");
const MS: u64 = 1_000_000;

fn reply(first: u64, count: u16) -> MoldHeader {
    MoldHeader { session: SESSION, sequence: first, count }
}

fn request(action: Option<Action>) -> RecoveryRequest {
    match action {
        Some(Action::Request(request)) => request,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_gap_is_requested_at_once_and_in_pieces() {
    let limits =
        RecoveryLimits { request_messages: 100, outstanding: 8, ..RecoveryLimits::default() };
    let mut recovery = Recovery::new(SESSION, limits);
    recovery.gap(11, 250, 0);
    let asked: Vec<_> = std::iter::from_fn(|| recovery.poll(0)).map(|a| request(Some(a))).collect();
    let shapes: Vec<_> = asked.iter().map(|r| (r.first, r.count)).collect();
    assert_eq!(shapes, [(11, 100), (111, 100), (211, 50)]);
    let bytes = asked[0].to_bytes();
    assert_eq!(MoldHeader::parse_request(&bytes), Ok(reply(11, 100)));
    assert_eq!(recovery.due_ns(0), Some(10 * MS));
    assert!(recovery.balances());
}

#[test]
fn forged_gaps_saturate_the_counters() {
    let mut recovery =
        Recovery::new(SESSION, RecoveryLimits { pieces: 1, ..RecoveryLimits::default() });
    recovery.gap(1, 10, 0);
    // Sequence numbers that claim more missing messages than can be counted.
    for _ in 0..4 {
        recovery.gap(1 << 62, 1 << 63, 0);
    }
    let counts = *recovery.counts();
    assert_eq!((counts.wanted, counts.refused), (u64::MAX, u64::MAX));
    assert!(recovery.balances());
    let mut sum = counts;
    sum += counts;
    assert_eq!(sum.wanted, u64::MAX);
}

#[test]
fn messages_omitted_by_a_reply_are_requested_at_once() {
    let mut recovery = Recovery::new(SESSION, RecoveryLimits::default());
    recovery.gap(1, 100, 0);
    request(recovery.poll(0));
    assert_eq!(recovery.poll(MS), None);
    assert_eq!(recovery.reply(&reply(1, 30), 2 * MS), 30);
    let rest = request(recovery.poll(2 * MS));
    assert_eq!((rest.first, rest.count), (31, 70));
    assert_eq!(recovery.reply(&reply(31, 70), 3 * MS), 70);
    assert_eq!((recovery.open(), recovery.due_ns(3 * MS)), (0, None));
    assert_eq!(recovery.counts().retries, 0);
    assert!(recovery.balances());
}

#[test]
fn unanswered_requests_are_retried_with_backoff_and_abandoned() {
    let limits = RecoveryLimits { attempts: 5, retry_max_ns: 50 * MS, ..RecoveryLimits::default() };
    let mut recovery = Recovery::new(SESSION, limits);
    recovery.gap(5, 2, 0);
    let mut times = Vec::new();
    let mut given_up = None;
    let mut now = 0;
    while let Some(due) = recovery.due_ns(now) {
        assert!(due == 0 || recovery.poll(due - 1).is_none(), "nothing before it is due");
        now = due;
        match recovery.poll(due).expect("due") {
            Action::Request(_) => times.push(due / MS),
            Action::GaveUp { first, count } => given_up = Some((first, count)),
        }
    }
    assert_eq!(times, [0, 10, 30, 70, 120]);
    assert_eq!((given_up, now), (Some((5, 2)), 170 * MS));
    assert_eq!(recovery.counts().given_up, 2);
    assert!(recovery.balances());
}

#[test]
fn messages_that_arrive_on_a_line_are_no_longer_missing() {
    let mut recovery = Recovery::new(SESSION, RecoveryLimits::default());
    recovery.gap(10, 5, 0);
    recovery.received(12);
    recovery.received(12);
    recovery.received(99);
    let first = request(recovery.poll(0));
    let second = request(recovery.poll(0));
    assert_eq!((first.first, first.count, second.first, second.count), (10, 2, 13, 2));
    assert_eq!(recovery.counts().filled, 1);
    assert_eq!(recovery.reply(&reply(10, 5), MS), 4);
    assert_eq!(recovery.counts().strays, 1);
    assert!(recovery.balances());
}

#[test]
fn a_gap_reported_twice_counts_once() {
    let mut recovery = Recovery::new(SESSION, RecoveryLimits::default());
    recovery.gap(10, 10, 0);
    recovery.gap(10, 10, 1);
    recovery.gap(5, 20, 2);
    assert_eq!((recovery.counts().wanted, recovery.open()), (20, 20));
    assert!(recovery.balances());
}

#[test]
fn requests_are_limited_and_foreign_replies_do_not_count() {
    let limits =
        RecoveryLimits { request_messages: 10, outstanding: 2, ..RecoveryLimits::default() };
    let mut recovery = Recovery::new(SESSION, limits);
    recovery.gap(1, 40, 0);
    request(recovery.poll(0));
    request(recovery.poll(0));
    assert_eq!(recovery.poll(0), None);
    assert_eq!(recovery.due_ns(0), Some(10 * MS), "what waits for others is due with them");
    let foreign = MoldHeader { session: MoldSession(*b"SESSION002"), ..reply(1, 10) };
    assert_eq!(recovery.reply(&foreign, 1), 0);
    assert_eq!(recovery.reply(&reply(1, 0), 1), 0);
    assert_eq!(recovery.reply(&reply(1, 0xffff), 1), 0);
    assert_eq!(recovery.poll(1), None);
    recovery.reply(&reply(1, 10), 1);
    assert_eq!(request(recovery.poll(1)).first, 21);
    assert_eq!((recovery.counts().foreign, recovery.counts().replies), (1, 1));
}

#[test]
fn too_many_pieces_are_refused_and_counted() {
    let limits = RecoveryLimits { request_messages: 10, pieces: 2, ..RecoveryLimits::default() };
    let mut recovery = Recovery::new(SESSION, limits);
    recovery.gap(1, 35, 0);
    assert_eq!((recovery.open(), recovery.counts().refused), (20, 15));
    recovery.received(5);
    assert_eq!(recovery.counts().refused, 20);
    assert!(recovery.balances());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    /// A server with all messages, a lossy path to it, and replies of limited size.
    #[test]
    fn a_lossy_server_gives_all_or_it_is_given_up(
        gaps in prop::collection::vec((1..2000u64, 1..300u64), 1..12),
        losses in prop::collection::vec(0..10u8, 64),
        packet_messages in 1..60u16,
        loss in 0..6u8,
    ) {
        let limits = RecoveryLimits { request_messages: 128, ..RecoveryLimits::default() };
        let mut recovery = Recovery::new(SESSION, limits);
        let mut wanted = BTreeSet::new();
        for &(first, count) in &gaps {
            recovery.gap(first, count, 0);
            wanted.extend(first..first + count);
        }
        let mut given_up = BTreeSet::new();
        let mut came = BTreeSet::new();
        let mut answers: BTreeMap<(u64, u64), MoldHeader> = BTreeMap::new();
        let (mut now, mut step) = (0, 0usize);
        let mut is_lost = || { step += 1; losses[step * 7 % 64] < loss };
        for turn in 0.. {
            prop_assert!(turn < 100_000, "it ends");
            while let Some(action) = recovery.poll(now) {
                match action {
                    Action::GaveUp { first, count } => given_up.extend(first..first + count),
                    Action::Request(request) => {
                        prop_assert!(request.count > 0 && request.count <= 128);
                        if !is_lost() && !is_lost() {
                            let count = request.count.min(packet_messages);
                            answers.insert((now + 2 * MS, request.first), reply(request.first, count));
                        }
                    }
                }
            }
            let next_answer = answers.keys().next().map(|key| key.0);
            let Some(next) = [recovery.due_ns(now), next_answer]
                .into_iter().flatten().min() else { break };
            now = next;
            while let Some(entry) = answers.first_entry().filter(|entry| entry.key().0 <= now) {
                let header = entry.remove();
                recovery.reply(&header, now);
                came.extend(header.sequence..header.next_sequence());
            }
            prop_assert!(recovery.balances());
        }
        prop_assert_eq!(recovery.open(), 0);
        let counts = recovery.counts();
        prop_assert_eq!(counts.wanted, wanted.len() as u64);
        prop_assert_eq!(counts.recovered + counts.given_up, counts.wanted);
        let missing: BTreeSet<_> = wanted.difference(&came).copied().collect();
        prop_assert!(missing.is_subset(&given_up));
        if loss == 0 {
            prop_assert_eq!((counts.given_up, counts.retries), (0, 0));
        }
    }
}
