//! Trials in a lab of two namespaces, or against a peer on another host.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use host::cpu::CpuClock;
use host::idle::NoIdle;
use host::lab::{End, Pair, PairSpec};
use host::net::Mac;
use host::tune::{Held, cpus_to_mask};
use io::thread::start;
use io::{EngineKind, Local, Remote, Role, XdpMode};
use model::{Arm, ArmKind, Delivery, Measurement, NotEffective};

use super::role::{self, Live, Pace, RoleReport, Steering, Task};
use super::storm;
use super::switches::{engine_of, fit};
use super::watch::Watch;
use crate::lab::{Meter, Placement, Used, local, settle};
use crate::path::{Load, PathError, Session};
use crate::peers::{Job, Peers, Traffic};

/// UDP port of the far end.
pub(super) const FAR_PORT: u16 = 9000;
/// UDP port of the near end.
pub(super) const NEAR_PORT: u16 = 9001;

/// A near and a far end in namespaces: those of a lab, or others that were named.
pub(super) struct LabSession {
    pair: Pair,
    /// Who forwards from the near end to the far one; `None` when one wire joins them.
    router: Option<Mac>,
    nic: String,
    load: Load,
    cpus: Vec<usize>,
    clock: CpuClock,
    run: u32,
    peers: Peers,
}

impl LabSession {
    pub(super) fn open(load: &Load) -> Result<Self, PathError> {
        let mtu = mtu_for(load.size_bytes);
        // The generator's frames reach a veth only when it polls: GRO switches that on, as an
        // XDP program would, and so every engine meets the same interface.
        let gro = load.kind == "storm";
        let spec = PairSpec { mtu_bytes: mtu, gro, ..PairSpec::default() };
        let pair = Pair::new(&spec).map_err(PathError::part)?;
        LabSession::of(pair, None, format!("veth pair, 1 queue, MTU {mtu}"), load)
    }

    pub(super) fn of(
        pair: Pair,
        router: Option<Mac>,
        nic: String,
        load: &Load,
    ) -> Result<Self, PathError> {
        let cpus = io::affinity::allowed_cpus().map_err(PathError::part)?;
        let clock = CpuClock::open().map_err(PathError::part)?;
        let peers = Peers::default();
        Ok(LabSession { pair, router, nic, load: load.clone(), cpus, clock, run: seed(), peers })
    }

    /// Half of the CPUs for each end: the ends stand for two hosts, which never share one. Left
    /// to the scheduler, a trial of blocking ends is ten times faster or slower by whether it
    /// put both on one CPU. With `pin`, one CPU of its half for each.
    fn placement(&self, pin: bool) -> Placement {
        let half = self.cpus.len() / 2;
        let (near, far) = self.cpus.split_at(half);
        let most = if pin { 1 } else { usize::MAX };
        let first = |cpus: &[usize]| cpus.iter().copied().take(most).collect();
        match half {
            0 => Placement::default(),
            _ => Placement { near: first(near), far: first(far) },
        }
    }

