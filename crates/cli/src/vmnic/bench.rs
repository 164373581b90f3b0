//! `wirepath vmnic bench`: one run an arm, in a row. `prove` is what compares.

use std::fmt::Write;
use std::time::Duration;

use clap::{Args, Subcommand};
use model::{Arm, ArmKind, ArmPlan, Measurement, Support};
use paths::Path;
use paths::vmnic::{SWITCHES, Vmnic};
use serde_json::{Value, json};

use super::load;
use crate::args::Cli;
use crate::console;
use crate::end::Failure;

/// The first table is before, the second after the source's three optimisations.
const BEFORE_AND_AFTER: &str = "baseline,rap-in-kernel+tdmd-doorbell+send-combining+shared-ring";

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Where the time of a frame goes, in the monitor and in the guest, before and after
    #[command(after_help = "\
Example:
  wirepath vmnic bench overhead
  wirepath vmnic bench overhead --arms ladder --time 2s")]
    Overhead {
        /// Arms: ladder, alone, leave-one-out, or a list such as baseline,irq-fd,tx-int-mask+irq-fd
        #[arg(long, default_value = BEFORE_AND_AFTER)]
        arms: String,
        /// Measured part of each run
        #[arg(long, default_value = "1s", value_parser = crate::args::parse_duration)]
        time: Duration,
    },
    /// Into a link of 100 Mbit/s: what time the guest has left
    #[command(after_help = "\
Example:
  wirepath vmnic bench paced")]
    Paced {
        /// Arms, as for overhead
        #[arg(long, default_value = "ladder")]
        arms: String,
        /// Measured part of each run
        #[arg(long, default_value = "2s", value_parser = crate::args::parse_duration)]
        time: Duration,
    },
    /// TCP streams both ways; their SHA-256, from either end, has to be the same
    #[command(after_help = "\
Example:
  wirepath vmnic bench streams --size 2MB
  wirepath vmnic bench streams --size 100MB --arms alone")]
    Streams(StreamsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct StreamsArgs {
    /// Arms, as for overhead
    #[arg(long, default_value = "ladder")]
    arms: String,
    /// Length of each stream, such as 50kB, 100MB or 1GB; rounded up to writes of 50,000 bytes
    #[arg(long, default_value = "100MB", value_parser = parse_size)]
    size: u64,
}

/// A number of bytes with a decimal unit.
fn parse_size(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "" | "B" => 1,
        "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        _ => return Err(format!("{unit:?} is no unit; use B, kB, MB or GB")),
    };
    let bytes = number.trim().parse::<u64>().ok().and_then(|number| number.checked_mul(scale));
    bytes.filter(|bytes| *bytes > 0).ok_or_else(|| format!("{text:?} is no size; try 100MB"))
}

pub(super) fn run(cli: &Cli, command: &BenchCommand) -> Result<(), Failure> {
    match command {
        BenchCommand::Overhead { arms, time } => overhead(cli, arms, *time),
        BenchCommand::Paced { arms, time } => paced(cli, arms, *time),
        BenchCommand::Streams(args) => streams(cli, args),
    }
}

/// The arms that a plan names, without the control, and these peers. The baseline of a list has to
/// be named: a slow arm can be run by itself.
fn arms(text: &str, peers: &[&str]) -> Result<Vec<Arm>, Failure> {
    let plan = ArmPlan::parse(text, &SWITCHES).map_err(|e| Failure::Usage(e.to_string()))?;
    let is_list = matches!(plan, ArmPlan::List(_));
    let named = !is_list || text.split(',').any(|arm| arm.trim() == "baseline");
    let peers: Vec<String> = peers.iter().map(|peer| (*peer).to_owned()).collect();
    let load = load("paced", Duration::ZERO);
    let arms = model::arms(&plan, &SWITCHES, &peers, &mut |arm| Vmnic.support(arm, &load));
    let runs = |(arm, support): (Arm, Support)| {
        let wanted = match arm.kind {
            ArmKind::Baseline => named,
            ArmKind::Control => false,
            _ => true,
        };
        (support.is_yes() && wanted).then_some(arm)
    };
    Ok(arms.into_iter().filter_map(runs).collect())
}

