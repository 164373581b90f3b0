//! Comparison of two series of outcomes.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    ArmComparison, COMPARISON_SCHEMA, Change, CompareError, ComparedRun, CountChange, Difference,
    MetricComparison, RUNS_MIN, RunComparison,
};
use crate::pairs::Shift;
use crate::sessions::{days, machines, sessions};
use crate::statistics::{self, LEVEL};
use crate::verdict::Badness;
use crate::{
    ArmKind, ArmOutcome, By, Ended, Machine, MetricOutcome, Outcome, Unit, Verdict, Warning,
    is_event_count, two_samples, verdict,
};

/// Parameters of a load that may differ: duration and choice of arms.
pub(crate) const ASIDE: [&str; 4] = ["arms", "resolve", "time_ms", "trial_ms"];

fn value_text(value: Option<String>) -> String {
    value.unwrap_or_else(|| "not given".into())
}

/// Checks before a run that its path and load can be compared with `old`.
pub fn comparable(
    old: &Outcome,
    new_id: &str,
    path: &str,
    load: &BTreeMap<String, String>,
) -> Result<(), CompareError> {
    let different = |what: &str, old_value: &str, new_value: &str| CompareError::Different {
        old_id: old.id.clone(),
        new_id: new_id.into(),
        what: what.into(),
        old: old_value.into(),
        new: new_value.into(),
    };
    if old.path != path {
        return Err(different("the path", &old.path, path));
    }
    let names = || old.load.keys().chain(load.keys()).filter(|n| !ASIDE.contains(&n.as_str()));
    // The kind comes first, because it explains most other differences.
    for name in names().filter(|n| *n == "kind").chain(names().filter(|n| *n != "kind")) {
        let value = |load: &BTreeMap<String, String>| load.get(name).cloned();
        let (old_value, new_value) = (value(&old.load), value(load));
        if old_value != new_value {
            let what = match name.as_str() {
                "kind" => "the load".into(),
                "size_bytes" => "the frame size in bytes".into(),
                "rate_pps" => "the rate in packets a second".into(),
                other => format!("the load's {other}"),
            };
            return Err(different(&what, &value_text(old_value), &value_text(new_value)));
        }
    }
    Ok(())
}

fn has_arm(arms: &[&ArmOutcome], arm: &ArmOutcome) -> bool {
    arms.iter().any(|a| is_same(a, arm))
}

/// Compares newer experiments with older ones.
///
/// - `unit`: contributes one figure to each question, the median over its runs.
/// - `resolve`: ratio above 1 up to which a change does not matter.
///
/// Errors: a side without an experiment, an experiment named twice, different paths, loads, frame sizes
/// or rates. Different machines are compared, and the difference is part of the result.
pub fn compare(
    olds: &[Outcome],
    news: &[Outcome],
    unit: Unit,
    resolve: f64,
) -> Result<RunComparison, CompareError> {
    let (Some(first), Some(last)) = (olds.first(), news.last()) else {
        return Err(CompareError::NoRun);
    };
    let all = || olds.iter().chain(news);
    let mut ids = BTreeSet::new();
    if let Some(twice) = all().find(|outcome| !ids.insert(&outcome.id)) {
        return Err(CompareError::Same { id: twice.id.clone() });
    }
    for outcome in all().filter(|outcome| outcome.id != last.id) {
        comparable(outcome, &last.id, &last.path, &last.load)?;
    }
    let is_common = |name: &&String| all().all(|outcome| outcome.judged.contains(name));
    let judged: Vec<String> = last.judged.iter().filter(is_common).cloned().collect();
    if judged.is_empty() {
        return Err(CompareError::NothingShared { what: "judged figure" });
    }
    let (before, now) = (arms_of(olds.iter()), arms_of(news.iter()));
    let equal = Equal { resolve, level: 1.0 - (1.0 - LEVEL) / (now.len() * judged.len()) as f64 };
    let sides = Sides { old: sessions(olds, unit), new: sessions(news, unit), equal };
    let only = |arms: &[&ArmOutcome], others: &[&ArmOutcome]| {
        arms.iter().filter(|arm| !has_arm(others, arm)).map(|arm| arm.name.clone()).collect()
    };
    let mut arms: Vec<ArmComparison> = now
        .iter()
        .filter(|arm| has_arm(&before, arm))
        .map(|arm| {
            let metrics = judged
                .iter()
                .filter_map(|name| Some((name.clone(), metric(&sides, arm, name)?)))
                .collect();
            ArmComparison { name: arm.name.clone(), kind: arm.kind, metrics }
        })
        .collect();
    if arms.is_empty() {
        return Err(CompareError::NothingShared { what: "arm" });
    }
    for by in [By::Value, By::Worth] {
        judge(&mut arms, &judged, by, resolve);
    }
    let load = last.load.iter().filter(|(k, v)| all().all(|o| o.load.get(*k) == Some(v)));
    let mut comparison = RunComparison {
        comparison: COMPARISON_SCHEMA,
        unit,
        resolve,
        old_units: sides.old.len(),
        new_units: sides.new.len(),
        old_runs: olds.iter().map(run).collect(),
        new_runs: news.iter().map(run).collect(),
        path: last.path.clone(),
        load: load.map(|(k, v)| (k.clone(), v.clone())).collect(),
        same_machine: all().all(|outcome| machines(&outcome.machine) == machines(&first.machine)),
        differences: differences(olds, news),
        judged,
        arms,
        only_old: only(&before, &now),
        only_new: only(&now, &before),
        warnings: Vec::new(),
        gate: None,
    };
    comparison.warnings = warnings(&comparison, olds, news);
    Ok(comparison)
}

