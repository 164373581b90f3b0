//! Trials in a lab of two namespaces, or against a peer on another host.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use host::cpu::CpuClock;
use host::net::Mac;
use host::tune::{ScopedSettings, cpus_to_mask};
use io::{EngineKind, Remote, Role};
use lab::peers::{LabStarts, PeerJob, Peers, Traffic};
use lab::{
    DistantPair, LossWatch, Meter, Pair, PairSpec, Placement, WireTrials, loss_traps, settle,
};
use model::{Arm, ArmKind, Load, Measurement, NotEffective, PathError, Session};
use wire::ethernet::VLAN_MASK;

use crate::accounting::combine;
use crate::far_end::{ends, with_far};
use crate::role::{self, Pace, RoleReport, Task};
use crate::storm;
use crate::switches::Config;
use crate::{ProbeLoad, Switch, tcp, verbs};

/// A near and a far end in namespaces: those of a lab, or existing ones.
pub(super) struct LabSession {
    pair: Pair,
    /// Wire with distance between the ends.
    wire: Option<WireTrials>,
    /// Router between the ends; `None` if one wire joins them.
    router: Option<Mac>,
    nic: String,
    load: Load,
    kind: ProbeLoad,
    /// Datagrams of a trial at most; `None` for no limit.
    count: Option<u64>,
    cpus: Vec<usize>,
    clock: CpuClock,
    peers: Peers,
    /// Lab that is built anew every few blocks; `None` if the ends exist already.
    lab: Option<PairSpec>,
    starts: LabStarts,
}

impl LabSession {
    pub(super) fn open(load: &Load, kind: ProbeLoad) -> Result<Self, PathError> {
        let mtu = if kind.tcp().is_some() { 1500 } else { mtu_for(load.size_bytes, load.ipv6) };
        // The generator's frames reach a veth only when it polls: GRO switches that on, as an
        // XDP program would, and so every engine meets the same interface.
        let gro = kind == ProbeLoad::Storm;
        // With segmentation offload a veth would pass the bundles of `gso` whole, and no datagram
        // would cross it.
        let ipv6 = load.ipv6;
        let vlan = load.vlan_tag.map(|tag| tag & VLAN_MASK);
        let spec = PairSpec { mtu_bytes: mtu, gro, tso: false, ipv6, vlan, ..PairSpec::default() };
        let over = if ipv6 { ", IPv6" } else { "" };
        let within = vlan.map(|vlan| format!(", VLAN {vlan}")).unwrap_or_default();
        let nic = format!("veth pair, 1 queue, MTU {mtu}, no segmentation offload{over}{within}");
        if let Some(wire) = &load.wire {
            let DistantPair { ends, wire } =
                DistantPair::new(&spec, wire).map_err(PathError::part)?;
            let nic = format!("{nic}, {}", wire.spec());
            let session = LabSession::between(ends, None, nic, load, kind)?;
            return Ok(LabSession { wire: Some(WireTrials::new(wire)), ..session });
        }
        let pair = Pair::new(&spec).map_err(PathError::part)?;
        let session = LabSession::between(pair, None, nic, load, kind)?;
        // In its first second a wire with IPv6 carries the kernel's own multicast reports.
        Ok(LabSession { lab: Some(spec).filter(|_| !ipv6), ..session })
    }

    /// Between ends that exist.
    pub(super) fn between(
        pair: Pair,
        router: Option<Mac>,
        nic: String,
        load: &Load,
        kind: ProbeLoad,
    ) -> Result<Self, PathError> {
        let cpus = sys::affinity::allowed_cpus().map_err(PathError::part)?;
        let clock = CpuClock::open().map_err(PathError::part)?;
        let peers = Peers::default();
        Ok(LabSession {
            pair,
            wire: None,
            router,
            nic,
            load: load.clone(),
            kind,
            count: None,
            cpus,
            clock,
            peers,
            lab: None,
            starts: LabStarts::default(),
        })
    }

    /// Half of the CPUs for each end: the ends represent two hosts, which never share one. Without
    /// this placement, a trial of blocking ends is ten times faster or slower, depending on whether
    /// the scheduler puts both on one CPU. With `pin`, each end gets one CPU of its half.
    fn placement(&self, pin: bool) -> Placement {
        let (near, far) = self.cpus.split_at(self.cpus.len() / 2);
        if near.is_empty() {
            return Placement::default();
        }
        if pin {
            return Placement { near: vec![near[0]], far: vec![far[0]] };
        }
        Placement { near: near.to_vec(), far: far.to_vec() }
    }

    /// Defers the interrupts of both ends' receive queues until the guards drop.
    fn defer_hard_irqs(&self) -> Result<[ScopedSettings; 2], PathError> {
        let knobs = [("napi-defer-hard-irqs", "2"), ("gro-flush-timeout", "200000")];
        Ok([self.pair.near.set_knobs(&knobs)?, self.pair.far.set_knobs(&knobs)?])
    }

