//! `wirepath vmnic`: a guest to talk to.

mod bench;

use std::ffi::OsString;
use std::process::Command;
use std::time::Duration;

use clap::{Args, Subcommand};
use model::{Arm, ArmPlan, Support};
use paths::vmnic::{SWITCHES, Vmnic};
use paths::{Load, Path};

use crate::args::Cli;
use crate::console;
use crate::end::Failure;

use bench::BenchCommand;

#[derive(Debug, Subcommand)]
pub(crate) enum VmnicCommand {
    /// Start a guest that answers ping and serves echo, discard and chargen
    #[command(after_help = "\
Example:
  wirepath vmnic run -- ping -c 3 10.77.0.2
  wirepath vmnic run --switches rap-in-kernel+tdmd-doorbell+shared-ring -- nc 10.77.0.1 9")]
    Run(RunArgs),
    /// Where a frame's time goes; a link of 100 Mbit/s; streams checked at both ends
    #[command(
        subcommand,
        after_help = "Example:\n  wirepath vmnic bench overhead\n  \
                      wirepath vmnic bench streams --size 100MB"
    )]
    Bench(BenchCommand),
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Switches that are on, joined by +; none is the baseline
    #[arg(long, default_value = "baseline")]
    switches: String,
    /// Command to run where the guest can be reached; without one it serves until interrupted
    #[arg(last = true)]
    command: Vec<OsString>,
}

pub(crate) fn run(cli: &Cli, command: &VmnicCommand) -> Result<(), Failure> {
    if let Support::Unsupported { what, needs } =
        Vmnic.support(&Arm::baseline(), &load("stream", Duration::ZERO))
    {
        return Err(Failure::Unsupported(format!("{what} is not possible here: {needs}")));
    }
    match command {
        VmnicCommand::Run(args) => serve(cli, &arm(&args.switches)?, &args.command),
        VmnicCommand::Bench(command) => bench::run(cli, command),
    }
}

fn load(kind: &str, trial: Duration) -> Load {
    Load { kind: kind.into(), size_bytes: 1514, rate_pps: 0, trial, far: None, secret: None }
}

fn arm(text: &str) -> Result<Arm, Failure> {
    let plan = ArmPlan::parse(text, &SWITCHES).map_err(|e| Failure::Usage(e.to_string()))?;
    match plan {
        ArmPlan::List(sets) if sets.len() <= 1 => {
            let switches = sets.into_iter().next().unwrap_or_default();
            Ok(Arm::variant(text, switches))
        }
        _ => Err(Failure::Usage("give one set of switches, joined by +".into())),
    }
}

#[cfg(target_arch = "x86_64")]
fn serve(cli: &Cli, arm: &Arm, command: &[OsString]) -> Result<(), Failure> {
    use std::os::fd::{AsFd, AsRawFd};

    let served = paths::vmnic::serve::Served::start(arm)?;
    let ip = served.guest_ip();
    let status = match command.split_first() {
        Some((program, arguments)) => {
            let mut child = Command::new(program);
            child.args(arguments);
            let ran = served.netns().run(|| child.status()).map_err(|e| Failure::of(&e))?;
            let why = |e| Failure::failed(format!("cannot run {}: {e}", program.display()));
            Some(ran.map_err(why)?)
        }
        None => {
            let fd = served.netns().as_fd().as_raw_fd();
            console::say(&format!(
                "the guest is {ip} in a namespace of its own; a shell beside it:\n  \
                 nsenter --net=/proc/{}/fd/{fd}\ninterrupt to end it",
                std::process::id()
            ));
            while !crate::stop::asked() && !served.has_ended() {
                std::thread::sleep(Duration::from_millis(50));
            }
            None
        }
    };
    let seen = served.stop()?;
    if cli.json {
        let doc = serde_json::json!({
            "schema": model::SCHEMA,
            "command": "vmnic run",
            "switches": arm.switches,
            "sent_frame_count": seen.tx_frame_count,
            "received_frame_count": seen.rx_frame_count,
            "exit_count": seen.exit_count,
            "vcpu_ns": seen.vcpu_ns,
            "device_ns": seen.device_ns,
        });
        console::text(&format!("{doc:#}"))?;
    } else {
        console::say(&format!(
            "the guest sent {} frames and received {}; it was left {} times, its processor took \
             {:.1} ms and its device {:.1} ms of CPU time",
            seen.tx_frame_count,
            seen.rx_frame_count,
            seen.exit_count,
            seen.vcpu_ns as f64 / 1e6,
            seen.device_ns as f64 / 1e6,
        ));
    }
    match status {
        Some(status) if !status.success() => {
            Err(Failure::failed(format!("the command ended with {status}")))
        }
        _ => Ok(()),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn serve(_: &Cli, _: &Arm, _: &[OsString]) -> Result<(), Failure> {
    Err(Failure::Unsupported("a PC as a virtual machine needs x86-64".into()))
}
