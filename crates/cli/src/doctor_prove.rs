//! `wirepath doctor --prove`: the worth of the change of each finding, measured on the path.

use std::cmp::Reverse;
use std::ffi::OsString;
use std::path::Path;

use clap::Parser;
use host::causes::{DoctorReport, Evidence, Finding, FindingWorth};
use host::tune;
use house::context::Context;
use house::place::{PlaceArgs, StateArgs};
use house::{console, signals};
use model::Verdict;
use remote::Failure;
use report::verdict_text;

use crate::tune::kept::Worth;
use crate::tune::prove::{self, ProofArgs};

/// Name of the plan in the record of the experiment.
const PLAN_NAME: &str = "findings of doctor";

/// Words behind `--`.
#[derive(Debug, Parser)]
#[command(name = "wirepath doctor --prove --", args_override_self = true)]
struct ProofLine {
    #[command(flatten)]
    proof: ProofArgs,
}

/// Measures the settings of all findings, each by itself against the host as it is, writes their worth into the
/// findings, and orders these by it. Settings are restored after each trial.
///
/// - `options`: options of `tune prove`.
///
/// Errors: no finding is a setting, or the experiment is not possible.
pub(crate) fn prove(
    context: &Context,
    state: &StateArgs,
    (place, evidence): (&PlaceArgs, &Evidence),
    report: &mut DoctorReport,
    options: &[OsString],
) -> Result<(), Failure> {
    signals::stop_on_hangup()?;
    let words = ["doctor", "--arms", "alone"].map(OsString::from);
    let line = ProofLine::try_parse_from(words.iter().chain(options))
        .map_err(|error| Failure::Usage(error.to_string()))?;
    let system = place.open(state)?;
    let wanted: Vec<_> = report
        .findings
        .iter()
        .flat_map(|found| found.settings.iter().map(move |setting| (setting, found.what.as_str())))
        .collect();
    let interfaces = tune::interfaces(wanted.iter().map(|(setting, _)| *setting));
    let interface = place.interface.clone().or_else(|| evidence.first_of(&interfaces));
    let plan = tune::settings_plan(&system, "doctor", interface.as_deref(), wanted.into_iter())?;
    if plan.steps.is_empty() {
        console::say("no finding is a setting of `tune` that differs here: nothing was measured");
        return Ok(());
    }
    let proven = prove::prove(context, state, &line.proof, &plan, Path::new(PLAN_NAME))?;
    let worths = prove::worth_of_settings(&line.proof, &plan, &proven);
    // Stable: those of equal worth stay in the order of their severity.
    report.findings.sort_by_key(|found| Reverse(rank(&worths_of(found, &worths))));
    for found in &mut report.findings {
        found.worth = worths_of(found, &worths).into_iter().map(finding_worth).collect();
    }
    prove::keep_or_report(context, state, &line.proof, (&plan, Path::new(PLAN_NAME)), &proven)
}

/// Worth of the settings of a finding.
fn worths_of<'a>(found: &Finding, worths: &'a [Worth]) -> Vec<&'a Worth> {
    let is_own = |knob: &str| found.settings.iter().any(|setting| setting.knob == knob);
    worths.iter().filter(|worth| is_own(&worth.knob)).collect()
}

fn finding_worth(worth: &Worth) -> FindingWorth {
    FindingWorth {
        knob: worth.knob.clone(),
        metric: worth.metric.clone(),
        ratio: worth.ratio,
        low: worth.ends.map(|(low, _)| low),
        high: worth.ends.map(|(_, high)| high),
        verdict: verdict_text(worth.verdict).to_owned(),
    }
}

/// Place of a finding: its gain in thousandths of a factor, 0 if it was not measured, below if it gave nothing.
fn rank(worths: &[&Worth]) -> i64 {
    let is_worse = worths.iter().any(|worth| worth.verdict == Verdict::Worse);
    let better = worths.iter().filter(|worth| worth.verdict == Verdict::Better);
    let gain = better.map(|worth| (worth.ratio.ln().abs() * 1e3) as i64 + 1).max();
    match gain {
        _ if worths.is_empty() => 0,
        _ if is_worse => -2,
        gain => gain.unwrap_or(-1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank_of(ratio: f64, verdict: Verdict) -> i64 {
        let ends = Some((ratio * 0.9, ratio * 1.1));
        let (knob, metric) = ("gro".to_owned(), "rtt_ns_p50".to_owned());
        rank(&[&Worth { knob, metric, ratio, ends, verdict }])
    }

    #[test]
    fn findings_are_ordered_by_gain_then_unmeasured_ones_then_those_that_gave_nothing_or_harm() {
        let half = rank_of(0.5, Verdict::Better);
        assert!(half > rank_of(0.9, Verdict::Better));
        // A figure of which more is better.
        assert_eq!(half, rank_of(2.0, Verdict::Better));
        assert!(rank_of(0.99, Verdict::Better) > rank(&[]));
        assert!(rank(&[]) > rank_of(1.0, Verdict::NoDifferenceShown));
        assert!(rank_of(1.0, Verdict::Inconclusive) > rank_of(2.0, Verdict::Worse));
    }

    #[test]
    fn options_behind_the_dashes_are_those_of_tune_prove() {
        ProofLine::try_parse_from(["doctor", "--arms", "alone", "--arms", "plan", "--from", "red"])
            .unwrap();
        assert!(ProofLine::try_parse_from(["doctor", "--no-such"]).is_err());
    }
}
