//! Search for the best set of switches (`--arms best`).
//!
//! The search only proposes a set: it adds the best switch, again and again. The set, and the set without
//! each of its members, are then measured in an experiment of their own, whose trials the search never
//! saw; their intervals are therefore not biased by the choice. A member that is not shown to matter is dropped, and
//! the rest is measured anew.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::statistics::{self, Comparison, LEVEL};
use crate::{
    Arm, ArmKind, ArmOutcome, Better, Clock, Member, Outcome, Search, SearchStep, Support,
    SwitchId, SwitchSet, Trials, Verdict, always_valid, order,
};

/// Most blocks of one stage.
const BLOCKS_MAX: usize = 16;

/// Blocks after which a stage ends if its leader is shown to be better.
const BLOCKS_MIN: usize = 8;

/// Blocks after which a candidate ends that was far behind the leader in each of them, and a stage without any figure.
const BLOCKS_FAR_BEHIND: usize = 3;

/// Candidates whose pairs are tried: six pairs.
const PAIRED_MAX: usize = 4;

/// Ratio to the leader below which a candidate is never far behind, as noise reaches it in three blocks.
const FAR_BEHIND_MIN: f64 = 1.10;

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

/// Adds the best switch to the set until none helps, the time is over or `stop` is set. Once none helps by itself,
/// pairs of the leading candidates are tried, once; if one helps, the search goes on beside it.
///
/// - `support`: asked for each set whether it can run here.
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
    let mut stage = |arms: Vec<Arm>, family: usize, found: &mut Search| {
        found.candidates += arms.len() as u32 - 1;
        let seed = plan.seed.wrapping_add(u64::from(found.candidates) << 32);
        let mut race = Race { family, ..Race::new(arms, seed) };
        found.out_of_time = !race.run(plan, trials, clock, stop, next);
        found.trials += race.trials;
        race
    };
    let mut has_tried_pairs = false;
    let mut single = candidates(plan, &set, support);
    while !single.is_empty() {
        let arms = arms_beside(&set, single.iter().map(|id| vec![id.clone()]));
        let race = stage(arms, 1, &mut found);
        let mut added = race.winner().map(|(at, ratio)| (vec![single[at - 1].clone()], ratio));
        if added.is_none() && !found.out_of_time && !has_tried_pairs && race.has_figure() {
            has_tried_pairs = true;
            let pairs = leading_pairs(&race, &single);
            let pairs: Vec<Vec<SwitchId>> = pairs
                .into_iter()
                .filter(|pair| support(&arm_beside(&set, pair)).is_yes())
                .collect();
            if !pairs.is_empty() {
                let arms = arms_beside(&set, pairs.iter().cloned());
                let race = stage(arms, pairs.len(), &mut found);
                let tried = (0..pairs.len()).filter(|at| !race.values[at + 1].is_empty());
                found.pairs = tried.map(|at| names_of(&pairs[at][0], &pairs[at][1])).collect();
                added = race.winner().map(|(at, ratio)| (pairs[at - 1].clone(), ratio));
            }
        }
        let Some((switches, ratio)) = added else { break };
        let switch = switches.iter().map(SwitchId::as_str).collect::<Vec<_>>().join("+");
        found.steps.push(SearchStep { switch, added: true, ratio: Some(ratio) });
        switches.into_iter().for_each(|id| set.insert(id));
        if found.out_of_time {
            break;
        }
        single = candidates(plan, &set, support);
    }
    let is_in = |switch: &&SwitchId| set.contains(switch);
    found.set = plan.switches.iter().filter(is_in).map(SwitchId::to_string).collect();
    let beside = candidates(plan, &set, support);
    let all = (0..beside.len()).flat_map(|at| (at + 1..beside.len()).map(move |other| (at, other)));
    let all = all.map(|(at, other)| names_of(&beside[at], &beside[other]));
    found.untried_pairs = all.filter(|pair| !found.pairs.contains(pair)).collect();
    found
}

/// Switches that can join a set here.
fn candidates(
    plan: &SearchPlan<'_>,
    set: &SwitchSet,
    support: &mut dyn FnMut(&Arm) -> Support,
) -> Vec<SwitchId> {
    let missing = plan.switches.iter().filter(|id| !set.contains(id));
    missing
        .filter(|id| support(&arm_beside(set, std::slice::from_ref(*id))).is_yes())
        .cloned()
        .collect()
}

