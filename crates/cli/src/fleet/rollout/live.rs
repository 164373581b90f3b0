//! Proof of a roll-out on the running services of its hosts: `--live`.
//!
//! Hosts of a stage are crossed over in pairs, again and again: one has the plan while the other has not, and then the other
//! way round. A coin for each pair and round says which of them has it first.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use clap::Args;
use fleet::rollout::{Answers, LiveCrossings, Proof, StepAnswer, live_gate};
use house::args::parse_duration;
use house::signals;
use live::sources::MetricSpec;
use model::live::{
    CrossedHost, GuardRule, LiveArm, LiveFigure, LiveGroup, LivePooled, TripCount,
    is_first_half_on, pool_live,
};
use remote::Failure;
use remote::work::{Call, Crossed, Crossing};
use serde::{Deserialize, Serialize};

use super::super::now_ms;
use super::members::{Members, Reach};
use super::request::whole_ms;
use crate::tune::prove::PlanLoadArgs;

/// Shortest period.
const PERIOD_MIN: Duration = Duration::from_secs(2);
/// Hosts in a pair.
const PAIR: usize = 2;

/// How a plan is proved on the running services of the hosts.
#[derive(Debug, Args)]
#[command(next_help_heading = "On the running services: with `-- --port N`, or --unit")]
pub(super) struct LiveRolloutArgs {
    /// Prove each stage on the running services of its hosts, under their own traffic: half of them have the plan while
    /// the other half has not, and then the other way round
    #[arg(long, conflicts_with_all = ["resume", "abort"])]
    pub(super) live: bool,
    /// The service: this unit of systemd
    #[arg(long, value_name = "NAME", requires = "live")]
    unit: Option<String>,
    /// Time for a stage's proof
    #[arg(long = "for", value_name = "TIME", default_value = "10m", requires = "live", value_parser = parse_duration)]
    time: Duration,
    /// Length of a period with the plan, or without
    #[arg(long, value_name = "TIME", default_value = "5s", requires = "live", value_parser = parse_duration)]
    period: Duration,
    /// Undo the plan at once if this is seen: 'FIGURE > 2x' or 'errors > 0.1%'; may be repeated
    #[arg(long, value_name = "RULE", requires = "live")]
    guard: Vec<GuardRule>,
    /// Close the service's connections at each switch: for settings that reach new connections alone
    #[arg(long, requires = "live")]
    close_connections: bool,
}

/// Live measurement of every host, as the ledger has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LiveMeasurement {
    port: Option<u16>,
    unit: Option<String>,
    metrics: Vec<String>,
    primary: Option<String>,
    rules: Vec<String>,
    closes_connections: bool,
    period_ms: u64,
    time_ms: u64,
    /// Ratio above 1.
    resolve: f64,
}

impl LiveRolloutArgs {
    /// - `load`: options of `tune prove` behind those of the roll-out.
    /// - `primary`: figure that decides.
    ///
    /// Errors: no service or a load is named, or a time is too short.
    pub(super) fn measurement(
        &self,
        load: &PlanLoadArgs,
        primary: Option<&str>,
    ) -> Result<LiveMeasurement, Failure> {
        let (port, metrics, resolve) = load.live()?;
        if port.is_some() == self.unit.is_some() {
            return Err(Failure::Usage(
                "name the service of the hosts by one of both: --unit NAME, or `-- --port N`"
                    .into(),
            ));
        }
        if self.period < PERIOD_MIN || self.time < 2 * self.period {
            return Err(Failure::Usage(format!(
                "--period takes at least {} s, and --for two periods",
                PERIOD_MIN.as_secs()
            )));
        }
        for text in metrics {
            text.parse::<MetricSpec>().map_err(Failure::usage)?;
        }
        Ok(LiveMeasurement {
            port,
            unit: self.unit.clone(),
            metrics: metrics.to_vec(),
            primary: primary.map(str::to_owned),
            rules: self.guard.iter().map(ToString::to_string).collect(),
            closes_connections: self.close_connections,
            period_ms: whole_ms(self.period),
            time_ms: whole_ms(self.time),
            resolve,
        })
    }
}

impl LiveMeasurement {
    fn call(&self, plan: String, arms: [LiveArm; 2], p99_ns: Option<f64>) -> Call {
        Call::Cross(Box::new(Crossing {
            plan,
            port: self.port,
            unit: self.unit.clone(),
            metrics: self.metrics.clone(),
            primary: self.primary.clone(),
            rules: self.rules.clone(),
            closes_connections: self.closes_connections,
            arms,
            period_ms: self.period_ms,
            p99_ns,
        }))
    }

