//! `wirepath feed record`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use io::{IoError, Stamps};
use marketdata::record::{Plan, RecordError, Recorder};

use super::groups::GroupArgs;
use super::listen::hold_stamps;
use crate::context::Context;
use crate::exit::Failure;
use crate::shared_args::parse_duration;
use crate::{console, privileges, signals};

#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    #[command(flatten)]
    groups: GroupArgs,
    /// pcapng file to write
    file: PathBuf,
    /// Overwrite an existing file
    #[arg(long)]
    overwrite: bool,
    /// Record from sockets with generated headers, even if whole frames are available; needs no
    /// capability
    #[arg(long)]
    sockets: bool,
    /// Whose time stamps packets carry
    #[arg(long, value_enum, default_value = "software")]
    stamps: Stamps,
    /// Duration (default: until Ctrl-C)
    #[arg(short = 'd', long, value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Packets to record
    #[arg(short = 'c', long)]
    count: Option<u64>,
}

pub(crate) fn run(context: &Context, args: &RecordArgs) -> Result<(), Failure> {
    let plan = Plan {
        groups: args.groups.groups()?,
        file: args.file.clone(),
        overwrite: args.overwrite,
        sockets: args.sockets,
        stamps: args.stamps,
        duration: args.duration,
        count: args.count,
    };
    let failed = |error: RecordError| match error {
        RecordError::Exists { .. } | RecordError::Groups => Failure::Usage(error.to_string()),
        error => Failure::from_chain(&error),
    };
    let _stamping = hold_stamps(plan.stamps, &plan.groups)?;
    let recorder = Recorder::open(plan).map_err(failed)?;
    privileges::drop_all().map_err(Failure::failed)?;
    let note = match recorder.from() {
        "sockets" if !args.sockets => {
            "; from sockets: whole frames need CAP_NET_RAW \
             (setcap cap_net_raw+ep $(command -v wirepath))"
        }
        _ => "",
    };
    console::say(&format!("recording to {}; Ctrl-C ends{note}", args.file.display()));
    let report = recorder.run(signals::stop_flag()).map_err(failed)?;
    if context.json {
        console::json(&report.document())?;
    } else {
        console::text(&report.text())?;
    }
    match report.gone {
        Some(ifname) => Err(Failure::from_chain(&IoError::Gone { ifname })),
        None => Ok(()),
    }
}
