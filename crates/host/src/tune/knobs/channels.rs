//! How many queues an interface uses.

use crate::net::ethtool::{self, Channels as Counts};
use crate::tune::error::KnobError;
use crate::tune::knob::{Asked, Knob};
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

impl Channels {
    fn asked<'a>(&self, system: &'a System, target: &'a Target) -> Asked<'a> {
        Asked { knob: "channels", target, needs: "", system }
    }

    fn now(&self, system: &System, target: &Target) -> Result<(u32, Counts), KnobError> {
        <dyn Knob>::check_target(self, target)?;
        let index = system.index(target.interface().unwrap_or_default())?;
        let counts = system.within(|| ethtool::channels(index));
        Ok((index, counts.map_err(|error| self.asked(system, target).net_error(None, error))?))
    }
}

impl Knob for Channels {
    fn id(&self) -> &'static str {
        "channels"
    }

    fn what(&self) -> &'static str {
        "queues in use: receive, transmit and combined"
    }

    fn scope(&self) -> Scope {
        Scope::Interface
    }

    fn format(&self) -> Format {
        Format::Pairs(&["rx", "tx", "combined"])
    }

    fn read(&self, system: &System, target: &Target) -> Result<Value, KnobError> {
        let (_, now) = self.now(system, target)?;
        let text = format!("rx={} tx={} combined={}", now.rx, now.tx, now.combined);
        Ok(Value::new(text).expect("one short line"))
    }

    fn set(&self, system: &System, target: &Target, value: &Value) -> Result<(), KnobError> {
        let (index, now) = self.now(system, target)?;
        let mut wanted = now;
        for (name, count) in pairs(value.as_str()).unwrap_or_default() {
            let place = match name {
                "rx" => &mut wanted.rx,
                "tx" => &mut wanted.tx,
                _ => &mut wanted.combined,
            };
            *place = number(self.id(), value, count)?;
        }
        let set = system.within(|| ethtool::set_channels(index, &wanted));
        set.map_err(|error| self.asked(system, target).net_error(Some(value), error))
    }

    fn probe(&self, system: &System, target: &Target) -> Result<(), KnobError> {
        self.now(system, target)?;
        super::offload::may_configure(system)
    }

    fn disturbs(&self) -> bool {
        true
    }
}

/// A count within a list of pairs.
pub(super) fn number(knob: &str, value: &Value, text: &str) -> Result<u32, KnobError> {
    text.parse().map_err(|_| KnobError::Value {
        knob: knob.to_owned(),
        value: value.to_string(),
        expected: "whole numbers".to_owned(),
    })
}
