//! Search for the best set of switches (`--arms best`).
//!
//! The search only proposes a set: it adds the best switch, again and again. The set, and the set without
//! each of its members, are then measured in an experiment of their own, whose trials the search never
//! saw; their intervals are therefore not biased by the choice. A member without which the set is not
//! worse is dropped, and the rest is measured anew.

use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use crate::statistics::{self, Comparison, LEVEL};
use crate::{
    Arm, Better, Clock, Outcome, Support, SwitchId, SwitchSet, Trials, Verdict, always_valid, order,
};

/// Most blocks of one stage.
const BLOCKS_MAX: usize = 16;

/// Blocks after which a stage ends if its leader is shown to be better.
const BLOCKS_MIN: usize = 8;

/// Blocks after which a candidate ends that was far behind the leader in each of them, and a stage without any figure.
const BLOCKS_FAR_BEHIND: usize = 3;

/// Ratio to the leader below which a candidate is never far behind, as noise reaches it in three blocks.
const FAR_BEHIND_MIN: f64 = 1.10;

/// The search behind the arms of an experiment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Search {
    /// The set that is recommended, in the path's order.
    pub set: Vec<String>,
    /// Metric that decided.
    pub metric: String,
    /// Sets that were tried.
    pub candidates: u32,
    /// Trials of the search; none of them counts in the experiment.
    pub trials: u32,
    /// Switches added and dropped, in order.
    pub steps: Vec<SearchStep>,
    /// True if the time was over before no further switch helped.
    pub out_of_time: bool,
}

/// One change of the set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SearchStep {
    /// The switch.
    pub switch: String,
    /// True if it was added, false if the set without it was not worse.
    pub added: bool,
    /// The larger set over the smaller one, by the metric; of an addition, the estimate that chose it, which
    /// is too good on average.
    pub ratio: Option<f64>,
}

/// A member of a measured set: the set over the set without it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Member {
    /// The switch.
    pub switch: String,
    /// Median ratio, the set over the set without it.
    pub ratio: Option<f64>,
    /// Lower end of its 95 % interval.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Better if the set is worse without it.
    pub verdict: Verdict,
}

pub struct SearchPlan<'a> {
    /// Switches of the path.
    pub switches: &'a [SwitchId],
    pub metric: &'a str,
    pub seed: u64,
    /// Time of the clock at which it ends, nanoseconds.
    pub until_ns: u64,
}

/// Trials of a first stage with so many candidates: a warm-up of each and its blocks, with a clear winner and
/// without one. Candidates that end early make it fewer.
pub fn first_stage_trials(candidates: usize) -> [u32; 2] {
    [BLOCKS_MIN, BLOCKS_MAX].map(|blocks| ((candidates + 1) * (blocks + 1)) as u32)
}

/// Adds the best switch to the set until none helps, the time is over or `stop` is set.
///
/// - `support`: asked once for each set whether it can run here.
/// - `next`: called before each trial with the set that is tried.
pub fn search(
    plan: &SearchPlan<'_>,
    support: &mut dyn FnMut(&Arm) -> Support,
    trials: &mut dyn Trials,
    clock: &dyn Clock,
    stop: &AtomicBool,
    next: &mut dyn FnMut(&Arm),
) -> Search {
    let mut found = Search { metric: plan.metric.to_owned(), ..Search::default() };
    let mut set = SwitchSet::default();
    loop {
        let with = |switch: &SwitchId| {
            let mut more = set.clone();
            more.insert(switch.clone());
            Arm::with(more.iter().cloned())
        };
        let missing = plan.switches.iter().filter(|s| !set.contains(s));
        let candidates: Vec<(SwitchId, Arm)> = missing
            .map(|switch| (switch.clone(), with(switch)))
            .filter(|(_, arm)| support(arm).is_yes())
            .collect();
        if candidates.is_empty() {
            break;
        }
        found.candidates += candidates.len() as u32;
        let mut arms = vec![Arm::with(set.iter().cloned())];
        arms.extend(candidates.iter().map(|(_, arm)| arm.clone()));
        let seed = plan.seed.wrapping_add(u64::from(found.candidates) << 32);
        let mut race = Race::new(arms, seed);
        let ended = race.run(plan, trials, clock, stop, next);
        found.trials += race.trials;
        match race.winner() {
            Some((winner, ratio)) => {
                let (id, _) = &candidates[winner - 1];
                let switch = id.to_string();
                found.steps.push(SearchStep { switch, added: true, ratio: Some(ratio) });
                set.insert(id.clone());
            }
            None if ended => break,
            None => {}
        }
        if !ended {
            found.out_of_time = true;
            break;
        }
    }
    let is_in = |switch: &&SwitchId| set.contains(switch);
    found.set = plan.switches.iter().filter(is_in).map(SwitchId::to_string).collect();
    found
}

