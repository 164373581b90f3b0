//! Start of programs that run the trials of a path, and of the end that answers them.

use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;

use lab::FarEnd;
use serde::Serialize;
use sys::child::ChildPlace;

use super::{PathDescription, PathService};
use crate::far::{FarOptions, Started, netns, ssh};
use crate::{Caller, Calls, Greeting, RemoteError, Service};

#[derive(Serialize)]
struct PathGreeting<'a> {
    #[serde(flatten)]
    greeting: Greeting,
    path: &'a PathDescription,
}

impl Calls<PathService> {
    /// As [`Calls::start`]; the greeting of this end describes the path.
    pub fn start_path(
        path: &PathDescription,
        stop: &'static AtomicBool,
    ) -> Result<Self, RemoteError> {
        Self::start_with(&PathGreeting { greeting: Greeting::own::<PathService>(), path }, stop)
    }
}

fn command(file: &Path, name: &str) -> Command {
    let mut command = Command::new(file);
    command.args(["answer", PathService::NAME, name]);
    command
}

/// Starts `file` as a child for the trials of path `name`, and reads its description of the path.
///
/// Errors: it does not start, or does not greet as this version of the contract wants it.
pub fn path_program(
    file: &Path,
    name: &str,
) -> Result<(Caller<PathService>, PathDescription), RemoteError> {
    let end = format!("`{} answer path {name}`", file.display());
    let started = Started::spawn(end, command(file, name), &ChildPlace::default())?;
    described(Caller::greet(started, None)?, name)
}

/// Starts the program of path `name` at a far end. Returns it with its address for the load.
///
/// - `file`: the program on this host, for a namespace; by ssh it must be installed there.
pub fn far_path(
    end: &FarEnd,
    options: &FarOptions<'_>,
    file: &Path,
    name: &str,
) -> Result<(Caller<PathService>, IpAddr), RemoteError> {
    let ((started, address), host) = match end {
        FarEnd::Netns(netns) => (netns::open(netns, options, |_| command(file, name))?, None),
        FarEnd::Ssh(host) => (ssh::open_path(host, options, name)?, Some(host)),
        FarEnd::Peer(_) => return Err(RemoteError::OnlyProbe { end: end.to_string() }),
    };
    let greeted = Caller::greet(started, Some(address)).map_err(|error| match (error, host) {
        (RemoteError::Ended { said, .. }, Some(host)) => {
            RemoteError::NoPathProgram { host: host.to_string(), name: name.to_owned(), said }
        }
        (other, _) => other,
    })?;
    let (caller, path) = described(greeted, name)?;
    if !path.has_far_end {
        return Err(caller.broke_rule(format!("path {name} has no far end there (has_far_end)")));
    }
    Ok((caller, address))
}

fn described(
    caller: Caller<PathService>,
    name: &str,
) -> Result<(Caller<PathService>, PathDescription), RemoteError> {
    match PathDescription::read(caller.greeting_line(), name) {
        Ok(path) => Ok((caller, path)),
        Err(error) => Err(caller.broke_rule(error.to_string())),
    }
}
