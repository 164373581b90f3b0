//! Trials of the feed in a lab: an exchange and a receiver, joined by a wire.

use std::any::Any;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use host::cpu::CpuClock;
use host::lab::{Pair, PairSpec};
use host::tune::{Held, cpus_to_mask};
use io::pty::Pty;
use io::thread::{Started, start};
use io::{EngineKind, Setup};
use model::{Arm, ArmKind, Measurement, NotEffective};

use super::books::measurement_of;
use super::publisher::{self, Sent};
use super::receiver::{self, Received};
use super::schedule::Schedule;
use super::script::{Script, Timing};
use super::switches::{FIFO_PRIORITY, RING_DESCRIPTORS, engine_of};
use super::symbols::Symbols;
use super::traps::{self, Running};
use crate::lab::{Meter, Placement, drain, local, settle};
use crate::path::{Load, PathError, Session};
use crate::peers::{Job, Peers, Traffic};
use crate::text::chain;

/// Where stocks are published.
const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(224, 0, 100, 100), 10_000);
/// Books of the receiver: the made-up session has fewer instruments.
const BOOKS_MAX: u32 = 8192;
/// Longest datagram of a script.
const DATAGRAM_BYTES_MAX: usize = 256;
/// Datagrams of a typical size, for programs that send their own.
pub(super) const TYPICAL_BYTES: usize = 113;
/// Silence at the receiver after which a trial is over, and the longest wait for it.
const GRACE: Duration = Duration::from_millis(25);
const GRACE_MAX: Duration = Duration::from_secs(2);
/// Quotes of the calibration.
const CALIBRATION_COUNT: usize = 1000;

/// The lab and what is kept from trial to trial.
pub(super) struct FeedSession {
    pair: Pair,
    load: Load,
    cpus: Vec<usize>,
    clock: Rc<CpuClock>,
    books: Symbols,
    run: u64,
    zero: Zero,
    peers: Peers,
}

/// The zero of calibrated latency: one for all arms of a run.
///
/// Without a common clock nobody knows how long the fastest quote took; latencies count from it
/// and are too low by that much. Here the clocks are one, so it is known how much.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Zero {
    /// Receive time less match time of the fastest quote, nanoseconds.
    pub(super) offset_ns: i64,
    /// By how much latencies may be too low, nanoseconds.
    pub(super) error_ns: u64,
}

/// When the datagrams of a load are due.
pub(super) fn timing(load: &Load) -> Timing {
    let (burst, gap_ns) = match load.kind.as_str() {
        "burst" => (100, 5_000),
        "surge" => (1000, 0),
        _ => (1, 0),
    };
    Timing { schedule: Schedule::burst(burst, load.rate_pps), gap_ns }
}

impl FeedSession {
    pub(super) fn open(load: &Load) -> Result<Self, PathError> {
        let pair = Pair::new(&PairSpec::default()).map_err(PathError::part)?;
        let cpus = io::affinity::allowed_cpus().map_err(PathError::part)?;
        let clock = Rc::new(CpuClock::open().map_err(PathError::part)?);
        let mut session = FeedSession {
            pair,
            load: load.clone(),
            cpus,
            clock,
            books: Symbols::new(BOOKS_MAX),
            run: io::clock::realtime_ns(),
            zero: Zero::default(),
            peers: Peers::default(),
        };
        session.calibrate()?;
        Ok(session)
    }

    /// Finds the zero with the receiver that is fastest without further rights.
    fn calibrate(&mut self) -> Result<(), PathError> {
        let arm = Arm::of(["quiet", "spin", "pin"]);
        let timing = Timing { schedule: Schedule::paced(10_000), gap_ns: 0 };
        let (script, sent, received) = self.run_script(&arm, timing, CALIBRATION_COUNT)?;
        let came = |n: &usize| received.arrivals.app_ns[*n] > 0;
        let fastest = (0..script.len()).filter(came).min_by_key(|&n| {
            super::books::since_match_ns(&script, &sent, n, received.arrivals.app_ns[n])
        });
        let Some(n) = fastest else {
            return Err(PathError::End {
                end: "receiver".into(),
                why: "not one quote of the calibration arrived".into(),
            });
        };
        let app_ns = received.arrivals.app_ns[n];
        // By the common clock, and the rest of the microsecond that match times cut off.
        let true_ns = app_ns.saturating_sub(sent.begin_ns + script.due_ns(n));
        self.zero = Zero {
            offset_ns: super::books::since_match_ns(&script, &sent, n, app_ns),
            error_ns: true_ns + 1000,
        };
        Ok(())
    }

