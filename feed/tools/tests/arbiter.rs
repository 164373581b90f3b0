//! The arbiter against a sequential oracle, and against hostile input.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use wirepath_marketdata::arbiter::{
    Arbiter, ArbiterDelivery, ArbiterLimits, FeedLine, GapCause, MessageArrival, SEQUENCE_MAX,
    SequenceDomain,
};

/// All deliveries, in order.
#[derive(Debug, Default)]
struct Heard {
    messages: Vec<(SequenceDomain, u32, u64)>,
    gaps: Vec<(SequenceDomain, u32, u64, u64, GapCause)>,
    /// Messages with other bytes than the offered ones.
    garbled: u64,
}

impl Heard {
    fn take(&mut self, delivery: ArbiterDelivery<'_>) {
        match delivery {
            ArbiterDelivery::Message { domain, epoch, sequence, message, .. } => {
                if message != content(domain, sequence) {
                    self.garbled += 1;
                }
                self.messages.push((domain, epoch, sequence));
            }
            ArbiterDelivery::Gap { domain, epoch, first, count, cause } => {
                self.gaps.push((domain, epoch, first, count, cause));
            }
        }
    }

    fn sequences(&self) -> Vec<u64> {
        self.messages.iter().map(|m| m.2).collect()
    }
}

/// Unique bytes of a message, of varying length.
fn content(domain: SequenceDomain, sequence: u64) -> Vec<u8> {
    let mut bytes = domain.0.to_le_bytes().to_vec();
    bytes.extend(sequence.to_le_bytes());
    bytes.resize(16 + (sequence % 40) as usize, sequence as u8);
    bytes
}

struct Bench {
    arbiter: Arbiter,
    heard: Heard,
}

impl Bench {
    fn new(limits: ArbiterLimits) -> Self {
        Bench { arbiter: Arbiter::new(limits), heard: Heard::default() }
    }

    fn offer(
        &mut self,
        line: FeedLine,
        domain: SequenceDomain,
        sequence: u64,
        now_ns: u64,
    ) -> MessageArrival {
        let message = content(domain, sequence);
        let heard = &mut self.heard;
        self.arbiter.offer(line, domain, sequence, now_ns, &message, &mut |d| heard.take(d))
    }

    fn tick(&mut self, now_ns: u64) {
        let heard = &mut self.heard;
        self.arbiter.tick(now_ns, &mut |d| heard.take(d));
    }

    fn finish(&mut self) {
        let heard = &mut self.heard;
        self.arbiter.finish(&mut |d| heard.take(d));
        assert_eq!(self.arbiter.held(), 0);
        assert_eq!(self.heard.garbled, 0);
        assert!(self.arbiter.balances(), "{:#?}", self.arbiter.books().collect::<Vec<_>>());
    }
}

const D: SequenceDomain = SequenceDomain::twse(1, 6);
const MS: u64 = 1_000_000;

fn from_one() -> ArbiterLimits {
    ArbiterLimits { from_one: true, ..ArbiterLimits::default() }
}

#[test]
fn one_line_in_order_is_delivered_at_once() {
    let mut bench = Bench::new(ArbiterLimits::default());
    for sequence in 1..=100 {
        assert_eq!(bench.offer(FeedLine::A, D, sequence, sequence), MessageArrival::Delivered);
    }
    assert_eq!(bench.arbiter.totals().held, 0);
    bench.finish();
    assert_eq!(bench.heard.sequences(), (1..=100).collect::<Vec<_>>());
    assert!(bench.heard.gaps.is_empty());
}

#[test]
fn the_other_line_fills_gaps() {
    let mut bench = Bench::new(from_one());
    bench.offer(FeedLine::A, D, 1, 0);
    assert_eq!(bench.offer(FeedLine::A, D, 3, 10), MessageArrival::Held);
    assert_eq!(bench.offer(FeedLine::B, D, 1, 20), MessageArrival::Copy);
    let mut open = Vec::new();
    bench.arbiter.open_gaps(|gap| open.push((gap.first, gap.count)));
    assert_eq!(open, [(2, 1)]);
    assert_eq!(bench.offer(FeedLine::B, D, 2, 30), MessageArrival::Delivered);
    assert_eq!(bench.heard.sequences(), [1, 2, 3]);
    assert_eq!(bench.arbiter.deadline_ns(), None);
    bench.finish();
    assert_eq!(bench.arbiter.filled_by_others(FeedLine::A), 1);
    assert_eq!(bench.arbiter.filled_by_others(FeedLine::B), 1);
    assert_eq!(bench.arbiter.totals().missing, 0);
}

