//! A process that rolls settings back if the one that waits for a confirmation is killed.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use host::tune::{self, Phase, StoreError};

use super::state::StateArgs;
use crate::exit::Failure;
use crate::signals;

/// Guard of this process, until dropped. It reads from a pipe that closes when this process ends, by
/// whatever cause, and then checks whether the settings were confirmed.
pub(crate) struct Guard {
    child: Child,
}

impl Guard {
    /// Starts the guard in a process group of its own, which Ctrl-C does not reach.
    pub(crate) fn start(state: &StateArgs) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            Failure::failed(format!("cannot start the guard process, nothing was changed: {error}"))
        };
        // The image of this process, also after its file was replaced or removed.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("wirepath").arg("tune").arg("guard").arg(std::process::id().to_string());
        command.arg("--state").arg(&state.state);
        if let Some(root) = &state.root {
            command.arg("--root").arg(root);
        }
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        Ok(Guard { child })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // The closed pipe ends it.
        let _ended = self.child.wait();
    }
}

/// Body of the guard: waits for the end of process `pid`, then rolls back its unconfirmed settings.
pub(super) fn run(state: &StateArgs, pid: u32) -> Result<(), Failure> {
    signals::stop_on_hangup()?;
    io::copy(&mut io::stdin().lock(), &mut io::sink())?;
    let store = state.store();
    let lock = loop {
        match store.lock() {
            Ok(lock) => break lock,
            // Another process is rolling back or confirming.
            Err(StoreError::Busy { .. }) => thread::sleep(Duration::from_millis(50)),
            Err(error) => return Err(error.into()),
        }
    };
    match store.read()? {
        Some(journal) if journal.header.pid == pid && journal.phase != Phase::Confirmed => {
            let why = "the process that waited for a confirmation was killed";
            tune::rollback(&store, &lock, state.root.as_deref(), why)?;
            Ok(())
        }
        _ => Ok(()),
    }
}
