//! `wirepath vmnic bench streams`: TCP streams whose SHA-256 must agree at both ends.

use std::time::Duration;

use clap::{Args, Subcommand};
use house::args::parse_bytes;
use house::context::Context;
use model::{Arm, ArmKind, ArmPlan, Path, PathSwitch};
use remote::Failure;
use schemars::JsonSchema;
use serde::Serialize;
use vmnic::{Switch, Vmnic};

use super::load;

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Send TCP streams both ways and compare their SHA-256 at both ends
    #[command(after_help = "\
Example:
  wirepath vmnic bench streams --size 2MB
  wirepath vmnic bench streams --size 100MB --arms alone")]
    Streams(StreamsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct StreamsArgs {
    /// Arms: ladder, alone, leave-one-out, or a list such as baseline,irq-fd,tx-int-mask+irq-fd
    #[arg(long, default_value = "ladder")]
    arms: String,
    /// Length of each stream, such as 50kB, 100MB or 1GiB; rounded up to writes of 50,000 bytes
    #[arg(long, default_value = "100MB", value_parser = parse_bytes)]
    size: usize,
}

/// The document of `--json`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct StreamsDocument {
    schema: u32,
    command: &'static str,
    nic: &'static str,
    /// One entry per arm and direction.
    arms: Vec<StreamRow>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct StreamRow {
    arm: String,
    switches: Vec<String>,
    /// `from guest` or `to guest`.
    direction: &'static str,
    back_end: &'static str,
    host_bytes: u64,
    guest_bytes: u64,
    mbps: f64,
    host_sha256: String,
    guest_sha256: String,
    equal: bool,
}

pub(super) fn run(context: &Context, command: &BenchCommand) -> Result<(), Failure> {
    match command {
        BenchCommand::Streams(args) => streams(context, args),
    }
}

/// Arms of a plan, without the control and without unsupported arms. A list includes the baseline only
/// if it names it, so that one arm can be checked without the slow baseline.
fn arms(text: &str) -> Result<Vec<Arm>, Failure> {
    let plan = ArmPlan::parse(text, &model::ids(Switch::SPECS))
        .map_err(|e| Failure::Usage(e.to_string()))?;
    let is_list = matches!(plan, ArmPlan::List(_));
    let named = !is_list || text.split(',').any(|arm| arm.trim() == "baseline");
    let load = load("tcp", Duration::ZERO);
    let arms =
        model::arms(&plan, &model::ids(Switch::SPECS), &[], &mut |arm| Vmnic.support(arm, &load));
    let arms = arms.into_iter().filter(|(arm, support)| {
        let is_wanted = match arm.kind {
            ArmKind::Baseline => named,
            ArmKind::Control => false,
            _ => true,
        };
        support.is_yes() && is_wanted
    });
    Ok(arms.map(|(arm, _)| arm).collect())
}

#[cfg(target_arch = "x86_64")]
fn streams(context: &Context, args: &StreamsArgs) -> Result<(), Failure> {
    use vmnic::stream::{StreamDirection, run};

    use house::console;

    if args.size == 0 {
        return Err(Failure::Usage("--size must be more than 0".into()));
    }
    let (mut rows, mut unequal_count) = (Vec::new(), 0);
    if !context.json {
        console::text(&format!(
            "{:<20} {:<10} {:>12} {:>9}  {:<64}  {:<64}  equal",
            "arm", "direction", "bytes", "Mbit/s", "SHA-256 at the host", "SHA-256 in the guest"
        ))?;
    }
    for arm in arms(&args.arms)? {
        for (name, direction) in
            [("from guest", StreamDirection::ToHost), ("to guest", StreamDirection::ToGuest)]
        {
            if house::signals::stop_requested() {
                break;
            }
            let streamed = run(&arm, direction, args.size as u64)?;
            let row = StreamRow {
                arm: arm.name.clone(),
                switches: arm.switches.names(),
                direction: name,
                back_end: streamed.backend,
                host_bytes: streamed.host_bytes,
                guest_bytes: streamed.guest_bytes,
                mbps: streamed.host_bytes as f64 * 8e3 / streamed.wall_ns.max(1) as f64,
                host_sha256: hex(&streamed.host_digest),
                guest_sha256: hex(&streamed.guest_digest),
                equal: streamed.is_equal(),
            };
            unequal_count += usize::from(!row.equal);
            if !context.json {
                // Printed one by one: a slow arm takes minutes.
                console::text(&format!(
                    "{:<20} {name:<10} {:>12} {:>9.1}  {}  {}  {}",
                    row.arm,
                    row.host_bytes,
                    row.mbps,
                    row.host_sha256,
                    row.guest_sha256,
                    if row.equal { "yes" } else { "NO" }
                ))?;
            }
            rows.push(row);
        }
    }
    if context.json {
        console::json(&StreamsDocument {
            schema: model::SCHEMA,
            command: "vmnic bench streams",
            nic: "Lance or virtio-net over a TAP or a veth, MTU 1500",
            arms: rows,
        })?;
    }
    match unequal_count {
        0 => Ok(()),
        count => Err(Failure::failed(format!("{count} streams differ between host and guest"))),
    }
}

#[cfg(target_arch = "x86_64")]
fn hex(digest: &[u8; 32]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn streams(_: &Context, _: &StreamsArgs) -> Result<(), Failure> {
    Err(Failure::Unsupported("a virtual PC needs x86-64".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        arms(text).unwrap().into_iter().map(|arm| arm.name).collect()
    }

    #[test]
    fn baseline_of_a_list_runs_only_if_it_is_named() {
        // Without KVM no arm is supported.
        if Vmnic.support(&Arm::baseline(), &load("tcp", Duration::ZERO)).is_yes() {
            assert_eq!(names("irq-fd"), ["irq-fd"]);
            assert_eq!(names("baseline,irq-fd").len(), 2);
            assert_eq!(names("baseline").len(), 1);
            assert_eq!(names("ladder").len(), 1 + Switch::SPECS.len());
        }
    }
}
