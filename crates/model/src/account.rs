//! The account of an experiment: its [`Outcome`] and the warnings in it.

use std::collections::BTreeMap;

use crate::judge::{Table, absent};
use crate::{
    Arm, ArmKind, ArmOutcome, Ended, Experiment, Floor, MetricOutcome, Outcome, OutcomeHeader,
    SCHEMA, Trap, Trial, Verdict, Warning, distribution,
};

/// Failures shown per arm; the rest are counted.
const FAILURES_SHOWN: usize = 10;

pub(crate) fn outcome(experiment: &Experiment, header: OutcomeHeader) -> Outcome {
    let table = Table::new(experiment);
    let mut warnings = experiment.warnings.clone();
    noise_warning(experiment, &mut warnings);
    let arms: Vec<ArmOutcome> =
        (0..experiment.plan.arms.len()).map(|arm| arm_outcome(&table, experiment, arm)).collect();
    for (index, arm) in arms.iter().enumerate() {
        arm_warnings(experiment, &table, index, arm, &mut warnings);
    }
    Outcome {
        schema: SCHEMA,
        id: header.id,
        started: header.started,
        version: header.version,
        machine: header.machine,
        path: header.path,
        load: header.load,
        seed: experiment.plan.seed,
        blocks: experiment.blocks(),
        wall_ms: experiment.elapsed_ns / 1_000_000,
        ended: experiment.ended.unwrap_or(Ended::Unfinished),
        judged: experiment.plan.judged.clone(),
        floor: floors(&table, experiment),
        arms,
        warnings: deduplicated(warnings),
    }
}

fn floors(table: &Table, experiment: &Experiment) -> BTreeMap<String, Floor> {
    let control = experiment.place(ArmKind::Control);
    let names = control.iter().flat_map(|&arm| table.arms[arm].keys());
    names.filter_map(|name| Some((name.to_string(), table.floor(name)?))).collect()
}

fn arm_outcome(table: &Table, experiment: &Experiment, index: usize) -> ArmOutcome {
    let (arm, support) = &experiment.plan.arms[index];
    let pool = &experiment.pools[index];
    let trials = || experiment.trials.iter().filter(move |trial| trial.arm == index);
    let failures: Vec<String> =
        trials().filter_map(|trial| trial.result.as_ref().err().cloned()).collect();
    let mut metrics: BTreeMap<String, MetricOutcome> = table.arms[index]
        .keys()
        .map(|name| (name.to_string(), table.outcome(index, name)))
        .collect();
    if metrics.is_empty() && arm.kind != ArmKind::Baseline {
        let failure = failures.last().map(String::as_str);
        metrics = (experiment.plan.judged.iter())
            .map(|name| (name.clone(), absent(name, support, failure)))
            .collect();
    }
    if let Some(why) = own_switch(arm).and_then(|switch| not_effective(trials(), switch)) {
        for name in &experiment.plan.judged {
            if let Some(metric) = metrics.get_mut(name) {
                metric.verdict = Some(Verdict::NotEffective);
                metric.why = Some(why.to_owned());
            }
        }
    }
    ArmOutcome {
        name: arm.name.clone(),
        kind: arm.kind,
        switches: arm.switches.clone(),
        support: support.clone(),
        trials: trials().filter(|trial| !trial.warmup && trial.result.is_ok()).count() as u32,
        metrics,
        latency: (pool.latency.iter())
            .filter_map(|(segment, pooled)| Some((segment.clone(), distribution(pooled)?)))
            .collect(),
        mode: pool.mode.iter().map(|(name, seen)| (name.clone(), seen.join(" / "))).collect(),
        counters: pool.counters.clone(),
        failures: shortened(failures),
    }
}

/// The switch that an arm stands for: its only one, or the one that its rung adds.
fn own_switch(arm: &Arm) -> Option<&str> {
    let last = arm.switches.last()?;
    let rung = arm.name.strip_prefix('+') == Some(last.as_str());
    (rung || arm.switches.len() == 1).then_some(last.as_str())
}

/// Why the switch did nothing, when any counted trial said so.
fn not_effective<'a>(trials: impl Iterator<Item = &'a Trial>, switch: &str) -> Option<&'a str> {
    trials
        .filter(|trial| !trial.warmup)
        .flat_map(|trial| &trial.not_effective)
        .find(|said| said.switch == switch)
        .map(|said| said.why.as_str())
}