/// Arms of the experiment that measures a set: both baselines, the set, and the set without each member.
///
/// - `switches`: of the path.
/// - `support`: as for [`crate::arms()`].
pub fn confirming_arms(
    set: &[String],
    switches: &[SwitchId],
    support: &mut dyn FnMut(&Arm) -> Support,
) -> Vec<(Arm, Support)> {
    let is_member = |switch: &&SwitchId| set.iter().any(|id| id == switch.as_str());
    let members: SwitchSet = switches.iter().filter(is_member).cloned().collect();
    let mut arms = vec![Arm::baseline(), Arm::control()];
    if !members.is_empty() {
        arms.push(Arm::with(members.iter().cloned()));
    }
    if members.iter().count() > 1 {
        arms.extend(members.iter().map(|id| Arm::with(members.without(id).iter().cloned())));
    }
    arms.into_iter().map(|arm| (support(&arm), arm)).map(|(support, arm)| (arm, support)).collect()
}

impl Outcome {
    /// Worth of each member of the set that the search found; empty without a search.
    pub fn members(&self) -> Vec<Member> {
        let Some(search) = &self.search else { return Vec::new() };
        let of = |set: &[&String]| {
            self.arms.iter().find(|arm| {
                arm.kind != crate::ArmKind::Control
                    && arm.switches.len() == set.len()
                    && set.iter().all(|id| arm.switches.contains(id))
            })
        };
        let all: Vec<&String> = search.set.iter().collect();
        let member = |id: &String| {
            let rest: Vec<&String> = search.set.iter().filter(|other| *other != id).collect();
            let step = of(&rest)
                .zip(of(&all))
                .and_then(|(rest, all)| self.step(rest, all, &search.metric));
            let interval = step.as_ref().and_then(|(step, _)| step.interval);
            Member {
                switch: id.clone(),
                ratio: step.as_ref().map(|(step, _)| step.ratio),
                low: interval.map(|interval| interval.low),
                high: interval.map(|interval| interval.high),
                // A set that cannot run without this member needs it.
                verdict: match (step, of(&rest)) {
                    (Some((_, verdict)), _) => verdict,
                    (None, Some(rest)) if !rest.support.is_yes() => Verdict::Unsupported,
                    (None, _) => Verdict::Inconclusive,
                },
            }
        };
        search.set.iter().map(member).collect()
    }

    /// The member to drop: the least useful of those without which the set is not worse; `None` if all are
    /// needed.
    pub fn idle_member(&self) -> Option<Member> {
        let is_idle = |m: &Member| !matches!(m.verdict, Verdict::Better | Verdict::Unsupported);
        let metric = self.arms.first()?.metrics.get(&self.search.as_ref()?.metric)?;
        let gain = |member: &Member| match (member.ratio, metric.better) {
            (None, _) => f64::NEG_INFINITY,
            (Some(ratio), Better::Lower) => -ratio.ln(),
            (Some(ratio), Better::Higher) => ratio.ln(),
        };
        let idle = self.members().into_iter().filter(is_idle);
        idle.min_by(|a, b| gain(a).total_cmp(&gain(b)))
    }
}

/// One stage: the present set, in place 0, and each candidate, block by block.
struct Race {
    arms: Vec<Arm>,
    seed: u64,
    /// Logarithms by arm and block, negated if more is better; infinite if the trial failed.
    values: Vec<Vec<f64>>,
    /// Arms that still run.
    running: Vec<bool>,
    trials: u32,
}

impl Race {
    fn new(arms: Vec<Arm>, seed: u64) -> Self {
        let count = arms.len();
        let (values, running) = (vec![Vec::new(); count], vec![true; count]);
        Race { arms, seed, values, running, trials: 0 }
    }

    /// Returns true if the stage came to its end, false if time or the user ended it.
    fn run(
        &mut self,
        plan: &SearchPlan<'_>,
        trials: &mut dyn Trials,
        clock: &dyn Clock,
        stop: &AtomicBool,
        next: &mut dyn FnMut(&Arm),
    ) -> bool {
        for block in 0..=BLOCKS_MAX {
            for at in order(self.seed, block as u32, self.arms.len()) {
                if stop.load(Ordering::Relaxed) || clock.elapsed_ns() >= plan.until_ns {
                    return false;
                }
                if !self.running[at] {
                    continue;
                }
                next(&self.arms[at]);
                let measured = trials.trial(&self.arms[at]);
                self.trials += 1;
                // Block 0 is the warm-up.
                if block > 0 {
                    let value = measured.ok().and_then(|m| {
                        let metric = m.metrics().into_iter().find(|of| of.name == plan.metric)?;
                        let log = metric.value.ok()?.ln();
                        Some(if metric.better == Better::Higher { -log } else { log })
                    });
                    self.values[at]
                        .push(value.filter(|log| log.is_finite()).unwrap_or(f64::INFINITY));
                }
            }
            self.drop_hopeless();
            let has_failed = self.values.iter().flatten().all(|log| *log == f64::INFINITY);
            if block >= BLOCKS_FAR_BEHIND && has_failed {
                break;
            }
            let is_decided = block >= BLOCKS_MIN && self.winner().is_some();
            if is_decided || self.running.iter().skip(1).all(|runs| !runs) {
                break;
            }
        }
        true
    }