/// Figures of both sides, by unit.
struct Sides<'a> {
    old: Vec<Vec<&'a Outcome>>,
    new: Vec<Vec<&'a Outcome>>,
    equal: Equal,
}

/// Rule of "no difference", a claim like the others: at 5 % over the number of figures (Bonferroni).
#[derive(Clone, Copy)]
struct Equal {
    /// Ratio above 1 within which the interval must lie.
    resolve: f64,
    /// Level of that interval.
    level: f64,
}

impl Equal {
    /// Verdict of an interval that shows neither better nor worse, within a distance from 0.
    fn verdict(interval: Option<(f64, f64)>, most: f64) -> Verdict {
        // The small term absorbs rounding.
        if interval.is_some_and(|(low, high)| low >= -most - 1e-12 && high <= most + 1e-12) {
            Verdict::NoDifferenceShown
        } else {
            Verdict::Inconclusive
        }
    }
}

/// Smallest number of units a side with which one of `questions` figures can be better or worse.
pub fn runs_needed(questions: usize) -> usize {
    (RUNS_MIN..100).find(|&runs| can_decide(runs, runs, questions)).unwrap_or(100)
}

/// True if so many units can have a rank-sum p-value below 5 % after correction.
pub(super) fn can_decide(olds: usize, news: usize, questions: usize) -> bool {
    let smallest = 2.0 / (1..=olds).map(|k| (news + k) as f64 / k as f64).product::<f64>();
    olds.min(news) >= RUNS_MIN && smallest * questions as f64 <= 1.0 - LEVEL
}

fn run(outcome: &Outcome) -> ComparedRun {
    ComparedRun {
        id: outcome.id.clone(),
        started: outcome.started.clone(),
        version: outcome.version.clone(),
        blocks: outcome.blocks,
        ended: outcome.ended,
        machine: outcome.machine.clone(),
    }
}

/// Different arms of a series, without the control; those of the newest run first.
pub(crate) fn arms_of<'a>(
    series: impl DoubleEndedIterator<Item = &'a Outcome>,
) -> Vec<&'a ArmOutcome> {
    let mut found: Vec<&ArmOutcome> = Vec::new();
    for arm in series.rev().flat_map(|outcome| &outcome.arms) {
        if arm.kind != ArmKind::Control && !found.iter().any(|known| is_same(known, arm)) {
            found.push(arm);
        }
    }
    found
}

fn sorted_switches(arm: &ArmOutcome) -> Vec<String> {
    let mut switches = arm.switches.clone();
    switches.sort();
    switches
}

/// True if two arms have the same switches, for example a rung of a ladder and the same set given by
/// hand.
pub(crate) fn is_same(a: &ArmOutcome, b: &ArmOutcome) -> bool {
    a.kind == b.kind
        && match a.kind {
            ArmKind::Baseline | ArmKind::Control => true,
            ArmKind::Peer => a.name == b.name,
            ArmKind::Variant => sorted_switches(a) == sorted_switches(b),
        }
}

type Property = (String, Box<dyn Fn(&Outcome) -> String>);

fn text_or_none(text: &Option<String>) -> String {
    text.clone().unwrap_or_else(|| "none".into())
}

