//! What a command gives up once it has what it needs.

use host::text::chain;
use io::capability::{self, Capability};

use crate::args::Command;
use crate::end::Failure;
use crate::tunnel::TunnelCommand;

/// Sees to it that nothing a command might start gets rights by its file or by its owner. Not for
/// commands that start other programs, and programs of the user's choice.
pub(crate) fn begin(command: &Command) -> Result<(), Failure> {
    match starts_programs(command) {
        true => Ok(()),
        false => capability::no_new_privileges().map_err(|e| Failure::failed(refused(&e))),
    }
}

fn starts_programs(command: &Command) -> bool {
    match command {
        Command::Prove(_)
        | Command::Paths
        | Command::Guest(_)
        | Command::Vmnic(_)
        | Command::Tune(_)
        | Command::Doctor(_) => true,
        Command::Tunnel(command) => !matches!(command, TunnelCommand::Run(_)),
        _ => false,
    }
}

/// Gives up all capabilities of the calling thread.
pub(crate) fn give_up() -> Result<(), String> {
    keep(&[])
}

/// Gives up all capabilities of the calling thread but those.
pub(crate) fn keep(kept: &[Capability]) -> Result<(), String> {
    capability::keep(kept).map_err(|e| refused(&e))
}

fn refused(error: &std::io::Error) -> String {
    format!("rights could not be given up: {}", chain(error))
}
