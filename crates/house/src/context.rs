//! Options that apply to every command.

use std::path::PathBuf;

use clap::Args;

/// Version of every document but a result ([`model::SCHEMA`]); raised when a field changes its meaning.
pub const DOCUMENT: u32 = 1;

/// Environment variable of `--data-dir`.
pub const DATA_VARIABLE: &str = "WIREPATH_DATA";

/// Options that apply to every command.
#[derive(Debug, Args)]
pub struct Context {
    /// One JSON document on standard output instead of text
    #[arg(long, global = true)]
    pub json: bool,
    /// Folder of the results database
    #[arg(long, global = true, value_name = "DIR", env = DATA_VARIABLE)]
    pub data_dir: Option<PathBuf>,
}