/// Properties in which runs may differ besides what they measured.
fn properties(notes: &BTreeSet<&String>) -> Vec<Property> {
    fn of(what: &str, value: impl Fn(&Machine) -> String + 'static) -> Property {
        (what.to_owned(), Box::new(move |outcome| value(&outcome.machine)))
    }
    let mut all = vec![
        of("machine", |m| m.id.clone()),
        of("kernel", |m| m.kernel.clone()),
        of("CPU", |m| m.cpu.clone()),
        of("CPUs used", |m| m.cpus.to_string()),
        of("memory", |m| format!("{} GiB", m.memory_bytes.div_ceil(1 << 30))),
        of("hypervisor", move |m| text_or_none(&m.hypervisor)),
        of("governor", move |m| text_or_none(&m.governor)),
        of("interface", |m| m.nic.clone()),
    ];
    let facts: [fn(&Machine) -> &String; 4] = [|m| &m.id, |m| &m.kernel, |m| &m.cpu, |m| &m.nic];
    let names = ["machine", "kernel", "CPU", "interface"];
    for (name, fact) in names.into_iter().zip(facts) {
        let far = move |m: &Machine| m.far.as_deref().map(fact).cloned();
        all.push(of(&format!("far end's {name}"), move |m| text_or_none(&far(m))));
    }
    all.push(("wirepath".into(), Box::new(|outcome| outcome.version.clone())));
    for name in notes {
        let name = (*name).clone();
        all.push(of(&name.clone(), move |m| value_text(m.notes.get(&name).cloned())));
    }
    for name in ASIDE.iter().rev() {
        let what = (*name).replace("_ms", " (ms)");
        all.push((what, Box::new(move |outcome| value_text(outcome.load.get(*name).cloned()))));
    }
    all
}

/// Load averages are never equal; only half a CPU or more is reported.
fn load(series: &[Outcome]) -> f64 {
    let loads = series.iter().map(|outcome| f64::from(outcome.machine.load_x100) / 100.0);
    statistics::median(&loads.collect::<Vec<_>>()).unwrap_or(0.0)
}

fn differences(olds: &[Outcome], news: &[Outcome]) -> Vec<Difference> {
    let notes = olds.iter().chain(news).flat_map(|outcome| outcome.machine.notes.keys()).collect();
    let mut found = Vec::new();
    for (what, value) in properties(&notes) {
        let values = |series: &[Outcome]| series.iter().map(&value).collect::<BTreeSet<String>>();
        let (old, new) = (values(olds), values(news));
        if old != new {
            let said = |values: BTreeSet<String>| values.into_iter().collect::<Vec<_>>().join(", ");
            found.push(Difference { what, old: said(old), new: said(new) });
        }
    }
    let (old, new) = (load(olds), load(news));
    if (old - new).abs() > 0.5 {
        let what = "load at the start".to_owned();
        found.push(Difference { what, old: format!("{old:.2}"), new: format!("{new:.2}") });
    }
    found
}

fn warnings(comparison: &RunComparison, olds: &[Outcome], news: &[Outcome]) -> Vec<Warning> {
    let mut found = Vec::new();
    let mut warn =
        |what: String, advice: &str| found.push(Warning { what, advice: advice.to_owned() });
    let all: Vec<&Outcome> = olds.iter().chain(news).collect();
    let questions = comparison.questions(By::Value);
    let needed = runs_needed(questions);
    let (old_units, new_units) = (comparison.old_units, comparison.new_units);
    let unit = comparison.unit.name();
    if old_units.min(new_units) < needed {
        let figures =
            if questions == 1 { "1 figure".into() } else { format!("{questions} figures") };
        let why = match comparison.unit {
            Unit::Run => "",
            Unit::Session | Unit::Day => "the day cannot be told from the change: ",
        };
        let what = format!(
            "{why}{old_units} older and {new_units} newer {unit}s; {needed} a side are needed for a verdict on {figures}"
        );
        let advice = match comparison.unit {
            Unit::Run => "run more (`prove --runs N`), or fewer arms",
            Unit::Session => {
                "runs less than an hour apart are one session: spread them (`prove --runs N --every 2h`), or \
                 compare both states in one run (`--against`)"
            }
            Unit::Day => "run on more days, or compare both states in one run (`--against`)",
        };
        warn(what, advice);
    }
    if comparison.unit == Unit::Run {
        warn(
            "each run counts as independent, so whatever a day shifts counts as a change".into(),
            "of simulated comparisons in which the days alone differed, 29 to 94 % had a false verdict; leave \
             --unit run out",
        );
    }
    let few_days = days(olds).min(days(news));
    if comparison.unit == Unit::Session && old_units.min(new_units) >= needed && few_days < RUNS_MIN
    {
        warn(
            match few_days {
                1 => "all sessions of one side are of one day (UTC)".into(),
                _ => format!("the sessions of one side are of {few_days} days (UTC)"),
            },
            "whatever lasts for a day counts as a change; `--unit day` takes the day as the unit",
        );
    }
    if !comparison.same_machine {
        warn(
            "the runs are of different machines".into(),
            "values tell the machines apart, not the settings; compare what each arm is worth",
        );
    }
    for outcome in all.iter().filter(|outcome| outcome.ended == Ended::Unfinished) {
        let what = format!("{} is not finished: these are its trials so far", outcome.id);
        warn(what, "let it end, or run it again");
    }
    let distrusted = all
        .iter()
        .filter(|outcome| {
            outcome.distrusted().iter().any(|name| comparison.judged.iter().any(|of| of == name))
        })
        .count();
    if distrusted > 0 {
        let what =
            format!("in {distrusted} of {} runs the baseline differs from itself", all.len());
        warn(what, "something else moved the figures; run again on a quiet machine");
    }
    if all.iter().any(|outcome| outcome.load.get("trial_ms") != all[0].load.get("trial_ms")) {
        let what = "the trials are not equally long".to_owned();
        warn(what, "rare events have more time in a longer trial; give the same --trial");
    }
    let moved = comparison.moved_baselines(1.0);
    if !moved.is_empty() {
        warn(
            format!("the baseline itself changed in {}", moved.join(", ")),
            "either the machine changed or something that all arms share did; what an arm is \
             worth against its own baseline is free of the first",
        );
    }
    found
}

