//! One experiment on many hosts: does an arm help in general?
//!
//! The host is the unit, never the block: hosts differ by more than their blocks do, and blocks of all hosts
//! in one pot called arms different that were not in 27 to 32 % of simulated fleets. Each host gives one
//! effect for each arm and judged metric ([`Effect`]). Better and worse need the interval of
//! [`random_effects`] clear of 1 and of the same interval of the hosts' control arms, and p below 0.05 after
//! Holm's correction; p is the larger of that of the mean and of the signed ranks of the effects.
//!
//! Hosts that share a rack or a class are not independent: where their groups are known, the group is the unit, with the
//! median of its hosts' effects. 20 hosts in four racks that differ by 5 % were called different in 16 % of simulated
//! fleets with one figure, and in 75 % with twelve.

mod effects;
mod fleet;
mod student;

use std::collections::BTreeMap;

use stats::holm;

use crate::statistics;
use crate::{Better, Floor, Verdict, verdict};

pub use effects::{Effect, Pooled, effect, random_effects};
pub use fleet::{
    FleetSide, HOSTS_MIN, HostLine, HostRun, POOLED_SCHEMA, PooledArm, PooledMetric, PooledOutcome,
    arm_effect, control_effect, pool, pool_groups,
};

/// Share of hosts without a figure above which a question is refused.
const MISSING_MAX: f64 = 0.1;