#[test]
fn gaps_time_out_after_the_hold_and_their_messages_are_late() {
    let mut bench = Bench::new(from_one());
    bench.offer(FeedLine::A, D, 1, 0);
    bench.offer(FeedLine::A, D, 4, 1000);
    assert_eq!(bench.arbiter.deadline_ns(), Some(1000 + 5 * MS));
    bench.tick(999 + 5 * MS);
    assert_eq!(bench.heard.sequences(), [1]);
    bench.tick(1000 + 5 * MS);
    assert_eq!(bench.heard.sequences(), [1, 4]);
    assert_eq!(bench.heard.gaps, [(D, 0, 2, 2, GapCause::Expired)]);
    assert_eq!(bench.offer(FeedLine::B, D, 2, 6 * MS), MessageArrival::Late);
    assert_eq!(bench.offer(FeedLine::B, D, 2, 6 * MS), MessageArrival::Repeat);
    bench.finish();
    let totals = bench.arbiter.totals();
    assert_eq!((totals.gaps, totals.missing, totals.delivered), (1, 2, 2));
    assert_eq!(bench.arbiter.line(FeedLine::B).late, 1);
}

#[test]
fn a_message_at_the_deadline_is_late() {
    let mut bench = Bench::new(from_one());
    bench.offer(FeedLine::A, D, 2, 0);
    assert_eq!(bench.offer(FeedLine::B, D, 1, 5 * MS), MessageArrival::Late);
    assert_eq!(bench.heard.sequences(), [2]);
}

#[test]
fn every_gap_has_its_own_timeout() {
    let mut bench = Bench::new(from_one());
    bench.offer(FeedLine::A, D, 2, 0);
    bench.offer(FeedLine::A, D, 4, 2 * MS);
    bench.tick(5 * MS);
    assert_eq!(bench.heard.sequences(), [2]);
    assert_eq!(bench.offer(FeedLine::B, D, 3, 6 * MS), MessageArrival::Delivered);
    assert_eq!(bench.heard.sequences(), [2, 3, 4]);
    bench.finish();
    assert_eq!(bench.heard.gaps, [(D, 0, 1, 1, GapCause::Expired)]);
}

#[test]
fn joining_a_running_feed_starts_at_the_lowest_of_the_first_hold() {
    let mut bench = Bench::new(ArbiterLimits::default());
    assert_eq!(bench.offer(FeedLine::A, D, 1000, 0), MessageArrival::Held);
    assert_eq!(bench.offer(FeedLine::B, D, 998, MS), MessageArrival::Held);
    assert_eq!(bench.offer(FeedLine::B, D, 1001, 2 * MS), MessageArrival::Held);
    bench.tick(5 * MS);
    assert_eq!(bench.heard.sequences(), [998, 1000, 1001]);
    assert_eq!(bench.heard.gaps, [(D, 0, 999, 1, GapCause::Expired)]);
    assert_eq!(bench.offer(FeedLine::B, D, 997, 6 * MS), MessageArrival::Late);
    bench.finish();
    let book = bench.arbiter.books().next().expect("one domain");
    assert_eq!((book.first, book.highest, book.span), (Some(998), Some(1001), 4));
}

#[test]
fn a_domain_that_starts_at_one_does_not_wait() {
    let mut bench = Bench::new(ArbiterLimits::default());
    assert_eq!(bench.offer(FeedLine::A, D, 2, 0), MessageArrival::Held);
    assert_eq!(bench.offer(FeedLine::B, D, 1, 10), MessageArrival::Delivered);
    assert_eq!(bench.heard.sequences(), [1, 2]);
}

