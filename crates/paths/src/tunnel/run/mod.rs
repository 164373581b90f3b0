//! `tunnel run`: a forwarder between two interfaces of this host, by a configuration that can
//! change while frames pass.

mod live;
mod ports;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ::io::IoError;
use ::io::clock::monotonic_ns;
use ::io::forward::{Pool, XskError};
use host::net::{self, LinkWatch, NetError};

use super::config::Config;
use super::encap::Encap;
use super::fdb::{FdbError, FdbSpec, Mac, Port};
use super::forward::{Forwarder, ForwarderError, ForwarderSpec, RulesSpec, Tuning, Worker};
use super::spec::TunnelError;
use crate::text::chain;

pub use live::Live;

use ports::Opened;

/// How often the operator is asked.
const ASK: Duration = Duration::from_millis(50);
/// How long a worker sleeps while nothing comes; shorter while frames wait for the shaper.
const NAP: Duration = Duration::from_millis(20);
const NAP_SHAPING: Duration = Duration::from_micros(200);
/// Looks that found nothing before a worker sleeps.
const IDLE_TURNS: u32 = 100;
/// Pause of a worker that could not send, before it tries again.
const PAUSE: Duration = Duration::from_millis(10);

/// Why a forwarder did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// An interface, route or neighbour.
    #[error(transparent)]
    Net(#[from] NetError),
    /// A socket or a BPF program.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The configuration asks for what cannot be had here.
    #[error("{key}: {problem}; {remedy}")]
    Unsupported {
        /// Key of the configuration.
        key: String,
        /// What is wrong.
        problem: String,
        /// What to write, or to do, instead.
        remedy: String,
    },
    /// A tunnel makes no sense.
    #[error("tunnel {name}: {source}")]
    Tunnel {
        /// Its name.
        name: String,
        /// Why.
        source: TunnelError,
    },
    /// A static address has no place.
    #[error("fdb.entries: {0}")]
    Fdb(#[from] FdbError),
    /// The parts do not make a forwarder.
    #[error(transparent)]
    Forwarder(#[from] ForwarderError),
    /// Memory, threads, sockets.
    #[error("{what}")]
    System {
        /// What was tried.
        what: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// Whoever runs a forwarder.
pub trait Operator {
    /// Whether it is to end; asked twenty times a second.
    fn wants_end(&mut self) -> bool;

    /// Another configuration, if there is one; asked as often.
    fn new_config(&mut self) -> Option<Config>;

    /// Something to tell people.
    fn note(&mut self, note: &str);

    /// All is open, and no thread made yet: what is left to do needs no capability but those that
    /// reading a configuration takes.
    fn opened(&mut self) -> io::Result<()>;

    /// The state, once a second and at the end.
    fn live(&mut self, live: &Live);
}

/// State that the workers share with whoever watches them.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    error_count: AtomicU64,
    last_error: Mutex<Option<String>>,
    /// Name of an interface that is no longer there.
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

/// Forwards until the operator has enough, or an interface is gone.
///
/// Needs CAP_NET_ADMIN, CAP_NET_RAW and, for AF_XDP, CAP_BPF and CAP_PERFMON.
pub fn run(config: Config, operator: &mut impl Operator) -> Result<(), RunError> {
    let pool = ports::pool(&config)?;
    let opened = ports::open(&pool, &config, operator)?;
    let Opened { port, underlay, under_mac, xdp_sockets, _silencer } = opened;
    let seed = monotonic_ns() ^ u64::from(std::process::id()) << 32;
    let rules = rules(&config, under_mac, operator)?;
    let forwarder = Forwarder::new(
        &pool,
        port,
        underlay,
        ForwarderSpec {
            rules,
            fdb: config.table(seed)?,
            shaper: config.shaper(monotonic_ns()),
            order: config.order,
            tuning: Tuning::default(),
        },
    )?;
    let give_up = |source| RunError::System { what: "giving up rights".into(), source };
    operator.opened().map_err(give_up)?;
    let shared = Shared::default();
    // A socket that is waited for says nothing of an interface that has gone.
    let mut links = [&config.port.name, &config.underlay.name]
        .map(|name| LinkWatch::new(net::link_named(name).ok()?.index).ok());
    let frames: Vec<AtomicU64> = (0..config.workers).map(|_| AtomicU64::new(0)).collect();
    let cpus = ::io::affinity::allowed_cpus().unwrap_or_default();
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (n, frames) in frames.iter().enumerate() {
            // With a CPU for each, none is moved; else the scheduler knows better.
            let cpu = (config.workers <= cpus.len()).then(|| cpus.get(n).copied()).flatten();
            let (forwarder, shared) = (&forwarder, &shared);
            let builder = thread::Builder::new().name(format!("tunnel-{n}"));
            let started = builder.spawn_scoped(scope, move || work(forwarder, shared, frames, cpu));
            match started {
                Ok(thread) => threads.push(thread),
                Err(source) => {
                    shared.stop.store(true, Ordering::Relaxed);
                    return Err(RunError::System { what: "starting a worker".into(), source });
                }
            }
        }
        let mut watch = Watch {
            config,
            seed,
            under_mac,
            begun: Instant::now(),
            dead: vec![false; threads.len()],
            xdp_sockets,
        };
        while !operator.wants_end() && shared.gone.get().is_none() {
            let second = Instant::now();
            while second.elapsed() < Duration::from_secs(1) && !operator.wants_end() {
                thread::sleep(ASK);
                if let Some(config) = operator.new_config() {
                    watch.reload(config, &forwarder, operator);
                }
                for (n, thread) in threads.iter().enumerate() {
                    if thread.is_finished() && !std::mem::replace(&mut watch.dead[n], true) {
                        operator.note(&format!("worker {n} has died; the others go on"));
                    }
                }
                if let Some(name) = links.iter_mut().flatten().find_map(LinkWatch::gone) {
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
            // A panic was told of above; its hole is in the books.
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

/// What a worker does until it is told to stop.
fn work(forwarder: &Forwarder<'_>, shared: &Shared, frames: &AtomicU64, cpu: Option<usize>) {
    if let Some(cpu) = cpu {
        // Elsewhere it works as well.
        let _ = ::io::affinity::pin_to(&[cpu]);
    }
    // Of what is kept to read a configuration, frames need nothing; without it they pass as well.
    let _ = ::io::capability::keep(&[]);
    let mut worker = Worker::default();
    let mut idle_turns = 0;
    while !shared.stop.load(Ordering::Relaxed) {
        match forwarder.turn(&mut worker, monotonic_ns()) {
            Ok(0) if idle_turns >= IDLE_TURNS => {
                // Who finds the queues in use leaves it to their user to look again.
                let waits = forwarder.queued().is_some_and(|count| count > 0);
                let nap = if waits { NAP_SHAPING } else { NAP };
                // A signal or an error is met again at the next turn.
                let _ = forwarder.wait(nap);
            }
            Ok(0) => idle_turns += 1,
            Ok(_) => {
                idle_turns = 0;
                frames.store(worker.frame_count, Ordering::Relaxed);
            }
            Err(error) => {
                shared.failed(&error);
                thread::sleep(PAUSE);
            }
        }
    }
}

/// Rules for the tunnels of a configuration, the MAC addresses of their next hops looked up.
fn rules(
    config: &Config,
    under_mac: net::Mac,
    operator: &mut impl Operator,
) -> Result<RulesSpec, RunError> {
    let mut encaps = Vec::with_capacity(config.tunnels.len());
    for tunnel in &config.tunnels {
        let next_hop = match (tunnel.next_hop, tunnel.tunnel.remote) {
            (Some(mac), _) => mac,
            (None, IpAddr::V4(remote)) => {
                let found = net::resolve(remote, Some(&config.underlay.name))?;
                if u32::from(config.underlay.mtu_bytes) > found.mtu_bytes {
                    operator.note(&format!(
                        "underlay.mtu is {}, and {} carries {}: larger frames will be lost",
                        config.underlay.mtu_bytes, found.ifname, found.mtu_bytes
                    ));
                }
                found.next_hop_mac
            }
            (None, IpAddr::V6(remote)) => {
                return Err(RunError::Unsupported {
                    key: "tunnel.next_hop".into(),
                    problem: format!("the neighbour for {remote} is not looked up"),
                    remedy: "give the MAC address of the next hop (`ip -6 neigh`)".into(),
                });
            }
        };
        let encap = Encap::new(tunnel.tunnel, tunnel.outer(under_mac, next_hop))
            .map_err(|source| RunError::Tunnel { name: tunnel.name.clone(), source })?;
        operator.note(&format!(
            "tunnel {}: {} to {} by {}, inner frames up to {} bytes",
            tunnel.name,
            tunnel.tunnel.local,
            tunnel.tunnel.remote,
            Mac(next_hop),
            encap.inner_bytes_max()
        ));
        encaps.push(encap);
    }
    Ok(RulesSpec {
        encaps,
        decap: config.decap(),
        learns: config.learns,
        classifier: config.classifier(),
        policer: config.qos.policer,
    })
}

/// What whoever watches the workers knows.
struct Watch {
    config: Config,
    seed: u64,
    under_mac: net::Mac,
    begun: Instant,
    dead: Vec<bool>,
    xdp_sockets: bool,
}

impl Watch {
    /// Takes another configuration over, as far as that can be done while frames pass; what is
    /// wrong with it leaves all as it was.
    fn reload(&mut self, new: Config, forwarder: &Forwarder<'_>, operator: &mut impl Operator) {
        let fixed = self.config.fixed_differences(&new);
        if !fixed.is_empty() {
            operator.note(&format!(
                "not reloaded: {} can change only at a start; put it back, or start anew",
                fixed.join(", ")
            ));
            return;
        }
        let rules = match rules(&new, self.under_mac, operator) {
            Ok(rules) => rules,
            Err(error) => return operator.note(&format!("not reloaded: {}", chain(&error))),
        };
        // Whether all static addresses fit is seen before anything changes.
        if let Err(error) = new.table(self.seed) {
            return operator.note(&format!("not reloaded: fdb.entries: {error}"));
        }
        let old = &self.config;
        let moved = |index: u16| {
            let tunnel = old.tunnels.get(usize::from(index))?.tunnel;
            new.tunnels.iter().position(|other| other.tunnel == tunnel).map(|at| at as u16)
        };
        let spec = FdbSpec { seed: self.seed, ..new.fdb };
        forwarder.reload(rules, |fdb| {
            let mut table = fdb.rebuilt(spec, moved);
            for entry in &new.statics {
                // There was room for all of them in an empty table, and they drive out others.
                let _ = table.add_static(0, entry.mac, Port::Tunnel(entry.tunnel as u16));
            }
            table
        });
        if new.qos != self.config.qos {
            let now_ns = monotonic_ns();
            let dropped = forwarder.set_shaper(new.shaper(now_ns), now_ns);
            if dropped > 0 {
                operator.note(&format!("{dropped} waiting frames found no room in the new queues"));
            }
        }
        self.config = new;
        operator.note(&format!("reloaded: {} tunnels", self.config.tunnels.len()));
    }

    fn live(
        &self,
        forwarder: &Forwarder<'_>,
        pool: &Pool,
        shared: &Shared,
        frames: &[AtomicU64],
    ) -> Live {
        let addresses = forwarder.addresses(monotonic_ns());
        let sockets = forwarder.sockets();
        Live {
            up: self.begun.elapsed(),
            tunnels: self.config.tunnels.iter().map(|tunnel| tunnel.name.clone()).collect(),
            counts: forwarder.counts(),
            books: forwarder.books(),
            pool: pool.balance(),
            address_count: addresses.len(),
            worker_frames: frames.iter().map(|count| count.load(Ordering::Relaxed)).collect(),
            dead_workers: self.dead.iter().filter(|dead| **dead).count(),
            error_count: shared.error_count.load(Ordering::Relaxed),
            rings: match self.xdp_sockets {
                true => sockets.map(::io::forward::xsk_statistics),
                false => [None, None],
            },
        }
    }
}

/// A socket that takes the tunnels' datagrams from the host's stack, which would answer that
/// nobody listens: AF_PACKET hears frames, and does not take them away.
fn silencer(address: IpAddr, port: u16) -> Option<UdpSocket> {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Somebody else who has the port is as good.
    UdpSocket::bind((address, port)).or_else(|_| UdpSocket::bind((any, port))).ok()
}
