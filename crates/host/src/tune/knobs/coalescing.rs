//! Interrupt coalescing.

use super::access::{Access, number};
use crate::net::ethtool::{self, Coalesce};
use crate::tune::error::KnobError;
use crate::tune::knob::{About, Ethtool, Kept, Knob};
use crate::tune::system::System;
use crate::tune::target::{Scope, Target};
use crate::tune::value::{Value, ValueFormat, pairs};

/// Interrupt coalescing of both directions.
///
/// Source: ethtool(8), `-C`.
#[derive(Debug)]
pub(super) struct Coalescing;

const NAMES: &[&str] =
    &["adaptive-rx", "adaptive-tx", "rx-usecs", "rx-frames", "tx-usecs", "tx-frames"];

static ABOUT: About = About {
    id: "coalescing",
    what: "time and number of packets that a device collects before it interrupts",
    scope: Scope::Interface,
    format: ValueFormat::Pairs(NAMES),
};

impl Coalescing {
    fn now(&self, system: &System, target: &Target) -> Result<(u32, Coalesce), KnobError> {
        let access = Access::new(self, system, target);
        let (index, now) = access.get(ethtool::coalesce)?;
        if now == Coalesce::default() {
            return Err(access.not_offered());
        }
        Ok((index, now))
    }

    fn parse(&self, value: &Value) -> Result<Coalesce, KnobError> {
        let mut wanted = Coalesce::default();
        let switch = |text: &str| match text {
            "on" => Ok(Some(true)),
            "off" => Ok(Some(false)),
            _ => Err(KnobError::Value {
                knob: ABOUT.id.to_owned(),
                value: value.to_string(),
                expected: "adaptive-rx and adaptive-tx as on or off".to_owned(),
            }),
        };
        for (name, text) in pairs(value.as_str()).unwrap_or_default() {
            match name {
                "adaptive-rx" => wanted.is_adaptive_rx = switch(text)?,
                "adaptive-tx" => wanted.is_adaptive_tx = switch(text)?,
                "rx-usecs" => wanted.rx_us = Some(number(self, value, text)?),
                "rx-frames" => wanted.rx_frames = Some(number(self, value, text)?),
                "tx-usecs" => wanted.tx_us = Some(number(self, value, text)?),
                _ => wanted.tx_frames = Some(number(self, value, text)?),
            }
        }
        Ok(wanted)
    }
}

/// Returns the values that differ: drivers refuse a parameter that they do not have, even one that
/// is unchanged.
fn difference(wanted: &Coalesce, now: &Coalesce) -> Coalesce {
    fn new<T: PartialEq + Copy>(wanted: Option<T>, now: Option<T>) -> Option<T> {
        wanted.filter(|_| wanted != now)
    }
    Coalesce {
        rx_us: new(wanted.rx_us, now.rx_us),
        rx_frames: new(wanted.rx_frames, now.rx_frames),
        tx_us: new(wanted.tx_us, now.tx_us),
        tx_frames: new(wanted.tx_frames, now.tx_frames),
        is_adaptive_rx: new(wanted.is_adaptive_rx, now.is_adaptive_rx),
        is_adaptive_tx: new(wanted.is_adaptive_tx, now.is_adaptive_tx),
    }
}

fn on_or_off(on: bool) -> String {
    if on { "on" } else { "off" }.to_owned()
}

impl Knob for Coalescing {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn read_at(&self, system: &System, target: &Target) -> Result<Value, KnobError> {
        let (_, now) = self.now(system, target)?;
        let all = [
            ("adaptive-rx", now.is_adaptive_rx.map(on_or_off)),
            ("adaptive-tx", now.is_adaptive_tx.map(on_or_off)),
            ("rx-usecs", now.rx_us.map(|us| us.to_string())),
            ("rx-frames", now.rx_frames.map(|count| count.to_string())),
            ("tx-usecs", now.tx_us.map(|us| us.to_string())),
            ("tx-frames", now.tx_frames.map(|count| count.to_string())),
        ];
        let words: Vec<_> =
            all.into_iter().filter_map(|(name, text)| Some(format!("{name}={}", text?))).collect();
        Ok(Value::new(words.join(" ")).expect("one short line"))
    }

    fn set_at(&self, system: &System, target: &Target, value: &Value) -> Result<(), KnobError> {
        let wanted = self.parse(value)?;
        let (index, now) = self.now(system, target)?;
        let wanted = difference(&wanted, &now);
        if wanted == Coalesce::default() {
            return Ok(());
        }
        Access::new(self, system, target).change(value, || ethtool::set_coalesce(index, &wanted))
    }

    fn kept(&self, _: &Target, value: &Value) -> Vec<Kept> {
        Ethtool::Coalescing.kept(value)
    }

    fn probe_at(&self, system: &System, target: &Target) -> Result<(), KnobError> {
        self.now(system, target)?;
        let access = Access::new(self, system, target);
        if is_fixed_virtio(system, target.interface().unwrap_or_default()) {
            let needs = "a virtio device with VIRTIO_NET_F_NOTF_COAL";
            return Err(access.needing(needs).not_offered());
        }
        access.may_configure()
    }
}

/// True for a virtio device without the setting: its driver reports values and refuses changes.
///
/// Source: virtio 1.3, 5.1.3, feature bits 52 and 53; the kernel's `features` file of a virtio
/// device has one digit for each bit, from bit 0.
fn is_fixed_virtio(system: &System, interface: &str) -> bool {
    let features = system.read_net(&format!("{interface}/device/features"));
    system.driver(interface) == "virtio_net"
        && features.is_ok_and(|bits| bits.get(52..54) == Some("00"))
}
