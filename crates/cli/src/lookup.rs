//! Paths, loads, peers and switches by name.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Command};
use house::signals;
use model::{Path, did_you_mean};
use remote::Failure;
use runner::{ExternalPath, external_program};

use crate::{fake, houses};

/// Right form for programs that are given as other tools want them.
pub(crate) fn compare_hint(programs: &[String]) -> String {
    let old = report::quoted(programs.first().map_or("./old", String::as_str));
    let new = report::quoted(programs.get(1).map_or("./new", String::as_str));
    format!(
        "two programs are compared by `wirepath compare {old} {new}`, and more of them by `wirepath prove command \
         --arm NAME='COMMAND' …`"
    )
}

/// True if a word of the command line is a program in the form of other tools.
pub(crate) fn is_program(word: &str) -> bool {
    let is_file = word.contains('/') && !word.starts_with('-') && !word.contains('=');
    is_file && !word.ends_with(".toml") && !word.ends_with(".json")
}

/// Every path, in the order of `wirepath paths`.
pub(crate) fn all() -> Vec<Box<dyn Path>> {
    let own: Box<dyn Path> = Box::new(probe::Probe);
    std::iter::once(own).chain(houses::all().iter().flat_map(|house| house.paths())).collect()
}

/// Path of this program with this name, the hidden `fake` included.
pub(crate) fn built_in(name: &str) -> Option<Box<dyn Path>> {
    if name == "fake" {
        return Some(Box::new(fake::Fake));
    }
    all().into_iter().find(|path| path.name() == name)
}

/// Path with this name: one of this program, or that of the program `wirepath-NAME` in PATH, which is started.
pub(crate) fn find_path(name: &str) -> Result<Box<dyn Path>, Failure> {
    if let Some(path) = built_in(name) {
        return Ok(path);
    }
    match ExternalPath::find(name, signals::stop_flag())? {
        Some(path) => Ok(Box::new(path)),
        None => Err(unknown_path(name)),
    }
}

/// Errors: the path is unknown. No program is started.
fn check_path(name: &str) -> Result<(), Failure> {
    if built_in(name).is_some() || external_program(name).is_some() {
        return Ok(());
    }
    Err(unknown_path(name))
}

fn unknown_path(name: &str) -> Failure {
    if let Some(remedy) = houses::remedy(name) {
        return Failure::Usage(remedy);
    }
    let known: Vec<_> = all().iter().map(|path| path.name()).collect();
    let hint = did_you_mean(name, known.iter().copied().chain(["command"]));
    let known = known.join(", ");
    Failure::Usage(format!(
        "'{name}' is not a path{hint}paths: {known}, and programs named wirepath-NAME in PATH (`wirepath paths`)"
    ))
}

/// Value parser of a path: shells complete it, and unknown ones are refused.
#[derive(Clone)]
pub(crate) struct PathName;

impl TypedValueParser for PathName {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        let name = StringValueParser::new().parse_ref(command, arg, value)?;
        match check_path(&name) {
            Ok(()) => Ok(name),
            Err(failure) => {
                let text = format!("{}\n", failure.text());
                Err(clap::Error::raw(ErrorKind::InvalidValue, text).with_cmd(command))
            }
        }
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let fake = PossibleValue::new("fake").hide(true);
        let paths = all();
        let known: Vec<PossibleValue> = paths
            .iter()
            .map(|path| PossibleValue::new(path.name()).help(path.what()))
            .chain([fake])
            .collect();
        Some(Box::new(known.into_iter()))
    }
}
