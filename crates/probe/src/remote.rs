//! Trials against `wirepath peer` on another host.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use host::cpu::CpuClock;
use host::irq_suspend::IrqSuspend;
use host::net::ethtool;
use host::netns::Netns;
use host::text::chain;
use io::{EngineKind, EngineSpec, Local, Remote, Role};
use lab::peers::{self, PeerJob, Traffic, hosts};
use lab::{
    FarEnd, LabError, LossWatch, Meter, Placement, RunCause, Used, describe_nic, loss_traps,
    softirqs_missing,
};
use model::{Arm, ArmKind, Machine, Measurement, Support};
use model::{Direction, Load, PathError, PathLoad, Session, TwoHosts, VERSION_MODE};
use remote::{FarHost, FarOptions, RemoteError};
use sys::thread::start;

use super::accounting::{combine, not_suspended, received};
use super::endpoint::{self, Choice};
use super::far_end::{FAR_PORT, NEAR_PORT};
use super::far_peers::{self, Servers};
use super::mtu::Mtus;
use super::path::{ProbeLoad, check_size};
use super::peer::{Far, FarReport, PeerError, Settings};
use super::role::{self, LiveCounts, RoleReport, Task};
use super::session::{Scheduled, random_session, roles};
use super::support::{huge_pages, irq_suspend, no_busy_poll, sleepless};
use super::switches::{Config, Switch};
use super::vlan::in_vlan;

/// Pause between checks of an end that opens, or that sends.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Time for a far end to end after its connection broke: the kernel closes the files of a process first.
const FAR_EXIT_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct RemoteSession {
    /// Before its host: the peer ends without a broken connection.
    far: Far,
    host: FarHost,
    /// For peer programs, from the first trial of one.
    servers: Option<Servers>,
    /// The control connection broke in an earlier trial.
    is_broken: bool,
    load: Load,
    kind: ProbeLoad,
    /// Datagrams of a trial at most; `None` for no limit.
    count: Option<u64>,
    two: TwoHosts,
    local: Local,
    /// As `local`; with a VLAN device there, of the port below it.
    port: Local,
    nic: String,
    /// CPUs of the near and of the far end; empty for all.
    cpus: Placement,
    clock: CpuClock,
}

impl RemoteSession {
    pub(super) fn open(load: &Load, kind: ProbeLoad, two: &TwoHosts) -> Result<Self, PathError> {
        check(kind)?;
        let end: FarEnd = two.end.parse().map_err(PathError::part)?;
        let allowed = sys::affinity::allowed_cpus().map_err(PathError::part)?;
        if let Some(cpu) = two.near_cpu.filter(|cpu| !allowed.contains(cpu)) {
            let what = format!("CPU {cpu} is none of those that this command may use: {allowed:?}");
            return Err(PathError::Invalid { what, remedy: "give another --app-cpu".into() });
        }
        // On one machine each end has half of the CPUs, as in a lab; hosts share none.
        let half = if matches!(end, FarEnd::Netns(_)) { allowed.len() / 2 } else { 0 };
        let (near_cpus, far_cpus) =
            if half == 0 { (&[][..], &[][..]) } else { allowed.split_at(half) };
        let host = FarHost::open(&end, &far_options(two, load)).map_err(PathError::part)?;
        let far = connect(&end, &host, load.ipv6)?;
        let load = with_version(&far, load, kind)?;
        let choice =
            Choice { ifname: two.ifname.clone(), queue: two.queue.unwrap_or(0), port: NEAR_PORT };
        let (local, _) =
            endpoint::towards(far.address().ip(), FAR_PORT, &choice).map_err(PathError::part)?;
        // The baseline's sockets must be in the VLAN, too.
        let [udp, xdp] = [EngineKind::Udp, EngineKind::Xdp]
            .map(|kind| EngineSpec { vlan_tag: load.vlan_tag, ..EngineSpec::plain(kind) });
        let local = in_vlan(local, &udp)?;
        let port = in_vlan(local.clone(), &xdp)?;
        let driver = ethtool::driver(port.ifindex).ok().flatten();
        let nic = describe_nic(port.ifindex, driver.as_deref()).map_err(PathError::part)?;
        let nic = format!("{nic} to {}", far.address().ip());
        let clock = CpuClock::open().map_err(PathError::part)?;
        let cpus = Placement { near: near_cpus.to_vec(), far: far_cpus.to_vec() };
        Ok(RemoteSession {
            far,
            host,
            servers: None,
            is_broken: false,
            load,
            kind,
            count: None,
            two: two.clone(),
            local,
            port,
            nic,
            cpus,
            clock,
        })
    }

