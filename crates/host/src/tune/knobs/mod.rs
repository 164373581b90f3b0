//! Every knob there is, by the way it is reached.

mod channels;
mod coalescing;
mod cpu;
mod file;
mod irq;
mod offload;
mod qdisc;
mod ring;
mod sysctl;

pub(crate) use irq::counts as irq_counts;

use std::io;

use super::error::KnobError;
use super::knob::{Asked, Knob};
use super::system::System;
use super::target::Target;
use super::value::Value;

/// All of them, those that disturb others first.
pub(super) fn all() -> Vec<&'static dyn Knob> {
    let mut knobs: Vec<&'static dyn Knob> =
        vec![&channels::Channels, &ring::Rings, &coalescing::Coalescing];
    knobs.extend(offload::OFFLOADS.iter().map(|knob| knob as &dyn Knob));
    knobs.push(&qdisc::RootQdisc);
    knobs.extend(file::FILES.iter().map(|knob| knob as &dyn Knob));
    knobs.push(&irq::Affinity);
    knobs.extend(sysctl::SYSCTLS.iter().map(|knob| knob as &dyn Knob));
    knobs.extend([&cpu::Governor as &dyn Knob, &cpu::IdleStates]);
    knobs.extend(cpu::CHOICES.iter().map(|knob| knob as &dyn Knob));
    // Stable: beyond this, the order above is that of application.
    knobs.sort_by_key(|knob| !knob.disturbs());
    knobs
}

/// Reads a file of the host.
fn read(knob: &dyn Knob, system: &System, target: &Target, path: &str) -> Result<Value, KnobError> {
    let asked = Asked::of(knob, system, target);
    let text = system.read_host(path).map_err(|source| asked.read_error(path, source))?;
    value(path, text)
}

/// Writes a file of the host.
fn write(
    knob: &dyn Knob,
    system: &System,
    target: &Target,
    path: &str,
    value: &str,
) -> Result<(), KnobError> {
    let asked = Asked::of(knob, system, target);
    system.write_host(path, value).map_err(|source| asked.write_error(path, value, source))
}

/// Whether a file of the host could be written.
fn probe(knob: &dyn Knob, system: &System, target: &Target, path: &str) -> Result<(), KnobError> {
    let asked = Asked::of(knob, system, target);
    system.probe_host(path).map_err(|source| asked.write_error(path, "", source))
}

/// A value out of what a file held.
fn value(what: &str, text: String) -> Result<Value, KnobError> {
    Value::new(text).ok_or_else(|| KnobError::Read {
        what: what.to_owned(),
        source: io::Error::new(io::ErrorKind::InvalidData, "it is not one line of text"),
    })
}

/// A count within a list of pairs.
fn number(knob: &dyn Knob, value: &Value, text: &str) -> Result<u32, KnobError> {
    text.parse().map_err(|_| KnobError::Value {
        knob: knob.about().id.to_owned(),
        value: value.to_string(),
        expected: "whole numbers".to_owned(),
    })
}

/// Refuses whoever may not change interfaces of the namespace.
///
/// Asked by changing an interface that cannot exist, because a capability alone does not tell: it
/// has to hold in the user namespace that owns the network namespace. The kernel looks at that
/// before it looks for the interface.
fn may_configure(system: &System) -> Result<(), KnobError> {
    const NO_SUCH_INDEX: u32 = i32::MAX as u32;
    match system.within(|| crate::net::set_up(NO_SUCH_INDEX, true)) {
        Err(error) if error.is_denied() => Err(error),
        _ => Ok(()),
    }
}
