//! Plans: settings to apply, in a file that people can read and edit.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::error::KnobError;
use super::journal::{Entry, Journal};
use super::knob::Knob;
use super::registry;
use super::system::System;
use super::target::Target;
use super::value::Value;
use crate::generated::Text;
use crate::text::{chain, is_hidden};
use crate::user_file;

pub const SCHEMA: u32 = 1;
const BYTES_MAX: usize = 1 << 20;

/// A plan cannot be read or applied; nothing was changed.
#[derive(Debug, Error)]
pub enum PlanError {
    #[error(transparent)]
    File(#[from] PlanFileError),
    #[error(
        "the plan was made for machine {plan}, and this is {this}: make a new one here with \
         `wirepath tune plan`"
    )]
    OtherMachine { plan: String, this: String },
    #[error(
        "the plan was made for {interface} with driver {plan}, which now has {found}: make a new \
         plan"
    )]
    OtherDriver { interface: String, plan: String, found: String },
    #[error("{} of its steps cannot be applied:{}", count(.problems), list(.problems))]
    Steps { problems: Vec<StepProblem> },
    #[error("interrupted while the plan was checked")]
    Stopped,
    #[error(transparent)]
    Knob(#[from] KnobError),
}

#[derive(Debug, Error)]
pub enum PlanFileError {
    #[error("cannot read the plan from {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the plan is not UTF-8 text")]
    NotText,
    #[error("the plan has more than {BYTES_MAX} bytes")]
    TooLong,
    #[error("the plan has schema {found}, and this program supports {SCHEMA}")]
    Schema { found: u32 },
    #[error("invalid plan")]
    Syntax(#[from] toml::de::Error),
    #[error(
        "{field} of the plan has control characters, such as line breaks, or hidden ones: {text:?}; write it in one \
         line of plain text"
    )]
    ControlCharacters { field: String, text: String },
}

#[derive(Debug, Error)]
#[error("step {number} ({knob})")]
pub struct StepProblem {
    /// Counted from 1.
    pub number: usize,
    pub knob: String,
    #[source]
    pub source: StepError,
}

#[derive(Debug, Error)]
pub enum StepError {
    #[error("unknown knob; did you mean {nearest}?")]
    UnknownKnob { nearest: &'static str },
    #[error("{target} is set by an earlier step")]
    Duplicate { target: Target },
    #[error("it acts on {found}, and the plan is for {expected}")]
    OtherInterface { found: String, expected: String },
    #[error("it acts on {found}, and the plan names no interface")]
    NoInterface { found: String },
    #[error(
        "it is a command; give it to `tune prove` or `prove command` as --switch 'NAME=on:COMMAND|off:COMMAND'"
    )]
    Command,
    #[error("interrupt {irq} is not the interface's")]
    ForeignIrq { irq: u32 },
    #[error("{target} read {seen:?} when it was planned and reads {now:?} now: make a new plan")]
    Changed { target: Target, seen: Value, now: Value },
    #[error(transparent)]
    Knob(#[from] KnobError),
}

/// Problems of steps that are found before a plan is given up. It may be of any author, and have thousands.
const PROBLEMS_MAX: usize = 100;

fn count(problems: &[StepProblem]) -> String {
    match problems.len() {
        PROBLEMS_MAX.. => format!("{PROBLEMS_MAX} or more"),
        count => count.to_string(),
    }
}

fn list(problems: &[StepProblem]) -> String {
    problems.iter().map(|problem| format!("\n  {}", chain(problem))).collect()
}

