//! Common interface of all knobs.

use std::fmt::Debug;

use super::error::KnobError;
use super::system::System;
use super::target::{Scope, Target};
use super::value::{Value, ValueFormat, pairs};

#[derive(Debug, Clone, Copy)]
pub struct About {
    /// Name in plans and journals, such as `rps-cpus`.
    pub id: &'static str,
    pub what: &'static str,
    pub scope: Scope,
    pub format: ValueFormat,
}

/// Connections on which a new value acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reaches {
    /// All, from the moment at which it is set.
    AtOnce,
    /// Those that are made after it was set: older ones keep the value that they began with.
    NewConnections,
    /// Those of listening sockets that are opened after it was set: the service has to be restarted.
    NewListeners,
}

/// Place of a setting in the configuration that other programs apply when the host starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept<T = String> {
    /// Key as in sysctl.conf(5), such as `net.core.rmem_max`.
    Sysctl { key: T, value: T },
    /// File below `/` that belongs to no device, without the leading slash.
    HostFile { path: T, value: T },
    /// File below the directory of a CPU in sysfs.
    CpuFile { cpu: u32, file: T, value: T },
    /// File below the directory of the plan's interface in sysfs.
    NetFile { file: T, value: T },
    /// Parameters of ethtool(8) for the plan's interface.
    Ethtool { what: Ethtool, words: Vec<(T, T)> },
    /// Metric of a route of the plan's interface: a word of ip-route(8) and its value.
    Route { destination: T, is_ipv6: bool, table: u32, word: &'static str, value: T },
    /// Words of tc-qdisc(8) after `root`, for the plan's interface.
    Qdisc { words: T },
}

impl Kept {
    /// The same with each text converted; `None` if one cannot be.
    pub(super) fn map<T>(self, convert: impl Fn(&str) -> Option<T>) -> Option<Kept<T>> {
        let text = |text: String| convert(&text);
        Some(match self {
            Kept::Sysctl { key, value } => Kept::Sysctl { key: text(key)?, value: text(value)? },
            Kept::HostFile { path, value } => {
                Kept::HostFile { path: text(path)?, value: text(value)? }
            }
            Kept::CpuFile { cpu, file, value } => {
                Kept::CpuFile { cpu, file: text(file)?, value: text(value)? }
            }
            Kept::NetFile { file, value } => {
                Kept::NetFile { file: text(file)?, value: text(value)? }
            }
            Kept::Ethtool { what, words } => Kept::Ethtool {
                what,
                words: words
                    .into_iter()
                    .map(|(name, value)| Some((text(name)?, text(value)?)))
                    .collect::<Option<_>>()?,
            },
            Kept::Route { destination, is_ipv6, table, word, value } => {
                let (destination, value) = (text(destination)?, text(value)?);
                Kept::Route { destination, is_ipv6, table, word, value }
            }
            Kept::Qdisc { words } => Kept::Qdisc { words: text(words)? },
        })
    }
}

/// Group of parameters of ethtool(8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ethtool {
    Features,
    Rings,
    Coalescing,
    Channels,
    /// Table of receive queues.
    Table,
    /// Fields of a packet that the device hashes.
    HashFields,
    /// One rule that steers flows to a receive queue.
    Rules,
}

impl Ethtool {
    pub fn option(self) -> &'static str {
        match self {
            Ethtool::Features => "-K",
            Ethtool::Rings => "-G",
            Ethtool::Coalescing => "-C",
            Ethtool::Channels => "-L",
            Ethtool::Table => "-X",
            Ethtool::HashFields | Ethtool::Rules => "-N",
        }
    }

    /// Parameters from the pairs of a value, such as `rx=512 tx=512`.
    pub(super) fn kept(self, value: &Value) -> Vec<Kept> {
        let pairs = pairs(value.as_str()).unwrap_or_default();
        let words = pairs.into_iter().map(|(name, text)| (name.to_owned(), text.to_owned()));
        vec![Kept::Ethtool { what: self, words: words.collect() }]
    }
}

