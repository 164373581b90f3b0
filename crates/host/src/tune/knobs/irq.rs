//! CPU affinity of interrupts.

use std::thread;
use std::time::Duration;

use super::access::Access;
use crate::tune::error::KnobError;
use crate::tune::irq_counts::irq_counts;
use crate::tune::knob::{About, Knob};
use crate::tune::system::System;
use crate::tune::target::{Scope, Target};
use crate::tune::value::{Value, ValueFormat, mask_to_cpus};

/// `smp_affinity` of an interrupt.
///
/// The kernel moves an interrupt when the next one arrives, and `effective_affinity` lags behind.
/// The counts of `/proc/interrupts` show that it has moved, if there is traffic.
///
/// Source: Documentation/core-api/irq/irq-affinity.rst.
#[derive(Debug)]
pub(super) struct Affinity;

/// Reads of the counts before the check gives up, and the pause between them.
const READS_MAX: u32 = 10;
const READ_INTERVAL: Duration = Duration::from_millis(25);

static ABOUT: About = About {
    id: "irq-affinity",
    what: "CPUs that may handle an interrupt",
    scope: Scope::Irq,
    format: ValueFormat::Mask,
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
        Access::new(self, system, target).read(&Self::path(target))
    }

    fn set_at(&self, system: &System, target: &Target, value: &Value) -> Result<(), KnobError> {
        Access::new(self, system, target).write(&Self::path(target), value.as_str())
    }

    fn probe_at(&self, system: &System, target: &Target) -> Result<(), KnobError> {
        self.read_at(system, target)?;
        Access::new(self, system, target).probe(&Self::path(target))
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
        let mut reads = 0;
        let seen = watch(&cpus, || {
            reads += 1;
            if reads > 1 {
                thread::sleep(READ_INTERVAL);
            }
            (reads <= READS_MAX).then(|| {
                let table = system.read_host("proc/interrupts").unwrap_or_default();
                irq_counts(&table).remove(&irq)
            })
        });
        match seen {
            Seen::Moved => Ok(None),
            Seen::Silent => {
                Ok(Some("no interrupt arrived since: the move could not be verified".to_owned()))
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
    /// The last interval had interrupts on CPUs of the mask alone.
    Moved,
    /// No interrupt arrived.
    Silent,
    /// Interrupts kept arriving on another CPU.
    Elsewhere(usize),
}

/// Reads counts until an interval shows interrupts on `cpus` alone, or `read` returns none. The first
/// interrupt after a change may still arrive on the old CPU, because the kernel moves it then; if no
/// other follows, nothing is proven.
fn watch(cpus: &[usize], mut read: impl FnMut() -> Option<Option<Vec<u64>>>) -> Seen {
    let mut before: Option<Vec<u64>> = None;
    let mut verdict = Seen::Silent;
    let mut strays = 0;
    while let Some(Some(now)) = read() {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(cpus: &[usize], counts: &[[u64; 2]]) -> Seen {
        let mut counts = counts.iter();
        watch(cpus, || counts.next().map(|row| Some(row.to_vec())))
    }

    #[test]
    fn interrupt_has_moved_when_only_the_new_cpu_counts() {
        assert_eq!(watched(&[1], &[[5, 0], [5, 0], [6, 0], [6, 3]]), Seen::Moved);
        assert_eq!(watched(&[1], &[[5, 0], [6, 1], [6, 2]]), Seen::Moved);
        assert_eq!(watched(&[0, 1], &[[5, 0], [6, 0]]), Seen::Moved);
    }

    #[test]
    fn no_interrupt_is_distinguished_from_the_wrong_cpu() {
        assert_eq!(watched(&[1], &[[5, 0], [5, 0], [5, 0]]), Seen::Silent);
        assert_eq!(watched(&[1], &[]), Seen::Silent);
        assert_eq!(watched(&[1], &[[5, 0], [6, 0], [6, 0]]), Seen::Silent);
        assert_eq!(watched(&[1], &[[5, 0], [6, 0], [7, 0]]), Seen::Elsewhere(0));
    }
}
