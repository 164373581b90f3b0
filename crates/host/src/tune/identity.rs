//! Devices behind targets. Names and numbers are reused, so the journal records what had them.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::error::KnobError;
use super::system::System;
use super::target::Target;
use crate::net::{self, Link, Mac, NetError};

/// Device behind the name or number of a target when its value was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "kebab-case")]
pub enum Identity {
    Interface(Device),
    Interrupt {
        /// Names of its handlers, separated by commas; empty while its interface is down.
        action: String,
    },
}

/// An interface, regardless of its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Unique in its namespace; the kernel does not reuse it unless asked to.
    pub index: u32,
    /// The permanent one of hardware, otherwise the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Address on its bus, such as `0000:00:03.0`; `None` for virtual interfaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus: Option<String>,
}

impl Device {
    fn new(system: &System, link: &Link) -> Self {
        let mac = link.permanent_mac.or(link.mac).map(|mac: Mac| {
            mac.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
        });
        let name = |file: &str| system.link_net(&format!("{}/{file}", link.name));
        let driver = link.kind.clone().or_else(|| name("device/driver"));
        Device { index: link.index, mac, driver, bus: name("device") }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "index {}", self.index)?;
        for (what, value) in [("MAC", &self.mac), ("driver", &self.driver), ("bus", &self.bus)] {
            if let Some(value) = value {
                write!(f, ", {what} {value}")?;
            }
        }
        Ok(())
    }
}

impl Identity {
    /// Identity of what has the target's name or number now; `None` if it has no identity of its own.
    pub(super) fn of(system: &System, target: &Target) -> Option<Self> {
        match target {
            Target::Irq(irq) => {
                system.irq_action(*irq).map(|action| Identity::Interrupt { action })
            }
            target => {
                let name = target.interface().filter(|_| system.has_real_interfaces())?;
                let link = system.within(|| net::link_named(name)).ok()?;
                Some(Identity::Interface(Device::new(system, &link)))
            }
        }
    }
}

/// Where the device of a target is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Whereabouts {
    /// At this target; its interface may have been renamed.
    Here(Target),
    Gone,
    /// Something else has its name or number.
    Replaced {
        by: String,
    },
    /// It cannot be told if it is the same.
    Doubtful {
        why: String,
    },
}

/// Finds what was at `target`.
///
/// - `identity`: as recorded; `None` for journals of older versions and for what has none.
pub(super) fn locate(system: &System, target: &Target, identity: Option<&Identity>) -> Whereabouts {
    let here = || Whereabouts::Here(target.clone());
    match (target, identity) {
        (Target::Host | Target::Netns | Target::Command(_), _) => here(),
        (Target::Cpu(cpu), _) if system.has_cpu(*cpu) => here(),
        (Target::Irq(irq), identity) if system.has_irq(*irq) => {
            let now = system.irq_action(*irq).filter(|now| !now.is_empty());
            match (identity, now) {
                (Some(Identity::Interrupt { action }), Some(now))
                    if !action.is_empty() && *action != now =>
                {
                    Whereabouts::Replaced { by: now }
                }
                _ => here(),
            }
        }
        (Target::Cpu(_) | Target::Irq(_), _) => Whereabouts::Gone,
        (_, Some(Identity::Interface(device))) => locate_interface(system, target, device),
        _ if target.interface().is_some_and(|name| system.lacks(name)) => Whereabouts::Gone,
        _ => here(),
    }
}

fn locate_interface(system: &System, target: &Target, device: &Device) -> Whereabouts {
    let name = target.interface().unwrap_or_default();
    let link = match system.within(|| net::link(device.index)) {
        Ok(link) => link,
        Err(KnobError::Net(NetError::NoInterface { .. })) => {
            return match system.within(|| net::link_named(name)) {
                Ok(link) => Whereabouts::Replaced { by: Device::new(system, &link).to_string() },
                Err(_) => Whereabouts::Gone,
            };
        }
        Err(error) => {
            let why =
                format!("cannot read interface {}: {}", device.index, crate::text::chain(&error));
            return Whereabouts::Doubtful { why };
        }
    };
    let now = Device::new(system, &link);
    if now == *device {
        return Whereabouts::Here(target.on_interface(&link.name));
    }
    let why = format!(
        "{} may be another device than the one that was changed: that had {device}, this has {now}",
        link.name
    );
    Whereabouts::Doubtful { why }
}