#[test]
fn a_new_cycle_is_a_restart_and_the_other_line_may_lag() {
    let mut bench = Bench::new(from_one());
    let mut now = 0;
    for sequence in 1..=1000 {
        now += 10_000;
        bench.offer(FeedLine::A, D, sequence, now);
        if sequence <= 998 {
            bench.offer(FeedLine::B, D, sequence, now + 1);
        }
    }
    // A restarts while B still sends the tail; 1000 of A's first cycle is repeated by B.
    assert_eq!(bench.offer(FeedLine::A, D, 1, now + 10), MessageArrival::Delivered);
    assert_eq!(bench.offer(FeedLine::B, D, 999, now + 20), MessageArrival::Copy);
    assert_eq!(bench.offer(FeedLine::A, D, 2, now + 30), MessageArrival::Delivered);
    assert_eq!(bench.offer(FeedLine::B, D, 1000, now + 40), MessageArrival::Copy);
    assert_eq!(bench.offer(FeedLine::B, D, 1, now + 50), MessageArrival::Copy);
    assert_eq!(bench.offer(FeedLine::B, D, 2, now + 60), MessageArrival::Copy);
    bench.finish();
    assert_eq!(bench.arbiter.totals().restarts, 1);
    assert_eq!(bench.arbiter.totals().delivered, 1002);
    assert_eq!(bench.arbiter.totals().missing, 0);
    assert_eq!(bench.arbiter.line(FeedLine::A).reordered, 0);
    assert_eq!(bench.arbiter.line(FeedLine::B).reordered, 0);
}

#[test]
fn the_tail_of_the_lagging_line_is_delivered() {
    let mut bench = Bench::new(from_one());
    for sequence in 1..=999 {
        bench.offer(FeedLine::A, D, sequence, sequence * 10_000);
        bench.offer(FeedLine::B, D, sequence, sequence * 10_000);
    }
    let now = 10 * MS;
    assert_eq!(bench.offer(FeedLine::A, D, 1, now), MessageArrival::Delivered);
    assert_eq!(bench.offer(FeedLine::B, D, 1000, now + 1), MessageArrival::Delivered);
    assert_eq!(bench.offer(FeedLine::A, D, 2, now + 2), MessageArrival::Delivered);
    bench.finish();
    let tail = &bench.heard.messages[999..];
    assert_eq!(tail, [(D, 1, 1), (D, 0, 1000), (D, 1, 2)]);
}

#[test]
fn a_lost_start_of_a_new_cycle_is_a_gap() {
    let mut bench = Bench::new(ArbiterLimits::default());
    for sequence in 1..=600 {
        bench.offer(FeedLine::A, D, sequence, sequence * 10_000);
    }
    assert_eq!(bench.offer(FeedLine::A, D, 4, 7 * MS), MessageArrival::Held);
    bench.finish();
    assert_eq!(bench.heard.gaps, [(D, 1, 1, 3, GapCause::Closed)]);
    assert_eq!(bench.arbiter.totals().restarts, 1);
}

#[test]
fn a_tail_overtaken_by_the_restart_belongs_to_the_old_epoch() {
    let mut bench = Bench::new(from_one());
    for sequence in 1..=999 {
        bench.offer(FeedLine::A, D, sequence, sequence * 10_000);
    }
    bench.offer(FeedLine::A, D, 1, 10 * MS);
    assert_eq!(bench.offer(FeedLine::A, D, 1000, 10 * MS + 5), MessageArrival::Delivered);
    assert_eq!(bench.offer(FeedLine::A, D, 2, 10 * MS + 9), MessageArrival::Delivered);
    bench.finish();
    assert_eq!(bench.arbiter.totals().missing, 0);
    assert_eq!(bench.arbiter.line(FeedLine::A).reordered, 1);
}

#[test]
fn a_straggler_from_the_start_is_not_a_restart() {
    let mut bench = Bench::new(from_one());
    for sequence in 1..=600 {
        bench.offer(FeedLine::A, D, sequence, sequence);
    }
    assert_eq!(bench.offer(FeedLine::A, D, 3, 700), MessageArrival::Repeat);
    assert_eq!(bench.arbiter.totals().restarts, 0);
}

