//! One period: the act, the wash-out, the figures, and the guard over all of it.

use std::sync::atomic::{AtomicBool, Ordering};

use model::live::{LiveArm, LivePeriod, LivePeriodRecord, LiveStage, LiveTrip};

use super::guard::Guard;
use super::{Clock, Figures, Observer, SAMPLE_INTERVAL, Switch, p99_ns};

/// Period that is asked for.
pub(super) struct Wanted {
    pub(super) arm: LiveArm,
    pub(super) pair: u32,
    pub(super) stage: LiveStage,
    /// From the end of the act, wash-out included.
    pub(super) period_ns: u64,
    pub(super) washout_ns: u64,
}

/// End of a period.
pub(super) enum PeriodEnd {
    Done(Box<(LivePeriod, LivePeriodRecord)>),
    /// A signal came; the period does not count.
    Interrupted,
    /// The run cannot go on; the period does not count.
    Failed(String),
}

/// Everything that a period uses.
pub(super) struct Stage<'a, F: Figures> {
    pub(super) clock: &'a mut dyn Clock,
    pub(super) figures: &'a mut F,
    pub(super) switch: &'a mut dyn Switch,
    pub(super) observer: &'a mut dyn Observer,
    pub(super) guard: Guard,
    pub(super) stop: &'a AtomicBool,
    /// Begin of the first act.
    pub(super) zero_ns: u64,
    /// Readings in a row that failed.
    pub(super) failed_readings: u32,
}

/// Readings in a row that may fail before the run ends.
const FAILED_READINGS_MAX: u32 = 3;

/// Reason to leave a period before its end.
enum Break {
    Interrupted,
    Failed(String),
    Tripped(Box<LiveTrip>),
}

impl<F: Figures> Stage<'_, F> {
    /// Switches to the arm, waits, and reads the figures.
    pub(super) fn period(&mut self, wanted: &Wanted) -> PeriodEnd {
        let start_ns = self.clock.now_ns();
        if let Err(why) = self.switch.turn(wanted.arm == LiveArm::On) {
            return PeriodEnd::Failed(why);
        }
        let switched_ns = self.clock.now_ns();
        // Counts of the act belong to no arm.
        if let Err(why) = self.figures.guard_sample(self.guard.slow_limit_ns()) {
            return PeriodEnd::Failed(why);
        }
        self.guard.switch(wanted.arm, switched_ns);
        let counted_ns = switched_ns + wanted.washout_ns;
        let planned_end_ns = switched_ns + wanted.period_ns;
        let half_ns = counted_ns + (planned_end_ns - counted_ns) / 2;
        let mut readings = Vec::with_capacity(3);
        let mut trip = None;
        for until_ns in [counted_ns, half_ns, planned_end_ns] {
            match self.watch(wanted, until_ns) {
                Ok(()) => {}
                Err(Break::Interrupted) => return PeriodEnd::Interrupted,
                Err(Break::Failed(why)) => return PeriodEnd::Failed(why),
                Err(Break::Tripped(tripped)) => {
                    trip = Some(*tripped);
                    break;
                }
            }
            match self.figures.read() {
                Ok(reading) => {
                    self.failed_readings = 0;
                    readings.push(Some(reading));
                }
                Err(why) if self.failed_readings + 1 >= FAILED_READINGS_MAX => {
                    return PeriodEnd::Failed(why);
                }
                Err(_) => {
                    self.failed_readings += 1;
                    readings.push(None);
                }
            }
        }
        let end_ns = self.clock.now_ns();
        let reason = trip.as_ref().map(|trip: &LiveTrip| trip.reason.clone());
        readings.resize_with(3, || None);
        let [first, half, last] = [&readings[0], &readings[1], &readings[2]];
        let values = self.values(first.as_ref(), last.as_ref());
        let request_count = match (first, last) {
            (Some(first), Some(last)) => self.figures.request_count(first, last),
            _ => 0,
        };
        let halves =
            [self.values(first.as_ref(), half.as_ref()), self.values(half.as_ref(), last.as_ref())];
        if wanted.arm == LiveArm::Off
            && trip.is_none()
            && let Some(p99_ns) = p99_ns(self.figures.figures(), &values)
        {
            self.guard.off_period(p99_ns);
        }
        let run_time_ns = |at_ns: u64| at_ns - self.zero_ns;
        let record = LivePeriodRecord {
            arm: wanted.arm,
            pair: wanted.pair,
            stage: wanted.stage,
            start_ns: run_time_ns(start_ns),
            switched_ns: run_time_ns(switched_ns),
            counted_ns: run_time_ns(counted_ns.min(end_ns)),
            end_ns: run_time_ns(end_ns),
            request_count,
            values: values.clone(),
            trip,
        };
        if record.trip.is_some() {
            self.observer.tripped(&record);
            if let Err(why) = self.rest(planned_end_ns) {
                return why;
            }
        }
        let period = LivePeriod {
            arm: wanted.arm,
            values,
            halves,
            request_count,
            trip: reason,
            start_ns: record.start_ns,
            act_ns: switched_ns - start_ns,
            end_ns: record.end_ns,
        };
        PeriodEnd::Done(Box::new((period, record)))
    }

    /// Samples the guard until a time. A trip undoes the setting before anything else.
    fn watch(&mut self, wanted: &Wanted, until_ns: u64) -> Result<(), Break> {
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Break::Interrupted);
            }
            let now_ns = self.clock.now_ns();
            if now_ns >= until_ns {
                return Ok(());
            }
            self.clock.sleep_until(until_ns.min(now_ns + SAMPLE_INTERVAL.as_nanos() as u64));
            let sample = self.figures.guard_sample(self.guard.slow_limit_ns());
            let sample = sample.map_err(Break::Failed)?;
            let Some(trip) = self.guard.observe(&sample) else {
                self.observer.progress(self.clock.now_ns() - self.zero_ns, wanted.pair);
                continue;
            };
            self.switch.turn(false).map_err(Break::Failed)?;
            let is_on = wanted.arm == LiveArm::On;
            let undone_after_ns = is_on.then(|| self.clock.now_ns().saturating_sub(sample.now_ns));
            let at_ns = sample.now_ns.saturating_sub(self.zero_ns);
            let reason = trip.to_string();
            return Err(Break::Tripped(Box::new(LiveTrip { reason, at_ns, undone_after_ns })));
        }
    }

    /// Waits without the setting until a period would have ended: queues drain, and no arm counts it.
    fn rest(&mut self, until_ns: u64) -> Result<(), PeriodEnd> {
        loop {
            let now_ns = self.clock.now_ns();
            if self.stop.load(Ordering::Relaxed) || now_ns >= until_ns {
                return Ok(());
            }
            self.clock.sleep_until(until_ns.min(now_ns + SAMPLE_INTERVAL.as_nanos() as u64));
            // Counts of this time belong to no arm.
            let sample = self.figures.guard_sample(self.guard.slow_limit_ns());
            sample.map_err(PeriodEnd::Failed)?;
        }
    }

    fn values(&self, from: Option<&F::Reading>, to: Option<&F::Reading>) -> Vec<Option<f64>> {
        let indexes = 0..self.figures.figures().len();
        let (Some(from), Some(to)) = (from, to) else { return indexes.map(|_| None).collect() };
        indexes.map(|index| self.figures.value(from, to, index)).collect()
    }
}
