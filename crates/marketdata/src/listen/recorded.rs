//! A recording in place of receivers: the same counts, with capture times for arrival times.

use std::io::Read;
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, Ordering};

use super::core::{Core, CorePlan};
use super::interval::Interval;
use crate::arbiter::{Limits, Line};
use crate::capture::{CaptureError, Datagram, Kind, Reader};
use crate::late::Now;
use crate::messages::Protocol;

/// Longest session time of an interval: the spread of their fastest messages bounds the clocks' drift.
const INTERVAL_NS: u64 = 1_000_000_000;

/// Latest time of a recording, in the year 2116; stamps beyond, of damaged files, count as this one, so that
/// differences do not overflow.
const STAMP_NS_MAX: u64 = 1 << 62;

/// How a recording is read.
#[derive(Debug, Clone)]
pub struct RecordedPlan {
    /// Destinations of lines A and B; empty: the first one found is line A, the second line B.
    pub from: Vec<SocketAddrV4>,
    pub limits: Limits,
    /// Capacity for order books.
    pub books_max: u32,
}

/// Error of a recording.
#[derive(Debug, thiserror::Error)]
pub enum RecordedError {
    #[error(transparent)]
    Capture(#[from] CaptureError),
    #[error("a file of telegrams has no times; give a capture (pcap or pcapng)")]
    NoTimes,
    #[error("no UDP datagram{to}; `wirepath feed decode` shows the file's content")]
    Nothing {
        /// ` to` and the destinations asked for, or empty.
        to: String,
    },
    #[error(
        "the capture has more than two destinations, among them {}; choose the lines with --from and --from-b",
        listed(found)
    )]
    Destinations { found: Vec<SocketAddrV4> },
}

fn listed(found: &[SocketAddrV4]) -> String {
    found.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Destinations of the lines, as found or as asked for.
struct Lines {
    known: Vec<SocketAddrV4>,
    are_fixed: bool,
}

impl Lines {
    /// Line of a datagram; `None` if it is of none.
    fn of(&mut self, to: Option<SocketAddrV4>) -> Result<Option<Line>, RecordedError> {
        let Some(to) = to else { return Ok(None) };
        let at = self.known.iter().position(|known| *known == to);
        let at = match at {
            Some(at) => at,
            None if self.are_fixed => return Ok(None),
            None => {
                self.known.push(to);
                if self.known.len() > 2 {
                    return Err(RecordedError::Destinations { found: self.known.clone() });
                }
                self.known.len() - 1
            }
        };
        Ok(Some(if at == 0 { Line::A } else { Line::B }))
    }
}

/// Reads a recording to its end or until `stop` is set, and passes each second of it to `each`; the last
/// interval has the quality. Returns the destinations of the lines.
///
/// Memory does not depend on the length of the recording.
pub fn read(
    reader: &mut Reader<impl Read>,
    plan: &RecordedPlan,
    stop: &AtomicBool,
    mut each: impl FnMut(&mut Interval),
) -> Result<Vec<SocketAddrV4>, RecordedError> {
    if reader.kind() == Kind::Telegrams {
        return Err(RecordedError::NoTimes);
    }
    let mut lines = Lines { known: plan.from.clone(), are_fixed: !plan.from.is_empty() };
    let mut run: Option<Run> = None;
    while !stop.load(Ordering::Relaxed) {
        let datagram = match reader.next_datagram() {
            Ok(Some(datagram)) => datagram,
            Ok(None) => break,
            // Packets of an unsupported link type in between.
            Err(CaptureError::Link { .. }) => continue,
            Err(error) => return Err(error.into()),
        };
        let Some(line) = lines.of(datagram.destination)? else { continue };
        let run = run.get_or_insert_with(|| Run::new(plan, &datagram));
        run.take(line, &datagram, &mut each);
    }
    let Some(run) = run else {
        let to =
            if lines.are_fixed { format!(" to {}", listed(&lines.known)) } else { String::new() };
        return Err(RecordedError::Nothing { to });
    };
    run.end(lines.known.len(), &mut each);
    Ok(lines.known)
}

struct Run {
    core: Core,
    begun_ns: u64,
    /// Time of the recording: that of the latest datagram, as files may go back a little.
    now_ns: u64,
    next_ns: u64,
}

impl Run {
    fn new(plan: &RecordedPlan, first: &Datagram<'_>) -> Self {
        let protocol = Protocol::of(first.payload);
        let core = Core::new(&CorePlan {
            protocol,
            limits: plan.limits,
            line_count: 2,
            books_max: if protocol == Protocol::Mold { 1 } else { plan.books_max },
            digests: false,
            recovers: false,
            measures_quality: true,
            late: None,
        });
        let begun_ns = first.stamp_ns.unwrap_or(0).min(STAMP_NS_MAX);
        Run { core, begun_ns, now_ns: begun_ns, next_ns: begun_ns.saturating_add(INTERVAL_NS) }
    }

    fn now(&self) -> Now {
        Now { monotonic_ns: self.now_ns, real_ns: self.now_ns }
    }

    fn take(&mut self, line: Line, datagram: &Datagram<'_>, each: &mut impl FnMut(&mut Interval)) {
        let stamp_ns = datagram.stamp_ns.unwrap_or(self.now_ns).min(STAMP_NS_MAX);
        self.now_ns = self.now_ns.max(stamp_ns);
        self.core.tick(self.now());
        if self.now_ns >= self.next_ns {
            self.close_interval(each);
            self.next_ns = self.now_ns.saturating_add(INTERVAL_NS);
        }
        let now = Now { monotonic_ns: self.now_ns, real_ns: stamp_ns };
        self.core.datagram(line, datagram.payload, None, now);
    }

    fn close_interval(&mut self, each: &mut impl FnMut(&mut Interval)) {
        let counts = self.core.counts(|_, line| line, None);
        let interval = &mut self.core.interval;
        interval.elapsed_ns = self.now_ns - self.begun_ns;
        interval.counts = counts;
        each(interval);
        interval.clear();
    }

    fn end(mut self, line_count: usize, each: &mut impl FnMut(&mut Interval)) {
        self.core.close(self.now());
        self.core.lines.truncate(line_count);
        self.close_interval(each);
    }
}