#[test]
fn after_silence_any_lower_sequence_is_a_restart_and_so_is_a_far_one() {
    let second = 1_000_000_000;
    let mut bench = Bench::new(ArbiterLimits::default());
    bench.offer(FeedLine::A, D, 1, 0);
    for sequence in 2..=700 {
        bench.offer(FeedLine::A, D, sequence, 1);
    }
    assert_eq!(
        bench.offer(FeedLine::A, D, 500, second),
        MessageArrival::Repeat,
        "a nanosecond too early"
    );
    let mut bench = Bench::new(ArbiterLimits::default());
    for sequence in 1..=700 {
        bench.offer(FeedLine::A, D, sequence, 1);
    }
    assert_eq!(bench.offer(FeedLine::A, D, 500, second + 1), MessageArrival::Held);
    assert_eq!(bench.arbiter.totals().restarts, 1);
    bench.offer(FeedLine::A, D, 501, second + 2);
    bench.finish();
    assert_eq!(bench.heard.messages[700..], [(D, 1, 500), (D, 1, 501)]);
    assert!(bench.heard.gaps.is_empty());

    let memory = u64::from(ArbiterLimits::default().memory);
    let mut bench = Bench::new(ArbiterLimits::default());
    bench.offer(FeedLine::A, D, memory + 100, 0);
    bench.offer(FeedLine::A, D, 101, 1);
    assert_eq!(bench.arbiter.totals().restarts, 0);
    bench.offer(FeedLine::A, D, 100, 2);
    assert_eq!(bench.arbiter.totals().restarts, 1);
    bench.finish();
}

#[test]
fn recovery_fills_gaps_and_never_restarts() {
    let mut bench = Bench::new(from_one());
    for sequence in (1..=600).filter(|s| !(10..15).contains(s)) {
        bench.offer(FeedLine::A, D, sequence, sequence);
    }
    bench.offer(FeedLine::Recovery, D, 599, 4 * MS);
    for sequence in 10..15 {
        assert_eq!(bench.offer(FeedLine::Recovery, D, sequence, 4 * MS), MessageArrival::Delivered);
    }
    assert_eq!(bench.offer(FeedLine::Recovery, D, 1, 10_000 * MS), MessageArrival::Copy);
    bench.finish();
    assert_eq!(bench.heard.sequences(), (1..=600).collect::<Vec<_>>());
    assert_eq!(bench.arbiter.totals().restarts, 0);
    assert_eq!(bench.arbiter.filled_by_others(FeedLine::A), 5);
}

#[test]
fn a_full_buffer_closes_the_oldest_gap() {
    let mut bench = Bench::new(ArbiterLimits { held_messages: 3, ..from_one() });
    for sequence in [2, 3, 5] {
        assert_eq!(bench.offer(FeedLine::A, D, sequence, 0), MessageArrival::Held);
    }
    assert_eq!(bench.offer(FeedLine::A, D, 7, 0), MessageArrival::Held);
    assert_eq!(bench.heard.gaps, [(D, 0, 1, 1, GapCause::Overflow)]);
    assert_eq!(bench.heard.sequences(), [2, 3]);
    assert_eq!(bench.arbiter.totals().overflows, 1);
    bench.finish();
    assert_eq!(bench.heard.sequences(), [2, 3, 5, 7]);
    assert_eq!(bench.arbiter.totals().held_max, 3);
}

#[test]
fn a_full_buffer_does_not_skip_the_message_that_fills_the_gap() {
    let mut bench = Bench::new(ArbiterLimits { held_messages: 2, ..from_one() });
    bench.offer(FeedLine::A, D, 8, 0);
    bench.offer(FeedLine::A, D, 9, 0);
    assert_eq!(bench.offer(FeedLine::A, D, 4, 0), MessageArrival::Delivered);
    bench.finish();
    assert_eq!(bench.heard.sequences(), [4, 8, 9]);
}

