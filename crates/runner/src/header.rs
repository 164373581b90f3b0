//! Description of an experiment that is stored with its result.

use std::collections::BTreeMap;

use lab::describe_machine;
use model::{Limits, Load, Machine, OutcomeHeader, Session, TwoHosts, VLAN_MASK};
use remote::Failure;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;

use crate::proof::Proof;

/// Name of the resolution among the parameters that are stored with the result.
const RESOLVE_KEY: &str = "resolve";

/// A resolution as a percentage, such as `2%`.
///
/// - `ratio`: above 1.
pub fn resolve_text(ratio: f64) -> String {
    let percent = ((ratio - 1.0) * 100.0 * 1e9).round() / 1e9;
    format!("{percent}%")
}

/// Resolution among the parameters that are stored with a result, as a ratio above 1.
pub fn stored_resolve(parameters: &BTreeMap<String, String>) -> Option<f64> {
    parameters.get(RESOLVE_KEY).and_then(|text| read_resolve(text))
}

/// Reads a resolution that [`resolve_text`] wrote.
fn read_resolve(text: &str) -> Option<f64> {
    let percent: f64 = text.strip_suffix('%')?.parse().ok()?;
    Some(1.0 + percent / 100.0).filter(|ratio| *ratio > 1.0)
}

/// Parameters of every experiment.
pub(crate) fn limit_parameters(limits: &Limits) -> BTreeMap<String, String> {
    BTreeMap::from([
        (RESOLVE_KEY.to_owned(), resolve_text(limits.resolve)),
        ("time_ms".to_owned(), limits.time.as_millis().to_string()),
    ])
}

/// Parameters of a load of a path.
pub(crate) fn load_parameters(load: &Load, limits: &Limits) -> BTreeMap<String, String> {
    let mut parameters = limit_parameters(limits);
    let mut insert = |name: &str, value: String| parameters.insert(name.to_owned(), value);
    insert("kind", load.kind.clone());
    insert("trial_ms", load.trial.as_millis().to_string());
    if load.size_bytes > 0 {
        insert("size_bytes", load.size_bytes.to_string());
    }
    if load.rate_pps > 0 {
        insert("rate_pps", load.rate_pps.to_string());
    }
    if limits.settle {
        insert("settle", "yes".to_owned());
    }
    if load.ipv6 {
        insert("ip", "6".to_owned());
    }
    if let Some(tag) = load.vlan_tag {
        insert("vlan", vlan_text(tag));
    }
    if let Some(wire) = &load.wire {
        insert("wire", wire.to_string());
    }
    parameters.extend(load.far.iter().flat_map(far_parameters));
    parameters
}

fn vlan_text(tag: u16) -> String {
    let (id, priority) = (tag & VLAN_MASK, tag >> 13);
    if priority == 0 { id.to_string() } else { format!("{id}:{priority}") }
}

fn far_parameters(two: &TwoHosts) -> Vec<(String, String)> {
    let direction = (two.direction == model::Direction::Receive).then(|| "receive".to_owned());
    let ssh_options = (!two.ssh_options.is_empty()).then(|| two.ssh_options.join("\n"));
    let all = [
        ("far", Some(two.end.clone())),
        ("far_address", two.address.map(|address| address.to_string())),
        ("direction", direction),
        ("interface", two.ifname.clone()),
        ("queue", two.queue.map(|queue| queue.to_string())),
        ("app_cpu", two.near_cpu.map(|cpu| cpu.to_string())),
        ("far_cpu", two.far_cpu.map(|cpu| cpu.to_string())),
        ("ssh_options", ssh_options),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// Describes the machines of both ends of a session.
pub(crate) fn session_machine(session: &dyn Session) -> Machine {
    let far = session.far_machine().map(Box::new);
    Machine { far, ..describe_machine(session.nic()) }
}

/// Description of an experiment that starts now, and the nanoseconds since 1970 at which it does.
pub(crate) fn header(proof: &Proof, machine: Machine) -> Result<(OutcomeHeader, u64), Failure> {
    let now = OffsetDateTime::now_utc();
    let started_ns = now.unix_timestamp_nanos() as u64;
    let mut phrases = proof.phrases.clone();
    phrases.by.retain(|id, _| {
        let mut switches = proof.arms.iter().flat_map(|(arm, _)| arm.switches.iter());
        switches.any(|switch| switch.as_str() == id)
    });
    let header = OutcomeHeader {
        name: proof.name.clone(),
        note: proof.note.clone(),
        phrases,
        id: experiment_id(now, &proof.path)?,
        started: now.format(&Rfc3339).map_err(unprintable_time)?,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        machine,
        path: proof.path.clone(),
        load: proof.load.clone(),
        search: proof.search.clone(),
    };
    Ok((header, started_ns))
}

/// Id of an experiment that started at a time, such as `20261201-041834-command-17af`.
pub fn experiment_id(started: OffsetDateTime, path: &str) -> Result<String, Failure> {
    let stamp = started
        .format(format_description!("[year][month][day]-[hour][minute][second]"))
        .map_err(unprintable_time)?;
    let started_us = (started.unix_timestamp_nanos() / 1000) as u64;
    let unique = started_us as u16 ^ std::process::id() as u16;
    Ok(format!("{stamp}-{path}-{unique:04x}"))
}

fn unprintable_time(error: time::error::Format) -> Failure {
    Failure::failed(format!("cannot format the system time: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolutions_are_read_as_they_were_written() {
        for percent in ["5%", "2%", "0.5%", "50%"] {
            assert_eq!(resolve_text(read_resolve(percent).unwrap()), percent);
        }
        for bad in ["", "5", "0%", "-1%", "x%"] {
            assert_eq!(read_resolve(bad), None, "{bad}");
        }
    }

    #[test]
    fn vlans_have_a_priority_if_it_is_not_zero() {
        assert_eq!((vlan_text(7), vlan_text(0x6007)), ("7".into(), "7:3".into()));
    }
}