/// One metric of one arm in each run that has it, by unit; units without one are left out.
fn in_units<'a>(
    units: &[Vec<&'a Outcome>],
    arm: &ArmOutcome,
    name: &str,
) -> Vec<Vec<&'a MetricOutcome>> {
    units
        .iter()
        .map(|unit: &Vec<&'a Outcome>| {
            unit.iter()
                .filter_map(|run| run.arms.iter().find(|a| is_same(a, arm))?.metrics.get(name))
                .collect::<Vec<_>>()
        })
        .filter(|unit| !unit.is_empty())
        .collect()
}

/// Median of a figure over the runs of each unit that has it.
pub(crate) fn unit_figures(
    units: &[Vec<&MetricOutcome>],
    figure: fn(&MetricOutcome) -> Option<f64>,
) -> Vec<f64> {
    units
        .iter()
        .filter_map(|unit: &Vec<&MetricOutcome>| {
            statistics::median(&unit.iter().filter_map(|metric| figure(metric)).collect::<Vec<_>>())
        })
        .collect()
}

fn ratios(units: &[Vec<&MetricOutcome>]) -> Vec<f64> {
    unit_figures(units, |metric| metric.ratio)
}

fn medians(units: &[Vec<&MetricOutcome>]) -> Vec<f64> {
    unit_figures(units, |metric| metric.median)
}

fn metric(sides: &Sides<'_>, arm: &ArmOutcome, name: &str) -> Option<MetricComparison> {
    let (before, now) = (in_units(&sides.old, arm, name), in_units(&sides.new, arm, name));
    let shape = *now.iter().chain(&before).flatten().next()?;
    let (old_medians, new_medians) = (medians(&before), medians(&now));
    let mut result = MetricComparison {
        unit: shape.unit.clone(),
        better: shape.better,
        old: statistics::median(&old_medians),
        new: statistics::median(&new_medians),
        value: None,
        worth: None,
        difference: None,
        why: None,
    };
    let all = || before.iter().chain(&now).flatten();
    if all().any(|metric| metric.unit != shape.unit) {
        result.why = Some("the runs give it in different units".into());
        return Some(result);
    }
    if all().any(|metric| metric.difference.is_some()) || is_event_count(name) {
        result.difference = count_change(&unit_means(&before), &unit_means(&now), sides.equal);
        return Some(result);
    }
    for (units, figure, when) in [(&before, result.old, "older"), (&now, result.new, "newer")] {
        if figure.is_none() && result.why.is_none() {
            let why = units.iter().flatten().find_map(|metric| metric.why.as_deref());
            let why = why.unwrap_or("not measured");
            result.why = Some(format!("no figure in the {when} runs: {why}"));
        }
    }
    if result.why.is_none() {
        result.value = change(&old_medians, &new_medians, sides.equal);
        if arm.kind != ArmKind::Baseline {
            result.worth = change(&ratios(&before), &ratios(&now), sides.equal);
        }
    }
    Some(result)
}