#[test]
fn a_message_too_long_to_hold_is_delivered_at_once() {
    let mut bench = Bench::new(ArbiterLimits { message_bytes: 20, ..from_one() });
    assert_eq!(bench.offer(FeedLine::A, D, 2, 0), MessageArrival::Held);
    assert_eq!(bench.offer(FeedLine::A, D, 39, 0), MessageArrival::Delivered);
    bench.finish();
    assert_eq!(bench.heard.sequences(), [2, 39]);
    assert_eq!(bench.arbiter.totals().missing, 37);
}

#[test]
fn a_jump_past_the_reach_closes_the_gap() {
    let mut bench = Bench::new(ArbiterLimits { reach: 8, ..from_one() });
    bench.offer(FeedLine::A, D, 1, 0);
    bench.offer(FeedLine::A, D, 5, 0);
    assert_eq!(bench.offer(FeedLine::A, D, 10, 0), MessageArrival::Held);
    assert_eq!(bench.heard.sequences(), [1, 5]);
    assert_eq!(bench.offer(FeedLine::A, D, SEQUENCE_MAX, 0), MessageArrival::Delivered);
    assert_eq!(bench.offer(FeedLine::A, D, SEQUENCE_MAX + 1, 0), MessageArrival::Refused);
    bench.finish();
    assert_eq!(bench.heard.sequences(), [1, 5, 10, SEQUENCE_MAX]);
}

#[test]
fn domains_are_independent_and_limited() {
    let mut bench = Bench::new(ArbiterLimits { domains: 2, ..from_one() });
    let (one, two, three) = (
        SequenceDomain::twse(1, 6),
        SequenceDomain::twse(2, 6),
        SequenceDomain::mold(b"SESSION001"),
    );
    bench.offer(FeedLine::A, one, 1, 0);
    bench.offer(FeedLine::A, two, 1, 0);
    assert_eq!(bench.offer(FeedLine::A, three, 1, 0), MessageArrival::Refused);
    bench.offer(FeedLine::A, one, 2, 0);
    bench.finish();
    assert_eq!(bench.heard.messages, [(one, 0, 1), (two, 0, 1), (one, 0, 2)]);
    assert_eq!(bench.arbiter.line(FeedLine::A).refused, 1);
}

#[test]
fn a_message_in_a_jump_is_fresh_although_its_mark_was_used_before() {
    // Sequences a memory apart share a mark. The jump leaves marks between that were used a memory ago.
    for memory in [64, ArbiterLimits::default().memory] {
        let limits = ArbiterLimits { memory, reach: 32, ..from_one() };
        let mut bench = Bench::new(limits);
        let memory = u64::from(memory);
        for sequence in 1..=memory {
            bench.offer(FeedLine::A, D, sequence, 0);
            bench.offer(FeedLine::B, D, sequence, 0);
        }
        assert_eq!(bench.offer(FeedLine::A, D, memory + 11, 0), MessageArrival::Held);
        for sequence in memory + 1..=memory + 10 {
            assert_eq!(
                bench.offer(FeedLine::B, D, sequence, 0),
                MessageArrival::Delivered,
                "{sequence}"
            );
            assert_eq!(
                bench.offer(FeedLine::A, D, sequence, 0),
                MessageArrival::Copy,
                "{sequence}"
            );
        }
        // A jump of a whole memory and more: late messages are late, not copies.
        let far = 3 * memory + 5;
        bench.offer(FeedLine::A, D, far, 0);
        for sequence in [far - 1, far - memory + 1, far - memory / 2] {
            assert_eq!(
                bench.offer(FeedLine::B, D, sequence, 6 * MS),
                MessageArrival::Late,
                "{sequence}"
            );
            assert_eq!(
                bench.offer(FeedLine::B, D, sequence, 6 * MS),
                MessageArrival::Repeat,
                "{sequence}"
            );
        }
        bench.finish();
        let expected: Vec<u64> = (1..=memory + 11).chain([far]).collect();
        assert_eq!(bench.heard.sequences(), expected);
    }
}

