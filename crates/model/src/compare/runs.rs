//! From two outcomes to a comparison.

use std::collections::BTreeMap;

use super::{
    ArmComparison, COMPARISON_SCHEMA, Change, CompareError, Difference, MetricComparison, Noise,
    Run, RunComparison,
};
use crate::statistics::{self, LEVEL};
use crate::{
    ArmKind, ArmOutcome, Ended, Floor, Machine, MetricOutcome, Outcome, Verdict, Warning, is_tally,
    two_samples,
};

/// Ratio up to which a difference does not matter, as in an experiment.
const MARGIN: f64 = 1.10;

/// Parameters of a load that say how long was measured and which arms, not what.
const ASIDE: [&str; 3] = ["arms", "time_ms", "trial_ms"];

/// Refuses what is not worth a run: that a run of `path` and `load` could never be compared with `old`.
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
    // The kind first: it explains most other differences.
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
            let said = |value: Option<String>| value.unwrap_or_else(|| "not given".into());
            return Err(different(&what, &said(old_value), &said(new_value)));
        }
    }
    Ok(())
}

/// Compares a newer experiment with an older one.
///
/// Refuses experiments of different paths, loads, frame sizes or rates. Different machines
/// are compared, and the difference stands in the result.
pub fn compare(old: &Outcome, new: &Outcome) -> Result<RunComparison, CompareError> {
    if old.id == new.id {
        return Err(CompareError::Same { id: old.id.clone() });
    }
    comparable(old, &new.id, &new.path, &new.load)?;
    let nothing =
        |what| CompareError::NothingShared { old_id: old.id.clone(), new_id: new.id.clone(), what };
    let judged: Vec<String> =
        new.judged.iter().filter(|name| old.judged.contains(name)).cloned().collect();
    if judged.is_empty() {
        return Err(nothing("judged figure"));
    }
    let noise: BTreeMap<String, Noise> =
        judged.iter().map(|name| (name.clone(), noise(old, new, name))).collect();
    let mut arms = Vec::new();
    let mut only_new = Vec::new();
    for arm in new.arms.iter().filter(|arm| arm.kind != ArmKind::Control) {
        let Some(before) = old.arms.iter().find(|before| is_same(before, arm)) else {
            only_new.push(arm.name.clone());
            continue;
        };
        let metrics = judged.iter().filter_map(|name| {
            let found = metric((old, before), (new, arm), name, &noise[name]);
            Some((name.clone(), found?))
        });
        arms.push(ArmComparison {
            name: arm.name.clone(),
            kind: arm.kind,
            metrics: metrics.collect(),
        });
    }
    if arms.is_empty() {
        return Err(nothing("arm"));
    }
    let only_old = old
        .arms
        .iter()
        .filter(|arm| arm.kind != ArmKind::Control && !new.arms.iter().any(|a| is_same(arm, a)))
        .map(|arm| arm.name.clone())
        .collect();
    let mut comparison = RunComparison {
        comparison: COMPARISON_SCHEMA,
        old: run(old),
        new: run(new),
        path: new.path.clone(),
        load: new.load.iter().filter(|(k, v)| old.load.get(*k) == Some(v)).map(own).collect(),
        same_machine: old.machine.id == new.machine.id,
        differences: differences(old, new),
        judged,
        arms,
        only_old,
        only_new,
        noise,
        warnings: Vec::new(),
    };
    comparison.warnings = warnings(&comparison, old, new);
    Ok(comparison)
}

fn own((key, value): (&String, &String)) -> (String, String) {
    (key.clone(), value.clone())
}

fn run(outcome: &Outcome) -> Run {
    Run {
        id: outcome.id.clone(),
        started: outcome.started.clone(),
        version: outcome.version.clone(),
        blocks: outcome.blocks,
        ended: outcome.ended,
        machine: outcome.machine.clone(),
    }
}

/// Whether two arms are the same whatever their names: a rung of a ladder and the same
/// switches asked for by hand.
fn is_same(a: &ArmOutcome, b: &ArmOutcome) -> bool {
    let sorted = |arm: &ArmOutcome| {
        let mut switches = arm.switches.clone();
        switches.sort();
        switches
    };
    a.kind == b.kind
        && match a.kind {
            ArmKind::Baseline | ArmKind::Control => true,
            ArmKind::Peer => a.name == b.name,
            ArmKind::Variant => sorted(a) == sorted(b),
        }
}

