//! Is a contribution plausible, and free of names?

use model::pool::arm_effect;
use model::{ArmKind, ArmOutcome, Better, Outcome, Support, Verdict, statistics};

use super::{Contribution, Vocabulary, redacted};
use crate::json;

/// Coarsest resolution that is accepted, as a ratio.
const RESOLVE_MAX: f64 = 1.25;
/// Distance of a stated ratio from that of its trials, in logarithms, beyond its own interval.
const RATIO_MARGIN: f64 = 0.02;

/// Reason why a contribution is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ContributionProblem {
    #[error("it has no run")]
    NoRun,
    #[error("it was exported with names (--with-names)")]
    WithNames,
    #[error(
        "run {0} has texts beyond figures and Wirepath's own words; export it with this version, without --with-names"
    )]
    Names(usize),
    #[error("run {0} did not reach its planned end")]
    Unfinished(usize),
    #[error(
        "run {0} does not say what it ran on: the CPU model, the kernel or the driver is missing"
    )]
    Machine(usize),
    #[error("run {0} has no second run of the baseline (A/A), or no floor of {1}")]
    NoFloor(usize, String),
    #[error("run {0} has {1} blocks; an interval needs {min}", min = statistics::PAIRS_MIN)]
    Blocks(usize, u32),
    #[error("run {0} has a resolution of {1}×; at most {RESOLVE_MAX}× counts")]
    Resolution(usize, f64),
    #[error("run {0}: {1} of {2} is not above 0")]
    NotPositive(usize, String, String),
    #[error("run {0}: the ratio of {1} in {2} is not that of its trials")]
    Ratio(usize, String, String),
    #[error("run {0}: the verdict on {1} in {2} is not that of its interval")]
    Verdict(usize, String, String),
}

/// Checks a contribution whose signature is valid; returns what speaks against it.
///
/// - `words`: of this version. A contribution without names has none but these.
/// - `are_names_allowed`: names are no problem, as in an atlas of one's own machines.
pub fn check(
    contribution: &Contribution,
    words: &Vocabulary,
    are_names_allowed: bool,
) -> Vec<ContributionProblem> {
    let mut problems = Vec::new();
    if contribution.runs.is_empty() {
        problems.push(ContributionProblem::NoRun);
    }
    if contribution.names && !are_names_allowed {
        problems.push(ContributionProblem::WithNames);
    }
    for (place, run) in contribution.runs.iter().enumerate() {
        let number = place + 1;
        let is_redacted = json::to_json(&redacted(run, words)) == json::to_json(run);
        if !contribution.names && !is_redacted {
            problems.push(ContributionProblem::Names(number));
        }
        problems.extend(run_problems(number, run));
    }
    problems
}

fn run_problems(number: usize, run: &Outcome) -> Vec<ContributionProblem> {
    let mut problems = Vec::new();
    if !run.ended.is_complete() {
        problems.push(ContributionProblem::Unfinished(number));
    }
    let machine = &run.machine;
    if [&machine.cpu, &machine.kernel, &machine.nic].iter().any(|fact| fact.is_empty()) {
        problems.push(ContributionProblem::Machine(number));
    }
    if (run.blocks as usize) < statistics::PAIRS_MIN {
        problems.push(ContributionProblem::Blocks(number, run.blocks));
    }
    if !(1.0..=RESOLVE_MAX).contains(&run.resolve) {
        problems.push(ContributionProblem::Resolution(number, run.resolve));
    }
    let has_control = run.arms.iter().any(|arm| arm.kind == ArmKind::Control && arm.trials > 0);
    for metric in &run.judged {
        // A metric that the run gave no figure of, such as p99 of too few samples, needs no floor.
        if !has_control || (has_figure(run, metric) && !run.floor.contains_key(metric)) {
            problems.push(ContributionProblem::NoFloor(number, metric.clone()));
        }
        for arm in run.arms.iter().filter(|arm| arm.support == Support::Yes) {
            problems.extend(figure_problem(number, run, arm, metric));
        }
    }
    problems
}

fn has_figure(run: &Outcome, metric: &str) -> bool {
    let variants = run.arms.iter().filter(|arm| arm.kind == ArmKind::Variant);
    variants.filter_map(|arm| arm.metrics.get(metric)).any(|of| of.ratio.is_some())
}

fn is_positive(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

fn figure_problem(
    number: usize,
    run: &Outcome,
    arm: &ArmOutcome,
    metric: &str,
) -> Option<ContributionProblem> {
    let of = arm.metrics.get(metric)?;
    let (arm_name, metric_name) = (arm.name.clone(), metric.to_owned());
    let values = of.trials.iter().flatten().chain(&of.median);
    if values.copied().any(|value| !value.is_finite() || value < 0.0)
        || of.median.is_some_and(|median| !is_positive(median))
    {
        return Some(ContributionProblem::NotPositive(number, metric_name, arm_name));
    }
    let (Some(ratio), true) = (of.ratio, arm.kind == ArmKind::Variant) else { return None };
    let [low, high] = [of.low.unwrap_or(0.0), of.high.unwrap_or(f64::INFINITY)];
    let is_of_trials = arm_effect(run, &arm.name, metric).is_none_or(|effect| {
        effect.log_ratio >= low.ln() - RATIO_MARGIN && effect.log_ratio <= high.ln() + RATIO_MARGIN
    });
    if !is_positive(ratio) || !is_of_trials || low > high {
        return Some(ContributionProblem::Ratio(number, arm_name, metric_name));
    }
    let is_faster = match of.better {
        Better::Lower => high < 1.0,
        Better::Higher => low > 1.0,
    };
    let is_slower = match of.better {
        Better::Lower => low > 1.0,
        Better::Higher => high < 1.0,
    };
    let agrees = match of.verdict {
        Some(Verdict::Better) => is_faster,
        Some(Verdict::Worse) => is_slower,
        _ => true,
    };
    (!agrees).then_some(ContributionProblem::Verdict(number, arm_name, metric_name))
}