#[test]
fn a_removed_domain_leaves_its_place_and_its_counts() {
    let mut bench = Bench::new(ArbiterLimits { domains: 2, ..ArbiterLimits::default() });
    let (one, two, three) = (
        SequenceDomain::twse(1, 6),
        SequenceDomain::twse(2, 6),
        SequenceDomain::mold(b"SESSION001"),
    );
    bench.offer(FeedLine::A, one, 1, 0);
    bench.offer(FeedLine::A, two, 7, 0);
    assert_eq!(bench.offer(FeedLine::A, three, 1, 0), MessageArrival::Refused);
    let heard = &mut bench.heard;
    bench.arbiter.remove(two, &mut |delivery| heard.take(delivery));
    assert!(!bench.arbiter.has(two) && bench.arbiter.has(one));
    // Held messages are delivered, and none is left to the next domain.
    assert_eq!(bench.heard.messages, [(one, 0, 1), (two, 0, 7)]);
    assert_eq!(bench.offer(FeedLine::A, three, 7, 0), MessageArrival::Held);
    assert_eq!(bench.offer(FeedLine::B, three, 7, 0), MessageArrival::Copy);
    bench.finish();
    assert_eq!(bench.arbiter.books().count(), 2);
    assert_eq!((bench.arbiter.totals().removed_domains, bench.arbiter.totals().delivered), (1, 3));
}

#[test]
fn messages_in_sequence_prove_a_domain_and_others_do_not() {
    let mut bench = Bench::new(from_one());
    for sequence in [1, 3, 5, 7, 9, 11, 13] {
        bench.offer(FeedLine::A, D, sequence, 0);
    }
    assert_eq!(bench.arbiter.take_proved(), None);
    let proofs: Vec<u64> = (14..6000)
        .filter(|sequence| {
            bench.offer(FeedLine::A, D, *sequence, 0);
            bench.arbiter.take_proved() == Some(D)
        })
        .collect();
    assert!(proofs[0] <= 20 && proofs.len() == 6, "{proofs:?}");
}

/// Faults of one line on messages 1 to `count` of a domain: loss, delay, repeats.
#[derive(Debug, Clone)]
struct Fate {
    lost: bool,
    repeats: u8,
    delays_us: [u16; 3],
}

/// 10 % loss, 2 % repeated once or twice, everything delayed by up to 3 ms.
fn fate() -> impl Strategy<Value = Fate> {
    let repeats = prop_oneof![49 => Just(0u8), 1 => 1..=2u8];
    (prop::bool::weighted(0.1), repeats, [0..3000u16, 0..3000, 0..3000])
        .prop_map(|(lost, repeats, delays_us)| Fate { lost, repeats, delays_us })
}