/// Settings to apply, with reasons.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Plan {
    pub schema: u32,
    /// Machine that it was made for; see [`machine_id`].
    pub machine: String,
    pub profile: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Driver of that interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Further interfaces on which its steps act; no plan file has any.
    #[serde(skip)]
    pub other_interfaces: Vec<String>,
    /// Network namespace: a name, the number of a process in it, or a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// Settings, applied in this order except that those that disturb others come first.
    #[serde(default, rename = "step")]
    pub steps: Vec<Step>,
    /// Settings of the profile that are not possible here; information for the reader.
    #[serde(default, rename = "left-out", skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
}

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Step {
    pub knob: String,
    pub target: Target,
    /// Value at the time of planning.
    pub seen: Value,
    /// Value to set.
    pub value: Value,
    pub reason: String,
}

/// A setting that is not possible here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LeftOut {
    pub knob: String,
    pub why: String,
}

/// A setting whose value is not that of the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub struct Drift {
    pub knob: String,
    pub target: Target,
    pub wanted: Value,
    /// `None` if it cannot be read.
    pub now: Option<Value>,
    /// Reason why it cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

/// A step that was checked on the machine and can be applied.
#[derive(Debug)]
pub struct ReadyStep {
    pub knob: &'static dyn Knob,
    pub target: Target,
    pub before: Value,
    pub value: Value,
}

impl ReadyStep {
    /// True if the value is already set.
    pub fn is_done(&self) -> bool {
        self.knob.format().agrees(self.value.as_str(), self.before.as_str())
    }
}

