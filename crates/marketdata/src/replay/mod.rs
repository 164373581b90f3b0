//! Sending a feed: a capture with its own timing, or a synthetic session, open loop.
//!
//! Every datagram has a due time that does not depend on earlier sends: a sender that stalls shows
//! as lag, not as a slower feed.

mod destination;
mod error;
mod faults;
mod ledger;
mod report;
mod serve;
mod source;
mod stamps;
mod timing;

use std::io::{Error, ErrorKind};
use std::net::{SocketAddrV4, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use hdrhistogram::Histogram;
use model::latency_histogram;
use sys::thread::start;
use sys::{affinity, clock};

use self::destination::is_fatal;
use self::faults::Dice;
use self::ledger::{LineLedger, Number, UnionLedger};
use self::serve::{History, serve};
use self::stamps::{Stamp, StampWriter};
use self::timing::Timing;
use super::arbiter::Domain;
use super::capture;
use super::messages::{self, Digest, Protocol};
use super::schedule::{Schedule, wait_until};

pub use self::destination::check_destination;
pub use self::error::ReplayError;
pub use self::faults::Faults;
pub use self::ledger::LineCounts;
pub use self::report::Document;
pub use self::serve::Served;
pub use self::source::Source;

const LINES: [&str; 2] = ["A", "B"];
/// Time between repetitions of the end of a session.
const END_GAP_NS: u64 = 200_000_000;

/// Pace of a replay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// As captured, times a speed factor.
    Own(f64),
    /// As fast as possible.
    Max,
    /// Messages per second.
    Rate(Schedule),
}

/// Configuration of a replay.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Destinations of line A and, if any, line B.
    pub to: Vec<SocketAddrV4>,
    /// Filter on destinations in the capture; the second is replayed as line B. Empty: all datagrams
    /// on all lines.
    pub from: Vec<SocketAddrV4>,
    pub ifindex: u32,
    pub ifname: String,
    /// Time to live of datagrams to groups.
    pub ttl: u8,
    pub pace: Pace,
    pub faults: Faults,
    /// Session time to replay.
    pub duration: Option<Duration>,
    /// Number of datagrams of the source to replay.
    pub count: Option<u64>,
    /// CPU to run on.
    pub pin: Option<usize>,
    /// Output file for send times.
    pub stamps: Option<PathBuf>,
    /// Address that answers requests for messages of MoldUDP64, until the replay is stopped.
    pub serve: Option<SocketAddrV4>,
}

/// Result of a replay.
#[derive(Debug, Clone)]
pub struct Report {
    /// First to last datagram.
    pub elapsed_ns: u64,
    /// Datagrams of the source.
    pub datagrams: u64,
    /// Messages of the source.
    pub messages: u64,
    /// Malformed messages of the source.
    pub malformed: u64,
    /// Destination and counts of each line.
    pub lines: Vec<(SocketAddrV4, LineCounts)>,
    /// Union of all lines; `None` for two lines of a capture, which may have differed already.
    pub union: Option<Union>,
    /// Actual minus intended send time; empty without a schedule.
    pub lag: Histogram<u64>,
    /// Datagrams captured earlier than their predecessor in the file; sent together with it.
    pub backwards: u64,
    /// Counts of the capture.
    pub capture: Option<capture::Counts>,
    /// First failure to send.
    pub failure: Option<String>,
    /// Seed of the faults.
    pub fault_seed: u64,
    /// The user ended the replay.
    pub was_stopped: bool,
    /// Requests for messages, if they were served.
    pub served: Option<Served>,
}

/// Union of the messages of all lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Union {
    /// Messages on at least one line.
    pub carried: u64,
    pub lost: u64,
    /// Lost messages without a later message of their domain, which a receiver cannot detect.
    pub lost_at_end: u64,
    /// Digest per domain of the messages on at least one line.
    pub digests: Vec<(Domain, Digest)>,
}

/// One line.
#[derive(Debug)]
struct Line {
    name: &'static str,
    to: SocketAddrV4,
    socket: UdpSocket,
    ledger: LineLedger,
    /// A delayed datagram: number, due time, whether it is duplicated.
    held: Option<(u64, u64, bool)>,
    held_payload: Vec<u8>,
    held_messages: Vec<Number>,
}

impl Line {
    fn send(&self, payload: &[u8]) -> Result<usize, Error> {
        match self.socket.send(payload) {
            // ICMP error for an earlier datagram (port closed). This one was not sent yet.
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => self.socket.send(payload),
            sent => sent,
        }
    }
}