    /// CPUs of the near end in a trial; empty for all.
    fn placement(&self, is_pinned: bool) -> Result<Vec<usize>, PathError> {
        if !is_pinned {
            return Ok(self.cpus.near.clone());
        }
        if let Some(cpu) = self.two.near_cpu.or(self.cpus.near.first().copied()) {
            return Ok(vec![cpu]);
        }
        let allowed = sys::affinity::allowed_cpus().map_err(PathError::part)?;
        Ok(allowed.into_iter().take(1).collect())
    }

    fn variant(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        let session = random_session().map_err(PathError::part)?;
        let (near_role, far_role, pace) = self.roles();
        let config = Config::new(arm, &self.load, self.kind);
        let [mut near_task, mut far_task] = [near_role, far_role].map(|role| Task {
            session: Some(session),
            duration: (role != Role::Receive && role != Role::Echo).then_some(self.load.trial),
            count: self.count.filter(|_| role == near_role),
            ..Task::new(role, config.engine.clone(), pace, self.load.size_bytes)
        });
        // Each end's NIC chooses the queue of a flow.
        near_task.engine.all_queues = self.two.queue.is_none();
        far_task.engine.all_queues = true;
        let _awake = config.stay_awake()?;
        let suspension = config.suspends.then(|| self.suspend()).transpose()?;
        let polls = near_task.engine.busy_poll && near_task.engine.kind == EngineKind::Xdp;
        let deferral = polls.then(|| IrqSuspend::defer(self.port.ifindex, &self.port.ifname));
        let settings = config.far_settings(&self.cpus.far, self.two.far_cpu);
        let cpus = self.placement(config.is_pinned)?;
        // Both ends are on this machine, or one.
        let metered = if self.far.is_here() { &[] } else { &cpus[..] };
        let losses = Netns::current().ok().and_then(|netns| LossWatch::begin(&netns));
        let meter = Meter::start(&self.clock, metered)?;
        let end = Near { task: &near_task, cpus: &cpus, far_task: &far_task, settings: &settings };
        let choice = Choice {
            ifname: Some(self.local.ifname.clone()),
            queue: self.two.queue.unwrap_or(0),
            port: NEAR_PORT,
        };
        let (near, far) = match near_role {
            Role::Receive if near_task.engine.kind == EngineKind::Xdp => {
                end.receive(&mut self.far, &self.port)?
            }
            Role::Receive => end.receive(&mut self.far, &self.local)?,
            _ => end.send(&mut self.far, &choice)?,
        };
        let used = meter.stop()?;
        let far_losses = loss_traps("far", &far.losses);
        let mut m = self.measurement(near_role, near, far, used);
        if m.lost_count() > 0 {
            m.traps.extend(far_losses);
            m.traps.extend(loss_traps("near", &losses.map_or_else(Vec::new, LossWatch::end)));
        }
        all_queues_had_sockets(&m)?;
        m.not_effective.extend(config.not_effective(self.own_cpu_count()));
        m.not_effective.extend(suspension.and_then(|held| not_suspended(&m, &held)));
        if let Some(deferral) = &deferral {
            let state = deferral.as_ref().map_or_else(
                |why| format!("not deferred: {}", chain(why)),
                |_| "deferred while the socket polls".to_owned(),
            );
            m.mode.insert("near interrupts".into(), state);
        }
        Ok(m)
    }

