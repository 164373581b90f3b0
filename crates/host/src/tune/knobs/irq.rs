//! Which CPUs an interrupt may go to.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use super::{probe, read, write};
use crate::tune::error::KnobError;
use crate::tune::knob::{About, Knob};
use crate::tune::system::System;
use crate::tune::target::{Scope, Target};
use crate::tune::value::{Format, Value, mask_to_cpus};

/// `smp_affinity` of an interrupt.
///
/// The kernel moves an interrupt when the next one arrives, and `effective_affinity` lags behind;
/// so the counts of `/proc/interrupts` tell whether it has moved, when there is traffic.
///
/// Source: Documentation/core-api/irq/irq-affinity.rst.
#[derive(Debug)]
pub(super) struct Affinity;

/// How often the counts are looked at before giving up on seeing one, and how far apart.
const LOOKS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(25);

static ABOUT: About = About {
    id: "irq-affinity",
    what: "CPUs that an interrupt may go to",
    scope: Scope::Irq,
    format: Format::Mask,
};

impl Affinity {
    fn path(target: &Target) -> String {
        let irq = match target {
            Target::Irq(irq) => *irq,
            _ => 0,
        };
        format!("proc/irq/{irq}/smp_affinity")
    }
}

impl Knob for Affinity {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn read_at(&self, system: &System, target: &Target) -> Result<Value, KnobError> {
        read(self, system, target, &Self::path(target))
    }

    fn set_at(&self, system: &System, target: &Target, value: &Value) -> Result<(), KnobError> {
        write(self, system, target, &Self::path(target), value.as_str())
    }

    fn probe_at(&self, system: &System, target: &Target) -> Result<(), KnobError> {
        self.read_at(system, target)?;
        probe(self, system, target, &Self::path(target))
    }

    fn settled(
        &self,
        system: &System,
        target: &Target,
        value: &Value,
    ) -> Result<Option<String>, KnobError> {
        let Target::Irq(irq) = *target else {
            return Ok(None);
        };
        let cpus = mask_to_cpus(value.as_str()).unwrap_or_default();
        let counts = || {
            let table = system.read_host("proc/interrupts").unwrap_or_default();
            counts(&table).remove(&irq)
        };
        let mut looks = 0;
        let seen = watch(&cpus, || {
            looks += 1;
            if looks > 1 {
                thread::sleep(PAUSE);
            }
            (looks <= LOOKS).then(counts)
        });
        match seen {
            Seen::Moved => Ok(None),
            Seen::Silent => {
                Ok(Some("no interrupt came since: that it has moved was not seen".to_owned()))
            }
            Seen::Elsewhere(cpu) => Err(KnobError::NotTaken {
                knob: ABOUT.id.to_owned(),
                target: target.clone(),
                wanted: value.to_string(),
                found: format!("interrupts still arriving on CPU {cpu}"),
            }),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Seen {
    /// Interrupts came, and in the end only on CPUs of the mask.
    Moved,
    /// None came.
    Silent,
    /// They went on arriving on another CPU.
    Elsewhere(usize),
}

/// Looks at counts until an interval shows interrupts on `cpus` alone, or looks run out. The
/// first interrupt after a change may still come to the old CPU: it is what moves it, and when no
/// other follows nothing is proven.
fn watch(cpus: &[usize], mut look: impl FnMut() -> Option<Option<Vec<u64>>>) -> Seen {
    let mut before: Option<Vec<u64>> = None;
    let mut verdict = Seen::Silent;
    let mut strays = 0;
    while let Some(Some(now)) = look() {
        if let Some(before) = &before {
            let grew: Vec<usize> = (0..now.len())
                .filter(|&cpu| before.get(cpu).is_some_and(|was| now[cpu] > *was))
                .collect();
            match grew.iter().find(|cpu| !cpus.contains(cpu)) {
                Some(&cpu) => {
                    strays += now[cpu] - before[cpu];
                    verdict = if strays > 1 { Seen::Elsewhere(cpu) } else { Seen::Silent };
                }
                None if !grew.is_empty() => return Seen::Moved,
                None => {}
            }
        }
        before = Some(now);
    }
    verdict
}

/// Counts of each numbered interrupt by CPU number, out of `/proc/interrupts`.
pub(crate) fn counts(table: &str) -> BTreeMap<u32, Vec<u64>> {
    let mut lines = table.lines();
    // The columns are the CPUs that are online, which need not be all.
    let cpus: Vec<usize> = lines
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|word| word.strip_prefix("CPU")?.parse().ok())
        .filter(|cpu| *cpu < 1 << 16)
        .collect();
    let width = cpus.iter().max().map_or(0, |last| last + 1);
    let line_of = |line: &str| {
        let (irq, rest) = line.split_once(':')?;
        let mut row = vec![0; width];
        for (cpu, count) in cpus.iter().zip(rest.split_whitespace()) {
            row[*cpu] = count.parse().ok()?;
        }
        Some((irq.trim().parse().ok()?, row))
    };
    lines.filter_map(line_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(cpus: &[usize], looks: &[[u64; 2]]) -> Seen {
        let mut looks = looks.iter();
        watch(cpus, || looks.next().map(|row| Some(row.to_vec())))
    }

    #[test]
    fn an_interrupt_has_moved_when_it_counts_on_the_new_cpu_alone() {
        assert_eq!(watched(&[1], &[[5, 0], [5, 0], [6, 0], [6, 3]]), Seen::Moved);
        assert_eq!(watched(&[1], &[[5, 0], [6, 1], [6, 2]]), Seen::Moved);
        assert_eq!(watched(&[0, 1], &[[5, 0], [6, 0]]), Seen::Moved);
    }

    #[test]
    fn silence_and_the_wrong_cpu_are_told_apart() {
        assert_eq!(watched(&[1], &[[5, 0], [5, 0], [5, 0]]), Seen::Silent);
        assert_eq!(watched(&[1], &[]), Seen::Silent);
        assert_eq!(watched(&[1], &[[5, 0], [6, 0], [6, 0]]), Seen::Silent);
        assert_eq!(watched(&[1], &[[5, 0], [6, 0], [7, 0]]), Seen::Elsewhere(0));
    }

    #[test]
    fn the_table_of_interrupts_is_read_by_cpu_number() {
        let table = "           CPU0       CPU3\n 24:          1          7  PCI-MSI 5-edge  eth0\n\
                     NMI:          0          0   Non-maskable interrupts\n 25: x y\n";
        let counts = counts(table);
        assert_eq!(counts.len(), 1);
        assert_eq!(counts[&24], [1, 0, 0, 7]);
        assert!(super::counts("").is_empty());
    }
}
