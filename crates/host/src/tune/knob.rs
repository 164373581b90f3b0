//! What every knob can do.

use std::fmt::Debug;
use std::io;

use super::error::KnobError;
use super::knobs;
use super::system::System;
use super::target::{Scope, Target};
use super::value::{Format, Value};
use crate::net::NetError;

/// What a knob is.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// Name in plans and journals, such as `rps-cpus`.
    pub id: &'static str,
    /// What it does, in a line.
    pub what: &'static str,
    /// What it acts on.
    pub scope: Scope,
    /// How its values are written.
    pub format: Format,
}

/// A named setting of the host that can be read, set, verified and restored.
///
/// What is below is what a kind of setting brings along; whoever uses one calls [`read`], [`set`]
/// and [`probe`], which look at the target first.
///
/// Adding one: a type, or a line in a table, of `knobs`, and a row in `docs/tune.md`.
///
/// [`read`]: trait.Knob.html#method.read
/// [`set`]: trait.Knob.html#method.set
/// [`probe`]: trait.Knob.html#method.probe
pub trait Knob: Debug + Sync {
    /// What it is.
    fn about(&self) -> &About;

    /// What it is set to now, in the kernel's own words, at a target of its scope.
    fn read_at(&self, system: &System, target: &Target) -> Result<Value, KnobError>;

    /// Sets it at a target of its scope.
    fn set_at(&self, system: &System, target: &Target, value: &Value) -> Result<(), KnobError>;

    /// Whether it could be set at a target of its scope, as far as can be told without.
    fn probe_at(&self, system: &System, target: &Target) -> Result<(), KnobError>;

    /// Whether setting it may change other knobs of the same interface, as a new number of
    /// channels resets the steering of its queues.
    fn disturbs(&self) -> bool {
        false
    }

    /// Whether the change has shown its effect, beyond the value that reads back: what to tell
    /// the user when that could not be seen.
    fn settled(&self, _: &System, _: &Target, _: &Value) -> Result<Option<String>, KnobError> {
        Ok(None)
    }
}

impl dyn Knob + '_ {
    /// Name in plans and journals, such as `rps-cpus`.
    pub fn id(&self) -> &'static str {
        self.about().id
    }

    /// How its values are written.
    pub fn format(&self) -> Format {
        self.about().format
    }

    /// What it acts on.
    pub fn scope(&self) -> Scope {
        self.about().scope
    }

    /// What it is set to now, in the kernel's own words.
    pub fn read(&self, system: &System, target: &Target) -> Result<Value, KnobError> {
        self.check_target(target)?;
        self.read_at(system, target)
    }

    /// Sets it; `read` tells what came of it.
    pub fn set(&self, system: &System, target: &Target, value: &Value) -> Result<(), KnobError> {
        self.check_target(target)?;
        self.set_at(system, target, value)
    }

    /// Whether it could be set, as far as can be told without setting it.
    pub fn probe(&self, system: &System, target: &Target) -> Result<(), KnobError> {
        self.check_target(target)?;
        self.probe_at(system, target)
    }

    /// Sets it and reads back; what is there then.
    pub fn set_and_verify(
        &self,
        system: &System,
        target: &Target,
        value: &Value,
    ) -> Result<Value, KnobError> {
        self.set(system, target, value)?;
        let found = self.read(system, target)?;
        if self.format().agrees(value.as_str(), found.as_str()) {
            return Ok(found);
        }
        Err(KnobError::NotTaken {
            knob: self.id().to_owned(),
            target: target.clone(),
            wanted: value.to_string(),
            found: found.to_string(),
        })
    }

    /// Refuses a target of another kind and a value that makes no sense.
    pub fn check(&self, target: &Target, value: &Value) -> Result<(), KnobError> {
        self.check_target(target)?;
        match self.format().canonical(value.as_str()) {
            Some(_) => Ok(()),
            None => Err(KnobError::Value {
                knob: self.id().to_owned(),
                value: value.to_string(),
                expected: self.format().describe(),
            }),
        }
    }

    /// Refuses a target of another kind. A setting that exists in each namespace has its host
    /// value too.
    fn check_target(&self, target: &Target) -> Result<(), KnobError> {
        let fits = self.scope() == target.scope()
            || self.scope() == Scope::Netns && *target == Target::Host;
        if fits {
            return Ok(());
        }
        Err(KnobError::Scope {
            knob: self.id().to_owned(),
            expected: self.scope(),
            target: target.clone(),
        })
    }
}

/// All knobs there are, those that disturb others first; plans keep this order.
pub fn all() -> Vec<&'static dyn Knob> {
    knobs::all()
}

