//! The process that a command asks about.

use std::path::Path;

use host::netns::Netns;
use host::program::{ProgramError, process_of_port};
use remote::Failure;

/// A mistake of the command line, or a failure of the run.
pub(crate) fn failure(why: ProgramError) -> Failure {
    match why {
        why @ (ProgramError::Ended { .. } | ProgramError::Read { .. }) => Failure::from_chain(&why),
        why => Failure::usage(why),
    }
}

/// The process that has a port of a network namespace; `None` for the current one, which needs no right.
pub(crate) fn of_port(netns: Option<&Netns>, port: u16) -> Result<u32, Failure> {
    let find = || process_of_port(Path::new("/proc/thread-self/net"), port);
    let found = match netns {
        Some(netns) => netns.run(find)?,
        None => find(),
    };
    found.map_err(failure)
}
