//! The command line of this process: commands, help, mistakes and completion.

pub(crate) mod complete;
mod floors;
pub(crate) mod headings;
mod mistake;
mod named;
mod renamed;

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, CommandFactory, FromArgMatches};
use house::RunCommand;
use house::console;
use house::context::Context;
use house::privileges::LabUse;
use remote::Failure;

use crate::args::Cli;
use crate::houses;

pub(crate) use floors::help;

/// Every command: those of the core and of the houses, with headings over their options.
pub(crate) fn command_line() -> clap::Command {
    let help = Arg::new("help")
        .short('h')
        .long("help")
        .action(ArgAction::Help)
        .global(true)
        .help("Print help; --help prints more of it than -h");
    let version = Arg::new("version")
        .short('V')
        .long("version")
        .action(ArgAction::Version)
        .help("Print version");
    let line = Cli::command()
        .subcommands(houses::commands().map(|command| (command.line)()))
        .disable_help_flag(true)
        .disable_help_subcommand(true)
        .disable_version_flag(true)
        .args([help, version]);
    floors::with_floors(headings::with_headings(line))
}

/// A parsed command line.
pub(crate) enum Line {
    Core(Box<Cli>),
    House(Context, Box<dyn RunCommand>),
}

impl Line {
    /// Parses the command line of this process, which it ends if there is none to run.
    pub(crate) fn parse() -> Line {
        let words: Vec<OsString> = std::env::args_os().collect();
        let matches = command_line().try_get_matches_from(&words);
        let error = match matches.and_then(|matches| Line::read(&matches)) {
            Ok(line) => return line,
            Err(error) => error,
        };
        match error.kind() {
            ErrorKind::DisplayHelp => named::help(error, &words).exit(),
            ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                error.exit()
            }
            _ => {
                let failure = Failure::Usage(mistake::text(&error, &words));
                console::error(&failure);
                std::process::exit(i32::from(failure.exit_code().code()))
            }
        }
    }

    fn read(matches: &clap::ArgMatches) -> Result<Line, clap::Error> {
        if let Some((name, words)) = matches.subcommand()
            && let Some(command) = houses::commands().find(|command| command.name == name)
        {
            let context = Context::from_arg_matches(matches)?;
            return Ok(Line::House(context, (command.read)(words)?));
        }
        Ok(Line::Core(Box::new(Cli::from_arg_matches(matches)?)))
    }

    /// True if the command starts other programs, which may need the privileges of their own files.
    pub(crate) fn starts_programs(&self) -> bool {
        match self {
            Line::Core(cli) => cli.command.starts_programs(),
            Line::House(_, command) => command.starts_programs(),
        }
    }

    /// Commands of houses make labs for what needs rights on the host anyway.
    pub(crate) fn lab_use(&self) -> LabUse {
        match self {
            Line::Core(cli) => cli.command.lab_use(),
            Line::House(..) => LabUse::None,
        }
    }

    pub(crate) fn run(&self) -> Result<(), Failure> {
        match self {
            Line::Core(cli) => crate::run(&cli.context, &cli.command),
            Line::House(context, command) => command.run(context),
        }
    }
}

/// Words of a command, such as `tune plan`, and the command.
fn named_command<'a>(root: &'a clap::Command, words: &[String]) -> Option<&'a clap::Command> {
    words.iter().try_fold(root, |command, word| command.find_subcommand(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `check` with each command and its words.
    pub(super) fn for_each_command(check: &mut dyn FnMut(&clap::Command, &str)) {
        fn each(command: &clap::Command, path: &str, check: &mut dyn FnMut(&clap::Command, &str)) {
            let path = format!("{path} {}", command.get_name());
            check(command, path.trim());
            for sub in command.get_subcommands() {
                each(sub, &path, check);
            }
        }
        let mut root = command_line();
        root.build();
        each(&root, "", check);
    }

    #[test]
    fn the_command_line_is_consistent() {
        command_line().debug_assert();
    }

    #[test]
    fn every_help_ends_with_an_example() {
        for_each_command(&mut |command, path| {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.starts_with("Example:"), "{path} has no example");
        });
    }

    #[test]
    fn every_command_is_in_the_overview_of_commands() {
        let page = include_str!("../../../../docs/commands.md");
        let root = command_line();
        for command in root.get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = command.get_name();
            let subs: Vec<_> = command.get_subcommands().filter(|sub| !sub.is_hide_set()).collect();
            assert!(!subs.is_empty() || page.contains(&format!("`{name}`")), "{name}");
            for sub in subs {
                let words = format!("`{name} {}`", sub.get_name());
                assert!(page.contains(&words), "{words}");
            }
        }
    }

    #[test]
    fn the_overview_has_the_exit_codes_of_the_table() {
        let page = include_str!("../../../../docs/commands.md");
        for code in model::ExitCode::ALL {
            let row = format!("| {} | {} | {} |", code.code(), code.name(), code.meaning());
            assert!(page.contains(&row), "docs/commands.md lacks {row}");
        }
    }
}
