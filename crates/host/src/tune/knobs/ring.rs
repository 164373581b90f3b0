//! Descriptors of a device's rings.

use super::access::{Access, number};
use crate::net::ethtool::{self, Rings as Sizes};
use crate::tune::error::KnobError;
use crate::tune::knob::{About, Ethtool, Kept, Knob};
use crate::tune::system::System;
use crate::tune::target::{Scope, Target};
use crate::tune::value::{Value, ValueFormat, pairs};

/// Receive and transmit rings.
///
/// Most drivers take the device down and up again to resize them. Frames in flight are lost, and
/// settings that the driver does not keep are reset.
///
/// Source: ethtool(8), `-G`.
#[derive(Debug)]
pub(super) struct Rings;

static ABOUT: About = About {
    id: "rings",
    what: "descriptors in each receive and transmit ring",
    scope: Scope::Interface,
    format: ValueFormat::Pairs(&["rx", "tx"]),
};

impl Rings {
    fn now(&self, system: &System, target: &Target) -> Result<(u32, Sizes), KnobError> {
        let access = Access::new(self, system, target);
        let (index, sizes) = access.get(ethtool::rings)?;
        // Some drivers without rings answer with zeros.
        if sizes.rx_max == 0 && sizes.tx_max == 0 {
            return Err(access.not_offered());
        }
        Ok((index, sizes))
    }
}

impl Knob for Rings {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn read_at(&self, system: &System, target: &Target) -> Result<Value, KnobError> {
        let (_, now) = self.now(system, target)?;
        Ok(Value::new(format!("rx={} tx={}", now.rx, now.tx)).expect("one short line"))
    }

    fn set_at(&self, system: &System, target: &Target, value: &Value) -> Result<(), KnobError> {
        let (index, now) = self.now(system, target)?;
        let (mut rx, mut tx) = (now.rx, now.tx);
        for (name, count) in pairs(value.as_str()).unwrap_or_default() {
            *if name == "rx" { &mut rx } else { &mut tx } = number(self, value, count)?;
        }
        let (rx, tx) = ((rx != now.rx).then_some(rx), (tx != now.tx).then_some(tx));
        if rx.is_none() && tx.is_none() {
            return Ok(());
        }
        Access::new(self, system, target).change(value, || ethtool::set_rings(index, rx, tx))
    }

    fn kept(&self, _: &Target, value: &Value) -> Vec<Kept> {
        Ethtool::Rings.kept(value)
    }

    fn probe_at(&self, system: &System, target: &Target) -> Result<(), KnobError> {
        self.now(system, target)?;
        Access::new(self, system, target).may_configure()
    }

    fn disturbs(&self) -> bool {
        true
    }
}
