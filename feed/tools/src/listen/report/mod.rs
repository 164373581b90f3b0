//! Totals of a receiver, as text, JSON and Prometheus metrics.

mod cells;
mod live;
mod page;
mod prometheus;
mod summary;

use std::net::SocketAddrV4;

use hdrhistogram::Histogram;
use io::multicast::Group;
use model::{QUANTILES, SAMPLES_BEYOND_QUANTILE, latency_histogram, quantile_of_arrived};

pub(crate) use self::cells::{count, table, time};
use self::live::Live;
pub use self::live::LiveDocument;
pub use self::summary::ListenDocument;
use super::interval::{Counts, LineStats, ListenInterval};
use crate::arbiter::SequenceDomain;
use crate::books::BooksReport;
use crate::late::LateReport;
use crate::messages::domain_name;
use crate::quality::Quality;
use crate::relative_latency::RelativeLatency;

/// Smallest number of samples in an interval whose fastest is used to estimate clock error.
const WINDOW_SAMPLES: u64 = 100;
/// Resolution of a telegram's match time.
const MATCH_RESOLUTION_NS: i64 = 1_000;
const LINES: [&str; 2] = ["A", "B"];

/// Named quantiles and the maximum in nanoseconds, without those that lie among missing messages.
pub type Percentiles = Result<Vec<(&'static str, u64)>, Refused>;

/// Reason for not reporting percentiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("no sample")]
    NoSample,
    #[error(
        "percentiles refused: {missing} of {expected} messages are missing; they are infinitely late, and \
         every percentile lies among them"
    )]
    Loss { missing: u64, expected: u64 },
}

/// Results of one line.
#[derive(Debug, Clone)]
pub struct LineReport {
    /// `A` or `B`.
    pub name: &'static str,
    pub book: LineStats,
    pub kernel_to_app: Percentiles,
    /// Match to application, relative to the fastest message of all lines.
    pub match_to_app: Percentiles,
}

/// Totals since the start.
#[derive(Debug)]
pub struct ListenReport {
    groups: Vec<Group>,
    elapsed_ns: u64,
    counts: Counts,
    kernel_to_app: [Histogram<u64>; 2],
    match_to_app: [RelativeLatency; 3],
    /// Lowest and highest of the intervals' fastest match to application.
    fastest: Option<(i64, i64)>,
    notes: Vec<String>,
    /// Difference between the last two intervals.
    live: Live,
    /// Of a run that measures it, after its end.
    quality: Option<Box<Quality>>,
    /// Of a run that shows its books, after its end.
    books: Option<Box<BooksReport>>,
    /// Late datagrams, of a run that looks for them.
    pub late: Option<LateReport>,
    command: &'static str,
    /// Of a recording, which another host may have made.
    is_recording: bool,
}

impl ListenReport {
    /// An empty report.
    pub fn new(groups: &[Group]) -> Self {
        ListenReport {
            groups: groups.to_vec(),
            elapsed_ns: 0,
            counts: Counts::default(),
            kernel_to_app: [latency_histogram(), latency_histogram()],
            match_to_app: Default::default(),
            fastest: None,
            notes: Vec::new(),
            live: Live::default(),
            quality: None,
            books: None,
            late: None,
            command: "feed listen",
            is_recording: false,
        }
    }

    /// An empty report of a recording.
    ///
    /// - `lines`: destinations of its lines.
    pub fn recording(lines: &[SocketAddrV4]) -> Self {
        let groups: Vec<Group> = lines
            .iter()
            .map(|address: &SocketAddrV4| Group {
                address: *address,
                source: None,
                ifindex: 0,
                ifname: "a recording".into(),
            })
            .collect();
        ListenReport { command: "feed report", is_recording: true, ..ListenReport::new(&groups) }
    }

    /// Sets the destinations of a recording, which may be known only at its end.
    pub fn set_lines(&mut self, lines: &[SocketAddrV4]) {
        self.groups = ListenReport::recording(lines).groups;
    }

    /// Adds the last interval, with the quality of the run.
    pub fn end(&mut self, interval: &mut ListenInterval) {
        self.absorb(interval);
        self.quality = interval.quality.take();
        self.books = interval.books.take();
    }

    /// Adds an interval.
    pub fn absorb(&mut self, interval: &ListenInterval) {
        let offset = interval.match_to_app.iter().filter_map(RelativeLatency::smallest_ns).min();
        let samples = interval.match_to_app.iter().map(RelativeLatency::count).max().unwrap_or(0);
        if let Some(fastest) = offset.filter(|_| samples >= WINDOW_SAMPLES) {
            let (low, high) = self.fastest.unwrap_or((fastest, fastest));
            self.fastest = Some((low.min(fastest), high.max(fastest)));
        }
        for (sum, part) in self.kernel_to_app.iter_mut().zip(&interval.kernel_to_app) {
            // Cannot fail: both have the same bounds.
            let _ = sum.add(part);
        }
        for (sum, part) in self.match_to_app.iter_mut().zip(&interval.match_to_app) {
            sum.merge(part);
        }
        self.live = self.live_since_last(interval);
        self.notes.extend(interval.notes.iter().cloned());
        self.counts = interval.counts.clone();
        self.elapsed_ns = interval.elapsed_ns;
    }

