//! The plan of the settings that an experiment showed to help.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use host::output_file::create_growing;
use host::tune::Plan;
use model::{ArmKind, Outcome, PlanArms, Verdict};
use remote::Failure;
use runner::WHOLE_PLAN;

/// Worth of the settings of one knob, by a judged metric.
#[derive(Debug, Clone)]
pub(crate) struct Worth {
    pub(crate) knob: String,
    pub(crate) metric: String,
    /// With the setting, over without it.
    pub(crate) ratio: f64,
    /// Of the 95 % interval.
    pub(crate) ends: Option<(f64, f64)>,
    pub(crate) verdict: Verdict,
}

/// Settings that help, of those of a plan.
pub(super) struct Kept {
    plan: Plan,
    worths: Vec<Worth>,
    left_out: Vec<String>,
}

/// Errors: the file exists. It is refused before the run, and not overwritten after it.
pub(super) fn check_free(file: &Path) -> Result<(), Failure> {
    if file.symlink_metadata().is_err() {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "{} exists already; remove it, or name another file with --keep",
        file.display()
    )))
}

/// Writes a plan. Errors: the file has appeared since, or cannot be written.
pub(super) fn write_new(file: &Path, text: &str) -> Result<(), Failure> {
    let written = create_growing(file, false).and_then(|mut new| new.write_all(text.as_bytes()));
    written.map_err(|error| Failure::failed(format!("cannot write {}: {error}", file.display())))
}

impl Kept {
    /// Settings that are better by a judged metric and worse by none; `None` if there are none.
    pub(super) fn from_outcome(plan: &Plan, outcome: &Outcome, arms: PlanArms) -> Option<Kept> {
        let mut worths = worths(plan, outcome, arms);
        let (steps, rest): (Vec<_>, Vec<_>) =
            plan.steps.iter().cloned().partition(|step| helps(&worths, &step.knob));
        let mut left_out: Vec<String> = rest.into_iter().map(|step| step.knob).collect();
        left_out.dedup();
        worths.retain(|worth| {
            worth.verdict == Verdict::Better && steps.iter().any(|step| step.knob == worth.knob)
        });
        let is_empty = steps.is_empty();
        let kept = Kept { plan: Plan { steps, ..plan.clone() }, worths, left_out };
        (!is_empty).then_some(kept)
    }

    /// Writes the plan. Errors: the file has appeared since, or cannot be written.
    ///
    /// - `of`: file of the whole plan, and id of the result.
    pub(super) fn write(&self, file: &Path, of: (&Path, &str)) -> Result<(), Failure> {
        write_new(file, &self.text(of))
    }

    pub(super) fn settings_count(&self) -> usize {
        self.plan.steps.len()
    }

    /// The plan, after the worth of each of its settings as a comment.
    fn text(&self, (whole, id): (&Path, &str)) -> String {
        let whole = host::text::printable(&whole.to_string_lossy(), 200);
        let mut text = format!("# Settings of {whole} that help, by experiment {id}:\n");
        for Worth { knob, metric, ratio, ends, .. } in &self.worths {
            let ends = ends.map_or(String::new(), |(low, high)| format!(" [{low:.3}, {high:.3}]"));
            let _ = writeln!(text, "#   {knob}: {metric} {ratio:.3}x{ends}");
        }
        if !self.left_out.is_empty() {
            let _ =
                writeln!(text, "# Not shown to help, and left out: {}", self.left_out.join(", "));
            text.push_str(
                "# This set was not measured by itself; `wirepath tune prove` does it.\n",
            );
        }
        text.push('\n');
        text + &self.plan.to_text()
    }
}

/// True if the knob is better by a metric and worse by none.
fn helps(worths: &[Worth], knob: &str) -> bool {
    has_verdict(worths, knob, Verdict::Better) && !has_verdict(worths, knob, Verdict::Worse)
}

fn has_verdict(worths: &[Worth], knob: &str, verdict: Verdict) -> bool {
    worths.iter().any(|worth| worth.knob == knob && worth.verdict == verdict)
}

/// Worth of the settings: of a ladder that of each on top of those before it, else that of each arm.
pub(super) fn worths(plan: &Plan, outcome: &Outcome, arms: PlanArms) -> Vec<Worth> {
    if arms == PlanArms::Ladder {
        let gains = outcome.gains(WHOLE_PLAN).into_iter();
        let worth = gains.map(|gain| Worth {
            knob: gain.switch,
            metric: gain.metric,
            ratio: gain.ratio,
            ends: gain.low.zip(gain.high),
            verdict: gain.verdict,
        });
        return worth.collect();
    }
    let variants = outcome.arms.iter().filter(|arm| arm.kind == ArmKind::Variant);
    let measured = variants.filter(|arm| arms == PlanArms::Plan || arm.switches.len() == 1);
    let mut worths = Vec::new();
    for arm in measured {
        for name in &outcome.judged {
            let Some(metric) = arm.metrics.get(name) else { continue };
            let (Some(ratio), Some(verdict)) = (metric.ratio, metric.verdict) else { continue };
            let ends = metric.low.zip(metric.high);
            let knobs =
                arm.switches.iter().filter(|knob| plan.steps.iter().any(|s| s.knob == **knob));
            worths.extend(knobs.map(|knob| {
                let (knob, metric) = (knob.clone(), name.clone());
                Worth { knob, metric, ratio, ends, verdict }
            }));
        }
    }
    worths
}

