//! Latency against load: offered rates double until an arm no longer carries them.
//!
//! Lost datagrams count as infinitely late, and so do those that an end could not send in time: a
//! closed loop would leave both out and show the latency of an idle path (coordinated omission).

use std::cmp::Ordering;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Arm, ArmKind, Machine, Measurement, Support, order, quantile_of_arrived, statistics};

/// An arm carries a rate if at least this share of the offered datagrams was answered.
pub const CARRIED_SHARE_MIN: f64 = 0.98;
/// Below the knee p99 stays below this multiple of its value at the lowest rate.
pub const KNEE_P99_RATIO: f64 = 2.0;
/// Below the knee a smaller share than this of the offered datagrams is lost or unsent.
pub const KNEE_LOSS: f64 = 0.001;
/// Fewest trials a rate that bound a knee.
pub const KNEE_TRIALS_MIN: u32 = 3;
/// A trial is disturbed if others used more than this share of the cores in use.
const DISTURBED_SHARE: f64 = 0.1;
/// Rates end here in any case, datagrams per second.
const RATE_PPS_MAX: u64 = 1 << 30;

#[derive(Debug, Clone, PartialEq)]
pub struct CurvePlan {
    /// Arms, each with its support on this host.
    pub arms: Vec<(Arm, Support)>,
    /// Lowest offered rate, datagrams per second.
    pub start_pps: u64,
    /// Length of the schedule of one trial.
    pub trial: Duration,
    /// Trials of an arm at one rate.
    pub trials: u32,
    pub seed: u64,
}

impl CurvePlan {
    /// Datagrams that a trial offers at a rate; at least one.
    pub fn offered_count(&self, rate_pps: u64) -> u64 {
        let count = u128::from(rate_pps) * self.trial.as_nanos() / 1_000_000_000;
        u64::try_from(count).unwrap_or(u64::MAX).max(1)
    }
}

/// Curves of all arms, with their circumstances.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoadCurve {
    /// Time of the start, RFC 3339.
    pub started: String,
    /// Version of the program.
    pub version: String,
    /// The machine of the run.
    pub machine: Machine,
    /// UDP payload of each datagram, bytes.
    pub size_bytes: usize,
    /// Length of the schedule of one trial, milliseconds.
    pub trial_ms: u64,
    /// Trials of an arm at one rate.
    pub trials: u32,
    /// Seed of the order of arms.
    pub seed: u64,
    /// The arms, the baseline first.
    pub arms: Vec<ArmCurve>,
}

/// Curve of one arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ArmCurve {
    /// Name of the arm.
    pub name: String,
    /// Its part: the baseline, or a variant.
    pub kind: ArmKind,
    /// Support for the arm on this host; without it there are no points.
    pub support: Support,
    /// One point a rate, each twice the rate of the one before.
    pub points: Vec<LoadPoint>,
    /// Reason why there is no point at a higher rate.
    pub end: CurveEnd,
    /// The knee.
    pub knee: Knee,
}

/// Reason why a curve ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CurveEnd {
    /// The arm did not carry the rate of the last point.
    NotCarried,
    /// The run was interrupted, or the arm carried every rate there is.
    Unfinished,
    /// The arm cannot run here.
    NotRun,
    /// A trial failed.
    Failed(String),
}

/// Bounds of the knee: rates that were measured.
///
/// A trial is within the rule if its p99 is below [`KNEE_P99_RATIO`] times the median p99 of the trials at the lowest
/// rate. A rate **held** if all its trials were, and less than [`KNEE_LOSS`] of its offered datagrams was lost or
/// unsent; it **broke** if none was, or if each lost as much. Anything else decides nothing. The knee lies between the
/// highest of an unbroken sequence of rates that held, from the lowest on, and the lowest rate that broke.
///
/// Trials must agree because a knee of pooled trials is a throw of dice where p99 is near the limit: with 10 % of noise
/// in p99, knees of two identical arms differed in 12 to 43 % of runs. By simulation, 1,000 runs
/// (test `knees_of_identical_arms…` prints it):
///
/// | trials a rate | noise of p99 | identical arms called different | arm of four times the capacity called higher |
/// |---|---|---|---|
/// | 3 | 10 %, 20 % | 2.4 %, 4.3 % | 99.9 %, 88 % |
/// | 5 | 10 %, 20 % | 0.3 %, 0.6 % | 99.8 %, 85 % |
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Knee {
    /// Lower bound, datagrams per second; `None` if the lowest rate did not hold.
    pub rate_pps: Option<u64>,
    /// Upper bound; `None` if no rate broke, so that the knee may be higher.
    pub beyond_pps: Option<u64>,
    /// Reason for no bounds at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unbounded: Option<KneeDoubt>,
}