impl Plan {
    /// Parses a plan and makes all checks that do not need the machine.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        if text.len() > BYTES_MAX {
            return Err(PlanFileError::TooLong.into());
        }
        let plan: Plan = toml::from_str(text).map_err(PlanFileError::from)?;
        if plan.schema != SCHEMA {
            return Err(PlanFileError::Schema { found: plan.schema }.into());
        }
        plan.check_texts()?;
        let mut problems = Vec::new();
        let mut seen = HashSet::new();
        for (index, step) in plan.steps.iter().enumerate() {
            if problems.len() >= PROBLEMS_MAX {
                break;
            }
            let is_duplicate = !seen.insert((&step.knob, &step.target));
            let duplicate = StepError::Duplicate { target: step.target.clone() };
            let found = [plan.check_step(step).err(), is_duplicate.then_some(duplicate)];
            problems.extend(found.into_iter().flatten().map(|error| step.problem(index, error)));
        }
        if problems.is_empty() { Ok(plan) } else { Err(PlanError::Steps { problems }) }
    }

    /// Refuses control characters in each free text: plans are printed, and exported as files of other programs.
    /// Targets and values are checked by their types.
    fn check_texts(&self) -> Result<(), PlanFileError> {
        let Plan {
            schema: _,
            machine,
            profile,
            interface,
            driver,
            other_interfaces: _,
            netns,
            steps,
            left_out,
        } = self;
        let whole = [("`machine`", Some(machine)), ("`profile`", Some(profile))];
        let optional = [("`interface`", interface), ("`driver`", driver), ("`netns`", netns)];
        let optional = optional.into_iter().map(|(field, text)| (field, text.as_ref()));
        let steps = steps.iter().flat_map(|step| {
            let Step { knob, target: _, seen: _, value: _, reason } = step;
            [("`knob` of a step", Some(knob)), ("`reason` of a step", Some(reason))]
        });
        let left_out = left_out.iter().flat_map(|LeftOut { knob, why }| {
            [("`knob` of a setting left out", Some(knob)), ("`why` of one", Some(why))]
        });
        let mut texts = whole.into_iter().chain(optional).chain(steps).chain(left_out);
        match texts.find_map(|(field, text)| {
            Some((field, text.filter(|text| text.chars().any(|c| c != '\t' && is_hidden(c)))?))
        }) {
            None => Ok(()),
            Some((field, text)) => {
                let text = text.chars().take(100).collect();
                Err(PlanFileError::ControlCharacters { field: field.to_owned(), text })
            }
        }
    }

    /// Adds the settings of another plan for the same place: those that this one does not have.
    #[must_use]
    pub fn and(mut self, other: Plan) -> Self {
        let has = |plan: &Plan, step: &Step| {
            plan.steps.iter().any(|own| own.knob == step.knob && own.target == step.target)
        };
        for step in other.steps {
            if !has(&self, &step) {
                self.steps.push(step);
            }
        }
        for left_out in other.left_out {
            if !self.left_out.contains(&left_out) {
                self.left_out.push(left_out);
            }
        }
        self
    }

    fn check_step(&self, step: &Step) -> Result<(), StepError> {
        if matches!(step.target, Target::Command(_)) {
            return Err(StepError::Command);
        }
        step.knob()?.check(&step.target, &step.value)?;
        match (step.target.interface(), &self.interface) {
            (Some(found), Some(expected)) if found != expected => {
                let (found, expected) = (found.to_owned(), expected.clone());
                Err(StepError::OtherInterface { found, expected })
            }
            (Some(found), None) => Err(StepError::NoInterface { found: found.to_owned() }),
            _ => Ok(()),
        }
    }

    /// Formats the plan as a file, with instructions as comments.
    pub fn to_text(&self) -> String {
        self.to_generated().as_str().to_owned()
    }

    pub(super) fn to_generated(&self) -> Text {
        Text::of_toml(
            self,
            "# A plan of wirepath tune. Read it, change or remove steps, then:\n\
             #   wirepath tune apply PLAN --dry-run\n\
             #   wirepath tune apply PLAN --confirm-within 60s\n\n",
        )
    }

    /// Hash of the content: 16 hexadecimal digits.
    pub fn digest(&self) -> String {
        let text = toml::to_string(self).expect("a plan is tables of text");
        hex(&Sha256::digest(text.as_bytes())[..8])
    }

    /// The same settings for this machine and their values of today, whichever machine it was made for and
    /// whatever they were then. A plan of many hosts needs it.
    ///
    /// - `journal`: of the same plan if it is applied: the values before it are those of today.
    /// - `stop`: when set, it is an error.
    pub fn rebased(
        mut self,
        system: &System,
        journal: Option<&Journal>,
        stop: &AtomicBool,
    ) -> Result<Self, PlanError> {
        self.machine = machine_id(system);
        let applied = journal.iter().flat_map(|journal| journal.steps());
        let applied: HashMap<(&str, &Target), &Entry> =
            applied.map(|(_, entry)| ((entry.knob.as_str(), &entry.target), entry)).collect();
        for step in &mut self.steps {
            refuse_if_stopped(stop)?;
            let entry = applied.get(&(step.knob.as_str(), &step.target));
            // A setting that cannot be read is refused by the checks that follow.
            if let Some(before) = entry
                .map(|entry| entry.before.clone())
                .or_else(|| step.knob().ok().and_then(|knob| knob.read(system, &step.target).ok()))
            {
                step.seen = before;
            }
        }
        Ok(self)
    }

    /// Compares the host with the plan, without changing anything.
    ///
    /// Returns the settings that differ. Errors: the plan is for another machine or driver, or `stop` is set.
    pub fn verify(&self, system: &System, stop: &AtomicBool) -> Result<Vec<Drift>, PlanError> {
        let irqs = self.check_place(system)?;
        let mut differing = Vec::new();
        for step in &self.steps {
            refuse_if_stopped(stop)?;
            differing.extend(step.drift(system, &irqs));
        }
        Ok(differing)
    }

    /// Checks each step on the machine, without changing anything: it must be possible, and the
    /// current value must be the one that was seen at the time of planning.
    ///
    /// Returns the steps in the order in which they are to be applied. Errors: one cannot be, or `stop` is set.
    pub fn check(&self, system: &System, stop: &AtomicBool) -> Result<Vec<ReadyStep>, PlanError> {
        let irqs = self.check_place(system)?;
        let mut problems = Vec::new();
        let mut ready = Vec::new();
        for (index, step) in self.steps.iter().enumerate() {
            refuse_if_stopped(stop)?;
            if problems.len() >= PROBLEMS_MAX {
                break;
            }
            match step.check(system, &irqs) {
                Ok(step) => ready.push(step),
                Err(error) => problems.push(step.problem(index, error)),
            }
        }
        if !problems.is_empty() {
            return Err(PlanError::Steps { problems });
        }
        ready.sort_by_key(|step| !step.knob.disturbs());
        Ok(ready)
    }

    /// Refuses another machine, an interface that is not there, and another driver.
    ///
    /// Returns the interface's interrupts.
    fn check_place(&self, system: &System) -> Result<BTreeSet<u32>, PlanError> {
        let this = machine_id(system);
        if self.machine != this {
            return Err(PlanError::OtherMachine { plan: self.machine.clone(), this });
        }
        let mut irqs = BTreeSet::new();
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
            irqs = system.irqs(interface).into_iter().collect();
        }
        irqs.extend(self.other_interfaces.iter().flat_map(|interface| system.irqs(interface)));
        Ok(irqs)
    }
}

