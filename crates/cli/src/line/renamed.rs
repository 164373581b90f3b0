//! Options that have another name now, or belong to another command: the one table that answers them.

/// An option that its command does not have.
pub(super) struct Renamed {
    /// Words of the commands; those below them are included, and an empty text means every command.
    pub(super) commands: &'static [&'static str],
    /// As it is typed, such as `--duration`; several for a short and a long form.
    pub(super) old: &'static [&'static str],
    pub(super) now: Now,
}

/// Form that answers an option.
pub(super) enum Now {
    /// The same option under another name.
    Option(&'static str),
    /// The value is an argument without an option, such as `INTERFACE`.
    Positional(&'static str),
    /// Something else, in words.
    Form(&'static str),
    /// An option of a command that follows.
    Later(&'static str),
}

const fn renamed(
    commands: &'static [&'static str],
    old: &'static [&'static str],
    now: Now,
) -> Renamed {
    Renamed { commands, old, now }
}

const ENGINE: &[&str] = &["probe send", "probe receive", "probe echo", "probe ping"];

pub(super) const RENAMED: &[Renamed] = &[
    renamed(&[""], &["--duration", "-d"], Now::Option("--time")),
    renamed(&[""], &["--threshold"], Now::Option("--resolve")),
    renamed(
        &["doctor", "explain", "tunnel check"],
        &["--interface", "-i"],
        Now::Positional("INTERFACE"),
    ),
    renamed(&["feed listen", "feed record"], &["--group"], Now::Positional("GROUP:PORT")),
    renamed(&["tunnel run"], &["--config", "-c"], Now::Positional("FILE")),
    renamed(&["doctor", "tunnel check"], &["--metrics"], Now::Option("--textfile")),
    renamed(
        &["explain", "feed listen", "tunnel run", "fleet mesh"],
        &["--metrics"],
        Now::Option("--listen"),
    ),
    renamed(&["feed report"], &["--out", "-o"], Now::Option("--html")),
    renamed(&["feed listen"], &["--report"], Now::Option("--html")),
    renamed(&["history export", "tune export"], &["--output", "-o"], Now::Option("--out")),
    renamed(&["prove command"], &["--keep"], Now::Option("--keep-servers")),
    renamed(&["history prune"], &["--keep"], Now::Option("--keep-last")),
    renamed(&["prove", "compare"], &["--live"], Now::Option("--watch")),
    renamed(&["prove", "compare"], &["--html"], Now::Later("wirepath report last --html")),
    renamed(&["prove", "compare"], &["--csv"], Now::Later("wirepath report last --csv")),
    renamed(&["prove", "compare"], &["--format"], Now::Later("wirepath report last --format")),
    renamed(
        ENGINE,
        &["--engine"],
        Now::Form("--arm bypass for xdp, --packet for packet, and neither for udp"),
    ),
    renamed(ENGINE, &["--far-engine"], Now::Form("--far-arm: bypass for xdp, baseline for udp")),
    renamed(ENGINE, &["--mode"], Now::Form("--arm bypass+native for native, --arm bypass for skb")),
    renamed(
        ENGINE,
        &["--receiving"],
        Now::Form("--arm epoll, --arm epoll+epoll-busy-poll or --arm io-uring"),
    ),
    renamed(
        ENGINE,
        &["--batch"],
        Now::Form("--arm batch, with --batch-size for another number than 64"),
    ),
    renamed(ENGINE, &["--native", "-N"], Now::Form("--arm bypass+native")),
    renamed(ENGINE, &["--skb", "-S"], Now::Form("--arm bypass, without native")),
    renamed(ENGINE, &["--zero-copy", "-z"], Now::Form("--arm bypass+native+zero-copy")),
    renamed(ENGINE, &["--poll", "-p"], Now::Form("the default: leave it out")),
    renamed(ENGINE, &["--spin"], Now::Form("--arm spin")),
    renamed(ENGINE, &["--busy-poll"], Now::Form("--arm busy-poll")),
    renamed(ENGINE, &["--need-wakeup"], Now::Form("--arm bypass+need-wakeup")),
    renamed(ENGINE, &["--gso"], Now::Form("--arm gso")),
    renamed(ENGINE, &["--irq-suspend"], Now::Form("--arm epoll+epoll-busy-poll+irq-suspend")),
    renamed(ENGINE, &["--zero-copy-send"], Now::Form("--arm zero-copy-send")),
    renamed(ENGINE, &["--huge-pages"], Now::Form("--arm bypass+huge-pages")),
    renamed(ENGINE, &["--unaligned-chunks"], Now::Form("--arm bypass+unaligned-chunks")),
    renamed(ENGINE, &["--no-idle-states"], Now::Form("--arm no-idle-states")),
];

impl Renamed {
    /// Finds the row of an option of a command.
    ///
    /// - `command`: its words, without `wirepath`.
    /// - `options`: those of the command that are shown, such as `--time`.
    pub(super) fn find(
        command: &str,
        option: &str,
        options: &[String],
    ) -> Option<&'static Renamed> {
        RENAMED.iter().find(|row| {
            let is_of_command = row.commands.iter().any(|words| {
                words.is_empty()
                    || command == *words
                    || command.strip_prefix(words).is_some_and(|rest| rest.starts_with(' '))
            });
            let is_possible = match row.now {
                Now::Option(now) => options.iter().any(|option| option == now),
                _ => true,
            };
            is_of_command && is_possible && row.old.contains(&option)
        })
    }

    /// `--duration 5s is now --time 5s`.
    ///
    /// - `typed`: the option; `value`: what follows it on the line.
    /// - `program`: words of the command, such as `wirepath explain`.
    pub(super) fn text(&self, typed: &str, value: Option<&str>, program: &str) -> String {
        match self.now {
            Now::Option(now) => {
                format!("{} is now {}", with_value(typed, value), with_value(now, value))
            }
            Now::Positional(name) => {
                let argument = value.unwrap_or(name);
                format!("{} is now an argument: {program} {argument}", with_value(typed, value))
            }
            Now::Form(form) => format!("{typed} is now {form}"),
            Now::Later(command) => {
                format!("{typed} comes after the run: {}", with_value(command, value))
            }
        }
    }
}

fn with_value(name: &str, value: Option<&str>) -> String {
    value.map_or(name.to_owned(), |value| format!("{name} {value}"))
}

#[cfg(test)]
mod tests {
    use clap::Command;

    use super::super::{command_line, named_command};
    use super::*;

    /// - `option`: with its hyphens.
    fn has_option(command: &Command, option: &str) -> bool {
        command.get_arguments().any(|arg| {
            let long = arg.get_long().map(|long| format!("--{long}"));
            let short = arg.get_short().map(|short| format!("-{short}"));
            long.as_deref() == Some(option) || short.as_deref() == Some(option)
        })
    }

    #[test]
    fn every_row_names_commands_and_an_option_that_they_lack() {
        let mut root = command_line();
        root.build();
        for row in RENAMED {
            for words in row.commands.iter().filter(|words| !words.is_empty()) {
                let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
                let Some(command) = named_command(&root, &words) else {
                    assert!(
                        ["compare", "feed", "tunnel"].contains(&words[0].as_str()),
                        "{words:?}"
                    );
                    continue;
                };
                let kept = row.old.iter().find(|old| has_option(command, old));
                assert_eq!(kept, None, "{words:?} has it still");
                if let Now::Option(now) = row.now {
                    assert!(has_option(command, now), "{words:?} has no {now}");
                }
            }
        }
    }
}
