//! `wirepath feed record`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use house::args::parse_duration;
use house::context::Context;
use house::{console, privileges, signals};
use io::{IoError, Stamps};
use marketdata::record::{RecordError, RecordPlan, Recorder};
use remote::Failure;

use super::groups::GroupArgs;
use super::listen::{hold_stamps, open_trace};

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
    /// Name the cause of each datagram that waits this long for the recorder, in the file; from sockets; needs
    /// CAP_BPF and CAP_PERFMON
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    late: Option<Duration>,
    /// CPU to record on
    #[arg(long, value_name = "CPU")]
    pin: Option<usize>,
    /// Time to record (default: until Ctrl-C)
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    time: Option<Duration>,
    /// Packets to record
    #[arg(short = 'c', long)]
    count: Option<u64>,
}

pub(crate) fn run(context: &Context, args: &RecordArgs) -> Result<(), Failure> {
    let plan = RecordPlan {
        groups: args.groups.groups()?,
        file: args.file.clone(),
        overwrite: args.overwrite,
        sockets: args.sockets || args.late.is_some(),
        late: args.late,
        pin: args.pin,
        stamps: args.stamps,
        duration: args.time,
        count: args.count,
    };
    let _stamping = hold_stamps(plan.stamps, &plan.groups)?;
    let trace = args.late.map(|_| open_trace()).transpose()?;
    let needs_sockets = plan.sockets;
    let recorder = Recorder::open(plan).map_err(failed)?;
    privileges::drop_all().map_err(Failure::failed)?;
    let note = match recorder.from() {
        "sockets" if !needs_sockets => {
            "; from sockets: whole frames need CAP_NET_RAW \
             (setcap cap_net_raw+ep $(command -v wirepath))"
        }
        _ => "",
    };
    console::say(&format!("recording to {}; Ctrl-C ends{note}", args.file.display()));
    let trace = trace.as_ref().map(|(trace, _)| trace);
    let report = recorder.run(signals::stop_flag(), trace).map_err(failed)?;
    if context.json {
        console::json(&report.document())?;
    } else {
        console::text(&report.text())?;
    }
    match report.gone {
        Some(ifname) => Err(Failure::from_chain(&IoError::Gone { ifname })),
        // A user who ends it has seen that nothing came; a script has only the exit code.
        None if report.packets == 0 && !signals::stop_requested() => Err(Failure::failed(
            "nothing arrived to record; check the interface, the group and its port, and --source",
        )),
        None => Ok(()),
    }
}

fn failed(error: RecordError) -> Failure {
    match error {
        RecordError::Exists { .. } | RecordError::Groups => Failure::Usage(error.to_string()),
        RecordError::Pin { .. } => Failure::usage(error),
        RecordError::Io(error) => error.into(),
        error => Failure::from_chain(&error),
    }
}
