//! `wirepath feed record`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use io::IoError;
use paths::feed::record::{Plan, RecordError, Recorder};

use super::groups::GroupArgs;
use crate::args::{Cli, parse_duration};
use crate::end::Failure;
use crate::{console, rights, stop};

#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    #[command(flatten)]
    groups: GroupArgs,
    /// pcapng file to write
    file: PathBuf,
    /// Write over a file that exists
    #[arg(long)]
    overwrite: bool,
    /// Record what sockets receive, with headers made for it, even where whole frames could be
    /// had; needs no capability
    #[arg(long)]
    sockets: bool,
    /// How long to record; until Ctrl-C unless given
    #[arg(short = 'd', long, value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Packets to record
    #[arg(short = 'c', long)]
    count: Option<u64>,
}

pub(crate) fn run(cli: &Cli, args: &RecordArgs) -> Result<(), Failure> {
    let plan = Plan {
        groups: args.groups.groups()?,
        file: args.file.clone(),
        overwrite: args.overwrite,
        sockets: args.sockets,
        duration: args.duration,
        count: args.count,
    };
    let failed = |error: RecordError| match error {
        RecordError::Exists { .. } | RecordError::Groups => Failure::Usage(error.to_string()),
        error => Failure::of(&error),
    };
    let recorder = Recorder::open(plan).map_err(failed)?;
    rights::give_up().map_err(Failure::failed)?;
    let note = match recorder.from() {
        "sockets" if !args.sockets => {
            "; from sockets: whole frames need CAP_NET_RAW \
             (setcap cap_net_raw+ep $(command -v wirepath))"
        }
        _ => "",
    };
    console::say(&format!("recording to {}; Ctrl-C ends{note}", args.file.display()));
    let report = recorder.run(stop::flag_ref()).map_err(failed)?;
    let text = if cli.json { format!("{:#}", report.json()) } else { report.text() };
    console::text(&text)?;
    match report.gone {
        Some(ifname) => Err(Failure::of(&IoError::Gone { ifname })),
        None => Ok(()),
    }
}