    /// A trial of a peer program, whose server the far end starts.
    fn peer(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        if self.servers.is_none() {
            let end: FarEnd = self.two.end.parse().map_err(PathError::part)?;
            self.servers = Some(Servers::open(&end, &far_options(&self.two, &self.load))?);
        }
        let Some(servers) = &mut self.servers else { unreachable!("it was opened above") };
        let traffic = match (self.kind, self.two.direction) {
            (ProbeLoad::EchoFlood, _) => Traffic::BothWays,
            (_, Direction::Receive) => Traffic::FloodBack,
            _ => Traffic::Flood,
        };
        let job = PeerJob { traffic, size_bytes: self.load.size_bytes, segment: "rtt" };
        let (to, is_here) = (self.far.address().ip(), self.far.is_here());
        let meter = Meter::start(&self.clock, if is_here { &[] } else { &self.cpus.near })?;
        let (client, server) =
            servers.around(to, &self.cpus.far, || hosts::run_client(&job, to, &self.cpus.near))?;
        let used = meter.stop()?.with_children(client.usage.user_ns + client.usage.system_ns);
        let mut m = hosts::measurement(&job, &client, server.report.as_bytes())?;
        far_peers::account(&mut m, &server, used, is_here);
        let version = peers::version_of(&arm.name, &["--version"]);
        m.mode.extend(version.map(|version| (VERSION_MODE.to_owned(), version)));
        Ok(m)
    }

    fn suspend(&self) -> Result<IrqSuspend, PathError> {
        IrqSuspend::hold(self.port.ifindex, &self.port.ifname).map_err(PathError::part)
    }

    /// CPUs that both ends have between them while nothing is pinned; far more than `pin` needs where they
    /// are not placed, or pinned to named ones.
    fn own_cpu_count(&self) -> usize {
        let is_named = self.two.near_cpu.is_some() || self.two.far_cpu.is_some();
        match self.cpus.both().len() {
            0 => usize::MAX,
            _ if is_named => usize::MAX,
            count => count,
        }
    }

    fn roles(&self) -> (Role, Role, role::Pace) {
        match (roles(self.kind, self.load.rate_pps), self.two.direction) {
            ((Role::Send, far, pace), Direction::Receive) => (far, Role::Send, pace),
            (roles, _) => roles,
        }
    }

    fn measurement(&self, role: Role, near: RoleReport, far: FarReport, used: Used) -> Measurement {
        // The far end's process is not one of others if it runs here.
        let is_here = self.far.is_here();
        let far_time = far.host_time;
        let used = match far_time {
            Some(time) if is_here => used.with_children(time.own_ns),
            _ => used,
        };
        let mut m = match role {
            Role::Receive => received(near, far.role, &used),
            _ => combine((role, self.roles().2), near, far.role, &used),
        };
        if let Some(time) = far_time.filter(|_| !is_here) {
            time.account_far(&mut m);
        }
        // A NIC's interrupts, here and at the far end.
        m.traps = vec![softirqs_missing()];
        let (near_bytes, far_bytes) = (self.local.mtu_bytes, self.far.mtu_bytes());
        let mtus = Mtus::new(near_bytes, far_bytes, self.load.size_bytes, self.load.ipv6);
        m.traps.extend(mtus.trap(&m));
        m
    }
}

/// Errors: datagrams arrived on receive queues without a socket, so that their loss says nothing of the arm.
fn all_queues_had_sockets(m: &Measurement) -> Result<(), PathError> {
    for end in ["near", "far"] {
        let count = m.counters.get(&format!("{end}_xdp_map_missed_count")).copied().unwrap_or(0);
        if count > 0 {
            return Err(PathError::Invalid {
                what: format!("{count} datagrams came to receive queues of the {end} end without a socket"),
                remedy: "drop --queue, so that every queue has one; and give the interface all its queues \
                         (ethtool -l, -L), because a driver may take spare ones for XDP"
                    .into(),
            });
        }
    }
    Ok(())
}

fn far_options<'a>(two: &'a TwoHosts, load: &Load) -> FarOptions<'a> {
    FarOptions {
        address: two.address,
        ipv6: load.ipv6,
        ifname: two.ifname.as_deref(),
        secret: two.secret.as_deref(),
        ssh_options: &two.ssh_options,
    }
}

