//! The trait of a house.

use clap::{ArgMatches, Subcommand};
use model::Path;
use remote::Failure;

use crate::context::Context;
use crate::document::NamedSchema;

/// A product of the tree that the program takes in: its paths, commands, documents and services.
pub trait House: Sync {
    /// Paths, in the order of `wirepath paths`.
    fn paths(&self) -> Vec<Box<dyn Path>>;

    /// Commands, in the order of the help.
    fn commands(&self) -> &'static [Command];

    /// Documents that the commands print with `--json`, each by the words of its command.
    fn documents(&self) -> &'static [NamedSchema];

    /// Services of its far ends, which `wirepath answer NAME` starts.
    fn services(&self) -> &'static [HouseService] {
        &[]
    }
}

/// Calls of another process that a house answers.
pub struct HouseService {
    /// [`remote::Service::NAME`].
    pub name: &'static str,
    pub what: &'static str,
    /// True if it starts other programs.
    pub starts_programs: bool,
    /// Answers on standard output until standard input ends.
    pub answer: fn() -> Result<(), Failure>,
}

/// A command of a house with its subcommands.
pub trait HouseCommand: Subcommand + 'static {
    const NAME: &str;
    const ABOUT: &str;
    /// Lines of the example at the end of the help.
    const EXAMPLE: &str;

    /// True if it starts other programs, which may need the privileges of their own files.
    fn starts_programs(&self) -> bool;

    fn run(&self, context: &Context) -> Result<(), Failure>;
}

/// A parsed [`HouseCommand`].
pub trait RunCommand {
    /// As [`HouseCommand::starts_programs`].
    fn starts_programs(&self) -> bool;

    /// As [`HouseCommand::run`].
    fn run(&self, context: &Context) -> Result<(), Failure>;
}

impl<C: HouseCommand> RunCommand for C {
    fn starts_programs(&self) -> bool {
        HouseCommand::starts_programs(self)
    }

    fn run(&self, context: &Context) -> Result<(), Failure> {
        HouseCommand::run(self, context)
    }
}

/// A [`HouseCommand`] whose type the program does not know.
pub struct Command {
    pub name: &'static str,
    /// Makes its words, options and help.
    pub line: fn() -> clap::Command,
    /// Reads what was matched by `line`.
    pub read: fn(&ArgMatches) -> Result<Box<dyn RunCommand>, clap::Error>,
}

impl Command {
    pub const fn new<C: HouseCommand>() -> Self {
        Command { name: C::NAME, line: line::<C>, read: read::<C> }
    }
}

fn line<C: HouseCommand>() -> clap::Command {
    let line = clap::Command::new(C::NAME)
        .about(C::ABOUT)
        .after_help(format!("Example:\n{}", C::EXAMPLE))
        .subcommand_required(true)
        .arg_required_else_help(true);
    C::augment_subcommands(line)
}

fn read<C: HouseCommand>(matches: &ArgMatches) -> Result<Box<dyn RunCommand>, clap::Error> {
    Ok(Box::new(C::from_arg_matches(matches)?))
}
