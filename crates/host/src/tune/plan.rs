//! What is to be set, for a person to read and change before it is.

use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::error::KnobError;
use super::knob::{self, Knob};
use super::system::System;
use super::target::Target;
use super::value::Value;
use crate::text::chain;

/// Version of the file.
pub const SCHEMA: u32 = 1;
/// Bytes of the longest plan that is read.
const BYTES_MAX: usize = 1 << 20;

/// Why a plan cannot be read or applied. Nothing was changed.
#[derive(Debug, Error)]
pub enum PlanError {
    /// It is not a plan.
    #[error("it is no plan: {why}")]
    Syntax {
        /// What the parser says, with the line.
        why: String,
    },
    /// It was made for another machine.
    #[error(
        "the plan was made for machine {plan}, and this is {this}: make one here with \
         `wirepath tune plan`"
    )]
    OtherMachine {
        /// The plan's machine.
        plan: String,
        /// This one.
        this: String,
    },
    /// The interface has another driver than when it was planned.
    #[error("the plan is for {interface} with driver {plan}, which now has {found}: plan anew")]
    OtherDriver {
        /// Interface.
        interface: String,
        /// The plan's.
        plan: String,
        /// That of now.
        found: String,
    },
    /// Some steps make no sense, or cannot be done.
    #[error("{} of its steps cannot be applied:{}", .problems.len(), list(.problems))]
    Steps {
        /// What is wrong, a line each.
        problems: Vec<String>,
    },
    /// The machine could not be looked at.
    #[error(transparent)]
    Knob(#[from] KnobError),
}

fn list(problems: &[String]) -> String {
    problems.iter().map(|problem| format!("\n  {problem}")).collect()
}

/// What is to be set, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Plan {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Machine that it was made for; see [`machine_id`].
    pub machine: String,
    /// What it is to be good for.
    pub profile: String,
    /// Interface that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Driver of that interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Network namespace: a name, the number of a process in it, or a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// What is to be set, in this order but for settings that disturb others, which come first.
    #[serde(default, rename = "step")]
    pub steps: Vec<Step>,
    /// What the profile would have set and cannot here. For the reader alone.
    #[serde(default, rename = "left-out", skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
}

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Step {
    /// Id of the knob.
    pub knob: String,
    /// Where.
    pub target: Target,
    /// Value when it was planned.
    pub seen: Value,
    /// Value to be set.
    pub value: Value,
    /// Why.
    pub reason: String,
}

/// A setting that is not possible here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LeftOut {
    /// Id of the knob.
    pub knob: String,
    /// Why not.
    pub why: String,
}

/// A step that was looked at on the machine, and can be done.
#[derive(Debug)]
pub struct Ready {
    /// Its knob.
    pub knob: &'static dyn Knob,
    /// Where.
    pub target: Target,
    /// Value of now.
    pub before: Value,
    /// Value to be set.
    pub value: Value,
}

impl Ready {
    /// Whether it is so already.
    pub fn is_done(&self) -> bool {
        self.knob.format().agrees(self.value.as_str(), self.before.as_str())
    }
}

impl Plan {
    /// Reads the text of a plan, and checks everything that can be without the machine.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let syntax = |why: String| PlanError::Syntax { why };
        if text.len() > BYTES_MAX {
            return Err(syntax(format!("it has {} bytes, more than any plan", text.len())));
        }
        let plan: Plan = toml::from_str(text).map_err(|error| syntax(error.to_string()))?;
        if plan.schema != SCHEMA {
            let why = format!("schema {} is unknown; this program knows {SCHEMA}", plan.schema);
            return Err(syntax(why));
        }
        let mut problems = Vec::new();
        for (number, step) in plan.steps.iter().enumerate() {
            if let Err(problem) = plan.check_step(step) {
                problems.push(format!("step {} ({}): {problem}", number + 1, step.knob));
            }
            let is_same = |other: &Step| other.knob == step.knob && other.target == step.target;
            if plan.steps[..number].iter().any(is_same) {
                problems.push(format!(
                    "step {} ({}): {} is set by an earlier step",
                    number + 1,
                    step.knob,
                    step.target
                ));
            }
        }
        if problems.is_empty() { Ok(plan) } else { Err(PlanError::Steps { problems }) }
    }

    fn check_step(&self, step: &Step) -> Result<(), String> {
        let knob = knob::find(&step.knob)
            .ok_or_else(|| format!("no such knob; did you mean {}?", knob::nearest(&step.knob)))?;
        knob.check(&step.target, &step.value).map_err(|error| error.to_string())?;
        match (step.target.interface(), &self.interface) {
            (Some(of_step), Some(of_plan)) if of_step != of_plan => {
                Err(format!("it acts on {of_step}, and the plan is for {of_plan}"))
            }
            (Some(of_step), None) => {
                Err(format!("it acts on {of_step}, and the plan names no interface"))
            }
            _ => Ok(()),
        }
    }

    /// The text, to be read by people.
    pub fn to_text(&self) -> String {
        let body = toml::to_string(self).expect("a plan is tables of text");
        format!(
            "# A plan of wirepath tune. Read it, change or remove steps, then:\n\
             #   wirepath tune apply PLAN --dry-run\n\
             #   wirepath tune apply PLAN --confirm-within 60s\n\n{body}"
        )
    }

    /// Short name of its content; equal exactly when what is to be set is.
    pub fn digest(&self) -> String {
        let text = toml::to_string(self).expect("a plan is tables of text");
        hex(&Sha256::digest(text.as_bytes())[..8])
    }

    /// Looks at each step on the machine, without changing anything: whether it can be done, and
    /// whether the value is still the one seen when it was planned.
    ///
    /// - Returns the steps in the order in which they are to be done.
    pub fn check(&self, system: &System) -> Result<Vec<Ready>, PlanError> {
        let this = machine_id(system);
        if self.machine != this {
            return Err(PlanError::OtherMachine { plan: self.machine.clone(), this });
        }
        let mut irqs = Vec::new();
        if let Some(interface) = &self.interface {
            system.list_net(interface).map_err(|source| match source.raw_os_error() {
                Some(libc::ENOENT | libc::ENODEV) => {
                    KnobError::NoTarget { target: Target::Interface(interface.clone()) }
                }
                _ => KnobError::Read { what: interface.clone(), source },
            })?;
            let found = system.driver(interface);
            if let Some(plan) = self.driver.as_ref().filter(|plan| **plan != found) {
                let (interface, plan) = (interface.clone(), plan.clone());
                return Err(PlanError::OtherDriver { interface, plan, found });
            }
            irqs = system.irqs(interface);
        }
        let mut problems = Vec::new();
        let mut ready = Vec::new();
        for (number, step) in self.steps.iter().enumerate() {
            match look(step, system, &irqs) {
                Ok(step) => ready.push(step),
                Err(problem) => {
                    problems.push(format!("step {} ({}): {problem}", number + 1, step.knob))
                }
            }
        }
        if !problems.is_empty() {
            return Err(PlanError::Steps { problems });
        }
        ready.sort_by_key(|step| !step.knob.disturbs());
        Ok(ready)
    }
}

