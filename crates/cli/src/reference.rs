//! `docs/commands.md`: every command and option, written from the definitions that the program
//! parses its command line by.

use std::fmt::Write;
use std::path::Path;

use clap::builder::PossibleValue;
use clap::{Arg, ArgAction, Command, CommandFactory, Id};

use crate::args::Cli;

const PREFACE: &str = "\
# Commands

Every command and every option, written from the program's own definitions by `cargo xtask reference`;
a test fails when this page differs from them. `wirepath COMMAND --help` says the same in a
terminal, `wirepath man DIR` writes it as man pages.

Results go to standard output, all else to standard error. Exit codes: 0 done, 1 failed, 2 usage, 3 not
supported here, 4 a finding or a regression as bad as asked for.
";

fn reference() -> String {
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    let mut commands = Vec::new();
    collect(&root, &mut commands);

    let mut page = PREFACE.to_owned();
    page.push_str("\n| command | what it does |\n|---|---|\n");
    for command in &commands[1..] {
        let name = name(command);
        let about = cell(&command.get_about().map(ToString::to_string).unwrap_or_default());
        let _ = writeln!(page, "| [`{name}`](#{}) | {about} |", name.replace(' ', "-"));
    }
    page.push_str("\n## Options of every command\n");
    let everywhere = everywhere(&root);
    options(&mut page, root.get_arguments().filter(|arg| everywhere.contains(arg.get_id())));
    for command in &commands[1..] {
        section(&mut page, command, &everywhere);
    }
    page
}

/// Options that every command takes.
fn everywhere(root: &Command) -> Vec<Id> {
    let global = root.get_arguments().filter(|arg| arg.is_global_set());
    global.map(|arg| arg.get_id().clone()).collect()
}

/// The command and all below it, each before its own.
fn collect<'a>(command: &'a Command, into: &mut Vec<&'a Command>) {
    into.push(command);
    command.get_subcommands().filter(|sub| !sub.is_hide_set()).for_each(|sub| collect(sub, into));
}

fn name(command: &Command) -> &str {
    command.get_bin_name().unwrap_or(command.get_name())
}

fn section(page: &mut String, command: &Command, everywhere: &[Id]) {
    let _ = writeln!(page, "\n## {}\n", name(command));
    if let Some(about) = command.get_long_about().or(command.get_about()) {
        let about = about.to_string();
        let stop = if about.ends_with(['.', '?']) { "" } else { "." };
        let _ = writeln!(page, "{about}{stop}\n");
    }
    let usage = command.clone().render_usage().to_string();
    let _ = writeln!(page, "```\n{}\n```", usage.trim_start_matches("Usage: ").trim());
    let own = |arg: &&Arg| !arg.is_hide_set() && !everywhere.contains(arg.get_id());
    let (words, switches): (Vec<&Arg>, Vec<&Arg>) =
        command.get_arguments().filter(own).partition(|arg| arg.is_positional());
    options(page, words.into_iter().chain(switches));
    if let Some(after) = command.get_after_help() {
        let after = after.to_string();
        let example = after.trim_start_matches("Example:").trim_matches('\n');
        let _ = writeln!(page, "\nExample:\n\n```\n{}\n```", unindented(example));
    }
}

fn options<'a>(page: &mut String, args: impl Iterator<Item = &'a Arg>) {
    let is_ours = |arg: &&Arg| !matches!(arg.get_id().as_str(), "help" | "version");
    let rows: Vec<String> = args.filter(is_ours).map(row).collect();
    if !rows.is_empty() {
        let _ = write!(page, "\n| | meaning | default |\n|---|---|---|\n{}", rows.concat());
    }
}

fn row(arg: &Arg) -> String {
    let short = arg.get_short().map(|short| format!("`-{short}`"));
    let long = arg.get_long().map(|long| format!("`--{long}`"));
    let mut names = short.into_iter().chain(long).collect::<Vec<_>>().join(", ");
    if takes_value(arg) {
        let space = if names.is_empty() { "" } else { " " };
        let values = arg.get_value_names().unwrap_or_default().join(" ");
        let many = if arg.get_num_args().is_some_and(|n| n.max_values() > 1) { "…" } else { "" };
        let _ = write!(names, "{space}`{values}{many}`");
    }
    let mut meaning =
        arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    if arg.is_required_set() {
        meaning.push_str(" (required)");
    }
    if let Some(variable) = arg.get_env() {
        let _ = write!(meaning, "; also by the variable `{}`", variable.to_string_lossy());
    }
    let choices = arg.get_possible_values();
    if takes_value(arg) && !choices.is_empty() {
        let choices: Vec<String> =
            choices.iter().filter(|choice| !choice.is_hide_set()).map(choice).collect();
        let _ = write!(meaning, ". One of: {}", choices.join("; "));
    }
    let default: Vec<String> =
        arg.get_default_values().iter().map(|v| format!("`{}`", v.to_string_lossy())).collect();
    let default = if takes_value(arg) { default.join(" ") } else { String::new() };
    format!("| {names} | {} | {default} |\n", cell(&meaning))
}

fn takes_value(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Set | ArgAction::Append)
}

fn choice(choice: &PossibleValue) -> String {
    match choice.get_help() {
        Some(help) => format!("`{}` ({help})", choice.get_name()),
        None => format!("`{}`", choice.get_name()),
    }
}

/// Text in a table: one line, without what would end the cell or count as markup.
fn cell(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|").replace('<', "&lt;").replace('*', "\\*")
}

/// Without the spaces that all lines begin with.
fn unindented(text: &str) -> String {
    let lines = || text.lines().filter(|line| !line.trim().is_empty());
    let depth = lines().map(|line| line.len() - line.trim_start().len()).min().unwrap_or(0);
    let line = |line: &str| line.get(depth..).unwrap_or_default().to_owned();
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn commands_of_the_reference_are_those_of_the_program() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands.md");
    let page = reference();
    if std::env::var_os("UPDATE").is_some_and(|value| value == "1") {
        std::fs::write(&file, &page).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(written == page, "docs/commands.md is out of date; run `cargo xtask reference`");
}

#[test]
fn every_command_and_option_is_in_the_reference() {
    fn check(command: &Command, everywhere: &[Id], page: &str) {
        let name = name(command);
        let (_, section) = page.split_once(&format!("\n## {name}\n")).expect(name);
        let section = section.split("\n## ").next().unwrap_or_default();
        let ours = |arg: &&Arg| {
            let id = arg.get_id();
            !arg.is_hide_set() && !everywhere.contains(id) && id != "help"
        };
        for arg in command.get_arguments().filter(ours) {
            let shown = match (arg.get_long(), arg.get_short()) {
                (Some(long), _) => format!("`--{long}`"),
                (None, Some(short)) => format!("`-{short}`"),
                (None, None) => arg.get_value_names().expect(name)[0].to_string(),
            };
            assert!(section.contains(&shown), "{name} {shown}");
        }
        let open = command.get_subcommands().filter(|sub| !sub.is_hide_set());
        open.for_each(|sub| check(sub, everywhere, page));
    }
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    let page = reference();
    root.get_subcommands().for_each(|sub| check(sub, &everywhere(&root), &page));
    assert!(page.contains("`--json`") && page.contains("WIREPATH_DATA"));
    assert!(!page.contains("tune guard"), "hidden commands are not shown");
}