    /// The fastest message of all lines.
    fn offset_ns(&self) -> Option<i64> {
        self.match_to_app.iter().filter_map(RelativeLatency::smallest_ns).min()
    }

    /// Upper bound on the drift between the two clocks during the run, nanoseconds: the spread of
    /// the fastest messages of the seconds. `None` before a second with enough messages.
    pub fn clock_error_ns(&self) -> Option<u64> {
        self.fastest.map(|(low, high)| (high - low + MATCH_RESOLUTION_NS).max(0) as u64)
    }

    /// Largest error of this host's clock; `None` if it is not synchronised, and for a recording, whose stamps
    /// are of the clock of the host that made it.
    fn host_error_ns(&self) -> Option<u64> {
        if self.is_recording { None } else { sys::clock::host_error_ns() }
    }

    /// Adds a note.
    pub fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// Delivered messages.
    pub fn delivered(&self) -> u64 {
        self.counts.totals.delivered
    }

    /// All counts.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Messages that no line carried.
    pub fn missing(&self) -> u64 {
        self.counts.totals.missing + self.counts.missing_at_end
    }

    /// True if no line received a datagram: missing messages are then not known.
    pub fn is_silent(&self) -> bool {
        self.counts.lines.iter().all(LineStats::is_silent)
    }

    /// Messages that no line carried; `None` if nothing arrived.
    pub fn known_missing(&self) -> Option<u64> {
        (!self.is_silent()).then(|| self.missing())
    }

    /// Lines with their percentiles, which are refused for a line with loss.
    pub fn lines(&self) -> Vec<LineReport> {
        self.counts
            .lines
            .iter()
            .enumerate()
            .map(|(at, book): (usize, &LineStats)| {
                let lost = (book.missing(), book.expected);
                LineReport {
                    name: LINES[at],
                    book: *book,
                    kernel_to_app: percentiles(self.kernel_to_app[at].len(), lost, |q| {
                        self.kernel_to_app[at].value_at_quantile(q)
                    }),
                    match_to_app: self.matched(at, lost),
                }
            })
            .collect()
    }

    /// Match to application of delivered messages; refused if any are missing.
    pub fn delivered_latency(&self) -> Percentiles {
        let missing = self.missing();
        self.matched(2, (missing, self.delivered() + missing))
    }

    fn matched(&self, at: usize, lost: (u64, u64)) -> Percentiles {
        let offset = self.offset_ns().unwrap_or(0);
        let excess = &self.match_to_app[at];
        percentiles(excess.count(), lost, |q| excess.quantile_ns(q, offset))
    }

    fn name(&self, domain: SequenceDomain) -> String {
        let session = self.counts.sessions.iter().find(|(known, _)| *known == domain);
        session.map_or_else(|| domain_name(domain), |(_, name)| name.clone())
    }

    /// True if all counts add up: per line received + missing = expected, per domain delivered +
    /// missing = expected, and every received message has an outcome.
    pub fn balances(&self) -> bool {
        self.counts.is_balanced && self.counts.lines.iter().all(LineStats::balances)
    }
}

/// Quantiles of all expected messages, and the maximum. A missing message is infinitely late: a quantile among
/// the missing ones is omitted, and so is one without enough samples beyond it.
///
/// - `lost`: missing messages and those expected.
fn percentiles(count: u64, lost: (u64, u64), value: impl Fn(f64) -> u64) -> Percentiles {
    let (missing, expected) = lost;
    if count == 0 {
        return Err(Refused::NoSample);
    }
    let lost_share = missing as f64 / expected.max(1) as f64;
    let all = count as f64 / (1.0 - lost_share);
    let known = QUANTILES
        .iter()
        .filter(|(quantile, _)| all * (1.0 - quantile) + 1e-6 >= SAMPLES_BEYOND_QUANTILE);
    let known = known.chain([&(1.0, "max")]).filter_map(|(quantile, suffix)| {
        Some((*suffix, value(quantile_of_arrived(*quantile, lost_share)?)))
    });
    let known: Vec<_> = known.collect();
    if known.is_empty() && missing > 0 {
        Err(Refused::Loss { missing, expected })
    } else {
        Ok(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: u64, lost: (u64, u64)) -> Vec<&'static str> {
        let known = percentiles(count, lost, |quantile| (quantile * 1e6) as u64);
        known.expect("some are known").into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn one_lost_message_of_a_million_hides_the_maximum_alone() {
        assert_eq!(names(999_999, (1, 1_000_000)), ["p50", "p90", "p99", "p999"]);
        assert_eq!(names(1_000_000, (0, 1_000_000)), ["p50", "p90", "p99", "p999", "max"]);
    }

    #[test]
    fn missing_messages_are_the_slowest_of_all() {
        // A tenth is missing: the median of all is the quantile 0.5 / 0.9 of those that arrived.
        let known = percentiles(900, (100, 1000), |quantile| (quantile * 1e6) as u64);
        assert_eq!(known, Ok(vec![("p50", 555_555), ("p90", 1_000_000)]));
        let refused = percentiles(400, (600, 1000), |_| 0).expect_err("the median is missing");
        assert!(refused.to_string().contains("600 of 1000"), "{refused}");
        assert_eq!(percentiles(0, (5, 5), |_| 0), Err(Refused::NoSample));
    }
}
