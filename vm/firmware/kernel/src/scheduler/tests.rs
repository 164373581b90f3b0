use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;

/// A scheduler with these tasks; the most urgent one runs.
fn running(priorities: &[Priority]) -> Scheduler {
    let mut scheduler = Scheduler::new();
    for priority in priorities {
        scheduler.add_task(*priority);
    }
    scheduler.schedule();
    scheduler
}

#[test]
fn most_urgent_task_runs_first_and_is_not_preempted_without_need() {
    let mut scheduler = Scheduler::new();
    scheduler.add_task(7);
    scheduler.add_task(3);
    assert_eq!(scheduler.schedule(), Some(Switch { from: None, to: 3 }));
    assert_eq!(scheduler.schedule(), None);
}

#[test]
#[should_panic(expected = "priority 5 is taken")]
fn priorities_are_unique() {
    let mut scheduler = running(&[5]);
    scheduler.add_task(5);
}

#[test]
fn semaphore_posted_in_an_interrupt_switches_when_the_outermost_ends() {
    let mut scheduler = running(&[1, 9]);
    let semaphore = scheduler.add_semaphore(0);
    assert_eq!(scheduler.pend(semaphore, 0), Pend::Blocked);
    assert_eq!(scheduler.schedule(), Some(Switch { from: Some(1), to: 9 }));
    scheduler.enter_interrupt();
    scheduler.enter_interrupt();
    assert_eq!(scheduler.post(semaphore, 0), Ok(()));
    assert_eq!(scheduler.schedule(), None, "not from within");
    assert_eq!(scheduler.exit_interrupt(), None);
    assert_eq!(scheduler.exit_interrupt(), Some(Switch { from: Some(9), to: 1 }));
    assert_eq!(scheduler.outcome(), Ok(0));
}

#[test]
fn skipped_ticks_are_counted_and_a_task_that_waits_for_one_forbids_them() {
    let mut scheduler = running(&[1, 9]);
    let queue = scheduler.add_queue();
    assert_eq!(scheduler.pend(queue, 0), Pend::Blocked);
    scheduler.schedule();
    assert!(!scheduler.has_timed(), "a wait without a limit needs no tick");
    scheduler.skip_ticks(500);
    scheduler.tick();
    assert_eq!(scheduler.tick_count(), 501);
    scheduler.delay(2);
    assert!(scheduler.has_timed());
}

#[test]
#[should_panic(expected = "a task waits for a tick")]
fn ticks_that_a_task_waits_for_cannot_be_skipped() {
    let mut scheduler = running(&[1, 9]);
    scheduler.delay(2);
    scheduler.skip_ticks(1);
}

#[test]
fn message_goes_to_the_most_urgent_waiter_regardless_of_order() {
    let mut scheduler = running(&[1, 2, 3]);
    let queue = scheduler.add_queue();
    // 1 waits last.
    scheduler.delay(2);
    scheduler.schedule();
    assert_eq!(scheduler.pend(queue, 0), Pend::Blocked);
    scheduler.schedule();
    scheduler.tick();
    scheduler.tick();
    assert_eq!(scheduler.schedule(), Some(Switch { from: Some(3), to: 1 }));
    assert_eq!(scheduler.pend(queue, 0), Pend::Blocked);
    scheduler.schedule();
    scheduler.post(queue, 77).expect("a task waits");
    assert_eq!(scheduler.schedule(), Some(Switch { from: Some(3), to: 1 }));
    assert_eq!(scheduler.outcome(), Ok(77));
    // 2 still waits.
    assert_eq!(scheduler.pend(queue, 0), Pend::Blocked);
    assert_eq!(scheduler.schedule(), Some(Switch { from: Some(1), to: 3 }));
}

#[test]
fn timeout_ends_the_wait_once_and_removes_the_task_from_the_event() {
    let mut scheduler = running(&[1, 2]);
    let semaphore = scheduler.add_semaphore(0);
    scheduler.pend(semaphore, 3);
    scheduler.schedule();
    scheduler.tick();
    scheduler.tick();
    assert_eq!(scheduler.schedule(), None);
    scheduler.tick();
    assert_eq!(scheduler.schedule(), Some(Switch { from: Some(2), to: 1 }));
    assert_eq!(scheduler.outcome(), Err(TimedOut));
    // A later post is kept, not delivered to the task that timed out.
    scheduler.post(semaphore, 0).expect("it counts");
    assert_eq!(scheduler.pend(semaphore, 0), Pend::Taken(0));
}

#[test]
fn successful_wait_leaves_no_timeout() {
    let mut scheduler = running(&[1, 2]);
    let semaphore = scheduler.add_semaphore(0);
    scheduler.pend(semaphore, 2);
    scheduler.schedule();
    scheduler.post(semaphore, 0).expect("it counts");
    scheduler.schedule();
    for _ in 0..5 {
        scheduler.tick();
    }
    assert_eq!((scheduler.outcome(), scheduler.current()), (Ok(0), Some(1)));
}

