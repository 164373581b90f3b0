//! A recording in place of receivers: the same counts, with capture times for arrival times.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering};

use super::core::{Core, CorePlan};
use super::interval::ListenInterval;
use crate::arbiter::{ArbiterLimits, FeedLine};
use crate::books::{BooksCapacity, BooksShown};
use crate::capture::{CaptureError, CaptureKind, Datagram, Reader};
use crate::late::Now;
use crate::protocol::{CaptureFlows, Protocol};

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
    pub limits: ArbiterLimits,
    pub books: BooksCapacity,
    /// Books of the summary.
    pub books_shown: Option<BooksShown>,
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
    /// There are datagrams, and none is whole and of a known protocol.
    #[error("nothing to report on: {text}")]
    Foreign { text: String },
    #[error(
        "the capture has more than two destinations, among them {}; choose the lines with --from and --from-b",
        listed(found)
    )]
    Destinations { found: Vec<SocketAddrV4> },
    #[error(
        "{} and {} carry different protocols, so they are not two lines of one feed; choose one with --from",
        found[0],
        found[1]
    )]
    Protocols { found: [SocketAddrV4; 2] },
}

fn listed(found: &[SocketAddrV4]) -> String {
    found.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// A recording that was read.
#[derive(Debug)]
pub struct Recording {
    /// Destinations of the lines.
    pub lines: Vec<SocketAddrV4>,
    /// Reason that the rest of the file cannot be read.
    pub damage: Option<CaptureError>,
    /// Description of the datagrams of another protocol, if any.
    pub foreign: Option<String>,
}

/// Destinations of the lines, as found or as asked for.
struct Lines {
    known: Vec<SocketAddrV4>,
    are_fixed: bool,
    protocol: Option<Protocol>,
}

impl Lines {
    fn place(&self, to: SocketAddrV4) -> Option<FeedLine> {
        let at = self.known.iter().position(|known| *known == to)?;
        Some(if at == 0 { FeedLine::A } else { FeedLine::B })
    }

    /// Line of a datagram of this protocol; the first two destinations become lines A and B. `None` if it is
    /// of none.
    fn find(
        &mut self,
        to: SocketAddrV4,
        protocol: Protocol,
    ) -> Result<Option<FeedLine>, RecordedError> {
        if !self.are_fixed && self.place(to).is_none() {
            self.known.push(to);
            if self.known.len() > 2 {
                return Err(RecordedError::Destinations { found: self.known.clone() });
            }
        }
        let place = self.place(to);
        if place.is_some() && *self.protocol.get_or_insert(protocol) != protocol {
            let found = [self.known[0], self.known.get(1).copied().unwrap_or(to)];
            return Err(RecordedError::Protocols { found });
        }
        Ok(place)
    }
}

/// Reads a recording to its end, to damage or until `stop` is set, and passes each second of it to `each`; the last
/// interval has the quality.
///
/// Memory does not depend on the length of the recording. Destinations without a whole datagram of a known protocol
/// are left out.
pub fn read(
    reader: &mut Reader<impl Read>,
    plan: &RecordedPlan,
    stop: &AtomicBool,
    mut each: impl FnMut(&mut ListenInterval),
) -> Result<Recording, RecordedError> {
    if reader.kind() == CaptureKind::Telegrams {
        return Err(RecordedError::NoTimes);
    }
    let mut lines =
        Lines { known: plan.from.clone(), are_fixed: !plan.from.is_empty(), protocol: None };
    let mut flows = CaptureFlows::default();
    let mut run: Option<Run> = None;
    let mut begun = [false; 2];
    let mut damage = None;
    while !stop.load(Ordering::Relaxed) {
        let datagram = match reader.next_datagram() {
            Ok(Some(datagram)) => datagram,
            Ok(None) => break,
            // Packets of an unsupported link type in between.
            Err(CaptureError::Link { .. }) => continue,
            Err(error) => {
                damage = Some(error);
                break;
            }
        };
        let Some(to) = datagram.destination else { continue };
        if lines.are_fixed && lines.place(to).is_none() {
            continue;
        }
        let known = lines.place(to).filter(|line| begun[*line as usize]);
        let line = match known {
            Some(line) => line,
            None => {
                flows.recognise(Some(to), datagram.payload);
                let Some(protocol) = flows.proved(Some(to)) else { continue };
                let Some(line) = lines.find(to, protocol)? else { continue };
                line
            }
        };
        let run = match (&mut run, lines.protocol) {
            (Some(run), _) => run,
            (None, Some(protocol)) => run.insert(Run::new(plan, protocol, &datagram)),
            (None, None) => continue,
        };
        if !std::mem::replace(&mut begun[line as usize], true) {
            run.core.skip(line, flows.unproved_count(Some(to)));
        }
        run.take(line, &datagram, &mut each);
    }
    let Some(run) = run else {
        let to =
            if lines.are_fixed { format!(" to {}", listed(&lines.known)) } else { String::new() };
        return Err(match (damage, reader.counts().datagrams, flows.foreign_text()) {
            (Some(error), ..) => error.into(),
            (None, 1.., Some(text)) => RecordedError::Foreign { text },
            (None, 1.., None) if flows.has_hints() => RecordedError::Foreign {
                text: "no datagram is whole; `wirepath feed decode` shows what is wrong with each"
                    .into(),
            },
            (None, ..) => RecordedError::Nothing { to },
        });
    };
    run.end(lines.known.len(), &mut each);
    Ok(Recording { lines: lines.known, damage, foreign: flows.foreign_text() })
}

struct Run {
    core: Core,
    begun_ns: u64,
    /// Time of the recording: that of the latest datagram, as files may go back a little.
    now_ns: u64,
    next_ns: u64,
}

impl Run {
    fn new(plan: &RecordedPlan, protocol: Protocol, first: &Datagram<'_>) -> Self {
        let core = Core::new(&CorePlan {
            protocol: Some(protocol),
            limits: plan.limits,
            line_count: 2,
            books: plan.books,
            shown: plan.books_shown,
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

    fn take(
        &mut self,
        line: FeedLine,
        datagram: &Datagram<'_>,
        each: &mut impl FnMut(&mut ListenInterval),
    ) {
        let stamp_ns = datagram.stamp_ns.unwrap_or(self.now_ns).min(STAMP_NS_MAX);
        self.now_ns = self.now_ns.max(stamp_ns);
        self.core.tick(self.now());
        if self.now_ns >= self.next_ns {
            self.close_interval(each);
            self.next_ns = self.now_ns.saturating_add(INTERVAL_NS);
        }
        let now = Now { monotonic_ns: self.now_ns, real_ns: stamp_ns };
        let from = datagram.source.map_or(Ipv4Addr::UNSPECIFIED, |source| *source.ip());
        self.core.datagram(line, from, datagram.payload, None, now);
    }

    fn close_interval(&mut self, each: &mut impl FnMut(&mut ListenInterval)) {
        let counts = self.core.counts(|_, line| line, None);
        self.core.note_capacity();
        let interval = &mut self.core.interval;
        interval.elapsed_ns = self.now_ns - self.begun_ns;
        interval.counts = counts;
        each(interval);
        interval.clear();
    }

    fn end(mut self, line_count: usize, each: &mut impl FnMut(&mut ListenInterval)) {
        self.core.close(self.now());
        self.core.lines.truncate(line_count);
        self.close_interval(each);
    }
}
