//! A thread that reads the clock all the time: each jump is time that was taken from it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sys::{affinity, clock};

use super::{Cause, CauseKind, Delay, Tallies, Trace, TraceError};

/// Gaps kept for an explanation at one time.
const GAPS_MAX: usize = 4096;
/// Time after which the gaps are explained, if there are not too many before.
const EXPLAIN_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeterError {
    #[error("cannot run on CPU {cpu}; `nproc` and `taskset -p $$` show the CPUs that may be used")]
    Pin {
        cpu: usize,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Trace(#[from] TraceError),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Noise {
    /// Time watched, without the time in which gaps were explained.
    pub watched_ns: u64,
    /// Intervals in which the meter did not run, above the threshold.
    pub gaps: Tallies,
    /// Intervals of the trace that are missing, because they came too fast.
    pub lost_count: u64,
}

/// Watches the clock of a CPU.
#[derive(Debug, Clone, Copy)]
pub struct InterruptionMeter {
    pub cpu: usize,
    /// Shortest gap that counts.
    pub over: Duration,
}

impl InterruptionMeter {
    /// Pins the calling thread, and watches for a time or until `stop` is set.
    ///
    /// - `trace`: not following any thread yet; `None`: causes are unknown.
    /// - `work`: done at each reading of the clock.
    ///
    /// # Errors
    /// [`MeterError`].
    pub fn watch(
        &self,
        time: Duration,
        trace: Option<&Trace>,
        stop: &AtomicBool,
        mut work: impl FnMut(),
    ) -> Result<Noise, MeterError> {
        let cpu = self.cpu;
        affinity::pin_to(&[cpu]).map_err(|source| MeterError::Pin { cpu, source })?;
        if let Some(trace) = trace {
            trace.follow_this_thread()?;
        }
        let mut noise = Noise::default();
        let mut gaps = Vec::with_capacity(GAPS_MAX);
        let time_ns = time.as_nanos() as u64;
        while noise.watched_ns < time_ns && !stop.load(Ordering::Relaxed) {
            let round_ns = (EXPLAIN_INTERVAL.as_nanos() as u64).min(time_ns - noise.watched_ns);
            self.round(round_ns, &mut gaps, &mut noise.watched_ns, &mut work);
            for delay in gaps.drain(..) {
                let cause = trace.map(|trace| trace.cause(&delay));
                let cause = cause.unwrap_or(Cause::plain(CauseKind::Unknown));
                noise.gaps.add(cause, delay.end_ns - delay.begin_ns);
            }
        }
        noise.lost_count = trace.map_or(0, Trace::lost_count);
        Ok(noise)
    }

    fn round(
        &self,
        round_ns: u64,
        gaps: &mut Vec<Delay>,
        watched_ns: &mut u64,
        work: &mut impl FnMut(),
    ) {
        let over_ns = self.over.as_nanos() as u64;
        let begun_ns = clock::monotonic_ns();
        let mut last_ns = begun_ns;
        while last_ns - begun_ns < round_ns && gaps.len() < GAPS_MAX {
            work();
            let now_ns = clock::monotonic_ns();
            let len_ns = now_ns - last_ns;
            if len_ns >= over_ns {
                gaps.push(Delay { begin_ns: last_ns, end_ns: now_ns, is_behind: false });
            }
            last_ns = now_ns;
        }
        *watched_ns = watched_ns.saturating_add(last_ns - begun_ns);
    }
}