fn look(step: &Step, system: &System, irqs: &[u32]) -> Result<Ready, String> {
    let knob = knob::find(&step.knob).ok_or("no such knob")?;
    if let Target::Irq(irq) = step.target
        && !irqs.contains(&irq)
    {
        return Err(format!("interrupt {irq} is not the interface's"));
    }
    let said = |error: KnobError| chain(&error);
    let before = knob.read(system, &step.target).map_err(said)?;
    let ready = Ready { knob, target: step.target.clone(), before, value: step.value.clone() };
    if ready.is_done() {
        return Ok(ready);
    }
    let (seen, now) = (step.seen.as_str(), ready.before.as_str());
    if !knob.format().agrees(seen, now) {
        return Err(format!(
            "{} read {seen:?} when it was planned and reads {now:?} now: plan anew",
            step.target
        ));
    }
    knob.probe(system, &step.target).map_err(said)?;
    Ok(ready)
}

/// Short name of the machine, whatever state it is in: twelve hexadecimal digits over the
/// machine's id, or its host name where it has none, and the model of its CPU.
pub fn machine_id(system: &System) -> String {
    let text = |path: &str| system.read_host(path).unwrap_or_default();
    let mut id = text("etc/machine-id");
    if id.is_empty() {
        id = text("proc/sys/kernel/hostname");
    }
    let cpuinfo = text("proc/cpuinfo");
    let model =
        cpuinfo.lines().find(|line| line.starts_with("model name") || line.starts_with("CPU part"));
    hex(&Sha256::digest(format!("wirepath tune\n{id}\n{}", model.unwrap_or_default()))[..6])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads a plan from a file.
pub fn read(path: &Path) -> Result<Plan, PlanError> {
    let failed = |why: String| PlanError::Syntax { why };
    let bytes = std::fs::read(path)
        .map_err(|error| failed(format!("{} cannot be read: {error}", path.display())))?;
    let text = String::from_utf8(bytes).map_err(|_| failed("it is not text".to_owned()))?;
    Plan::parse(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan {
            schema: SCHEMA,
            machine: "0123456789ab".into(),
            profile: "latency".into(),
            interface: Some("eth0".into()),
            driver: Some("veth".into()),
            netns: Some("blue".into()),
            steps: vec![Step {
                knob: "rps-cpus".into(),
                target: Target::RxQueue("eth0".into(), 0),
                seen: Value::new("0").unwrap(),
                value: Value::new("3").unwrap(),
                reason: "because \"so\"".into(),
            }],
            left_out: vec![LeftOut { knob: "rings".into(), why: "not offered".into() }],
        }
    }

    #[test]
    fn a_plan_comes_back_from_its_text() {
        let text = plan().to_text();
        assert_eq!(Plan::parse(&text).unwrap(), plan());
        assert_eq!(Plan::parse(&text).unwrap().digest(), plan().digest());
    }

    #[test]
    fn each_slip_in_a_plan_is_named() {
        let text = plan().to_text();
        for (from, to, says) in [
            ("rps-cpus", "rps-cpu", "did you mean rps-cpus"),
            ("value = \"3\"", "value = \"x\"", "mask"),
            ("value =", "valeu =", "valeu"),
            ("queue eth0 rx-0", "queue eth1 rx-0", "the plan is for eth0"),
            ("queue eth0 rx-0", "queue eth0 tx-0", "receive queue"),
            ("queue eth0 rx-0", "queue eth0", "is no target"),
            ("interface = \"eth0\"\n", "", "names no interface"),
            ("schema = 1", "schema = 2", "schema 2"),
            ("[[step]]", "[[steps]]", "steps"),
            ("machine = ", "machine ", ""),
        ] {
            assert!(text.contains(from), "{from}");
            let error = Plan::parse(&text.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(says), "{from} -> {to}: {error}");
        }
        let twice = Plan { steps: [plan().steps, plan().steps].concat(), ..plan() };
        let error = Plan::parse(&twice.to_text()).unwrap_err().to_string();
        assert!(error.contains("earlier step"), "{error}");
    }
}
