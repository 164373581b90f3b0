//! `tunnel run`: a forwarder between two interfaces of this host, with a configuration that can be
//! reloaded while frames pass.

mod drops;
mod keepalive;
mod live;
mod monitor;
mod next_hop;
mod path;
mod ports;
mod rules;

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::ports::XskError;
use ::io::{IoError, SocketError};
use host::net::{self, ChangeWatch, LinkWatch, NetError};
use sys::clock::monotonic_ns;

use super::config::{Config, ForwardEngine, TunnelConfig};
use super::fdb::{Fdb, FdbError, FdbPort};
use super::spec::TunnelError;
use crate::forwarder::{Forwarder, ForwarderError, ForwarderSpec, Tuning, Worker};
use host::text::chain;

pub use keepalive::{KeepaliveLive, Reach, short as keepalive_text};
pub use live::Live;
pub use path::PathLive;

use drops::KernelDrops;
use keepalive::Prober;
use monitor::RunMonitor;
use next_hop::{Follower, Links};
use path::PathWatch;
use ports::Opened;
use rules::rules;

/// Interval at which the operator is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Sleep of an idle worker; shorter while frames wait for the shaper.
const IDLE_TIMEOUT: Duration = Duration::from_millis(20);
const SHAPING_TIMEOUT: Duration = Duration::from_micros(200);
/// Empty polls before a worker sleeps.
const IDLE_TURNS: u32 = 100;
/// Pause of a worker after a failed send, before it retries.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Error that prevents a forwarder from starting, or ends it.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// An interface, route or neighbour.
    #[error(transparent)]
    Net(#[from] NetError),
    /// A socket or a BPF program.
    #[error(transparent)]
    Io(#[from] IoError),
    /// Configuration not possible on this host.
    #[error("{key}: {problem}; {remedy}")]
    Unsupported {
        /// Key of the configuration.
        key: String,
        /// Message, without the key.
        problem: String,
        /// Change of the file or the host that removes it.
        remedy: String,
    },
    /// A tunnel is invalid.
    #[error("tunnel {name}: {source}")]
    Tunnel {
        /// Its name.
        name: String,
        /// Cause.
        source: TunnelError,
    },
    /// A static address does not fit into the table.
    #[error("fdb.entries: {0}")]
    Fdb(#[from] FdbError),
    /// The forwarder cannot be created.
    #[error(transparent)]
    Forwarder(#[from] ForwarderError),
    /// A system call for memory, threads or capabilities failed.
    #[error("{what}")]
    System {
        /// Operation that failed.
        what: String,
        /// Error of the kernel.
        #[source]
        source: io::Error,
    },
}

/// Callbacks of a running forwarder to its operator.
pub trait Operator {
    /// True to stop the forwarder; polled twenty times a second.
    fn wants_end(&mut self) -> bool;

    /// A new configuration, if there is one; polled as often.
    fn new_config(&mut self) -> Option<Config>;

    /// A message for the user.
    fn note(&mut self, note: &str);

    /// Called when everything is open and before any thread starts: from here on, only the
    /// capabilities to read a configuration are needed.
    fn opened(&mut self) -> io::Result<()>;

    /// Reports the state, once a second and at the end.
    fn live(&mut self, live: &Live);
}

/// State shared by the workers and the monitoring thread.
#[derive(Default)]
struct RunState {
    stop: AtomicBool,
    error_count: AtomicU64,
    last_error: Mutex<Option<String>>,
    /// Name of an interface that was removed.
    gone: OnceLock<String>,
}

impl RunState {
    fn failed(&self, error: &IoError) {
        self.error_count.fetch_add(1, Ordering::Relaxed);
        if let IoError::Gone { ifname } | IoError::Xsk(SocketError(XskError::Gone { ifname })) =
            error
        {
            let _ = self.gone.set(ifname.clone());
        }
        let mut last = self.last_error.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some(chain(error));
    }

    fn take_error(&self) -> Option<String> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Forwards until the operator stops it or an interface is removed.
///
/// Needs CAP_NET_ADMIN, CAP_NET_RAW and, for AF_XDP, CAP_BPF and CAP_PERFMON.
pub fn run(config: Config, operator: &mut impl Operator) -> Result<(), RunError> {
    let cpus = allowed_cpus(&config)?;
    let pool = ports::pool(&config)?;
    let opened = ports::open(&pool, &config, operator)?;
    let Opened {
        port,
        underlay,
        xdp_sockets,
        is_unfinished,
        fast,
        slow_paths,
        _silencer,
        _promiscuous,
    } = opened;
    let kernel_drops = KernelDrops::begin(&config, &slow_paths);
    let changes = ChangeWatch::new().ok();
    let links = Links::find(&config)?;
    let seed = monotonic_ns() ^ u64::from(std::process::id()) << 32;
    let prober = Prober::default().renewed(&config)?;
    let rules = rules(&config, &links, &prober, operator)?;
    let paths = PathWatch::open(&config, operator);
    let forwarder = Forwarder::new(
        &pool,
        port,
        underlay,
        ForwarderSpec {
            rules,
            fdb: own_address(config.table(seed)?, &config)?,
            shaper: config.shaper(monotonic_ns()),
            order: config.order,
            tuning: Tuning::default(),
            is_unfinished,
            fast,
        },
    )?;
    forwarder.attach(::io::XdpMode::Native)?;
    operator
        .opened()
        .map_err(|source| RunError::System { what: "cannot drop capabilities".into(), source })?;
    let shared = RunState::default();
    // Waiting on a socket does not report a removed interface.
    let mut interfaces = [&config.port.name, &config.underlay.name]
        .map(|name| LinkWatch::new(net::link_named(name).ok()?.index).ok());
    let frames: Vec<AtomicU64> = (0..config.workers).map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (n, frames) in frames.iter().enumerate() {
            let cpu = match config.cpus.len() {
                // Pinned only if every worker has a CPU to itself.
                0 => (config.workers <= cpus.len()).then(|| cpus.get(n).copied()).flatten(),
                count => Some(config.cpus[n % count]),
            };
            let (forwarder, shared) = (&forwarder, &shared);
            let builder = thread::Builder::new().name(format!("tunnel-{n}"));
            let started = builder.spawn_scoped(scope, move || work(forwarder, shared, frames, cpu));
            match started {
                Ok(thread) => threads.push(thread),
                Err(source) => {
                    shared.stop.store(true, Ordering::Relaxed);
                    return Err(RunError::System { what: "cannot start a worker".into(), source });
                }
            }
        }
        let mut monitor = RunMonitor {
            config,
            seed,
            prober,
            follower: Follower::new(changes, links),
            paths,
            kernel_drops,
            begun: Instant::now(),
            dead: vec![false; threads.len()],
            xdp_sockets,
            refused: [false; 2],
            maintained: Instant::now(),
        };
        while !operator.wants_end() && shared.gone.get().is_none() {
            let second = Instant::now();
            while second.elapsed() < Duration::from_secs(1) && !operator.wants_end() {
                monitor.follower.wait(POLL_INTERVAL);
                monitor.follow(&forwarder, operator);
                monitor.follow_paths(&forwarder, operator);
                monitor.prober.maintain(&monitor.config, &forwarder, operator);
                monitor.maintain(&forwarder, operator);
                if let Some(config) = operator.new_config() {
                    monitor.reload(config, &forwarder, operator);
                }
                for (n, thread) in threads.iter().enumerate() {
                    if thread.is_finished() && !std::mem::replace(&mut monitor.dead[n], true) {
                        operator.note(&format!("worker {n} has panicked; the others continue"));
                    }
                }
                if let Some(name) = interfaces.iter_mut().flatten().find_map(LinkWatch::gone) {
                    let _ = shared.gone.set(name.to_owned());
                }
                if shared.gone.get().is_some() {
                    break;
                }
                if let Some(error) = shared.take_error() {
                    operator.note(&error);
                }
            }
            operator.live(&monitor.live(&forwarder, &pool, &shared, &frames));
        }
        shared.stop.store(true, Ordering::Relaxed);
        for thread in threads {
            // The panic was reported above; its hole is in the counters.
            let _ = thread.join();
        }
        operator.live(&monitor.live(&forwarder, &pool, &shared, &frames));
        Ok(())
    })?;
    match shared.gone.into_inner() {
        Some(ifname) => Err(IoError::Gone { ifname }.into()),
        None => Ok(()),
    }
}

/// Checks on this host what a start would refuse: CPUs, interfaces, addresses and routes. Opens and sends
/// nothing.
pub fn check(config: &Config) -> Result<(), RunError> {
    allowed_cpus(config)?;
    ports::check(config)?;
    next_hop::check_routes(config)?;
    if config.engine != ForwardEngine::Tap {
        own_address(config.table(0)?, config)?;
    }
    Ok(())
}

/// CPUs of this process. Errors: the file names others.
fn allowed_cpus(config: &Config) -> Result<Vec<usize>, RunError> {
    let allowed = sys::affinity::allowed_cpus().unwrap_or_default();
    match config.cpus.iter().find(|cpu| !allowed.contains(cpu)) {
        None => Ok(allowed),
        Some(cpu) => Err(RunError::Unsupported {
            key: "cpus".into(),
            problem: format!("CPU {cpu} is not available to this process"),
            remedy: format!("give some of {allowed:?}"),
        }),
    }
}

/// Adds the address of the port's interface: no sender behind a tunnel takes it over.
fn own_address(mut fdb: Fdb, config: &Config) -> Result<Fdb, RunError> {
    if let Some(mac) = net::link_named(&config.port.name)?.mac {
        let networks: BTreeSet<u16> = config.tunnels.iter().map(TunnelConfig::network).collect();
        for network in networks {
            fdb.add_static(network, mac, FdbPort::Local(0))?;
        }
    }
    Ok(fdb)
}

/// Loop of a worker until the stop flag is set.
fn work(forwarder: &Forwarder<'_>, shared: &RunState, frames: &AtomicU64, cpu: Option<usize>) {
    if let Some(cpu) = cpu {
        // A failure costs speed only.
        let _ = sys::affinity::pin_to(&[cpu]);
    }
    // Workers need none of the capabilities for reading a configuration.
    let _ = sys::capability::keep(&[]);
    let mut worker = Worker::default();
    let mut idle_turns = 0;
    while !shared.stop.load(Ordering::Relaxed) {
        match forwarder.turn(&mut worker, monotonic_ns()) {
            Ok(0) if idle_turns >= IDLE_TURNS => {
                // If the queues are in use, the worker that holds them polls again.
                let waits = forwarder.queued().is_some_and(|count| count > 0);
                let timeout = if waits { SHAPING_TIMEOUT } else { IDLE_TIMEOUT };
                // An interruption is harmless, and an error recurs at the next turn.
                let _ = forwarder.wait(timeout);
            }
            Ok(0) => idle_turns += 1,
            Ok(_) => {
                idle_turns = 0;
                frames.store(worker.frame_count, Ordering::Relaxed);
            }
            Err(error) => {
                shared.failed(&error);
                thread::sleep(RETRY_INTERVAL);
            }
        }
    }
}
