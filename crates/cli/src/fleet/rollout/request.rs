//! The roll-out that the user asks for.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use fleet::rollout::{Draw, ID_PREFIX, RolloutHeader, Size, Wants};
use host::tune::Plan;
use house::args::parse_duration;
use house::place::StateArgs;
use model::{PlanArms, Request, Subject};
use remote::Failure;
use remote::work::Call;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::hosts::HostsArgs;
use super::super::now_ms;
use super::super::words::Words;
use super::live::{LiveMeasurement, LiveRolloutArgs};
use crate::tune::prove::PlanLoadArgs;

#[derive(Debug, Args)]
pub(crate) struct RolloutArgs {
    /// The plan of settings, as `tune plan` writes it for one of the hosts
    #[arg(value_name = "PLAN", required_unless_present_any = ["resume", "abort"])]
    pub(super) plan: Option<PathBuf>,
    #[command(flatten)]
    pub(super) hosts: HostsArgs,
    #[cfg(feature = "fleet")]
    #[command(flatten)]
    pub(super) agents: super::super::over_agents::AgentsArgs,
    /// Hosts that have the plan after each stage: numbers, or shares of all hosts
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', default_value = "1,10%,100%")]
    stages: Vec<String>,
    /// Metric that decides: the name of a judged metric of the load, or words of it; default: rtt p99, and with --live
    /// cpu_per_request
    #[arg(long, value_name = "METRIC")]
    metric: Option<String>,
    /// Refuse a plan that is not shown to be better, in stages of six hosts and more
    #[arg(long)]
    wants_gain: bool,
    /// Let a plan through that is not shown to be worse, although it is not shown to be no worse either
    #[arg(long, conflicts_with_all = ["wants_gain", "abort"])]
    pub(super) accept_inconclusive: bool,
    /// Time for which a stage keeps the plan, unconfirmed and watched
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    hold: Duration,
    /// Each host rolls back by itself after this time without contact
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    confirm_within: Duration,
    /// Seed of the draw of the stages; default: the time
    #[arg(long)]
    seed: Option<u64>,
    /// Go on with a roll-out that was paused or whose process ended
    #[arg(long, value_name = "ID", conflicts_with_all = ["plan", "on", "abort"])]
    pub(super) resume: Option<String>,
    /// Roll back every host of a roll-out
    #[arg(long, value_name = "ID", conflicts_with_all = ["plan", "on", "keep"])]
    pub(super) abort: Option<String>,
    /// Once it is done, forget the earlier values: it can no longer be aborted, and another one can begin
    #[arg(long)]
    pub(super) keep: bool,
    /// Also write a self-contained HTML page
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    #[command(flatten)]
    state: StateArgs,
    #[command(flatten)]
    load: Words<PlanLoadArgs>,
    // Last: it has a heading of its own.
    #[command(flatten)]
    live: LiveRolloutArgs,
}

/// Version of [`RolloutRequest`].
const VERSION: u32 = 3;

/// Metric that decides under a load, unless the user names one.
const METRIC: &str = "rtt p99";

/// Everything but hosts, stages and plan, as the ledger has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RolloutRequest {
    /// [`VERSION`].
    version: u32,
    /// `None` for the first figure of a live proof.
    pub(super) metric: Option<String>,
    pub(super) wants_gain: bool,
    pub(super) accepts_inconclusive: bool,
    pub(super) hold_ms: u64,
    pub(super) within_ms: u64,
    pub(super) ssh_options: Vec<String>,
    /// Folder of journals on this machine.
    pub(super) state: PathBuf,
    measurement: Measurement,
}

/// Measurement of a host, whose plan is that of the roll-out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Measurement {
    /// Under a load, in which `{host}` stands for the name of the host.
    Load(Box<Request>),
    /// On its running service.
    Live(LiveMeasurement),
}

impl RolloutRequest {
    /// Live measurement; `None` under a load.
    pub(super) fn live(&self) -> Option<&LiveMeasurement> {
        match &self.measurement {
            Measurement::Live(live) => Some(live),
            Measurement::Load(_) => None,
        }
    }

    /// Metric that decides, for messages.
    pub(super) fn metric(&self) -> &str {
        let default = if self.live().is_some() { "the first figure" } else { METRIC };
        self.metric.as_deref().unwrap_or(default)
    }

