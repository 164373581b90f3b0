//! Receiving a feed: one group or an A/B pair, decoded, arbitrated and accounted for.
//!
//! One thread does all of it. Once a second it exchanges a full [`ListenInterval`] for an empty one;
//! display, totals and metrics run on another thread.

mod content;
mod core;
mod error;
mod intake;
mod interval;
mod line;
mod recorded;
mod report;
mod retransmit;
mod silence;

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use host::net::LinkWatch;
use io::XdpMode;
use io::multicast::{Group, GroupTuning};
use sys::{affinity, capability, clock, poll, sched};

use self::core::{Core, CorePlan};
use self::intake::Intake;
use self::retransmit::Retransmit;
use self::silence::SilenceWatch;
use super::arbiter::{self, FeedLine};
use super::books::{BooksCapacity, BooksShown};
use super::late::Now;
use super::pitfalls::{self, ReceiverConfig};
use super::protocol::Protocol;

pub use self::error::ListenError;
pub use self::interval::{Counts, GapList, LineStats, ListenInterval, TopRow};
pub use self::recorded::{RecordedError, RecordedPlan, Recording, read};
pub use self::report::{
    LineReport, ListenDocument, ListenReport, LiveDocument, Percentiles, Refused,
};
pub(crate) use self::report::{count, table, time};

/// Longest sleep between checks of the stop flag.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(20);
const SECOND_NS: u64 = 1_000_000_000;
/// Interval between checks that the interfaces still exist, and between looks at a silent one.
const LINK_CHECK_INTERVAL_NS: u64 = SECOND_NS / 10;
/// Largest number of batches received after the end of the run.
const LAST_BATCHES: usize = 256;

/// Kernel interface that receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReceiveBy {
    /// A UDP socket a line.
    Sockets,
    /// AF_XDP, past the stack.
    Xdp {
        /// Where the XDP program runs.
        mode: XdpMode,
        /// Pinned map of AF_XDP sockets of a program that is attached already; its interface has all groups.
        xsk_map: Option<PathBuf>,
    },
}

/// Groups to receive, and how.
#[derive(Debug, Clone)]
pub struct ListenPlan {
    /// Line A, and line B if there are two.
    pub groups: Vec<Group>,
    pub receive_by: ReceiveBy,
    /// Of sockets; AF_XDP has the batch alone.
    pub tuning: GroupTuning,
    /// `None`: that of the first datagram that proves one.
    pub protocol: Option<Protocol>,
    pub limits: arbiter::ArbiterLimits,
    /// Retransmission server (MoldUDP64).
    pub recover: Option<SocketAddr>,
    pub spin: bool,
    /// CPU to run on.
    pub pin: Option<usize>,
    /// Real-time priority (SCHED_FIFO), 1 to 99.
    pub fifo: Option<i32>,
    pub books: BooksCapacity,
    /// Books of the summary.
    pub books_shown: Option<BooksShown>,
    /// Number of busiest books per interval, found on the receiving thread.
    pub top: usize,
    /// Compute a digest of the delivered messages per domain.
    pub digests: bool,
    /// Count leads, bursts and latencies by instrument.
    pub measures_quality: bool,
    /// Time from the kernel to the application from which a datagram is late.
    pub late: Option<Duration>,
    /// Duration of the run.
    pub duration: Option<Duration>,
    /// Number of messages to deliver.
    pub count: Option<u64>,
    /// Silence of a line after which a note explains it.
    pub silence: Duration,
}

/// An open receiver.
#[derive(Debug)]
pub struct FeedListener {
    plan: ListenPlan,
    intake: Intake,
    core: Core,
    retransmit: Option<Retransmit>,
    silence: SilenceWatch,
    has_noted_drops: bool,
    has_noted_foreign: bool,
    has_noted_domains: bool,
    /// Detects removal: a group on a removed interface is silent.
    links: Vec<LinkWatch>,
}

impl FeedListener {
    /// Joins the groups, in the calling thread's network namespace.
    pub fn open(plan: ListenPlan) -> Result<Self, ListenError> {
        if !(1..=2).contains(&plan.groups.len()) {
            return Err(ListenError::Groups { groups: plan.groups.len() });
        }
        let retransmit = match plan.recover {
            Some(_) if plan.protocol != Some(Protocol::Mold) => {
                return Err(ListenError::NoRecovery);
            }
            Some(server) => Some(Retransmit::open(server)?),
            None => None,
        };
        let core = Core::new(&CorePlan {
            protocol: plan.protocol,
            limits: plan.limits,
            line_count: plan.groups.len(),
            books: plan.books,
            shown: plan.books_shown,
            digests: plan.digests,
            recovers: retransmit.is_some(),
            measures_quality: plan.measures_quality,
            late: plan.late,
        });
        let limit_ns = plan.silence.as_nanos() as u64;
        let has_taps = plan.receive_by == ReceiveBy::Sockets;
        let silence = SilenceWatch::open(&plan.groups, limit_ns, has_taps);
        // Opened last, because their buffers fill from here on.
        let intake = Intake::open(&plan)?;
        Ok(FeedListener {
            links: plan
                .groups
                .iter()
                .filter_map(|group: &Group| LinkWatch::new(group.ifindex).ok())
                .collect(),
            plan,
            intake,
            core,
            retransmit,
            silence,
            has_noted_drops: false,
            has_noted_foreign: false,
            has_noted_domains: false,
        })
    }

