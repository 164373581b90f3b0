//! Mistakes of the command line: each in one line, with the right form.

use std::ffi::OsString;

use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use model::did_you_mean;

use super::named::Named;
use super::renamed::Renamed;
use crate::{houses, lookup};

/// Text of a mistake.
///
/// - `line`: words of the command line, the program first.
pub(super) fn text(error: &Error, line: &[OsString]) -> String {
    let line: Vec<String> = line.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let os: Vec<OsString> = line.iter().map(OsString::from).collect();
    let named = Named::read(&os);
    if let Some(programs) = programs_to_compare(error, &named, &line) {
        return lookup::compare_hint(&programs);
    }
    match error.kind() {
        ErrorKind::UnknownArgument => unknown_argument(error, &named, &line),
        ErrorKind::InvalidSubcommand => unknown_command(error, &named),
        ErrorKind::InvalidValue => wrong_value(error),
        ErrorKind::MissingRequiredArgument => missing(error, &named),
        _ => first_paragraph(error),
    }
}

/// Programs in the form of other tools: `wirepath prove ./a ./b`.
fn programs_to_compare(error: &Error, named: &Named, line: &[String]) -> Option<Vec<String>> {
    let kinds = [ErrorKind::UnknownArgument, ErrorKind::InvalidSubcommand, ErrorKind::InvalidValue];
    let takes_programs = ["", "prove", "prove command"].contains(&named.words.join(" ").as_str());
    if !kinds.contains(&error.kind()) || !takes_programs {
        return None;
    }
    let wrong = context(error, ContextKind::InvalidArg)
        .or_else(|| context(error, ContextKind::InvalidSubcommand))
        .unwrap_or_default();
    let words = arguments(named.command(), line);
    let words: Vec<String> =
        words.into_iter().filter(|word| lookup::is_program(word)).cloned().collect();
    (!words.is_empty() && !wrong.starts_with('-')).then_some(words)
}

/// Words of the line that are neither options nor values of options.
fn arguments<'a>(command: &Command, line: &'a [String]) -> Vec<&'a String> {
    // The program itself is none.
    let mut is_value = true;
    let mut arguments = Vec::new();
    for word in line.iter().take_while(|word| *word != "--") {
        if !is_value && !word.starts_with('-') {
            arguments.push(word);
        }
        is_value = word.starts_with('-') && takes_value(command, word);
    }
    arguments
}

/// True if the word is an option of the command, and a value follows it.
fn takes_value(command: &Command, word: &str) -> bool {
    let name = word.trim_start_matches('-');
    let arg = command.get_arguments().find(|arg| {
        let is_short = arg.get_short().is_some_and(|short| name == short.to_string());
        arg.get_long() == Some(name) || (is_short && !word.starts_with("--"))
    });
    arg.is_some_and(|arg| arg.get_action().takes_values())
}

fn context(error: &Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => Some(texts.join(" ")),
        _ => None,
    }
}

fn unknown_argument(error: &Error, named: &Named, line: &[String]) -> String {
    let wrong = context(error, ContextKind::InvalidArg).unwrap_or_default();
    let option = wrong.split_once('=').map_or(wrong.as_str(), |(option, _)| option);
    let command = named.command();
    let options = options(command);
    if let Some(row) = Renamed::find(&named.words.join(" "), option, &options) {
        return row.text(option, following_value(option, line).as_deref(), &named.program());
    }
    let program = named.program();
    if option.starts_with('-') {
        let hint = did_you_mean(option, options.iter().map(String::as_str));
        return format!(
            "'{option}' is not an option of `{program}`{hint}`{program} --help` lists them"
        );
    }
    format!("'{wrong}' is one argument too many: {}", usage(command))
}

/// `wirepath man [OPTIONS] <DIR>`, without options that the environment has set.
fn usage(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    usage.lines().next().unwrap_or_default().trim().to_owned()
}

/// Long options of a command that are shown.
fn options(command: &Command) -> Vec<String> {
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    shown.filter_map(|arg| arg.get_long().map(|long| format!("--{long}"))).collect()
}

/// Value that follows an option on the line.
fn following_value(option: &str, line: &[String]) -> Option<String> {
    let glued = format!("{option}=");
    line.iter().enumerate().find_map(|(place, word)| {
        if let Some(value) = word.strip_prefix(&glued) {
            return Some(value.to_owned());
        }
        let next = line.get(place + 1).filter(|next| !next.starts_with('-'));
        next.filter(|_| word == option).cloned()
    })
}

fn unknown_command(error: &Error, named: &Named) -> String {
    let wrong = context(error, ContextKind::InvalidSubcommand).unwrap_or_default();
    if let Some(remedy) = houses::remedy(&wrong) {
        return remedy;
    }
    let program = named.program();
    if program == "wirepath feed" && wrong == "noise" {
        return "`wirepath feed noise` is now `wirepath explain --late --cpu N`".into();
    }
    let known = named.command().get_subcommands().filter(|sub| !sub.is_hide_set());
    let hint = did_you_mean(&wrong, known.map(Command::get_name));
    format!("'{wrong}' is not a command of `{program}`{hint}`{program} --help` lists them")
}

fn wrong_value(error: &Error) -> String {
    let (Some(option), Some(value)) =
        (context(error, ContextKind::InvalidArg), context(error, ContextKind::InvalidValue))
    else {
        return first_paragraph(error);
    };
    let known = match error.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(known)) => known.as_slice(),
        _ => &[],
    };
    let list = known.join(", ");
    if value.is_empty() {
        let one_of = if list.is_empty() { list } else { format!(", one of: {list}") };
        return format!("{option} needs a value{one_of}");
    }
    let hint = did_you_mean(&value, known.iter().map(String::as_str));
    format!("'{value}' is not a value of {option}{hint}values: {list}")
}

fn missing(error: &Error, named: &Named) -> String {
    let missing = context(error, ContextKind::InvalidArg).unwrap_or_default();
    // A group lists its hidden options, too.
    let hidden = named.command().get_arguments().filter(|arg| arg.is_hide_set());
    let missing = hidden.fold(missing, |missing, arg| missing.replace(&format!("|{arg}"), ""));
    format!("`{}` needs {missing}: {}", named.program(), usage(named.command()))
}

/// The mistake in clap's words, without usage and pointers.
fn first_paragraph(error: &Error) -> String {
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let paragraph = text.split("\n\n").next().unwrap_or(text);
    paragraph.split('\n').map(str::trim).collect::<Vec<_>>().join(" ").trim().to_owned()
}