/// One trial an arm.
fn trials(
    kind: &str,
    time: Duration,
    arms: Vec<Arm>,
) -> Result<(String, Vec<(Arm, Measurement)>), Failure> {
    let mut session = Vmnic.open(&load(kind, time))?;
    let mut measured = Vec::new();
    for arm in arms {
        if crate::stop::asked() {
            break;
        }
        let m = session.trial(&arm)?;
        measured.push((arm, m));
    }
    Ok((session.nic(), measured))
}

fn document(command: &str, nic: &str, arms: Vec<Value>) -> Result<(), Failure> {
    let doc = json!({
        "schema": model::SCHEMA, "command": command, "nic": nic, "arms": arms,
    });
    console::text(&format!("{doc:#}"))
}

fn figures(arm: &Arm, m: &Measurement) -> Value {
    json!({
        "arm": arm.name, "switches": arm.switches, "figures": m.figures, "counters": m.counters,
    })
}

/// Megabits of payload a second at the other end.
fn goodput_mbps(m: &Measurement) -> Option<f64> {
    let goodput = m.metrics().into_iter().find(|metric| metric.name == "goodput_bps")?;
    goodput.value.ok().map(|bps| bps / 1e6)
}

/// Rows of the table of overheads, and what each is made of: figures that are added, and others
/// that are taken off again.
const TIMES: [(&str, &[&str], &[&str]); 16] = [
    ("wall time of a frame", &["wall"], &[]),
    ("outside KVM_RUN", &["handling"], &[]),
    ("  Lance emulation", &["emulation"], &[]),
    ("  transmit: the back end", &["transmit"], &[]),
    ("  notification: the interrupt", &["notification"], &[]),
    ("  rest: decoding, books", &["handling"], &["emulation", "transmit", "notification"]),
    ("inside KVM_RUN", &["wall"], &["handling"]),
    ("  device ports, transitions with them", &["guest_port"], &["handling"]),
    ("  interrupt controller", &["guest_pic"], &[]),
    ("  copy", &["guest_copy"], &[]),
    ("  waiting for room, awake", &["guest_full"], &[]),
    ("  idle", &["guest_idle"], &[]),
    (
        "  rest: driver, interrupt entry",
        &["wall"],
        &["guest_port", "guest_pic", "guest_copy", "guest_full", "guest_idle"],
    ),
    ("CPU time of the vCPU's thread", &["vcpu"], &[]),
    ("CPU time of the device's thread", &["device"], &[]),
    ("  receive: back end and emulation", &["receive"], &[]),
];

const COUNTS: [(&str, &str); 6] = [
    ("exits", "exits"),
    ("accesses that the kernel recorded", "coalesced"),
    ("doorbells", "doorbells"),
    ("interrupts taken", "interrupts"),
    ("accesses to the interrupt controller", "pic_accesses"),
    ("system calls, those for exits too", "syscalls"),
];

fn overhead(cli: &Cli, plan: &str, time: Duration) -> Result<(), Failure> {
    let (nic, measured) = trials("stream", time, arms(plan, &[])?)?;
    if cli.json {
        let arms = measured.iter().map(|(arm, m)| figures(arm, m)).collect();
        return document("vmnic bench overhead", &nic, arms);
    }
    let mut out = format!("{nic}\n");
    for (arm, m) in &measured {
        let _ = writeln!(out, "\n{}", arm.name);
        let get = |name: &str, suffix: &str| {
            m.figures.get(&format!("{name}{suffix}_per_packet")).copied().unwrap_or(0.0)
        };
        let wall_ns = get("wall", "_ns");
        if let Some(mbps) = goodput_mbps(m) {
            let _ = writeln!(out, "  {mbps:.1} Mbit/s; for each frame:");
        }
        for (what, plus, minus) in TIMES {
            let sum = |names: &[&str]| names.iter().map(|name| get(name, "_ns")).sum::<f64>();
            let ns = (sum(plus) - sum(minus)).max(0.0);
            let share = 100.0 * ns / wall_ns.max(1.0);
            let _ = writeln!(out, "  {what:<40} {:>10.2} µs {share:>6.1} %", ns / 1000.0);
        }
        for (what, name) in COUNTS {
            let _ = writeln!(out, "  {what:<40} {:>10.3}", get(name, ""));
        }
    }
    console::text(&out)
}

