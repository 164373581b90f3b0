//! Command and path that a command line names, read from as much of it as is right.

use std::ffi::OsString;

use clap::builder::PossibleValuesParser;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command};

use super::{command_line, named_command};
use crate::lookup;

/// Options that end the reading of a line before its mistakes.
const HELP_OPTIONS: [&str; 4] = ["-h", "--help", "-V", "--version"];

/// Command and path of a command line that may have mistakes, or end in the middle.
pub(super) struct Named {
    root: Command,
    /// Words of the command, such as `tune plan`; none for the program itself.
    pub(super) words: Vec<String>,
    /// Path that is named, for a command that takes one.
    pub(super) path: Option<String>,
}

impl Named {
    pub(super) fn read(line: &[OsString]) -> Named {
        let line = line.iter().filter(|word| !HELP_OPTIONS.iter().any(|option| *word == option));
        let mut root = command_line();
        root.build();
        let mut words = Vec::new();
        let mut path = None;
        let matches = command_line().ignore_errors(true).try_get_matches_from(line);
        let mut at = matches.as_ref().ok();
        while let Some(matches) = at {
            path = typed_path(matches);
            at = matches.subcommand().map(|(name, below)| {
                words.push(name.to_owned());
                below
            });
        }
        Named { root, words, path }
    }

    pub(super) fn command(&self) -> &Command {
        named_command(&self.root, &self.words).unwrap_or(&self.root)
    }

    /// `wirepath tune plan`.
    pub(super) fn program(&self) -> String {
        [&["wirepath".to_owned()], self.words.as_slice()].concat().join(" ")
    }

    /// The command, whose options have only the values of the path.
    pub(super) fn command_of_path(&self) -> Command {
        let command = self.command().clone();
        let Some(path) = self.path.as_deref().and_then(lookup::built_in) else { return command };
        let loads: Vec<&str> = path.loads().iter().map(|load| load.name).collect();
        let mut peers: Vec<&str> =
            path.loads().iter().flat_map(|load| load.peers).copied().collect();
        peers.sort_unstable();
        peers.dedup();
        let command = with_values(command, "load", loads);
        with_values(command, "peers", peers)
    }
}

fn with_values(command: Command, option: &str, values: Vec<&str>) -> Command {
    if values.is_empty() || !command.get_arguments().any(|arg| arg.get_id() == option) {
        return command;
    }
    let values: Vec<String> = values.into_iter().map(str::to_owned).collect();
    command.mut_arg(option, |arg| {
        arg.value_parser(PossibleValuesParser::new(values)).hide_possible_values(false)
    })
}

fn typed_path(matches: &ArgMatches) -> Option<String> {
    let path = matches.try_get_one::<String>("path").ok().flatten()?;
    let is_typed = matches.value_source("path") == Some(ValueSource::CommandLine);
    is_typed.then(|| path.clone())
}

/// Help that clap made, for a command that names a path with the values of that path.
pub(super) fn help(error: clap::Error, line: &[OsString]) -> clap::Error {
    let named = Named::read(line);
    if named.path.is_none() {
        return error;
    }
    let mut command = named.command_of_path();
    let is_long = line.iter().any(|word| word == "--help");
    let help = if is_long { command.render_long_help() } else { command.render_help() };
    clap::Error::raw(clap::error::ErrorKind::DisplayHelp, help)
}