/// Start time of the run, by both clocks.
#[derive(Debug, Clone, Copy)]
struct Begin {
    monotonic_ns: u64,
    realtime_ns: u64,
}

/// An open replay.
#[derive(Debug)]
pub struct Replay {
    plan: Plan,
    source: Source,
    lines: Vec<Line>,
    union: UnionLedger,
    dice: Dice,
    stamps: Option<StampWriter>,
    lag: Histogram<u64>,
    failure: Option<String>,
    has_schedule: bool,
    server: Option<UdpSocket>,
    history: Option<Mutex<History>>,
    /// Sequence after the last message that was sent.
    next_sequence: Option<u64>,
}

impl Replay {
    /// Checks the destinations and opens sockets in the calling thread's network namespace.
    pub fn open(plan: Plan, source: Source) -> Result<Self, ReplayError> {
        if !(1..=2).contains(&plan.to.len()) {
            return Err(ReplayError::Lines { lines: plan.to.len() });
        }
        let is_bare = matches!(&source, Source::File(reader)
            if reader.kind() == capture::Kind::Telegrams);
        if is_bare && matches!(plan.pace, Pace::Own(_)) {
            return Err(ReplayError::NoTimes);
        }
        let line = |(to, name): (&SocketAddrV4, &'static str)| {
            check_destination(*to, plan.ifindex, &plan.ifname)?;
            Ok(Line {
                name,
                to: *to,
                socket: io::multicast::sender(*to, plan.ifindex, &plan.ifname, plan.ttl)?,
                ledger: LineLedger::default(),
                held: None,
                held_payload: Vec::new(),
                held_messages: Vec::new(),
            })
        };
        let lines = plan.to.iter().zip(LINES).map(line).collect::<Result<Vec<_>, ReplayError>>()?;
        let stamps = match &plan.stamps {
            None => None,
            Some(path) => Some(
                StampWriter::create(path)
                    .map_err(|source| ReplayError::Stamps { path: path.clone(), source })?,
            ),
        };
        let bind = |address: &SocketAddrV4| {
            UdpSocket::bind(address)
                .map_err(|source| ReplayError::Serve { address: *address, source })
        };
        let server = plan.serve.as_ref().map(bind).transpose()?;
        Ok(Replay {
            history: server.is_some().then(Mutex::default),
            server,
            next_sequence: None,
            dice: Dice::new(plan.faults),
            has_schedule: plan.pace != Pace::Max,
            plan,
            source,
            lines,
            union: UnionLedger::default(),
            stamps,
            lag: latency_histogram(),
            failure: None,
        })
    }

    /// Sends the source until its end or until `stop` is set; a server answers until then in any case.
    pub fn run(mut self, stop: &AtomicBool) -> Result<Report, ReplayError> {
        let Some((server, history)) = self.server.take().zip(self.history.take()) else {
            return self.send_all(stop, None);
        };
        let (history, done) = (&history, &AtomicBool::new(false));
        thread::scope(|scope| {
            let serving =
                start(scope, "server", move || Ok::<_, ReplayError>(serve(&server, history, done)));
            let report = self.send_all(stop, Some(history));
            done.store(true, Ordering::Relaxed);
            let served = serving.end()?;
            Ok(Report { served: Some(served), ..report? })
        })
    }

