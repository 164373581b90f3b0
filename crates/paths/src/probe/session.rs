//! Trials in a lab of two namespaces, or against a peer on another host.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use host::cpu::CpuClock;
use host::idle::NoIdle;
use host::lab::{End, Pair, PairSpec};
use host::steering::RpsGuard;
use io::{EngineKind, Local, Remote, Role, XdpMode};
use model::{Arm, ArmKind, Cost, Delivery, Measurement, NotEffective};

use super::peers::{self, Peer};
use super::role::{self, Live, Pace, RoleReport, Steering, Task};
use super::storm;
use super::switches::engine_of;
use super::watch::Watch;
use crate::path::{Load, PathError, Session};

/// UDP port of the far end in a lab.
const FAR_PORT: u16 = 9000;
/// UDP port of the near end in a lab.
const NEAR_PORT: u16 = 9001;

/// A lab: a near and a far end joined by a veth pair.
pub(super) struct LabSession {
    pair: Pair,
    load: Load,
    cpus: Vec<usize>,
    run: u32,
    peers: BTreeMap<String, Box<dyn Peer>>,
}

/// How the two ends of a trial are placed.
#[derive(Debug, Clone, Default)]
pub(super) struct Placement {
    pub(super) near: Vec<usize>,
    pub(super) far: Vec<usize>,
}

impl LabSession {
    pub(super) fn open(load: &Load) -> Result<Self, PathError> {
        let mtu = mtu_for(load.size_bytes);
        let spec = PairSpec { mtu_bytes: mtu, ..PairSpec::default() };
        let pair = Pair::new(&spec).map_err(PathError::part)?;
        let cpus = io::affinity::allowed_cpus().map_err(PathError::part)?;
        Ok(LabSession { pair, load: load.clone(), cpus, run: seed(), peers: BTreeMap::new() })
    }

    /// One CPU for each end, when there are two.
    fn placement(&self) -> Placement {
        match self.cpus[..] {
            [near, far, ..] => Placement { near: vec![near], far: vec![far] },
            _ => Placement::default(),
        }
    }

    fn variant(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        self.run = self.run.wrapping_add(1);
        let engine = engine_of(arm);
        let storm = self.load.kind == "storm";
        let (near_role, far_role, pace) = match self.load.kind.as_str() {
            "ping" => (Role::Ping, Role::Echo, Pace::PingPong),
            "paced" => (Role::Ping, Role::Echo, Pace::Rate(self.load.rate_pps)),
            _ => (Role::Send, Role::Receive, Pace::Flood),
        };
        let task = |role| Task {
            role,
            engine: engine.clone(),
            pace,
            payload_bytes: self.load.size_bytes,
            flows: 1,
            session: Some(self.run),
            count: None,
            duration: (role == near_role).then_some(self.load.trial),
            one_clock: false,
        };
        let mut undo: Vec<Box<dyn std::any::Any>> = Vec::new();
        if arm.has("no-idle-states") {
            undo.push(Box::new(NoIdle::hold().map_err(PathError::part)?));
        }
        let places = self.placement();
        if arm.has("rps") {
            // Each end's arrivals on that end's own CPU.
            for (end, cpus) in [(&self.pair.near, &places.near), (&self.pair.far, &places.far)] {
                undo.push(Box::new(RpsGuard::set(end, cpus).map_err(PathError::part)?));
            }
        }
        let pinned = if arm.has("pin") { places } else { Placement::default() };
        let before = CpuClock::now().map_err(PathError::part)?;
        let (near, far) = if storm {
            storm::run(&self.pair, &task(far_role), self.load.trial, &pinned)?
        } else {
            run_pair(&self.pair, &task(near_role), &task(far_role), &pinned)?
        };
        let used = CpuClock::now().map_err(PathError::part)?.since(&before);
        drop(undo);
        let mut measurement = combine(near, far, &used);
        if arm.has("rps") && engine.kind == EngineKind::Xdp && engine.xdp_mode == XdpMode::Native {
            measurement.not_effective.push(NotEffective {
                switch: "rps".into(),
                why: "the driver's XDP program redirects packets before RPS sees them".into(),
            });
        }
        Ok(measurement)
    }
}

impl Session for LabSession {
    fn trial(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        if arm.kind != ArmKind::Peer {
            return self.variant(arm);
        }
        if !self.peers.contains_key(&arm.name) {
            self.peers.insert(arm.name.clone(), peers::open(&arm.name, &self.load)?);
        }
        let Some(peer) = self.peers.get_mut(&arm.name) else {
            return Err(PathError::End { end: arm.name.clone(), why: "was not opened".into() });
        };
        let before = CpuClock::now().map_err(PathError::part)?;
        let mut measurement = peer.trial(&self.pair, &self.load)?;
        let used = CpuClock::now().map_err(PathError::part)?.since(&before);
        account(&mut measurement, &used);
        Ok(measurement)
    }

    fn nic(&self) -> String {
        format!("veth pair, 1 queue, MTU {}", mtu_for(self.load.size_bytes))
    }
}

/// Smallest usual MTU that carries a payload in one packet.
fn mtu_for(size_bytes: usize) -> u32 {
    let packet = size_bytes as u32 + 28;
    [1500, 3400, 9000].into_iter().find(|mtu| packet <= *mtu).unwrap_or(65_535)
}

/// A number that differs from run to run, so that strays of an earlier run are told apart.
pub(super) fn seed() -> u32 {
    (io::clock::realtime_ns() >> 10) as u32 ^ std::process::id().rotate_left(16)
}