/// Reason for a knee without bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum KneeDoubt {
    /// Too few trials a rate.
    FewTrials {
        /// Fewest trials.
        needed: u32,
    },
    /// A rate held above one that broke.
    Flips {
        /// Rate that broke, datagrams per second.
        broke_pps: u64,
        /// Higher rate that held.
        held_pps: u64,
    },
}

fn is_below(one: &Knee, other: &Knee) -> bool {
    one.beyond_pps.zip(other.rate_pps).is_some_and(|(beyond, rate)| beyond <= rate)
}

impl Knee {
    /// Order of this knee beside another one: less or greater only if their bounds do not overlap.
    pub fn beside(&self, other: &Knee) -> Ordering {
        match (is_below(self, other), is_below(other, self)) {
            (true, _) => Ordering::Less,
            (_, true) => Ordering::Greater,
            _ => Ordering::Equal,
        }
    }
}

/// One trial of an arm at one rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoadTrial {
    /// 99th percentile of the round trip, with few samples, too; `None` if it lies among datagrams that were lost or
    /// unsent.
    pub rtt_ns_p99: Option<f64>,
    /// Share of the offered datagrams without an answer, 0.0 to 1.0.
    pub unanswered_share: f64,
}

/// All trials of an arm at one rate, pooled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoadPoint {
    /// Offered rate, datagrams per second.
    pub offered_pps: u64,
    /// Trials.
    pub trial_count: u32,
    /// Of these, trials in which others used more than a tenth of the cores in use. They count.
    pub disturbed_trial_count: u32,
    /// Datagrams that were due.
    pub offered_count: u64,
    /// Of these, datagrams that were sent.
    pub sent_count: u64,
    /// Datagrams whose answer arrived.
    pub received_count: u64,
    /// Datagrams sent whose answer did not arrive.
    pub lost_count: u64,
    /// Datagrams that were due and could not be sent in time.
    pub unsent_count: u64,
    /// Median round trip from the due time; `None` if it is refused.
    pub rtt_ns_p50: Option<f64>,
    /// 99th percentile; `None` if it is refused.
    pub rtt_ns_p99: Option<f64>,
    /// Longest round trip; `None` if any datagram was lost or unsent.
    pub rtt_ns_max: Option<f64>,
    /// CPU time of both ends and of the kernel's threads per packet; `None` without an arrival.
    pub cpu_ns_per_packet: Option<f64>,
    /// Reasons for missing figures.
    pub refused: Vec<String>,
    /// Each trial, in the order of rounds; empty for results of versions that kept none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trials: Vec<LoadTrial>,
}

impl LoadPoint {
    /// Share of the offered datagrams without an answer, 0.0 to 1.0.
    pub fn unanswered_share(&self) -> f64 {
        (self.lost_count + self.unsent_count) as f64 / self.offered_count.max(1) as f64
    }

    /// True if the arm carried the rate.
    pub fn is_carried(&self) -> bool {
        1.0 - self.unanswered_share() >= CARRIED_SHARE_MIN
    }