    /// Receives until `stop` is set or a limit of the plan is reached. Once a second `swap` may
    /// exchange the interval for an empty one; otherwise it continues. Returns the last interval,
    /// after delivering all held messages.
    pub fn run(
        mut self,
        stop: &AtomicBool,
        mut swap: impl FnMut(&mut Box<ListenInterval>),
    ) -> Result<Box<ListenInterval>, ListenError> {
        if let Some(cpu) = self.plan.pin {
            affinity::pin_to(&[cpu]).map_err(|source| ListenError::Pin { cpu, source })?;
        }
        if let Some(priority) = self.plan.fifo {
            sched::set_fifo(priority).map_err(|source| ListenError::Fifo { priority, source })?;
        }
        self.note_pitfalls()?;
        // The sockets are open; untrusted datagrams are parsed without privileges.
        capability::keep(&[]).map_err(ListenError::Rights)?;
        let begun_ns = clock::monotonic_ns();
        let until_ns = self.plan.duration.map(|d| begun_ns.saturating_add(d.as_nanos() as u64));
        let (mut next_ns, mut look_ns) = (begun_ns + SECOND_NS, begun_ns);
        loop {
            let taken = self.take_all()?;
            let now = Now::read();
            let now_ns = now.monotonic_ns;
            self.core.tick(now);
            self.request_missing(now_ns);
            if now_ns >= look_ns {
                self.core.interval.gone = self.gone();
                self.watch_silence(begun_ns, now_ns);
                look_ns = now_ns + LINK_CHECK_INTERVAL_NS;
            }
            if now_ns >= next_ns {
                self.close_interval(begun_ns, now_ns);
                swap(&mut self.core.interval);
                // No catching up: a missed interval is part of the next.
                next_ns = now_ns - (now_ns - next_ns) % SECOND_NS + SECOND_NS;
            }
            let is_over = self.core.interval.gone.is_some()
                || until_ns.is_some_and(|until| now_ns >= until)
                || self.plan.count.is_some_and(|c| self.core.arbiter.totals().delivered >= c);
            if is_over || stop.load(Ordering::Relaxed) {
                break;
            }
            if taken == 0 && !self.plan.spin {
                self.sleep(now_ns, next_ns)?;
            }
        }
        for _ in 0..LAST_BATCHES {
            if self.take_all()? == 0 {
                break;
            }
        }
        self.core.close(Now::read());
        self.close_interval(begun_ns, clock::monotonic_ns());
        self.core.interval.notes.extend(self.silence.answers(true));
        Ok(self.core.interval)
    }

    /// Adds notes about known pitfalls of this configuration.
    fn note_pitfalls(&mut self) -> Result<(), ListenError> {
        let cpus = affinity::allowed_cpus().map_err(ListenError::Wait)?.len();
        let running = ReceiverConfig {
            spin: self.plan.spin,
            pin: self.plan.pin.is_some(),
            // Set by the plan or by chrt(1).
            fifo: sched::fifo_priority().is_some(),
            // Unknown here, because it depends on interrupt affinities; `prove feed` shows it.
            fed_on_its_cpu: false,
        };
        for trap in pitfalls::find(running, cpus) {
            self.core.interval.notes.push(format!("{}: {}", trap.what, trap.advice));
        }
        Ok(())
    }

    /// Name of a removed interface, if any.
    fn gone(&mut self) -> Option<String> {
        self.links.iter_mut().find_map(LinkWatch::gone).map(str::to_owned)
    }

    fn take_all(&mut self) -> Result<usize, ListenError> {
        let core = &mut self.core;
        let mut taken = self.intake.take(&mut |line, datagram| {
            let line = if line == 0 { FeedLine::A } else { FeedLine::B };
            let from = *datagram.from.ip();
            core.datagram(line, from, datagram.payload, datagram.stamp_ns, Now::read());
        })?;
        if let Some(retransmit) = &mut self.retransmit {
            taken += retransmit.take(core);
        }
        Ok(taken)
    }