fn paced(cli: &Cli, plan: &str, time: Duration) -> Result<(), Failure> {
    let (nic, measured) =
        trials("paced", time, arms(plan, &["native", "native-tap", "native-xdp"])?)?;
    if cli.json {
        let arms = measured.iter().map(|(arm, m)| figures(arm, m)).collect();
        return document("vmnic bench paced", &nic, arms);
    }
    let mut out = format!("{nic}; a link of 100 Mbit/s\n\n");
    let _ = writeln!(
        out,
        "{:<50} {:>9} {:>7} {:>13} {:>7}",
        "arm", "Mbit/s", "idle", "vCPU a frame", "exits"
    );
    for (arm, m) in &measured {
        let get = |name: &str| m.figures.get(name).copied().unwrap_or(0.0);
        let _ = writeln!(
            out,
            "{:<50} {:>9.1} {:>5.1} % {:>10.2} µs {:>7.2}",
            arm.name,
            goodput_mbps(m).unwrap_or(0.0),
            get("guest_share_idle") * 100.0,
            get("vcpu_ns_per_packet") / 1000.0,
            get("exits_per_packet"),
        );
    }
    console::text(&out)
}

#[cfg(target_arch = "x86_64")]
fn streams(cli: &Cli, args: &StreamsArgs) -> Result<(), Failure> {
    use paths::vmnic::streams::{Direction, run};

    let hex = |digest: &[u8; 32]| digest.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let (mut docs, mut unequal_count) = (Vec::new(), 0);
    if !cli.json {
        console::text(&format!(
            "{:<20} {:<10} {:>12} {:>9}  {:<64}  {:<64}  equal",
            "arm", "direction", "bytes", "Mbit/s", "SHA-256 at the host", "SHA-256 in the guest"
        ))?;
    }
    for arm in arms(&args.arms, &[])? {
        for (way, direction) in
            [("from guest", Direction::ToHost), ("to guest", Direction::ToGuest)]
        {
            if crate::stop::asked() {
                break;
            }
            let seen = run(&arm, direction, args.size)?;
            let mbps = seen.host_bytes as f64 * 8e3 / seen.wall_ns.max(1) as f64;
            let (host, guest) = (hex(&seen.host_digest), hex(&seen.guest_digest));
            unequal_count += usize::from(!seen.is_equal());
            if cli.json {
                docs.push(json!({
                    "arm": arm.name, "switches": arm.switches, "direction": way,
                    "back_end": seen.backend, "host_bytes": seen.host_bytes,
                    "guest_bytes": seen.guest_bytes, "mbps": mbps, "host_sha256": host,
                    "guest_sha256": guest, "equal": seen.is_equal(),
                }));
                continue;
            }
            // As it comes: a slow arm takes minutes.
            console::text(&format!(
                "{:<20} {way:<10} {:>12} {mbps:>9.1}  {host}  {guest}  {}",
                arm.name,
                seen.host_bytes,
                if seen.is_equal() { "yes" } else { "NO" }
            ))?;
        }
    }
    if cli.json {
        document("vmnic bench streams", "Lance over a TAP or a veth, MTU 1500", docs)?;
    }
    match unequal_count {
        0 => Ok(()),
        count => Err(Failure::failed(format!("{count} streams differ between their ends"))),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn streams(_: &Cli, _: &StreamsArgs) -> Result<(), Failure> {
    Err(Failure::Unsupported("a PC as a virtual machine needs x86-64".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn baseline_of_a_list_is_run_when_it_is_named() {
        let names = |text: &str| -> Vec<String> {
            arms(text, &[]).unwrap().into_iter().map(|arm| arm.name).collect()
        };
        // Where nothing runs there are no arms.
        if Vmnic.support(&Arm::baseline(), &load("paced", Duration::ZERO)).is_yes() {
            assert_eq!(names("irq-fd"), ["irq-fd"]);
            assert_eq!(names("baseline,irq-fd").len(), 2);
            assert_eq!(names("baseline").len(), 1);
            assert_eq!(names("ladder").len(), 1 + SWITCHES.len());
        }
    }

    #[test]
    fn sizes_have_decimal_units() {
        assert_eq!(parse_size("100MB"), Ok(100_000_000));
        assert_eq!(parse_size("512"), Ok(512));
        assert_eq!(parse_size("2 kB"), Ok(2000));
        for wrong in ["", "0", "MB", "1MiB", "-1", "99999999999GB"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }
}
