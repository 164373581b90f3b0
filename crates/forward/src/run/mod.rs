//! `tunnel run`: a forwarder between two interfaces of this host, with a configuration that can be
//! reloaded while frames pass.

mod drops;
mod keepalive;
mod live;
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

use ::io::IoError;
use ::io::forward::{Pool, XskError};
use host::net::{self, ChangeWatch, LinkWatch, NetError};
use sys::clock::monotonic_ns;

use super::config::{Config, Engine, TunnelConfig};
use super::fdb::{Fdb, FdbError, FdbSpec, Port};
use super::spec::TunnelError;
use crate::forwarder::{Forwarder, ForwarderError, ForwarderSpec, Tuning, Worker};
use host::text::chain;

pub use keepalive::{KeepaliveLive, Reach, short as keepalive_text};
pub use live::Live;
pub use path::PathLive;

use drops::KernelDrops;
use keepalive::Prober;
use next_hop::{Follower, Links};
use path::PathWatch;
use ports::Opened;
use rules::rules;

/// Interval at which the operator is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Interval of the fast path's regular work, well below the shortest ageing time.
const MAINTENANCE_INTERVAL: Duration = Duration::from_millis(250);
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
        /// Remedy.
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

/// Operator that is told nothing: for rules of which one was just reported.
struct Quiet;

impl Operator for Quiet {
    fn wants_end(&mut self) -> bool {
        false
    }

    fn new_config(&mut self) -> Option<Config> {
        None
    }

    fn note(&mut self, _: &str) {}

    fn opened(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn live(&mut self, _: &Live) {}
}

/// State shared by the workers and the monitoring thread.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    error_count: AtomicU64,
    last_error: Mutex<Option<String>>,
    /// Name of an interface that was removed.
    gone: OnceLock<String>,
}

