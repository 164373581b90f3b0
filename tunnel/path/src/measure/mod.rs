//! `tunnel measure`: rate of a forwarder at each frame size, and delays below it.

mod report;
pub mod search;

use std::time::Duration;

use model::Arm;

use lab::RunCause;

use crate::bench::Bench;
use model::PathError;

pub use report::{LatencyReport, SizeReport, json, text};

use search::{Found, RateSearch, RateTrial, SearchSpec};

/// Frame sizes of RFC 2544 section 9.1 for Ethernet, in bytes with the frame check sequence.
pub const SIZES_BYTES: [usize; 7] = [64, 128, 256, 512, 1024, 1280, 1518];

/// Specification of a measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasureSpec {
    /// The forwarder: switches of the path, or the peer `kernel`.
    pub arm: Arm,
    /// Frame sizes in bytes, the frame check sequence's four counted.
    pub sizes_bytes: Vec<usize>,
    /// Sending part of a trial.
    pub trial: Duration,
    /// Loss that the partial drop rate allows, 0.0 to 1.0.
    pub partial_loss: f64,
    /// Shares of the rate without loss at which delays are measured, 0.0 to 1.0.
    pub latency_shares: Vec<f64>,
    /// How the search goes about it.
    pub search: SearchSpec,
}

/// Counts of one trial, in addition to those of the search.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// For the search.
    pub trial: RateTrial,
    /// Frames that arrived, second ones included.
    pub received_count: u64,
    /// Frames that came after one with a higher number (RFC 4737 section 3.3).
    pub reordered_count: u64,
    /// Frames that came a second time.
    pub duplicated_count: u64,
    /// How long they were on their way.
    pub delays: sys::bpf::DelayCounts,
}

/// Maximum number of trials in a row of which none is valid: on a busy machine a forwarder may lose its
/// CPU for one.
const INVALID_TRIALS_MAX: usize = 3;

impl Observed {
    /// Reason why the trial says nothing about the forwarder's rate; `None` if it is valid.
    fn invalid(&self) -> Option<String> {
        let sent = self.trial.sent_count;
        let arrived = self.received_count.saturating_sub(self.duplicated_count);
        match arrived {
            0 if sent > 0 => Some(format!("none of {sent} frames arrived at the sink")),
            n if n > sent => Some(format!("{n} frames arrived of {sent}: some of earlier trials")),
            _ => None,
        }
    }
}

/// Measures one size after another; `each` is called after each.
///
/// - `wants_end`: polled before each trial; if true, the finished sizes are returned.
///
/// Errors: the forwarder is not supported on this host, a size does not fit, a part of the lab
/// fails, or the forwarder forwards nothing.
pub fn measure(
    spec: &MeasureSpec,
    wants_end: &(dyn Fn() -> bool + Sync),
    each: &mut dyn FnMut(&SizeReport),
) -> Result<Vec<SizeReport>, PathError> {
    let bench = Bench::open(&spec.arm)?;
    let mut reports = Vec::new();
    for size_bytes in &spec.sizes_bytes {
        let found = bench.with_forwarder(*size_bytes, spec.trial, |trial| {
            size_report(spec, *size_bytes, wants_end, trial)
        });
        match found? {
            Some(report) => {
                each(&report);
                reports.push(report);
            }
            None => break,
        }
    }
    Ok(reports)
}

