//! `wirepath vmnic`: a guest that answers ping and TCP, and streams that are checked.

#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "needs KVM on x86-64"))]
mod streams;

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Subcommand};
use model::{Arm, ArmPlan, Load, Path, PathSwitch};
use remote::Failure;
use runner::check_support;
use schemars::JsonSchema;
use serde::Serialize;
use vmnic::{Switch, Vmnic};

use house::HouseCommand;
use house::context::Context;
use streams::BenchCommand;
pub(crate) use streams::StreamsDocument;

#[derive(Debug, Subcommand)]
pub(crate) enum VmnicCommand {
    /// Start a guest that answers ping and serves echo, discard and chargen
    #[command(after_help = "\
Example:
  wirepath vmnic run -- ping -c 3 10.77.0.2
  wirepath vmnic run --switches virtio-net+event-idx -- ping -c 3 10.77.0.2
  wirepath vmnic run --switches rap-in-kernel+tdmd-doorbell+shared-ring -- nc 10.77.0.2 9")]
    Run(RunArgs),
    /// Streams through a guest, checked at both ends
    #[command(subcommand, after_help = "Example:\n  wirepath vmnic bench streams --size 100MB")]
    Bench(BenchCommand),
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Switches that are on, joined by +; none is the baseline
    #[arg(long, default_value = "baseline")]
    switches: String,
    /// TAP interface of this namespace behind which it runs, as a machine of `prove vm`; default: one in a lab
    #[arg(long, value_name = "INTERFACE", conflicts_with = "command")]
    tap: Option<String>,
    /// Command to run in the namespace that reaches the guest, with the guest's address in
    /// WIREPATH_GUEST_IP; without one it serves until interrupted
    #[arg(last = true)]
    command: Vec<OsString>,
}

/// The document of `vmnic run --json`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct VmnicRunDocument {
    schema: u32,
    command: &'static str,
    switches: Vec<String>,
    sent_frame_count: u64,
    received_frame_count: u64,
    exit_count: u64,
    /// CPU time of the vCPU's thread.
    vcpu_ns: u64,
    /// CPU time of the device's thread.
    device_ns: u64,
}

impl HouseCommand for VmnicCommand {
    const NAME: &str = "vmnic";
    const ABOUT: &str = "Run a guest behind an emulated NIC";
    const EXAMPLE: &str = "  wirepath vmnic run -- ping -c 3 10.77.0.2";

    fn starts_programs(&self) -> bool {
        true
    }

    fn run(&self, context: &Context) -> Result<(), Failure> {
        check_support(&Vmnic.support(&Arm::baseline(), &load("stream", Duration::ZERO)))?;
        match self {
            VmnicCommand::Run(args) => {
                serve(context, &arm(&args.switches)?, args.tap.as_deref(), &args.command)
            }
            VmnicCommand::Bench(command) => streams::run(context, command),
        }
    }
}

fn load(kind: &str, trial: Duration) -> Load {
    Load {
        kind: kind.into(),
        size_bytes: 1514,
        rate_pps: 0,
        trial,
        ipv6: false,
        vlan_tag: None,
        wire: None,
        far: None,
    }
}

fn arm(text: &str) -> Result<Arm, Failure> {
    let plan = ArmPlan::parse(text, &model::ids(Switch::SPECS))
        .map_err(|e| Failure::Usage(e.to_string()))?;
    match plan {
        ArmPlan::List(sets) if sets.len() <= 1 => {
            let switches = sets.into_iter().next().unwrap_or_default();
            Ok(Arm::variant(text, switches))
        }
        _ => Err(Failure::Usage("give one set of switches, joined by +".into())),
    }
}

#[cfg(target_arch = "x86_64")]
fn serve(
    context: &Context,
    arm: &Arm,
    tap: Option<&str>,
    command: &[OsString],
) -> Result<(), Failure> {
    use std::os::fd::{AsFd, AsRawFd};
    use std::process::Command;

    use house::console;
    use vmnic::serve::ServedGuest;

    check_support(&Vmnic.support(arm, &load("stream", Duration::ZERO)))?;
    let served = match tap {
        Some(ifname) => ServedGuest::start_on_tap(arm, ifname)?,
        None => ServedGuest::start(arm)?,
    };
    let ip = served.guest_ip();
    let status = match command.split_first() {
        Some((program, arguments)) => {
            let mut child = Command::new(program);
            child.args(arguments).env("WIREPATH_GUEST_IP", ip.to_string());
            let ran = served.netns().run(|| child.status())?;
            Some(
                ran.map_err(|e| Failure::failed(format!("cannot run {}: {e}", program.display())))?,
            )
        }
        None => {
            let fd = served.netns().as_fd().as_raw_fd();
            console::say(&format!(
                "the guest is {ip}, in a network namespace; to open a shell there:\n  \
                 nsenter --net=/proc/{}/fd/{fd}\nCtrl-C ends it",
                std::process::id()
            ));
            while !house::signals::stop_requested() && !served.has_ended() {
                std::thread::sleep(Duration::from_millis(50));
            }
            None
        }
    };
    let seen = served.stop()?;
    if context.json {
        console::json(&VmnicRunDocument {
            schema: model::SCHEMA,
            command: "vmnic run",
            switches: arm.switches.names(),
            sent_frame_count: seen.tx_frame_count,
            received_frame_count: seen.rx_frame_count,
            exit_count: seen.exit_count,
            vcpu_ns: seen.vcpu_ns,
            device_ns: seen.device_ns,
        })?;
    } else {
        console::say(&format!(
            "the guest sent {} frames and received {}; {} exits, {:.1} ms CPU time of the vCPU and \
             {:.1} ms of the device",
            seen.tx_frame_count,
            seen.rx_frame_count,
            seen.exit_count,
            seen.vcpu_ns as f64 / 1e6,
            seen.device_ns as f64 / 1e6,
        ));
    }
    match status {
        Some(status) if !status.success() => {
            Err(Failure::failed(format!("the command ended with {status}\n{}", seen.state)))
        }
        _ => Ok(()),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn serve(_: &Context, _: &Arm, _: Option<&str>, _: &[OsString]) -> Result<(), Failure> {
    Err(Failure::Unsupported("a virtual PC needs x86-64".into()))
}
