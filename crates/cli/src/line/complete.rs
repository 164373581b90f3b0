//! Completion of words: `wirepath complete -- WORDS`, which the scripts of `wirepath completions` call.
//!
//! Not `clap_complete`'s dynamic engine: it is unstable, and a completer of it sees the word alone, not the path or the
//! knob that the words before it name.

use std::ffi::OsString;

use clap::{Arg, Command};
use house::console;
use house::context::Context;
use remote::Failure;
use report::store::{Filter, Store};

use super::named::Named;
use crate::{lookup, results};

/// Number of newest experiments whose ids are offered.
const IDS_MAX: u32 = 50;

/// Prints the candidates for the last word, one a line: none if it is a file.
///
/// - `words`: command line up to the cursor, the program first.
pub(crate) fn run(context: &Context, words: &[OsString]) -> Result<(), Failure> {
    let Some((last, before)) = words.split_last() else { return Ok(()) };
    let word = last.to_string_lossy();
    let mut found = candidates(context, &word, before);
    found.retain(|candidate| candidate.starts_with(word.as_ref()));
    found.sort_unstable();
    found.dedup();
    if found.is_empty() { Ok(()) } else { console::text(&found.join("\n")) }
}

fn candidates(context: &Context, word: &str, before: &[OsString]) -> Vec<String> {
    let named = Named::read(before);
    let command = named.command_of_path();
    let last = before.last().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    if let Some((option, value)) = word.split_once('=').filter(|_| word.starts_with("--")) {
        let values = named_option(&command, option).map(|arg| values(context, &named, arg, value));
        return values
            .unwrap_or_default()
            .into_iter()
            .map(|value| format!("{option}={value}"))
            .collect();
    }
    if let Some(arg) = named_option(&command, &last).filter(|arg| arg.get_action().takes_values()) {
        return values(context, &named, arg, word);
    }
    if word.starts_with('-') {
        return options(&command);
    }
    let visible = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    let subcommands = visible.map(|sub| sub.get_name().to_owned());
    let positional = command.get_positionals().filter(|arg| !arg.is_hide_set());
    subcommands.chain(positional.flat_map(|arg| values(context, &named, arg, word))).collect()
}

fn named_option<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|arg| {
        let is_long = arg.get_long().is_some_and(|long| word == format!("--{long}"));
        is_long || arg.get_short().is_some_and(|short| word == format!("-{short}"))
    })
}

fn options(command: &Command) -> Vec<String> {
    let visible = command.get_arguments().filter(|arg| !arg.is_hide_set());
    visible.filter_map(|arg| arg.get_long().map(|long| format!("--{long}"))).collect()
}

/// Values of an argument, each as the whole word.
fn values(context: &Context, named: &Named, arg: &Arg, word: &str) -> Vec<String> {
    match (named.words.join(" ").as_str(), arg.get_id().as_str()) {
        (
            "report" | "history show" | "history compare" | "history export" | "history watch",
            "id" | "ids" | "old" | "new",
        )
        | (_, "baseline" | "resume") => ids(context),
        (_, "arms" | "arm" | "far_arm") => behind_separators(word, &arms(named)),
        (_, "peers") => behind_separators(word, &possible(arg)),
        (_, "adapter") => lab::adapters::PROGRAMS.iter().map(|&name| name.to_owned()).collect(),
        (_, "switch") => host::tune::all().iter().map(|knob| format!("{}=", knob.id())).collect(),
        (_, "interface" | "interfaces" | "interface_b") => interfaces(),
        _ => possible(arg),
    }
}

fn possible(arg: &Arg) -> Vec<String> {
    let values = arg.get_possible_values();
    values
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| value.get_name().to_owned())
        .collect()
}

/// Ids of the newest experiments, and `last`.
fn ids(context: &Context) -> Vec<String> {
    let Ok(store) = results::database(context).open_reading() else { return Vec::new() };
    let rows = store.list(&Filter { limit: Some(IDS_MAX), ..Filter::default() });
    let ids = rows.unwrap_or_default().into_iter().map(|row| row.id);
    ids.chain(["last".to_owned()]).collect()
}

/// Words for arms, and the switches of the path: of `probe` unless another one is named.
fn arms(named: &Named) -> Vec<String> {
    let words = model::ARM_WORDS.iter().map(|&word| word.to_owned());
    let path = named.path.as_deref().unwrap_or("probe");
    let switches = lookup::built_in(path).map(|path| path.switches()).unwrap_or_default();
    let takes_path = named.command().get_arguments().any(|arg| arg.get_id() == "path");
    let switches = switches.iter().map(|switch| switch.id.to_owned());
    if takes_path || named.words.first().is_some_and(|word| word == "probe") {
        words.chain(switches).collect()
    } else {
        words.collect()
    }
}