    /// Processes each end's arrivals on that end's CPUs until the guards drop.
    fn steer(&self, places: &Placement) -> Result<[ScopedSettings; 2], PathError> {
        let (near, far) = (cpus_to_mask(&places.near), cpus_to_mask(&places.far));
        let near = self.pair.near.set_knobs(&[("rps-cpus", near.as_str())])?;
        Ok([near, self.pair.far.set_knobs(&[("rps-cpus", far.as_str())])?])
    }

    fn variant(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        let session = random_session().map_err(PathError::part)?;
        let config = Config::new(arm, &self.load, self.kind);
        let (near_role, far_role, pace) = roles(self.kind, self.load.rate_pps);
        let tcp = self.kind.tcp();
        let tcp = tcp.map(|kind| tcp::Task::new(arm, &self.load, kind, session.into()));
        let task = |role| Task {
            session: Some(session),
            duration: (role == near_role).then_some(self.load.trial),
            count: self.count.filter(|_| role == near_role),
            ..Task::new(role, config.engine.clone(), pace, self.load.size_bytes)
        };
        let awake = config.stay_awake()?;
        let places = self.placement(config.is_pinned);
        let steering = config.steers.then(|| self.steer(&places)).transpose()?;
        let deferring = config.defers.then(|| self.defer_hard_irqs()).transpose()?;
        let watched = [("near", &self.pair.near), ("far", &self.pair.far)];
        let watched = watched.map(|(end, place)| (end, LossWatch::begin(&place.netns)));
        let meter = Meter::start(&self.clock, &places.both())?;
        let (near, far) = if let Some(task) = tcp {
            tcp::run(&self.pair, &task, &places)?
        } else if self.kind == ProbeLoad::Storm {
            storm::run(&self.pair, &task(far_role), self.load.trial, &places)?
        } else {
            let mut near = task(near_role);
            if self.router.is_some() {
                // Its frames are addressed to the router; sockets would need a route in a namespace
                // that exists already.
                near.engine.kind = EngineKind::Packet;
            }
            run_pair(&self.pair, self.router, &near, &task(far_role), &places)?
        };
        let used = meter.stop()?;
        drop((awake, steering, deferring));
        let mut measurement = combine((near_role, pace), near, far, &used);
        for (end, watch) in watched {
            let causes = watch
                .filter(|_| measurement.lost_count() > 0)
                .map_or_else(Vec::new, LossWatch::end);
            measurement.traps.extend(loss_traps(end, &causes));
        }
        measurement.not_effective.extend(config.not_effective(self.cpus.len()));
        if self.router.is_some() && config.engine.zero_copy_send {
            let why = "towards a router the near end sends by AF_PACKET, not by a UDP socket";
            measurement.not_effective.push(NotEffective::new(Switch::ZeroCopySend, why));
        }
        Ok(measurement)
    }
}

impl Scheduled for LabSession {
    fn offer(&mut self, rate_pps: u64, count: u64) {
        (self.load.rate_pps, self.count) = (rate_pps, Some(count));
    }
}

impl LabSession {
    /// The load as a task of a peer program.
    fn job(&self) -> PeerJob {
        let traffic = match self.kind {
            ProbeLoad::Ping => Traffic::PingPong,
            ProbeLoad::Paced => Traffic::Open { rate_pps: self.load.rate_pps, burst: 1 },
            ProbeLoad::EchoFlood => Traffic::BothWays,
            ProbeLoad::TcpFlood => Traffic::TcpFlood,
            _ => Traffic::Flood,
        };
        PeerJob { traffic, size_bytes: self.load.size_bytes, segment: "rtt" }
    }

    fn run_over_wire(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        let near = self.pair.near.netns.try_clone().map_err(PathError::part)?;
        let far = self.pair.far.netns.try_clone().map_err(PathError::part)?;
        let Some(wire) = self.wire.take() else { return self.run(arm) };
        let ips = [&self.pair.near, &self.pair.far].map(lab::End::load_ip);
        let ends = [(&near, ips[0]), (&far, ips[1])];
        let measured = wire.around(ends, || self.run(arm), |m| m);
        self.wire = Some(wire);
        measured
    }

    fn run(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        if arm.kind != ArmKind::Peer {
            return self.variant(arm);
        }
        let places = self.placement(false);
        if self.kind == ProbeLoad::Storm {
            return verbs::trial(&arm.name, &self.pair, &self.load, &places, &self.clock);
        }
        self.peers.trial(&arm.name, &self.job(), &self.pair, &places, &self.clock)
    }
}

impl Session for LabSession {
    fn trial(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        let begun = Instant::now();
        let measured = self.run_over_wire(arm);
        let start = self.starts.ran(begun.elapsed(), &self.peers);
        let start = start.filter(|_| self.lab.is_some());
        measured.map(|measured| Measurement { start, ..measured })
    }

    fn seed(&mut self, seed: u64) {
        self.wire.iter_mut().for_each(|wire| wire.seed(seed));
    }

