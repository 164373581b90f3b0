//! Trials of the feed in a lab: an exchange and a receiver on a veth pair.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use host::cpu::CpuClock;
use io::Setup;
use lab::{Pair, PairSpec};
use model::{Arm, ArmKind, Measurement};
use sys::pty::Pty;
use sys::thread::{Started, start};

use super::accounting::{Zero, measurement_of};
use super::error::EndError;
use super::publisher::{self, Sent};
use super::receiver::{self, Received};
use super::recording::Recording;
use super::script::{Script, Timing};
use super::switches::{Config, Switch};
use lab::peers::{Job, Peers, Traffic};
use lab::{Meter, Placement, drain, local, settle};
use marketdata::schedule::Schedule;
use marketdata::symbols::Symbols;
use model::{Load, PathError, Session};

/// Multicast group of the quotes.
pub(super) const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(224, 0, 100, 100), 10_000);
/// Order books of the receiver; the synthetic session has fewer instruments.
const BOOKS_MAX: u32 = 8192;
/// Typical datagram size, for peer programs.
pub(super) const TYPICAL_BYTES: usize = 113;
/// Silence at the receiver that ends a trial, and the longest wait for it.
const GRACE: Duration = Duration::from_millis(25);
const GRACE_MAX: Duration = Duration::from_secs(2);
/// Quotes of the calibration.
const CALIBRATION_COUNT: usize = 1000;

/// The lab and the state kept between trials.
pub(super) struct FeedSession {
    pair: Pair,
    load: Load,
    cpus: Vec<usize>,
    clock: Rc<CpuClock>,
    books: Symbols,
    run: u64,
    zero: Zero,
    peers: Peers,
    /// Load of all trials; `None` for quotes of a synthetic session.
    recording: Option<Arc<Recording>>,
}

/// Due times of the datagrams of a load.
pub(super) fn timing(load: &Load) -> Timing {
    let (burst, gap_ns) = match load.kind.as_str() {
        "burst" => (100, 5_000),
        "surge" => (1000, 0),
        _ => (1, 0),
    };
    Timing { schedule: Schedule::burst(burst, load.rate_pps), gap_ns }
}

impl FeedSession {
    pub(super) fn open(load: &Load, recording: Option<Recording>) -> Result<Self, PathError> {
        let pair = Pair::new(&PairSpec::default()).map_err(PathError::part)?;
        let cpus = sys::affinity::allowed_cpus().map_err(PathError::part)?;
        let clock = Rc::new(CpuClock::open().map_err(PathError::part)?);
        let mut session = FeedSession {
            pair,
            load: load.clone(),
            cpus,
            clock,
            books: Symbols::new(BOOKS_MAX),
            run: sys::clock::realtime_ns(),
            zero: Zero::default(),
            peers: Peers::default(),
            recording: recording.map(Arc::new),
        };
        // Payloads of another protocol have no match times.
        if session.recording.is_none() {
            session.calibrate()?;
        }
        Ok(session)
    }

    /// Measures the zero with the fastest receiver that needs no privileges.
    fn calibrate(&mut self) -> Result<(), PathError> {
        let arm = Arm::with([Switch::Quiet, Switch::Spin, Switch::Pin]);
        let config = Config::of(&arm, &self.cpus);
        let timing = Timing { schedule: Schedule::paced(10_000), gap_ns: 0 };
        let make = |seed| Script::new(seed, timing, CALIBRATION_COUNT);
        let (script, sent, received) = self.run_script(&config, make)?;
        let zero = Zero::of(&script, &sent, &received.arrivals);
        self.zero = zero.ok_or_else(|| EndError::NoArrival.at("receiver"))?;
        Ok(())
    }

    fn variant(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        let timing = timing(&self.load);
        let count = timing.schedule.count_within(self.load.trial.as_nanos() as u64);
        let recording = self.recording.clone();
        let make = |seed| match &recording {
            Some(recording) => Script::Recorded(recording.clone()),
            None => Script::new(seed, timing, count as usize),
        };
        let config = Config::of(arm, &self.cpus);
        let settings = config.apply(&self.pair.far)?;
        let clock = self.clock.clone();
        let meter = Meter::start(&clock, &self.used_cpus(&config))?;
        let (script, sent, received) = self.run_script(&config, make)?;
        let used = meter.stop()?;
        let locked_bytes = sys::sched::locked_bytes();
        drop(settings);
        let mut m = measurement_of(&script, &sent, received, self.zero);
        used.account(&mut m);
        config.report(&mut m, locked_bytes, self.cpus.len());
        Ok(m)
    }

