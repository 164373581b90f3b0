//! The far end's host: its facts, and settings that last for a run.

use std::collections::BTreeMap;
use std::net::IpAddr;

use host::cpu::CpuClock;
use host::idle::{HeldAwake, IdleRequest};
use host::net;
use host::text::chain;
use lab::{describe_machine, describe_nic};
use model::Machine;

use super::protocol::{HostFacts, Settings};
use crate::Switch;

/// Settings of a run, and the host that they apply to.
pub(super) struct Around<'a> {
    pub(super) settings: &'a Settings,
    pub(super) host: &'a Host,
    pub(super) clock: Option<&'a CpuClock>,
}

impl Around<'_> {
    /// CPUs of the run's thread; empty for any. Errors: there is no such CPU.
    pub(super) fn cpus(&self) -> Result<Vec<usize>, String> {
        let allowed = sys::affinity::allowed_cpus().map_err(|e| format!("pin: {e}"))?;
        let wanted = &self.settings.cpus;
        if let Some(cpu) = wanted.iter().find(|cpu| !allowed.contains(cpu)) {
            return Err(format!("CPU {cpu} is none of those that the peer may use: {allowed:?}"));
        }
        let mut cpus = wanted.clone();
        if self.settings.is_pinned {
            cpus = wanted.iter().chain(&allowed).copied().take(1).collect();
        }
        Ok(cpus)
    }

    /// Keeps the CPUs out of idle states if the run asks for it. The second is the switch without effect if
    /// that is impossible here.
    pub(super) fn stay_awake(&self) -> (Option<HeldAwake<'_>>, Option<(String, String)>) {
        if !self.settings.stays_awake {
            return (None, None);
        }
        let held = match &self.host.idle {
            Ok(request) => request.hold().map_err(|e| chain(&e)),
            Err(why) => Err(why.clone()),
        };
        match held {
            Ok(held) => (Some(held), None),
            Err(why) => (None, Some((Switch::NoIdleStates.to_string(), why))),
        }
    }
}

/// Moves the calling thread to these CPUs; empty to leave it where it is.
pub(super) fn pin(cpus: &[usize]) -> Result<(), String> {
    if cpus.is_empty() {
        return Ok(());
    }
    sys::affinity::pin_to(cpus).map_err(|e| format!("pin: CPUs {cpus:?}: {e}"))
}

/// The peer's host: everything that is opened before it gives up its rights.
pub(super) struct Host {
    idle: Result<IdleRequest, String>,
    /// Drivers by the index of their interface.
    drivers: BTreeMap<u32, String>,
    boot_id: Option<String>,
}

impl Host {
    pub(super) fn open() -> Self {
        let links = net::links().unwrap_or_default().into_iter();
        let drivers =
            links.filter_map(|link| Some((link.index, net::ethtool::driver(link.index).ok()??)));
        Host {
            idle: IdleRequest::open().map_err(|e| chain(&e)),
            drivers: drivers.collect(),
            boot_id: lab::boot_id(),
        }
    }

    /// Describes this host, with the interface that leads to the near end.
    pub(super) fn facts(&self, near_ip: IpAddr) -> HostFacts {
        let nic = net::route_to(near_ip).and_then(|route| {
            describe_nic(route.ifindex, self.drivers.get(&route.ifindex).map(String::as_str))
        });
        // Its notes are about ends that share a machine.
        let machine =
            Machine { notes: BTreeMap::new(), ..describe_machine(nic.unwrap_or_default()) };
        HostFacts { machine, boot_id: self.boot_id.clone() }
    }
}