    fn sleep(&self, now_ns: u64, next_ns: u64) -> Result<(), ListenError> {
        let due = [
            Some(next_ns),
            self.core.arbiter.deadline_ns(),
            self.retransmit.as_ref().and_then(|retransmit| retransmit.due_ns(now_ns)),
        ];
        let wake_ns = due.into_iter().flatten().min().unwrap_or(next_ns);
        let timeout = Duration::from_nanos(wake_ns.saturating_sub(now_ns)).min(STOP_CHECK_INTERVAL);
        let mut fds = self.intake.fds(poll::FDS_MAX - 1);
        fds.extend(self.retransmit.iter().map(|retransmit| retransmit.socket.as_fd()));
        poll::readable(&fds, timeout).map(drop).map_err(ListenError::Wait)
    }

    fn request_missing(&mut self, now_ns: u64) {
        if let Some(retransmit) = &mut self.retransmit {
            retransmit.step(&mut self.core, now_ns);
        }
    }

    /// Fills in the counts and adds notes about problems.
    fn close_interval(&mut self, begun_ns: u64, now_ns: u64) {
        self.note_silence(begun_ns, now_ns);
        let counts = self.counts();
        self.note_drops(&counts);
        self.note_foreign(&counts);
        self.note_domains(&counts);
        self.core.note_capacity();
        let top = self.core.top(self.plan.top);
        let interval = &mut self.core.interval;
        interval.elapsed_ns = now_ns - begun_ns;
        interval.counts = counts;
        interval.top = top;
    }

    fn counts(&self) -> Counts {
        self.core.counts(
            |at, line| LineStats {
                dropped_datagrams: self.intake.dropped_count(at),
                receive_buffer_bytes: self.intake.receive_buffer_bytes(at),
                syscalls: self.intake.syscall_count(at),
                ..line
            },
            self.retransmit.as_ref().map(Retransmit::counts),
        )
    }

    fn watch_silence(&mut self, begun_ns: u64, now_ns: u64) {
        let has_ended = self.core.sink.has_ended;
        for (at, state) in self.core.lines.iter().enumerate() {
            let silent_ns = now_ns.saturating_sub(state.heard_ns.unwrap_or(begun_ns));
            self.silence.look(at, silent_ns, state.book.datagrams, has_ended);
        }
        self.core.interval.notes.extend(self.silence.answers(false));
    }

    fn note_silence(&mut self, begun_ns: u64, now_ns: u64) {
        let has_ended = self.core.sink.has_ended;
        for (at, state) in self.core.lines.iter().enumerate() {
            let silent_ns = now_ns.saturating_sub(state.heard_ns.unwrap_or(begun_ns));
            self.silence.note(at, silent_ns, state.book.datagrams, has_ended);
        }
    }

    /// Notes once that no datagram so far is of the protocol.
    fn note_foreign(&mut self, counts: &Counts) {
        if self.has_noted_foreign || !counts.is_foreign() {
            return;
        }
        self.has_noted_foreign = true;
        let datagrams: u64 = counts.lines.iter().map(|line| line.datagrams).sum();
        self.core.interval.notes.push(match self.plan.protocol {
            Some(Protocol::Mold) => format!(
                "another protocol: none of {datagrams} datagrams so far is a whole packet of MoldUDP64; omit \
                 --mold to detect telegrams of the Taiwan exchanges, and check group and port"
            ),
            Some(Protocol::Twse) | None => format!(
                "another protocol: none of {datagrams} datagrams so far is a telegram of the Taiwan exchanges or \
                 a packet of MoldUDP64; check group and port"
            ),
        });
    }

    /// Notes once that domains lost their places.
    fn note_domains(&mut self, counts: &Counts) {
        if self.has_noted_domains || counts.totals.removed_domains == 0 {
            return;
        }
        self.has_noted_domains = true;
        self.core.interval.notes.push(format!(
            "more than {} sessions or formats arrive; those without messages in sequence lose their place: a \
             sender invents them, or several feeds share the group (--source admits one sender)",
            self.core.arbiter.limits().domains
        ));
    }

    fn note_drops(&mut self, counts: &Counts) {
        let has_dropped = counts.lines.iter().any(|line| line.dropped_datagrams > 0);
        if self.has_noted_drops || !has_dropped {
            return;
        }
        self.has_noted_drops = true;
        if self.plan.receive_by == ReceiveBy::Sockets {
            return self.silence.ask_about_drops();
        }
        self.core.interval.notes.push(
            "datagrams found the AF_XDP ring full, or their queue without a socket; give the receiver a CPU of \
             its own (--pin), or --spin"
                .to_owned(),
        );
    }
}
