//! Lookup of knobs by name, and of the targets of a knob.

use super::error::KnobError;
use super::knob::Knob;
use super::knobs;
use super::system::System;
use super::target::{RouteTarget, Scope, Target};

/// All knobs, those that disturb others first; plans keep this order.
pub fn all() -> Vec<&'static dyn Knob> {
    knobs::all()
}

pub fn find(id: &str) -> Option<&'static dyn Knob> {
    all().into_iter().find(|knob| knob.id() == id)
}

/// A knob of a journal or of a plan that this program made: one of [`find`], or the pair of commands, which no plan
/// file may have.
pub(super) fn find_recorded(id: &str) -> Option<&'static dyn Knob> {
    if id == knobs::COMMAND.id() { Some(knobs::COMMAND) } else { find(id) }
}

/// Returns the id with the smallest edit distance to `id`.
pub(super) fn nearest(id: &str) -> &'static str {
    let distance = |known: &str| {
        // Levenshtein distance, two rows at a time.
        let (a, b): (Vec<char>, Vec<char>) =
            (id.chars().take(64).collect(), known.chars().collect());
        let mut row: Vec<usize> = (0..=b.len()).collect();
        for (i, x) in a.iter().enumerate() {
            let mut corner = row[0];
            row[0] = i + 1;
            for (j, y) in b.iter().enumerate() {
                let least = (corner + usize::from(x != y)).min(row[j] + 1).min(row[j + 1] + 1);
                corner = row[j + 1];
                row[j + 1] = least;
            }
        }
        row[b.len()]
    };
    all().iter().map(|knob| knob.id()).min_by_key(|known| distance(known)).unwrap_or_default()
}

/// Returns all targets of a knob on an interface, or on the host.
pub fn targets(
    knob: &dyn Knob,
    system: &System,
    interface: Option<&str>,
) -> Result<Vec<Target>, KnobError> {
    let queues = |name: &str, direction: &str| {
        system
            .queues(name, direction)
            .map_err(|source| KnobError::Read { what: format!("the queues of {name}"), source })
    };
    Ok(match (knob.scope(), interface) {
        (Scope::Host, _) => vec![Target::Host],
        (Scope::Netns, _) => vec![Target::Netns],
        (Scope::Cpu, _) => {
            system.online_cpus().into_iter().map(|cpu| Target::Cpu(cpu as u32)).collect()
        }
        (Scope::Interface, Some(name)) => vec![Target::Interface(name.to_owned())],
        (Scope::RxQueue, Some(name)) => queues(name, "rx")?
            .into_iter()
            .map(|queue| Target::RxQueue(name.to_owned(), queue))
            .collect(),
        (Scope::TxQueue, Some(name)) => queues(name, "tx")?
            .into_iter()
            .map(|queue| Target::TxQueue(name.to_owned(), queue))
            .collect(),
        (Scope::Irq, Some(name)) => system.irqs(name).into_iter().map(Target::Irq).collect(),
        (Scope::Route, Some(name)) => RouteTarget::all(system, name)?,
        (Scope::Interface | Scope::RxQueue | Scope::TxQueue | Scope::Irq | Scope::Route, None)
        | (Scope::Command, _) => Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_are_unique_and_knobs_that_disturb_others_come_first() {
        let ids: Vec<_> = all().iter().map(|knob| knob.id()).collect();
        let unique: BTreeSet<_> = ids.iter().collect();
        assert_eq!(unique.len(), ids.len());
        let is_disturbing: Vec<_> = all().iter().map(|knob| knob.disturbs()).collect();
        assert!(is_disturbing.is_sorted_by(|a, b| a >= b), "{ids:?}");
    }

    #[test]
    fn misspelt_knob_suggests_the_nearest() {
        assert_eq!(nearest("rps-cpu"), "rps-cpus");
        assert_eq!(nearest("tx-queue-lenght"), "tx-queue-len");
    }
}