/// Mean count per trial of all runs of each unit that has the figure. A median would overlook a count that is 0 in
/// most runs.
pub(crate) fn unit_means(units: &[Vec<&MetricOutcome>]) -> Vec<f64> {
    units
        .iter()
        .filter_map(|unit: &Vec<&MetricOutcome>| {
            let trials = unit.iter().flat_map(|metric| metric.trials.iter().flatten().copied());
            statistics::mean(&trials.collect::<Vec<f64>>())
        })
        .collect()
}

/// The change between two series of counts; of its verdicts, better and worse are still missing.
fn count_change(olds: &[f64], news: &[f64], equal: Equal) -> Option<CountChange> {
    let shift = two_samples::shift(news, olds, LEVEL)?;
    let is_enough = shift.pairs >= RUNS_MIN;
    let interval = two_samples::shift(news, olds, equal.level)?.interval.filter(|_| is_enough);
    let old_mean = statistics::mean(olds)?;
    Some(CountChange {
        difference: Shift { interval: shift.interval.filter(|_| is_enough), ..shift }.as_count(),
        old_mean,
        p_adjusted: is_enough.then_some(shift.p),
        old_count: olds.len(),
        new_count: news.len(),
        verdict: Equal::verdict(interval, (equal.resolve - 1.0) * old_mean),
    })
}

fn logs(of: &[f64]) -> Vec<f64> {
    of.iter().map(|value| value.ln()).filter(|log| log.is_finite()).collect()
}

/// The change between two series of figures; of its verdicts, better and worse are still missing.
fn change(olds: &[f64], news: &[f64], equal: Equal) -> Option<Change> {
    let (old, new) = (logs(olds), logs(news));
    let shift = two_samples::compare(&new, &old, LEVEL)?;
    let is_enough = shift.pairs >= RUNS_MIN;
    let interval = shift.interval.filter(|_| is_enough);
    let wide = two_samples::shift(&new, &old, equal.level)?.interval.filter(|_| is_enough);
    Some(Change {
        ratio: shift.ratio,
        low: interval.map(|interval| interval.low),
        high: interval.map(|interval| interval.high),
        p: is_enough.then_some(shift.p),
        p_adjusted: None,
        old_count: old.len(),
        new_count: new.len(),
        verdict: Equal::verdict(wide, equal.resolve.ln()),
    })
}

/// Gives all values with the counts, or all worths, their verdicts with Holm's correction.
fn judge(arms: &mut [ArmComparison], judged: &[String], by: By, resolve: f64) {
    let (mut changes, mut counts) = (Vec::new(), Vec::new());
    for (name, metric) in arms.iter_mut().flat_map(|arm| arm.metrics.iter_mut()) {
        if !judged.contains(name) {
            continue;
        }
        let better = metric.better;
        let change = match by {
            By::Value => metric.value.as_mut(),
            By::Worth => metric.worth.as_mut(),
        };
        changes.extend(change.map(|change| (better, change)));
        let count = metric.difference.as_mut().filter(|_| by == By::Value);
        counts.extend(count.map(|count| (better, count)));
    }
    let p = changes.iter().map(|(_, change)| change.p.unwrap_or(1.0));
    let p_of_counts = counts.iter().map(|(_, count)| count.p_adjusted.unwrap_or(1.0));
    let adjusted = stats::holm(&p.chain(p_of_counts).collect::<Vec<f64>>());
    let (of_changes, of_counts) = adjusted.split_at(changes.len());
    for ((better, change), &adjusted) in changes.into_iter().zip(of_changes) {
        let Some((low, high)) = change.low.zip(change.high) else { continue };
        change.p_adjusted = Some(adjusted);
        let found = Verdict::from(verdict::between(low, high, adjusted, resolve, better));
        change.verdict = if found.differs() { found } else { change.verdict };
    }
    for ((better, count), &adjusted) in counts.into_iter().zip(of_counts) {
        let Some(interval) = count.difference.low.zip(count.difference.high) else { continue };
        count.p_adjusted = Some(adjusted);
        let bad = Badness::of(interval, better);
        count.verdict = match bad {
            _ if bad.least > 0.0 && adjusted < 1.0 - LEVEL => Verdict::Worse,
            _ if bad.most < 0.0 && adjusted < 1.0 - LEVEL => Verdict::Better,
            _ => count.verdict,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_figures_need_more_runs() {
        // 2 of 252 orders of five and five runs are the most extreme; 2 of 3,432 of seven and seven.
        assert!(can_decide(5, 5, 6) && !can_decide(5, 5, 7));
        assert!(!can_decide(4, 60, 1), "five runs a side in any case");
        assert_eq!([1, 6, 7, 39, 85, 86].map(runs_needed), [5, 5, 6, 7, 7, 8]);
    }
}
