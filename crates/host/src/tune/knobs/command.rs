//! A pair of commands of the user: one switches on, the other is its undo.

use std::process::Command;
use std::time::Duration;

use sys::child::{Child, ChildPlace, as_the_user};

use crate::text::printable;
use crate::tune::error::KnobError;
use crate::tune::knob::{About, Knob};
use crate::tune::system::System;
use crate::tune::target::{Scope, Target};
use crate::tune::value::{Value, ValueFormat};

/// Two commands for `sh -c`: the value to set is the one that switches on, the value before is its undo.
///
/// There is no state to read, so a rollback runs the undo of each pair that was begun, even if it was switched off by
/// hand meanwhile.
#[derive(Debug)]
pub(super) struct CommandPair;

static ABOUT: About = About {
    id: "command",
    what: "a command of the user, with another one that undoes it",
    scope: Scope::Command,
    format: ValueFormat::Command,
};

/// Time limit of one command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest part of its error output in an error, characters.
const OUTPUT_LEN_MAX: usize = 500;

impl Knob for CommandPair {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn read_at(&self, _: &System, target: &Target) -> Result<Value, KnobError> {
        Err(KnobError::Unreadable { target: target.clone() })
    }

    fn set_at(&self, system: &System, target: &Target, value: &Value) -> Result<(), KnobError> {
        run(system, value.as_str()).map_err(|why| KnobError::Refused {
            knob: ABOUT.id.to_owned(),
            target: target.clone(),
            value: value.to_string(),
            source: why.into(),
        })
    }

    fn probe_at(&self, _: &System, _: &Target) -> Result<(), KnobError> {
        Ok(())
    }

    /// A command may remake interfaces, so knobs are set after it.
    fn disturbs(&self) -> bool {
        true
    }

    fn is_readable(&self) -> bool {
        false
    }
}

/// Runs a command to its end. Processes that it leaves in its process group are killed; a daemon has a group of its own.
fn run(system: &System, line: &str) -> Result<(), String> {
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(line);
    as_the_user(&mut command);
    let place = ChildPlace { netns: Some(system.netns()), ..ChildPlace::default() };
    let mut child = Child::spawn(command, &place).map_err(|error| crate::text::chain(&error))?;
    match child.wait(COMMAND_TIMEOUT).map_err(|error| crate::text::chain(&error))? {
        None => Err(format!("it still runs after {} s", COMMAND_TIMEOUT.as_secs())),
        Some(finished) if finished.status.success() => Ok(()),
        Some(finished) => {
            let output = [finished.stdout, finished.stderr].concat();
            let output = String::from_utf8_lossy(&output);
            let last: Vec<&str> = output.lines().rev().take(3).collect();
            let last: Vec<&str> = last.into_iter().rev().collect();
            Err(format!("{}; {}", finished.status, printable(&last.join(" | "), OUTPUT_LEN_MAX)))
        }
    }
}
