//! The monitoring thread: regular work, new configurations, and the state as it is shown.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::ports::Pool;
use host::text::chain;
use sys::clock::monotonic_ns;

use super::drops::KernelDrops;
use super::keepalive::Prober;
use super::next_hop::{Follower, Links};
use super::path::PathWatch;
use super::rules::rules;
use super::{Live, Operator, RunError, RunState, own_address, ports};
use crate::config::{Config, TunnelConfig};
use crate::fdb::{Fdb, FdbPort, FdbSpec};
use crate::forwarder::Forwarder;

/// Interval of the fast path's regular work, well below the shortest ageing time.
const MAINTENANCE_INTERVAL: Duration = Duration::from_millis(250);

/// State of the monitoring thread.
pub(super) struct RunMonitor {
    pub(super) config: Config,
    pub(super) seed: u64,
    pub(super) prober: Prober,
    pub(super) follower: Follower,
    pub(super) paths: PathWatch,
    pub(super) kernel_drops: KernelDrops,
    pub(super) begun: Instant,
    pub(super) dead: Vec<bool>,
    pub(super) xdp_sockets: bool,
    /// By direction: the refusal of its target was reported.
    pub(super) refused: [bool; 2],
    pub(super) maintained: Instant,
}

impl RunMonitor {
    /// Regular work, and a message for an interface that takes no frames from the fast path.
    pub(super) fn maintain(&mut self, forwarder: &Forwarder<'_>, operator: &mut impl Operator) {
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
    pub(super) fn follow(&mut self, forwarder: &Forwarder<'_>, operator: &mut impl Operator) {
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
    pub(super) fn follow_paths(&mut self, forwarder: &Forwarder<'_>, operator: &mut impl Operator) {
        let RunMonitor { config, follower, paths, prober, .. } = self;
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
    pub(super) fn reload(
        &mut self,
        new: Config,
        forwarder: &Forwarder<'_>,
        operator: &mut impl Operator,
    ) {
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
                let _ = table.add_static(network, entry.mac, FdbPort::Tunnel(entry.tunnel as u16));
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

    pub(super) fn live(
        &mut self,
        forwarder: &Forwarder<'_>,
        pool: &Pool,
        shared: &RunState,
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

/// Index in a new configuration of a tunnel of the old one.
fn new_index(old: &Config, new: &Config, index: u16) -> Option<u16> {
    let was = old.tunnels.get(usize::from(index))?;
    let mut tunnels = new.tunnels.iter();
    let at = tunnels.position(|other| (other.tunnel, other.vlan) == (was.tunnel, was.vlan));
    at.map(|at| at as u16)
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

    fn opened(&mut self) -> std::io::Result<()> {
        Ok(())
    }

    fn live(&mut self, _: &Live) {}
}