    /// A call for a host that does not refuse it.
    pub(super) fn check_call(&self, plan: String) -> Call {
        self.call(plan, [LiveArm::Off; 2], None)
    }
}

/// Answers of hosts that were asked to cross, and the periods of those that have done so.
type Asked = (Answers, BTreeMap<usize, Crossed>);

impl<R: Reach> Members<'_, R> {
    /// Two periods without the plan on every host; the level of a host is the p99 of a request.
    pub(super) fn live_baseline(
        &mut self,
        live: &LiveMeasurement,
        hosts: &[usize],
    ) -> Result<(Answers, Vec<Option<f64>>), Failure> {
        self.say("baseline, nothing is switched", hosts);
        let arms = hosts.iter().map(|at| (*at, [LiveArm::Off; 2])).collect();
        let (mut answers, found) = self.cross(live, &arms, &[])?;
        let mut levels = vec![None; self.names.len()];
        for (at, answer) in &mut answers {
            let Some(crossed) = found.get(at) else { continue };
            levels[*at] = crossed.p99_ns;
            if crossed.periods.iter().all(|period| period.request_count == 0) {
                let why =
                    "no request came in the baseline: is this the service, and has it traffic?";
                *answer = StepAnswer::Failed(why.into());
            }
        }
        Ok((answers, levels))
    }

    /// Crosses pairs of hosts over until the figures are decided, a host does not answer, or the time is up.
    pub(super) fn live_proof(
        &mut self,
        live: &LiveMeasurement,
        stage: &[usize],
        levels: &[Option<f64>],
    ) -> Result<(Answers, Proof), Failure> {
        self.say("proving on the running services, half of them at a time", stage);
        let pairs: Vec<&[usize]> = stage.chunks(PAIR).collect();
        let mut rounds = Rounds::new(live, now_ms());
        let begun = Instant::now();
        let round_time = Duration::from_millis(2 * live.period_ms);
        let time = Duration::from_millis(live.time_ms);
        let mut answers = Answers::new();
        let mut crossings = rounds.crossings(&pairs, self.names);
        while !crossings.is_decided()
            && begun.elapsed() + round_time <= time
            && !signals::stop_requested()
        {
            let found;
            (answers, found) = self.cross(live, &rounds.arms(&pairs), levels)?;
            if found.len() < answers.len() {
                break;
            }
            let elapsed_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            rounds.add(&pairs, &found, elapsed_ns);
            crossings = rounds.crossings(&pairs, self.names);
        }
        let proof = Proof {
            gate: live_gate(&crossings, self.request.wants()),
            plan: None,
            live: Some(Box::new(crossings)),
            control_count: 0,
            control_drift: None,
        };
        Ok((answers, proof))
    }

    /// Has hosts run through both periods at the same time.
    ///
    /// - `levels`: p99 of a request of each host; none before it is known.
    fn cross(
        &mut self,
        live: &LiveMeasurement,
        arms: &BTreeMap<usize, [LiveArm; 2]>,
        levels: &[Option<f64>],
    ) -> Result<Asked, Failure> {
        let call = |(at, arms): (&usize, &[LiveArm; 2])| {
            let p99_ns = levels.get(*at).copied().flatten();
            (*at, live.call(self.plan_text(*at), *arms, p99_ns))
        };
        let calls: Vec<(usize, Call)> = arms.iter().map(call).collect();
        let (mut answers, mut found) = Asked::default();
        for (at, answer) in self.reach.each(&calls)? {
            let answer = match crossed(answer) {
                Ok(crossed) => {
                    let done = StepAnswer::Done(requests(&crossed));
                    found.insert(at, crossed);
                    done
                }
                Err(answer) => answer,
            };
            answers.push((at, answer));
        }
        Ok((answers, found))
    }
}

/// Both periods of a host. Errors: its answer, if it is none.
fn crossed(answer: StepAnswer) -> Result<Crossed, StepAnswer> {
    let StepAnswer::Done(text) = answer else { return Err(answer) };
    serde_json::from_str(&text)
        .map_err(|error| StepAnswer::Failed(format!("its periods cannot be read: {error}")))
}

fn requests(crossed: &Crossed) -> String {
    let counts = crossed.periods.iter().map(|period| period.request_count.to_string());
    format!("{} requests", counts.collect::<Vec<_>>().join(" and "))
}