/// Names behind the part of a list that is there: `spin+by` gives `spin+bypass`.
fn behind_separators(word: &str, names: &[String]) -> Vec<String> {
    let before = word.rfind([',', '+']).map_or("", |place| &word[..=place]);
    names.iter().map(|name| format!("{before}{name}")).collect()
}

fn interfaces() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/sys/class/net") else { return Vec::new() };
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Script for a shell; those of bash, zsh and fish ask the program for each word.
pub(crate) fn script(shell: clap_complete::Shell) -> Vec<u8> {
    use clap_complete::Shell;
    match shell {
        Shell::Bash => BASH.into(),
        Shell::Zsh => ZSH.into(),
        Shell::Fish => FISH.into(),
        other => {
            let mut script = Vec::new();
            clap_complete::generate(other, &mut super::command_line(), "wirepath", &mut script);
            script
        }
    }
}

/// Bash splits words at `=` and `:`, so the line up to the cursor is split here, at spaces.
const BASH: &str = r#"_wirepath() {
    local line="${COMP_LINE:0:COMP_POINT}" words word
    read -ra words <<< "$line"
    [[ "$line" == *' ' ]] && words+=("")
    word="${words[-1]}"
    local found
    found=$("${words[0]}" complete -- "${words[@]}" 2>/dev/null)
    COMPREPLY=()
    while IFS= read -r candidate; do
        [[ -n "$candidate" ]] || continue
        # Bash replaces only what follows the last = or :.
        case "$word" in
            *[=:]*) candidate="${candidate#"${word%"${word##*[=:]}"}"}" ;;
        esac
        COMPREPLY+=("$candidate")
    done <<< "$found"
    [[ ${#COMPREPLY[@]} -eq 1 && "${COMPREPLY[0]}" == *= ]] && compopt -o nospace
    return 0
}
complete -o default -F _wirepath wirepath
"#;

const ZSH: &str = r#"#compdef wirepath
_wirepath() {
    local -a found
    found=("${(@f)$("${words[1]}" complete -- "${(@)words[1,CURRENT]}" 2>/dev/null)}")
    found=(${found:#})
    if (( ${#found} )); then compadd -a found; else _files; fi
}
if [ "$funcstack[1]" = "_wirepath" ]; then _wirepath "$@"; else compdef _wirepath wirepath; fi
"#;

const FISH: &str = r#"function __wirepath_complete
    set -l words (commandline -opc) (commandline -ct)
    command $words[1] complete -- $words 2>/dev/null
end
complete -c wirepath -a '(__wirepath_complete)'
"#;

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(line: &[&str]) -> Vec<String> {
        let (last, before) = line.split_last().expect("a word");
        let before: Vec<OsString> = before.iter().map(OsString::from).collect();
        let context = Context { json: false, data_dir: Some("/nonexistent".into()) };
        let mut found = candidates(&context, last, &before);
        found.retain(|candidate| candidate.starts_with(last));
        found
    }

    #[test]
    fn commands_options_and_paths_are_offered() {
        assert!(offered(&["wirepath", "pro"]).contains(&"prove".to_owned()));
        assert!(!offered(&["wirepath", ""]).contains(&"answer".to_owned()), "it is hidden");
        assert!(offered(&["wirepath", "prove", "--ti"]).contains(&"--time".to_owned()));
        let after_prove = offered(&["wirepath", "prove", ""]);
        assert!(
            after_prove.contains(&"command".to_owned())
                && after_prove.contains(&"probe".to_owned())
        );
        assert!(!after_prove.contains(&"fake".to_owned()), "it is hidden: {after_prove:?}");
    }

    #[test]
    fn loads_peers_and_arms_are_those_of_the_path() {
        let loads = offered(&["wirepath", "prove", "probe", "--load", ""]);
        assert!(loads.contains(&"ping".to_owned()), "{loads:?}");
        let fake = offered(&["wirepath", "prove", "fake", "--load", ""]);
        assert_eq!(fake, ["simulated"]);
        assert_eq!(offered(&["wirepath", "prove", "fake", "--arms", "fast+har"]), ["fast+harmful"]);
        assert!(
            offered(&["wirepath", "prove", "probe", "--arms", "spin,by"])
                .contains(&"spin,bypass".to_owned())
        );
        assert_eq!(offered(&["wirepath", "prove", "fake", "--load=s"]), ["--load=simulated"]);
    }

    #[test]
    fn knobs_and_adapters_are_offered() {
        let switch = offered(&["wirepath", "prove", "command", "--switch", "rps-c"]);
        assert!(switch.contains(&"rps-cpus=".to_owned()), "{switch:?}");
        assert!(
            offered(&["wirepath", "prove", "command", "--adapter", "wr"])
                .contains(&"wrk".to_owned())
        );
    }
}
