//! Trials against `wirepath peer` on another host.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::AtomicBool;
use std::thread;

use host::cpu::CpuClock;
use io::{Local, Remote};
use model::{Arm, ArmKind, Measurement, Support};
use sys::thread::start;

use super::accounting::combine;
use super::endpoint::{self, Choice};
use super::far_end::{FAR_PORT, NEAR_PORT};
use super::peer::Far;
use super::role::{self, Task};
use super::session::{roles_of, seed};
use super::switches::{Config, Switch};
use lab::{Cause, LabError, Meter, softirqs_missing};
use model::{Load, PathError, Session};

pub(super) struct RemoteSession {
    far: Far,
    load: Load,
    local: Local,
    run: u32,
    cpus: Vec<usize>,
    clock: CpuClock,
}

impl RemoteSession {
    pub(super) fn open(load: &Load, host: &str) -> Result<Self, PathError> {
        if load.kind == "storm" {
            return Err(PathError::Invalid {
                what: "load storm needs the veth of a lab".into(),
                remedy: "run it without --peer, or use flood between hosts".into(),
            });
        }
        let far = Far::connect(host, load.secret.as_deref()).map_err(PathError::part)?;
        let ip = ipv4_of(&far);
        let choice = Choice { ifname: None, queue: 0, port: NEAR_PORT };
        let (local, _) = endpoint::towards(ip, FAR_PORT, &choice).map_err(PathError::part)?;
        let cpus = sys::affinity::allowed_cpus().map_err(PathError::part)?;
        let clock = CpuClock::open().map_err(PathError::part)?;
        Ok(RemoteSession { far, load: load.clone(), local, run: seed(), cpus, clock })
    }
}

pub(super) fn ipv4_of(far: &Far) -> Ipv4Addr {
    match far.address().ip() {
        IpAddr::V4(ip) => ip,
        IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    }
}

/// Support for the switches of an arm between two hosts.
pub(super) fn support(arm: &Arm) -> Support {
    if arm.kind == ArmKind::Peer {
        return Support::Refused { why: "peer programs run only in the lab".into() };
    }
    if arm.has(Switch::Rps) {
        return Support::unsupported(
            "rps between two hosts (settings of real interfaces are not changed)",
            "the mask set by hand on both hosts: /sys/class/net/IF/queues/rx-0/rps_cpus",
        );
    }
    Support::Yes
}

impl Session for RemoteSession {
    fn trial(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        self.run = self.run.wrapping_add(1);
        let (near_role, far_role, pace) = roles_of(&self.load);
        let config = Config::of(arm, &self.load);
        let mut task = Task {
            session: Some(self.run),
            ..Task::new(far_role, config.engine.clone(), pace, self.load.size_bytes)
        };
        let _awake = config.stay_awake()?;
        let ready = self.far.prepare(&task, NEAR_PORT, FAR_PORT).map_err(PathError::part)?;
        let choice = Choice { ifname: Some(self.local.ifname.clone()), queue: 0, port: NEAR_PORT };
        let (local, remote) =
            endpoint::towards(ready.ip, ready.port, &choice).map_err(PathError::part)?;
        task.role = near_role;
        task.duration = Some(self.load.trial);
        let cpu = config.is_pinned.then(|| self.cpus.first().copied()).flatten();
        let meter = Meter::start(&self.clock, cpu.as_slice())?;
        let near = run_near(&task, &local, &remote, cpu, &self.cpus);
        // The far end is stopped even if the near end failed.
        let far = self.far.stop().map_err(PathError::part);
        let used = meter.stop()?;
        let near = near.map_err(|why| PathError::at("near", why))?;
        let mut m = combine((near_role, pace), near, far?, &used);
        // A NIC's interrupts, here and at the far end.
        m.traps = vec![softirqs_missing()];
        Ok(m)
    }

    fn nic(&self) -> String {
        format!("{} (MTU {}) to {}", self.local.ifname, self.local.mtu_bytes, self.far.address())
    }
}

fn run_near(
    task: &Task,
    local: &Local,
    remote: &Remote,
    cpu: Option<usize>,
    cpus: &[usize],
) -> Result<role::RoleReport, Cause> {
    thread::scope(|scope| {
        let running = start(scope, "near", || {
            if let Some(cpu) = cpu {
                let pinned = sys::affinity::pin_to(&[cpu]);
                pinned.map_err(|source| LabError::Pin { cpus: vec![cpu], source })?;
            }
            let cpus = cpu.as_ref().map_or(cpus, std::slice::from_ref);
            Ok(role::open_and_run_on(cpus, task, local, remote, &AtomicBool::new(false))?)
        });
        running.end()
    })
}