    fn variant(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        self.run = self.run.wrapping_add(1);
        let mut engine = engine_of(arm);
        fit(&mut engine, self.load.size_bytes);
        let storm = self.load.kind == "storm";
        let (near_role, far_role, pace) = roles_of(&self.load);
        let task = |role| Task {
            role,
            engine: engine.clone(),
            pace,
            payload_bytes: self.load.size_bytes,
            flows: 1,
            first_flow: 0,
            session: Some(self.run),
            count: None,
            duration: (role == near_role).then_some(self.load.trial),
            one_clock: false,
        };
        let mut undo: Vec<Box<dyn std::any::Any>> = Vec::new();
        if arm.has("no-idle-states") {
            undo.push(Box::new(NoIdle::hold().map_err(PathError::part)?));
        }
        let places = self.placement(arm.has("pin"));
        if arm.has("rps") {
            // Each end's arrivals on that end's own CPU.
            for (end, cpus) in [(&self.pair.near, &places.near), (&self.pair.far, &places.far)] {
                let mut held = Held::new(&end.netns).map_err(PathError::part)?;
                held.set_all("rps-cpus", &end.ifname, &cpus_to_mask(cpus))
                    .map_err(PathError::part)?;
                undo.push(Box::new(held));
            }
        }
        let meter = Meter::start(&self.clock)?;
        let (near, far) = if storm {
            storm::run(&self.pair, &task(far_role), self.load.trial, &places)?
        } else {
            let mut near = task(near_role);
            if self.router.is_some() {
                // Its frames name the router; sockets would need a route in a namespace that is
                // not ours.
                near.engine.kind = EngineKind::Packet;
            }
            run_pair(&self.pair, self.router, &near, &task(far_role), &places)?
        };
        let used = meter.stop()?;
        drop(undo);
        let mut measurement = combine(near, far, &used);
        if arm.has("pin") && self.cpus.len() < 4 {
            measurement.not_effective.push(NotEffective {
                switch: "pin".into(),
                why: format!(
                    "with {} CPUs each end of the lab has one to itself already",
                    self.cpus.len()
                ),
            });
        }
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
        let places = self.placement(false);
        self.peers.trial(&arm.name, &job(&self.load), &self.pair, &places, &self.clock)
    }

    fn nic(&self) -> String {
        self.nic.clone()
    }
}

/// What another program is asked to carry instead.
fn job(load: &Load) -> Job {
    let traffic = match load.kind.as_str() {
        "ping" => Traffic::PingPong,
        "paced" => Traffic::Open { rate_pps: load.rate_pps, burst: 1 },
        _ => Traffic::Flood,
    };
    Job { traffic, size_bytes: load.size_bytes, segment: "rtt" }
}

/// Roles of the near and the far end under a load, and the near end's pace.
pub(super) fn roles_of(load: &Load) -> (Role, Role, Pace) {
    match load.kind.as_str() {
        "ping" => (Role::Ping, Role::Echo, Pace::PingPong),
        "paced" => (Role::Ping, Role::Echo, Pace::Rate(load.rate_pps)),
        _ => (Role::Send, Role::Receive, Pace::Flood),
    }
}

/// Smallest usual MTU that carries a payload in one packet.
fn mtu_for(size_bytes: usize) -> u32 {
    let packet = size_bytes as u32 + 28;
    [1500, 3400, 9000].into_iter().find(|mtu| packet <= *mtu).unwrap_or(65_535)
}

/// A number that differs from run to run, so that strays of an earlier run are told apart.
pub fn seed() -> u32 {
    (io::clock::realtime_ns() >> 10) as u32 ^ std::process::id().rotate_left(16)
}

/// This end and its counterpart, as an engine wants them.
pub(super) fn ends(pair: &Pair) -> ((Local, Remote), (Local, Remote)) {
    let local = |end: &End, port| local(end, end.ip, port);
    let remote = |end: &End, port| Remote { mac: end.mac, ip: end.ip, port };
    (
        (local(&pair.near, NEAR_PORT), remote(&pair.far, FAR_PORT)),
        (local(&pair.far, FAR_PORT), remote(&pair.near, NEAR_PORT)),
    )
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
        let far = start(scope, "far", || -> Result<RoleReport, String> {
            settle(&pair.far, &places.far)?;
            let watch = Watch::new(far_local.ifindex, &far_local.ifname);
            let mut engine =
                io::open(&far_task.setup(&far_local, None)).map_err(|e| crate::text::chain(&e))?;
            let _ = ready.send(());
            drop(ready);
            role::run(&mut engine, far_task, Steering { stop: &stop, live: Some(&live), watch })
        });
        let near = is_ready.recv().is_ok().then(|| start(scope, "near", near).end());
        if near.is_some() {
            role::drain(&live);
        }
        stop.store(true, Ordering::Relaxed);
        let end = |end: &str| {
            let end = end.to_owned();
            move |why| PathError::End { end, why }
        };
        let far = far.end().map_err(end("far"))?;
        let near = near.unwrap_or_else(|| Err("the far end was not ready".to_owned()));
        Ok((near.map_err(end("near"))?, far))
    })
}

