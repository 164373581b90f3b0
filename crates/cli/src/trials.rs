//! `wirepath trials`: runs trials of one arm on request, for `prove --against` of another build.
//!
//! The first line on standard output is a [`Hello`]. Each line on standard input asks for one trial,
//! whose [`Reply`] is one line. The end of standard input ends the program.

use std::io::{BufRead, Write, stdin, stdout};
use std::time::Duration;

use clap::Args;
use model::{Arm, ArmPlan, Load, Support};
use remote::Failure;
use serde::{Deserialize, Serialize};

use runner::find_load;

use crate::lookup::{self, find_path};
use crate::shared_args::{parse_vlan, vlan_text};

/// Version of this exchange; raised when either line changes its meaning.
pub(crate) const EXCHANGE: u32 = 1;

#[derive(Debug, Args)]
pub(crate) struct TrialsArgs {
    /// Path
    #[arg(value_parser = lookup::PATH)]
    path: String,
    /// Load
    #[arg(long, value_parser = lookup::LOAD)]
    load: String,
    /// Switches that are on, joined by `+`, or `baseline`
    #[arg(long)]
    arm: String,
    /// UDP payload of each datagram in bytes
    #[arg(long)]
    size_bytes: usize,
    /// Datagrams per second
    #[arg(long)]
    rate_pps: u64,
    /// Measured part of one trial in milliseconds
    #[arg(long)]
    trial_ms: u64,
    /// IPv6 in place of IPv4
    #[arg(long)]
    ipv6: bool,
    /// VLAN of the frames and its priority
    #[arg(long, value_parser = parse_vlan)]
    vlan: Option<u16>,
}

impl TrialsArgs {
    /// Arguments for another build that runs trials of `arm` under `load`.
    pub(crate) fn of(path: &str, load: &Load, arm: &Arm) -> Vec<String> {
        let name = if arm.switches.is_empty() { "baseline".into() } else { arm.switches.joined() };
        let arguments = [
            "trials",
            path,
            "--load",
            &load.kind,
            "--arm",
            &name,
            "--size-bytes",
            &load.size_bytes.to_string(),
            "--rate-pps",
            &load.rate_pps.to_string(),
            "--trial-ms",
            &load.trial.as_millis().to_string(),
        ]
        .map(str::to_owned);
        let ipv6 = load.ipv6.then(|| "--ipv6".to_owned());
        let vlan = load.vlan_tag.map(|tag| format!("--vlan={}", vlan_text(tag)));
        arguments.into_iter().chain(ipv6).chain(vlan).collect()
    }
}

/// First line of the exchange.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// [`EXCHANGE`].
    pub(crate) trials: u32,
    pub(crate) version: String,
    /// The interface under test.
    pub(crate) nic: String,
}

/// Answer to one request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Reply {
    /// A measurement in the form of [`report::store::to_line`].
    Measured(String),
    /// Reason for the failure of the trial.
    Failed(String),
}

pub(crate) fn run(args: &TrialsArgs) -> Result<(), Failure> {
    let path = find_path(&args.path)?;
    let kind = find_load(path.as_ref(), Some(&args.load))?;
    let load = Load {
        kind: kind.name.to_owned(),
        size_bytes: args.size_bytes,
        rate_pps: args.rate_pps,
        trial: Duration::from_millis(args.trial_ms.max(1)),
        ipv6: args.ipv6,
        vlan_tag: args.vlan,
        far: None,
    };
    let arm =
        one_arm(&ArmPlan::parse(&args.arm, &model::ids(path.switches())).map_err(Failure::usage)?)?;
    if let Support::Unsupported { what, needs } = path.support(&arm, &load) {
        return Err(Failure::Unsupported(format!("{what} is not possible here: {needs}")));
    }
    let mut session = path.open(&load)?;
    let version = env!("CARGO_PKG_VERSION").to_owned();
    line(&Hello { trials: EXCHANGE, version, nic: session.nic() })?;
    for request in stdin().lock().lines() {
        request?;
        let measured = session.trial(&arm).map_err(|error| host::text::chain(&error));
        let packed = measured.and_then(|m| report::store::to_line(&m).map_err(|e| e.to_string()));
        line(&packed.map_or_else(Reply::Failed, Reply::Measured))?;
    }
    Ok(())
}

/// The only set of switches of a plan. Errors: it has several arms.
pub(crate) fn one_arm(plan: &ArmPlan) -> Result<Arm, Failure> {
    match plan {
        ArmPlan::List(sets) if sets.is_empty() => Ok(Arm::baseline()),
        ArmPlan::List(sets) if sets.len() == 1 => Ok(Arm::with(sets[0].iter().cloned())),
        _ => Err(Failure::Usage(
            "give one arm: `baseline`, or switches joined by + such as spin+batch".into(),
        )),
    }
}

/// Writes one line. Errors: the other program has ended, too.
fn line(value: &impl Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_vec(value)?;
    text.push(b'\n');
    let mut out = stdout().lock();
    Ok(out.write_all(&text).and_then(|()| out.flush())?)
}
