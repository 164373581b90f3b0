//! Paths, loads, peers and switches by name.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Command};
use house::signals;
use model::{ARM_WORDS, Path};
use remote::Failure;
use runner::{ExternalPath, external_program};

use crate::{fake, houses};

/// Form of a comparison of the user's programs, for those who give them as other tools want it.
pub(crate) const OWN_PROGRAMS: &str = "wirepath prove command --arm a='./a' --arm b='./b' for programs that end, with --client './bench' for servers";

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
    Failure::Usage(format!(
        "no path named {name}; paths: {}, and programs named wirepath-NAME in PATH. Programs of your own are compared \
         by `wirepath prove command`: {OWN_PROGRAMS}",
        known.join(", ")
    ))
}

/// Value parser of a name: shells complete it, and `check` refuses unknown ones.
#[derive(Clone)]
pub(crate) struct Name {
    known: fn() -> Vec<PossibleValue>,
    check: fn(&str) -> Result<(), Failure>,
}

/// A path.
pub(crate) const PATH: Name = Name { known: path_names, check: check_path };
/// A load; checked later, against those of the path.
pub(crate) const LOAD: Name = Name { known: load_names, check: |_| Ok(()) };
/// A peer; checked later, against those of the path.
pub(crate) const PEER: Name = Name { known: peer_names, check: |_| Ok(()) };
/// Arms; checked later, against the switches of the path.
pub(crate) const ARMS: Name = Name { known: arm_names, check: |_| Ok(()) };
/// Arms of the user's switches; checked later, against those.
pub(crate) const SWITCH_ARMS: Name = Name { known: plan_names, check: |_| Ok(()) };

impl TypedValueParser for Name {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        let name = StringValueParser::new().parse_ref(command, arg, value)?;
        match (self.check)(&name) {
            Ok(()) => Ok(name),
            Err(failure) => {
                let text = format!("{}\n", failure.text());
                Err(clap::Error::raw(ErrorKind::InvalidValue, text).with_cmd(command))
            }
        }
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.known)().into_iter()))
    }
}

fn path_names() -> Vec<PossibleValue> {
    let fake = PossibleValue::new("fake").hide(true);
    all()
        .iter()
        .map(|path| PossibleValue::new(path.name()).help(path.what()))
        .chain([fake])
        .collect()
}

fn unique(names: impl Iterator<Item = &'static str>) -> Vec<PossibleValue> {
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter().map(PossibleValue::new).collect()
}

fn load_names() -> Vec<PossibleValue> {
    unique(all().iter().flat_map(|path| path.loads()).map(|load| load.name))
}

fn peer_names() -> Vec<PossibleValue> {
    unique(all().iter().flat_map(|path| path.loads()).flat_map(|load| load.peers).copied())
}

fn plan_names() -> Vec<PossibleValue> {
    ARM_WORDS.map(PossibleValue::new).into()
}

fn arm_names() -> Vec<PossibleValue> {
    let switches = unique(all().iter().flat_map(|path| path.switches()).map(|switch| switch.id));
    plan_names().into_iter().chain(switches).collect()
}
