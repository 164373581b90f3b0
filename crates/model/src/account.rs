//! [`Outcome`] of an experiment, with its warnings.

use std::collections::BTreeMap;

use crate::judge::{Judged, Table, absent};
use crate::measurement::UNBALANCED;
use crate::statistics::PAIRS_MIN;
use crate::{
    Arm, ArmKind, ArmOutcome, Better, CarryOver, CpuSamples, Ended, Experiment, MetricOutcome,
    Outcome, OutcomeHeader, SCHEMA, Trap, Trial, Trust, Verdict, Warning, distribution,
};

/// Maximum number of failures listed per arm; the rest are counted.
const FAILURES_MAX: usize = 10;

impl Experiment {
    /// Returns the outcome so far; may be called at any time.
    pub fn outcome(&self, header: OutcomeHeader) -> Outcome {
        let table = Table::new(self);
        let seen = self.evidence(&table);
        let judged = table.judge(&seen);
        let trust = table.trust();
        let mut warnings = self.warnings.clone();
        noise_warning(self, &mut warnings);
        one_start_warning(self, &table, &mut warnings);
        carry_over_warnings(&trust, &mut warnings);
        shared_start_warnings(&table, &mut warnings);
        let arms: Vec<ArmOutcome> =
            (0..self.plan.arms.len()).map(|arm| arm_outcome(&table, &judged, self, arm)).collect();
        for (index, arm) in arms.iter().enumerate() {
            arm_warnings(self, &table, index, arm, &mut warnings);
        }
        let forecast = self.forecast_of(&table, &|arm: usize, name: &str| {
            let verdict = arms[arm].metrics.get(name).and_then(|metric| metric.verdict);
            matches!(verdict, Some(Verdict::Inconclusive | Verdict::Exploratory))
        });
        let mut outcome = Outcome {
            schema: SCHEMA,
            id: header.id,
            name: header.name,
            note: header.note,
            started: header.started,
            version: header.version,
            machine: header.machine,
            path: header.path,
            load: header.load,
            phrases: header.phrases,
            seed: self.plan.seed,
            schedule: self.plan.schedule,
            blocks: self.blocks(),
            wall_ms: self.elapsed_ns / 1_000_000,
            ended: self.ended.unwrap_or(Ended::Unfinished),
            judged: self.plan.judged.clone(),
            looks: self.seen.looks.len() as u32,
            resolve: self.plan.resolve,
            floor: judged.floors(&table),
            trust,
            gate: table.gate(&judged, &seen),
            looked: seen.looks,
            forecast,
            arms,
            warnings: deduplicated(warnings),
            search: header.search,
            best: Vec::new(),
        };
        outcome.best = outcome.best_arms();
        outcome
    }
}

fn arm_outcome(
    table: &Table,
    judged: &Judged,
    experiment: &Experiment,
    index: usize,
) -> ArmOutcome {
    let (arm, support) = &experiment.plan.arms[index];
    let pool = &experiment.pools[index];
    let trials = || experiment.trials.iter().filter(move |trial| trial.arm == index);
    let failures: Vec<String> =
        trials().filter_map(|trial| trial.result.as_ref().err().cloned()).collect();
    let mut metrics: BTreeMap<String, MetricOutcome> = table.arms[index]
        .keys()
        .map(|name| (name.to_string(), table.outcome(judged, index, name)))
        .collect();
    if metrics.is_empty() && arm.kind != ArmKind::Baseline {
        let failure = failures.last().map(String::as_str);
        metrics = (experiment.plan.judged.iter())
            .map(|name| (name.clone(), absent(name, support, failure)))
            .collect();
    }
    if let Some(Idle { why, .. }) =
        own_switch(arm).and_then(|switch| idle(trials(), switch)).filter(Idle::is_whole)
    {
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
        switches: arm.switches.names(),
        support: support.clone(),
        trials: trials().filter(|trial| !trial.warmup && trial.result.is_ok()).count() as u32,
        metrics,
        latency: (pool.latency.iter())
            .filter_map(|(segment, pooled)| {
                Some((segment.clone(), distribution(&pooled.0, pooled.1)?))
            })
            .collect(),
        mode: pool.mode.iter().map(|(name, seen)| (name.clone(), seen.join(" / "))).collect(),
        counters: pool.counters.clone(),
        samples: pool.samples.as_ref().map(CpuSamples::limited),
        reliability: judged.reliability(index),
        failures: shortened(failures),
    }
}

