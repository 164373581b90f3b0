//! Help of the program: the commands on two floors, and its topics.

use std::fmt::Write;

use clap::Command;
use house::console;
use model::{ExitCode, did_you_mean};
use remote::Failure;

use super::{command_line, named_command};

/// A group of commands under one heading.
struct Floor {
    heading: &'static str,
    commands: &'static [&'static str],
    has_examples: bool,
}

/// Commands in the order of the help. A name that this program lacks is left out.
const FLOORS: &[Floor] = &[
    Floor {
        heading: "Start here",
        commands: &["compare", "doctor", "explain", "tune", "report"],
        has_examples: true,
    },
    Floor {
        heading: "Workshop",
        commands: &["prove", "history", "atlas", "serve", "fleet", "peer"],
        has_examples: false,
    },
    Floor {
        heading: "Houses",
        commands: &["feed", "tunnel", "vmnic", "guest"],
        has_examples: false,
    },
];

const PLUMBING: Floor = Floor {
    heading: "Plumbing",
    commands: &["paths", "probe", "schema", "secret", "completions", "man", "help"],
    has_examples: false,
};

/// Column at which the sentence of a command begins.
const COLUMN: usize = 12;

impl Floor {
    fn text(&self, root: &Command) -> String {
        let mut text = format!("{}:\n", self.heading);
        for command in self.commands.iter().filter_map(|name| root.find_subcommand(name)) {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {:COLUMN$} {about}", command.get_name());
            if self.has_examples
                && let Some(example) = first_example(command)
            {
                let _ = writeln!(text, "  {:COLUMN$}   {example}", "");
            }
        }
        text
    }
}

fn first_example(command: &Command) -> Option<String> {
    let help = command.get_after_help()?.to_string();
    help.lines().nth(1).map(|line| line.trim().to_owned())
}

/// The program with the help of its floors in place of clap's list.
pub(super) fn with_floors(root: Command) -> Command {
    let floors = FLOORS.iter().map(|floor| floor.text(&root)).collect::<Vec<_>>().join("\n");
    let plumbing = PLUMBING.commands.join(", ");
    root.help_template(format!(
        "{{about}}\n\nUsage: wirepath COMMAND [OPTIONS]\n\n{floors}\nPlumbing: {plumbing}\n\
         `wirepath help all` lists every command, `wirepath help exit-codes` the exit codes.\n\n\
         Global options:\n{{options}}{{after-help}}"
    ))
}

/// `wirepath help [TOPIC]...`: `all`, `exit-codes`, or the words of a command.
pub(crate) fn help(topic: &[String]) -> Result<(), Failure> {
    let mut root = command_line();
    root.build();
    match topic {
        [] => console::text(&root.render_help().to_string()),
        [word] if word == "all" => console::text(&every_command(&root)),
        [word] if word == "exit-codes" => console::text(&exit_codes()),
        words => match named_command(&root, words) {
            Some(command) => console::text(&command.clone().render_long_help().to_string()),
            None => Err(Failure::Usage(unknown_topic(&root, words))),
        },
    }
}

fn unknown_topic(root: &Command, words: &[String]) -> String {
    let known = (1..words.len()).rev().find_map(|count| named_command(root, &words[..count]));
    let parent = known.unwrap_or(root);
    let names = parent.get_subcommands().map(Command::get_name);
    let topic = words.join(" ");
    let hint = words.last().map(|word| did_you_mean(word, names.chain(["all", "exit-codes"])));
    let hint = hint.unwrap_or_else(|| "; ".to_owned());
    format!("no help for '{topic}'{hint}`wirepath help all` lists every command")
}

fn every_command(root: &Command) -> String {
    let mut text = String::new();
    for floor in FLOORS.iter().chain([&PLUMBING]) {
        let _ = writeln!(text, "{}:", floor.heading);
        for name in floor.commands {
            if let Some(command) = root.find_subcommand(name) {
                list(&mut text, command, name);
            }
        }
        text.push('\n');
    }
    text.push_str("`wirepath COMMAND --help` has the options of a command.\n");
    text
}

/// Column of the sentences in the list of every command.
const WIDE_COLUMN: usize = 18;

fn list(text: &mut String, command: &Command, words: &str) {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let _ = writeln!(text, "  {words:WIDE_COLUMN$} {about}");
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        list(text, sub, &format!("{words} {}", sub.get_name()));
    }
}

/// The table of [`ExitCode`].
fn exit_codes() -> String {
    let mut text = String::from("Exit codes of every command:\n");
    for code in ExitCode::ALL {
        let _ = writeln!(text, "  {:>3}  {:12} {}", code.code(), code.name(), code.meaning());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_on_one_floor() {
        let root = command_line();
        let floors: Vec<&str> = FLOORS
            .iter()
            .chain([&PLUMBING])
            .flat_map(|floor| floor.commands.iter().copied())
            .collect();
        for command in root.get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = command.get_name();
            let places = floors.iter().filter(|listed| **listed == name).count();
            assert_eq!(places, 1, "{name} in the floors of the help");
        }
    }

    #[test]
    fn the_help_begins_with_the_ground_floor_and_its_examples() {
        let help = command_line().render_help().to_string();
        let doctor = help.find("\n  doctor ").expect("the ground floor");
        let prove = help.find("\n  prove ").expect("the workshop");
        let feed = help.find("Plumbing: ").expect("plumbing");
        assert!(doctor < prove && prove < feed, "{help}");
        assert!(help.contains("wirepath doctor eth1"), "{help}");
        assert!(help.lines().count() <= 60, "{help}");
    }
}
