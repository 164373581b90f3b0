//! The command line: every command with its help and an example.

use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use house::RunCommand;
use house::context::Context;
use remote::Failure;

use crate::houses;

/// Measure a packet path, and prove what each optimisation is worth on this machine.
#[derive(Debug, Parser)]
#[command(
    name = "wirepath",
    version,
    max_term_width = 100,
    after_help = "\
Example:
  wirepath prove probe --load ping --arms ladder --peers sockperf --time 60s
  wirepath report last --html report.html"
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) context: Context,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Every command: those of the core and of the houses.
pub(crate) fn command_line() -> clap::Command {
    Cli::command().subcommands(houses::commands().map(|command| (command.line)()))
}

/// A parsed command line.
pub(crate) enum Line {
    Core(Box<Cli>),
    House(Context, Box<dyn RunCommand>),
}

impl Line {
    /// Parses the command line of this process, which it ends if there is none to run.
    pub(crate) fn parse() -> Line {
        let matches = command_line().try_get_matches().map_err(with_remedy);
        matches.and_then(|matches| Line::read(&matches)).unwrap_or_else(|error| error.exit())
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

    pub(crate) fn run(&self) -> Result<(), Failure> {
        match self {
            Line::Core(cli) => crate::run(&cli.context, &cli.command),
            Line::House(context, command) => command.run(context),
        }
    }
}

/// The error, which for a command of a house that was left out says how to get it.
fn with_remedy(error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    match houses::remedy(name) {
        Some(remedy) => command_line().error(ErrorKind::InvalidSubcommand, remedy),
        None => error,
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Compare two programs of your own on this machine: is the new one better, and by how much?
    #[command(after_help = "\
Example:
  wirepath compare ./sort-old ./sort-new
  wirepath compare ./server-main ./server-pr -- wrk -d1s http://localhost:8080/
  wirepath compare --build make --run ./server main pr -- redis-benchmark -q -p 7000

Exit codes: 0 shown to be no worse, 4 worse, 5 not decided; --resolve says how much counts.")]
    Compare(Box<crate::compare::CompareArgs>),
    /// List paths with their loads and switches, and whether this host supports them
    #[command(after_help = "Example:\n  wirepath paths\n  wirepath paths probe")]
    Paths(crate::paths_list::PathsArgs),
    /// Measure the effect of switches by interleaved trials of all arms in one run
    #[command(after_help = "\
Example:
  wirepath prove probe --load flood --arms ladder --peers iperf3 --time 60s
  wirepath prove probe --load ping --arms spin,bypass+spin --json
  wirepath prove probe --far ssh:db2 -i eth1 --load flood --direction receive
  wirepath prove probe --load ping --arms best --time 5m
  wirepath prove probe --against ./wirepath.old --arms spin+bypass --fail-on worse
  wirepath prove probe --arms spin --runs 6 --baseline '20261121-08*' --fail-on worse")]
    Prove(Box<crate::prove::ProveArgs>),
    /// Answer calls of another process of this program, which starts it
    #[command(
        hide = true,
        after_help = "Example:\n  wirepath prove command experiment.toml --far ssh:db2"
    )]
    Answer(crate::answer::AnswerArgs),
    /// Send, receive, echo or ping with any engine
    #[command(
        subcommand,
        after_help = "Example:\n  wirepath peer --listen 192.0.2.7:7117     (at the far end)\n  \
                      wirepath probe ping 192.0.2.7 --arm spin+bypass"
    )]
    Probe(crate::probe::args::ProbeCommand),
    /// Measure on many hosts: pooled verdicts, and meshes
    #[command(
        subcommand,
        after_help = "Example:\n  wirepath fleet prove --on ssh:db1,ssh:db2,this probe --load ping --arms spin"
    )]
    Fleet(crate::fleet::FleetCommand),
    /// Find settings that slow packets on this host, with evidence and remedy; read-only
    #[command(after_help = "\