/// One arm in one metric, on all hosts of the experiment.
#[derive(Debug, Clone)]
pub struct PoolQuestion {
    /// Effects of the arm; `None` for hosts without a figure.
    pub effects: Vec<Option<Effect>>,
    /// Effects of the control arm, in the same order of hosts.
    pub control: Vec<Option<Effect>>,
    /// Group of each host, in the same order, as an index; empty if no group is known, and each host is a unit.
    pub groups: Vec<usize>,
    pub better: Better,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PoolAnswer {
    /// Mean effect; `None` with too few hosts, or if refused.
    pub pooled: Option<Pooled>,
    /// Interval of the hosts' control arms, as ratios.
    pub floor: Option<Floor>,
    /// The larger of the p-values of the mean and of the signed ranks.
    pub p: Option<f64>,
    /// `p` corrected for the number of questions.
    pub p_adjusted: Option<f64>,
    /// `None` below [`HOSTS_MIN`] hosts; inconclusive below as many groups.
    pub verdict: Option<Verdict>,
    /// Reason for a verdict that decides nothing.
    pub why: Option<String>,
}

/// Answers all questions of an experiment, with Holm's correction over all of them.
///
/// - `resolve`: ratio up to which a difference does not matter, above 1.
pub fn answers(questions: &[PoolQuestion], resolve: f64) -> Vec<PoolAnswer> {
    let mut answers: Vec<PoolAnswer> = questions.iter().map(unjudged).collect();
    let p: Vec<f64> = answers.iter().map(|answer| answer.p.unwrap_or(1.0)).collect();
    for ((answer, question), adjusted) in answers.iter_mut().zip(questions).zip(holm(&p)) {
        if answer.p.is_some() {
            judge(answer, question.better, adjusted, resolve);
        }
    }
    answers
}

/// Fewest hosts on which one of `questions` can be better or worse: the smallest p-value of signed ranks
/// is 2 in 2^hosts.
pub fn hosts_needed(questions: usize) -> usize {
    (HOSTS_MIN..64)
        .find(|hosts| 2f64.powi(1 - *hosts as i32) * (questions as f64) < 1.0 - statistics::LEVEL)
        .unwrap_or(64)
}

fn unjudged(question: &PoolQuestion) -> PoolAnswer {
    let floor = pooled(question, &question.control).map(|floor| ratios(floor.interval));
    let mut answer =
        PoolAnswer { pooled: None, floor, p: None, p_adjusted: None, verdict: None, why: None };
    let hosts = question.effects.len();
    if hosts < HOSTS_MIN {
        answer.why = Some(format!("{hosts} hosts; a pooled verdict needs {HOSTS_MIN}"));
        return answer;
    }
    if let Some(why) = refusal(question) {
        answer.verdict = Some(Verdict::Refused);
        answer.why = Some(why);
        return answer;
    }
    answer.pooled = pooled(question, &question.effects);
    let units = units(question, &question.effects);
    if units.len() < HOSTS_MIN {
        answer.verdict = Some(Verdict::Inconclusive);
        answer.why = Some(format!(
            "{} groups with a figure; a pooled verdict needs {HOSTS_MIN}, as hosts of one group are not independent",
            units.len()
        ));
        return answer;
    }
    let logs: Vec<f64> = units.iter().map(|of| of.log_ratio).collect();
    answer.p = answer.pooled.map(|pooled| pooled.p.max(statistics::p_value(&logs)));
    answer
}

fn missing_count(of: &[Option<Effect>]) -> usize {
    of.iter().filter(|effect| effect.is_none()).count()
}

/// Reason to pool nothing: hosts that are missing may be those on which the arm does worst.
fn refusal(question: &PoolQuestion) -> Option<String> {
    let hosts = question.effects.len();
    let (own, of_control) = (missing_count(&question.effects), missing_count(&question.control));
    if own > of_control {
        return Some(format!(
            "{own} of {hosts} hosts have no figure of this arm, and {of_control} none of the control: those that are \
             missing may be the ones on which it does worst"
        ));
    }
    (own as f64 > MISSING_MAX * hosts as f64)
        .then(|| format!("{own} of {hosts} hosts have no figure, more than 10 %"))
        .or_else(|| (hosts - own < HOSTS_MIN).then(|| few_figures(hosts - own)))
}

fn few_figures(hosts: usize) -> String {
    format!("{hosts} hosts have a figure; a pooled verdict needs {HOSTS_MIN}")
}

fn pooled(question: &PoolQuestion, effects: &[Option<Effect>]) -> Option<Pooled> {
    random_effects(&units(question, effects))
}

/// Effects of the units that have one: of the hosts, or the medians of their groups.
fn units(question: &PoolQuestion, effects: &[Option<Effect>]) -> Vec<Effect> {
    if question.groups.is_empty() {
        return effects.iter().flatten().copied().collect();
    }
    let mut groups: BTreeMap<usize, Vec<Effect>> = BTreeMap::new();
    for (group, effect) in question.groups.iter().zip(effects) {
        groups.entry(*group).or_default().extend(*effect);
    }
    groups.values().filter_map(|hosts| effects::of_group(hosts)).collect()
}

fn judge(answer: &mut PoolAnswer, better: Better, p_adjusted: f64, resolve: f64) {
    let Some(pooled) = answer.pooled else { return };
    answer.p_adjusted = Some(p_adjusted);
    let Floor { low, high } = ratios(pooled.interval);
    let found = Verdict::from(verdict::between(low, high, p_adjusted, resolve, better));
    let is_in_floor = answer.floor.is_some_and(|floor| low <= floor.high && high >= floor.low);
    answer.verdict =
        Some(if found.differs() && is_in_floor { Verdict::Inconclusive } else { found });
    if found.differs() && is_in_floor {
        answer.why = Some("not beyond the interval of the control arms (A/A)".into());
    }
}

fn ratios((low, high): (f64, f64)) -> Floor {
    Floor { low: low.exp(), high: high.exp() }
}

/// Marks the hypotheses that are rejected at a false-discovery rate of 5 %.
///
/// Source: Benjamini and Hochberg 1995, Journal of the Royal Statistical Society B 57, 289-300.
fn discoveries(p: &[f64]) -> Vec<bool> {
    let mut sorted = p.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = (0..p.len())
        .rev()
        .find(|&at| sorted[at] <= (1.0 - statistics::LEVEL) * (at + 1) as f64 / p.len() as f64);
    p.iter().map(|p| last.is_some_and(|last| *p <= sorted[last])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RESOLVE;

    fn question(effects: &[Option<f64>], control: &[Option<f64>]) -> PoolQuestion {
        let [effects, control] = [effects, control].map(|values| {
            let measured = |log_ratio| Effect { log_ratio, error: 0.005 };
            values.iter().map(|value| value.map(measured)).collect()
        });
        PoolQuestion { effects, control, groups: Vec::new(), better: Better::Lower }
    }

    const QUIET: [Option<f64>; 8] = [
        Some(0.001),
        Some(-0.002),
        Some(0.0),
        Some(0.003),
        Some(-0.001),
        Some(0.002),
        Some(-0.003),
        Some(0.001),
    ];

    fn fast(count: usize) -> Vec<Option<f64>> {
        (0..count).map(|at| Some(-0.2 - 0.01 * at as f64)).collect()
    }

    fn answer(effects: &[Option<f64>], control: &[Option<f64>]) -> PoolAnswer {
        answers(&[question(effects, control)], RESOLVE).remove(0)
    }

    #[test]
    fn effect_on_all_hosts_is_a_verdict() {
        let found = answer(&fast(8), &QUIET);
        assert_eq!((found.verdict, found.why), (Some(Verdict::Better), None));
        // 2 of 256 patterns of signs.
        assert!(found.p.unwrap() >= 2.0 / 256.0 - 1e-12);
    }

    #[test]
    fn five_hosts_have_no_pooled_verdict() {
        let found = answer(&fast(5), &QUIET[..5]);
        assert_eq!((found.verdict, found.pooled), (None, None));
        assert!(found.why.unwrap().contains("needs 6"));
    }

    #[test]
    fn missing_hosts_stay_in_the_denominator() {
        let mut effects = fast(20);
        let mut control: Vec<Option<f64>> = QUIET.iter().copied().cycle().take(20).collect();
        effects[3] = None;
        let found = answer(&effects, &control);
        assert_eq!(found.verdict, Some(Verdict::Refused), "missing more often than the control");
        assert!(found.why.unwrap().contains("1 of 20 hosts have no figure of this arm"));
        control[3] = None;
        assert_eq!(answer(&effects, &control).verdict, Some(Verdict::Better), "1 of 20");
        for at in [5, 9] {
            (effects[at], control[at]) = (None, None);
        }
        let found = answer(&effects, &control);
        assert_eq!(found.verdict, Some(Verdict::Refused));
        assert!(found.why.unwrap().contains("more than 10 %"));
    }

    #[test]
    fn difference_that_the_control_reaches_too_is_inconclusive() {
        let control: Vec<Option<f64>> =
            (0..8).map(|at| Some(if at % 2 == 0 { -0.3 } else { 0.25 })).collect();
        let found = answer(&fast(8), &control);
        assert_eq!(found.verdict, Some(Verdict::Inconclusive));
        assert!(found.why.unwrap().contains("control arms"));
    }

    fn grouped(hosts: usize, groups: usize) -> PoolAnswer {
        let control: Vec<Option<f64>> = QUIET.iter().copied().cycle().take(hosts).collect();
        let groups = (0..hosts).map(|host| host % groups).collect();
        answers(&[PoolQuestion { groups, ..question(&fast(hosts), &control) }], RESOLVE).remove(0)
    }

    #[test]
    fn hosts_of_one_group_count_once() {
        let found = grouped(20, 4);
        assert_eq!((found.verdict, found.p), (Some(Verdict::Inconclusive), None));
        assert!(found.pooled.is_some(), "the ratio is known all the same");
        assert!(found.why.unwrap().contains("4 groups with a figure; a pooled verdict needs 6"));
        assert_eq!(grouped(20, 7).verdict, Some(Verdict::Better));
    }

    #[test]
    fn more_questions_need_more_hosts() {
        assert_eq!([1, 2, 3, 4, 36].map(hosts_needed), [6, 7, 7, 8, 11]);
        let six = |count| answers(&vec![question(&fast(6), &QUIET[..6]); count], RESOLVE);
        assert_eq!(six(1)[0].verdict, Some(Verdict::Better));
        assert_eq!(six(2)[0].verdict, Some(Verdict::Inconclusive));
    }

    #[test]
    fn discoveries_are_those_of_statsmodels() {
        // multipletests(p, method="fdr_bh"): 0.008, 0.032, then 0.0672 and more.
        let p = [0.001, 0.041, 0.039, 0.008, 0.042, 0.06, 0.074, 0.205];
        let expected = [true, false, false, true, false, false, false, false];
        assert_eq!(discoveries(&p), expected);
        assert_eq!(discoveries(&[0.04, 0.05, 0.03]), [true; 3], "step-up");
        assert!(discoveries(&[]).is_empty());
    }
}
