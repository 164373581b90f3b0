//! `wirepath tunnel keys`: keys of an encrypted tunnel, for both of its ends.

use std::path::PathBuf;

use clap::Args;
use forward::run::KeyFile;
use serde_json::json;

use crate::console;
use crate::context::Context;
use crate::exit::Failure;

#[derive(Debug, Args)]
pub(crate) struct KeysArgs {
    /// New key file of this end, readable by its owner alone
    file: PathBuf,
    /// New key file of the far end; default: FILE.peer
    peer_file: Option<PathBuf>,
}

pub(super) fn run(context: &Context, args: &KeysArgs) -> Result<(), Failure> {
    let own = &args.file;
    let peer = args.peer_file.clone().unwrap_or_else(|| {
        let mut name = own.clone().into_os_string();
        name.push(".peer");
        name.into()
    });
    let keys = KeyFile::generate().map_err(|error| Failure::from_chain(&error))?;
    keys.write_new(own).map_err(|error| Failure::from_chain(&error))?;
    keys.mirrored().write_new(&peer).map_err(|error| {
        // One end alone is of no use.
        let _ = std::fs::remove_file(own);
        Failure::from_chain(&error)
    })?;
    if context.json {
        return console::text(&json!({ "keys": own, "peer_keys": peer }).to_string());
    }
    console::text(&format!(
        "{}: keys of this end\n{}: keys of the far end; move the file there, and keep no copy\n\
         start both ends within a day: older keys need their state file",
        own.display(),
        peer.display()
    ))
}
