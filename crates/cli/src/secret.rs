//! `wirepath secret`: a shared secret for `peer` and its near ends.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::console;
use crate::exit::Failure;

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
    write_new(path, &secret).map_err(|e| {
        let exists = e.kind() == io::ErrorKind::AlreadyExists;
        let remedy = if exists { "; remove it first, or name another file" } else { "" };
        Failure::failed(format!("cannot write the secret to {}: {e}{remedy}", path.display()))
    })
}

/// An existing file is kept: it may hold the secret that another host has.
fn write_new(path: &Path, secret: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{secret}")?;
    file.sync_all()
}
