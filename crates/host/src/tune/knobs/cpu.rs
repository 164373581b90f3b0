//! Settings of the CPUs and of the memory of the host.

use crate::tune::error::KnobError;
use crate::tune::knob::{Asked, Knob};
use crate::tune::system::System;
use crate::tune::target::{Scope, Target};
use crate::tune::value::{Format, Value, pairs};

fn cpu_of(target: &Target) -> u32 {
    match target {
        Target::Cpu(cpu) => *cpu,
        _ => 0,
    }
}

/// Who chooses a CPU's frequency.
///
/// Source: Documentation/admin-guide/pm/cpufreq.rst.
#[derive(Debug)]
pub(super) struct Governor;

impl Governor {
    fn path(target: &Target) -> String {
        format!("sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor", cpu_of(target))
    }
}

impl Knob for Governor {
    fn id(&self) -> &'static str {
        "governor"
    }

    fn what(&self) -> &'static str {
        "who chooses the CPU's frequency"
    }

    fn scope(&self) -> Scope {
        Scope::Cpu
    }

    fn format(&self) -> Format {
        Format::Word(&[])
    }

    fn read(&self, system: &System, target: &Target) -> Result<Value, KnobError> {
        <dyn Knob>::check_target(self, target)?;
        read(self, system, target, &Self::path(target))
    }

    fn set(&self, system: &System, target: &Target, value: &Value) -> Result<(), KnobError> {
        <dyn Knob>::check_target(self, target)?;
        write(self, system, target, &Self::path(target), value.as_str())
    }

    fn probe(&self, system: &System, target: &Target) -> Result<(), KnobError> {
        self.read(system, target)?;
        probe(self, system, target, &Self::path(target))
    }
}

/// Which idle states a CPU may not enter: `state2=1` where state 2 is forbidden.
///
/// Source: Documentation/admin-guide/pm/cpuidle.rst, `disable`.
#[derive(Debug)]
pub(super) struct IdleStates;

/// Source: linux/cpuidle.h, CPUIDLE_STATE_MAX.
const STATES: &[&str] = &[
    "state0", "state1", "state2", "state3", "state4", "state5", "state6", "state7", "state8",
    "state9",
];

impl IdleStates {
    fn path(target: &Target, state: &str) -> String {
        format!("sys/devices/system/cpu/cpu{}/cpuidle/{state}/disable", cpu_of(target))
    }

    fn states(&self, system: &System, target: &Target) -> Result<Vec<String>, KnobError> {
        let folder = format!("sys/devices/system/cpu/cpu{}/cpuidle", cpu_of(target));
        let mut states = system.list_host(&folder).unwrap_or_default();
        states.retain(|state| STATES.contains(&state.as_str()));
        if states.is_empty() {
            return Err(Asked { knob: self.id(), target, needs: "", system }.not_offered());
        }
        Ok(states)
    }
}

impl Knob for IdleStates {
    fn id(&self) -> &'static str {
        "idle-states"
    }

    fn what(&self) -> &'static str {
        "idle states that a CPU may not enter (1) or may (0)"
    }

    fn scope(&self) -> Scope {
        Scope::Cpu
    }

    fn format(&self) -> Format {
        Format::Pairs(STATES)
    }

    fn read(&self, system: &System, target: &Target) -> Result<Value, KnobError> {
        <dyn Knob>::check_target(self, target)?;
        let mut words = Vec::new();
        for state in self.states(system, target)? {
            let value = read(self, system, target, &Self::path(target, &state))?;
            words.push(format!("{state}={value}"));
        }
        super::file::value("idle states", words.join(" "))
    }

    fn set(&self, system: &System, target: &Target, value: &Value) -> Result<(), KnobError> {
        let now = self.read(system, target)?;
        let now = pairs(now.as_str()).unwrap_or_default();
        for (state, disable) in pairs(value.as_str()).unwrap_or_default() {
            if !now.contains(&(state, disable)) {
                write(self, system, target, &Self::path(target, state), disable)?;
            }
        }
        Ok(())
    }

    fn probe(&self, system: &System, target: &Target) -> Result<(), KnobError> {
        <dyn Knob>::check_target(self, target)?;
        for state in self.states(system, target)? {
            probe(self, system, target, &Self::path(target, &state))?;
        }
        Ok(())
    }
}

/// A choice that the kernel shows as `always [madvise] never`.
///
/// Source: Documentation/admin-guide/mm/transhuge.rst.
#[derive(Debug)]
pub(super) struct Choice {
    id: &'static str,
    path: &'static str,
    what: &'static str,
}

pub(super) static CHOICES: &[Choice] = &[
    Choice {
        id: "huge-pages",
        path: "sys/kernel/mm/transparent_hugepage/enabled",
        what: "when memory comes in transparent huge pages",
    },
    Choice {
        id: "huge-pages-defrag",
        path: "sys/kernel/mm/transparent_hugepage/defrag",
        what: "when a page fault waits for a huge page to be made",
    },
];

impl Knob for Choice {
    fn id(&self) -> &'static str {
        self.id
    }

    fn what(&self) -> &'static str {
        self.what
    }

    fn scope(&self) -> Scope {
        Scope::Host
    }

    fn format(&self) -> Format {
        Format::Word(&[])
    }

    fn read(&self, system: &System, target: &Target) -> Result<Value, KnobError> {
        <dyn Knob>::check_target(self, target)?;
        let all = read(self, system, target, self.path)?;
        let chosen = all.as_str().split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        let chosen = chosen.map_or(all.as_str(), |(chosen, _)| chosen);
        super::file::value(self.path, chosen.to_owned())
    }

    fn set(&self, system: &System, target: &Target, value: &Value) -> Result<(), KnobError> {
        <dyn Knob>::check_target(self, target)?;
        write(self, system, target, self.path, value.as_str())
    }

    fn probe(&self, system: &System, target: &Target) -> Result<(), KnobError> {
        self.read(system, target)?;
        probe(self, system, target, self.path)
    }
}

pub(super) fn read(
    knob: &dyn Knob,
    system: &System,
    target: &Target,
    path: &str,
) -> Result<Value, KnobError> {
    let asked = Asked { knob: knob.id(), target, needs: "", system };
    let text = system.read_host(path).map_err(|source| asked.read_error(path, source))?;
    super::file::value(path, text)
}

pub(super) fn write(
    knob: &dyn Knob,
    system: &System,
    target: &Target,
    path: &str,
    value: &str,
) -> Result<(), KnobError> {
    let asked = Asked { knob: knob.id(), target, needs: "", system };
    system.write_host(path, value).map_err(|source| asked.write_error(path, value, source))
}

pub(super) fn probe(
    knob: &dyn Knob,
    system: &System,
    target: &Target,
    path: &str,
) -> Result<(), KnobError> {
    let asked = Asked { knob: knob.id(), target, needs: "", system };
    system.probe_host(path).map_err(|source| asked.write_error(path, "", source))
}