/// The set with more switches.
fn arm_beside(set: &SwitchSet, more: &[SwitchId]) -> Arm {
    Arm::with(set.iter().chain(more).cloned())
}

/// Arms of a stage: the set itself, and the set with each of these.
fn arms_beside(set: &SwitchSet, each: impl Iterator<Item = Vec<SwitchId>>) -> Vec<Arm> {
    let with = each.map(|more| arm_beside(set, &more));
    std::iter::once(Arm::with(set.iter().cloned())).chain(with).collect()
}

fn names_of(one: &SwitchId, other: &SwitchId) -> [String; 2] {
    [one.to_string(), other.to_string()]
}

/// Pairs of the candidates with the best ratios to the present set, each pair in the path's order.
fn leading_pairs(race: &Race, candidates: &[SwitchId]) -> Vec<Vec<SwitchId>> {
    let ratio = |at: usize| race.against_present(at + 1).map_or(f64::INFINITY, |it| it.ratio);
    let mut leading: Vec<usize> = (0..candidates.len()).collect();
    leading.sort_by(|one, other| ratio(*one).total_cmp(&ratio(*other)));
    leading.truncate(PAIRED_MAX);
    leading.sort_unstable();
    let pairs = leading.iter().enumerate().flat_map(|(place, one)| {
        leading[place + 1..]
            .iter()
            .map(|other| vec![candidates[*one].clone(), candidates[*other].clone()])
    });
    pairs.collect()
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
    let members: SwitchSet = switches
        .iter()
        .filter(|switch| set.iter().any(|id| id == switch.as_str()))
        .cloned()
        .collect();
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
        let all: Vec<&String> = search.set.iter().collect();
        let all = self.arm_with(&all);
        let members = search.set.iter().map(|id| {
            let rest: Vec<&String> = search.set.iter().filter(|other| *other != id).collect();
            let rest = self.arm_with(&rest);
            let step = rest.zip(all).and_then(|(rest, all)| self.step(rest, all, &search.metric));
            let interval = step.as_ref().and_then(|(step, _)| step.interval);
            Member {
                switch: id.clone(),
                ratio: step.as_ref().map(|(step, _)| step.ratio),
                low: interval.map(|interval| interval.low),
                high: interval.map(|interval| interval.high),
                // A set that cannot run without this member needs it.
                verdict: match (step, rest) {
                    (Some((_, verdict)), _) => verdict,
                    (None, Some(rest)) if !rest.support.is_yes() => Verdict::Unsupported,
                    (None, _) => Verdict::Inconclusive,
                },
            }
        });
        members.collect()
    }

    /// The arm with exactly these switches.
    fn arm_with(&self, set: &[&String]) -> Option<&ArmOutcome> {
        self.arms.iter().find(|arm| {
            arm.kind != ArmKind::Control
                && arm.switches.len() == set.len()
                && set.iter().all(|id| arm.switches.contains(id))
        })
    }

    /// The member to drop: the least useful of those that are not shown to matter; `None` if all are.
    pub fn idle_member(&self) -> Option<Member> {
        let metric = self.arms.first()?.metrics.get(&self.search.as_ref()?.metric)?;
        let gain = |member: &Member| match (member.ratio, metric.better) {
            (None, _) => f64::NEG_INFINITY,
            (Some(ratio), Better::Lower) => -ratio.ln(),
            (Some(ratio), Better::Higher) => ratio.ln(),
        };
        let idle = self
            .members()
            .into_iter()
            .filter(|m| !matches!(m.verdict, Verdict::Better | Verdict::Unsupported));
        idle.min_by(|a, b| gain(a).total_cmp(&gain(b)))
    }
}

