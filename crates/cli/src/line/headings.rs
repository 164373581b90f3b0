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
            "watch",
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

/// Options that the short help of a command with many options leaves to the long one.
const RARE: &[&str] = &[
    "adapter",
    "any-machine",
    "app-cpu",
    "beside",
    "beside-ready",
    "cleanup",
    "direction",
    "every",
    "far-address",
    "far-cpu",
    "far-cpus",
    "feed",
    "grace",
    "ip",
    "max-blocks",
    "min-blocks",
    "name",
    "near-cpus",
    "no-confirm",
    "note",
    "port",
    "primary",
    "queue",
    "queues",
    "rate",
    "rebase",
    "ready-within",
    "replay",
    "secret-file",
    "seed",
    "sequence",
    "settle",
    "setup",
    "ssh-option",
    "stages",
    "unit",
    "vlan",
    "warmup",
    "washout",
    "within",
];
/// Number of options from which a command has many.
const MANY: usize = 30;

/// The command with a heading over each of its options, in the order of the headings, and those of its subcommands.
pub(super) fn with_headings(command: Command) -> Command {
    let names: Vec<String> =
        command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    let has_many = command.get_arguments().count() >= MANY;
    let command = command.mut_args(with_heading).mut_args(|arg| {
        let is_rare = arg.get_long().is_some_and(|name| RARE.contains(&name));
        if has_many && is_rare { arg.hide_short_help(true) } else { arg }
    });
    let mut sorted: Vec<Arg> = command.get_arguments().cloned().collect();
    sorted.sort_by_key(place_of_heading);
    let mut sorted = sorted.into_iter();
    // As many as there are.
    let command = command.mut_args(|arg| sorted.next().unwrap_or(arg));
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, with_headings))
}

/// Place of an argument's heading in a help; a heading of its declaration is in front of the global options.
fn place_of_heading(arg: &Arg) -> usize {
    const ORDER: [&str; 4] = [WHAT, WHERE, HOW_LONG, OUTPUT];
    match arg.get_help_heading() {
        _ if arg.is_positional() => 0,
        Some(GLOBAL) => ORDER.len() + 2,
        Some(heading) => {
            ORDER.iter().position(|known| *known == heading).unwrap_or(ORDER.len()) + 1
        }
        None => ORDER.len() + 1,
    }
}

fn with_heading(arg: Arg) -> Arg {
    let arg = with_short_help(arg);
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

/// Characters of a help that fit one line beside the option.
const SHORT_LEN: usize = 64;

/// The argument with the first clause of its help for `-h`, and all of it for `--help`.
fn with_short_help(arg: Arg) -> Arg {
    let Some(help) = arg.get_help().map(ToString::to_string) else { return arg };
    if arg.get_long_help().is_some() || help.len() <= SHORT_LEN {
        return arg;
    }
    let ends = ["; ", ". ", ": "].map(|end| help.find(end).filter(|end| *end > SHORT_LEN / 4));
    match ends.into_iter().flatten().min() {
        Some(end) => arg.help(help[..end].to_owned()).long_help(help),
        None => arg,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::for_each_command;
    use super::*;

    /// Lines of the longest short help.
    const LINES_MAX: usize = 62;

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
        let mut wrong = Vec::new();
        for_each_command(&mut |command, path| {
            let headings = shown(command);
            options += headings.len();
            let is_last = headings.last() == Some(&GLOBAL) && !headings.contains(&"none");
            let own: Vec<&str> =
                headings.iter().copied().filter(|heading| order.contains(heading)).collect();
            let wanted: Vec<&str> =
                order.iter().copied().filter(|heading| own.contains(heading)).collect();
            if own != wanted || !is_last {
                wrong.push(format!("{path}: {headings:?}"));
            }
        });
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert!(options > 100, "{options}");
    }

    #[test]
    fn no_short_help_is_longer_than_a_screen_or_two() {
        let mut wrong = Vec::new();
        for_each_command(&mut |command, path| {
            let mut command = command.clone().term_width(100);
            let lines = command.render_help().to_string().lines().count();
            if lines > LINES_MAX {
                wrong.push(format!("{path} -h has {lines} lines"));
            }
        });
        assert!(wrong.is_empty(), "{wrong:#?}");
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
