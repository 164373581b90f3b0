//! Trials against `wirepath peer` on another host.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::AtomicBool;
use std::thread;

use host::cpu::CpuClock;
use host::idle::NoIdle;
use io::thread::start;
use io::{Local, Remote};
use model::{Arm, ArmKind, Measurement, Support};

use super::endpoint::{self, Choice};
use super::peer::Far;
use super::role::{self, Task};
use super::session::{FAR_PORT, NEAR_PORT, combine, roles_of, seed};
use super::switches::{engine_of, fit};
use crate::lab::Meter;
use crate::path::{Load, PathError, Session};

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
                what: "the storm load needs a veth under our control".into(),
                remedy: "run it in the lab, without --peer; between hosts there is flood".into(),
            });
        }
        let far = Far::connect(host, load.secret.as_deref()).map_err(PathError::part)?;
        let ip = ipv4_of(&far);
        let choice = Choice { ifname: None, queue: 0, port: NEAR_PORT };
        let (local, _) = endpoint::towards(ip, FAR_PORT, &choice).map_err(PathError::part)?;
        let cpus = io::affinity::allowed_cpus().map_err(PathError::part)?;
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

/// What a run between two hosts can and cannot switch.
pub(super) fn support(arm: &Arm) -> Support {
    if arm.kind == ArmKind::Peer {
        return Support::Refused { why: "other programs are run in the lab only".into() };
    }
    if arm.has("rps") {
        return Support::unsupported(
            "rps between two hosts (nothing of a real interface is changed yet)",
            "its mask set by hand on both: /sys/class/net/IF/queues/rx-0/rps_cpus",
        );
    }
    Support::Yes
}

impl Session for RemoteSession {
    fn trial(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        self.run = self.run.wrapping_add(1);
        let (near_role, far_role, pace) = roles_of(&self.load);
        let mut engine = engine_of(arm);
        fit(&mut engine, self.load.size_bytes);
        let mut task = Task {
            role: far_role,
            engine,
            pace,
            payload_bytes: self.load.size_bytes,
            flows: 1,
            first_flow: 0,
            session: Some(self.run),
            count: None,
            duration: None,
            one_clock: false,
        };
        let _awake =
            arm.has("no-idle-states").then(NoIdle::hold).transpose().map_err(PathError::part)?;
        let ready = self.far.prepare(&task, NEAR_PORT, FAR_PORT).map_err(PathError::part)?;
        let choice = Choice { ifname: Some(self.local.ifname.clone()), queue: 0, port: NEAR_PORT };
        let (local, remote) =
            endpoint::towards(ready.ip, ready.port, &choice).map_err(PathError::part)?;
        task.role = near_role;
        task.duration = Some(self.load.trial);
        let cpus = if arm.has("pin") { self.cpus.first().copied() } else { None };
        let meter = Meter::start(&self.clock)?;
        let near = run_near(&task, &local, &remote, cpus);
        // The far end is stopped whether the near end succeeded or not.
        let far = self.far.stop().map_err(PathError::part);
        let used = meter.stop()?;
        let near = near.map_err(|why| PathError::End { end: "near".into(), why })?;
        Ok(combine(near, far?, &used))
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
) -> Result<role::RoleReport, String> {
    thread::scope(|scope| {
        let running = start(scope, "near", || {
            if let Some(cpu) = cpu {
                io::affinity::pin_to(&[cpu]).map_err(|e| format!("pinning to CPU {cpu}: {e}"))?;
            }
            role::open_and_run(task, local, Some(remote), &AtomicBool::new(false), None)
        });
        running.end()
    })
}