Example:
  wirepath doctor --interface eth1 --profile latency --app-cpu 3
  wirepath doctor --netns blue --severity medium --html findings.html")]
    Doctor(crate::doctor::DoctorArgs),
    /// Change settings of the host by a plan, with a journal for the rollback
    #[command(after_help = "\
Example:
  wirepath tune plan --profile latency --interface eth1 --app-cpu 3 > plan.toml
  wirepath tune apply plan.toml --confirm-within 60s
  wirepath tune rollback")]
    Tune(Box<crate::tune::TuneArgs>),
    /// Serve as the far end of runs between two hosts
    #[command(after_help = "\
Example:
  wirepath peer --listen 192.0.2.7:7117 --secret-file key")]
    Peer(crate::peer::PeerArgs),
    /// Make a shared secret for `peer` and its near ends
    #[command(after_help = "\
Example:
  wirepath secret --out key        (the same file, with mode 600, at both ends)")]
    Secret(crate::secret::SecretOutArgs),
    /// Show where packets spend time on a live path, and where they are dropped
    #[command(after_help = "\
Example:
  wirepath explain -i eth0 -d 10s
  wirepath explain --netns blue --duty 100 --json
  wirepath explain --port 443 --duty 100
  wirepath explain --cgroup /system.slice/nginx.service --metrics 9102")]
    Explain(crate::explain::ExplainArgs),
    /// List, show, compare, export, prune and check stored experiments
    #[command(after_help = "\
Example:
  wirepath history
  wirepath history compare 20261121-0830 last")]
    History {
        /// Default: `list`
        #[command(subcommand)]
        command: Option<crate::history::args::HistoryCommand>,
    },
    /// Show one experiment as text, JSON, CSV, an HTML page, or in the form of a CI system
    #[command(after_help = "\
Example:
  wirepath report last --html report.html
  wirepath report last --format markdown
  wirepath report --path probe --html probe.html")]
    Report(crate::report_cmd::ReportArgs),
    /// Show the history as pages in a browser, on this host alone
    #[command(after_help = "\
Example:
  wirepath serve
  wirepath serve --port 0 --json")]
    Serve(crate::serve::ServeArgs),
    /// Print the JSON Schema of a command's `--json` document
    #[command(after_help = "\
Example:
  wirepath schema
  wirepath schema tune apply")]
    Schema {
        /// Command; lists those that have a schema unless given
        command: Vec<String>,
    },
    /// Print a completion script for a shell
    #[command(after_help = "\
Example:
  wirepath completions bash > /etc/bash_completion.d/wirepath")]
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },
    /// Write man pages to a folder
    #[command(after_help = "Example:\n  wirepath man /usr/local/share/man/man1")]
    Man {
        /// Folder
        dir: PathBuf,
    },
}

impl Command {
    fn starts_programs(&self) -> bool {
        match self {
            Command::Prove(_)
            | Command::Compare(_)
            | Command::Paths(_)
            | Command::Tune(_)
            | Command::Fleet(_)
            | Command::Doctor(_) => true,
            Command::Answer(args) => args.starts_programs(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command_line().debug_assert();
    }

    #[test]
    fn every_help_ends_with_an_example() {
        fn check(command: &clap::Command, path: &str) {
            let path = format!("{path} {}", command.get_name());
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.starts_with("Example:"), "{path} has no example");
            for sub in command.get_subcommands() {
                check(sub, &path);
            }
        }
        check(&command_line(), "");
    }

    #[test]
    fn every_command_is_in_the_overview_of_commands() {
        let page = include_str!("../../../docs/commands.md");
        let listed = |name: &str| page.contains(&format!("`{name}`"));
        let root = command_line();
        for command in root.get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = command.get_name();
            let is_open = |sub: &&clap::Command| !sub.is_hide_set() && sub.get_name() != "help";
            let subs: Vec<_> = command.get_subcommands().filter(is_open).collect();
            assert!(!subs.is_empty() || listed(name), "{name}");
            for sub in subs {
                assert!(listed(&format!("{name} {}", sub.get_name())), "{name} {}", sub.get_name());
            }
        }
    }
}
