//! The time before the first switch: placebo curve, time of the act, lag.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use model::live::{LiveBaseline, LivePlacebo, PlaceboPoint, WASHOUT_LAGS, WASHOUT_NS, placebo};

use super::{
    Clock, ConductError, ERRORS, Figures, Observer, SAMPLE_INTERVAL, Switch, index_of, p99_ns,
};

/// Time between two readings.
const SLICE: Duration = Duration::from_millis(500);

/// Longest wash-out: a longer lag cannot be told from an effect.
const WASHOUT_NS_MAX: u64 = 10_000_000_000;

/// Figures of the baseline.
pub(super) struct Baseline {
    pub(super) record: LiveBaseline,
    pub(super) points: Vec<PlaceboPoint>,
    pub(super) washout_ns: u64,
    pub(super) requests_per_s: f64,
    /// Share of requests that failed.
    pub(super) error_share: f64,
    /// p99 of a request's latency.
    pub(super) p99_ns: Option<f64>,
}

/// Reads the service for a time without any switch, then switches on and off once to time the act.
///
/// - `washout`: given by the user.
///
/// Errors: a signal ended it; the figures or the settings failed.
pub(super) fn measure<F: Figures>(
    clock: &mut dyn Clock,
    figures: &mut F,
    switch: &mut dyn Switch,
    observer: &mut dyn Observer,
    (time, washout): (Duration, Option<Duration>),
    stop: &AtomicBool,
) -> Result<Baseline, ConductError> {
    let (slice_ns, time_ns) = (SLICE.as_nanos() as u64, time.as_nanos() as u64);
    let begun_ns = clock.now_ns();
    let mut readings = vec![figures.read().map_err(ConductError::Figures)?];
    for slice in 1..=time_ns / slice_ns {
        wait(clock, begun_ns + slice * slice_ns, stop)?;
        readings.push(figures.read().map_err(ConductError::Figures)?);
        observer.baseline(slice * slice_ns, time_ns);
    }
    let read_ns = clock.now_ns() - begun_ns;
    let judged = figures.figures().to_vec();
    let (first, last) = (&readings[0], &readings[readings.len() - 1]);
    let whole = |index: usize| figures.value(first, last, index);
    let values: Vec<Option<f64>> = (0..judged.len()).map(whole).collect();
    let request_count = figures.request_count(first, last);
    let p99_ns = p99_ns(&judged, &values);
    let error_share = index_of(&judged, ERRORS).and_then(whole).unwrap_or(0.0);

    let act_ns = time_act(clock, switch)?;
    let lag_ns = lag_ns(p99_ns);
    let washout_ns = washout_ns(p99_ns, washout);
    let points = placebo(slice_ns, readings.len() - 1, &judged, washout_ns, &|index, slices| {
        figures.value(readings.get(slices.start)?, readings.get(slices.end)?, index)
    });
    let curve = points
        .iter()
        .map(|point| LivePlacebo { period_ns: point.period_ns, spread: point.spread.clone() });
    let record =
        LiveBaseline { time_ns, request_count, values, placebo: curve.collect(), act_ns, lag_ns };
    let requests_per_s = request_count as f64 / (read_ns.max(1) as f64 / 1e9);
    Ok(Baseline { record, points, washout_ns, requests_per_s, error_share, p99_ns })
}

/// Time that a request is under way.
fn lag_ns(p99_ns: Option<f64>) -> Option<u64> {
    p99_ns.filter(|lag| lag.is_finite() && *lag > 0.0).map(|lag| lag as u64)
}

/// - `p99_ns`: of a request without the setting.
/// - `given`: by the user.
pub(super) fn washout_ns(p99_ns: Option<f64>, given: Option<Duration>) -> u64 {
    let of_lag = WASHOUT_NS.max(lag_ns(p99_ns).unwrap_or(0).saturating_mul(WASHOUT_LAGS));
    given.map_or(of_lag.min(WASHOUT_NS_MAX), |given| given.as_nanos() as u64)
}

/// Switches on and off once; returns the longer of both times.
fn time_act(clock: &mut dyn Clock, switch: &mut dyn Switch) -> Result<u64, ConductError> {
    let mut longest_ns = 0;
    for on in [true, false] {
        let begun_ns = clock.now_ns();
        switch.turn(on).map_err(ConductError::Switch)?;
        longest_ns = longest_ns.max(clock.now_ns() - begun_ns);
    }
    Ok(longest_ns)
}

/// Sleeps until a time. Errors: a signal came.
fn wait(clock: &mut dyn Clock, until_ns: u64, stop: &AtomicBool) -> Result<(), ConductError> {
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(ConductError::Interrupted);
        }
        let now_ns = clock.now_ns();
        if now_ns >= until_ns {
            return Ok(());
        }
        clock.sleep_until(until_ns.min(now_ns + SAMPLE_INTERVAL.as_nanos() as u64));
    }
}