    /// - `offered_count`: datagrams that all trials offered.
    fn of(offered_pps: u64, offered_count: u64, pool: Pool) -> Self {
        let mut m = pool.measurement;
        let sent_count = m.deliveries.get("forward").map_or(0, |forward| forward.sent_count);
        let received_count =
            m.deliveries.get("return").map_or(0, |back| back.first_arrival_count());
        let received_count = received_count.min(sent_count);
        // From here on an unsent datagram is one that was lost.
        m.deliveries.entry("forward".into()).or_default().sent_count = offered_count;
        let metrics = m.metrics();
        let mut refused = Vec::new();
        let mut figure = |name: &str| {
            let metric = metrics.iter().find(|metric| metric.name == name)?;
            match &metric.value {
                Ok(value) => Some(*value),
                Err(why) => {
                    refused.push(why.clone());
                    None
                }
            }
        };
        LoadPoint {
            offered_pps,
            trial_count: pool.trial_count,
            disturbed_trial_count: pool.disturbed_trial_count,
            offered_count,
            sent_count,
            received_count,
            lost_count: sent_count - received_count,
            unsent_count: offered_count.saturating_sub(sent_count),
            rtt_ns_p50: figure("rtt_ns_p50"),
            rtt_ns_p99: figure("rtt_ns_p99"),
            rtt_ns_max: figure("rtt_ns_max"),
            cpu_ns_per_packet: figure("cpu_ns_per_packet"),
            refused,
            trials: pool.trials,
        }
    }
}

/// Trials of an arm at one rate.
#[derive(Default)]
struct Pool {
    measurement: Measurement,
    trial_count: u32,
    disturbed_trial_count: u32,
    trials: Vec<LoadTrial>,
}

impl Pool {
    /// - `offered_count`: of this trial.
    fn add(&mut self, trial: Measurement, offered_count: u64) {
        self.trials.push(load_trial(&trial, offered_count));
        self.trial_count += 1;
        let others_ns = trial.others_cpu_ns + trial.steal_ns;
        let disturbed = others_ns as f64 > trial.cores_ns as f64 * DISTURBED_SHARE;
        self.disturbed_trial_count += u32::from(disturbed);
        let pool = &mut self.measurement;
        for (direction, delivery) in trial.deliveries {
            *pool.deliveries.entry(direction).or_default() += delivery;
        }
        for (end, cost) in trial.costs {
            let sum = pool.costs.entry(end).or_default();
            sum.user_ns += cost.user_ns;
            sum.system_ns += cost.system_ns;
            let softirq_ns = sum.softirq_ns.unwrap_or(0) + cost.softirq_ns.unwrap_or(0);
            sum.softirq_ns = (softirq_ns > 0).then_some(softirq_ns);
        }
        for (segment, latencies) in trial.segments {
            let all = pool.segments.entry(segment).or_insert_with(crate::latency_histogram);
            // All latencies have one range, so none is left out.
            let added = all.add(&latencies);
            debug_assert!(added.is_ok());
        }
    }
}