    fn placement(&self, arm: &Arm) -> Placement {
        let (first, last) = (self.cpus.first(), self.cpus.last());
        let pinned = arm.has("pin").then_some(last).flatten();
        Placement {
            // The exchange is another host: its CPU is its own.
            near: first.copied().into_iter().collect(),
            far: pinned.copied().into_iter().collect(),
        }
    }

    /// Changes the host as the arm says, for as long as the result lives.
    fn prepare(&self, arm: &Arm) -> Result<Vec<Box<dyn Any>>, PathError> {
        let far = &self.pair.far;
        let mut undo: Vec<Box<dyn Any>> = Vec::new();
        let mut held = Held::new(&far.netns).map_err(PathError::part)?;
        if arm.has("irq-affinity") {
            let cpu: Vec<usize> = self.cpus.last().copied().into_iter().collect();
            let mask = cpus_to_mask(&cpu);
            held.set_all("rps-cpus", &far.ifname, &mask).map_err(PathError::part)?;
        }
        if arm.has("no-coalescing") {
            held.no_coalescing(&far.ifname).map_err(PathError::part)?;
        }
        if arm.has("big-ring") {
            held.large_ring(&far.ifname, RING_DESCRIPTORS).map_err(PathError::part)?;
        }
        undo.push(Box::new(held));
        if arm.has("lock-memory") {
            let guard = io::sched::LockedMemory::hold().map_err(|source| PathError::End {
                end: "receiver".into(),
                why: format!("mlockall: {source}; it needs CAP_IPC_LOCK or `ulimit -l unlimited`"),
            })?;
            undo.push(Box::new(guard));
        }
        Ok(undo)
    }

    fn variant(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        let timing = timing(&self.load);
        let count = timing.schedule.count_within(self.load.trial.as_nanos() as u64);
        let undo = self.prepare(arm)?;
        let clock = self.clock.clone();
        let meter = Meter::start(&clock)?;
        let (script, sent, received) = self.run_script(arm, timing, count as usize)?;
        let used = meter.stop()?;
        let locked_bytes = io::sched::locked_bytes();
        drop(undo);
        let mut m = measurement_of(&script, &sent, received, self.zero);
        used.account(&mut m);
        if arm.has("lock-memory") {
            m.counters.insert("locked_bytes".into(), locked_bytes);
        }
        if arm.has("pin") {
            m.mode.insert("far CPU".into(), format!("{:?}", self.placement(arm).far));
        }
        let running = Running {
            spin: arm.has("spin"),
            pin: arm.has("pin"),
            fifo: arm.has("fifo"),
            fed_on_its_cpu: arm.has("irq-affinity"),
        };
        m.traps = traps::of(running, self.cpus.len());
        let engine = engine_of(arm);
        if arm.has("irq-affinity") && engine.kind == EngineKind::Xdp {
            // SKB mode: the program runs behind RPS, which has moved the packet already.
            m.mode.insert("far steering".into(), "RPS before XDP".into());
        }
        if arm.has("pin") && self.cpus.len() < 2 {
            m.not_effective.push(NotEffective {
                switch: "pin".into(),
                why: "there is one CPU, and everything is on it".into(),
            });
        }
        Ok(m)
    }

