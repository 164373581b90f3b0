//! `--check`: mistakes that show before anything is measured.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

use host::text::chain;
use lab::program::{PortUse, Ready, SHELL, Transport, port_holder};

use crate::place::{FarPlace, Place};
use crate::problem::Problem;
use crate::remote::Remote;
use crate::settings::{Spot, unusable_switches};
use crate::side::Side;
use crate::spec::Warmup;
use crate::switches::{Act, At};
use crate::{ArmSpec, CheckedPrograms};

fn problem(part: &str, why: Option<String>) -> Option<Problem> {
    why.map(|why| Problem { part: part.to_owned(), why })
}

/// Checks commands, places, ports and knobs. No command of the user runs; a lab is built and removed, a far
/// end on another host is started and ended.
///
/// - `stop`: ends an exchange with another host.
pub fn check(spec: &CheckedPrograms, stop: &'static AtomicBool) -> Vec<Problem> {
    let mut problems = commands(spec, &At::Near);
    problems.extend(problem("client", spec.client().and_then(empty_host)));
    match Place::open(spec, stop) {
        Err(error) => problems.extend(problem("place", Some(chain(&error)))),
        Ok(Place { near, far, middle, is_lab, .. }) => {
            problems.extend(side(spec, At::Near, &near, is_lab));
            let far_ip = match &far {
                FarPlace::Here(far) => far.ip,
                FarPlace::There(far) => far.address(),
            };
            problems.extend(problem("client", spec.url_mistake(far_ip)));
            match far {
                FarPlace::Here(far) => {
                    problems.extend(commands(spec, &At::Far));
                    problems.extend(side(spec, At::Far, &far, is_lab));
                }
                FarPlace::There(far) => problems.extend(checked_there("far end", *far)),
            }
            for place in &middle.here {
                problems.extend(commands(spec, &place.at()));
                match place.spot() {
                    Ok(spot) => problems.extend(switches(spec, &spot, is_lab)),
                    Err(error) => problems.extend(problem(&place.name, Some(chain(&error)))),
                }
            }
            for place in middle.there {
                problems.extend(checked_there(&place.name, place.host));
            }
        }
    }
    problems
}

/// Mistakes that another host finds.
fn checked_there(name: &str, mut remote: Remote) -> Vec<Problem> {
    match remote.check() {
        Ok(found) => found
            .into_iter()
            .map(|found| Problem { part: format!("{name}, {}", found.part), ..found })
            .collect(),
        Err(error) => problem(name, Some(chain(&error))).into_iter().collect(),
    }
}

/// Commands that cannot start, found without a place: the shell cannot read them, or a program is not installed. Those
/// of another host, and those that a setup may make, are not looked at.
pub fn unstartable(spec: &CheckedPrograms) -> Vec<Problem> {
    if spec.setup.is_some() {
        return Vec::new();
    }
    let mut problems = commands(spec, &At::Near);
    problems.extend(problem("client", spec.client().and_then(empty_host)));
    if !spec.is_far_elsewhere() {
        problems.extend(commands(spec, &At::Far));
    }
    problems
}

/// Mistakes in the commands that run at a place.
pub(crate) fn commands(spec: &CheckedPrograms, at: &At) -> Vec<Problem> {
    let of_arms = if spec.has_server() { At::Far } else { At::Near };
    let arms = spec.arms.iter().filter(|_| *at == of_arms);
    let arms = arms.map(|ArmSpec { name, command, .. }| (format!("arm {name}"), command));
    let warmup = match &spec.warmup {
        Some(Warmup::Command(command)) => Some(command),
        _ => None,
    };
    let others = match at {
        At::Near => {
            vec![("client", spec.client.as_ref()), ("feed", spec.feed.as_ref()), ("warmup", warmup)]
        }
        At::Far => vec![
            ("setup", spec.setup.as_ref()),
            ("program beside", spec.beside.as_ref().map(|(command, _)| command)),
            ("cleanup", spec.cleanup.as_ref()),
        ],
        At::Place(_) => Vec::new(),
    };
    let others = others.into_iter().filter_map(|(part, of)| Some((part.to_owned(), of?)));
    let pairs = spec.all_switches().filter(|switch| switch.at == *at).flat_map(|switch| {
        let commands = match &switch.act {
            Act::Commands { on, off, .. } => vec![on, off],
            _ => Vec::new(),
        };
        commands.into_iter().map(move |command| (format!("switch {switch}"), command))
    });
    arms.chain(others)
        .chain(pairs)
        .filter_map(|(part, command)| problem(&part, command_mistake(command)))
        .collect()
}