fn differences(old: &Outcome, new: &Outcome) -> Vec<Difference> {
    let (a, b) = (&old.machine, &new.machine);
    let gib = |bytes: u64| format!("{} GiB", bytes.div_ceil(1 << 30));
    let none = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".into());
    let load = |machine: &Machine| f64::from(machine.load_x100) / 100.0;
    let mut pairs = vec![
        ("machine", a.id.clone(), b.id.clone()),
        ("kernel", a.kernel.clone(), b.kernel.clone()),
        ("CPU", a.cpu.clone(), b.cpu.clone()),
        ("CPUs used", a.cpus.to_string(), b.cpus.to_string()),
        ("memory", gib(a.memory_bytes), gib(b.memory_bytes)),
        ("hypervisor", none(&a.hypervisor), none(&b.hypervisor)),
        ("governor", none(&a.governor), none(&b.governor)),
        ("interface", a.nic.clone(), b.nic.clone()),
        ("wirepath", old.version.clone(), new.version.clone()),
    ];
    // Load averages never agree to the hundredth; half a CPU is worth a line.
    if (load(a) - load(b)).abs() > 0.5 {
        let said = |machine| format!("{:.2}", load(machine));
        pairs.push(("load at the start", said(a), said(b)));
    }
    let mut found: Vec<(String, String, String)> =
        pairs.into_iter().map(|(what, a, b)| (what.to_owned(), a, b)).collect();
    let given = |text: Option<&String>| text.cloned().unwrap_or_else(|| "not given".into());
    let mut names: Vec<&String> = a.notes.keys().chain(b.notes.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        found.push((name.clone(), given(a.notes.get(name)), given(b.notes.get(name))));
    }
    for name in ASIDE.iter().rev() {
        let said = |outcome: &Outcome| given(outcome.load.get(*name));
        found.push(((*name).replace("_ms", " (ms)"), said(old), said(new)));
    }
    found
        .into_iter()
        .filter(|(_, old, new)| old != new)
        .map(|(what, old, new)| Difference { what, old, new })
        .collect()
}

fn warnings(comparison: &RunComparison, old: &Outcome, new: &Outcome) -> Vec<Warning> {
    let mut found = Vec::new();
    let mut warn =
        |what: String, advice: &str| found.push(Warning { what, advice: advice.to_owned() });
    if !comparison.same_machine {
        warn(
            "the two runs are of different machines".into(),
            "values tell the machines apart, not the settings; compare what each arm is worth",
        );
    }
    for outcome in [old, new] {
        if outcome.ended == Ended::Unfinished {
            let what = format!("{} is not finished: these are its trials so far", outcome.id);
            warn(what, "let it end, or run it again");
        }
        let control = outcome.arms.iter().find(|arm| arm.kind == ArmKind::Control);
        let broken = |name: &&String| {
            let metric = control.and_then(|arm| arm.metrics.get(*name));
            matches!(metric.and_then(|m| m.verdict), Some(Verdict::Better | Verdict::Worse))
        };
        if comparison.judged.iter().any(|name| broken(&name)) {
            let what = format!("in {} the baseline differs from itself", outcome.id);
            warn(what, "something else moved the figures; run it again on a quiet machine");
        }
    }
    if old.load.get("trial_ms") != new.load.get("trial_ms") {
        let what = "the trials are not equally long".to_owned();
        warn(what, "rare events have more time in a longer trial; give the same --trial");
    }
    let moved: Vec<&str> = comparison
        .values()
        .filter(|(arm, _, metric)| {
            arm.kind == ArmKind::Baseline
                && metric
                    .value
                    .as_ref()
                    .is_some_and(|c| matches!(c.verdict, Verdict::Better | Verdict::Worse))
        })
        .map(|(_, name, _)| name)
        .collect();
    if !moved.is_empty() {
        warn(
            format!("the baseline itself changed in {}", moved.join(", ")),
            "either the machine changed or something that all arms share did; what an arm is \
             worth against its own baseline is free of the first",
        );
    }
    found
}

/// Values of a metric that may be used: none when it was refused.
fn values<'a>(arm: &'a ArmOutcome, name: &str) -> &'a [Option<f64>] {
    match arm.metrics.get(name) {
        Some(metric) if metric.median.is_some() => &metric.trials,
        _ => &[],
    }
}

