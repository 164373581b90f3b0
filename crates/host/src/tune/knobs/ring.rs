//! Descriptors of a device's rings.

use super::channels::number;
use crate::net::ethtool::{self, Rings as Sizes};
use crate::tune::error::KnobError;
use crate::tune::knob::{Asked, Knob};
use crate::tune::system::System;
use crate::tune::target::{Scope, Target};
use crate::tune::value::{Format, Value, pairs};

/// Receive and transmit rings.
///
/// Most drivers take the device down and up again to change them: frames on the way are lost,
/// and what a driver does not remember is reset.
///
/// Source: ethtool(8), `-G`.
#[derive(Debug)]
pub(super) struct Rings;

impl Rings {
    fn now(&self, system: &System, target: &Target) -> Result<(u32, Sizes), KnobError> {
        <dyn Knob>::check_target(self, target)?;
        let index = system.index(target.interface().unwrap_or_default())?;
        let asked = Asked { knob: self.id(), target, needs: "", system };
        let sizes = system.within(|| ethtool::rings(index));
        let sizes = sizes.map_err(|error| asked.net_error(None, error))?;
        // A driver that answers without rings has none.
        if sizes.rx_max == 0 && sizes.tx_max == 0 {
            return Err(asked.not_offered());
        }
        Ok((index, sizes))
    }
}

impl Knob for Rings {
    fn id(&self) -> &'static str {
        "rings"
    }

    fn what(&self) -> &'static str {
        "descriptors in each receive and transmit ring"
    }

    fn scope(&self) -> Scope {
        Scope::Interface
    }

    fn format(&self) -> Format {
        Format::Pairs(&["rx", "tx"])
    }

    fn read(&self, system: &System, target: &Target) -> Result<Value, KnobError> {
        let (_, now) = self.now(system, target)?;
        Ok(Value::new(format!("rx={} tx={}", now.rx, now.tx)).expect("one short line"))
    }

    fn set(&self, system: &System, target: &Target, value: &Value) -> Result<(), KnobError> {
        let (index, now) = self.now(system, target)?;
        let (mut rx, mut tx) = (now.rx, now.tx);
        for (name, count) in pairs(value.as_str()).unwrap_or_default() {
            *if name == "rx" { &mut rx } else { &mut tx } = number(self.id(), value, count)?;
        }
        let (rx, tx) = ((rx != now.rx).then_some(rx), (tx != now.tx).then_some(tx));
        if rx.is_none() && tx.is_none() {
            return Ok(());
        }
        let asked = Asked { knob: self.id(), target, needs: "", system };
        let set = system.within(|| ethtool::set_rings(index, rx, tx));
        set.map_err(|error| asked.net_error(Some(value), error))
    }

    fn probe(&self, system: &System, target: &Target) -> Result<(), KnobError> {
        self.now(system, target)?;
        super::offload::may_configure(system)
    }

    fn disturbs(&self) -> bool {
        true
    }
}