/// Switch that an arm tests: its only one, or the one added by its rung.
fn own_switch(arm: &Arm) -> Option<&str> {
    let last = arm.switches.last()?;
    let before = arm.name.strip_suffix(last.as_str()).and_then(|rest| rest.strip_suffix('+'));
    let rung = before.is_some_and(|before| before.is_empty() || before.ends_with(' '));
    (rung || arm.switches.len() == 1).then_some(last.as_str())
}

/// Counted trials of an arm that reported a switch without effect.
struct Idle<'a> {
    reported: usize,
    /// Trials that succeeded.
    of: usize,
    /// First reason.
    why: &'a str,
}

impl Idle<'_> {
    /// True if every trial reported it: the figures are then those of an arm without the switch. Otherwise they are those
    /// of an arm whose switch mostly worked, and their verdict holds.
    fn is_whole(&self) -> bool {
        self.reported == self.of
    }
}

/// Returns `None` if no trial reported the switch.
fn idle<'a>(trials: impl Iterator<Item = &'a Trial>, switch: &str) -> Option<Idle<'a>> {
    let counted = trials.filter(|trial| !trial.warmup && trial.result.is_ok());
    let mut found = Idle { reported: 0, of: 0, why: "" };
    for trial in counted {
        found.of += 1;
        let report = trial.not_effective.iter().find(|report| report.switch == switch);
        if let Some(report) = report {
            found.reported += 1;
            found.why = if found.reported == 1 { &report.why } else { found.why };
        }
    }
    Some(found).filter(|found| found.reported > 0)
}

/// The first failures, a line that counts those left out, and the last one.
fn shortened(mut failures: Vec<String>) -> Vec<String> {
    if failures.len() > FAILURES_MAX {
        let more = failures.len() - FAILURES_MAX;
        let line = format!("and {more} more");
        failures.splice(FAILURES_MAX - 1..FAILURES_MAX - 1 + more, [line]);
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
            "{noisy} of {blocks} blocks were noisy: other work used more than {:.0} % of the cores \
             in use; {} more were run, and all of them count",
            experiment.plan.noise_gate * 100.0,
            noisy.min(blocks / 4),
        ),
        advice: "stop other work on this machine, or give more time".into(),
    });
}

/// Names the arms whose program was started once for several blocks.
fn one_start_warning(experiment: &Experiment, table: &Table, warnings: &mut Vec<Warning>) {
    if !table.starts.is_one() {
        return;
    }
    let arms = experiment.plan.arms.iter().zip(&table.starts.counts);
    let once: Vec<&str> =
        arms.filter(|(_, count)| **count == 1).map(|((arm, _), _)| arm.name.as_str()).collect();
    warnings.push(Warning {
        what: format!(
            "one start of the program ran all trials of {}: two starts of one program differ, too (memory layout, hash \
             seeds), so a verdict may be that of the start",
            once.join(", ")
        ),
        advice: "give more time, so that each program is started several times, or leave out --keep"
            .into(),
    });
}

fn carry_over_warnings(trust: &Trust, warnings: &mut Vec<Warning>) {
    for check in trust.carry_over.iter().filter(|check| check.flagged) {
        let CarryOver { metric, after, blocks, ratio, p, .. } = check;
        let after = after.as_deref().unwrap_or("another arm");
        let ratio = ratio.map_or(String::new(), |ratio| format!("{ratio:.3} times, "));
        warnings.push(Warning {
            what: format!(
                "{metric} of the baseline differs after {after} from that after itself ({ratio}p {p:.4} in {blocks} \
                 blocks): a trial moves the figures of the next one, and not of all arms alike"
            ),
            advice: "do not use these verdicts; run again with --settle, or let each trial reset what it changes"
                .into(),
        });
    }
}