#[cfg(test)]
mod tests {
    use host::tune::{Step, Target, Value};
    use model::{
        ArmOutcome, Better, Experiment, ExperimentPlan, MetricOutcome, OutcomeHeader, Support,
    };

    use super::*;

    fn plan(knobs: &[&str]) -> Plan {
        let steps = knobs.iter().map(|knob| Step {
            knob: (*knob).to_owned(),
            target: Target::Interface("eth0".into()),
            seen: Value::new("1").unwrap(),
            value: Value::new("0").unwrap(),
            reason: "a reason".into(),
        });
        Plan {
            schema: host::tune::PLAN_SCHEMA,
            machine: "0123456789ab".into(),
            profile: "latency".into(),
            interface: Some("eth0".into()),
            driver: Some("veth".into()),
            other_interfaces: Vec::new(),
            netns: None,
            steps: steps.collect(),
            left_out: Vec::new(),
        }
    }

    fn metric(verdict: Verdict) -> MetricOutcome {
        MetricOutcome {
            ratio: Some(0.5),
            low: Some(0.4),
            high: Some(0.6),
            verdict: Some(verdict),
            ..MetricOutcome::unjudged("ns", Better::Lower, vec![Some(1.0)])
        }
    }

    fn variant(knobs: &[&str], verdicts: &[(&str, Verdict)]) -> ArmOutcome {
        ArmOutcome {
            name: knobs.join("+"),
            kind: ArmKind::Variant,
            switches: knobs.iter().map(|id| (*id).to_owned()).collect(),
            support: Support::Yes,
            trials: 8,
            metrics: verdicts.iter().map(|(name, v)| ((*name).to_owned(), metric(*v))).collect(),
            latency: Default::default(),
            mode: Default::default(),
            counters: Default::default(),
            samples: None,
            reliability: None,
            failures: Vec::new(),
        }
    }

    fn outcome(arms: Vec<ArmOutcome>) -> Outcome {
        let judged = vec!["rtt_ns_p50".to_owned(), "cpu_ns".to_owned()];
        let plan = ExperimentPlan::new(1, Vec::new(), judged, 1, 1);
        Outcome { arms, ..Experiment::new(plan).outcome(OutcomeHeader::default()) }
    }

    #[test]
    fn settings_that_are_better_and_in_no_figure_worse_are_kept_with_their_worth() {
        let plan = plan(&["gro-flush-timeout", "napi-defer-hard-irqs", "threaded-napi"]);
        let better = ("rtt_ns_p50", Verdict::Better);
        let arms = vec![
            variant(&["gro-flush-timeout"], &[better, ("cpu_ns", Verdict::NoDifferenceShown)]),
            variant(&["napi-defer-hard-irqs"], &[better, ("cpu_ns", Verdict::Worse)]),
            variant(&["threaded-napi"], &[("rtt_ns_p50", Verdict::Inconclusive)]),
        ];
        let kept = Kept::from_outcome(&plan, &outcome(arms), PlanArms::Alone).unwrap();
        let text = kept.text((Path::new("plan.toml"), "ID"));
        let head = "# Settings of plan.toml that help, by experiment ID:\n\
                    #   gro-flush-timeout: rtt_ns_p50 0.500x [0.400, 0.600]\n\
                    # Not shown to help, and left out: napi-defer-hard-irqs, threaded-napi\n";
        assert!(text.starts_with(head), "{text}");
        let read = Plan::parse(&text).unwrap();
        assert_eq!(read.steps, plan.steps[..1]);
    }

    #[test]
    fn plan_that_helps_as_a_whole_is_kept_as_a_whole_and_one_that_does_not_is_not() {
        let knobs = ["gro-flush-timeout", "threaded-napi"];
        let plan = plan(&knobs);
        let better = outcome(vec![variant(&knobs, &[("rtt_ns_p50", Verdict::Better)])]);
        assert_eq!(Kept::from_outcome(&plan, &better, PlanArms::Plan).unwrap().settings_count(), 2);
        let none = outcome(vec![variant(&knobs, &[("rtt_ns_p50", Verdict::Exploratory)])]);
        assert!(Kept::from_outcome(&plan, &none, PlanArms::Plan).is_none());
    }
}
