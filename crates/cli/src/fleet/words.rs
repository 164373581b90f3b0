//! Arguments of other commands behind those of a fleet's, read with them.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, Subcommand};
use model::Request;
use remote::Failure;

use crate::command::ExperimentArgs;
use crate::prove::PathArgs;
use crate::tune::prove::PlanLoadArgs;

/// Name of the argument whose values are the words.
const WORDS: &str = "words";

/// Words that are arguments of their own: options of the command before them are not among them.
#[derive(Debug)]
pub(crate) struct Words<T>(pub(crate) T);

/// Arguments that can be behind those of another command.
pub(crate) trait Trailing: Args {
    /// Command line before them, for messages.
    const BEFORE: &str;

    /// The argument whose values they are.
    fn argument(words: Arg) -> Arg;
}

impl<T: Trailing> FromArgMatches for Words<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let words = matches.get_many::<String>(WORDS).unwrap_or_default();
        let command = Command::new(T::BEFORE).no_binary_name(true).disable_version_flag(true);
        let matches = T::augment_args(command).try_get_matches_from(words)?;
        Ok(Words(T::from_arg_matches(&matches)?))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<T: Trailing> Args for Words<T> {
    fn augment_args(command: Command) -> Command {
        command.arg(T::argument(Arg::new(WORDS).action(ArgAction::Append)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// `prove` without the options that belong to one host or to a series.
#[derive(Debug, Args)]
pub(crate) struct HostProveArgs {
    #[command(subcommand)]
    command: Option<HostProveCommand>,
    #[command(flatten)]
    path: PathArgs,
}

#[derive(Debug, Subcommand)]
enum HostProveCommand {
    /// Your own programs or settings as arms
    Command(Box<ExperimentArgs>),
}

impl HostProveArgs {
    /// The experiment that every host runs. Experiment files are read here.
    pub(super) fn request(&self) -> Result<Request, Failure> {
        match &self.command {
            Some(HostProveCommand::Command(args)) => args.request(),
            None => self.path.request(None, None),
        }
    }
}

impl Trailing for HostProveArgs {
    const BEFORE: &str = "wirepath fleet prove --on HOST,…";

    fn argument(words: Arg) -> Arg {
        words
            .required(true)
            .num_args(1..)
            .trailing_var_arg(true)
            .allow_hyphen_values(true)
            .value_name("PATH")
            .help("Path or `command`, and all other arguments of `prove`")
    }
}

impl Trailing for PlanLoadArgs {
    const BEFORE: &str = "wirepath fleet rollout PLAN --";

    fn argument(words: Arg) -> Arg {
        words.num_args(0..).last(true).value_name("ARGUMENTS").help(
            "Load and limits, as of `tune prove`; `{host}` is replaced by the name of the host",
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;
    use model::Subject;
    use remote::work::Call;

    use super::super::caller::time_limit;
    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[arg(long)]
        on: Option<String>,
        #[command(flatten)]
        words: Words<HostProveArgs>,
    }

    fn read(text: &str) -> Result<Request, String> {
        let line = Line::try_parse_from(text.split(' ')).map_err(|error| error.to_string())?;
        line.words.0.request().map_err(Failure::into_text)
    }

    #[test]
    fn words_behind_the_path_are_an_experiment() {
        let request = read("x --on a probe --load ping --arms spin --max-blocks 8").unwrap();
        let Subject::Path(path) = &request.subject else { panic!("{request:?}") };
        assert_eq!((path.path.as_str(), path.arms.as_str()), ("probe", "spin"));
        assert_eq!(request.limits.max_blocks, Some(8));
        let request = read("x command --arm a=x --arm b=y --client z").unwrap();
        assert!(matches!(request.subject, Subject::Programs(_)), "{request:?}");
    }

    /// Time limits were those of the options once, and not of the file.
    #[test]
    fn host_has_time_for_the_time_of_an_experiment_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("exp.toml");
        let text = "time = \"20m\"\nmetrics = [\"client_wall_ns\"]\n\
                    [[arm]]\nname = \"a\"\ncommand = \"x\"\n[[arm]]\nname = \"b\"\ncommand = \"y\"\n";
        std::fs::write(&file, text).unwrap();
        let request = read(&format!("x command {}", file.display())).unwrap();
        let limit = time_limit(&Call::RunAlone(Box::new(request)));
        assert!(limit > Duration::from_secs(20 * 60), "{limit:?}");
        let request = read("x probe --load ping").unwrap();
        assert_eq!(time_limit(&Call::RunAlone(Box::new(request))).as_secs(), 720);
    }

    #[test]
    fn options_of_the_fleet_and_of_a_single_host_are_not_among_them() {
        for (bad, named) in [
            ("x probe --on this", "--on"),
            ("x probe --json --load ping", "--json"),
            ("x probe --baseline=last", "--baseline"),
            ("x probe --runs 3", "--runs"),
            ("x probe --far ssh:h2", "--far"),
            ("x probe --against ./old", "--against"),
            ("x command --resume y", "--resume"),
            ("x nonsense", "nonsense"),
            ("x probe --no-such-option", "--no-such-option"),
            ("x", "PATH"),
        ] {
            let why = read(bad).unwrap_err();
            assert!(why.contains(named), "{bad}: {why}");
        }
    }
}
