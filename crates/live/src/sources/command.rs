//! A number that a command prints.

use std::process::Command;
use std::time::Duration;

use host::child::{Child, ChildPlace};

use super::error::{SourceFault, fault};

/// Limit of one run.
pub(super) const TIME_MAX: Duration = Duration::from_secs(2);

/// Runs a command by `sh -c`, and returns the number that it prints.
///
/// Errors: the reason. One that takes too long is killed with all that it started.
pub(super) fn run(command: &str) -> Result<f64, SourceFault> {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]);
    let place = ChildPlace::default();
    let mut child = Child::spawn(shell, &place).map_err(|why| format!("did not start: {why}"))?;
    let finished = child
        .wait(TIME_MAX)
        .map_err(|why| why.to_string())?
        .ok_or_else(|| format!("did not end within {TIME_MAX:?}"))?;
    if !finished.status.success() {
        let said = String::from_utf8_lossy(&finished.stderr);
        let said = said.lines().last().unwrap_or("it printed nothing");
        return fault(format!("failed ({}): {}", finished.status, shortened(said)));
    }
    let said = String::from_utf8_lossy(&finished.stdout);
    let number = said.trim();
    match number.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        _ => fault(format!("printed {:?} in place of one number", shortened(number))),
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_number_is_taken_and_anything_else_is_an_error() {
        assert_eq!(run("echo 12.5"), Ok(12.5));
        assert!(run("echo a b").unwrap_err().0.contains("\"a b\""));
        assert!(run("echo -1").unwrap_err().0.contains("one number"));
        assert!(run("echo nan").unwrap_err().0.contains("one number"));
        assert!(run("echo no >&2; exit 3").unwrap_err().0.contains("no"));
        assert!(run("yes").is_err());
    }

    fn is_running(command: &str) -> bool {
        host::program::processes().any(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line == command.as_bytes()
        })
    }

    #[test]
    fn a_command_that_does_not_end_is_killed() {
        let mark = std::process::id();
        let why = run(&format!("sleep 40{mark} & sleep 40{mark}")).unwrap_err();
        assert!(why.0.contains("did not end"), "{why}");
        assert!(testkit::until(testkit::LONG, || !is_running(&format!("sleep\x0040{mark}\0"))));
    }
}
