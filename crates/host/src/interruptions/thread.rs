//! Causes that held up a thread of any process, while it wanted to run.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use sys::bpf::interruptions::{InterruptionKind, Interruptions, Interval, RECOGNISED};
use sys::clock;

use super::cause::{Around, Delay, named};
use super::host_state::HostState;
use super::{READ_INTERVAL, RING_BYTES, Tallies, TraceError};

/// Rounds after which the counters of the host are known around an interval: see [`HostState::around`].
const ROUNDS_BEHIND: usize = 3;
/// Intervals whose outer ones have not ended yet.
const OPEN_MAX: usize = 256;

/// Time taken from a thread.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeldUp {
    pub watched_ns: u64,
    /// By cause; the time of an interval is without that of the intervals within it.
    pub causes: Tallies,
    /// Taken from all CPUs by the hypervisor, in steps of 10 ms.
    pub stolen_ns: u64,
    /// Intervals that came too fast to be traced.
    pub lost_count: u64,
    /// Tracepoints that the kernel refused, each with its reason.
    pub missing: Vec<String>,
}

/// Watches a thread for a time, or until `stop` is set or it ends.
///
/// - `thread`: its id in the caller's process namespace.
/// - `over`: shortest interval that counts.
///
/// # Errors
/// [`TraceError::Bpf`] without CAP_BPF and CAP_PERFMON; [`TraceError::NoThread`].
pub fn watch_thread(
    thread: u32,
    time: Duration,
    over: Duration,
    stop: &AtomicBool,
) -> Result<HeldUp, TraceError> {
    let folder = format!("/proc/{thread}");
    let exists = || Path::new(&folder).exists();
    let mut traced = Interruptions::attach(RING_BYTES)?;
    let timer = traced.follow_running(thread).map_err(|why| match why {
        why if exists() => TraceError::Bpf(why),
        _ => TraceError::NoThread { thread },
    })?;
    thread::sleep(RECOGNISED);
    drop(timer);
    let mut fresh = Vec::new();
    traced.drain(&mut fresh);
    fresh.clear();
    let mut sums = Sums { over_ns: over.as_nanos() as u64, ..Sums::new(thread) };
    let begun_ns = clock::monotonic_ns();
    while sums.held.watched_ns < time.as_nanos() as u64 && !stop.load(Ordering::Relaxed) && exists()
    {
        thread::sleep(READ_INTERVAL);
        let now_ns = clock::monotonic_ns();
        traced.drain(&mut fresh);
        sums.round(now_ns, &mut fresh);
        sums.held.watched_ns = now_ns - begun_ns;
    }
    for _ in 0..ROUNDS_BEHIND {
        sums.round(clock::monotonic_ns(), &mut Vec::new());
        thread::sleep(READ_INTERVAL);
    }
    Ok(HeldUp { missing: traced.missing().to_vec(), ..sums.held })
}

/// Intervals on their way into the sums.
struct Sums {
    over_ns: u64,
    host: HostState,
    /// Those of the last rounds, the newest last.
    waiting: Vec<Vec<Interval>>,
    own: OwnTimes,
    held: HeldUp,
}

impl Sums {
    fn new(thread: u32) -> Sums {
        Sums {
            over_ns: 0,
            host: HostState::of(thread),
            waiting: Vec::new(),
            own: OwnTimes::default(),
            held: HeldUp::default(),
        }
    }

    fn round(&mut self, now_ns: u64, fresh: &mut Vec<Interval>) {
        self.held.stolen_ns += self.host.sample(now_ns);
        self.waiting.push(std::mem::take(fresh));
        if self.waiting.len() <= ROUNDS_BEHIND {
            return;
        }
        for one in self.waiting.remove(0) {
            self.held.lost_count = one.lost_count;
            let own_ns = self.own.of(&one);
            if own_ns >= self.over_ns.max(1) {
                self.held.causes.add(named(&one, self.around(&one)), own_ns);
            }
        }
    }

    fn around(&self, one: &Interval) -> Around {
        match one.kind {
            InterruptionKind::Preempted | InterruptionKind::Suspended => {
                let (begin_ns, end_ns) = (one.begin_ns, one.end_ns);
                self.host.around(&Delay { begin_ns, end_ns, is_behind: false })
            }
            _ => Around::default(),
        }
    }
}

/// Times of intervals without those within them. An outer one ends after its inner ones.
#[derive(Debug, Default)]
struct OwnTimes {
    /// Begin and length of those that have ended, and whose outer one has not.
    ended: Vec<(u64, u64)>,
}

impl OwnTimes {
    /// Time of an interval in which the thread was awake, and no inner one ran.
    fn of(&mut self, one: &Interval) -> u64 {
        let begin_ns = one.begin_ns.max(one.awake_ns);
        let len_ns = one.end_ns.saturating_sub(begin_ns);
        let mut inner_ns = 0;
        while let Some((_, inner)) = self.ended.pop_if(|(begun_ns, _)| *begun_ns >= begin_ns) {
            inner_ns += inner;
        }
        if self.ended.len() == OPEN_MAX {
            self.ended.remove(0);
        }
        self.ended.push((begin_ns, len_ns));
        len_ns.saturating_sub(inner_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(kind: InterruptionKind, begin_ns: u64, awake_ns: u64, end_ns: u64) -> Interval {
        let (due_ns, name) = (None, [0; 32]);
        Interval { begin_ns, end_ns, due_ns, awake_ns, kind, number: 0, name, lost_count: 0 }
    }

    #[test]
    fn an_outer_interval_counts_without_those_within_it() {
        let mut own = OwnTimes::default();
        let mut time = |kind, begin, end| own.of(&interval(kind, begin, begin, end));
        assert_eq!(time(InterruptionKind::LocalTimer, 100, 130), 30);
        assert_eq!(time(InterruptionKind::LocalTimer, 220, 240), 20);
        assert_eq!(time(InterruptionKind::Softirq, 210, 260), 30);
        assert_eq!(
            time(InterruptionKind::Preempted, 200, 300),
            50,
            "100, without the softirq's 50"
        );
        assert_eq!(time(InterruptionKind::Softirq, 400, 410), 10);
    }

    #[test]
    fn time_in_which_the_thread_slept_is_not_taken_from_it() {
        let mut own = OwnTimes::default();
        // The softirq woke the thread at 50, which ran at 90.
        assert_eq!(own.of(&interval(InterruptionKind::Softirq, 0, 50, 80)), 30);
        assert_eq!(own.of(&interval(InterruptionKind::WakeUp, 50, 50, 90)), 10);
        assert_eq!(own.of(&interval(InterruptionKind::LocalTimer, 100, 120, 120)), 0, "asleep");
    }
}