    /// Builds the lab anew. The ends' threads, sockets and programs are new in each trial.
    fn begin_block(&mut self) {
        self.wire.iter_mut().for_each(WireTrials::begin_block);
        let Some(spec) = self.lab.filter(|_| self.starts.is_due(&self.peers)) else { return };
        let begun = Instant::now();
        let built = Pair::new(&spec).map(|pair| self.pair = pair);
        self.starts.built(begun.elapsed(), built.is_ok());
    }

    fn nic(&self) -> String {
        self.nic.clone()
    }
}

/// A session whose schedule may differ from trial to trial.
pub(super) trait Scheduled: Session {
    /// Sets the rate of the trials that follow, and their number of datagrams.
    fn offer(&mut self, rate_pps: u64, count: u64);
}

/// Roles of the near and the far end under a load, and the near end's pace.
pub(super) fn roles(kind: ProbeLoad, rate_pps: u64) -> (Role, Role, Pace) {
    let pace = match kind {
        ProbeLoad::Paced => Pace::Rate(rate_pps),
        ProbeLoad::EchoFlood => Pace::Window(role::WINDOW),
        ProbeLoad::Ping | ProbeLoad::TcpPing | ProbeLoad::TcpConnect => Pace::PingPong,
        ProbeLoad::Flood | ProbeLoad::Storm | ProbeLoad::TcpFlood => {
            return (Role::Send, Role::Receive, Pace::Flood);
        }
    };
    (Role::Ping, Role::Echo, pace)
}

/// Smallest usual MTU that carries a payload in one packet.
fn mtu_for(size_bytes: usize, ipv6: bool) -> u32 {
    let packet = size_bytes as u32 + if ipv6 { 48 } else { 28 };
    [1500, 3400, 9000].into_iter().find(|mtu| packet <= *mtu).unwrap_or(65_535)
}

/// Number of a run: strays of an earlier run are detected by it, and no stranger can guess it.
///
/// Errors: the kernel gives no random bytes.
pub fn random_session() -> std::io::Result<u32> {
    let mut bytes = [0; 4];
    sys::random::fill(&mut bytes)?;
    Ok(u32::from_ne_bytes(bytes))
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
        Ok(role::open_and_run_on(&places.near, near_task, &near_local, &near_remote, &stop)?)
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use testkit::alone;

    use super::*;

    /// Frames that have crossed the wire to the far end.
    fn frame_count(session: &LabSession) -> u64 {
        let far = &session.pair.far;
        let path = format!("class/net/{}/statistics/rx_packets", far.ifname);
        far.sysfs().expect("the lab").read(path).expect("a counter").parse().expect("a number")
    }

    /// Of both ends.
    fn settings(session: &LabSession) -> [[String; 2]; 2] {
        [&session.pair.near, &session.pair.far].map(|end| {
            ["napi_defer_hard_irqs", "gro_flush_timeout"].map(|file| {
                let path = format!("class/net/{}/{file}", end.ifname);
                end.sysfs().expect("the lab").read(&path).expect("a setting")
            })
        })
    }

    #[test]
    fn headers_of_ipv6_leave_20_bytes_less_of_an_mtu() {
        for (ipv6, most) in [(false, 1472), (true, 1452)] {
            assert_eq!([mtu_for(most, ipv6), mtu_for(most + 1, ipv6)], [1500, 3400]);
        }
    }

    #[test]
    fn interrupts_are_deferred_at_both_ends_during_a_trial_only() {
        let _alone = alone();
        let load = testkit::arms::load(&crate::Probe, "ping", Duration::from_millis(20));
        let mut session = LabSession::open(&load, ProbeLoad::Ping).expect("a lab");
        let before = settings(&session);
        let deferring = session.defer_hard_irqs().expect("set");
        assert_eq!(settings(&session), [["2", "200000"], ["2", "200000"]]);
        drop(deferring);
        assert_eq!(settings(&session), before);
        let sockets = session.trial(&Arm::with([Switch::DeferHardIrqs])).expect("it runs");
        assert!(sockets.not_effective.iter().any(|n| n.switch == "defer-hard-irqs"));
        let native = [Switch::Bypass, Switch::Native, Switch::DeferHardIrqs];
        let native = session.trial(&Arm::with(native)).expect("it runs");
        assert!(native.not_effective.is_empty(), "{:?}", native.not_effective);
        assert_eq!(settings(&session), before);
    }

    #[test]
    fn every_datagram_of_a_bundle_crosses_the_wire_in_a_frame_of_its_own() {
        let _alone = alone();
        for size_bytes in [64, 1460] {
            let load = testkit::arms::load(&crate::Probe, "flood", Duration::from_millis(50));
            let load = Load { size_bytes, ..load };
            let mut session = LabSession::open(&load, ProbeLoad::Flood).expect("a lab");
            let before = frame_count(&session);
            let m = session.trial(&Arm::with([Switch::Batch, Switch::Gso])).expect("it runs");
            let datagrams = m.deliveries["forward"].sent_count;
            assert!(datagrams > 0, "none was sent");
            // Datagrams of the last bundle may be sent and not counted, if it failed.
            let frames = frame_count(&session) - before;
            assert!(frames >= datagrams, "{frames} frames of {datagrams} datagrams");
        }
    }
}
