//! Causes of delays: each is planted on the CPU of a meter, and must be named.

extern crate wirepath_host as host;

mod planted;

use std::hint::black_box;
use std::thread;
use std::time::Duration;

use host::interruptions::{CauseKind, RING_BYTES_MIN};
use planted::{PLANTS, cpus};
use sys::affinity;
use sys::bpf::interruptions::{InterruptionKind, Interruptions};

/// Planted gaps must be found, and those without a known cause be fewer: on a busy machine other causes are
/// true as well.
fn is_mostly_named(kind: CauseKind) {
    /// Gaps after which a planted cause has had its chance.
    const ENOUGH: u64 = 20;
    let plant = PLANTS.iter().find(|plant| plant.names[0].0 == kind).unwrap();
    let noise = match plant.watch(ENOUGH, Duration::from_millis(500)) {
        Ok(noise) => noise,
        Err(why) => return testkit::skip("kernel", format!("{}: {why}", plant.planted)),
    };
    let (named, unknown) = (plant.named(&noise), noise.gaps.count_of(CauseKind::Unknown));
    let rows = noise.gaps.rows();
    assert!(named >= ENOUGH && named > unknown, "{}: {named} of {rows:?}", plant.planted);
}

#[test]
fn timers_that_expire_together_are_named() {
    is_mostly_named(CauseKind::Interrupt);
}

#[test]
fn a_real_time_task_on_the_cpu_is_named() {
    is_mostly_named(CauseKind::Preemption);
}

#[test]
fn a_quota_that_is_used_up_is_named() {
    is_mostly_named(CauseKind::Throttling);
}

#[test]
fn packets_of_others_that_are_steered_to_the_cpu_are_named() {
    is_mostly_named(CauseKind::Softirq);
}

#[test]
fn page_faults_are_named() {
    is_mostly_named(CauseKind::PageFault);
}

#[test]
fn intervals_that_do_not_fit_are_counted() {
    let (cpu, _, _turn) = cpus();
    let lost = || {
        let mut traced = Interruptions::attach(RING_BYTES_MIN).unwrap();
        affinity::pin_to(&[cpu]).unwrap();
        traced.follow(sys::thread::id()).unwrap();
        let mut read = Vec::new();
        // More page faults than the ring has room for.
        let mut fresh = vec![0_u8; 64 << 20];
        testkit::until(testkit::LONG, || {
            thread::sleep(Duration::from_millis(1));
            for page in fresh.chunks_mut(4096) {
                page[0] = 1;
            }
            black_box(&fresh);
            fresh = vec![0_u8; 64 << 20];
            traced.drain(&mut read);
            read.last().is_some_and(|last| last.lost_count > 0)
        })
    };
    assert!(thread::scope(|scope| scope.spawn(lost).join().unwrap()));
}

#[test]
fn each_interrupt_of_the_timer_was_due_after_the_one_before_it() {
    const ENOUGH: usize = 50;
    let (cpu, _, _turn) = cpus();
    let timers = || {
        let mut traced = Interruptions::attach(RING_BYTES_MIN).unwrap();
        affinity::pin_to(&[cpu]).unwrap();
        traced.follow(sys::thread::id()).unwrap();
        let (mut read, mut timers) = (Vec::new(), Vec::new());
        // Each sleep sets the timer.
        testkit::until(testkit::LONG, || {
            thread::sleep(Duration::from_millis(1));
            traced.drain(&mut read);
            timers.extend(read.drain(..).filter(|one| one.kind == InterruptionKind::LocalTimer));
            timers.len() >= ENOUGH
        });
        timers
    };
    let timers = thread::scope(|scope| scope.spawn(timers).join().unwrap());
    if !cfg!(target_arch = "x86_64") || timers.iter().all(|timer| timer.due_ns.is_none()) {
        return testkit::skip("kernel", "its type information has no timers of a CPU");
    }
    assert!(timers.len() >= ENOUGH, "{}", timers.len());
    for pair in timers.windows(2) {
        assert!(pair[1].due_ns.is_none_or(|due_ns| due_ns > pair[0].begin_ns), "{pair:?}");
    }
    let known = timers.iter().filter(|timer| timer.due_ns.is_some()).count();
    assert!(known > timers.len() / 2, "{known} of {}: {timers:?}", timers.len());
}
