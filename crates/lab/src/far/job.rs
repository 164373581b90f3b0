//! One experiment of a fleet on another host.

use std::time::Duration;

use sys::child::{ChildError, Finished};

use super::ssh::{self, Opened, Role};
use super::{FarError, FarOptions, SshHost, Started};

/// A `wirepath fleet host` on another host. It ends with this, and its experiment with it.
#[derive(Debug)]
pub struct FarJob {
    started: Started,
}

impl FarJob {
    /// Connects to `host` by ssh, starts this program there and sends it `line`.
    ///
    /// It is killed when the calling thread ends (see [`sys::child::Child::spawn`]).
    pub fn start(host: &SshHost, options: &FarOptions<'_>, line: &str) -> Result<Self, FarError> {
        let Opened { mut started, .. } = ssh::open(host, options, Role::Job)?;
        // A program that ended already is reported by its end.
        let _ = started.send(format!("{line}\n").as_bytes());
        Ok(FarJob { started })
    }

    /// Waits at most `timeout` for its end, with all that it printed.
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<Finished>, ChildError> {
        self.started.child.wait(timeout)
    }
}
