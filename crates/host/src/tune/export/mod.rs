//! Plans in the form in which other programs keep settings across reboots.
//!
//! A [`Form`] is a list of writers. Each writer takes the settings that its file can express and
//! leaves the rest to the next; what remains at the end is listed with the reason.
//!
//! Text of a plan is foreign. It gets into a file only by the types of [`crate::generated`].

mod ansible;
mod form;
mod link;
mod networkmanager;
mod routes;
mod sysctl;
mod tmpfiles;
mod tuned;
mod udev;
mod unit;

use std::io;
use std::path::PathBuf;

use serde::Serialize;
use thiserror::Error;

use super::knob::{Ethtool, Kept, Knob};
use super::plan::{Plan, PlanError, machine_id};
use super::registry;
use super::system::System;
use super::target::Target;
use super::value::Value;
use crate::generated::{Comment, Line, Plain, Text, line};
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
    #[error(
        "{driver:?} is not a valid name of a driver; make a new plan with `wirepath tune plan`"
    )]
    Driver { driver: String },
}

/// One file of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct ExportedFile {
    /// Path below `/`.
    pub path: PathBuf,
    pub text: Text,
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
    name: Plain,
    /// Colon-separated hexadecimal bytes.
    address: Plain,
    driver: Option<Plain>,
}

/// One step of the plan, with the place in which configuration can keep it.
#[derive(Debug)]
struct Setting {
    knob: &'static dyn Knob,
    target: Target,
    value: Value,
    kept: Vec<Kept<Plain>>,
}

/// All that writers need of a plan.
struct Source<'a> {
    plan: &'a Plan,
    device: Option<Device>,
}

impl Source<'_> {
    /// Name of files: of the interface, or of the host.
    fn label(&self) -> String {
        self.label_piece().as_str().to_owned()
    }

    fn label_piece(&self) -> Line {
        match &self.device {
            Some(device) => line!["wirepath-", device.name],
            None => line!["wirepath-host"],
        }
    }

    /// A file below a line that says where it comes from.
    fn file(&self, path: String, write: impl FnOnce(&mut Text)) -> ExportedFile {
        self.file_after("", path, write)
    }

    /// The same for the shell.
    fn script(&self, path: String, write: impl FnOnce(&mut Text)) -> ExportedFile {
        self.file_after("#!/bin/sh", path, write)
    }

    fn file_after(
        &self,
        first: &'static str,
        path: String,
        write: impl FnOnce(&mut Text),
    ) -> ExportedFile {
        let mut text = Text::default();
        if !first.is_empty() {
            text.literal(first);
        }
        text.line(&line![
            "# Plan of wirepath tune, profile ",
            Comment::new(&self.plan.profile),
            ", digest ",
            Comment::new(&self.plan.digest()),
            ": written by `wirepath tune export`."
        ]);
        write(&mut text);
        ExportedFile { path: path.into(), text }
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
    // `System::driver` of an interface that has none.
    let none = plan.interface.as_ref().map(|interface| format!("of {interface}"));
    let driver = match plan.driver.as_deref().filter(|driver| none.as_deref() != Some(driver)) {
        None => None,
        Some(text) => match Plain::word(text) {
            None => return Err(ExportError::Driver { driver: text.to_owned() }),
            driver => driver,
        },
    };
    let device = plan.interface.as_deref().map(|name| device(system, name, driver)).transpose()?;
    let source = Source { plan, device };
    let (mut settings, mut omitted) = (Vec::new(), Vec::new());
    for step in &plan.steps {
        let knob = registry::find(&step.knob).expect("Plan::parse knows all knobs");
        let (target, value) = (step.target.clone(), step.value.clone());
        let kept = match knob.kept(&target, &value) {
            _ if form == Form::Unit => Ok(Vec::new()),
            kept if kept.is_empty() => Err("no configuration file has it; export with --to unit"),
            kept => {
                let plain: Option<_> = kept.into_iter().map(|kept| kept.map(Plain::new)).collect();
                plain.ok_or("its value has characters that need quoting")
            }
        };
        match kept {
            Ok(kept) => settings.push(Setting { knob, target, value, kept }),
            Err(why) => {
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

fn device(system: &System, name: &str, driver: Option<Plain>) -> Result<Device, ExportError> {
    let interface = || name.to_owned();
    let plain = Plain::word(name).ok_or_else(|| ExportError::Name { interface: interface() })?;
    let address = system.read_net(&format!("{name}/address")).and_then(|address| {
        Plain::new(&address).ok_or_else(|| io::Error::other("it is not a hardware address"))
    });
    let address =
        address.map_err(|source| ExportError::Address { interface: interface(), source })?;
    Ok(Device { name: plain, address, driver })
}

/// Removes the settings for which `take` returns lines, and returns all these lines.
fn take(
    settings: &mut Vec<Setting>,
    take: impl Fn(&Kept<Plain>) -> Option<Vec<Line>>,
) -> Vec<Line> {
    take_parts(settings, take)
}

/// Removes the settings for which `take` returns parts of a file, and returns all these parts.
///
/// A setting is taken whole or not at all: one with several parts may need another writer for all.
fn take_parts<T>(
    settings: &mut Vec<Setting>,
    take: impl Fn(&Kept<Plain>) -> Option<Vec<T>>,
) -> Vec<T> {
    let mut parts = Vec::new();
    settings.retain(|setting| match setting.kept.iter().map(&take).collect::<Option<Vec<_>>>() {
        Some(found) => {
            parts.extend(found.into_iter().flatten());
            false
        }
        None => true,
    });
    parts
}

/// Parameters of ethtool(8) to be written. A device has no queues of a kind of channels that is 0, and both `.link`
/// files and TuneD then take the parameter for another one.
fn parameters(what: Ethtool, words: &[(Plain, Plain)]) -> impl Iterator<Item = (&Plain, &Plain)> {
    let words = words.iter().map(|(name, value)| (name, value));
    words.filter(move |(_, value)| what != Ethtool::Channels || value.as_str() != "0")
}

#[cfg(test)]
mod tests;