fn lines(messages: usize) -> impl Strategy<Value = Vec<(u8, [Fate; 2])>> {
    prop::collection::vec((0..3u8, [fate(), fate()]), 1..messages)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 200, ..Default::default() })]

    /// Messages every 20 µs, each line delays each by up to 3 ms: 5 ms after the first message beyond
    /// a gap, no message of the gap can still arrive.
    #[test]
    fn the_union_of_two_lossy_lines_is_delivered_once_and_in_order(sent in lines(1500)) {
        let mut sequences = [0u64; 3];
        // (when, a tie breaker, line, domain, sequence)
        let mut arrivals = Vec::new();
        let mut union: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        let (mut received, mut repeats, mut distinct) = ([0u64; 2], [0u64; 2], [0u64; 2]);
        for (n, (domain, fates)) in sent.iter().enumerate() {
            let sequence = &mut sequences[usize::from(*domain)];
            *sequence += 1;
            for (line, fate) in fates.iter().enumerate() {
                if fate.lost {
                    continue;
                }
                union.entry(u64::from(*domain)).or_default().insert(*sequence);
                distinct[line] += 1;
                repeats[line] += u64::from(fate.repeats);
                received[line] += 1 + u64::from(fate.repeats);
                for copy in 0..=usize::from(fate.repeats) {
                    let at = n as u64 * 20_000 + u64::from(fate.delays_us[copy]) * 1000;
                    arrivals.push((at, n, line, u64::from(*domain), *sequence));
                }
            }
        }
        arrivals.sort_unstable();

        let mut bench = Bench::new(from_one());
        let (mut reordered, mut first) = ([0u64; 2], [0u64; 2]);
        let mut highest: BTreeMap<(usize, u64), u64> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let mut brought = BTreeSet::new();
        for &(at, _, line, domain, sequence) in &arrivals {
            let top = highest.entry((line, domain)).or_default();
            let new = seen.insert((line, domain, sequence));
            reordered[line] += u64::from(new && sequence < *top);
            *top = sequence.max(*top);
            first[line] += u64::from(brought.insert((domain, sequence)));
            bench.offer([FeedLine::A, FeedLine::B][line], SequenceDomain(domain), sequence, at);
        }
        bench.finish();

        let mut missing = 0;
        let mut gaps = 0;
        for (&domain, expected) in &union {
            let delivered: Vec<_> = bench.heard.messages.iter()
                .filter(|m| m.0 == SequenceDomain(domain)).map(|m| m.2).collect();
            prop_assert_eq!(&delivered, &expected.iter().copied().collect::<Vec<_>>());
            let mut before = 0;
            for &sequence in expected {
                gaps += u64::from(sequence > before + 1);
                missing += sequence - before - 1;
                before = sequence;
            }
        }
        let all: u64 = union.values().map(|u| u.len() as u64).sum();
        let totals = *bench.arbiter.totals();
        prop_assert_eq!(totals.delivered, all);
        prop_assert_eq!(totals.missing, missing);
        prop_assert_eq!(totals.gaps, gaps);
        prop_assert_eq!((totals.overflows, totals.restarts), (0, 0));
        for line in 0..2 {
            let counts = bench.arbiter.line([FeedLine::A, FeedLine::B][line]);
            prop_assert_eq!(counts.received, received[line]);
            prop_assert_eq!(counts.repeats, repeats[line]);
            prop_assert_eq!(counts.copies, distinct[line] - first[line]);
            prop_assert_eq!(counts.first, first[line]);
            prop_assert_eq!(counts.reordered, reordered[line]);
            prop_assert_eq!((counts.late, counts.forgotten, counts.refused), (0, 0, 0));
            let filled = bench.arbiter.filled_by_others([FeedLine::A, FeedLine::B][line]);
            prop_assert_eq!(filled, all - distinct[line]);
        }
    }

    /// As the union of two lines, with a memory of 256 messages that wraps many times, and jumps beyond the reach
    /// that no line carries. A straggler from before a jump is still within the memory: beyond, it is a restart.
    #[test]
    fn deliveries_over_the_wrap_of_the_memory_are_those_of_the_union(
        sent in prop::collection::vec(
            (0..100u64, [fate(), fate()]),
            300..1500,
        ),
    ) {
        let mut arrivals = Vec::new();
        let mut union = BTreeSet::new();
        // Low numbers after a jump are a restart.
        let mut sequence = 1000;
        for (n, (jump, fates)) in sent.iter().enumerate() {
            sequence += 1 + if n % 40 == 39 { *jump } else { 0 };
            for (line, fate) in fates.iter().enumerate() {
                if fate.lost {
                    continue;
                }
                union.insert(sequence);
                for copy in 0..=usize::from(fate.repeats) {
                    // At most 30 messages late, within reach and hold.
                    let at = n as u64 * 100_000 + u64::from(fate.delays_us[copy]) * 1000;
                    arrivals.push((at, n, line, sequence));
                }
            }
        }
        arrivals.sort_unstable();
        let limits = ArbiterLimits { memory: 256, reach: 64, ..ArbiterLimits::default() };
        let mut bench = Bench::new(limits);
        let (mut late, mut counted) = (BTreeSet::new(), 0);
        for &(at, _, line, sequence) in &arrivals {
            let arrival = bench.offer([FeedLine::A, FeedLine::B][line], D, sequence, at);
            counted += u64::from(matches!(arrival, MessageArrival::Delivered | MessageArrival::Held));
            if matches!(arrival, MessageArrival::Late | MessageArrival::Forgotten) {
                late.insert(sequence);
            }
        }
        bench.finish();
        let delivered = bench.heard.sequences();
        prop_assert_eq!(counted, delivered.len() as u64);
        // A jump beyond the reach closes gaps early: those messages are late, and all others are delivered once.
        let delivered_or_late: BTreeSet<u64> =
            delivered.iter().copied().chain(late.iter().copied()).collect();
        prop_assert_eq!(delivered_or_late, union);
        prop_assert!(delivered.windows(2).all(|pair| pair[0] < pair[1]));
        prop_assert!(late.iter().all(|sequence| delivered.binary_search(sequence).is_err()));
    }

    /// Cycles of 400 messages without a pause, delayed by up to 1 ms on each line.
    #[test]
    fn cycles_that_begin_again_are_told_apart(
        sent in prop::collection::vec([fate(), fate()], 1200..2000),
    ) {
        const CYCLE: u64 = 400;
        let mut arrivals = Vec::new();
        let mut union = BTreeSet::new();
        for (n, fates) in sent.iter().enumerate() {
            let (epoch, sequence) = (n as u64 / CYCLE, n as u64 % CYCLE + 1);
            for (line, fate) in fates.iter().enumerate() {
                if fate.lost {
                    continue;
                }
                union.insert((epoch, sequence));
                let at = n as u64 * 50_000 + u64::from(fate.delays_us[0]) * 100;
                arrivals.push((at, n, line, sequence));
            }
        }
        arrivals.sort_unstable();
        let mut bench = Bench::new(from_one());
        for &(at, _, line, sequence) in &arrivals {
            bench.offer([FeedLine::A, FeedLine::B][line], D, sequence, at);
        }
        bench.finish();
        let mut delivered: Vec<_> =
            bench.heard.messages.iter().map(|m| (u64::from(m.1), m.2)).collect();
        delivered.sort_by_key(|m| m.0);
        prop_assert_eq!(delivered, union.into_iter().collect::<Vec<_>>());
        prop_assert_eq!(bench.arbiter.totals().restarts, (sent.len() as u64 - 1) / CYCLE);
    }

    /// For any input: no panic, no duplicates, ascending within an epoch, all counts add up.
    #[test]
    fn hostile_sequences_never_break_the_books(
        offers in prop::collection::vec(
            (
                0..3usize,
                0..5u64,
                prop_oneof![8 => 0..60u64, 2 => 0..3000u64, 1 => any::<u64>(),
                            1 => (0..3u64).prop_map(|n| SEQUENCE_MAX - n)],
                prop_oneof![9 => 0..300_000u64, 1 => Just(2_000_000_000u64)],
            ),
            0..600,
        ),
        held_messages in 1..20u32,
        reach in 2..64u32,
        message_bytes in 20..60u32,
        from_one: bool,
    ) {
        let limits = ArbiterLimits {
            held_messages, reach, message_bytes, from_one,
            memory: 64, domains: 4, restart_back: 20, ..ArbiterLimits::default()
        };
        let mut bench = Bench::new(limits);
        let mut now = 0;
        for (line, domain, sequence, later) in offers {
            now += later;
            if later % 16 == 1 {
                // Its numbers are new to the next domain of its name.
                let removed = SequenceDomain(domain + 1);
                let heard = &mut bench.heard;
                bench.arbiter.remove(removed, &mut |delivery| heard.take(delivery));
                bench.heard.messages.retain(|(domain, ..)| *domain != removed);
            }
            bench.offer(FeedLine::ALL[line], SequenceDomain(domain), sequence, now);
            prop_assert!(bench.arbiter.held() <= u64::from(held_messages));
            prop_assert!(bench.arbiter.deadline_ns().is_none_or(|d| d > now));
            prop_assert!(bench.arbiter.balances());
        }
        bench.finish();
        let mut last: BTreeMap<(SequenceDomain, u32), u64> = BTreeMap::new();
        for &(domain, epoch, sequence) in &bench.heard.messages {
            if let Some(before) = last.insert((domain, epoch), sequence) {
                prop_assert!(sequence > before, "{domain:?} {epoch}: {sequence} after {before}");
            }
        }
    }
}