#[test]
fn priority_inversion_occurs_as_documented() {
    // 30 holds the lock that 10 waits for; 20 needs no lock, yet runs before 30.
    let mut scheduler = running(&[30]);
    let mutex = scheduler.add_semaphore(1);
    assert_eq!(scheduler.pend(mutex, 0), Pend::Taken(0));
    scheduler.add_task(10);
    scheduler.add_task(20);
    assert_eq!(scheduler.schedule().map(|switch| switch.to), Some(10));
    assert_eq!(scheduler.pend(mutex, 0), Pend::Blocked);
    assert_eq!(scheduler.schedule().map(|switch| switch.to), Some(20), "no inheritance");
    scheduler.delay(1);
    assert_eq!(scheduler.schedule().map(|switch| switch.to), Some(30));
    scheduler.post(mutex, 0).expect("10 waits");
    assert_eq!(scheduler.schedule().map(|switch| switch.to), Some(10));
}

#[test]
fn locked_scheduler_switches_only_when_the_task_itself_cannot_run() {
    let mut scheduler = running(&[5]);
    scheduler.lock();
    scheduler.add_task(1);
    assert_eq!(scheduler.schedule(), None);
    assert_eq!(scheduler.unlock(), Some(Switch { from: Some(5), to: 1 }));
}

#[test]
fn ended_task_never_runs_again_and_frees_its_priority() {
    let mut scheduler = running(&[1, 2]);
    scheduler.remove_current();
    assert_eq!(scheduler.schedule(), Some(Switch { from: Some(1), to: 2 }));
    scheduler.add_task(1);
    assert_eq!(scheduler.schedule(), Some(Switch { from: Some(2), to: 1 }));
}

#[test]
fn full_queue_and_full_semaphore_refuse() {
    let mut scheduler = running(&[1]);
    let (queue, semaphore) = (scheduler.add_queue(), scheduler.add_semaphore(u32::MAX));
    for message in 0..QUEUE_MESSAGES as u64 {
        assert_eq!(scheduler.post(queue, message), Ok(()));
    }
    assert_eq!(scheduler.post(queue, 99), Err(Overflow));
    assert_eq!(scheduler.post(semaphore, 0), Err(Overflow));
    assert_eq!(scheduler.pend(queue, 0), Pend::Taken(0));
}

#[test]
#[should_panic(expected = "an interrupt cannot wait")]
fn interrupt_may_not_wait() {
    let mut scheduler = running(&[1]);
    let semaphore = scheduler.add_semaphore(0);
    scheduler.enter_interrupt();
    scheduler.pend(semaphore, 0);
}

/// Reference implementation with lists instead of bitmaps.
#[derive(Default)]
struct Oracle {
    /// Task to (queue it waits for, ticks left).
    waits: BTreeMap<Priority, (Option<usize>, u32)>,
    queues: [VecDeque<u64>; 2],
    outcomes: BTreeMap<Priority, Result<u64, TimedOut>>,
}

impl Oracle {
    fn running(&self) -> Option<Priority> {
        (0..6).find(|task| !self.waits.contains_key(task))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn scheduler_agrees_with_lists(
        steps in prop::collection::vec((0u8..4, 0usize..2, 0u32..4), 0..200),
    ) {
        let mut scheduler = running(&[0, 1, 2, 3, 4, 5]);
        let queues = [scheduler.add_queue(), scheduler.add_queue()];
        let mut oracle = Oracle::default();
        for (number, (what, queue, ticks)) in steps.into_iter().enumerate() {
            let message = number as u64;
            let current = oracle.running();
            match (what, current) {
                (0, Some(task)) if task < 5 => {
                    let pend = scheduler.pend(queues[queue], ticks);
                    if let Some(taken) = oracle.queues[queue].pop_front() {
                        prop_assert_eq!(pend, Pend::Taken(taken));
                    } else {
                        prop_assert_eq!(pend, Pend::Blocked);
                        oracle.waits.insert(task, (Some(queue), ticks));
                    }
                }
                (1, Some(task)) if task < 5 && ticks > 0 => {
                    scheduler.delay(ticks);
                    oracle.waits.insert(task, (None, ticks));
                }
                (2, _) => {
                    let posted = scheduler.post(queues[queue], message);
                    let waiter = oracle.waits.iter().find(|(_, (on, _))| *on == Some(queue));
                    if let Some(waiter) = waiter.map(|(task, _)| *task) {
                        oracle.waits.remove(&waiter);
                        oracle.outcomes.insert(waiter, Ok(message));
                        prop_assert_eq!(posted, Ok(()));
                    } else if oracle.queues[queue].len() < QUEUE_MESSAGES {
                        oracle.queues[queue].push_back(message);
                        prop_assert_eq!(posted, Ok(()));
                    } else {
                        prop_assert_eq!(posted, Err(Overflow));
                    }
                }
                (3, _) => {
                    scheduler.enter_interrupt();
                    scheduler.tick();
                    for (task, (on, left)) in core::mem::take(&mut oracle.waits) {
                        match left {
                            1 if on.is_some() => {
                                oracle.outcomes.insert(task, Err(TimedOut));
                            }
                            1 => {}
                            0 => {
                                oracle.waits.insert(task, (on, 0));
                            }
                            _ => {
                                oracle.waits.insert(task, (on, left - 1));
                            }
                        }
                    }
                    let expected = (oracle.running() != current).then(|| oracle.running()).flatten();
                    let switch = scheduler.exit_interrupt();
                    prop_assert_eq!(switch.map(|switch| switch.to), expected);
                }
                _ => {}
            }
            scheduler.schedule();
            prop_assert_eq!(scheduler.current(), oracle.running());
            if let Some(outcome) = scheduler.current().and_then(|task| oracle.outcomes.remove(&task)) {
                prop_assert_eq!(scheduler.outcome(), outcome);
            }
        }
    }
}