impl Shared {
    fn failed(&self, error: &IoError) {
        self.error_count.fetch_add(1, Ordering::Relaxed);
        if let IoError::Gone { ifname } | IoError::Xsk(XskError::Gone { ifname }) = error {
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
    let shared = Shared::default();
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
        let mut watch = Monitor {
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
                watch.follower.wait(POLL_INTERVAL);
                watch.follow(&forwarder, operator);
                watch.follow_paths(&forwarder, operator);
                watch.prober.maintain(&watch.config, &forwarder, operator);
                watch.maintain(&forwarder, operator);
                if let Some(config) = operator.new_config() {
                    watch.reload(config, &forwarder, operator);
                }
                for (n, thread) in threads.iter().enumerate() {
                    if thread.is_finished() && !std::mem::replace(&mut watch.dead[n], true) {
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
            operator.live(&watch.live(&forwarder, &pool, &shared, &frames));
        }
        shared.stop.store(true, Ordering::Relaxed);
        for thread in threads {
            // The panic was reported above; its hole is in the counters.
            let _ = thread.join();
        }
        operator.live(&watch.live(&forwarder, &pool, &shared, &frames));
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
    if config.engine != Engine::Tap {
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

/// Index in a new configuration of a tunnel of the old one.
fn new_index(old: &Config, new: &Config, index: u16) -> Option<u16> {
    let was = old.tunnels.get(usize::from(index))?;
    let mut tunnels = new.tunnels.iter();
    let at = tunnels.position(|other| (other.tunnel, other.vlan) == (was.tunnel, was.vlan));
    at.map(|at| at as u16)
}

/// Adds the address of the port's interface: no sender behind a tunnel takes it over.
fn own_address(mut fdb: Fdb, config: &Config) -> Result<Fdb, RunError> {
    if let Some(mac) = net::link_named(&config.port.name)?.mac {
        let networks: BTreeSet<u16> = config.tunnels.iter().map(TunnelConfig::network).collect();
        for network in networks {
            fdb.add_static(network, mac, Port::Local(0))?;
        }
    }
    Ok(fdb)
}

/// Loop of a worker until the stop flag is set.
fn work(forwarder: &Forwarder<'_>, shared: &Shared, frames: &AtomicU64, cpu: Option<usize>) {
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

/// State of the monitoring thread.
struct Monitor {
    config: Config,
    seed: u64,
    prober: Prober,
    follower: Follower,
    paths: PathWatch,
    kernel_drops: KernelDrops,
    begun: Instant,
    dead: Vec<bool>,
    xdp_sockets: bool,
    /// By direction: the refusal of its target was reported.
    refused: [bool; 2],
    maintained: Instant,
}

impl Monitor {
    /// Regular work, and a message for an interface that takes no frames from the fast path.
    fn maintain(&mut self, forwarder: &Forwarder<'_>, operator: &mut impl Operator) {
        if self.maintained.elapsed() < MAINTENANCE_INTERVAL {
            return;
        }
        self.maintained = Instant::now();
        forwarder.maintain(monotonic_ns());
        let names = [&self.config.underlay.name, &self.config.port.name];
        for ((error, name), told) in forwarder.refusals().iter().zip(names).zip(&mut self.refused) {
            let Some(error) = error else { continue };
            if !std::mem::replace(told, true) {
                operator.note(&format!(
                    "{name} takes no frames from XDP programs ({error}); frames towards it go through \
                     AF_XDP. If it is a veth, switch GRO on at its other end (ethtool -K PEER gro on) \
                     and restart"
                ));
            }
        }
    }

    /// Writes new outer headers after a change of a route, a neighbour or the underlay's own address.
    fn follow(&mut self, forwarder: &Forwarder<'_>, operator: &mut impl Operator) {
        let Some(links) = self.follower.changed(&self.config, operator) else { return };
        match rules(&self.config, &links, &self.prober, operator) {
            Ok(rules) => {
                forwarder.reload(rules, Fdb::clone);
                self.follower.links = links;
            }
            Err(error) => operator.note(&format!("next hops not changed: {}", chain(&error))),
        }
    }

    /// Writes new outer headers after a change of a path's MTU.
    fn follow_paths(&mut self, forwarder: &Forwarder<'_>, operator: &mut impl Operator) {
        let Monitor { config, follower, paths, prober, .. } = self;
        if !paths.follow(config, &mut follower.links, forwarder, operator) {
            return;
        }
        match rules(config, &follower.links, prober, &mut Quiet) {
            Ok(rules) => forwarder.reload(rules, Fdb::clone),
            Err(error) => {
                operator.note(&format!("the path's MTU is not obeyed: {}", chain(&error)));
            }
        }
    }

    /// Applies a new configuration while frames pass. A configuration with errors, or with a change
    /// that needs a restart, changes nothing.
    fn reload(&mut self, new: Config, forwarder: &Forwarder<'_>, operator: &mut impl Operator) {
        let fixed = self.config.fixed_differences(&new);
        if !fixed.is_empty() {
            operator.note(&format!(
                "not reloaded: {} can change only at a start; restore it, or restart",
                fixed.join(", ")
            ));
            return;
        }
        let found = self.prober.renewed(&new).and_then(|prober| {
            let mut links = Links::find(&new)?;
            links.keep_learnt(&new, &self.follower.links, &self.config);
            Ok((rules(&new, &links, &prober, operator)?, links, prober))
        });
        let (rules, links, prober) = match found {
            Ok(found) => found,
            Err(error) => return operator.note(&format!("not reloaded: {}", chain(&error))),
        };
        // Checked before any change: all static addresses must fit.
        let table = new.table(self.seed).map_err(RunError::from);
        if let Err(error) = table.and_then(|table| own_address(table, &new)) {
            return operator.note(&format!("not reloaded: {}", chain(&error)));
        }
        // Before the rules: frames of a tunnel that is new are dropped until those are in force.
        if let [_, Some(filter)] = forwarder.filters()
            && let Err(error) = filter.set_tunnels(&ports::tunnel_ids(&new))
        {
            return operator
                .note(&format!("not reloaded: {}; restart to change the tunnels", chain(&error)));
        }
        let old = &self.config;
        let spec = FdbSpec { seed: self.seed, ..new.fdb };
        forwarder.reload(rules, |fdb| {
            let mut table = fdb.rebuilt(spec, |index| new_index(old, &new, index));
            for entry in &new.statics {
                // They fit an empty table (checked above), and replace learnt addresses.
                let network = new.tunnels.get(entry.tunnel).map_or(0, TunnelConfig::network);
                let _ = table.add_static(network, entry.mac, Port::Tunnel(entry.tunnel as u16));
            }
            own_address(table.clone(), &new).unwrap_or(table)
        });
        if new.qos != self.config.qos {
            let now_ns = monotonic_ns();
            let dropped = forwarder.set_shaper(new.shaper(now_ns), now_ns);
            if dropped > 0 {
                operator.note(&format!("{dropped} queued frames did not fit the new queues"));
            }
        }
        self.follower.links = links;
        self.paths.reset();
        self.prober = prober;
        self.config = new;
        let count = self.config.tunnels.len();
        operator.note(&format!("reloaded: {count} tunnel{}", if count == 1 { "" } else { "s" }));
    }

    fn live(
        &mut self,
        forwarder: &Forwarder<'_>,
        pool: &Pool,
        shared: &Shared,
        frames: &[AtomicU64],
    ) -> Live {
        let addresses = forwarder.addresses(monotonic_ns());
        Live {
            up: self.begun.elapsed(),
            tunnels: self.config.tunnels.iter().map(|tunnel| tunnel.name.clone()).collect(),
            counts: forwarder.counts(),
            books: forwarder.counters(),
            pool: pool.balance(),
            address_count: addresses.len(),
            worker_frames: frames.iter().map(|count| count.load(Ordering::Relaxed)).collect(),
            dead_workers: self.dead.iter().filter(|dead| **dead).count(),
            error_count: shared.error_count.load(Ordering::Relaxed),
            rings: if self.xdp_sockets { forwarder.ring_statistics() } else { [None, None] },
            queue_frames: forwarder.queue_frames(),
            keepalives: self.prober.live(),
            kernel_drops: self.kernel_drops.read(forwarder),
            paths: self.paths.live(&self.config, &self.follower.links),
        }
    }
}
