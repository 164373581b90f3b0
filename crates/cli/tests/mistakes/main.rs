//! Typing mistakes of every kind: exit code and message of each, held by `goldens/mistakes.md`.
//!
//! `UPDATE=1` rewrites the table. Each message names the mistake and the right form.

#![cfg(all(feature = "feed", feature = "tunnel", feature = "vm"))]

#[path = "../common/mod.rs"]
mod common;
mod table;

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{Data, QUICK, succeed};
use table::{FILES, GROUPS};

/// Lines that a message may have.
const LINES_MAX: usize = 3;

/// A folder with the files of the table, a program `wirepath`, and one stored experiment.
fn desk() -> Data {
    let data = Data::new();
    succeed(data.wirepath(&QUICK));
    for (name, text) in FILES {
        fs::write(data.file(name), text).unwrap();
    }
    symlink(env!("CARGO_BIN_EXE_wirepath"), data.file("wirepath")).unwrap();
    data
}

/// Runs a command line in a shell, and returns its exit code and message.
fn said(desk: &Path, line: &str) -> (Option<i32>, String) {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).current_dir(desk).stdin(Stdio::null());
    shell.env("PATH", format!("{}:{path}", desk.display())).env("WIREPATH_DATA", desk);
    shell.env_remove("WIREPATH_FAR").env("NO_COLOR", "1").env("LC_ALL", "C.UTF-8");
    let output = shell.output().unwrap();
    assert!(output.stdout.is_empty(), "{line}: {}", String::from_utf8_lossy(&output.stdout));
    let said = String::from_utf8_lossy(&output.stderr).replace(&desk.display().to_string(), "DIR");
    (output.status.code(), said.trim_end().to_owned())
}

#[test]
fn every_mistake_has_its_exit_code_and_a_message_with_the_right_form() {
    let desk = desk();
    let mut page = String::from(
        "# Mistakes and their messages\n\nMade by `tests/mistakes`, which runs each line; `UPDATE=1` rewrites it.\n",
    );
    let mut wrong = Vec::new();
    for group in GROUPS {
        let _ = write!(page, "\n## {}: exit code {}\n", group.title, group.code.code());
        for line in group.lines {
            let (code, said) = said(desk.path(), line);
            let _ = write!(page, "\n```\n$ {line}\n{said}\n```\n");
            let is_short = (1..=LINES_MAX).contains(&said.lines().count());
            if code != Some(i32::from(group.code.code()))
                || !is_short
                || !said.starts_with("error: ")
            {
                wrong.push(format!("{line}\n  code {code:?}: {said}"));
            }
        }
    }
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/goldens/mistakes.md");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(golden, &page).unwrap();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let lines: usize = GROUPS.iter().map(|group| group.lines.len()).sum();
    assert!(lines >= 40, "{lines} mistakes");
    assert_eq!(page, fs::read_to_string(golden).unwrap_or_default(), "UPDATE=1 rewrites it");
}

#[test]
fn words_are_completed_by_bash_with_the_script_of_the_program() {
    let desk = desk();
    let script = succeed(common::wirepath(&["completions", "bash"]));
    fs::write(desk.file("completion.bash"), script).unwrap();
    for (line, wanted) in [
        ("wirepath pro", &["prove", "probe"][..]),
        ("wirepath doctor --sev", &["--severity"]),
        ("wirepath prove probe --load pi", &["ping"]),
        ("wirepath prove fake --load ", &["simulated"]),
        ("wirepath prove fake --arms fast,har", &["fast,harmful"]),
        ("wirepath prove command --adapter wr", &["wrk"]),
        ("wirepath prove command --switch rps-c", &["rps-cpus="]),
        ("wirepath prove probe --load=pin", &["ping"]),
        ("wirepath report la", &["last"]),
        ("wirepath doctor l", &["lo"]),
        ("wirepath paths pro", &["probe"]),
    ] {
        let found = bash_completes(desk.path(), line);
        for word in wanted {
            assert!(found.lines().any(|found| found == *word), "{line:?}: {found}");
        }
    }
    let ids = bash_completes(desk.path(), "wirepath history show 20");
    assert_eq!(ids.lines().count(), 1, "the id of the stored experiment: {ids}");
    let id = ids.trim();
    let misspelt = format!("wirepath report {}x", &id[..id.len() - 1]);
    let (code, said) = said(desk.path(), &misspelt);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains(&format!("did you mean {id}?")), "{said}");
}

/// Runs the completion function as bash does.
fn bash_completes(desk: &Path, line: &str) -> String {
    let asked = format!(
        "source ./completion.bash; complete -p wirepath >/dev/null; COMP_LINE='{line}'; \
         COMP_POINT=${{#COMP_LINE}}; _wirepath; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    );
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", &asked]).current_dir(desk).env("WIREPATH_DATA", desk);
    let path = std::env::var("PATH").unwrap_or_default();
    bash.env("PATH", format!("{}:{path}", desk.display()));
    succeed(bash)
}
