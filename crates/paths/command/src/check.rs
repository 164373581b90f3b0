//! `--check`: mistakes that show before anything is measured.

use std::path::Path;
use std::process::{Command, Stdio};

use host::text::chain;
use lab::program::{PortUse, Ready, Transport, port_holder};

use crate::place::Place;
use crate::settings::unusable_knobs;
use crate::spec::Warmup;
use crate::{ArmSpec, Spec};

/// A mistake that would fail trials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Part of the experiment, such as `client`.
    pub part: String,
    pub why: String,
}

/// Checks commands, places, ports and knobs. No command runs; a lab is built and removed.
pub fn check(spec: &Spec) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut add = |part: &str, why: Option<String>| {
        problems.extend(why.map(|why| Problem { part: part.to_owned(), why }));
    };
    for ArmSpec { name, command, .. } in &spec.arms {
        add(&format!("arm {name}"), of_command(command));
    }
    let warmup = match &spec.warmup {
        Some(Warmup::Command(command)) => Some(command),
        _ => None,
    };
    let others =
        [("client", spec.client.as_ref()), ("setup", spec.setup.as_ref()), ("warmup", warmup)];
    for (part, command) in others.into_iter().chain([("cleanup", spec.cleanup.as_ref())]) {
        add(part, command.and_then(|command| of_command(command)));
    }
    match Place::open(spec) {
        Err(error) => add("place", Some(chain(&error))),
        Ok(place) => {
            if spec.has_server() {
                add("port", taken_port(spec, &place));
            }
            for (switch, why) in unusable_knobs(spec, &place) {
                add(&format!("switch {switch}"), Some(why));
            }
        }
    }
    problems
}

/// Mistake in a command: the shell cannot parse it, or its program is not installed.
fn of_command(command: &str) -> Option<String> {
    let parsed =
        Command::new("/bin/sh").args(["-n", "-c", command]).stdin(Stdio::null()).output().ok()?;
    if !parsed.status.success() {
        let said = String::from_utf8_lossy(&parsed.stderr);
        return Some(format!("the shell cannot read it: {}", said.trim()));
    }
    let program = program_of(command)?;
    let is_there = if program.contains('/') {
        Path::new(program).exists()
    } else {
        let paths = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&paths).any(|folder| folder.join(program).exists())
    };
    (!is_there).then(|| format!("{program} is not installed (not found in PATH)"))
}

/// Program that a command starts; `None` if that takes a shell to know.
fn program_of(command: &str) -> Option<&str> {
    let words = command.split_whitespace();
    let is_setting =
        |word: &&str| word.split_once('=').is_some_and(|(n, _)| crate::switches::is_variable(n));
    let first = words.skip_while(is_setting).find(|word| *word != "exec")?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._+-".contains(c);
    const BUILT_IN: [&str; 16] = [
        "cd", "set", "export", "if", "for", "while", "case", "true", "false", "trap", "ulimit",
        "umask", "read", "test", "echo", "printf",
    ];
    (first.chars().all(is_plain) && !BUILT_IN.contains(&first)).then_some(first)
}

/// Program that has the server's port already.
fn taken_port(spec: &Spec, place: &Place) -> Option<String> {
    let (transport, port) = match spec.ready(spec.port).ok()? {
        Ready::Tcp(port) => (Transport::Tcp, port),
        Ready::Udp(port) => (Transport::Udp, port),
        _ => return None,
    };
    match port_holder(Some(&place.far.netns), transport, port) {
        Ok(Some(holder)) if holder.use_ == PortUse::Bound => Some(holder.to_string()),
        Ok(_) => None,
        Err(error) => Some(chain(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_cannot_start_is_found_and_others_pass() {
        for good in ["sh -c true", "A=1 exec sh", "cd /tmp && ./later", "$HOME/x", "true; false"] {
            assert_eq!(of_command(good), None, "{good}");
        }
        let missing = of_command("wirepath-no-such-program -p 1").unwrap();
        assert!(
            missing.contains("wirepath-no-such-program") && missing.contains("PATH"),
            "{missing}"
        );
        assert!(of_command("/nonexistent/x").unwrap().contains("/nonexistent/x"));
        assert!(of_command("echo 'open").unwrap().contains("shell"));
    }
}