    fn send_all(
        mut self,
        stop: &AtomicBool,
        history: Option<&Mutex<History>>,
    ) -> Result<Report, ReplayError> {
        if let Some(cpu) = self.plan.pin {
            affinity::pin_to(&[cpu]).map_err(|source| ReplayError::Pin { cpu, source })?;
        }
        clock::set_timer_slack_ns(1);
        let limit_ns = self.plan.duration.map(|d| d.as_nanos() as u64);
        let mut buffer = vec![0; 65_536];
        let mut numbers: Vec<Number> = Vec::with_capacity(1024);
        let mut timing = Timing::new(self.plan.pace);
        let (mut datagrams, mut messages, mut malformed) = (0_u64, 0_u64, 0_u64);
        let mut begin: Option<Begin> = None;
        let mut last_ns = 0;
        let mut was_stopped = false;
        while self.plan.count.is_none_or(|count| datagrams < count) {
            let Some(next) = self.source.next(&mut buffer, &self.plan.from)? else { break };
            let due_ns = timing.due_ns(next.stamp_ns, messages);
            if limit_ns.is_some_and(|limit| due_ns >= limit) {
                break;
            }
            let payload = &buffer[..next.bytes];
            numbers.clear();
            let lines = next.lines(self.lines.len());
            let fates =
                [0, 1].map(|line| if lines[line] { Some(self.dice.fate(line)) } else { None });
            let is_lost = fates.iter().flatten().all(|fate| fate.is_dropped);
            let protocol = Protocol::of(payload);
            messages::each(protocol, payload, |message| {
                numbers.push((message.domain, message.sequence));
            });
            let begin = *begin.get_or_insert_with(|| Begin {
                monotonic_ns: clock::monotonic_ns(),
                realtime_ns: clock::realtime_ns(),
            });
            let is_stopped = || stop.load(Ordering::Relaxed);
            let at_ns = begin.monotonic_ns + due_ns;
            let is_time =
                !self.has_schedule || wait_until(at_ns, clock::monotonic_ns, is_stopped).is_some();
            if !is_time || is_stopped() {
                was_stopped = true;
                break;
            }
            for (line, fate) in fates.iter().enumerate() {
                let Some(fate) = fate else { continue };
                self.lines[line].ledger.decide(&numbers, fate.is_dropped);
                let item = Item { number: datagrams, due_ns, payload, messages: &numbers };
                self.place(line, *fate, &item, begin)?;
            }
            // After the send, which it would delay, and only for sent datagrams.
            let union = &mut self.union;
            malformed += messages::each(protocol, payload, |message| {
                union.note((message.domain, message.sequence), message.bytes, is_lost);
            });
            self.next_sequence = numbers.last().map(|(_, sequence)| sequence.saturating_add(1));
            if let Some(history) = history {
                history.lock().unwrap_or_else(PoisonError::into_inner).note(payload);
            }
            datagrams += 1;
            messages += numbers.len() as u64;
            last_ns = clock::monotonic_ns() - begin.monotonic_ns;
        }
        if let Some(begin) = begin {
            for line in 0..self.lines.len() {
                self.flush(line, begin)?;
            }
            if !was_stopped {
                self.end_session(&mut buffer)?;
            }
            // A receiver may miss the end, too: it is repeated as long as requests are answered.
            while history.is_some() && !stop.load(Ordering::Relaxed) {
                let at_ns = clock::monotonic_ns() + END_GAP_NS;
                let is_stopped = || stop.load(Ordering::Relaxed);
                wait_until(at_ns, clock::monotonic_ns, is_stopped);
                self.end_session(&mut buffer)?;
            }
        }
        self.finish(Ended {
            elapsed_ns: last_ns,
            datagrams,
            messages,
            malformed,
            backwards: timing.backwards,
            was_stopped,
        })
    }

    /// Sends the end of the session on all lines, if the protocol has one. It is not a datagram of
    /// the source: no faults are injected and it is not counted.
    fn end_session(&mut self, buffer: &mut [u8]) -> Result<(), ReplayError> {
        let Source::Mold(session, _) = &self.source else { return Ok(()) };
        // The session is ahead by a packet that came after the end of the run.
        let Some(next_sequence) = self.next_sequence else { return Ok(()) };
        let Some(written) = session.end(buffer, next_sequence) else { return Ok(()) };
        for at in 0..self.lines.len() {
            let sent = self.lines[at].send(&buffer[..written.bytes]);
            self.outcome(at, sent)?;
        }
        Ok(())
    }

    /// Sends a datagram on a line according to its fate.
    fn place(
        &mut self,
        line: usize,
        fate: faults::Fate,
        item: &Item<'_>,
        begin: Begin,
    ) -> Result<(), ReplayError> {
        if fate.is_dropped {
            let name = self.lines[line].name;
            self.stamp(name, "dropped", item, begin, None);
            return Ok(());
        }
        if fate.is_delayed && self.lines[line].held.is_none() {
            let line = &mut self.lines[line];
            line.ledger.delay();
            line.held = Some((item.number, item.due_ns, fate.is_duplicated));
            line.held_payload.clear();
            line.held_payload.extend_from_slice(item.payload);
            line.held_messages.clear();
            line.held_messages.extend_from_slice(item.messages);
            return Ok(());
        }
        self.send(line, item, "sent", begin)?;
        if fate.is_duplicated {
            self.send(line, item, "copy", begin)?;
        }
        self.flush(line, begin)
    }

