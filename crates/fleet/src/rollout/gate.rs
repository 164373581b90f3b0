//! Does the proof of a stage let the plan through?

use model::Verdict;
use model::pool::{HOSTS_MIN, PooledMetric};
use serde::{Deserialize, Serialize};

/// Share of hosts that may be hurt; one host may in any case.
pub const HURT_SHARE_MAX: f64 = 0.05;

/// Judgement on a stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "gate", content = "why", rename_all = "kebab-case")]
pub enum Gate {
    /// The plan may be applied.
    Open(String),
    /// The plan must be rolled back everywhere.
    Shut(String),
    /// The figures mean nothing.
    Void(String),
}

/// Proof of a stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Proof {
    /// Judgement.
    #[serde(flatten)]
    pub gate: Gate,
    /// The plan on hosts of the stage; `None` without any figure.
    pub plan: Option<PooledMetric>,
    /// Number of hosts in the control group.
    pub control_count: usize,
    /// Figure of the control group over that of its baseline, median; `None` without any.
    pub control_drift: Option<f64>,
}

/// Judges a stage.
///
/// - `plan`: the plan on hosts of the stage.
/// - `wants_gain`: refuse a plan without a gain, from [`HOSTS_MIN`] hosts on.
/// - `control`: hosts of the control group with a figure, and those of them that differ from themselves.
pub fn gate(plan: Option<&PooledMetric>, wants_gain: bool, control: (usize, usize)) -> Gate {
    let (control_hosts, odd_hosts) = control;
    if odd_hosts * 2 > control_hosts {
        return Gate::Void(format!(
            "{odd_hosts} of {control_hosts} hosts of the control group, which the plan does not touch, differ from \
             themselves"
        ));
    }
    let Some(plan) = plan else { return Gate::Shut("no host has a figure of this metric".into()) };
    match (plan.hosts as usize) < HOSTS_MIN {
        true => each_host(plan),
        false => pooled(plan, wants_gain),
    }
}

/// A canary: no host is worse.
fn each_host(plan: &PooledMetric) -> Gate {
    for line in &plan.lines {
        let ratio = line.ratio.map_or(String::new(), |ratio| format!(", ×{ratio:.3}"));
        match (line.verdict, &line.why) {
            (Some(Verdict::Worse), _) => {
                return Gate::Shut(format!("worse on {}{ratio}", line.host));
            }
            (_, Some(why)) => return Gate::Shut(format!("no figure of {}: {why}", line.host)),
            _ => {}
        }
    }
    Gate::Open(match plan.hosts {
        1 => "not worse on the host".into(),
        hosts => format!("worse on none of {hosts} hosts"),
    })
}

fn pooled(plan: &PooledMetric, wants_gain: bool) -> Gate {
    let ratio = plan.ratio.map_or(String::new(), |ratio| format!(", ×{ratio:.3}"));
    let hurt_max = ((f64::from(plan.hosts) * HURT_SHARE_MAX) as u32).max(1);
    if plan.hurt > hurt_max {
        return Gate::Shut(format!(
            "hurts {} of {} hosts, and {hurt_max} may be",
            plan.hurt, plan.hosts
        ));
    }
    match plan.verdict {
        Some(Verdict::Worse) => Gate::Shut(format!("worse on {} hosts{ratio}", plan.hosts)),
        Some(Verdict::Better) => Gate::Open(format!("better on {} hosts{ratio}", plan.hosts)),
        Some(Verdict::Refused) | None => {
            let why = plan.why.as_deref().unwrap_or("no pooled verdict");
            Gate::Shut(format!("no verdict: {why}"))
        }
        Some(_) if wants_gain => {
            Gate::Shut(format!("no gain is shown on {} hosts{ratio}", plan.hosts))
        }
        Some(_) => Gate::Open(format!("not shown to be worse on {} hosts{ratio}", plan.hosts)),
    }
}

#[cfg(test)]
mod tests {
    use model::Better;
    use model::pool::{HostLine, Side};

    use super::*;

    fn plan(hosts: u32, verdict: Option<Verdict>, of_hosts: Option<Verdict>) -> PooledMetric {
        let line = |at: u32| HostLine {
            host: format!("h{at}"),
            ratio: Some(1.2),
            low: Some(1.1),
            high: Some(1.3),
            verdict: of_hosts,
            side: Side::Undecided,
            why: None,
        };
        PooledMetric {
            better: Better::Lower,
            hosts,
            missing: 0,
            ratio: None,
            low: None,
            high: None,
            tau: None,
            next_low: None,
            next_high: None,
            p: None,
            p_adjusted: None,
            floor: None,
            helped: 0,
            hurt: 0,
            verdict,
            everywhere: None,
            split: None,
            why: None,
            lines: (0..hosts).map(line).collect(),
        }
    }

    fn is_open(plan: &PooledMetric, wants_gain: bool) -> bool {
        matches!(gate(Some(plan), wants_gain, (1, 0)), Gate::Open(_))
    }

    #[test]
    fn canary_opens_unless_a_host_is_worse_or_has_no_figure() {
        assert!(is_open(&plan(2, None, Some(Verdict::Inconclusive)), true));
        assert!(!is_open(&plan(2, None, Some(Verdict::Worse)), false));
        let mut missing = plan(2, None, Some(Verdict::Better));
        missing.lines[1].why = Some("its run was interrupted".into());
        assert!(!is_open(&missing, false));
        assert!(matches!(gate(None, false, (0, 0)), Gate::Shut(_)));
    }

    #[test]
    fn pooled_verdict_decides_from_six_hosts_on() {
        for (verdict, is_enough, has_gain) in [
            (Some(Verdict::Better), true, true),
            (Some(Verdict::NoDifferenceShown), true, false),
            (Some(Verdict::Inconclusive), true, false),
            (Some(Verdict::Worse), false, false),
            (Some(Verdict::Refused), false, false),
            (None, false, false),
        ] {
            // A host that is worse by itself does not decide.
            let plan = plan(6, verdict, Some(Verdict::Worse));
            assert_eq!((is_open(&plan, false), is_open(&plan, true)), (is_enough, has_gain));
        }
    }

    #[test]
    fn hurt_hosts_shut_the_gate_of_a_plan_that_is_better_on_average() {
        let mut plan = plan(40, Some(Verdict::Better), None);
        plan.hurt = 2;
        assert!(is_open(&plan, true), "5 %");
        plan.hurt = 3;
        assert!(!is_open(&plan, true));
        (plan.hosts, plan.hurt) = (6, 1);
        assert!(is_open(&plan, true));
        plan.hurt = 2;
        assert!(!is_open(&plan, true));
    }

    #[test]
    fn control_group_that_differs_from_itself_voids_the_proof() {
        let plan = plan(6, Some(Verdict::Worse), None);
        assert!(matches!(gate(Some(&plan), false, (3, 2)), Gate::Void(_)));
        assert!(matches!(gate(Some(&plan), false, (4, 2)), Gate::Shut(_)));
    }
}