/// Errors: a load that is not possible between hosts.
fn check(kind: ProbeLoad) -> Result<(), PathError> {
    let (what, remedy) = if kind.tcp().is_some() {
        let why = "runs in a lab only: between hosts the peer carries datagrams";
        (format!("load {kind} {why}"), "run it without --far, or use ping or flood between hosts")
    } else if kind == ProbeLoad::Storm {
        let what = "load storm needs the veth of a lab".to_owned();
        (what, "run it without --far, or use flood between hosts")
    } else {
        return Ok(());
    };
    Err(PathError::Invalid { what, remedy: remedy.to_owned() })
}

fn connect(end: &FarEnd, host: &FarHost, ipv6: bool) -> Result<Far, PathError> {
    match (Far::connect_by(host.peer(), ipv6, host.secret()), end) {
        (Ok(far), _) => Ok(far),
        (Err(PeerError::NotThere { at, .. }), FarEnd::Netns(_) | FarEnd::Ssh(_)) => {
            Err(PathError::part(RemoteError::Unreachable { address: at.ip() }))
        }
        (Err(error), _) => Err(PathError::part(error)),
    }
}

/// The load with the IP version of the far end's address.
///
/// Errors: IPv6 was asked for, and the address is of IPv4; a datagram that exceeds an MTU of 9000.
fn with_version(far: &Far, load: &Load, kind: ProbeLoad) -> Result<Load, PathError> {
    let ip = far.address().ip();
    if load.ipv6 && ip.is_ipv4() {
        let what = format!("{ip} is not an IPv6 address, which --ip 6 asks for");
        let remedy = "give one with --far-address, or leave out --ip 6".to_owned();
        return Err(PathError::Invalid { what, remedy });
    }
    let load = Load { ipv6: ip.is_ipv6(), ..load.clone() };
    check_size(&load, kind)?;
    Ok(load)
}

fn support_of_peer(name: &str, kind: ProbeLoad, two: &TwoHosts) -> Support {
    if name != "iperf3" {
        return Support::Refused {
            why: format!("{name} runs in the lab only; between hosts iperf3"),
        };
    }
    match two.end.parse() {
        Ok(FarEnd::Peer(_)) => Support::Refused { why: far_peers::NO_PEER.into() },
        _ => peers::support(name, kind.kind()),
    }
}

/// Support for the switches of an arm between two hosts.
pub(super) fn support(arm: &Arm, kind: ProbeLoad, two: &TwoHosts) -> Support {
    if arm.kind == ArmKind::Peer {
        return support_of_peer(&arm.name, kind, two);
    }
    for (switch, what, needs) in [
        (
            Switch::Rps,
            "rps between two hosts (settings of real interfaces are not changed)",
            "the mask set by hand on both hosts: /sys/class/net/IF/queues/rx-0/rps_cpus",
        ),
        (
            Switch::DeferHardIrqs,
            "defer-hard-irqs between two hosts (settings of real interfaces are not changed)",
            "a plan with napi-defer-hard-irqs and gro-flush-timeout: wirepath tune prove PLAN --far HOST",
        ),
        (
            Switch::IoUring,
            "io-uring between two hosts (the far end's system-call filter cannot check its requests)",
            "a lab: leave out --far",
        ),
    ] {
        if arm.has(switch) {
            return Support::unsupported(what, needs);
        }
    }
    if arm.has(Switch::BusyPoll)
        && let Some(denied) = no_busy_poll()
    {
        return denied;
    }
    let no_suspension = if arm.has(Switch::IrqSuspend) { irq_suspend() } else { None };
    if let Some(missing) = no_suspension.or_else(|| huge_pages(arm, 1)) {
        return missing;
    }
    if arm.has(Switch::NoIdleStates) {
        return sleepless().err().unwrap_or(Support::Yes);
    }
    Support::Yes
}

impl Scheduled for RemoteSession {
    fn offer(&mut self, rate_pps: u64, count: u64) {
        (self.load.rate_pps, self.count) = (rate_pps, Some(count));
    }
}

impl Session for RemoteSession {
    fn trial(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        let measured = if arm.kind == ArmKind::Peer { self.peer(arm) } else { self.variant(arm) };
        // The end of a far end that was started here explains all that follows from it.
        match measured {
            Err(error) => {
                let breaks = is_broken(&error) && !self.is_broken;
                self.is_broken |= breaks;
                let within = if breaks { FAR_EXIT_TIMEOUT } else { Duration::ZERO };
                Err(self.host.ended(within).map_or(error, PathError::part))
            }
            measured => measured,
        }
    }