    /// One trial: the receiver open and listening before the first datagram is sent.
    fn run_script(
        &mut self,
        arm: &Arm,
        timing: Timing,
        count: usize,
    ) -> Result<(Script, Sent, Received), PathError> {
        self.run += 1;
        let mut script = Script::new(self.run, timing, count);
        let listening = Script::new(self.run, timing, count);
        let places = self.placement(arm);
        let engine = engine_of(arm);
        // Bound to the group: nothing else that is sent to the port is taken.
        let local = local(&self.pair.far, *GROUP.ip(), GROUP.port());
        let setup = Setup::receive(&engine, &local, DATAGRAM_BYTES_MAX);
        let mut pty = match arm.has("quiet") {
            true => None,
            false => Some(Pty::open().map_err(|source| PathError::End {
                end: "receiver".into(),
                why: format!("opening a terminal: {source}"),
            })?),
        };
        let terminal = pty.as_ref().map(|p| p.terminal.try_clone()).transpose();
        let terminal = terminal.map_err(|e| PathError::End {
            end: "receiver".into(),
            why: format!("opening a terminal: {e}"),
        })?;
        let (stop, seen) = (AtomicBool::new(false), AtomicU64::new(0));
        let (ready, is_ready) = mpsc::sync_channel::<()>(1);
        let books = &mut self.books;
        let pair = &self.pair;
        let fifo = arm.has("fifo");
        let (sent, received) = thread::scope(|scope| {
            // Only the receiver keeps the terminal open: the emulator ends with it.
            let emulator = pty.take().map(|Pty { mut master, .. }| {
                start(scope, "terminal", move || {
                    let mut shown = vec![0; 65_536];
                    let mut line_count = 0;
                    while let Ok(bytes @ 1..) = master.read(&mut shown) {
                        line_count += shown[..bytes].iter().filter(|&&b| b == b'\n').count();
                    }
                    Ok((io::clock::thread_cpu_ns(), line_count as u64))
                })
            });
            let (stop, seen, listening) = (&stop, &seen, &listening);
            let receiver = start(scope, "receiver", move || -> Result<Received, String> {
                settle(&pair.far, &places.far)?;
                let membership = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
                    .and_then(|socket| {
                        socket.join_multicast_v4(GROUP.ip(), &pair.far.ip).map(|()| socket)
                    })
                    .map_err(|e| format!("joining {}: {e}", GROUP.ip()))?;
                let mut engine = io::open(&setup).map_err(|e| chain(&e))?;
                if fifo {
                    io::sched::set_fifo(FIFO_PRIORITY).map_err(|e| {
                        format!("SCHED_FIFO: {e}; it needs CAP_SYS_NICE or RLIMIT_RTPRIO")
                    })?;
                }
                let _ = ready.send(());
                drop(ready);
                let received =
                    receiver::receive(&mut engine, listening, books, terminal, stop, seen);
                drop(membership);
                received.map_err(|e| chain(&e))
            });
            let sent = is_ready.recv().is_ok().then(|| {
                let sender = start(scope, "exchange", || {
                    settle(&pair.near, &places.near)?;
                    publisher::publish(&mut script, pair.near.ip, GROUP)
                });
                sender.end()
            });
            if sent.is_some() {
                drain(seen, count as u64, GRACE, GRACE_MAX);
            }
            stop.store(true, Ordering::Relaxed);
            let received = receiver.end();
            let shown = emulator.map(Started::end).transpose();
            let end = |end: &str| {
                let end = end.to_owned();
                move |why| PathError::End { end, why }
            };
            let mut received = received.map_err(end("receiver"))?;
            if let Some((cpu_ns, line_count)) = shown.map_err(end("terminal"))? {
                received.cost.user_ns += cpu_ns;
                received.engine.counters.push(("printed_line_count".into(), line_count));
            }
            let sent = sent.unwrap_or_else(|| Err("the receiver was not ready".into()));
            Ok::<_, PathError>((sent.map_err(end("exchange"))?, received))
        })?;
        Ok((script, sent, received))
    }

    fn job(&self) -> Job {
        let timing = timing(&self.load);
        let burst = timing.schedule.burst_messages();
        let traffic = Traffic::Open { rate_pps: self.load.rate_pps, burst };
        Job { traffic, size_bytes: TYPICAL_BYTES, segment: "schedule→app" }
    }
}

impl Session for FeedSession {
    fn trial(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        if arm.kind != ArmKind::Peer {
            return self.variant(arm);
        }
        let (job, anywhere) = (self.job(), Placement::default());
        self.peers.trial(&arm.name, &job, &self.pair, &anywhere, &self.clock)
    }

    fn nic(&self) -> String {
        "veth pair, 1 queue, MTU 1500".into()
    }
}