/// Rounds of a proof so far.
struct Rounds {
    seed: u64,
    count: u32,
    period_ms: u64,
    resolve: f64,
    figures: Vec<LiveFigure>,
    /// By figure: a unit for each pair and round.
    units: Vec<Vec<LiveGroup>>,
    /// Time of a round, of which the latest verdict is made.
    round_ns: u64,
    trips: TripCount,
    silent_count: u32,
}

impl Rounds {
    fn new(live: &LiveMeasurement, seed: u64) -> Self {
        Rounds {
            seed,
            count: 0,
            period_ms: live.period_ms,
            resolve: live.resolve,
            figures: Vec::new(),
            units: Vec::new(),
            round_ns: 0,
            trips: TripCount::default(),
            silent_count: 0,
        }
    }

    /// Arms of each host in the next round.
    fn arms(&self, pairs: &[&[usize]]) -> BTreeMap<usize, [LiveArm; 2]> {
        let mut arms = BTreeMap::new();
        for (number, pair) in pairs.iter().enumerate() {
            let unit = self.count * pairs.len() as u32 + number as u32;
            let first = is_first_half_on(self.seed, unit);
            for (place, host) in pair.iter().enumerate() {
                let is_on_first = (place == 0) == first;
                let arm = if is_on_first { LiveArm::On } else { LiveArm::Off };
                arms.insert(*host, [arm, arm.other()]);
            }
        }
        arms
    }

    fn add(&mut self, pairs: &[&[usize]], found: &BTreeMap<usize, Crossed>, elapsed_ns: u64) {
        if self.figures.is_empty()
            && let Some(first) = found.values().next()
        {
            self.figures.clone_from(&first.figures);
            self.units = vec![Vec::new(); self.figures.len()];
        }
        self.count += 1;
        self.round_ns = elapsed_ns / u64::from(self.count);
        for crossed in found.values() {
            for period in crossed.periods.iter().filter(|period| period.trip.is_some()) {
                self.trips.add(period.arm);
            }
            self.silent_count += u32::from(is_silent(crossed));
        }
        for (index, units) in self.units.iter_mut().enumerate() {
            for (number, pair) in pairs.iter().enumerate() {
                let figure = &self.figures[index].name;
                let hosts = pair.iter().filter_map(|host| crossed_host(found.get(host)?, figure));
                units.push(LiveGroup {
                    name: format!("pair {}, round {}", number + 1, self.count),
                    hosts: hosts.collect(),
                });
            }
        }
    }

    fn crossings(&self, pairs: &[&[usize]], names: &[String]) -> LiveCrossings {
        // A unit stands for its share of a round.
        let unit_ns = self.round_ns / (2 * pairs.len().max(1) as u64);
        let name = |at: &usize| names.get(*at).cloned().unwrap_or_default();
        LiveCrossings {
            groups: pairs.iter().map(|pair| pair.iter().map(name).collect()).collect(),
            rounds: self.count,
            seed: self.seed,
            period_ms: self.period_ms,
            figures: (0..self.figures.len()).map(|index| self.pooled(index, unit_ns)).collect(),
            trips: self.trips,
            silent_count: self.silent_count,
        }
    }

    fn pooled(&self, index: usize, unit_ns: u64) -> LivePooled {
        let units = &self.units[index];
        let mut pooled = pool_live(units, &self.figures, index, self.resolve, unit_ns);
        pooled.verdict.within_ns = self.period_ms * 1_000_000;
        pooled
    }
}

/// True if a period had no request, and the guard did not end it: its requests would have waited.
fn is_silent(crossed: &Crossed) -> bool {
    crossed.periods.iter().any(|period| period.request_count == 0 && period.trip.is_none())
}

/// A host in one figure; `None` if it does not count. A period that the guard ended has no value, which is the worst.
fn crossed_host(crossed: &Crossed, figure: &str) -> Option<CrossedHost> {
    if is_silent(crossed) {
        return None;
    }
    // A host whose kernel gives fewer figures has them at other places.
    let index = crossed.figures.iter().position(|of| of.name == figure)?;
    let [first, second] = crossed.periods.as_slice() else { return None };
    let mut values = [None; 2];
    for (value, period) in values.iter_mut().zip([first, second]) {
        if period.trip.is_none() {
            *value = Some(period.values.get(index).copied().flatten()?);
        }
    }
    Some(CrossedHost {
        is_on_first: first.arm == LiveArm::On,
        values,
        request_count: first.request_count.min(second.request_count),
    })
}
