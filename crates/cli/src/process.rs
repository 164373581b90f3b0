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

/// The process that has a port of a network namespace.
pub(crate) fn of_port(netns: &Netns, port: u16) -> Result<u32, Failure> {
    let find = || process_of_port(Path::new("/proc/thread-self/net"), port);
    netns.run(find)?.map_err(failure)
}
