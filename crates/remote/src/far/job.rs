//! One job of a fleet on another host.

use std::net::IpAddr;
use std::time::Duration;

use lab::SshHost;
use sys::child::{ChildError, Finished};

use super::ssh::{self, Opened};
use super::{FarOptions, Started};
use crate::RemoteError;

/// A `wirepath fleet host` on another host. It ends with this, and its work with it.
#[derive(Debug)]
pub struct FarJob {
    started: Started,
    address: IpAddr,
}

impl FarJob {
    /// Connects to `host` by ssh, starts this program there and sends it `line`.
    ///
    /// It is killed when the calling thread ends (see [`sys::child::Child::spawn`]).
    pub fn start(
        host: &SshHost,
        options: &FarOptions<'_>,
        line: &str,
    ) -> Result<Self, RemoteError> {
        let mut job = Self::open(host, options)?;
        job.send(line);
        Ok(job)
    }

    /// The same without a line.
    pub fn open(host: &SshHost, options: &FarOptions<'_>) -> Result<Self, RemoteError> {
        let Opened { started, address, .. } = ssh::open(host, options, "job")?;
        Ok(FarJob { started, address })
    }

    /// Address of the host, as given or as the ssh server has it.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Sends a line. A program that ended already is reported by its end.
    pub fn send(&mut self, line: &str) {
        let _ = self.started.send(format!("{line}\n").as_bytes());
    }

    /// Takes the next line of its output; `None` if there is none within `timeout`. Errors: it ended.
    pub fn next_line(&mut self, timeout: Duration) -> Result<Option<String>, RemoteError> {
        match self.started.child.take_line(timeout) {
            Some(line) => Ok(Some(String::from_utf8_lossy(&line).into_owned())),
            None => self.ended().map_or(Ok(None), Err),
        }
    }

    /// Error of one that has ended; `None` if it runs.
    pub fn ended(&mut self) -> Option<RemoteError> {
        self.started.ended(Duration::ZERO)
    }

    /// Waits at most `timeout` for its end, with all that it printed.
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<Finished>, ChildError> {
        self.started.child.wait(timeout)
    }
}
