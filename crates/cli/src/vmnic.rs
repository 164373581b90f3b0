//! `wirepath vmnic`: a guest to talk to.

use std::ffi::OsString;
use std::fmt::Write;
use std::process::Command;
use std::time::Duration;

use clap::{Args, Subcommand};
use model::{Arm, ArmPlan, Support};
use paths::vmnic::{SWITCHES, Vmnic};
use paths::{Load, Path};

use crate::args::Cli;
use crate::console;
use crate::end::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum VmnicCommand {
    /// Start a guest that answers ping and serves echo, discard and chargen
    #[command(after_help = "\
Example:
  wirepath vmnic run -- ping -c 3 10.77.0.2
  wirepath vmnic run --switches rap-in-kernel+tdmd-doorbell+shared-ring -- nc 10.77.0.1 9")]
    Run(RunArgs),
    /// Where the time of a frame goes, arm by arm, and streams checked at both ends
    #[command(after_help = "\
Example:
  wirepath vmnic bench
  wirepath vmnic bench --arms tdmd-doorbell+shared-ring --bytes 100000000")]
    Bench(BenchArgs),
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Arms: ladder, alone, leave-one-out, or a list such as irq-fd,tx-int-mask+irq-fd
    #[arg(long, default_value = "ladder")]
    arms: String,
    /// Measured part of each run of raw frames
    #[arg(long, default_value = "1s", value_parser = crate::args::parse_duration)]
    time: Duration,
    /// Bytes of the TCP stream each way; 0 for none
    #[arg(long, default_value_t = 0)]
    bytes: u64,
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
    if let Support::Unsupported { what, needs } = Vmnic.support(&Arm::baseline(), &load(0)) {
        return Err(Failure::Unsupported(format!("{what} is not possible here: {needs}")));
    }
    match command {
        VmnicCommand::Run(args) => serve(cli, &arm(&args.switches)?, &args.command),
        VmnicCommand::Bench(args) => bench(cli, args),
    }
}

fn load(trial_ms: u64) -> Load {
    Load {
        kind: "stream".into(),
        size_bytes: 1514,
        rate_pps: 0,
        trial: Duration::from_millis(trial_ms),
        far: None,
        secret: None,
    }
}

/// Rows of the table of overheads: what is printed, and the figure that it is.
const ROWS: [(&str, &str); 16] = [
    ("vCPU thread", "vcpu_ns_per_packet"),
    ("  guest: copy", "guest_copy_ns_per_packet"),
    ("  guest: device ports, exits in them", "guest_port_ns_per_packet"),
    ("  guest: interrupt controller", "guest_pic_ns_per_packet"),
    ("  guest: waiting for room", "guest_full_ns_per_packet"),
    ("  guest: asleep", "guest_idle_ns_per_packet"),
    ("  monitor, in all", "handling_ns_per_packet"),
    ("    Lance emulation", "emulation_ns_per_packet"),
    ("    back end", "transmit_ns_per_packet"),
    ("    notification", "notification_ns_per_packet"),
    ("device thread", "device_ns_per_packet"),
    ("exits", "exits_per_packet"),
    ("recorded accesses", "coalesced_per_packet"),
    ("doorbells", "doorbells_per_packet"),
    ("interrupts", "interrupts_per_packet"),
    ("system calls", "syscalls_per_packet"),
];

/// One run an arm, in a row: a look at where time goes. `prove` is what compares.
fn bench(cli: &Cli, args: &BenchArgs) -> Result<(), Failure> {
    let plan = ArmPlan::parse(&args.arms, &SWITCHES).map_err(|e| Failure::Usage(e.to_string()))?;
    let arms = model::arms(&plan, &SWITCHES, &[], &mut |_| Support::Yes);
    let mut session = Vmnic.open(&Load { trial: args.time, ..load(0) })?;
    let mut measured = Vec::new();
    for (arm, _) in arms.iter().filter(|(arm, _)| arm.kind != model::ArmKind::Control) {
        if crate::stop::asked() {
            break;
        }
        let m = session.trial(arm)?;
        let streams = streams(arm, args.bytes)?;
        measured.push((arm, m, streams));
    }
    if cli.json {
        let arms: Vec<_> = measured
            .iter()
            .map(|(arm, m, streams)| {
                serde_json::json!({
                    "arm": arm.name, "switches": arm.switches, "figures": m.figures,
                    "counters": m.counters, "streams": streams,
                })
            })
            .collect();
        let doc = serde_json::json!({
            "schema": model::SCHEMA, "command": "vmnic bench", "nic": session.nic(), "arms": arms,
        });
        return console::text(&format!("{doc:#}"));
    }
    let mut out = format!("{}\n", session.nic());
    for (arm, m, streams) in &measured {
        let _ = writeln!(out, "\n{}", arm.name);
        let goodput = m.metrics().into_iter().find(|metric| metric.name == "goodput_bps");
        if let Some(Ok(bps)) = goodput.map(|metric| metric.value) {
            let idle = m.figures.get("guest_share_idle").unwrap_or(&0.0) * 100.0;
            let _ =
                writeln!(out, "  {:.1} Mbit/s, guest idle {idle:.1} %; for each frame:", bps / 1e6);
        }
        for (what, figure) in ROWS {
            let Some(value) = m.figures.get(figure) else { continue };
            let _ = match figure.contains("_ns_") {
                true => writeln!(out, "  {what:<40} {:>10.2} µs", value / 1000.0),
                false => writeln!(out, "  {what:<40} {value:>10.3}"),
            };
        }
        for stream in streams {
            let _ = writeln!(
                out,
                "  TCP {}: {} bytes, {:.1} Mbit/s, SHA-256 {} at both ends",
                stream.way, stream.bytes, stream.mbps, stream.sha256
            );
        }
    }
    console::text(&out)
}

/// A stream that both ends agree on.
#[derive(serde::Serialize)]
struct StreamDoc {
    way: &'static str,
    bytes: u64,
    mbps: f64,
    sha256: String,
}

#[cfg(target_arch = "x86_64")]
fn streams(arm: &Arm, bytes: u64) -> Result<Vec<StreamDoc>, Failure> {
    use paths::vmnic::streams::{Direction, run};
    if bytes == 0 {
        return Ok(Vec::new());
    }
    [("from the guest", Direction::ToHost), ("to the guest", Direction::ToGuest)]
        .into_iter()
        .map(|(way, direction)| {
            let streamed = run(arm, direction, bytes)?;
            let mbps = streamed.bytes as f64 * 8e3 / streamed.wall_ns.max(1) as f64;
            let sha256 = streamed.digest.iter().map(|byte| format!("{byte:02x}")).collect();
            Ok(StreamDoc { way, bytes: streamed.bytes, mbps, sha256 })
        })
        .collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn streams(_: &Arm, _: u64) -> Result<Vec<StreamDoc>, Failure> {
    Ok(Vec::new())
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
