//! Conduct of a proof on a running service: baseline, forecast, periods in random order, guard, end.
//!
//! Clock, figures and switch are traits, so that tests drive it without any of the three.

mod baseline;
mod crossing;
mod guard;
mod period;
mod run;
mod service;
#[cfg(test)]
mod tests;

use std::time::Duration;

use model::live::{
    GuardRule, GuardRuleError, GuardSample, LiveFigure, LiveForecast, LiveOutcome,
    LivePeriodRecord, LiveRefusal,
};
use thiserror::Error;

pub use crossing::{CrossingOptions, cross};
pub use run::{LiveRun, RunOptions, conduct};
pub use service::{ServiceFigures, ServiceSwitch, SystemClock};

/// Time between two samples of the guard.
pub const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// Monotonic time.
pub trait Clock {
    fn now_ns(&self) -> u64;

    /// Sleeps until a time on this clock; returns at once if it has passed.
    fn sleep_until(&mut self, at_ns: u64);
}

/// Figures of the service.
pub trait Figures {
    /// Cumulative counts at one moment: any two give the figures of the time between.
    type Reading;

    /// Judged figures, the primary one first.
    fn figures(&self) -> &[LiveFigure];

    fn read(&mut self) -> Result<Self::Reading, String>;

    /// Counts since the sample before.
    fn guard_sample(&mut self, slow_limit_ns: Option<u64>) -> Result<GuardSample, String>;

    /// Value of a judged figure between two readings.
    fn value(&self, from: &Self::Reading, to: &Self::Reading, figure: usize) -> Option<f64>;

    fn request_count(&self, from: &Self::Reading, to: &Self::Reading) -> u64;
}

/// The setting.
pub trait Switch {
    /// Errors: it could not be switched, or another process changed it since. The run ends then.
    fn turn(&mut self, on: bool) -> Result<(), String>;
}

/// Observer of a run, for its progress.
pub trait Observer {
    /// Called each slice of the baseline.
    fn baseline(&mut self, done_ns: u64, time_ns: u64);

    /// The baseline is over.
    ///
    /// - `time_ns`: of the whole run from here on.
    fn forecast(&mut self, forecast: &LiveForecast, time_ns: u64);

    /// Called at each sample of a period.
    fn progress(&mut self, elapsed_ns: u64, pairs: u32);

    /// The guard tripped.
    fn tripped(&mut self, period: &LivePeriodRecord);

    /// A period has ended.
    fn period(&mut self, period: &LivePeriodRecord, outcome: &dyn Fn() -> LiveOutcome);
}

/// Reason without a result. But for [`ConductError::Period`], the settings are as they were.
#[derive(Debug, Error)]
pub enum ConductError {
    #[error("{0}; nothing was switched")]
    Refused(#[from] LiveRefusal),
    #[error(transparent)]
    Guard(#[from] GuardRuleError),
    #[error("interrupted before there was a result")]
    Interrupted,
    #[error("a period did not end: {0}")]
    Period(String),
    #[error("the figures of the service cannot be read: {0}")]
    Figures(String),
    #[error("the settings cannot be switched: {0}")]
    Switch(String),
}

/// Name of the figure of a request's latency at its 99th percentile.
const P99: &str = "p99";
/// Name of the figure of failed requests, per request.
const ERRORS: &str = "errors";

/// Index of a figure.
fn index_of(figures: &[LiveFigure], name: &str) -> Option<usize> {
    figures.iter().position(|figure| figure.name == name)
}

/// Latency at the 99th percentile in nanoseconds, by the values of all figures.
fn p99_ns(figures: &[LiveFigure], values: &[Option<f64>]) -> Option<f64> {
    let index = index_of(figures, P99)?;
    let factor = match figures[index].unit.as_str() {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    values[index].map(|value| value * factor)
}

/// Checks the rules against the figures, before time is spent on the baseline.
pub fn check_rules(rules: &[GuardRule], figures: &[LiveFigure]) -> Result<(), GuardRuleError> {
    rules.iter().try_for_each(|rule| rule.check(figures, 0.0))
}
