//! Offloads: what a device, or the stack on its behalf, does to packets.

use crate::net::ethtool::{self, Offload as State};
use crate::tune::error::KnobError;
use crate::tune::knob::{Asked, Knob};
use crate::tune::system::System;
use crate::tune::target::{Scope, Target};
use crate::tune::value::{Format, Value};

/// One offload. Some depend on others (segmentation on scatter-gather and checksums), so each may
/// take others along.
///
/// Source: ethtool(8), `-K`; Documentation/networking/netdev-features.rst.
#[derive(Debug)]
pub(super) struct Offload {
    id: &'static str,
    /// Name of the kernel's.
    feature: &'static str,
    what: &'static str,
}

const fn offload(id: &'static str, feature: &'static str, what: &'static str) -> Offload {
    Offload { id, feature, what }
}

pub(super) static OFFLOADS: &[Offload] = &[
    offload("rx-checksum", "rx-checksum", "the device checks checksums of what it receives"),
    offload("tx-checksum", "tx-checksum-ip-generic", "the device fills in checksums"),
    offload("sg", "tx-scatter-gather", "frames go out from several pieces of memory"),
    offload("gso", "tx-generic-segmentation", "large packets are cut late, before the driver"),
    offload("tso", "tx-tcp-segmentation", "the device cuts large TCP packets"),
    offload("udp-gso", "tx-udp-segmentation", "the device cuts large UDP packets"),
    offload("gro", "rx-gro", "arrivals of one flow are merged"),
    offload("hw-gro", "rx-gro-hw", "the device merges arrivals of one flow"),
    offload("gro-list", "rx-gro-list", "arrivals of one flow are chained, for forwarding"),
    offload("udp-gro-forwarding", "rx-udp-gro-forwarding", "forwarded UDP is merged too"),
    offload("lro", "rx-lro", "the device merges TCP so that it cannot be taken apart again"),
    offload("rx-hash", "rx-hashing", "the device gives each flow's hash"),
];

impl Offload {
    fn now(&self, system: &System, target: &Target) -> Result<(u32, State), KnobError> {
        <dyn Knob>::check_target(self, target)?;
        let index = system.index(target.interface().unwrap_or_default())?;
        let asked = Asked { knob: self.id, target, needs: "", system };
        let offloads = system.within(|| ethtool::offloads(index));
        let offloads = offloads.map_err(|error| asked.net_error(None, error))?;
        Ok((index, offloads.get(self.feature).copied().ok_or_else(|| asked.not_offered())?))
    }
}

impl Knob for Offload {
    fn id(&self) -> &'static str {
        self.id
    }

    fn what(&self) -> &'static str {
        self.what
    }

    fn scope(&self) -> Scope {
        Scope::Interface
    }

    fn format(&self) -> Format {
        Format::Switch
    }

    fn read(&self, system: &System, target: &Target) -> Result<Value, KnobError> {
        let (_, state) = self.now(system, target)?;
        Ok(Value::new(if state.is_on { "on" } else { "off" }).expect("one short line"))
    }

    fn set(&self, system: &System, target: &Target, value: &Value) -> Result<(), KnobError> {
        let (index, _) = self.now(system, target)?;
        let asked = Asked { knob: self.id, target, needs: "", system };
        let wanted = [(self.feature, value.as_str() == "on")];
        let set = system.within(|| ethtool::set_features(index, &wanted));
        set.map_err(|error| asked.net_error(Some(value), error))
    }

    fn probe(&self, system: &System, target: &Target) -> Result<(), KnobError> {
        let (_, state) = self.now(system, target)?;
        if !state.is_offered {
            let needs = "a driver that lets it be switched";
            return Err(Asked { knob: self.id, target, needs, system }.not_offered());
        }
        // The kernel offers it to every interface, and drops it where frames are one piece.
        if self.id == "gso" && !state.is_on {
            let scattered = OFFLOADS.iter().find(|offload| offload.id == "sg");
            let scattered = scattered.map(|offload| offload.now(system, target)).transpose();
            let has_it = |(_, sg): (u32, State)| sg.is_on || sg.is_offered;
            if !scattered.is_ok_and(|sg| sg.is_some_and(has_it)) {
                let needs = "scatter-gather";
                return Err(Asked { knob: self.id, target, needs, system }.not_offered());
            }
        }
        may_configure(system)
    }

    fn disturbs(&self) -> bool {
        true
    }
}

/// Refuses whoever may not change interfaces of the namespace.
///
/// Asked by changing an interface that cannot exist, because a capability alone does not tell: it
/// has to hold in the user namespace that owns the network namespace. The kernel looks at that
/// before it looks for the interface.
pub(super) fn may_configure(system: &System) -> Result<(), KnobError> {
    const NO_SUCH_INDEX: u32 = i32::MAX as u32;
    match system.within(|| crate::net::set_up(NO_SUCH_INDEX, true)) {
        Err(error) if error.is_denied() => Err(error),
        _ => Ok(()),
    }
}