fn refuse_if_stopped(stop: &AtomicBool) -> Result<(), PlanError> {
    if stop.load(Ordering::Relaxed) { Err(PlanError::Stopped) } else { Ok(()) }
}

impl Step {
    fn knob(&self) -> Result<&'static dyn Knob, StepError> {
        registry::find_recorded(&self.knob)
            .ok_or_else(|| StepError::UnknownKnob { nearest: registry::nearest(&self.knob) })
    }

    fn problem(&self, index: usize, source: StepError) -> StepProblem {
        StepProblem { number: index + 1, knob: self.knob.clone(), source }
    }

    fn look(&self, system: &System, irqs: &BTreeSet<u32>) -> Result<ReadyStep, StepError> {
        let knob = self.knob()?;
        if let Target::Irq(irq) = self.target
            && !irqs.contains(&irq)
        {
            return Err(StepError::ForeignIrq { irq });
        }
        let target = self.target.clone();
        let before =
            if knob.is_readable() { knob.read(system, &target)? } else { self.seen.clone() };
        Ok(ReadyStep { knob, target, before, value: self.value.clone() })
    }

    /// Returns `None` if the value is set.
    fn drift(&self, system: &System, irqs: &BTreeSet<u32>) -> Option<Drift> {
        let (now, unreadable) = match self.look(system, irqs) {
            Ok(ready) if ready.is_done() => return None,
            Ok(ready) => (Some(ready.before), None),
            Err(error) => (None, Some(chain(&error))),
        };
        let (knob, target, wanted) = (self.knob.clone(), self.target.clone(), self.value.clone());
        Some(Drift { knob, target, wanted, now, unreadable })
    }

    fn check(&self, system: &System, irqs: &BTreeSet<u32>) -> Result<ReadyStep, StepError> {
        let ready = self.look(system, irqs)?;
        let knob = ready.knob;
        if ready.is_done() {
            return Ok(ready);
        }
        if !knob.format().agrees(self.seen.as_str(), ready.before.as_str()) {
            let (target, seen, now) = (ready.target, self.seen.clone(), ready.before);
            return Err(StepError::Changed { target, seen, now });
        }
        knob.probe_value(system, &self.target, &self.value)?;
        Ok(ready)
    }
}

/// Identifies the machine regardless of its settings: twelve hexadecimal digits of a hash over the
/// machine id, or the host name if there is none, and the CPU model.
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

pub fn read(path: &Path) -> Result<Plan, PlanError> {
    let bytes = user_file::read(path, BYTES_MAX as u64).map_err(|source| match source.kind() {
        std::io::ErrorKind::FileTooLarge => PlanFileError::TooLong,
        _ => PlanFileError::Read { path: path.to_owned(), source },
    })?;
    Plan::parse(&String::from_utf8(bytes).map_err(|_| PlanFileError::NotText)?)
}

#[cfg(test)]
mod tests {
    use super::super::system::Place;
    use super::*;