/// A named setting of the host that can be read, set, verified and restored.
///
/// Implementations provide the methods below. Callers use [`read`], [`set`] and [`probe`], which
/// check the target first.
///
/// To add one: a type, or a line in a table, in `knobs`, and a row in `docs/reference/tune.md`.
///
/// [`read`]: trait.Knob.html#method.read
/// [`set`]: trait.Knob.html#method.set
/// [`probe`]: trait.Knob.html#method.probe
pub trait Knob: Debug + Sync {
    fn about(&self) -> &About;

    /// Reads the current value, in the kernel's own notation, at a target of the knob's scope.
    fn read_at(&self, system: &System, target: &Target) -> Result<Value, KnobError>;

    /// Sets the value at a target of the knob's scope.
    fn set_at(&self, system: &System, target: &Target, value: &Value) -> Result<(), KnobError>;

    /// Succeeds if the knob can be set at a target of its scope, as far as this can be determined
    /// without setting it.
    fn probe_at(&self, system: &System, target: &Target) -> Result<(), KnobError>;

    /// Refuses a value of the knob's format that cannot be set at a target, or could not be restored, as far as this can
    /// be determined without setting it.
    fn accepts_at(&self, _: &System, _: &Target, _: &Value) -> Result<(), KnobError> {
        Ok(())
    }

    /// True if setting it may change other knobs of the same interface: a new number of channels
    /// resets the steering of its queues.
    fn disturbs(&self) -> bool {
        false
    }

    /// False if it has no value to read back: what undoes it is then the value that a plan has seen.
    fn is_readable(&self) -> bool {
        true
    }

    /// Connections on which a new value acts. A live proof compares periods of the same connections, so it refuses a
    /// setting that does not reach them.
    fn reaches(&self) -> Reaches {
        Reaches::AtOnce
    }

    /// Places in configuration files that set the value at a target, all of which are needed. Empty
    /// if there are none.
    fn kept(&self, _: &Target, _: &Value) -> Vec<Kept> {
        Vec::new()
    }

    /// Checks that a change took effect, beyond the value that reads back.
    ///
    /// Returns a note for the user if the effect could not be observed.
    fn settled(&self, _: &System, _: &Target, _: &Value) -> Result<Option<String>, KnobError> {
        Ok(None)
    }
}

impl dyn Knob + '_ {
    /// Name in plans and journals, such as `rps-cpus`.
    pub fn id(&self) -> &'static str {
        self.about().id
    }

    pub fn format(&self) -> ValueFormat {
        self.about().format
    }

    pub fn scope(&self) -> Scope {
        self.about().scope
    }

    /// Reads the current value, in the kernel's own notation.
    pub fn read(&self, system: &System, target: &Target) -> Result<Value, KnobError> {
        self.check_target(target)?;
        self.read_at(system, target)
    }

    /// Sets a value without verifying it.
    pub fn set(&self, system: &System, target: &Target, value: &Value) -> Result<(), KnobError> {
        self.check_target(target)?;
        self.set_at(system, target, value)
    }

    /// Succeeds if it can be set, as far as this can be determined without setting it.
    pub fn probe(&self, system: &System, target: &Target) -> Result<(), KnobError> {
        self.check_target(target)?;
        self.probe_at(system, target)
    }

    /// Succeeds if it can be set to a value, as far as this can be determined without setting it.
    pub fn probe_value(
        &self,
        system: &System,
        target: &Target,
        value: &Value,
    ) -> Result<(), KnobError> {
        self.probe(system, target)?;
        self.accepts_at(system, target, value)
    }

    /// Sets a value and reads it back.
    ///
    /// Returns the value read. Errors: [`KnobError::NotTaken`] if it is another one.
    pub fn set_and_verify(
        &self,
        system: &System,
        target: &Target,
        value: &Value,
    ) -> Result<Value, KnobError> {
        self.set(system, target, value)?;
        if !self.is_readable() {
            return Ok(value.clone());
        }
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

    /// Refuses a target outside the knob's scope and a value that its format does not allow.
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

    /// Refuses a target outside the knob's scope. A setting that exists in each namespace also has
    /// a value for the host.
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