    /// Measurement of a host under a load.
    ///
    /// - `word`: replaces `{host}`.
    pub(super) fn measurement(
        &self,
        word: &str,
        plan: String,
        arms: PlanArms,
    ) -> Result<Call, Failure> {
        let Measurement::Load(measurement) = &self.measurement else {
            return Err(Failure::failed("a live roll-out has no load"));
        };
        let mut value = serde_json::to_value(measurement)?;
        replace_host(&mut value, word);
        let mut request: Request = serde_json::from_value(value)?;
        if let Subject::Plan(subject) = &mut request.subject {
            (subject.plan, subject.arms) = (plan, arms);
        }
        Ok(Call::RunAlone(Box::new(request)))
    }

    pub(super) fn wants(&self) -> Wants {
        let accepts_inconclusive = self.accepts_inconclusive;
        Wants { gain: self.wants_gain, accepts_inconclusive }
    }

    pub(super) fn within(&self) -> Duration {
        Duration::from_millis(self.within_ms)
    }
}

/// Shortest time without contact: a host must be asked three times within it.
const WITHIN_MIN: Duration = Duration::from_secs(10);

impl RolloutArgs {
    /// Id of a roll-out that is there already.
    pub(super) fn existing(&self) -> Option<&str> {
        self.resume.as_deref().or(self.abort.as_deref())
    }

    /// The roll-out for the ledger. Errors: what the user got wrong, before any host is asked.
    ///
    /// - `hosts`: names of the hosts.
    /// - `check`: refuses what the hosts would refuse.
    pub(super) fn header(
        &self,
        hosts: Vec<String>,
        check: impl Fn(&Call) -> Result<(), Failure>,
    ) -> Result<RolloutHeader, Failure> {
        let Some(path) = &self.plan else {
            return Err(Failure::Usage("name the plan to roll out".into()));
        };
        let plan = host::tune::read_plan(path)?;
        if self.confirm_within < WITHIN_MIN {
            return Err(Failure::Usage(format!(
                "--confirm-within is below {} s: a slow host would roll back for no reason",
                WITHIN_MIN.as_secs()
            )));
        }
        let measurement = if self.live.live {
            let live = self.live.measurement(&self.load.0, self.metric.as_deref())?;
            check(&live.check_call(plan.to_text()))?;
            Measurement::Live(live)
        } else {
            let mut request = self.load.0.request(&plan, path, PlanArms::Plan, true)?;
            check(&Call::RunAlone(Box::new(request.clone())))?;
            // The header has it.
            if let Subject::Plan(subject) = &mut request.subject {
                subject.plan.clear();
            }
            Measurement::Load(Box::new(request))
        };
        let request = RolloutRequest {
            version: VERSION,
            metric: self.metric.clone(),
            wants_gain: self.wants_gain,
            accepts_inconclusive: self.accept_inconclusive,
            hold_ms: whole_ms(self.hold),
            within_ms: whole_ms(self.confirm_within),
            ssh_options: self.hosts.ssh_option.clone(),
            state: std::path::absolute(&self.state.journal().folder)?,
            measurement,
        };
        let header = RolloutHeader {
            id: format!("{ID_PREFIX}{}", now_ms()),
            hosts,
            stages: self.stages.clone(),
            seed: self.seed.unwrap_or_else(now_ms),
            plan: plan.to_text(),
            request: serde_json::to_string(&request)?,
        };
        draw(&header)?;
        Ok(header)
    }
}

pub(super) fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Stages of a roll-out.
pub(super) fn draw(header: &RolloutHeader) -> Result<Draw, Failure> {
    let sizes: Result<Vec<Size>, _> = header.stages.iter().map(|text| text.parse()).collect();
    let draw = sizes.and_then(|sizes| Draw::new(header.hosts.len(), &sizes, header.seed));
    draw.map_err(|error| Failure::Usage(format!("--stages: {error}")))
}

/// Replaces `{host}` in every text.
fn replace_host(value: &mut Value, word: &str) {
    match value {
        Value::String(text) => *text = text.replace("{host}", word),
        Value::Array(values) => values.iter_mut().for_each(|value| replace_host(value, word)),
        Value::Object(fields) => fields.values_mut().for_each(|value| replace_host(value, word)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Plan and request of a roll-out, as the ledger has them. Errors: another version wrote them.
pub(super) fn read(header: &RolloutHeader) -> Result<(Plan, RolloutRequest), Failure> {
    let value: Value = serde_json::from_str(&header.request)?;
    // That of version 1 had no version.
    let version = value.get("version").and_then(Value::as_u64).unwrap_or(1);
    if version != u64::from(VERSION) {
        return Err(Failure::failed(format!(
            "roll-out {} has version {version}, and this Wirepath reads {VERSION}; end it with the Wirepath that began it",
            header.id
        )));
    }
    Ok((Plan::parse(&header.plan)?, serde_json::from_value(value)?))
}
