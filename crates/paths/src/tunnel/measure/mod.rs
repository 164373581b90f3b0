//! `tunnel measure`: what rate a forwarder takes at each frame size, and how long frames are on
//! their way below it.

mod report;
pub mod search;

use std::time::Duration;

use model::Arm;

use super::lab::Bench;
use crate::path::PathError;

pub use report::{LatencyReport, SizeReport, json, text};

use search::{Found, Search, SearchSpec, Trial};

/// Frame sizes of RFC 2544 section 9.1 for Ethernet, in bytes with the frame check sequence.
pub const SIZES_BYTES: [usize; 7] = [64, 128, 256, 512, 1024, 1280, 1518];

/// What is measured, and how.
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

/// What one trial counted, beside what the search looks at.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// For the search.
    pub trial: Trial,
    /// Frames that arrived, second ones included.
    pub received_count: u64,
    /// Frames that came after one with a higher number (RFC 4737 section 3.3).
    pub reordered_count: u64,
    /// Frames that came a second time.
    pub duplicated_count: u64,
    /// How long they were on their way.
    pub delays: io::DelayCounts,
}

/// Measures size after size; `each` hears of every size as it is done.
///
/// - `wants_end`: asked before each trial; the sizes that are done are returned then.
///
/// Errors: the forwarder cannot be had here, a size does not fit, or a part of the lab fails.
pub fn measure(
    spec: &MeasureSpec,
    wants_end: &(dyn Fn() -> bool + Sync),
    each: &mut dyn FnMut(&SizeReport),
) -> Result<Vec<SizeReport>, PathError> {
    let bench = Bench::open(&spec.arm)?;
    let mut reports = Vec::new();
    for size_bytes in &spec.sizes_bytes {
        let found = bench.with_forwarder(*size_bytes, spec.trial, |trial| {
            of_size(spec, *size_bytes, wants_end, trial)
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

/// All trials of a size; `None` when it was ended early.
///
/// - `trial`: runs one at a rate (0 for as many as can be); the second argument asks for single
///   frames rather than small batches.
fn of_size(
    spec: &MeasureSpec,
    size_bytes: usize,
    wants_end: &(dyn Fn() -> bool + Sync),
    trial: &mut dyn FnMut(f64, bool) -> Result<Observed, String>,
) -> Result<Option<SizeReport>, String> {
    /// Why a search stopped.
    enum Stop {
        Asked,
        Failed(String),
    }
    let mut reordered = Reordering::default();
    // Twice, as the first one is somewhat slower; the better is what the source can do.
    let floods = [trial(0.0, false)?, trial(0.0, false)?];
    let flood_pps = floods.iter().map(|o| o.trial.offered_pps).fold(0.0, f64::max);
    let guess_pps = floods.iter().map(|o| o.trial.offered_pps * (1.0 - o.trial.loss()));
    let guess_pps = guess_pps.fold(0.0, f64::max);
    let mut search = Search::new(spec.search, |rate_pps| {
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
        latencies.push(LatencyReport::of(*share, &observed));
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
