//! Why a thread was late: interrupts, softirqs, other tasks, throttling, steal and page faults, as the
//! kernel reports them while the thread runs.
//!
//! [`Trace`] follows one thread. It keeps the intervals of the last seconds, and names the cause of a
//! delay afterwards. [`InterruptionMeter`] is a thread that does nothing but watch the clock of a CPU.
//! [`watch_thread`] adds up what held up a thread of any process.

mod cause;
mod host_state;
mod meter;
mod tally;
mod thread;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use sys::bpf::interruptions::{Interruptions, Interval};
use sys::thread::ThreadError;
use sys::{capability, clock};

pub use cause::{Cause, CauseKind, Delay};
use host_state::HostState;
pub use meter::{InterruptionMeter, MeterError, Noise};
pub use sys::bpf::BpfError;
pub use sys::bpf::interruptions::{RING_BYTES, RING_BYTES_MIN};
pub use tally::{Tallies, Tally};
pub use thread::{HeldUp, watch_thread};

/// Time between readings of the ring buffer.
const READ_INTERVAL: Duration = Duration::from_millis(10);
/// Intervals kept.
const KEPT_MAX: usize = 1 << 17;
/// An interrupt that began before a delay's last clock reading may end after it.
const AFTER_NS: u64 = 1_000_000;
/// Longest time of page faults that are kept as one: it ends soon enough after each delay in which it began.
const FAULTS_NS_MAX: u64 = AFTER_NS / 2;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    #[error(transparent)]
    Bpf(#[from] BpfError),
    #[error(transparent)]
    Thread(#[from] ThreadError),
    #[error("cannot give up rights")]
    Rights(#[source] std::io::Error),
    #[error("the thread that reads the trace has ended; this is a bug in wirepath")]
    Ended,
    #[error("no thread {thread}, or it has ended; `ps -L` lists their numbers")]
    NoThread { thread: u32 },
}

#[derive(Debug, Default)]
struct Kept {
    intervals: VecDeque<Interval>,
    /// Delays that begin before this time are not known whole.
    complete_from_ns: u64,
    host: Option<HostState>,
}

impl Kept {
    /// Page faults that follow one another are kept as one, as a thread can have hundreds of thousands a second.
    fn keep(&mut self, interval: Interval) {
        if let Some(last) = self.intervals.back_mut()
            && cause::are_one_fault(last, &interval)
            && interval.end_ns.saturating_sub(last.begin_ns) <= FAULTS_NS_MAX
        {
            last.end_ns = interval.end_ns;
            return;
        }
        if self.intervals.len() == KEPT_MAX {
            let oldest = self.intervals.pop_front();
            self.complete_from_ns =
                self.complete_from_ns.max(oldest.map_or(0, |oldest| oldest.end_ns));
        }
        self.intervals.push_back(interval);
    }

    fn cause(&self, delay: &Delay) -> Cause {
        if delay.begin_ns < self.complete_from_ns {
            return Cause::plain(CauseKind::Unknown);
        }
        let first = self.intervals.partition_point(|one| one.end_ns <= delay.begin_ns);
        let ends_by = delay.end_ns.saturating_add(AFTER_NS);
        let near = self.intervals.range(first..).take_while(|one| one.end_ns <= ends_by);
        let near: Vec<&Interval> = near.filter(|one| one.begin_ns < delay.end_ns).collect();
        let around = self.host.as_ref().map(|host| host.around(delay)).unwrap_or_default();
        cause::cause(delay, &near, around)
    }
}

#[derive(Debug, Default)]
struct Shared {
    kept: Mutex<Kept>,
    lost_count: AtomicU64,
    read_upto_ns: AtomicU64,
    stop: AtomicBool,
}

impl Shared {
    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Answer = Sender<Result<(), TraceError>>;

/// Intervals of one thread, read until it is dropped.
#[derive(Debug)]
pub struct Trace {
    shared: Arc<Shared>,
    follow: Sender<(u32, Answer)>,
    reader: Option<JoinHandle<()>>,
    missing: Vec<String>,
}

impl Trace {
    /// Attaches the programs, on a thread of its own that inherits the caller's CPUs and rights.
    ///
    /// - `ring_bytes`: a power of two, such as [`RING_BYTES`].
    ///
    /// # Errors
    /// [`TraceError::Bpf`] without CAP_BPF and CAP_PERFMON.
    pub fn open(ring_bytes: u32) -> Result<Trace, TraceError> {
        let shared = Arc::new(Shared::default());
        let (follow, asked) = channel::<(u32, Answer)>();
        let (ready, opened) = channel();
        let reads = shared.clone();
        let reader = sys::thread::start_free("causes", move || {
            let traced = match Interruptions::attach(ring_bytes) {
                Ok(traced) => traced,
                Err(why) => return drop(ready.send(Err(why))),
            };
            // Fails only if the opener has gone.
            let _ = ready.send(Ok(traced.missing().to_vec()));
            read_until_stopped(traced, &reads, &asked);
        })?;
        let mut trace = Trace { shared, follow, reader: Some(reader), missing: Vec::new() };
        trace.missing = opened.recv().map_err(|_| TraceError::Ended)??;
        Ok(trace)
    }

    /// Tracepoints that the kernel refused, each with its reason: their causes are unknown.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Follows the calling thread; the trace then gives up its rights, and can follow no other. Sleeps for
    /// some milliseconds.
    ///
    /// # Errors
    /// [`TraceError::Bpf`].
    pub fn follow_this_thread(&self) -> Result<(), TraceError> {
        let (answer, answered) = channel();
        let asked = self.follow.send((sys::thread::id(), answer));
        asked.map_err(|_| TraceError::Ended)?;
        answered.recv().map_err(|_| TraceError::Ended)??;
        // The context switch by which the thread is recognised.
        std::thread::sleep(Duration::from_millis(1));
        self.shared.kept().complete_from_ns = clock::monotonic_ns();
        Ok(())
    }

    /// Cause of a delay of the last second or so. Waits until the trace has been read up to its end, for
    /// some milliseconds at most.
    pub fn cause(&self, delay: &Delay) -> Cause {
        for _ in 0..100 {
            if self.shared.read_upto_ns.load(Ordering::Acquire) > delay.end_ns {
                break;
            }
            std::thread::sleep(READ_INTERVAL / 10);
        }
        self.shared.kept().cause(delay)
    }

    /// Intervals that found the ring buffer full, and so are missing, up to the last one that did not.
    pub fn lost_count(&self) -> u64 {
        self.shared.lost_count.load(Ordering::Relaxed)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // A panic there has been printed.
        self.reader.take().map(JoinHandle::join);
    }
}

fn read_until_stopped(mut traced: Interruptions, shared: &Shared, asked: &Receiver<(u32, Answer)>) {
    let mut fresh = Vec::new();
    while !shared.stop.load(Ordering::Relaxed) {
        if let Ok((thread, answer)) = asked.recv_timeout(READ_INTERVAL) {
            let followed = traced.follow(thread);
            shared.kept().host = Some(HostState::of(thread));
            // One thread is all; the rest needs no right.
            let given_up = capability::keep(&[]);
            let followed =
                followed.map_err(TraceError::Bpf).and(given_up.map_err(TraceError::Rights));
            // Fails only if the asker has gone.
            let _ = answer.send(followed);
        }
        let begun_ns = clock::monotonic_ns();
        traced.drain(&mut fresh);
        let mut kept = shared.kept();
        if let Some(host) = &mut kept.host {
            host.sample(begun_ns);
        }
        if let Some(last) = fresh.last() {
            shared.lost_count.store(last.lost_count, Ordering::Relaxed);
        }
        fresh.drain(..).for_each(|interval| kept.keep(interval));
        drop(kept);
        shared.read_upto_ns.store(begun_ns, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use sys::bpf::interruptions::InterruptionKind;

    use super::*;

    fn interval(kind: InterruptionKind, begin_ns: u64, end_ns: u64) -> Interval {
        let (awake_ns, due_ns, name) = (begin_ns, None, [0; 32]);
        Interval { begin_ns, end_ns, due_ns, awake_ns, kind, number: 0, name, lost_count: 0 }
    }

    #[test]
    fn delays_by_page_faults_are_known_as_long_as_the_meter_may_ask_for_them() {
        const FAULT_NS: u64 = 2_000;
        const ALL_NS: u64 = 800_000_000;
        let mut kept = Kept::default();
        for begin_ns in (0..ALL_NS).step_by(FAULT_NS as usize) {
            if begin_ns % 4_000_000 == 0 {
                kept.keep(interval(InterruptionKind::LocalTimer, begin_ns + 100, begin_ns + 900));
            }
            kept.keep(interval(InterruptionKind::PageFault, begin_ns, begin_ns + FAULT_NS - 500));
        }
        let cause = |kept: &Kept, begin_ns, end_ns| {
            kept.cause(&Delay { begin_ns, end_ns, is_behind: false }).to_string()
        };
        for begin_ns in [1_000_000, 400_300_000, ALL_NS - 1_600_000] {
            assert_eq!(cause(&kept, begin_ns, begin_ns + 1_500_000), "page-fault", "{begin_ns}");
        }
        assert_eq!(cause(&kept, ALL_NS + 2_000, ALL_NS + 300_000), "unknown");
        // Not those between which the thread ran.
        kept.keep(interval(InterruptionKind::PageFault, 2 * ALL_NS, 2 * ALL_NS + 1_000));
        kept.keep(interval(
            InterruptionKind::PageFault,
            2 * ALL_NS + 100_000,
            2 * ALL_NS + 101_000,
        ));
        assert_eq!(cause(&kept, 2 * ALL_NS - 1_000, 2 * ALL_NS + 102_000), "unknown");
    }
}
