//! Plans in the form in which other programs keep settings across reboots.
//!
//! A [`Form`] is a list of writers. Each writer takes the settings that its file can express and
//! leaves the rest to the next; what remains at the end is listed with the reason.

mod ansible;
mod form;
mod link;
mod networkmanager;
mod sysctl;
mod tmpfiles;
mod tuned;
mod udev;
mod unit;

use std::path::PathBuf;

use serde::Serialize;
use thiserror::Error;

use super::knob::{Ethtool, Kept, Knob};
use super::plan::{Plan, PlanError, machine_id};
use super::registry;
use super::system::System;
use super::target::Target;
use super::value::Value;
pub use form::Form;

/// A plan cannot be exported; nothing was written.
#[derive(Debug, Error)]
pub enum ExportError {
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(
        "the plan is for namespace {netns}, and {form} configures the host's own; make one without \
         --netns, or export with --to unit"
    )]
    Namespace { netns: String, form: Form },
    #[error("cannot read the address of {interface}; is the interface there?")]
    Address {
        interface: String,
        #[source]
        source: std::io::Error,
    },
    #[error(
        "cannot write the name {interface:?} into configuration files; rename the interface to \
         letters, digits, '.', '_' and '-'"
    )]
    Name { interface: String },
}

/// One file of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct ExportedFile {
    /// Path below `/`.
    pub path: PathBuf,
    pub text: String,
}

/// A setting that the form cannot express.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub struct Omitted {
    pub knob: String,
    pub target: Target,
    pub value: Value,
    pub why: String,
}

/// A plan as files of another program.
#[derive(Debug)]
pub struct Exported {
    pub files: Vec<ExportedFile>,
    pub omitted: Vec<Omitted>,
    /// Command that makes the files take effect without a reboot, and the one that checks them.
    pub next: Vec<String>,
}

/// The interface of a plan, as configuration files identify it after a reboot.
#[derive(Debug)]
struct Device {
    name: String,
    /// Colon-separated hexadecimal bytes.
    address: String,
    driver: Option<String>,
}

/// One step of the plan, with the place in which configuration can keep it.
#[derive(Debug)]
struct Setting {
    knob: &'static dyn Knob,
    target: Target,
    value: Value,
    kept: Vec<Kept>,
}

/// All that writers need of a plan.
struct Source<'a> {
    plan: &'a Plan,
    device: Option<Device>,
}

impl Source<'_> {
    /// Name of files: of the interface, or of the host.
    fn label(&self) -> String {
        self.device
            .as_ref()
            .map_or("wirepath-host".to_owned(), |device| format!("wirepath-{}", device.name))
    }

    /// First line of each file.
    fn title(&self) -> String {
        format!(
            "# Plan of wirepath tune, profile {}, digest {}: written by `wirepath tune export`.",
            self.plan.profile,
            self.plan.digest()
        )
    }

    fn device(&self) -> &Device {
        self.device.as_ref().expect("a setting of an interface has one: Plan::parse checks it")
    }
}

/// Writes a plan in a form; reads the interface's address, and changes nothing.
pub fn export(plan: &Plan, system: &System, form: Form) -> Result<Exported, ExportError> {
    let this = machine_id(system);
    if plan.machine != this {
        return Err(PlanError::OtherMachine { plan: plan.machine.clone(), this }.into());
    }
    if let Some(netns) = plan.netns.clone().filter(|_| form != Form::Unit) {
        return Err(ExportError::Namespace { netns, form });
    }
    let driver = plan.driver.as_deref().filter(|driver| is_word(driver));
    let device = plan.interface.as_deref().map(|name| device(system, name, driver)).transpose()?;
    let source = Source { plan, device };
    let (mut settings, mut omitted) = (Vec::new(), Vec::new());
    for step in &plan.steps {
        let knob = registry::find(&step.knob).expect("Plan::parse knows all knobs");
        let (target, value) = (step.target.clone(), step.value.clone());
        let kept = knob.kept(&target, &value);
        let why = match &kept[..] {
            _ if form == Form::Unit => None,
            [] => Some("no configuration file has it; export with --to unit"),
            _ if !is_plain(value.as_str()) => Some("its value has characters that need quoting"),
            _ => None,
        };
        match why {
            None => settings.push(Setting { knob, target, value, kept }),
            Some(why) => {
                omitted.push(Omitted { knob: step.knob.clone(), target, value, why: why.into() });
            }
        }
    }
    settings.sort_by_key(|setting| !setting.knob.disturbs());
    let files = form.write(&source, &mut settings);
    omitted.extend(settings.into_iter().map(|setting| Omitted {
        knob: setting.knob.id().to_owned(),
        target: setting.target,
        value: setting.value,
        why: format!("{form} has no setting for it"),
    }));
    let next = form.next(&source, &files);
    Ok(Exported { files, omitted, next })
}

fn device(system: &System, name: &str, driver: Option<&str>) -> Result<Device, ExportError> {
    if !is_word(name) {
        return Err(ExportError::Name { interface: name.to_owned() });
    }
    let address = system
        .read_net(&format!("{name}/address"))
        .map_err(|source| ExportError::Address { interface: name.to_owned(), source })?;
    Ok(Device { name: name.to_owned(), address, driver: driver.map(str::to_owned) })
}

/// True if the text needs no quoting in any of the formats.
fn is_plain(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || " \t,._:=-/".contains(c))
}

/// True for one word that needs no quoting.
fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}

/// Removes the settings for which `take` returns lines, and returns all these lines.
///
/// A setting is taken whole or not at all: one with several parts may need another writer for all.
fn take(settings: &mut Vec<Setting>, take: impl Fn(&Kept) -> Option<Vec<String>>) -> Vec<String> {
    let mut lines = Vec::new();
    settings.retain(|setting| match setting.kept.iter().map(&take).collect::<Option<Vec<_>>>() {
        Some(found) => {
            lines.extend(found.into_iter().flatten());
            false
        }
        None => true,
    });
    lines
}

/// Parameters of ethtool(8) to be written. A device has no queues of a kind of channels that is 0, and both `.link`
/// files and TuneD then take the parameter for another one.
fn parameters(what: Ethtool, words: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> {
    let words = words.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    words.filter(move |(_, value)| what != Ethtool::Channels || *value != "0")
}

fn file(path: impl Into<PathBuf>, text: String) -> ExportedFile {
    ExportedFile { path: path.into(), text }
}

#[cfg(test)]
mod tests;
