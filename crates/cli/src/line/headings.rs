//! Headings over the options of each help, by the option's name.

use clap::{Arg, Command};

pub(super) const WHAT: &str = "What";
const WHERE: &str = "Where";
const HOW_LONG: &str = "How long";
const OUTPUT: &str = "Output";
const GLOBAL: &str = "Global options";

/// Headings in the order of a help, each with its options. An option that is in none of them is under [`WHAT`], unless
/// its declaration has a heading of its own.
const HEADINGS: &[(&str, &[&str])] = &[
    (
        WHERE,
        &[
            "app-cpu",
            "broker",
            "far",
            "far-address",
            "far-cpu",
            "far-cpus",
            "fleet",
            "forward",
            "from",
            "from-b",
            "group-b",
            "interface",
            "interface-b",
            "near",
            "near-cpus",
            "netns",
            "on",
            "owner",
            "peer-port",
            "pin",
            "port",
            "ports",
            "queue",
            "queues",
            "source",
            "source-b",
            "source-port",
            "ssh-option",
            "to",
            "to-b",
            "xsk-map",
            "from-hosts",
        ],
    ),
    (
        HOW_LONG,
        &[
            "blocks",
            "confirm-within",
            "count",
            "every",
            "extend",
            "grace",
            "hold",
            "keep-going",
            "last",
            "max-blocks",
            "min-blocks",
            "ready-within",
            "repeats",
            "resolution",
            "resolve",
            "rounds",
            "runs",
            "silence",
            "time",
            "trial",
            "trials",
            "warmup",
            "within",
        ],
    ),
    (
        OUTPUT,
        &[
            "accept-undecided",
            "csv",
            "digest",
            "fail-on",
            "format",
            "functions",
            "html",
            "listen",
            "live",
            "name",
            "no-history",
            "note",
            "out",
            "perfetto",
            "severity",
            "textfile",
            "top",
            "trace",
        ],
    ),
    (GLOBAL, &["data-dir", "help", "json", "root", "state", "version"]),
];

/// The command with a heading over each of its options, and over those of its subcommands.
pub(super) fn with_headings(command: Command) -> Command {
    let names: Vec<String> =
        command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    let command = command.mut_args(with_heading);
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, with_headings))
}

fn with_heading(arg: Arg) -> Arg {
    let Some(name) = arg.get_long() else { return arg };
    let listed =
        HEADINGS.iter().find(|(_, names)| names.contains(&name)).map(|(heading, _)| *heading);
    let heading = match (listed, arg.get_help_heading()) {
        (Some(GLOBAL), _) => GLOBAL,
        (_, Some(_)) => return arg,
        (Some(heading), None) => heading,
        (None, None) => WHAT,
    };
    arg.help_heading(heading)
}

#[cfg(test)]
mod tests {
    use super::super::tests::for_each_command;
    use super::*;

    /// Headings of a command's options in the order of the help.
    fn shown(command: &Command) -> Vec<&str> {
        let mut headings = Vec::new();
        for arg in command.get_arguments().filter(|arg| !arg.is_positional() && !arg.is_hide_set())
        {
            let heading = arg.get_help_heading().unwrap_or("none");
            if !headings.contains(&heading) {
                headings.push(heading);
            }
        }
        headings
    }

    #[test]
    fn every_option_has_a_heading_and_those_of_every_command_are_last() {
        let order = [WHAT, WHERE, HOW_LONG, OUTPUT];
        let mut options = 0;
        for_each_command(&mut |command, path| {
            let headings = shown(command);
            options += headings.len();
            assert!(!headings.contains(&"none"), "{path}: {headings:?}");
            assert_eq!(headings.last(), Some(&GLOBAL), "{path}: {headings:?}");
            let own: Vec<&str> =
                headings.iter().copied().filter(|heading| order.contains(heading)).collect();
            let wanted: Vec<&str> =
                order.iter().copied().filter(|heading| own.contains(heading)).collect();
            assert_eq!(own, wanted, "{path}: the order of the first option of each heading");
        });
        assert!(options > 100, "{options}");
    }

    #[test]
    fn no_short_help_is_longer_than_a_screen_or_two() {
        for_each_command(&mut |command, path| {
            let mut command = command.clone().term_width(100);
            let lines = command.render_help().to_string().lines().count();
            assert!(lines <= 62, "{path} -h has {lines} lines");
        });
    }

    #[test]
    fn no_option_is_listed_twice() {
        let mut names: Vec<&str> =
            HEADINGS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