fn run_pair(
    pair: &Pair,
    router: Option<Mac>,
    near_task: &Task,
    far_task: &Task,
    places: &Placement,
) -> Result<(RoleReport, RoleReport), PathError> {
    let ((near_local, far), _) = ends(pair);
    let near_remote = Remote { mac: router.unwrap_or(far.mac), ..far };
    with_far(pair, far_task, places, || {
        settle(&pair.near, &places.near)?;
        let stop = AtomicBool::new(false);
        role::open_and_run(near_task, &near_local, Some(&near_remote), &stop, None)
    })
}

/// Both ends' reports as one measurement. Without the far end's the near end's books stand
/// for both, as far as sequence numbers tell.
pub fn measurement_of(near: RoleReport, far: Option<RoleReport>) -> Measurement {
    let mut m = Measurement { wall_ns: near.wall_ns.max(1), ..Measurement::default() };
    let answered = near.sent_count > 0 && near.expected_count > 0;
    let far_sent = far.as_ref().map_or(near.expected_count, |f| f.sent_count);
    let forward = match &far {
        Some(far) => Delivery { sent_count: near.sent_count, ..far.arrived },
        // Nobody told; each answer stands for an arrival.
        None if answered => Delivery {
            sent_count: near.sent_count.max(near.expected_count),
            received_count: near.expected_count,
            ..Delivery::default()
        },
        None if near.sent_count > 0 => Delivery {
            sent_count: near.sent_count,
            received_count: near.sent_count,
            ..Delivery::default()
        },
        None => Delivery { sent_count: near.expected_count, ..near.arrived },
    };
    m.deliveries.insert("forward".into(), forward);
    m.counters.insert("forward_sent_count".into(), forward.sent_count);
    let echoed = answered || far.as_ref().is_some_and(|f| f.sent_count > 0);
    let mut reports = vec![("near", near)];
    reports.extend(far.map(|far| ("far", far)));
    if echoed {
        let back = Delivery { sent_count: far_sent, ..reports[0].1.arrived };
        m.deliveries.insert("return".into(), back);
        m.counters.insert("return_sent_count".into(), back.sent_count);
    }
    for (end, report) in reports {
        let receives = if echoed { end == "near" } else { report.arrived.received_count > 0 };
        if receives {
            m.jitter_ns = report.jitter_ns;
            m.segments = report.segments;
            if !echoed {
                m.throughput = Some(report.throughput);
            }
        }
        m.costs.insert(end.into(), report.cost);
        m.counters.insert(format!("{end}_too_old_count"), report.too_old_count);
        let engine = report.engine;
        for (name, value) in engine.mode {
            m.mode.insert(format!("{end} {name}"), value);
        }
        for (name, value) in engine.counters {
            m.counters.insert(format!("{end}_{name}"), value);
        }
        if let Some(ledger) = engine.ledger {
            let unbalanced = u64::from(!ledger.balances());
            m.counters.insert(format!("{end}_ledger_unbalanced_count"), unbalanced);
        }
        for (switch, why) in engine.not_effective {
            if !m.not_effective.iter().any(|n| n.switch == switch) {
                m.not_effective.push(NotEffective { switch, why: format!("{end} end: {why}") });
            }
        }
    }
    m
}

/// As [`measurement_of`], with what the kernel and others used meanwhile.
pub(super) fn combine(near: RoleReport, far: RoleReport, used: &Used) -> Measurement {
    let mut m = measurement_of(near, Some(far));
    used.account(&mut m);
    m
}