fn load_trial(trial: &Measurement, offered_count: u64) -> LoadTrial {
    let answered = trial.deliveries.get("return").map_or(0, |back| back.first_arrival_count());
    let unanswered_share = 1.0 - answered.min(offered_count) as f64 / offered_count.max(1) as f64;
    let rtt_ns_p99 = trial.segments.get("rtt").and_then(|rtt| {
        let quantile = quantile_of_arrived(0.99, unanswered_share)?;
        (!rtt.is_empty()).then(|| rtt.value_at_quantile(quantile) as f64)
    });
    LoadTrial { rtt_ns_p99, unanswered_share }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RateVerdict {
    Held,
    Broke,
    Undecided,
}

/// - `lowest`: the point of the lowest rate.
fn rate_verdict(point: &LoadPoint, lowest: &LoadPoint) -> RateVerdict {
    let first: Vec<f64> =
        lowest.trials.iter().map(|trial| trial.rtt_ns_p99.unwrap_or(f64::INFINITY)).collect();
    let limit_ns = statistics::median(&first).filter(|first| first.is_finite());
    let limit_ns = limit_ns.map(|first| KNEE_P99_RATIO * first);
    let fast_count = point
        .trials
        .iter()
        .filter(|trial| {
            trial.rtt_ns_p99.zip(limit_ns).is_some_and(|(own_ns, limit_ns)| own_ns < limit_ns)
        })
        .count();
    let loses_in_each = point.trials.iter().all(|trial| trial.unanswered_share >= KNEE_LOSS);
    let has_figure = point.rtt_ns_p99.is_some();
    if fast_count == point.trials.len() && has_figure && point.unanswered_share() < KNEE_LOSS {
        RateVerdict::Held
    } else if fast_count == 0 || loses_in_each {
        RateVerdict::Broke
    } else {
        RateVerdict::Undecided
    }
}

pub fn knee(points: &[LoadPoint]) -> Knee {
    let Some(lowest) = points.first() else { return Knee::default() };
    if points.iter().any(|point| point.trials.len() < KNEE_TRIALS_MIN as usize) {
        let unbounded = Some(KneeDoubt::FewTrials { needed: KNEE_TRIALS_MIN });
        return Knee { unbounded, ..Knee::default() };
    }
    let verdicts: Vec<(u64, RateVerdict)> =
        points.iter().map(|point| (point.offered_pps, rate_verdict(point, lowest))).collect();
    let held = verdicts.iter().take_while(|(_, verdict)| *verdict == RateVerdict::Held);
    let rate_pps = held.last().map(|(pps, _)| *pps);
    let broke = verdicts.iter().position(|(_, verdict)| *verdict == RateVerdict::Broke);
    let Some(broke) = broke else {
        return Knee { rate_pps, ..Knee::default() };
    };
    let broke_pps = verdicts[broke].0;
    match verdicts[broke..].iter().find(|(_, verdict)| *verdict == RateVerdict::Held) {
        Some((held_pps, _)) => {
            let unbounded = Some(KneeDoubt::Flips { broke_pps, held_pps: *held_pps });
            Knee { unbounded, ..Knee::default() }
        }
        None => Knee { rate_pps, beyond_pps: Some(broke_pps), unbounded: None },
    }
}

/// Measures the curves of all arms: at each rate every arm that carried the rates before runs in each
/// of several rounds, in seeded random order.
///
/// - `trial`: one trial of an arm at a rate, of [`CurvePlan::offered_count`] datagrams.
/// - `wants_end`: polled before each trial; if true, points with all their trials are returned.
/// - `each`: called after each point.
pub fn load_curve(
    plan: &CurvePlan,
    trial: &mut dyn FnMut(&Arm, u64) -> Result<Measurement, String>,
    wants_end: &dyn Fn() -> bool,
    each: &mut dyn FnMut(&str, &LoadPoint),
) -> Vec<ArmCurve> {
    let mut curves: Vec<ArmCurve> = plan.arms.iter().map(begun).collect();
    let mut running: Vec<usize> =
        (0..curves.len()).filter(|arm| curves[*arm].support.is_yes()).collect();
    let mut round = 0;
    let mut rate_pps = plan.start_pps.max(1);
    let mut is_warm = false;
    while !running.is_empty() && rate_pps <= RATE_PPS_MAX {
        let mut pools: Vec<Pool> = running.iter().map(|_| Pool::default()).collect();
        // The first round is warm-up and does not count.
        for counts in
            std::iter::once(false).filter(|_| !is_warm).chain((0..plan.trials).map(|_| true))
        {
            for place in order(plan.seed, round, running.len()) {
                if wants_end() {
                    return curves;
                }
                let curve = &mut curves[running[place]];
                if matches!(curve.end, CurveEnd::Failed(_)) {
                    continue;
                }
                match trial(&plan.arms[running[place]].0, rate_pps) {
                    Ok(measured) if counts => {
                        pools[place].add(measured, plan.offered_count(rate_pps));
                    }
                    Ok(_) => {}
                    Err(why) => curve.end = CurveEnd::Failed(why),
                }
            }
            round += 1;
        }
        is_warm = true;
        let offered_count = plan.offered_count(rate_pps) * u64::from(plan.trials);
        for (arm, pool) in std::mem::take(&mut running).into_iter().zip(pools) {
            let curve = &mut curves[arm];
            if curve.end != CurveEnd::Unfinished {
                continue;
            }
            let point = LoadPoint::of(rate_pps, offered_count, pool);
            each(&curve.name, &point);
            if point.is_carried() {
                running.push(arm)
            } else {
                curve.end = CurveEnd::NotCarried
            }
            curve.points.push(point);
            curve.knee = knee(&curve.points);
        }
        rate_pps *= 2;
    }
    curves
}

fn begun((arm, support): &(Arm, Support)) -> ArmCurve {
    ArmCurve {
        name: arm.name.clone(),
        kind: arm.kind,
        support: support.clone(),
        points: Vec::new(),
        end: if support.is_yes() { CurveEnd::Unfinished } else { CurveEnd::NotRun },
        knee: Knee::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cost, Delivery, Random};

    const TRIAL_TIME: Duration = Duration::from_millis(100);

    fn plan(names: &[&str]) -> CurvePlan {
        let arms = names.iter().map(|name| (Arm::peer(*name), Support::Yes)).collect();
        CurvePlan { arms, start_pps: 10_000, trial: TRIAL_TIME, trials: 3, seed: 7 }
    }

    /// One trial of `offered` datagrams.
    fn trial(offered: u64, sent: u64, answered: u64, rtt_ns: u64) -> Measurement {
        assert!(answered <= sent && sent <= offered);
        let mut m = Measurement { cores_ns: 100, ..Measurement::default() };
        let delivery = |sent_count, received_count| Delivery {
            sent_count,
            received_count,
            ..Delivery::default()
        };
        m.deliveries.insert("forward".into(), delivery(sent, answered));
        m.deliveries.insert("return".into(), delivery(answered, answered));
        let mut latencies = crate::latency_histogram();
        latencies.record_n(rtt_ns, answered).expect("within the range");
        m.segments.insert("rtt".into(), latencies);
        m.costs.insert("near".into(), Cost { user_ns: 2000 * answered, ..Cost::default() });
        m
    }

    /// An arm that answers in 10 µs up to `fast_pps`, in 50 µs beyond, and so many at most.
    fn server(fast_pps: u64, most_pps: u64) -> impl Fn(&CurvePlan, u64) -> Measurement {
        move |plan, rate_pps| {
            let offered = plan.offered_count(rate_pps);
            let sent = offered.min(plan.offered_count(most_pps));
            trial(offered, sent, sent, if rate_pps <= fast_pps { 10_000 } else { 50_000 })
        }
    }

    fn rates(curve: &ArmCurve) -> Vec<u64> {
        curve.points.iter().map(|point| point.offered_pps).collect()
    }

    #[test]
    fn rates_double_until_an_arm_no_longer_carries_them_and_the_knee_comes_before() {
        let plan = plan(&["slow", "fast"]);
        let (slow, fast) = (server(20_000, 70_000), server(80_000, 170_000));
        let mut said = Vec::new();
        let curves = load_curve(
            &plan,
            &mut |arm, rate| {
                Ok(if arm.name == "slow" { slow(&plan, rate) } else { fast(&plan, rate) })
            },
            &|| false,
            &mut |name, point| said.push((name.to_owned(), point.offered_pps)),
        );
        assert_eq!(rates(&curves[0]), [10_000, 20_000, 40_000, 80_000]);
        assert_eq!(rates(&curves[1]), [10_000, 20_000, 40_000, 80_000, 160_000, 320_000]);
        assert_eq!(said.len(), 10);
        let knee = |rate_pps, beyond_pps| Knee {
            rate_pps: Some(rate_pps),
            beyond_pps: Some(beyond_pps),
            unbounded: None,
        };
        assert_eq!(curves[0].knee, knee(20_000, 40_000));
        assert_eq!(curves[1].knee, knee(80_000, 160_000));
        let last = curves[0].points.last().expect("a point");
        assert_eq!(
            (last.offered_count, last.sent_count, last.unsent_count),
            (24_000, 21_000, 3000)
        );
        assert_eq!((last.lost_count, last.trial_count), (0, 3));
        assert_eq!(curves[0].end, CurveEnd::NotCarried);
    }

    #[test]
    fn quantiles_among_datagrams_that_were_lost_or_unsent_are_refused() {
        let point = |sent, answered| {
            let mut pool = Pool::default();
            pool.add(trial(10_000, sent, answered, 5000), 10_000);
            LoadPoint::of(100_000, 10_000, pool)
        };
        let whole = point(10_000, 10_000);
        assert!(whole.rtt_ns_max.is_some() && whole.refused.is_empty(), "{whole:?}");
        // A packet and its answer: half of 2 µs each.
        assert_eq!(whole.cpu_ns_per_packet, Some(1000.0));
        for few in [point(9950, 9950), point(10_000, 9950)] {
            assert!(few.rtt_ns_p99.is_some() && few.rtt_ns_max.is_none(), "{few:?}");
        }
        for some in [point(9850, 9850), point(10_000, 9850), point(9950, 9800)] {
            assert!(some.rtt_ns_p50.is_some() && some.rtt_ns_p99.is_none(), "{some:?}");
            assert!(some.refused.iter().any(|why| why.contains("infinitely late")), "{some:?}");
        }
        let none = point(0, 0);
        assert_eq!(
            (none.unsent_count, none.rtt_ns_p50, none.cpu_ns_per_packet),
            (10_000, None, None)
        );
    }

    #[test]
    fn arm_that_fails_ends_and_the_others_go_on() {
        let plan = plan(&["broken", "whole"]);
        let whole = server(20_000, 30_000);
        let curves = load_curve(
            &plan,
            &mut |arm, rate| match arm.name.as_str() {
                "broken" if rate > 10_000 => Err("queue busy".into()),
                _ => Ok(whole(&plan, rate)),
            },
            &|| false,
            &mut |_, _| {},
        );
        assert_eq!(curves[0].end, CurveEnd::Failed("queue busy".into()));
        assert_eq!((curves[0].points.len(), curves[1].points.len()), (1, 3));
        assert_eq!(curves[0].knee, Knee { rate_pps: Some(10_000), ..Knee::default() });
    }

    #[test]
    fn interrupted_run_has_whole_points_only_and_an_arm_without_support_none() {
        let mut plan = plan(&["one", "two", "absent"]);
        plan.arms[2].1 = Support::unsupported("it", "a kernel");
        let one = server(1 << 40, 1 << 40);
        let count = std::cell::Cell::new(0);
        let curves = load_curve(
            &plan,
            &mut |_, rate| {
                count.set(count.get() + 1);
                Ok(one(&plan, rate))
            },
            // Two of warm-up, six at the first rate, and one more.
            &|| count.get() == 9,
            &mut |_, _| {},
        );
        let points: Vec<usize> = curves.iter().map(|curve| curve.points.len()).collect();
        assert_eq!(points, [1, 1, 0]);
        assert_eq!((&curves[0].end, &curves[2].end), (&CurveEnd::Unfinished, &CurveEnd::NotRun));
    }

    #[test]
    fn order_of_arms_is_that_of_the_seed() {
        let orders = |seed| {
            let plan = CurvePlan { seed, ..plan(&["a", "b", "c", "d"]) };
            let mut seen = Vec::new();
            let most = server(20_000, 20_000);
            load_curve(
                &plan,
                &mut |arm, rate| {
                    seen.push(arm.name.clone());
                    Ok(most(&plan, rate))
                },
                &|| false,
                &mut |_, _| {},
            );
            seen
        };
        assert_eq!(orders(1), orders(1));
        assert_ne!(orders(1), orders(2));
    }

    /// A point whose trials have these p99, nanoseconds, and lost so many of a thousand each.
    fn point(offered_pps: u64, p99_ns: &[f64], lost_count: u64) -> LoadPoint {
        let trials = p99_ns.iter().map(|p99_ns| LoadTrial {
            rtt_ns_p99: Some(*p99_ns),
            unanswered_share: lost_count as f64 / 1000.0,
        });
        let mut point = LoadPoint::of(offered_pps, 1000 * p99_ns.len() as u64, Pool::default());
        point.rtt_ns_p99 = crate::statistics::median(p99_ns);
        (point.unsent_count, point.lost_count) = (0, lost_count * p99_ns.len() as u64);
        point.trials = trials.collect();
        point
    }

    #[test]
    fn trials_that_disagree_widen_the_bounds_and_rates_that_flip_have_none() {
        let bounds = |points: &[LoadPoint]| {
            let knee = knee(points);
            (knee.rate_pps, knee.beyond_pps, knee.unbounded)
        };
        let (low, high) = ([10.0; 3], [30.0; 3]);
        let mixed = [10.0, 30.0, 10.0];
        let curve = [point(1, &low, 0), point(2, &mixed, 0), point(4, &high, 0)];
        assert_eq!(bounds(&curve), (Some(1), Some(4), None));
        assert_eq!(bounds(&curve[..2]), (Some(1), None, None), "never broke");
        let flips = Some(KneeDoubt::Flips { broke_pps: 2, held_pps: 4 });
        assert_eq!(
            bounds(&[point(1, &low, 0), point(2, &high, 0), point(4, &low, 0)]),
            (None, None, flips)
        );
        let few = Some(KneeDoubt::FewTrials { needed: KNEE_TRIALS_MIN });
        assert_eq!(bounds(&[point(1, &low, 0), point(2, &high[..1], 0)]), (None, None, few));
        assert_eq!(bounds(&[point(1, &low, 5), point(2, &low, 5)]), (None, Some(1), None), "loses");
    }

    #[test]
    fn knees_differ_only_if_their_bounds_do_not_overlap() {
        let knee = |rate_pps, beyond_pps| Knee { rate_pps, beyond_pps, unbounded: None };
        let base = knee(Some(20), Some(40));
        assert_eq!(knee(Some(40), Some(80)).beside(&base), Ordering::Greater);
        assert_eq!(knee(Some(80), None).beside(&base), Ordering::Greater);
        assert_eq!(knee(None, Some(20)).beside(&base), Ordering::Less);
        for same in [knee(Some(20), Some(80)), knee(Some(10), Some(40)), Knee::default(), base] {
            assert_eq!(same.beside(&base), Ordering::Equal, "{same:?}");
        }
    }

    /// Knee of an arm that answers in 10 µs of an idle path and carries `capacity_pps`, with noise in each p99.
    fn simulated(random: &mut Random, capacity_pps: f64, noise: f64, trials: usize) -> Knee {
        let mut points = Vec::new();
        for rate in (0..12).map(|doubled| 1000u64 << doubled) {
            let load = rate as f64 / capacity_pps;
            if load >= 1.0 {
                points.push(point(rate, &vec![1e9; trials], 300));
                break;
            }
            let p99 = |_| 10_000.0 / (1.0 - load) * (noise * random.normal()).exp();
            points.push(point(rate, &(0..trials).map(p99).collect::<Vec<f64>>(), 0));
        }
        knee(&points)
    }

    /// `cargo test -p wirepath-model --lib knees_of -- --nocapture` prints a table.
    #[test]
    fn knees_of_identical_arms_are_seldom_called_different_and_far_ones_are() {
        const RUNS: u64 = 1000;
        eprintln!(
            "| trials | noise of p99 | identical, called different | 4 times the capacity, called higher | bounds a factor of 2 |"
        );
        for (trials, noise) in [(3, 0.1), (3, 0.2), (5, 0.1), (5, 0.2)] {
            let (mut differ, mut found, mut narrow) = (0, 0, 0);
            for seed in 0..RUNS {
                let mut random = Random::new(seed, trials as u64);
                // Anywhere between two rates.
                let capacity_pps = 40_000.0 * 2f64.powf(random.unit());
                let arm = |capacity_pps, random: &mut Random| {
                    simulated(random, capacity_pps, noise, trials)
                };
                let (one, other) = (arm(capacity_pps, &mut random), arm(capacity_pps, &mut random));
                let far = arm(4.0 * capacity_pps, &mut random);
                differ += u64::from(one.beside(&other) != Ordering::Equal);
                found += u64::from(far.beside(&one) == Ordering::Greater);
                narrow += u64::from(one.rate_pps.map(|pps| pps * 2) == one.beyond_pps);
            }
            let percent = |count: u64| 100.0 * count as f64 / RUNS as f64;
            eprintln!(
                "| {trials} | {:.0} % | {:.1} % | {:.1} % | {:.1} % |",
                noise * 100.0,
                percent(differ),
                percent(found),
                percent(narrow)
            );
            assert!(differ <= RUNS / 20, "{trials} {noise}: {differ}");
            assert!(found >= RUNS * 8 / 10, "{trials} {noise}: {found}");
        }
    }
}