/// One stage: the present set, in place 0, and each candidate, block by block.
struct Race {
    arms: Vec<Arm>,
    seed: u64,
    /// Questions for which a winner is corrected: 1 for single switches, as the experiment that follows drops a wrong
    /// choice; the number of pairs, as most pairs are idle, and each wrong one takes two such experiments.
    family: usize,
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
        Race { arms, seed, family: 1, values, running, trials: 0 }
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
            if block >= BLOCKS_FAR_BEHIND && !self.has_figure() {
                break;
            }
            let is_decided = block >= BLOCKS_MIN && self.winner().is_some();
            if is_decided || self.running.iter().skip(1).all(|runs| !runs) {
                break;
            }
        }
        true
    }

    /// True if a trial gave a figure.
    fn has_figure(&self) -> bool {
        self.values.iter().flatten().any(|log| *log != f64::INFINITY)
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

    /// The leader and its ratio, if it is shown to be better than the present set.
    fn winner(&self) -> Option<(usize, f64)> {
        let (at, _) = self.leader()?;
        let permitted = (1.0 - LEVEL) / self.family as f64;
        let comparison = statistics::compare(&self.ratios(at, 0), 1.0 - permitted)?;
        let is_better = comparison.interval.is_some_and(|interval| interval.high < 1.0);
        (is_better && comparison.p < permitted).then_some((at, comparison.ratio))
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
    use crate::{FakeSource, FakeSwitch, FakeWorld, Measurement, PathSwitch, Random, Shape, ids};

    /// Time of a set of switches, of which a function tells if one is on.
    type TimeOf = fn(&dyn Fn(&str) -> bool) -> f64;

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

    /// Trials of 100 ms whose time depends on the switches alone, but for noise.
    struct Pairing<'a> {
        random: Random,
        noise: f64,
        clock: &'a Virtual,
        time_of: TimeOf,
    }

    impl Trials for Pairing<'_> {
        fn trial(&mut self, arm: &Arm) -> Result<Measurement, String> {
            self.clock.0.set(self.clock.0.get() + 100_000_000);
            let is_on = |name: &str| arm.switches.contains(&SwitchId::named(name));
            let time = (self.time_of)(&is_on) * (self.noise * self.random.normal()).exp();
            let shape = Shape { unit: "ns".into(), better: Better::Lower };
            let name = "figure".to_owned();
            Ok(Measurement {
                figures: [(name.clone(), 1e6 * time)].into(),
                shapes: [(name, shape)].into(),
                ..Measurement::default()
            })
        }
    }

    fn paired(seed: u64, noise: f64, until_s: u64, time_of: TimeOf) -> Search {
        let (clock, stop) = (Virtual::default(), AtomicBool::new(false));
        let switches = ["a", "b", "c", "d"].map(SwitchId::named);
        let plan = SearchPlan {
            switches: &switches,
            metric: "figure",
            seed,
            until_ns: until_s * 1_000_000_000,
        };
        let mut trials = Pairing { random: Random::new(seed, 9), noise, clock: &clock, time_of };
        search(&plan, &mut |_| Support::Yes, &mut trials, &clock, &stop, &mut |_| {})
    }

    /// `cargo test -p wirepath-model --lib pair -- --nocapture` prints how often.
    #[test]
    fn pair_that_helps_only_together_is_found_and_idle_pairs_are_not() {
        const RUNS: u64 = 100;
        let together = |is_on: &dyn Fn(&str) -> bool| match (is_on("a"), is_on("c")) {
            (true, true) => 0.7,
            (true, false) => 1.05,
            _ => 1.0,
        };
        let idle = |_: &dyn Fn(&str) -> bool| 1.0;
        eprintln!("| noise | pair found | exactly | idle switch added | idle pair added |");
        for noise in [0.03, 0.1] {
            let count = |time_of, is: fn(&Search) -> bool| {
                (0..RUNS).filter(|seed| is(&paired(*seed, noise, 600, time_of))).count() as u64
            };
            let (pair, exact) = (
                count(together, |found: &Search| {
                    ["a", "c"].iter().all(|id| found.set.iter().any(|of| of == id))
                }),
                count(together, |found: &Search| found.set == ["a", "c"]),
            );
            let any = count(idle, |found| !found.set.is_empty());
            let any_pair =
                count(idle, |found| found.steps.iter().any(|step| step.switch.contains('+')));
            eprintln!("| {:.0} % | {pair} | {exact} | {any} | {any_pair} |", noise * 100.0);
            assert!(pair >= RUNS * 9 / 10 && any_pair <= RUNS / 20, "{noise}: {pair} {any_pair}");
        }
        let found = paired(1, 0.03, 600, together);
        assert_eq!(found.steps.last().map(|step| step.switch.as_str()), Some("a+c"), "{found:?}");
        assert_eq!((found.pairs.len(), found.untried_pairs.len()), (6, 0), "{found:?}");
    }

    #[test]
    fn pairs_that_were_not_tried_are_named() {
        // Time for the single switches alone.
        let found = paired(1, 0.03, 9, |_| 1.0);
        assert!(
            found.pairs.len() + found.untried_pairs.len() == 6 && found.out_of_time,
            "{found:?}"
        );
        assert!(!found.untried_pairs.is_empty(), "{found:?}");
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
