//! Settings of the host's CPUs and memory.

use super::access::{Access, value};
use crate::tune::error::KnobError;
use crate::tune::knob::{About, Kept, Knob};
use crate::tune::system::System;
use crate::tune::target::{Scope, Target};
use crate::tune::value::{Value, ValueFormat, pairs};

fn cpu_of(target: &Target) -> u32 {
    match target {
        Target::Cpu(cpu) => *cpu,
        _ => 0,
    }
}

/// Frequency governor of a CPU.
///
/// Source: Documentation/admin-guide/pm/cpufreq.rst.
#[derive(Debug)]
pub(super) struct Governor;

static GOVERNOR: About = About {
    id: "governor",
    what: "frequency governor",
    scope: Scope::Cpu,
    format: ValueFormat::Word(&[]),
};

impl Governor {
    fn path(target: &Target) -> String {
        format!("sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor", cpu_of(target))
    }
}

impl Knob for Governor {
    fn about(&self) -> &About {
        &GOVERNOR
    }

    fn read_at(&self, system: &System, target: &Target) -> Result<Value, KnobError> {
        Access::new(self, system, target).read(&Self::path(target))
    }

    fn set_at(&self, system: &System, target: &Target, value: &Value) -> Result<(), KnobError> {
        Access::new(self, system, target).write(&Self::path(target), value.as_str())
    }

    fn kept(&self, target: &Target, value: &Value) -> Vec<Kept> {
        let file = "cpufreq/scaling_governor".to_owned();
        vec![Kept::CpuFile { cpu: cpu_of(target), file, value: value.to_string() }]
    }

    fn probe_at(&self, system: &System, target: &Target) -> Result<(), KnobError> {
        self.read_at(system, target)?;
        Access::new(self, system, target).probe(&Self::path(target))
    }
}

/// Idle states that a CPU may not enter: `state2=1` disables state 2.
///
/// Source: Documentation/admin-guide/pm/cpuidle.rst, `disable`.
#[derive(Debug)]
pub(super) struct IdleStates;

/// Source: linux/cpuidle.h, CPUIDLE_STATE_MAX.
const STATES: &[&str] = &[
    "state0", "state1", "state2", "state3", "state4", "state5", "state6", "state7", "state8",
    "state9",
];

static IDLE_STATES: About = About {
    id: "idle-states",
    what: "idle states that are disabled (1) or enabled (0)",
    scope: Scope::Cpu,
    format: ValueFormat::Pairs(STATES),
};

impl IdleStates {
    fn path(target: &Target, state: &str) -> String {
        format!("sys/devices/system/cpu/cpu{}/cpuidle/{state}/disable", cpu_of(target))
    }

    fn states(&self, system: &System, target: &Target) -> Result<Vec<String>, KnobError> {
        let folder = format!("sys/devices/system/cpu/cpu{}/cpuidle", cpu_of(target));
        let mut states = system.list_host(&folder).unwrap_or_default();
        states.retain(|state| STATES.contains(&state.as_str()));
        if states.is_empty() {
            return Err(Access::new(self, system, target).not_offered());
        }
        Ok(states)
    }
}

impl Knob for IdleStates {
    fn about(&self) -> &About {
        &IDLE_STATES
    }

    fn read_at(&self, system: &System, target: &Target) -> Result<Value, KnobError> {
        let mut words = Vec::new();
        for state in self.states(system, target)? {
            let value = Access::new(self, system, target).read(&Self::path(target, &state))?;
            words.push(format!("{state}={value}"));
        }
        value("idle states", words.join(" "))
    }

    fn set_at(&self, system: &System, target: &Target, value: &Value) -> Result<(), KnobError> {
        let now = self.read_at(system, target)?;
        let now = pairs(now.as_str()).unwrap_or_default();
        for (state, disable) in pairs(value.as_str()).unwrap_or_default() {
            if !now.contains(&(state, disable)) {
                Access::new(self, system, target).write(&Self::path(target, state), disable)?;
            }
        }
        Ok(())
    }

    fn kept(&self, target: &Target, value: &Value) -> Vec<Kept> {
        let states = pairs(value.as_str()).unwrap_or_default().into_iter();
        let kept = states.map(|(state, disable)| Kept::CpuFile {
            cpu: cpu_of(target),
            file: format!("cpuidle/{state}/disable"),
            value: disable.to_owned(),
        });
        kept.collect()
    }

    fn probe_at(&self, system: &System, target: &Target) -> Result<(), KnobError> {
        for state in self.states(system, target)? {
            Access::new(self, system, target).probe(&Self::path(target, &state))?;
        }
        Ok(())
    }
}

/// A choice that reads as `always [madvise] never`.
///
/// Source: Documentation/admin-guide/mm/transhuge.rst.
#[derive(Debug)]
pub(super) struct Choice {
    about: About,
    path: &'static str,
}

const fn choice(id: &'static str, path: &'static str, what: &'static str) -> Choice {
    Choice { about: About { id, what, scope: Scope::Host, format: ValueFormat::Word(&[]) }, path }
}

pub(super) static CHOICES: &[Choice] = &[
    choice(
        "huge-pages",
        "sys/kernel/mm/transparent_hugepage/enabled",
        "use of transparent huge pages for memory",
    ),
    choice(
        "huge-pages-defrag",
        "sys/kernel/mm/transparent_hugepage/defrag",
        "page faults that wait for a huge page to be assembled",
    ),
];

impl Knob for Choice {
    fn about(&self) -> &About {
        &self.about
    }

    fn read_at(&self, system: &System, target: &Target) -> Result<Value, KnobError> {
        let all = Access::new(self, system, target).read(self.path)?;
        let chosen = all.as_str().split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        let chosen = chosen.map_or(all.as_str(), |(chosen, _)| chosen);
        value(self.path, chosen.to_owned())
    }

    fn set_at(&self, system: &System, target: &Target, value: &Value) -> Result<(), KnobError> {
        Access::new(self, system, target).write(self.path, value.as_str())
    }

    fn kept(&self, _: &Target, value: &Value) -> Vec<Kept> {
        vec![Kept::HostFile { path: self.path.to_owned(), value: value.to_string() }]
    }

    fn probe_at(&self, system: &System, target: &Target) -> Result<(), KnobError> {
        self.read_at(system, target)?;
        Access::new(self, system, target).probe(self.path)
    }
}
