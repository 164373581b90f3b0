//! Trials of the feed: an exchange and a receiver, in a lab or between this host and a far end.

use std::io::Read;
use std::net::{Ipv4Addr, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use host::cpu::CpuClock;
use io::Setup;
use model::{Arm, ArmKind, Machine, Measurement};
use sys::pty::Pty;
use sys::thread::{Started, start};

use super::FeedLoad;
use super::accounting::{Zero, measurement};
use super::error::EndError;
use super::interrupts::DeviceInterrupts;
use super::publisher::{self, Sent};
use super::receiver::{self, ReceivedQuotes};
use super::recording::Recording;
use super::script::{Quotes, Script, Timing};
use super::switches::{Config, Switch};
use super::world::{Cpus, Exchange, GROUP, World};
use lab::peers::{LabStarts, PeerJob, Peers, Traffic};
use lab::{Meter, Placement, drain, local, settle};
use marketdata::symbols::Symbols;
use model::{Load, PathError, Session};

/// Order books of the receiver; the synthetic session has fewer instruments.
const BOOKS_MAX: u32 = 8192;
/// Typical datagram size, for peer programs.
pub(super) const TYPICAL_BYTES: usize = 113;
/// Silence at the receiver that ends a trial, and the longest wait for it.
const ARRIVAL_GRACE: Duration = Duration::from_millis(25);
const ARRIVAL_GRACE_MAX: Duration = Duration::from_secs(2);
/// Quotes of the calibration, and their rate.
const CALIBRATION_COUNT: usize = 1000;
const CALIBRATION_PPS: u64 = 10_000;

/// Both ends and the state kept between trials.
pub(super) struct FeedSession {
    world: World,
    load: Load,
    kind: FeedLoad,
    cpus: Cpus,
    clock: Rc<CpuClock>,
    books: Symbols,
    run: u64,
    zero: Zero,
    peers: Peers,
    /// Load of all trials; `None` for quotes of a synthetic session.
    recording: Option<Arc<Recording>>,
    /// Of the lab.
    starts: LabStarts,
}

/// Script and result of one run.
struct Run {
    script: Script,
    sent: Sent,
    received: ReceivedQuotes,
    /// CPU time of an exchange in another process of this machine.
    exchange_cpu_ns: u64,
}

impl FeedSession {
    /// - `kind`: timing of the quotes, unless there is a recording.
    pub(super) fn open(
        load: &Load,
        kind: FeedLoad,
        recording: Option<Recording>,
    ) -> Result<Self, PathError> {
        let world = World::open(load)?;
        let cpus = world.cpus()?;
        let clock = Rc::new(CpuClock::open().map_err(PathError::part)?);
        let mut session = FeedSession {
            world,
            load: load.clone(),
            kind,
            cpus,
            clock,
            books: Symbols::new(BOOKS_MAX),
            run: sys::clock::realtime_ns(),
            zero: Zero::default(),
            peers: Peers::default(),
            recording: recording.map(Arc::new),
            starts: LabStarts::default(),
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
        let config = Config::new(&arm, self.cpus.receiver);
        let quotes = self.quotes(FeedLoad::Paced, CALIBRATION_PPS, CALIBRATION_COUNT);
        let Run { script, sent, received, .. } = self.run_script(&config, &quotes)?;
        let zero = Zero::calibrated(&script, &sent, &received.arrivals);
        self.zero = zero.ok_or_else(|| self.nothing_arrived())?;
        Ok(())
    }

    fn nothing_arrived(&self) -> PathError {
        let why = match self.world {
            World::Lab(_) => EndError::NoArrival,
            World::TwoEnds(_) => {
                let ifname = self.world.receiver().ifname.clone();
                EndError::NotDelivered { group: GROUP, ifname }
            }
        };
        why.at("receiver")
    }

    /// Quotes of the next run.
    fn quotes(&mut self, kind: FeedLoad, rate_pps: u64, count: usize) -> Quotes {
        self.run += 1;
        Quotes { seed: self.run, kind, rate_pps, count }
    }

    fn variant(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        // Clocks of two hosts drift apart between trials.
        if !self.world.place().has_one_clock {
            self.calibrate()?;
        }
        let (kind, rate_pps) = (self.kind, self.load.rate_pps);
        let schedule = Timing::new(kind, rate_pps).schedule;
        let count = schedule.count_within(self.load.trial.as_nanos() as u64);
        let quotes = self.quotes(kind, rate_pps, count as usize);
        let config = Config::new(arm, self.cpus.receiver);
        let settings = config.apply(self.world.receiver())?;
        let clock = self.clock.clone();
        let meter = Meter::start(&clock, &self.used_cpus(&config))?;
        let interrupts = self.world.interrupts().map(DeviceInterrupts::read);
        let Run { script, sent, received, exchange_cpu_ns } = self.run_script(&config, &quotes)?;
        let interrupts = self.world.interrupts().map(DeviceInterrupts::read).zip(interrupts);
        let used = meter.stop()?.with_children(exchange_cpu_ns);
        let locked_bytes = sys::sched::locked_bytes();
        drop(settings);
        let place = self.world.place();
        let mut m = measurement(&script, &sent, received, self.zero, place);
        used.account(&mut m);
        if let Some((after, before)) = interrupts {
            after.account(&before, place.end, &mut m);
        }
        config.report(&mut m, place.end, locked_bytes, self.cpus.count);
        Ok(m)
    }

    /// CPUs of exchange and receiver; empty for any, as of the terminal.
    fn used_cpus(&self, config: &Config) -> Vec<usize> {
        match config.cpu {
            Some(cpu) if !config.prints => self.cpus.exchange.into_iter().chain([cpu]).collect(),
            _ => Vec::new(),
        }
    }

    /// The script, for each end its own.
    fn script(&self, quotes: &Quotes) -> Script {
        match &self.recording {
            Some(recording) => Script::Recorded(recording.clone()),
            None => quotes.script(),
        }
    }

    /// Runs one trial. The receiver is listening before the first datagram is sent.
    fn run_script(&mut self, config: &Config, quotes: &Quotes) -> Result<Run, PathError> {
        let mut script = self.script(quotes);
        let listening = self.script(quotes);
        let count = script.len();
        // Bound to the group, so that other datagrams to the port are not received.
        let mut local = local(self.world.receiver(), *GROUP.ip(), GROUP.port());
        let mut engine = config.engine.clone();
        engine.all_queues = self.world.queue().is_none();
        local.queue = self.world.queue().unwrap_or(0);
        let setup = Setup::receive(&engine, &local, script.payload_bytes_max());
        let mut pty = config.prints.then(Pty::open).transpose().map_err(terminal_error)?;
        let terminal = pty.as_ref().map(|pty| pty.terminal.try_clone()).transpose();
        let terminal = terminal.map_err(terminal_error)?;
        let (stop, seen) = (AtomicBool::new(false), AtomicU64::new(0));
        let (ready, is_ready) = mpsc::sync_channel::<()>(1);
        let books = &mut self.books;
        let (receiver_end, exchange) = self.world.ends();
        // The exchange represents another host, so it has its own CPU.
        let exchange_cpus: Vec<usize> = self.cpus.exchange.into_iter().collect();
        let receiver_cpus: Vec<usize> = config.cpu.into_iter().collect();
        let ((sent, exchange_cpu_ns), received) = thread::scope(|scope| {
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
            let receiver = start(scope, "receiver", move || -> Result<ReceivedQuotes, EndError> {
                settle(receiver_end, &receiver_cpus)?;
                let group = *GROUP.ip();
                let membership = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
                    .and_then(|socket| {
                        socket.join_multicast_v4(&group, &receiver_end.ip).map(|()| socket)
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
            let sent = is_ready.recv().is_ok().then(|| match exchange {
                Exchange::Far(exchange) => exchange.publish(quotes, &mut script, GROUP),
                Exchange::Here(end) => {
                    let sender = start(scope, "exchange", || {
                        settle(end, &exchange_cpus)?;
                        publisher::publish(&mut script, end.ip, GROUP)
                    });
                    sender.end().map(|sent| (sent, 0)).map_err(|e| e.at("exchange"))
                }
            });
            if sent.is_some() {
                drain(seen, count as u64, ARRIVAL_GRACE, ARRIVAL_GRACE_MAX);
            }
            stop.store(true, Ordering::Relaxed);
            let received = receiver.end();
            let shown = emulator.map(Started::end).transpose();
            let mut received = received.map_err(|e| e.at("receiver"))?;
            if let Some((cpu_ns, line_count)) = shown.map_err(|e| e.at("terminal"))? {
                received.cost.user_ns += cpu_ns;
                received.engine.counters.push(("printed_line_count".into(), line_count));
            }
            let sent = sent.unwrap_or_else(|| Err(EndError::NotReady.at("exchange")));
            Ok::<_, PathError>((sent?, received))
        })?;
        Ok(Run { script, sent, received, exchange_cpu_ns })
    }

    fn job(&self) -> PeerJob {
        let timing = Timing::new(self.kind, self.load.rate_pps);
        let burst = timing.schedule.burst_messages();
        let traffic = Traffic::Open { rate_pps: self.load.rate_pps, burst };
        PeerJob { traffic, size_bytes: TYPICAL_BYTES, segment: "schedule→app" }
    }
}

fn terminal_error(error: std::io::Error) -> PathError {
    EndError::Terminal(error).at("receiver")
}

impl FeedSession {
    fn run_trial(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        if arm.kind != ArmKind::Peer {
            return self.variant(arm);
        }
        let (job, anywhere) = (self.job(), Placement::default());
        match &self.world {
            World::Lab(pair) => self.peers.trial(&arm.name, &job, pair, &anywhere, &self.clock),
            World::TwoEnds(_) => Err(PathError::Invalid {
                what: format!("{} between two ends", arm.name),
                remedy: "peer programs run only in the lab: omit --far".into(),
            }),
        }
    }

    /// Builds the lab and the order books anew, and measures the zero in it.
    fn start_anew(&mut self) -> Result<(), PathError> {
        self.world = World::open(&self.load)?;
        self.books = Symbols::new(BOOKS_MAX);
        if self.recording.is_none() { self.calibrate() } else { Ok(()) }
    }
}

impl Session for FeedSession {
    fn trial(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        let begun = Instant::now();
        let measured = self.run_trial(arm);
        let start = self.starts.ran(begun.elapsed(), &self.peers);
        let start = start.filter(|_| matches!(self.world, World::Lab(_)));
        measured.map(|measured| Measurement { start, ..measured })
    }

    fn begin_block(&mut self) {
        if matches!(self.world, World::TwoEnds(_)) || !self.starts.is_due(&self.peers) {
            return;
        }
        let begun = Instant::now();
        let is_new = self.start_anew().is_ok();
        self.starts.built(begun.elapsed(), is_new);
    }

    fn nic(&self) -> String {
        self.world.nic()
    }

    fn far_machine(&self) -> Option<Machine> {
        match &self.world {
            World::Lab(_) => None,
            World::TwoEnds(two) => Some(two.exchange.machine().clone()),
        }
    }
}