/// This end and its counterpart, as an engine wants them.
pub(super) fn ends(pair: &Pair) -> ((Local, Remote), (Local, Remote)) {
    let local = |end: &End, port| Local {
        ifindex: end.ifindex,
        ifname: end.ifname.clone(),
        mtu_bytes: end.mtu_bytes,
        queue: 0,
        queues: end.queues,
        mac: end.mac,
        ip: end.ip,
        port,
    };
    let remote = |end: &End, port| Remote { mac: end.mac, ip: end.ip, port };
    (
        (local(&pair.near, NEAR_PORT), remote(&pair.far, FAR_PORT)),
        (local(&pair.far, FAR_PORT), remote(&pair.near, NEAR_PORT)),
    )
}

/// Prepares the calling thread for one end: namespace, CPUs.
pub(super) fn settle(end: &End, cpus: &[usize]) -> Result<(), String> {
    end.netns.enter().map_err(|e| format!("entering the lab: {e}"))?;
    if cpus.is_empty() {
        return Ok(());
    }
    io::affinity::pin_to(cpus).map_err(|e| format!("pinning to CPU {cpus:?}: {e}"))
}

/// Runs the far end on a thread while `near` runs on another; stops the far end when nothing
/// arrives any more.
pub(super) fn with_far<R: Send>(
    pair: &Pair,
    far_task: &Task,
    places: &Placement,
    near: impl FnOnce() -> Result<R, String> + Send,
) -> Result<(R, RoleReport), PathError> {
    let ((_, _), (far_local, _)) = ends(pair);
    let stop = AtomicBool::new(false);
    let live = Live::default();
    let (ready, is_ready) = mpsc::sync_channel::<()>(1);
    thread::scope(|scope| {
        let far = scope.spawn(|| -> Result<RoleReport, String> {
            settle(&pair.far, &places.far)?;
            let watch = Watch::new(far_local.ifindex, &far_local.ifname);
            let mut engine = io::open(
                &far_task.engine,
                far_task.role,
                &far_local,
                None,
                1,
                far_task.payload_bytes,
            )
            .map_err(|e| role::chain(&e))?;
            let _ = ready.send(());
            drop(ready);
            role::run(&mut engine, far_task, Steering { stop: &stop, live: Some(&live), watch })
        });
        let near = is_ready.recv().is_ok().then(|| scope.spawn(near).join());
        if near.is_some() {
            role::drain(&live);
        }
        stop.store(true, Ordering::Relaxed);
        let end = |end: &str| {
            let end = end.to_owned();
            move |why| PathError::End { end, why }
        };
        let panicked = |_| Err("panicked".to_owned());
        let far = far.join().unwrap_or_else(panicked).map_err(end("far"))?;
        let near = match near {
            Some(joined) => joined.unwrap_or_else(|_| Err("panicked".to_owned())),
            None => Err("the far end was not ready".to_owned()),
        };
        Ok((near.map_err(end("near"))?, far))
    })
}

fn run_pair(
    pair: &Pair,
    near_task: &Task,
    far_task: &Task,
    places: &Placement,
) -> Result<(RoleReport, RoleReport), PathError> {
    let ((near_local, near_remote), _) = ends(pair);
    with_far(pair, far_task, places, || {
        settle(&pair.near, &places.near)?;
        let stop = AtomicBool::new(false);
        role::open_and_run(near_task, &near_local, Some(&near_remote), &stop, None)
    })
}

/// Both ends' reports as one measurement.
pub(super) fn combine(near: RoleReport, far: RoleReport, used: &host::cpu::CpuUsed) -> Measurement {
    let mut m = Measurement { wall_ns: near.wall_ns.max(1), ..Measurement::default() };
    let forward = Delivery { sent_count: near.sent_count, ..far.arrived };
    m.deliveries.insert("forward".into(), forward);
    if near.arrived.received_count > 0 || far.sent_count > 0 {
        let back = Delivery { sent_count: far.sent_count, ..near.arrived };
        m.deliveries.insert("return".into(), back);
        m.jitter_ns = near.jitter_ns;
        m.segments = near.segments;
    } else {
        m.throughput = Some(far.throughput);
        m.segments = far.segments;
    }
    m.costs.insert("near".into(), near.cost);
    m.costs.insert("far".into(), far.cost);
    for (end, report) in [("near", near.engine), ("far", far.engine)] {
        for (name, value) in report.mode {
            m.mode.insert(format!("{end} {name}"), value);
        }
        for (name, value) in report.counters {
            m.counters.insert(format!("{end}_{name}"), value);
        }
        if let Some(ledger) = report.ledger {
            let unbalanced = u64::from(!ledger.balances());
            m.counters.insert(format!("{end}_ledger_unbalanced_count"), unbalanced);
        }
        for (switch, why) in report.not_effective {
            if !m.not_effective.iter().any(|n| n.switch == switch) {
                m.not_effective.push(NotEffective { switch, why: format!("{end} end: {why}") });
            }
        }
    }
    m.counters.insert("far_too_old_count".into(), far.too_old_count);
    account(&mut m, used);
    m
}

/// What the kernel's own threads and everybody else used meanwhile.
fn account(m: &mut Measurement, used: &host::cpu::CpuUsed) {
    let kernel = Cost { softirq_ns: Some(used.softirq_threads_ns), ..Cost::default() };
    m.costs.insert("kernel".into(), kernel);
    m.others_cpu_ns = used.others_ns;
    m.steal_ns = used.steal_ns;
}
