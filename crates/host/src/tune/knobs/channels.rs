//! Number of queues that an interface uses.

use super::access::{Access, number};
use crate::net::ethtool::{self, Channels as Counts};
use crate::tune::error::KnobError;
use crate::tune::knob::{About, Ethtool, Kept, Knob};
use crate::tune::system::System;
use crate::tune::target::{Scope, Target};
use crate::tune::value::{Value, ValueFormat, pairs};

/// Receive, transmit and combined channels.
///
/// Removing a channel discards its steering, and a new one has none. The journal therefore records
/// the steering of every queue as well.
///
/// Source: ethtool(8), `-L`; Documentation/networking/ethtool-netlink.rst, CHANNELS_SET.
#[derive(Debug)]
pub(super) struct Channels;

static ABOUT: About = About {
    id: "channels",
    what: "queues in use: receive, transmit and combined",
    scope: Scope::Interface,
    format: ValueFormat::Pairs(&["rx", "tx", "combined"]),
};

impl Channels {
    fn now(&self, system: &System, target: &Target) -> Result<(u32, Counts), KnobError> {
        Access::new(self, system, target).get(ethtool::channels)
    }
}

impl Knob for Channels {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn read_at(&self, system: &System, target: &Target) -> Result<Value, KnobError> {
        let (_, now) = self.now(system, target)?;
        let text = format!("rx={} tx={} combined={}", now.rx, now.tx, now.combined);
        Ok(Value::new(text).expect("one short line"))
    }

    fn set_at(&self, system: &System, target: &Target, value: &Value) -> Result<(), KnobError> {
        let (index, now) = self.now(system, target)?;
        let mut wanted = now;
        for (name, count) in pairs(value.as_str()).unwrap_or_default() {
            let place = match name {
                "rx" => &mut wanted.rx,
                "tx" => &mut wanted.tx,
                _ => &mut wanted.combined,
            };
            *place = number(self, value, count)?;
        }
        Access::new(self, system, target).change(value, || ethtool::set_channels(index, &wanted))
    }

    fn kept(&self, _: &Target, value: &Value) -> Vec<Kept> {
        Ethtool::Channels.kept(value)
    }

    fn probe_at(&self, system: &System, target: &Target) -> Result<(), KnobError> {
        self.now(system, target)?;
        Access::new(self, system, target).may_configure()
    }

    fn disturbs(&self) -> bool {
        true
    }
}