fn logs(values: &[Option<f64>]) -> Vec<f64> {
    values
        .iter()
        .flatten()
        .filter(|v| **v > 0.0)
        .map(|v| v.ln())
        .filter(|v| v.is_finite())
        .collect()
}

fn arm_of(outcome: &Outcome, kind: ArmKind) -> Option<&ArmOutcome> {
    outcome.arms.iter().find(|arm| arm.kind == kind)
}

fn noise(old: &Outcome, new: &Outcome, name: &str) -> Noise {
    let drift = |outcome: &Outcome| {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for kind in [ArmKind::Baseline, ArmKind::Control] {
            let values = arm_of(outcome, kind).map_or(&[][..], |arm| values(arm, name));
            let (before, after) = values.split_at(values.len() / 2);
            first.extend(logs(before));
            second.extend(logs(after));
        }
        two_samples::compare(&second, &first, LEVEL).map(|shift| shift.ratio)
    };
    Noise {
        old_floor: old.floor.get(name).copied(),
        new_floor: new.floor.get(name).copied(),
        old_drift: drift(old),
        new_drift: drift(new),
    }
}

impl Noise {
    /// How far from 1 the floors of both runs reach.
    fn floors(&self) -> Option<f64> {
        let reach = |floor: Floor| floor.high.max(1.0 / floor.low).max(1.0);
        Some(reach(self.old_floor?).max(reach(self.new_floor?)))
    }

    /// The same for values, which drift as well.
    fn for_values(&self) -> Option<f64> {
        let far = |drift: f64| drift.max(1.0 / drift);
        Some(self.floors()?.max(far(self.old_drift?)).max(far(self.new_drift?)))
    }
}

fn metric(
    (old, before): (&Outcome, &ArmOutcome),
    (new, after): (&Outcome, &ArmOutcome),
    name: &str,
    noise: &Noise,
) -> Option<MetricComparison> {
    let (a, b) = (before.metrics.get(name), after.metrics.get(name));
    let shape = b.or(a)?;
    let mut result = MetricComparison {
        unit: shape.unit.clone(),
        better: shape.better,
        old: a.and_then(|metric| metric.median),
        new: b.and_then(|metric| metric.median),
        value: None,
        worth: None,
        why: None,
    };
    if a.zip(b).is_some_and(|(a, b)| a.unit != b.unit) {
        result.why = Some("the two runs give it in different units".into());
        return Some(result);
    }
    if is_tally(name) {
        return Some(result);
    }
    for (metric, when) in [(a, "older"), (b, "newer")] {
        if metric.is_none_or(|metric| metric.median.is_none()) && result.why.is_none() {
            let why = metric.and_then(|metric| metric.why.as_deref()).unwrap_or("not measured");
            result.why = Some(format!("no figure in the {when} run: {why}"));
        }
    }
    if result.why.is_some() {
        return Some(result);
    }
    let (fresh, stale) = (values(after, name), values(before, name));
    result.value = change(&logs(fresh), &logs(stale), noise.for_values(), shape);
    if after.kind != ArmKind::Baseline {
        let ratios = |outcome: &Outcome, of: &[Option<f64>]| {
            let base = arm_of(outcome, ArmKind::Baseline)?;
            Some(statistics::log_ratios(of, values(base, name)))
        };
        if let (Some(fresh), Some(stale)) = (ratios(new, fresh), ratios(old, stale)) {
            result.worth = change(&fresh, &stale, noise.floors(), shape);
        }
    }
    Some(result)
}

fn change(new: &[f64], old: &[f64], reach: Option<f64>, shape: &MetricOutcome) -> Option<Change> {
    let comparison = two_samples::compare(new, old, LEVEL)?;
    let floor = reach.map(|reach| Floor { low: 1.0 / reach, high: reach });
    // As many trials as an experiment needs, though a rank sum could do with four.
    let enough = comparison.pairs >= statistics::PAIRS_MIN;
    let verdict = match enough {
        true => statistics::verdict(&comparison, LEVEL, floor, MARGIN, shape.better),
        false => Verdict::Inconclusive,
    };
    let interval = comparison.interval.filter(|_| enough);
    Some(Change {
        ratio: comparison.ratio,
        low: interval.map(|interval| interval.low),
        high: interval.map(|interval| interval.high),
        p: comparison.p,
        reach,
        verdict,
    })
}