    /// Sends the delayed datagram.
    fn flush(&mut self, line: usize, begin: Begin) -> Result<(), ReplayError> {
        let Some((number, due_ns, is_duplicated)) = self.lines[line].held.take() else {
            return Ok(());
        };
        let payload = std::mem::take(&mut self.lines[line].held_payload);
        let messages = std::mem::take(&mut self.lines[line].held_messages);
        let item = Item { number, due_ns, payload: &payload, messages: &messages };
        self.send(line, &item, "delayed", begin)?;
        if is_duplicated {
            self.send(line, &item, "copy", begin)?;
        }
        self.lines[line].held_payload = payload;
        self.lines[line].held_messages = messages;
        Ok(())
    }

    fn send(
        &mut self,
        at: usize,
        item: &Item<'_>,
        what: &'static str,
        begin: Begin,
    ) -> Result<(), ReplayError> {
        let line = &mut self.lines[at];
        let now_ns = clock::monotonic_ns() - begin.monotonic_ns;
        let sent = line.send(item.payload);
        match &sent {
            Ok(_) => line.ledger.sent(item.messages, item.payload.len(), what == "copy"),
            Err(_) => line.ledger.unsent(),
        }
        self.outcome(at, sent)?;
        // A delayed datagram has no schedule.
        if self.has_schedule && what == "sent" {
            self.lag.saturating_record(now_ns.saturating_sub(item.due_ns));
        }
        let name = self.lines[at].name;
        self.stamp(name, what, item, begin, Some(now_ns));
        Ok(())
    }

    /// Continues after an error that may not recur, and keeps the first.
    fn outcome(&mut self, at: usize, sent: Result<usize, Error>) -> Result<(), ReplayError> {
        let Err(source) = sent else { return Ok(()) };
        let (to, ifname) = (self.lines[at].to, self.plan.ifname.clone());
        if is_fatal(&source) {
            // The errno for a deleted interface depends on the progress of its deletion.
            if host::net::link(self.plan.ifindex).is_err() {
                return Err(io::IoError::Gone { ifname }.into());
            }
            return Err(ReplayError::Send { to, ifname, source });
        }
        self.failure.get_or_insert_with(|| format!("sending to {to}: {source}"));
        Ok(())
    }

    fn stamp(
        &mut self,
        line: &'static str,
        what: &'static str,
        item: &Item<'_>,
        begin: Begin,
        at_ns: Option<u64>,
    ) {
        if let Some(stamps) = &mut self.stamps {
            let intended = if self.has_schedule { Some(item.due_ns) } else { at_ns };
            let stamp = Stamp {
                datagram: item.number,
                line,
                what,
                intended_ns: begin.realtime_ns + intended.unwrap_or(item.due_ns),
                actual_ns: at_ns.map(|ns| begin.realtime_ns + ns),
                payload_bytes: item.payload.len(),
            };
            stamps.push(stamp, item.messages);
        }
    }

    fn finish(self, ended: Ended) -> Result<Report, ReplayError> {
        if let (Some(stamps), Some(path)) = (self.stamps, &self.plan.stamps) {
            stamps.finish().map_err(|source| ReplayError::Stamps { path: path.clone(), source })?;
        }
        if ended.datagrams == 0 && !ended.was_stopped {
            let to: Vec<String> = self.plan.from.iter().map(ToString::to_string).collect();
            let to = if to.is_empty() { String::new() } else { format!(" to {}", to.join(", ")) };
            return Err(ReplayError::Nothing { to });
        }
        let (carried, lost, lost_at_end) = self.union.counts();
        let digests = self.union.digests().to_vec();
        let union = Union { carried, lost, lost_at_end, digests };
        Ok(Report {
            elapsed_ns: ended.elapsed_ns,
            datagrams: ended.datagrams,
            messages: ended.messages,
            malformed: ended.malformed,
            lines: self.lines.iter().map(|line| (line.to, line.ledger.counts())).collect(),
            union: (self.plan.from.len() < 2).then_some(union),
            lag: self.lag,
            backwards: ended.backwards,
            capture: match &self.source {
                Source::File(reader) => Some(*reader.counts()),
                Source::Twse(..) | Source::Mold(..) => None,
            },
            failure: self.failure,
            fault_seed: self.plan.faults.seed,
            was_stopped: ended.was_stopped,
            served: None,
        })
    }
}

/// A datagram to send.
#[derive(Debug, Clone, Copy)]
struct Item<'a> {
    number: u64,
    due_ns: u64,
    payload: &'a [u8],
    messages: &'a [Number],
}

struct Ended {
    elapsed_ns: u64,
    datagrams: u64,
    messages: u64,
    malformed: u64,
    backwards: u64,
    was_stopped: bool,
}