/// All trials of a size; `None` if ended early.
///
/// - `trial`: runs one at a rate (0 for as many as can be); the second argument asks for single
///   frames rather than small batches.
fn size_report(
    spec: &MeasureSpec,
    size_bytes: usize,
    wants_end: &(dyn Fn() -> bool + Sync),
    trial: &mut dyn FnMut(f64, bool) -> Result<Observed, RunCause>,
) -> Result<Option<SizeReport>, RunCause> {
    /// Why a search stopped.
    enum Stop {
        Asked,
        Failed(RunCause),
    }
    let mut trial = |rate_pps, is_alone| {
        let mut invalid_count = 0;
        loop {
            let observed = trial(rate_pps, is_alone)?;
            let Some(why) = observed.invalid() else { return Ok(observed) };
            invalid_count += 1;
            if invalid_count == INVALID_TRIALS_MAX {
                return Err(RunCause::from(format!(
                    "{why}, the last of {invalid_count} such trials"
                )));
            }
        }
    };
    let mut reordered = Reordering::default();
    // Twice, as the first one is somewhat slower; the better is what the source can do.
    let floods = [trial(0.0, false)?, trial(0.0, false)?];
    let flood_pps = floods.iter().map(|o| o.trial.offered_pps).fold(0.0, f64::max);
    let guess_pps = floods.iter().map(|o| o.trial.offered_pps * (1.0 - o.trial.loss()));
    let guess_pps = guess_pps.fold(0.0, f64::max);
    let mut search = RateSearch::new(spec.search, |rate_pps| {
        if wants_end() {
            return Err(Stop::Asked);
        }
        let observed = trial(rate_pps, false).map_err(Stop::Failed)?;
        reordered.add(&observed);
        Ok(observed.trial)
    });
    let rate_pps_max = flood_pps * 0.97;
    let found = search.find(0.0, rate_pps_max, guess_pps * 0.8).and_then(|ndr| {
        let from_pps = ndr.rate_pps.unwrap_or(guess_pps);
        Ok((ndr, search.find(spec.partial_loss, rate_pps_max, from_pps)?))
    });
    let books = search.books.clone();
    let (ndr, pdr): (Found, Found) = match found {
        Ok(found) => found,
        Err(Stop::Asked) => return Ok(None),
        Err(Stop::Failed(why)) => return Err(why),
    };
    let mut latencies = Vec::new();
    for share in &spec.latency_shares {
        let Some(ndr_pps) = ndr.rate_pps else { break };
        if wants_end() {
            return Ok(None);
        }
        let observed = trial(ndr_pps * share, true)?;
        reordered.add(&observed);
        latencies.push(LatencyReport::new(*share, &observed));
    }
    Ok(Some(SizeReport {
        size_bytes,
        flood_pps,
        ndr,
        pdr,
        latencies,
        received_count: reordered.received_count,
        reordered_count: reordered.reordered_count,
        duplicated_count: reordered.duplicated_count,
        books,
    }))
}

/// Order over all trials of a size.
#[derive(Debug, Default)]
struct Reordering {
    received_count: u64,
    reordered_count: u64,
    duplicated_count: u64,
}

impl Reordering {
    fn add(&mut self, observed: &Observed) {
        self.received_count += observed.received_count;
        self.reordered_count += observed.reordered_count;
        self.duplicated_count += observed.duplicated_count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A size measured with a forwarder that takes 100,000 frames a second.
    ///
    /// - `arrivals`: arrivals that the sink counts in the nth trial, of those that passed.
    fn measured(
        mut arrivals: impl FnMut(usize, u64) -> u64,
    ) -> Result<Option<SizeReport>, RunCause> {
        let spec = MeasureSpec {
            arm: Arm::baseline(),
            sizes_bytes: vec![64],
            trial: Duration::from_millis(100),
            partial_loss: 0.005,
            latency_shares: vec![0.5],
            search: SearchSpec::default(),
        };
        let mut nth = 0;
        size_report(&spec, 64, &|| false, &mut |rate_pps, _| {
            let offered_pps = if rate_pps > 0.0 { rate_pps } else { 1e6 };
            let sent_count = offered_pps as u64;
            let received_count = arrivals(nth, sent_count.min(100_000));
            nth += 1;
            let lost_count = sent_count.saturating_sub(received_count);
            let trial = RateTrial {
                asked_pps: rate_pps,
                offered_pps,
                sent_count,
                lost_count,
                disturbed_share: 0.0,
            };
            Ok(Observed {
                trial,
                received_count,
                reordered_count: 0,
                duplicated_count: 0,
                delays: sys::bpf::DelayCounts::default(),
            })
        })
    }

    #[test]
    fn forwarder_that_forwards_nothing_has_no_result() {
        for alive_trials in [0, 1, 5] {
            let found = measured(|nth, passed| if nth < alive_trials { passed } else { 0 });
            let why = found.expect_err("no result").to_string();
            assert!(why.contains("none of") && why.contains("frames arrived"), "{why}");
        }
    }

    #[test]
    fn trial_without_an_arrival_or_with_those_of_another_is_repeated() {
        let whole = measured(|_, passed| passed).expect("it is measured").expect("it ends");
        let odd = measured(|nth, passed| match nth % 3 {
            0 => 0,
            1 => passed + 2_000_000,
            _ => passed,
        });
        let odd = odd.expect("it is measured").expect("it ends");
        assert_eq!((odd.ndr, odd.pdr), (whole.ndr, whole.pdr));
        assert_eq!(odd.received_count, whole.received_count);
    }
}
