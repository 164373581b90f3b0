//! Sending a feed: a capture with its own timing, or a synthetic session, open loop.
//!
//! Every datagram has a due time that does not depend on earlier sends: a sender that stalls shows
//! as lag, not as a slower feed.

mod destination;
mod error;
mod faults;
mod ledger;
mod plan;
mod report;
mod sending;
mod serve;
mod source;
mod stamps;
mod timing;

use std::net::{SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use hdrhistogram::Histogram;
use model::latency_histogram;
use sys::thread::start;
use sys::{affinity, clock};

use self::faults::Dice;
use self::ledger::{LineLedger, Number, UnionLedger};
use self::sending::{Begin, Item, Line};
use self::serve::{History, serve};
use self::stamps::StampWriter;
use self::timing::Timing;
use super::capture;
use super::messages;
use super::protocol::CaptureFlows;
use super::schedule::wait_until;

pub use self::destination::check_destination;
pub use self::error::ReplayError;
pub use self::faults::Faults;
pub use self::ledger::LineCounts;
pub use self::plan::{ReplayPace, ReplayPlan};
pub use self::report::{ReplayDocument, ReplayReport, Union};
pub use self::serve::Served;
pub use self::source::ReplaySource;

const LINES: [&str; 2] = ["A", "B"];
/// Time between repetitions of the end of a session.
const END_GAP_NS: u64 = 200_000_000;

/// An open replay.
#[derive(Debug)]
pub struct Replay {
    plan: ReplayPlan,
    source: ReplaySource,
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
    pub fn open(plan: ReplayPlan, source: ReplaySource) -> Result<Self, ReplayError> {
        if !(1..=2).contains(&plan.to.len()) {
            return Err(ReplayError::Lines { lines: plan.to.len() });
        }
        let is_bare = matches!(&source, ReplaySource::File(reader)
            if reader.kind() == capture::CaptureKind::Telegrams);
        if is_bare && matches!(plan.pace, ReplayPace::Own(_)) {
            return Err(ReplayError::NoTimes);
        }
        let lines = plan
            .to
            .iter()
            .zip(LINES)
            .map(|(to, name): (&SocketAddrV4, &'static str)| {
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
            })
            .collect::<Result<Vec<_>, ReplayError>>()?;
        let stamps = match &plan.stamps {
            None => None,
            Some(path) => Some(
                StampWriter::create(path)
                    .map_err(|source| ReplayError::Stamps { path: path.clone(), source })?,
            ),
        };
        let server = plan
            .serve
            .as_ref()
            .map(|address: &SocketAddrV4| {
                UdpSocket::bind(address)
                    .map_err(|source| ReplayError::Serve { address: *address, source })
            })
            .transpose()?;
        Ok(Replay {
            history: server.is_some().then(Mutex::default),
            server,
            next_sequence: None,
            dice: Dice::new(plan.faults),
            has_schedule: plan.pace != ReplayPace::Max,
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
    pub fn run(mut self, stop: &AtomicBool) -> Result<ReplayReport, ReplayError> {
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
            Ok(ReplayReport { served: Some(served), ..report? })
        })
    }

    fn send_all(
        mut self,
        stop: &AtomicBool,
        history: Option<&Mutex<History>>,
    ) -> Result<ReplayReport, ReplayError> {
        if let Some(cpu) = self.plan.pin {
            affinity::pin_to(&[cpu]).map_err(|source| ReplayError::Pin { cpu, source })?;
        }
        clock::set_timer_slack_ns(1);
        let limit_ns = self.plan.duration.map(|d| d.as_nanos() as u64);
        let mut buffer = vec![0; 65_536];
        let mut numbers: Vec<Number> = Vec::with_capacity(1024);
        let mut timing = Timing::new(self.plan.pace);
        let mut flows = CaptureFlows::default();
        let (mut datagrams, mut messages, mut malformed) = (0_u64, 0_u64, 0_u64);
        let mut foreign = 0_u64;
        let mut begin: Option<Begin> = None;
        let mut last_ns = 0;
        let mut was_stopped = false;
        while self.plan.count.is_none_or(|count| datagrams < count) {
            let next = self.source.next(&mut buffer, &self.plan.from, &mut flows)?;
            let Some(next) = next else { break };
            // A datagram of another protocol is paced as one message.
            let due_ns = timing.due_ns(next.stamp_ns, messages + foreign);
            if limit_ns.is_some_and(|limit| due_ns >= limit) {
                break;
            }
            let payload = &buffer[..next.bytes];
            numbers.clear();
            let lines = next.lines(self.lines.len());
            let fates =
                [0, 1].map(|line| if lines[line] { Some(self.dice.fate(line)) } else { None });
            let is_lost = fates.iter().flatten().all(|fate| fate.is_dropped);
            if let Some(protocol) = next.protocol {
                messages::each(protocol, payload, |message| {
                    numbers.push((message.domain, message.sequence));
                });
            }
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
            match next.protocol {
                Some(protocol) => {
                    malformed += messages::each(protocol, payload, |message| {
                        union.note((message.domain, message.sequence), message.bytes, is_lost);
                    });
                }
                None => foreign += 1,
            }
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
                wait_until(at_ns, clock::monotonic_ns, || stop.load(Ordering::Relaxed));
                self.end_session(&mut buffer)?;
            }
        }
        self.finish(Ended {
            elapsed_ns: last_ns,
            datagrams,
            messages,
            malformed,
            foreign,
            backwards: timing.backwards,
            was_stopped,
        })
    }

    fn finish(self, ended: Ended) -> Result<ReplayReport, ReplayError> {
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
        Ok(ReplayReport {
            elapsed_ns: ended.elapsed_ns,
            datagrams: ended.datagrams,
            messages: ended.messages,
            malformed: ended.malformed,
            foreign: ended.foreign,
            lines: self.lines.iter().map(|line| (line.to, line.ledger.counts())).collect(),
            union: (self.plan.from.len() < 2).then_some(union),
            lag: self.lag,
            backwards: ended.backwards,
            capture: match &self.source {
                ReplaySource::File(reader) => Some(*reader.counts()),
                ReplaySource::Twse(..) | ReplaySource::Mold(..) => None,
            },
            failure: self.failure,
            fault_seed: self.plan.faults.seed,
            was_stopped: ended.was_stopped,
            served: None,
        })
    }
}

struct Ended {
    elapsed_ns: u64,
    datagrams: u64,
    messages: u64,
    malformed: u64,
    foreign: u64,
    backwards: u64,
    was_stopped: bool,
}
