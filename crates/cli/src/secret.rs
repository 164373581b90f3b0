//! `wirepath secret`: a shared secret for `peer` and its near ends.

use std::io;
use std::path::PathBuf;

use clap::Args;
use host::private_file;
use house::console;
use remote::Failure;

#[derive(Debug, Args)]
pub(crate) struct SecretOutArgs {
    /// New file for it, readable by its owner alone; default: standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Writes 32 random bytes as hexadecimal digits.
pub(crate) fn run(args: &SecretOutArgs) -> Result<(), Failure> {
    let secret = host::random::random_hex()
        .map_err(|e| Failure::failed(format!("the kernel gave no random bytes: {e}")))?;
    let Some(path) = &args.out else { return console::text(&secret) };
    // An existing file is kept: it may hold the secret that another host has.
    let written = private_file::create(path, format!("{secret}\n").as_bytes());
    written.map(drop).map_err(|e| {
        let exists = e.kind() == io::ErrorKind::AlreadyExists;
        let remedy = if exists { "; remove it first, or name another file" } else { "" };
        Failure::failed(format!("cannot write the secret to {}: {e}{remedy}", path.display()))
    })
}