fn shortened(mut failures: Vec<String>) -> Vec<String> {
    if failures.len() > FAILURES_SHOWN {
        let more = failures.len() - FAILURES_SHOWN;
        failures.truncate(FAILURES_SHOWN);
        failures.push(format!("and {more} more"));
    }
    failures
}

fn noise_warning(experiment: &Experiment, warnings: &mut Vec<Warning>) {
    let noisy = experiment.noisy_blocks;
    if noisy == 0 {
        return;
    }
    let blocks = experiment.blocks();
    warnings.push(Warning {
        what: format!(
            "{noisy} of {blocks} blocks were noisy: something else used more than {:.0} % of \
             the CPU time; {} more were run for them, and all of them count",
            experiment.plan.noise_gate * 100.0,
            noisy.min(blocks / 4),
        ),
        advice: "stop other work on this machine, or give more time".into(),
    });
}

fn arm_warnings(
    experiment: &Experiment,
    table: &Table,
    index: usize,
    arm: &ArmOutcome,
    warnings: &mut Vec<Warning>,
) {
    if arm.kind == ArmKind::Control {
        control_warnings(experiment, arm, warnings);
    }
    let failed = experiment.trials.iter().filter(|t| t.arm == index && t.result.is_err()).count();
    if let Some(error) = arm.failures.first() {
        let hopeless = experiment.pools[index].hopeless;
        warnings.push(Warning {
            what: format!(
                "{failed} trials of {} failed{}: {error}",
                arm.name,
                if hopeless { ", and it was not run again" } else { "" },
            ),
            advice: "the blocks in which they failed have no pair; see the error".into(),
        });
    }
    let own = own_switch(&experiment.plan.arms[index].0);
    let trials = experiment.trials.iter().filter(|trial| trial.arm == index && !trial.warmup);
    let mut traps: Vec<&Trap> = Vec::new();
    let trapped = trials.clone().flat_map(|trial| &trial.traps);
    trapped.for_each(|trap| {
        if !traps.contains(&trap) {
            traps.push(trap)
        }
    });
    warnings
        .extend(traps.iter().map(|t| Warning { what: t.what.clone(), advice: t.advice.clone() }));
    for said in trials.flat_map(|trial| &trial.not_effective) {
        if own != Some(said.switch.as_str()) {
            warnings.push(Warning {
                what: format!("{} was on and did nothing: {}", said.switch, said.why),
                advice: "read arms that hold it as if it were off".into(),
            });
        }
    }
    for name in &experiment.plan.judged {
        let Some(series) = table.arms[index].get(name.as_str()) else { continue };
        let Some(reason) = series.reason.filter(|_| !series.is_refused()) else { continue };
        warnings.push(Warning {
            what: format!(
                "{name} of {} is missing in {} of {} trials: {reason}",
                arm.name, series.refused, arm.trials
            ),
            advice: "its verdict rests on the other trials; lower the rate if loss is the cause"
                .into(),
        });
    }
}

fn control_warnings(experiment: &Experiment, control: &ArmOutcome, warnings: &mut Vec<Warning>) {
    if experiment.pools.iter().any(|pool| pool.successes > 0) && control.trials == 0 {
        warnings.push(Warning {
            what: "the A/A control has no trial, so there is no noise floor and no verdict".into(),
            advice: "see why its trials failed, or let the first block finish".into(),
        });
    }
    for name in &experiment.plan.judged {
        let Some(metric) = control.metrics.get(name) else { continue };
        if !matches!(metric.verdict, Some(Verdict::Better | Verdict::Worse)) {
            continue;
        }
        warnings.push(Warning {
            what: format!(
                "the baseline differs from itself in {name} ({:.3} times): neither the harness \
                 nor the machine can be trusted for this metric",
                metric.ratio.unwrap_or(f64::NAN),
            ),
            advice: "run again on a quieter machine, and for longer; do not use these verdicts"
                .into(),
        });
    }
}

fn deduplicated(warnings: Vec<Warning>) -> Vec<Warning> {
    let mut unique: Vec<Warning> = Vec::new();
    for warning in warnings {
        if !unique.contains(&warning) {
            unique.push(warning);
        }
    }
    unique
}
