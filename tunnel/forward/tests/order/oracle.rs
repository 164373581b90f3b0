//! Random operations of one thread against a sequential oracle.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use wirepath_forward::order::{BatchTicket, Frame, FrameVerdict, Order, OrderSpec};

use super::{Fate, Record, SPEC, frame};

/// One step of the sequential test.
#[derive(Debug, Clone)]
enum Step {
    Admit(Vec<usize>),
    Settle { which: usize, dropped: u64, publish: bool },
    Drain { later_ns: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop::collection::vec(0usize..2, 0..5).prop_map(Step::Admit),
        4 => (any::<usize>(), any::<u64>(), prop::bool::weighted(0.8))
            .prop_map(|(which, dropped, publish)| Step::Settle { which, dropped, publish }),
        3 => (0u64..80).prop_map(|later_ns| Step::Drain { later_ns }),
    ]
}

/// Specification of the order: a sequential model.
#[derive(Default)]
struct Oracle {
    lanes: [OracleLane; 2],
    out: Vec<(Fate, u32)>,
}

#[derive(Default)]
struct OracleLane {
    /// Tickets from head to tail: `None` for a skipped one.
    tickets: VecDeque<Option<Ticket>>,
    head: u64,
    /// Slots of tickets that timed out; `Some` once their worker has published.
    lost: BTreeMap<u64, Option<Vec<u32>>>,
    stuck: Option<(u64, u64)>,
}

struct Ticket {
    frames: Vec<u32>,
    /// `None` until settled.
    dropped: Option<u64>,
}

impl OracleLane {
    /// Ticket of a new batch; `None` if the window is full. Called at every admission.
    fn reserve(&mut self) -> Option<u64> {
        loop {
            let ticket = self.head + self.tickets.len() as u64;
            if ticket - self.head >= 4 {
                return None;
            }
            if !self.lost.contains_key(&(ticket % 4)) {
                return Some(ticket);
            }
            self.tickets.push_back(None);
        }
    }

    fn drain(&mut self, now_ns: u64, out: &mut Vec<(Fate, u32)>) {
        self.lost.retain(|_, frames| match frames {
            Some(frames) => {
                out.extend(frames.iter().map(|index| (Fate::Late, *index)));
                false
            }
            None => true,
        });
        while let Some(ticket) = self.tickets.front() {
            match ticket {
                Some(Ticket { frames, dropped: Some(dropped) }) => {
                    out.extend(frames.iter().enumerate().map(|(at, index)| {
                        let kept = dropped & 1 << at == 0;
                        (if kept { Fate::Forwarded } else { Fate::Dropped }, *index)
                    }));
                }
                Some(_) => {
                    if self.tickets.len() < 2 {
                        return;
                    }
                    let since = match self.stuck {
                        Some((ticket, since)) if ticket == self.head => since,
                        _ => now_ns,
                    };
                    self.stuck = Some((self.head, since));
                    if now_ns - since < 100 {
                        return;
                    }
                    self.lost.insert(self.head % 4, None);
                }
                None => {}
            }
            self.tickets.pop_front();
            self.head += 1;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 512, ..Default::default() })]

    #[test]
    fn random_steps_of_one_thread_match_the_oracle(
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let spec = OrderSpec { lanes: 2, ..SPEC };
        let order = Order::new(spec, (), Record::default()).expect("in range");
        let mut oracle = Oracle::default();
        let (mut next, mut now_ns) = (0, 0);
        let mut held: Vec<(usize, BatchTicket<'_>)> = Vec::new();
        for step in steps {
            match step {
                Step::Admit(lanes) => {
                    let tickets: Vec<_> = oracle.lanes.iter_mut().map(OracleLane::reserve).collect();
                    let mut batches = [vec![], vec![]];
                    let mut tokens = Vec::new();
                    order.admit(&mut tokens, |(), intake| {
                        for lane in lanes {
                            let taken = intake.push(lane, frame(next)).is_ok();
                            assert_eq!(taken, tickets[lane].is_some());
                            if taken {
                                batches[lane].push(next);
                                next += 1;
                            }
                        }
                    });
                    let mut tokens = tokens.into_iter();
                    for (lane, frames) in batches.into_iter().enumerate() {
                        if frames.is_empty() {
                            continue;
                        }
                        let token = tokens.next().expect("each lane with frames gets a ticket");
                        prop_assert_eq!(Some(token.ticket()), tickets[lane]);
                        oracle.lanes[lane].tickets.push_back(Some(Ticket { frames, dropped: None }));
                        held.push((lane, token));
                    }
                    prop_assert!(tokens.next().is_none());
                }
                Step::Settle { which, dropped, publish } => {
                    if held.is_empty() {
                        continue;
                    }
                    let (lane, mut token) = held.swap_remove(which % held.len());
                    let lane = &mut oracle.lanes[lane];
                    let ticket = token.ticket();
                    let mut at = 0;
                    token.judge(|frame| {
                        at += 1;
                        if dropped & 1 << (at - 1) == 0 { FrameVerdict::Forward(frame) } else { FrameVerdict::Drop }
                    });
                    let in_time = ticket >= lane.head;
                    if in_time {
                        let entry = lane.tickets[(ticket - lane.head) as usize].as_mut();
                        entry.expect("it was issued").dropped =
                            Some(if publish { dropped } else { u64::MAX });
                    } else {
                        let frames: Vec<u32> =
                            (0..token.len()).filter_map(|at| token.frame(at)).map(Frame::index).collect();
                        *lane.lost.get_mut(&(ticket % 4)).expect("it timed out") = Some(frames);
                    }
                    if publish {
                        prop_assert_eq!(token.publish(), in_time);
                    } else {
                        drop(token);
                    }
                }
                Step::Drain { later_ns } => {
                    now_ns += later_ns;
                    order.drain(now_ns);
                    for lane in &mut oracle.lanes {
                        lane.drain(now_ns, &mut oracle.out);
                    }
                }
            }
        }
        drop(held);
        let books = order.counters();
        let (_, record) = order.into_parts();
        prop_assert_eq!(&record.out, &oracle.out);
        for (counted, fate) in [
            (books.forwarded_frames, Fate::Forwarded),
            (books.dropped_frames, Fate::Dropped),
            (books.late_frames, Fate::Late),
        ] {
            let out = record.out.iter().filter(|(found, _)| *found == fate).count() as u64;
            prop_assert_eq!(counted, out);
        }
        prop_assert_eq!(books.admitted_frames, u64::from(next));
        prop_assert_eq!(books.in_flight_frames(), u64::from(next) - record.out.len() as u64);
    }
}