/// Names the metrics whose verdicts have the start as their unit.
fn shared_start_warnings(table: &Table, warnings: &mut Vec<Warning>) {
    let fewest = table.starts.counts.iter().filter(|count| **count > 0).min().unwrap_or(&0);
    for (name, share) in table.judged_by_start() {
        warnings.push(Warning {
            what: format!(
                "{:.0} % of the spread of {name} is between the {fewest} starts of each program, so all blocks of one \
                 start count as one",
                share * 100.0
            ),
            advice: format!(
                "if there is no verdict, give more time: it needs at least {PAIRS_MIN} starts"
            ),
        });
    }
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
    if !arm.failures.is_empty() {
        let hopeless = experiment.pools[index].hopeless;
        warnings.push(Warning {
            what: format!(
                "{failed} {} of {} failed{}",
                if failed == 1 { "trial" } else { "trials" },
                arm.name,
                if hopeless { ", and it was not run again" } else { "" },
            ),
            advice: "a failed trial counts as the worst of its block; see its error".into(),
        });
    }
    for (name, &count) in &arm.counters {
        let Some(of) = name.strip_suffix(UNBALANCED).filter(|_| count > 0) else { continue };
        warnings.push(Warning {
            what: format!(
                "frames of {} were lost or counted twice inside Wirepath: `{of}` does not balance in {count} of {} trials",
                arm.name, arm.trials
            ),
            advice: "do not use the figures of this arm, and report this".into(),
        });
    }
    let own = own_switch(&experiment.plan.arms[index].0);
    let trials = experiment.trials.iter().filter(|trial| trial.arm == index && !trial.warmup);
    let mut traps: Vec<&Trap> = Vec::new();
    let trapped = trials.clone().flat_map(|trial| &trial.traps);
    trapped.for_each(|trap| {
        // Counts of losses differ between trials.
        if !traps.iter().any(|one| without_digits(&one.what) == without_digits(&trap.what)) {
            traps.push(trap)
        }
    });
    warnings
        .extend(traps.iter().map(|t| Warning { what: t.what.clone(), advice: t.advice.clone() }));
    let idle = own.and_then(|switch| idle(trials.clone(), switch));
    if let Some(Idle { reported, of, why }) = idle.filter(|idle| !idle.is_whole()) {
        warnings.push(Warning {
            what: format!(
                "{} was reported without effect in {reported} of {of} trials: {why}",
                arm.name
            ),
            advice: "the verdict is of all its trials; see why it had an effect in the others only"
                .into(),
        });
    }
    for report in trials.flat_map(|trial| &trial.not_effective) {
        // One warning per switch: its evidence has counts, which differ between trials.
        let what = format!("{} was on without effect: ", report.switch);
        let is_known = warnings.iter().any(|warning| warning.what.starts_with(&what));
        if own != Some(report.switch.as_str()) && !is_known {
            warnings.push(Warning {
                what: what + &report.why,
                advice: "read arms with this switch as if it were off".into(),
            });
        }
    }
    for name in &experiment.plan.judged {
        let zeros = table.zeros(index, name);
        let Some(series) = table.arms[index].get(name.as_str()) else { continue };
        if zeros > 0 && series.better == Better::Lower {
            warnings.push(Warning {
                what: format!(
                    "{name} of {} is 0 in {zeros} of {} trials: below the resolution of the program that \
                     printed it",
                    arm.name, arm.trials
                ),
                advice: "these trials count as the best of their blocks; let the program print smaller \
                         units, and fail if it measured nothing"
                    .into(),
            });
        }
        let Some(reason) = series.reason.filter(|_| !series.is_refused()) else { continue };
        warnings.push(Warning {
            what: format!(
                "{name} of {} is missing in {} of {} trials: {reason}",
                arm.name, series.refused, arm.trials
            ),
            advice:
                "these trials count as the worst of their blocks; lower the rate if loss is the \
                     cause"
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
        if !metric.verdict.is_some_and(Verdict::differs) {
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

/// A text whose numbers do not matter.
fn without_digits(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rung_of_any_ladder_tests_the_switch_that_it_adds() {
        let arm = |name: &str, ids: &[&str]| {
            Arm::variant(name, ids.iter().map(|&id| crate::SwitchId::named(id)).collect())
        };
        let own = |name: &str, ids: &[&str]| own_switch(&arm(name, ids)).map(str::to_owned);
        assert_eq!(own("+pin", &["spin", "pin"]), Some("pin".into()));
        assert_eq!(own("zc +pin", &["zc", "spin", "pin"]), Some("pin".into()));
        assert_eq!(own("pin", &["pin"]), Some("pin".into()));
        assert_eq!(own("spin+pin", &["spin", "pin"]), None);
    }

    #[test]
    fn a_long_list_of_failures_keeps_the_first_and_the_last() {
        let failures = |count: usize| (1..=count).map(|n| format!("error {n}")).collect();
        assert_eq!(shortened(failures(10)).len(), 10);
        let short = shortened(failures(25));
        assert_eq!(short.len(), 11);
        assert_eq!(short[0], "error 1");
        assert_eq!(short[8..], ["error 9", "and 15 more", "error 25"]);
    }
}
