//! A process that gives settings back when the one that waits for a confirmation is killed.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use host::tune::{self, Phase, StoreError};

use super::StateArgs;
use crate::end::Failure;
use crate::stop;

/// The guard of this process, until dropped. It holds the other end of a pipe: whatever ends us
/// closes ours, and that is its sign to look whether we had come to an end.
pub(super) struct Guard {
    child: Child,
}

impl Guard {
    /// Starts it, out of reach of this terminal's Ctrl-C.
    pub(super) fn start(state: &StateArgs) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            Failure::failed(format!("no guard could be started, and nothing was changed: {error}"))
        };
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.arg("tune").arg("guard").arg(std::process::id().to_string());
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
        // It has nothing left to do but to see that.
        let _ended = self.child.wait();
    }
}

/// What the guard does: waits for the end of `pid`, and gives back what that left unconfirmed.
pub(super) fn run(state: &StateArgs, pid: u32) -> Result<(), Failure> {
    stop::on_hangup()?;
    io::copy(&mut io::stdin().lock(), &mut io::sink())?;
    let store = state.store();
    let lock = loop {
        match store.lock() {
            Ok(lock) => break lock,
            // Somebody else is giving it back, or confirms it.
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