/// The knob of that name.
pub fn find(id: &str) -> Option<&'static dyn Knob> {
    all().into_iter().find(|knob| knob.id() == id)
}

/// The name that comes closest to one that there is not.
pub(super) fn nearest(id: &str) -> &'static str {
    let distance = |known: &str| {
        // Edit distance, two rows at a time.
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

/// All targets of a knob on an interface, or on the machine; empty where there are none.
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
        (Scope::RxQueue, Some(name)) => {
            let of = |queue| Target::RxQueue(name.to_owned(), queue);
            queues(name, "rx")?.into_iter().map(of).collect()
        }
        (Scope::TxQueue, Some(name)) => {
            let of = |queue| Target::TxQueue(name.to_owned(), queue);
            queues(name, "tx")?.into_iter().map(of).collect()
        }
        (Scope::Irq, Some(name)) => system.irqs(name).into_iter().map(Target::Irq).collect(),
        (Scope::Interface | Scope::RxQueue | Scope::TxQueue | Scope::Irq, None) => Vec::new(),
    })
}

/// Says what an answer of the kernel means for a knob.
pub(super) struct Asked<'a> {
    knob: &'a str,
    target: &'a Target,
    needs: &'static str,
    system: &'a System,
}

impl<'a> Asked<'a> {
    pub(super) fn of(knob: &'a dyn Knob, system: &'a System, target: &'a Target) -> Self {
        Asked { knob: knob.about().id, target, needs: "", system }
    }

    /// With what the setting takes where it is not offered.
    pub(super) fn needing(self, needs: &'static str) -> Self {
        Asked { needs, ..self }
    }

    /// Of a failed reading.
    pub(super) fn read_error(&self, what: &str, source: io::Error) -> KnobError {
        self.classify(&format!("reading {what}"), source)
            .unwrap_or_else(|source| KnobError::Read { what: what.to_owned(), source })
    }

    /// Of a failed change.
    pub(super) fn write_error(&self, what: &str, value: &str, source: io::Error) -> KnobError {
        self.classify(&format!("writing {what}"), source).unwrap_or_else(|source| {
            KnobError::Refused {
                knob: self.knob.to_owned(),
                target: self.target.clone(),
                value: value.to_owned(),
                source: source.into(),
            }
        })
    }

    /// Of a failed question or change by netlink.
    pub(super) fn net_error(&self, value: Option<&Value>, error: KnobError) -> KnobError {
        match error {
            KnobError::Net(NetError::Unsupported { .. }) => self.not_offered(),
            KnobError::Net(error @ (NetError::Kernel { .. } | NetError::NotTaken { .. })) => {
                match value {
                    Some(value) => KnobError::Refused {
                        knob: self.knob.to_owned(),
                        target: self.target.clone(),
                        value: value.to_string(),
                        source: error.into(),
                    },
                    None => error.into(),
                }
            }
            error => error,
        }
    }

    pub(super) fn not_offered(&self) -> KnobError {
        let by = match self.target.interface() {
            Some(interface) => format!("by driver {}", self.system.driver(interface)),
            None => "by this kernel or machine".to_owned(),
        };
        KnobError::NotOffered { knob: self.knob.to_owned(), by, needs: self.needs }
    }

    fn classify(&self, what: &str, source: io::Error) -> Result<KnobError, io::Error> {
        let what = what.to_owned();
        match source.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV) => {
                let interface = self.target.interface();
                let is_gone = |name: &str| self.system.list_net(name).is_err();
                Ok(match interface.filter(|name| is_gone(name)) {
                    Some(_) => KnobError::NoTarget { target: self.target.clone() },
                    None => self.not_offered(),
                })
            }
            Some(libc::EOPNOTSUPP) => Ok(self.not_offered()),
            Some(libc::EPERM | libc::EACCES) => Ok(KnobError::Denied { what, source }),
            Some(libc::EROFS) => Ok(KnobError::ReadOnly { what }),
            _ => Err(source),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_those_that_disturb_come_first() {
        let ids: Vec<_> = all().iter().map(|knob| knob.id()).collect();
        let unique: BTreeSet<_> = ids.iter().collect();
        assert_eq!(unique.len(), ids.len());
        let is_disturbing: Vec<_> = all().iter().map(|knob| knob.disturbs()).collect();
        assert!(is_disturbing.is_sorted_by(|a, b| a >= b), "{ids:?}");
    }

    #[test]
    fn a_slip_of_the_pen_finds_its_knob() {
        assert_eq!(nearest("rps-cpu"), "rps-cpus");
        assert_eq!(nearest("tx-queue-lenght"), "tx-queue-len");
    }
}