    fn nic(&self) -> String {
        self.nic.clone()
    }

    fn far_machine(&self) -> Option<Machine> {
        self.far.machine().cloned()
    }
}

/// Tells if the control connection broke.
fn is_broken(error: &PathError) -> bool {
    let (PathError::Part(cause) | PathError::End { why: cause, .. }) = error else { return false };
    cause.downcast_ref().is_some_and(PeerError::is_broken)
}

/// One trial as the near end runs it.
struct Near<'a> {
    task: &'a Task,
    /// Empty for all.
    cpus: &'a [usize],
    far_task: &'a Task,
    settings: &'a Settings,
}

impl Near<'_> {
    /// Starts the far end, which answers or counts, and then this one.
    fn send(&self, far: &mut Far, choice: &Choice) -> Result<(RoleReport, FarReport), PathError> {
        let ready = self.prepare(far)?;
        let towards = endpoint::towards(ready.0, ready.1, choice).map_err(PathError::part);
        let near = towards.and_then(|(local, remote)| {
            let local = in_vlan(local, &self.task.engine)?;
            self.alone(&local, &remote).map_err(|why| PathError::at("near", why))
        });
        // The far end is stopped even if the near end failed.
        match far.stop().map_err(PathError::part) {
            // Explains a failure of the near end.
            Err(error) if is_broken(&error) => Err(error),
            far => Ok((near?, far?)),
        }
    }

    /// Opens this end and then starts the far end, whose first datagram needs an open receiver.
    fn receive(&self, far: &mut Far, local: &Local) -> Result<(RoleReport, FarReport), PathError> {
        let (stop, live) = (AtomicBool::new(false), LiveCounts::default());
        thread::scope(|scope| {
            let running = start(scope, "near", || -> Result<_, RunCause> {
                self.settle()?;
                Ok(role::open_and_run(self.task, local, None, &stop, Some(&live))?)
            });
            while !live.is_open.load(Ordering::Acquire) && !running.is_finished() {
                thread::sleep(POLL_INTERVAL);
            }
            let sent = live.is_open.load(Ordering::Acquire).then(|| {
                self.prepare(far)?;
                let until = Instant::now() + self.far_task.duration.unwrap_or_default();
                while Instant::now() < until && !running.is_finished() {
                    thread::sleep(
                        POLL_INTERVAL.min(until.saturating_duration_since(Instant::now())),
                    );
                }
                role::drain(&live);
                far.stop().map_err(PathError::part)
            });
            stop.store(true, Ordering::Relaxed);
            let near = running.end().map_err(|why| PathError::at("near", why))?;
            let Some(sent) = sent else {
                return Err(PathError::Part("near: ended before the far end sent".into()));
            };
            Ok((near, sent?))
        })
    }

    /// Starts the far end; returns its address and port.
    fn prepare(&self, far: &mut Far) -> Result<(IpAddr, u16), PathError> {
        let ready = far.prepare(self.far_task, self.settings, NEAR_PORT, FAR_PORT);
        ready.map(|ready| (ready.ip, ready.port)).map_err(PathError::part)
    }

    fn alone(&self, local: &Local, remote: &Remote) -> Result<RoleReport, RunCause> {
        thread::scope(|scope| {
            let running = start(scope, "near", || {
                self.settle()?;
                let stop = AtomicBool::new(false);
                let all = sys::affinity::allowed_cpus().unwrap_or_default();
                let cpus = if self.cpus.is_empty() { &all[..] } else { self.cpus };
                Ok(role::open_and_run_on(cpus, self.task, local, remote, &stop)?)
            });
            running.end()
        })
    }

    /// Moves the calling thread to the CPUs of the near end.
    fn settle(&self) -> Result<(), LabError> {
        if self.cpus.is_empty() {
            return Ok(());
        }
        let pinned = sys::affinity::pin_to(self.cpus);
        pinned.map_err(|source| LabError::Pin { cpus: self.cpus.to_vec(), source })
    }
}