/// Mistakes about ports and switches at an end.
pub(crate) fn side(spec: &CheckedPrograms, at: At, side: &Side, is_lab: bool) -> Vec<Problem> {
    let has_port = at == At::Far && spec.has_server();
    let port = has_port.then(|| taken_port(spec, side)).flatten();
    problem("port", port).into_iter().chain(switches(spec, &side.spot(at), is_lab)).collect()
}

/// Mistakes about the switches at a place.
pub(crate) fn switches(spec: &CheckedPrograms, spot: &Spot<'_>, is_lab: bool) -> Vec<Problem> {
    let unusable = unusable_switches(spec, spot, is_lab).into_iter();
    unusable.filter_map(|(switch, why)| problem(&format!("switch {switch}"), Some(why))).collect()
}

/// Mistake of a URL without a host, which a variable left when the user's own shell replaced it.
fn empty_host(command: &str) -> Option<String> {
    let url = command.split_whitespace().find(|word| {
        let host = word.split_once("://").map(|(_, host)| host.trim_end_matches(['"', '\'']));
        host.is_some_and(|host| host.is_empty() || host.starts_with([':', '/']))
    })?;
    // A file has no host.
    let is_file = url.trim_start_matches(['"', '\'']).starts_with("file:");
    (!is_file).then(|| {
        format!("{url} has no host; quote the command with ' so that your shell leaves $WIREPATH_FAR to wirepath")
    })
}

/// Mistake in a command: the shell cannot parse it, or its program is not installed.
fn command_mistake(command: &str) -> Option<String> {
    if !Path::new(SHELL).exists() {
        return Some(format!("{SHELL} is missing, which runs every command; install a shell"));
    }
    let parsed =
        Command::new(SHELL).args(["-n", "-c", command]).stdin(Stdio::null()).output().ok()?;
    if !parsed.status.success() {
        let said = String::from_utf8_lossy(&parsed.stderr);
        return Some(format!("the shell cannot read it: {}", said.trim()));
    }
    let program = started_program(command)?;
    let is_there = if program.contains('/') {
        Path::new(program).exists()
    } else {
        let paths = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&paths).any(|folder| folder.join(program).exists())
    };
    (!is_there).then(|| format!("{program} is not installed (not found in PATH)"))
}

/// True of a word that sets a variable for the command behind it.
fn is_setting(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| crate::switches::is_variable(name))
}

/// Program that a command starts; `None` if that takes a shell to know.
fn started_program(command: &str) -> Option<&str> {
    let words = command.split_whitespace();
    let first = words.skip_while(|word| is_setting(word)).find(|word| *word != "exec")?;
    const BUILT_IN: [&str; 16] = [
        "cd", "set", "export", "if", "for", "while", "case", "true", "false", "trap", "ulimit",
        "umask", "read", "test", "echo", "printf",
    ];
    (first.chars().all(|c| c.is_ascii_alphanumeric() || "/._+-".contains(c))
        && !BUILT_IN.contains(&first))
    .then_some(first)
}

/// Program that has the server's port already.
fn taken_port(spec: &CheckedPrograms, side: &Side) -> Option<String> {
    let (transport, port) = match spec.ready(spec.port).ok()? {
        Ready::Tcp(port) => (Transport::Tcp, port),
        Ready::Udp(port) => (Transport::Udp, port),
        _ => return None,
    };
    match port_holder(Some(&side.netns), transport, port) {
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
            assert_eq!(command_mistake(good), None, "{good}");
        }
        let missing = command_mistake("wirepath-no-such-program -p 1").unwrap();
        assert!(
            missing.contains("wirepath-no-such-program") && missing.contains("PATH"),
            "{missing}"
        );
        assert!(command_mistake("/nonexistent/x").unwrap().contains("/nonexistent/x"));
        assert!(command_mistake("echo 'open").unwrap().contains("shell"));
    }

    #[test]
    fn a_url_without_a_host_is_found_and_others_pass() {
        for bad in ["wrk http://:8080/", "curl http://", "curl -s 'http:///x'"] {
            assert!(empty_host(bad).unwrap().contains("$WIREPATH_FAR"), "{bad}");
        }
        for good in ["wrk http://$WIREPATH_FAR:80/", "curl file:///x", "./bench -p :80", "a://b"] {
            assert_eq!(empty_host(good), None, "{good}");
        }
    }
}