    /// CPUs of exchange and receiver; empty for any, as of the terminal.
    fn used_cpus(&self, config: &Config) -> Vec<usize> {
        let exchange = self.cpus.first().copied();
        match config.cpu {
            Some(cpu) if !config.prints => exchange.into_iter().chain([cpu]).collect(),
            _ => Vec::new(),
        }
    }

    /// Runs one trial. The receiver is listening before the first datagram is sent.
    ///
    /// - `make`: the script of a seed, for each end its own.
    fn run_script(
        &mut self,
        config: &Config,
        make: impl Fn(u64) -> Script,
    ) -> Result<(Script, Sent, Received), PathError> {
        self.run += 1;
        let mut script = make(self.run);
        let listening = make(self.run);
        let count = script.len();
        // Bound to the group, so that other datagrams to the port are not received.
        let local = local(&self.pair.far, *GROUP.ip(), GROUP.port());
        let setup = Setup::receive(&config.engine, &local, script.payload_bytes_max());
        let open_terminal = || {
            let pty = Pty::open()?;
            Ok((pty.terminal.try_clone()?, pty))
        };
        let opened = config.prints.then(open_terminal).transpose();
        let (terminal, mut pty) = opened.map_err(|e| EndError::Terminal(e).at("receiver"))?.unzip();
        let (stop, seen) = (AtomicBool::new(false), AtomicU64::new(0));
        let (ready, is_ready) = mpsc::sync_channel::<()>(1);
        let books = &mut self.books;
        let pair = &self.pair;
        // The exchange represents another host, so it has its own CPU.
        let exchange_cpus: Vec<usize> = self.cpus.first().copied().into_iter().collect();
        let receiver_cpus: Vec<usize> = config.cpu.into_iter().collect();
        let (sent, received) = thread::scope(|scope| {
            // Only the receiver keeps the terminal open: the emulator ends with it.
            let emulator = pty.take().map(|Pty { mut master, .. }| {
                start(scope, "terminal", move || {
                    let mut shown = vec![0; 65_536];
                    let mut line_count = 0;
                    while let Ok(bytes @ 1..) = master.read(&mut shown) {
                        line_count += shown[..bytes].iter().filter(|&&b| b == b'\n').count();
                    }
                    Ok::<_, EndError>((sys::clock::thread_cpu_ns(), line_count as u64))
                })
            });
            let (stop, seen, listening) = (&stop, &seen, &listening);
            let receiver = start(scope, "receiver", move || -> Result<Received, EndError> {
                settle(&pair.far, &receiver_cpus)?;
                let group = *GROUP.ip();
                let membership = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
                    .and_then(|socket| {
                        socket.join_multicast_v4(&group, &pair.far.ip).map(|()| socket)
                    })
                    .map_err(|source| EndError::Join { group, source })?;
                let mut engine = io::open(&setup)?;
                if let Some(priority) = config.fifo {
                    sys::sched::set_fifo(priority).map_err(EndError::Fifo)?;
                }
                let _ = ready.send(());
                drop(ready);
                let received =
                    receiver::receive(&mut engine, listening, books, terminal, stop, seen);
                drop(membership);
                Ok(received?)
            });
            let sent = is_ready.recv().is_ok().then(|| {
                let sender = start(scope, "exchange", || {
                    settle(&pair.near, &exchange_cpus)?;
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
            let mut received = received.map_err(|e| e.at("receiver"))?;
            if let Some((cpu_ns, line_count)) = shown.map_err(|e| e.at("terminal"))? {
                received.cost.user_ns += cpu_ns;
                received.engine.counters.push(("printed_line_count".into(), line_count));
            }
            let sent = sent.unwrap_or(Err(EndError::NotReady));
            Ok::<_, PathError>((sent.map_err(|e| e.at("exchange"))?, received))
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