    fn plan() -> Plan {
        Plan {
            schema: SCHEMA,
            machine: "0123456789ab".into(),
            profile: "latency".into(),
            interface: Some("eth0".into()),
            driver: Some("veth".into()),
            other_interfaces: Vec::new(),
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
    fn plan_of_thousands_of_steps_is_given_up_early_and_its_checks_can_be_interrupted() {
        let many = |knob: &str| Plan {
            steps: (0..1000)
                .map(|n| Step {
                    knob: knob.into(),
                    target: Target::RxQueue("eth0".into(), n),
                    ..plan().steps[0].clone()
                })
                .collect(),
            ..plan()
        };
        let long = many("rps-cpus");
        assert_eq!(Plan::parse(&long.to_text()).unwrap(), long);
        let PlanError::Steps { problems } = Plan::parse(&many("x").to_text()).unwrap_err() else {
            panic!("every step is wrong");
        };
        assert_eq!(problems.len(), PROBLEMS_MAX);
        let text = PlanError::Steps { problems }.to_string();
        assert!(text.starts_with("100 or more of its steps"), "{text}");

        let system = System::open(&Place { netns: None, root: None }).unwrap();
        let here = Plan {
            machine: machine_id(&system),
            interface: None,
            driver: None,
            other_interfaces: Vec::new(),
            netns: None,
            ..many("rps-cpus")
        };
        let (stop, go_on) = (AtomicBool::new(true), AtomicBool::new(false));
        assert!(matches!(here.check(&system, &stop), Err(PlanError::Stopped)));
        assert!(matches!(here.verify(&system, &stop), Err(PlanError::Stopped)));
        assert!(matches!(here.clone().rebased(&system, None, &stop), Err(PlanError::Stopped)));
        assert_eq!(here.verify(&system, &go_on).unwrap().len(), 1000);
        let PlanError::Steps { problems } = here.check(&system, &go_on).unwrap_err() else {
            panic!("no step can be applied");
        };
        assert_eq!(problems.len(), PROBLEMS_MAX);
    }

    #[test]
    fn parsing_the_text_of_a_plan_returns_it() {
        let text = plan().to_text();
        assert_eq!(Plan::parse(&text).unwrap(), plan());
        assert_eq!(Plan::parse(&text).unwrap().digest(), plan().digest());
    }

    #[test]
    fn each_mistake_in_a_plan_is_named() {
        let text = plan().to_text();
        for (from, to, says) in [
            ("rps-cpus", "rps-cpu", "did you mean rps-cpus"),
            ("value = \"3\"", "value = \"x\"", "mask"),
            ("value =", "valeu =", "valeu"),
            ("queue eth0 rx-0", "queue eth1 rx-0", "the plan is for eth0"),
            ("queue eth0 rx-0", "queue eth0 tx-0", "receive queue"),
            ("queue eth0 rx-0", "queue eth0", "invalid target"),
            ("interface = \"eth0\"\n", "", "names no interface"),
            ("schema = 1", "schema = 2", "schema 2"),
            ("[[step]]", "[[steps]]", "steps"),
            ("machine = ", "machine ", ""),
            ("\"latency\"", "\"a\\nb\"", "`profile` of the plan has control characters"),
            ("\"veth\"", "\"a\\u001bb\"", "`driver` of the plan has control characters"),
            ("because", "be\u{85}cause", "`reason` of a step"),
            ("not offered", "a\\u0000", "`why` of one"),
        ] {
            assert!(text.contains(from), "{from}");
            let error = chain(&Plan::parse(&text.replacen(from, to, 1)).unwrap_err());
            assert!(error.contains(says), "{from} -> {to}: {error}");
        }
        let twice = Plan { steps: [plan().steps, plan().steps].concat(), ..plan() };
        let error = Plan::parse(&twice.to_text()).unwrap_err().to_string();
        assert!(error.contains("earlier step"), "{error}");
    }
}
