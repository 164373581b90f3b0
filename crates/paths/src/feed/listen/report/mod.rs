//! What a receiver saw, added up, and said as text, JSON or for Prometheus.

mod live;
mod prometheus;
mod summary;

use hdrhistogram::Histogram;
use io::multicast::Group;
use model::{QUANTILES, SAMPLES_BEYOND_QUANTILE, latency_histogram};

use self::live::Live;
use super::interval::{Counts, Interval, LineBook};
use crate::feed::arbiter::Domain;
use crate::feed::excess::Excess;
use crate::feed::messages::domain_name;

/// Samples in an interval from which on its fastest says something about the clocks.
const WINDOW_SAMPLES: u64 = 100;
/// Resolution of a telegram's match time.
const MATCH_RESOLUTION_NS: i64 = 1_000;
const LINES: [&str; 2] = ["A", "B"];

/// Quantiles in nanoseconds with their names and the maximum, or why there are none.
pub type Percentiles = Result<Vec<(&'static str, u64)>, String>;

/// One line, ready to be shown.
#[derive(Debug, Clone)]
pub struct LineReport {
    /// `A` or `B`.
    pub name: &'static str,
    /// Its counts.
    pub book: LineBook,
    /// Kernel to application.
    pub kernel_to_app: Percentiles,
    /// Match to application, beyond the fastest message of all lines.
    pub match_to_app: Percentiles,
}

/// Everything since the begin.
#[derive(Debug)]
pub struct Report {
    groups: Vec<Group>,
    elapsed_ns: u64,
    counts: Counts,
    kernel_to_app: [Histogram<u64>; 2],
    match_to_app: [Excess; 3],
    /// Fastest match to application of any interval, and of the slowest such interval.
    fastest: Option<(i64, i64)>,
    notes: Vec<String>,
    /// The last interval: what it is beyond the one before.
    live: Live,
}

impl Report {
    /// Nothing yet.
    pub fn new(groups: &[Group]) -> Self {
        Report {
            groups: groups.to_vec(),
            elapsed_ns: 0,
            counts: Counts::default(),
            kernel_to_app: [latency_histogram(), latency_histogram()],
            match_to_app: Default::default(),
            fastest: None,
            notes: Vec::new(),
            live: Live::default(),
        }
    }

    /// Adds an interval.
    pub fn absorb(&mut self, interval: &Interval) {
        let offset = interval.match_to_app.iter().filter_map(Excess::smallest_ns).min();
        let samples = interval.match_to_app.iter().map(Excess::count).max().unwrap_or(0);
        if let Some(fastest) = offset.filter(|_| samples >= WINDOW_SAMPLES) {
            let (low, high) = self.fastest.unwrap_or((fastest, fastest));
            self.fastest = Some((low.min(fastest), high.max(fastest)));
        }
        for (sum, part) in self.kernel_to_app.iter_mut().zip(&interval.kernel_to_app) {
            // Both have the same bounds.
            let _ = sum.add(part);
        }
        for (sum, part) in self.match_to_app.iter_mut().zip(&interval.match_to_app) {
            sum.merge(part);
        }
        self.live = self.live_of(interval);
        self.notes.extend(interval.notes.iter().cloned());
        self.counts = interval.counts.clone();
        self.elapsed_ns = interval.elapsed_ns;
    }

    /// The fastest message of all lines.
    fn offset_ns(&self) -> Option<i64> {
        self.match_to_app.iter().filter_map(Excess::smallest_ns).min()
    }

    /// How far the offset of the two clocks can have moved during the run, nanoseconds: the
    /// fastest messages of the seconds differ by so much, at most because of the clocks. `None`
    /// before there are two seconds with enough messages.
    pub fn clock_error_ns(&self) -> Option<u64> {
        self.fastest.map(|(low, high)| (high - low + MATCH_RESOLUTION_NS).max(0) as u64)
    }

    /// Delivered messages.
    pub fn delivered(&self) -> u64 {
        self.counts.totals.delivered
    }

    /// All counts.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Messages that no line brought.
    pub fn missing(&self) -> u64 {
        self.counts.totals.missing + self.counts.missing_at_end
    }

    /// Lines with their percentiles; those of a line with loss are refused.
    pub fn lines(&self) -> Vec<LineReport> {
        let line = |(at, book): (usize, &LineBook)| {
            let lost = (book.missing(), book.expected);
            LineReport {
                name: LINES[at],
                book: *book,
                kernel_to_app: percentiles(self.kernel_to_app[at].len(), lost, |q| {
                    self.kernel_to_app[at].value_at_quantile(q)
                }),
                match_to_app: self.matched(at, lost),
            }
        };
        self.counts.lines.iter().enumerate().map(line).collect()
    }

    /// Match to application of what was delivered; refused when something is missing.
    pub fn delivered_latency(&self) -> Percentiles {
        let missing = self.missing();
        self.matched(2, (missing, self.delivered() + missing))
    }

    fn matched(&self, at: usize, lost: (u64, u64)) -> Percentiles {
        let offset = self.offset_ns().unwrap_or(0);
        let excess = &self.match_to_app[at];
        percentiles(excess.count(), lost, |q| excess.quantile_ns(q, offset))
    }

    fn name(&self, domain: Domain) -> String {
        let session = self.counts.sessions.iter().find(|(known, _)| *known == domain);
        session.map_or_else(|| domain_name(domain), |(_, name)| name.clone())
    }

    /// Whether all books add up: per line brought + missing = expected, per domain delivered +
    /// missing = expected, and all that was received is accounted for.
    pub fn balances(&self) -> bool {
        self.counts.is_balanced && self.counts.lines.iter().all(LineBook::balances)
    }
}

/// Quantiles and the maximum. None with loss, for what was lost lies beyond every percentile;
/// none without enough samples behind it.
fn percentiles(count: u64, lost: (u64, u64), value: impl Fn(f64) -> u64) -> Percentiles {
    let (missing, expected) = lost;
    if missing > 0 {
        return Err(format!(
            "percentiles refused: {missing} of {expected} messages missing, and a missing \
             message's latency lies beyond every percentile"
        ));
    }
    if count == 0 {
        return Err("no sample".into());
    }
    let enough = |quantile: f64| count as f64 * (1.0 - quantile) + 1e-6 >= SAMPLES_BEYOND_QUANTILE;
    let known = QUANTILES.iter().filter(|(quantile, _)| enough(*quantile));
    let known = known.map(|(quantile, suffix)| (*suffix, value(*quantile)));
    Ok(known.chain([("max", value(1.0))]).collect())
}

/// A time with three digits.
fn time(ns: u64) -> String {
    let ns = ns as f64;
    match ns {
        ns if ns >= 1e9 => format!("{:.2} s", ns / 1e9),
        ns if ns >= 1e6 => format!("{:.2} ms", ns / 1e6),
        ns => format!("{:.2} µs", ns / 1e3),
    }
}
