//! How many queues an interface uses.

use super::{may_configure, number};
use crate::net::ethtool::{self, Channels as Counts};
use crate::tune::error::KnobError;
use crate::tune::knob::{About, Asked, Knob};
use crate::tune::system::System;
use crate::tune::target::{Scope, Target};
use crate::tune::value::{Format, Value, pairs};

/// Receive, transmit and combined channels.
///
/// A channel that goes takes its steering along, and one that comes has none: the journal keeps
/// the steering of every queue beside this.
///
/// Source: ethtool(8), `-L`; Documentation/networking/ethtool-netlink.rst, CHANNELS_SET.
#[derive(Debug)]
pub(super) struct Channels;

static ABOUT: About = About {
    id: "channels",
    what: "queues in use: receive, transmit and combined",
    scope: Scope::Interface,
    format: Format::Pairs(&["rx", "tx", "combined"]),
};

impl Channels {
    fn now(&self, system: &System, target: &Target) -> Result<(u32, Counts), KnobError> {
        let index = system.index(target.interface().unwrap_or_default())?;
        let counts = system.within(|| ethtool::channels(index));
        Ok((index, counts.map_err(|error| Asked::of(self, system, target).net_error(None, error))?))
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
        let set = system.within(|| ethtool::set_channels(index, &wanted));
        set.map_err(|error| Asked::of(self, system, target).net_error(Some(value), error))
    }

    fn probe_at(&self, system: &System, target: &Target) -> Result<(), KnobError> {
        self.now(system, target)?;
        may_configure(system)
    }

    fn disturbs(&self) -> bool {
        true
    }
}