    /// Log-ratios of one arm over another in the blocks that both have.
    fn ratios(&self, of: usize, over: usize) -> Vec<f64> {
        let pairs = self.values[of].iter().zip(&self.values[over]);
        pairs.map(|(of, over)| if of == over { 0.0 } else { of - over }).collect()
    }

    fn against_present(&self, at: usize) -> Option<Comparison> {
        statistics::compare(&self.ratios(at, 0), LEVEL)
    }

    /// The running candidate with the best ratio to the present set.
    fn leader(&self) -> Option<(usize, Comparison)> {
        let running = (1..self.arms.len()).filter(|at| self.running[*at]);
        let compared = running.filter_map(|at| Some((at, self.against_present(at)?)));
        compared.min_by(|a, b| a.1.ratio.total_cmp(&b.1.ratio))
    }

    /// The leader and its ratio, if it is shown to be better than the present set. Not corrected for the
    /// number of candidates: a wrong choice is dropped by the experiment that follows.
    fn winner(&self) -> Option<(usize, f64)> {
        let (at, comparison) = self.leader()?;
        let is_better = comparison.interval.is_some_and(|interval| interval.high < 1.0);
        (is_better && comparison.p < 1.0 - LEVEL).then_some((at, comparison.ratio))
    }

    /// Ends arms that an interval valid at every block shows to be behind the leader, and those that were behind by
    /// more than half of its gain, and by more than [`FAR_BEHIND_MIN`], in each of the first blocks. Only the
    /// leader joins the set; the others are tried again beside it.
    fn drop_hopeless(&mut self) {
        let Some((leader, comparison)) = self.leader() else { return };
        let far = (-comparison.ratio.ln() / 2.0).max(FAR_BEHIND_MIN.ln());
        for at in (1..self.arms.len()).filter(|at| *at != leader) {
            let behind = self.ratios(at, leader);
            let is_far_behind =
                behind.len() >= BLOCKS_FAR_BEHIND && behind.iter().all(|by| *by > far);
            let interval = always_valid::interval(&behind, 1.0 - LEVEL);
            if is_far_behind || interval.is_some_and(|(low, _)| low > 0.0) {
                self.running[at] = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::tests::Virtual;
    use crate::{FakeSource, FakeSwitch, FakeWorld, Measurement, PathSwitch, ids};

    struct Fake<'a>(FakeSource, &'a Virtual);

    impl Trials for Fake<'_> {
        fn trial(&mut self, arm: &Arm) -> Result<Measurement, String> {
            let measurement = self.0.trial(arm);
            self.1.0.set(self.0.now_ns());
            Ok(measurement)
        }
    }

    fn found(seed: u64, until_s: u64) -> Search {
        let clock = Virtual::default();
        let world = FakeWorld { seed, noise: 0.02, samples: 500, ..FakeWorld::default() };
        let mut fake = Fake(FakeSource::new(world), &clock);
        let plan = SearchPlan {
            switches: &ids(FakeSwitch::SPECS),
            metric: "rtt_ns_p50",
            seed,
            until_ns: until_s * 1_000_000_000,
        };
        let stop = AtomicBool::new(false);
        search(&plan, &mut FakeSource::support, &mut fake, &clock, &stop, &mut |_| {})
    }

    #[test]
    fn what_helps_is_found_and_what_harms_is_not() {
        for seed in 0..10 {
            let found = found(seed, 600);
            assert_eq!(found.set.first().map(String::as_str), Some("fast"), "{found:?}");
            assert!(!found.set.iter().any(|id| id == "harmful"), "{found:?}");
            assert!(!found.out_of_time, "{found:?}");
            assert_eq!((&found.metric[..], &found.steps[0].switch[..]), ("rtt_ns_p50", "fast"));
            assert!((0.6..0.8).contains(&found.steps[0].ratio.unwrap()), "{found:?}");
            assert!(found.candidates >= 4 && found.trials >= 40, "{found:?}");
        }
    }

    #[test]
    fn without_time_nothing_is_found_and_that_is_said() {
        let found = found(1, 0);
        assert!(found.out_of_time && found.set.is_empty() && found.trials == 0, "{found:?}");
    }

    #[test]
    fn a_search_without_any_figure_ends_soon() {
        struct Failing;
        impl Trials for Failing {
            fn trial(&mut self, _: &Arm) -> Result<Measurement, String> {
                Err("the client ended with 1".into())
            }
        }
        let (clock, stop) = (Virtual::default(), AtomicBool::new(false));
        let plan = SearchPlan {
            switches: &ids(FakeSwitch::SPECS),
            metric: "rtt_ns_p50",
            seed: 1,
            until_ns: u64::MAX,
        };
        let yes = &mut FakeSource::support;
        let found = search(&plan, yes, &mut Failing, &clock, &stop, &mut |_| {});
        assert!(found.set.is_empty() && !found.out_of_time, "{found:?}");
        assert_eq!(found.trials, (found.candidates + 1) * (BLOCKS_FAR_BEHIND + 1) as u32);
    }

    #[test]
    fn a_first_stage_with_a_clear_winner_needs_no_more_trials_than_said() {
        let candidates = found(0, 0).candidates as usize;
        let [most, _] = first_stage_trials(candidates);
        for seed in 0..5 {
            let (clock, stop) = (Virtual::default(), AtomicBool::new(false));
            let world = FakeWorld { seed, noise: 0.005, samples: 500, ..FakeWorld::default() };
            let mut fake = Fake(FakeSource::new(world), &clock);
            let switches = ids(FakeSwitch::SPECS);
            let alone = switches.iter().map(|id| Arm::with([id.clone()]));
            let arms: Vec<Arm> = [Arm::baseline()].into_iter().chain(alone).collect();
            let arms: Vec<Arm> =
                arms.into_iter().filter(|arm| FakeSource::support(arm).is_yes()).collect();
            assert_eq!(arms.len(), candidates + 1);
            let mut race = Race::new(arms, seed);
            let plan =
                SearchPlan { switches: &switches, metric: "rtt_ns_p50", seed, until_ns: u64::MAX };
            assert!(race.run(&plan, &mut fake, &clock, &stop, &mut |_| {}));
            assert!(race.winner().is_some() && race.trials <= most, "{} {most}", race.trials);
        }
    }

    #[test]
    fn hopeless_candidates_end_early() {
        let (clock, stop) = (Virtual::default(), AtomicBool::new(false));
        let world = FakeWorld { seed: 3, noise: 0.005, samples: 500, ..FakeWorld::default() };
        let mut fake = Fake(FakeSource::new(world), &clock);
        let arms = [FakeSwitch::Nothing, FakeSwitch::Fast, FakeSwitch::Harmful];
        let mut race =
            Race::new([vec![Arm::baseline()], arms.map(|id| Arm::with([id])).into()].concat(), 3);
        let plan = SearchPlan {
            switches: &ids(FakeSwitch::SPECS),
            metric: "rtt_ns_p50",
            seed: 3,
            until_ns: u64::MAX,
        };
        assert!(race.run(&plan, &mut fake, &clock, &stop, &mut |_| {}));
        assert_eq!(race.winner().map(|(at, _)| at), Some(2));
        assert_eq!(race.running, [true, false, true, false]);
        // Far behind in each of three blocks; the winner had to be shown to be one.
        let blocks = |at: usize| race.values[at].len();
        assert_eq!([blocks(1), blocks(2), blocks(3)], [3, BLOCKS_MIN, 3]);
    }

    #[test]
    fn candidate_that_is_nearly_as_good_is_not_called_far_behind() {
        let arms = [FakeSwitch::Nothing, FakeSwitch::Fast].map(|id| Arm::with([id]));
        let mut race = Race::new([vec![Arm::baseline()], arms.into()].concat(), 1);
        // Logarithms: the leader gains 0.30, the other in one of its blocks 0.16.
        race.values = vec![vec![0.0; 3], vec![-0.14, -0.16, -0.14], vec![-0.3; 3]];
        race.drop_hopeless();
        assert_eq!(race.running, [true, true, true]);
        race.values[1][1] = -0.14;
        race.drop_hopeless();
        assert_eq!(race.running, [true, false, true]);
        // A gain that may be noise ends no other candidate so early.
        let mut race = Race { running: vec![true; 3], ..race };
        race.values = vec![vec![0.0; 3], vec![0.0, 0.01, 0.0], vec![-0.08; 3]];
        race.drop_hopeless();
        assert_eq!(race.running, [true, true, true]);
    }
}
