//! Latency against load: offered rates double until an arm no longer carries them.
//!
//! Lost datagrams count as infinitely late, and so do those that an end could not send in time: a
//! closed loop would leave both out and show the latency of an idle path (coordinated omission).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Arm, ArmKind, Machine, Measurement, Support, order};

/// An arm carries a rate if at least this share of the offered datagrams was answered.
pub const CARRIED_SHARE_MIN: f64 = 0.98;
/// Below the knee p99 stays below this multiple of its value at the lowest rate.
pub const KNEE_P99_RATIO: f64 = 2.0;
/// Below the knee a smaller share than this of the offered datagrams is lost or unsent.
pub const KNEE_LOSS: f64 = 0.001;
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

/// Rates on both sides of the knee.
///
/// The rate of the knee is the highest of an unbroken sequence of rates, from the lowest on, at which
/// p99 is known and below [`KNEE_P99_RATIO`] times its value at the lowest rate, and less than
/// [`KNEE_LOSS`] of the offered datagrams was lost or unsent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Knee {
    /// Highest rate within the rule, datagrams per second; `None` if the lowest rate broke it.
    pub rate_pps: Option<u64>,
    /// Lowest rate that broke the rule; `None` if none did, so that the knee may be higher.
    pub beyond_pps: Option<u64>,
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
        }
    }
}

/// Trials of an arm at one rate.
#[derive(Default)]
struct Pool {
    measurement: Measurement,
    trial_count: u32,
    disturbed_trial_count: u32,
}

impl Pool {
    fn add(&mut self, trial: Measurement) {
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

pub fn knee(points: &[LoadPoint]) -> Knee {
    let mut knee = Knee::default();
    let lowest_ns = points.first().and_then(|point| point.rtt_ns_p99);
    for point in points {
        let is_fast = lowest_ns
            .zip(point.rtt_ns_p99)
            .is_some_and(|(lowest_ns, p99_ns)| p99_ns < KNEE_P99_RATIO * lowest_ns);
        if !is_fast || point.unanswered_share() >= KNEE_LOSS {
            return Knee { beyond_pps: Some(point.offered_pps), ..knee };
        }
        knee.rate_pps = Some(point.offered_pps);
    }
    knee
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
                    Ok(measured) if counts => pools[place].add(measured),
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
            match point.is_carried() {
                true => running.push(arm),
                false => curve.end = CurveEnd::NotCarried,
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
    use proptest::prelude::*;

    use super::*;
    use crate::{Cost, Delivery};

    const TRIAL: Duration = Duration::from_millis(100);

    fn plan(names: &[&str]) -> CurvePlan {
        let arm = |name: &&str| (Arm::peer(*name), Support::Yes);
        let arms = names.iter().map(arm).collect();
        CurvePlan { arms, start_pps: 10_000, trial: TRIAL, trials: 3, seed: 7 }
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
        let rates = |curve: &ArmCurve| -> Vec<u64> {
            curve.points.iter().map(|point| point.offered_pps).collect()
        };
        assert_eq!(rates(&curves[0]), [10_000, 20_000, 40_000, 80_000]);
        assert_eq!(rates(&curves[1]), [10_000, 20_000, 40_000, 80_000, 160_000, 320_000]);
        assert_eq!(said.len(), 10);
        let knee =
            |rate_pps, beyond_pps| Knee { rate_pps: Some(rate_pps), beyond_pps: Some(beyond_pps) };
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
            pool.add(trial(10_000, sent, answered, 5000));
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
        assert_eq!(curves[0].knee, Knee { rate_pps: Some(10_000), beyond_pps: None });
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

    proptest! {
        /// Every rate up to the knee satisfies the rule, and the next one breaks it.
        #[test]
        fn knee_is_the_end_of_the_unbroken_sequence(
            points in proptest::collection::vec((proptest::option::of(1u32..100), 0u64..3), 0..12)
        ) {
            let point = |(place, (p99, lost)): (usize, &(Option<u32>, u64))| {
                let mut point = LoadPoint::of(1 << place, 1000, Pool::default());
                (point.lost_count, point.unsent_count) = (*lost, 0);
                point.rtt_ns_p99 = p99.map(f64::from);
                point
            };
            let points: Vec<LoadPoint> = points.iter().enumerate().map(point).collect();
            let within = |point: &LoadPoint| {
                point.lost_count < 1
                    && point.rtt_ns_p99.zip(points[0].rtt_ns_p99).is_some_and(|(own, first)| own < 2.0 * first)
            };
            let found = knee(&points);
            let held = points.iter().take_while(|point| within(point)).count();
            prop_assert_eq!(found.rate_pps, held.checked_sub(1).map(|last| points[last].offered_pps));
            prop_assert_eq!(found.beyond_pps, points.get(held).map(|point| point.offered_pps));
        }
    }
}
