//! `wirepath fleet keys`: keys of a host, made on that host.

use std::path::{Path, PathBuf};

use clap::Args;
use fleet::enrol::{EnrolError, FILE_MAX, is_host_name};
use fleet::keys::Seeds;
use host::private_file;
use house::console;
use remote::Failure;

#[derive(Debug, Args)]
pub(crate) struct KeysArgs {
    /// Name of the host in the fleet
    name: String,
    /// File for its secret, readable by its owner alone; an earlier one is kept
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Prints the host's line for `fleet init --hosts`.
pub(crate) fn run(args: &KeysArgs) -> Result<(), Failure> {
    let name = &args.name;
    if !is_host_name(name) {
        return Err(Failure::Usage(format!(
            "{name:?} is not a valid host name: use a-z, 0-9 and -, at most 63"
        )));
    }
    let seeds = if args.out.exists() {
        read_secret(&args.out, Seeds::parse)?
    } else {
        let seeds = Seeds::generate()?;
        seeds.write(&args.out)?;
        seeds
    };
    let keys = seeds.public()?;
    console::text(&format!("{name} {} {}", keys.login, keys.sign))
}

/// Reads a file of `fleet init` or `fleet keys` that holds a secret.
pub(crate) fn read_secret<T>(
    path: &Path,
    parse: impl FnOnce(&Path, &str) -> Result<T, EnrolError>,
) -> Result<T, Failure> {
    let text = private_file::read_text(path, FILE_MAX).map_err(Failure::usage)?;
    parse(path, &text).map_err(Failure::usage)
}
