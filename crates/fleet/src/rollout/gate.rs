//! Does the proof of a stage let the plan through?

use model::pool::{HOSTS_MIN, HostLine, PooledMetric};
use model::{Better, Verdict};
use serde::{Deserialize, Serialize};

use super::{LiveCrossings, RolloutEvent};

/// Share of hosts that may be hurt; one host may in any case.
pub const HURT_SHARE_MAX: f64 = 0.05;
/// Factor beyond which the harm on a canary is not measured again.
const HARM_MAX: f64 = 1.25;
/// Proofs of a stage, one after the other, before the user has to decide.
const PROOFS_MAX: usize = 3;

/// Judgement on one proof.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "gate", content = "why", rename_all = "kebab-case")]
pub enum RolloutGate {
    /// The plan may be applied.
    Open(String),
    /// Neither harm nor its absence is shown.
    Unclear(String),
    /// Worse, by so little and on so few hosts that it may be noise.
    Suspect(String),
    /// The plan must be rolled back everywhere.
    Shut(String),
    /// The figures mean nothing.
    Void(String),
}

/// Demands of the user on a plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wants {
    /// From [`HOSTS_MIN`] hosts on, refuse a plan that is not shown to be better.
    pub gain: bool,
    /// Let a plan through that is not shown to be worse. Otherwise it must be shown to be no worse, within the
    /// resolution.
    pub accepts_inconclusive: bool,
}

/// Proof of a stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Proof {
    /// Judgement.
    #[serde(flatten)]
    pub gate: RolloutGate,
    /// The plan on hosts of the stage; `None` without any figure, and of a live proof.
    pub plan: Option<PooledMetric>,
    /// Proof on the running services; `None` of one under a load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<Box<LiveCrossings>>,
    /// Number of hosts in the control group.
    pub control_count: usize,
    /// Figure of the control group over that of its baseline, median; `None` without any.
    pub control_drift: Option<f64>,
}

/// Judges one proof of a stage.
///
/// - `plan`: the plan on hosts of the stage.
/// - `control`: hosts of the control group with a figure, and those of them that differ from themselves.
/// - `resolve`: ratio up to which a difference does not matter, above 1.
pub fn gate(
    plan: Option<&PooledMetric>,
    wants: Wants,
    control: (usize, usize),
    resolve: f64,
) -> RolloutGate {
    let (control_hosts, odd_hosts) = control;
    if odd_hosts * 2 > control_hosts {
        return RolloutGate::Void(format!(
            "{odd_hosts} of {control_hosts} hosts of the control group, which the plan does not touch, differ from \
             themselves"
        ));
    }
    let Some(plan) = plan else {
        return RolloutGate::Shut("no host has a figure of this metric".into());
    };
    let gate = if (plan.hosts as usize) < HOSTS_MIN {
        each_host(plan, resolve)
    } else {
        pooled(plan, wants.gain, resolve)
    };
    match gate {
        RolloutGate::Unclear(why) if wants.accepts_inconclusive => {
            RolloutGate::Open(format!("{why}, which the user accepts"))
        }
        gate => gate,
    }
}

/// Decides about a stage after its latest proof: pass, roll back, measure again, or ask the user.
///
/// - `gates`: of all proofs of the stage in a row, oldest first.
///
/// One proof is enough unless another one found harm: then it takes a second one to decide.
pub(super) fn decide(gates: &[RolloutGate]) -> (RolloutEvent, String) {
    let suspect = gates.iter().filter(|gate| matches!(gate, RolloutGate::Suspect(_))).count();
    let open = gates.iter().filter(|gate| matches!(gate, RolloutGate::Open(_))).count();
    let proofs = gates.len();
    let again = if proofs < PROOFS_MAX {
        (RolloutEvent::Again, ", measured again".to_owned())
    } else {
        (RolloutEvent::Pause, format!(" after {proofs} measurements: the user has to decide"))
    };
    let ((event, more), why) = match gates.last() {
        None => return (RolloutEvent::Again, "not measured yet".into()),
        Some(RolloutGate::Shut(why)) => ((RolloutEvent::Trigger, String::new()), why),
        Some(RolloutGate::Suspect(why)) if suspect > 1 => {
            ((RolloutEvent::Trigger, format!(", in {suspect} of {proofs} measurements")), why)
        }
        Some(RolloutGate::Open(why)) if open > suspect => {
            ((RolloutEvent::Pass, String::new()), why)
        }
        Some(RolloutGate::Open(why)) => {
            let (event, more) = again;
            ((event, format!(" now, and worse before{more}")), why)
        }
        Some(RolloutGate::Suspect(why) | RolloutGate::Unclear(why) | RolloutGate::Void(why)) => {
            (again, why)
        }
    };
    (event, format!("{why}{more}"))
}

/// Factor of harm at the good and at the bad end of an interval: above 1 is worse.
fn harm(better: Better, low: f64, high: f64) -> (f64, f64) {
    match better {
        Better::Lower => (low, high),
        Better::Higher => (high.recip(), low.recip()),
    }
}

/// True if the whole interval is better than the resolution.
fn is_no_worse(better: Better, low: Option<f64>, high: Option<f64>, resolve: f64) -> bool {
    let bad_end = low.zip(high).map(|(low, high)| harm(better, low, high).1);
    bad_end.is_some_and(|bad_end| bad_end <= resolve)
}

fn is_large_harm(better: Better, line: &HostLine) -> bool {
    let good_end = line.low.zip(line.high).map(|(low, high)| harm(better, low, high).0);
    good_end.is_some_and(|good_end| good_end >= HARM_MAX)
}

/// `5 %`, `0.5 %`.
fn percent(resolve: f64) -> String {
    let hundredths = ((resolve - 1.0) * 10_000.0).round();
    format!("{} %", hundredths / 100.0)
}

fn times(ratio: Option<f64>) -> String {
    ratio.map_or(String::new(), |ratio| format!(", ×{ratio:.3}"))
}

/// A canary: every host is shown to be no worse.
fn each_host(plan: &PooledMetric, resolve: f64) -> RolloutGate {
    if let Some((line, why)) = plan.lines.iter().find_map(|line| Some((line, line.why.as_ref()?))) {
        return RolloutGate::Shut(format!("no figure of {}: {why}", line.host));
    }
    let mut worse = plan.lines.iter().filter(|line| line.verdict == Some(Verdict::Worse));
    if let Some(line) = worse.clone().find(|line| is_large_harm(plan.better, line)) {
        return RolloutGate::Shut(format!("worse on {}{}", line.host, times(line.ratio)));
    }
    if let Some(line) = worse.next() {
        return RolloutGate::Suspect(format!("worse on {}{}", line.host, times(line.ratio)));
    }
    match plan.lines.iter().find(|line| !is_proven(plan.better, line, resolve)) {
        Some(line) => RolloutGate::Unclear(format!(
            "not shown to be within {} on {}{}",
            percent(resolve),
            line.host,
            times(line.ratio)
        )),
        None => RolloutGate::Open(match plan.hosts {
            1 => format!("no worse than by {} on the host", percent(resolve)),
            hosts => format!("no worse than by {} on each of {hosts} hosts", percent(resolve)),
        }),
    }
}

/// True if a host's own verdict shows that the plan is no worse there.
fn is_proven(better: Better, line: &HostLine, resolve: f64) -> bool {
    match line.verdict {
        Some(Verdict::Better | Verdict::NoDifferenceShown) => true,
        Some(Verdict::Inconclusive) => is_no_worse(better, line.low, line.high, resolve),
        // A run that ended early, or no verdict.
        _ => false,
    }
}

fn pooled(plan: &PooledMetric, wants_gain: bool, resolve: f64) -> RolloutGate {
    let on = format!("on {} hosts{}", plan.hosts, times(plan.ratio));
    let hurt_max = ((f64::from(plan.hosts) * HURT_SHARE_MAX) as u32).max(1);
    if plan.hurt > hurt_max {
        return RolloutGate::Shut(format!(
            "hurts {} of {} hosts, and {hurt_max} may be",
            plan.hurt, plan.hosts
        ));
    }
    let is_no_worse = is_no_worse(plan.better, plan.low, plan.high, resolve);
    match plan.verdict {
        Some(Verdict::Worse) => RolloutGate::Shut(format!("worse {on}")),
        Some(Verdict::Better) => RolloutGate::Open(format!("better {on}")),
        Some(Verdict::Refused) | None => {
            let why = plan.why.as_deref().unwrap_or("no pooled verdict");
            RolloutGate::Shut(format!("no verdict: {why}"))
        }
        Some(Verdict::NoDifferenceShown) if wants_gain => {
            RolloutGate::Shut(format!("no gain is shown {on}"))
        }
        Some(Verdict::NoDifferenceShown) => {
            RolloutGate::Open(format!("no difference beyond {} {on}", percent(resolve)))
        }
        Some(_) if wants_gain => RolloutGate::Unclear(format!("no gain is shown {on}")),
        Some(_) if is_no_worse => {
            RolloutGate::Open(format!("no worse than by {} {on}", percent(resolve)))
        }
        Some(_) => {
            RolloutGate::Unclear(format!("not shown to be within {} {on}", percent(resolve)))
        }
    }
}

#[cfg(test)]
mod tests {
    use model::pool::FleetSide;

    use super::*;

    const RESOLVE: f64 = 1.05;
    const ALWAYS: Wants = Wants { gain: false, accepts_inconclusive: true };
    const GAIN: Wants = Wants { gain: true, accepts_inconclusive: false };

    /// - `(low, high)`: interval of every host, and of all.
    fn plan(
        hosts: u32,
        (low, high): (f64, f64),
        verdict: Option<Verdict>,
        of_hosts: Verdict,
    ) -> PooledMetric {
        let line = |at: u32| HostLine {
            host: format!("h{at}"),
            ratio: Some((low * high).sqrt()),
            low: Some(low),
            high: Some(high),
            verdict: Some(of_hosts),
            side: FleetSide::Undecided,
            why: None,
        };
        PooledMetric {
            better: Better::Lower,
            hosts,
            groups: None,
            missing: 0,
            ratio: None,
            low: Some(low),
            high: Some(high),
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

    fn canary(ends: (f64, f64), of_hosts: Verdict) -> PooledMetric {
        plan(2, ends, None, of_hosts)
    }

    fn judged(plan: &PooledMetric, wants: Wants) -> &'static str {
        match gate(Some(plan), wants, (1, 0), RESOLVE) {
            RolloutGate::Open(_) => "open",
            RolloutGate::Unclear(_) => "unclear",
            RolloutGate::Suspect(_) => "suspect",
            RolloutGate::Shut(_) => "shut",
            RolloutGate::Void(_) => "void",
        }
    }

    #[test]
    fn canary_opens_only_if_every_host_is_shown_to_be_no_worse() {
        let default = |ends, verdict| judged(&canary(ends, verdict), Wants::default());
        assert_eq!(default((0.7, 0.8), Verdict::Better), "open");
        assert_eq!(default((0.95, 1.05), Verdict::NoDifferenceShown), "open");
        assert_eq!(default((0.8, 1.05), Verdict::Inconclusive), "open", "at worst 5 %");
        assert_eq!(default((0.8, 1.2), Verdict::Inconclusive), "unclear");
        assert_eq!(default((0.7, 0.8), Verdict::Exploratory), "unclear", "ended early");
        assert_eq!(judged(&canary((0.8, 1.2), Verdict::Inconclusive), ALWAYS), "open");
        let mut one = canary((0.95, 1.05), Verdict::NoDifferenceShown);
        (one.lines[1].verdict, one.lines[1].high) = (Some(Verdict::Inconclusive), Some(1.3));
        assert_eq!(judged(&one, Wants::default()), "unclear");
        one.lines[1].why = Some("its run was interrupted".into());
        assert_eq!(judged(&one, ALWAYS), "shut");
        assert!(matches!(gate(None, ALWAYS, (0, 0), RESOLVE), RolloutGate::Shut(_)));
    }

    #[test]
    fn worse_canary_is_measured_again_unless_the_harm_is_large() {
        assert_eq!(judged(&canary((1.02, 1.5), Verdict::Worse), ALWAYS), "suspect");
        let mut large = canary((1.3, 1.5), Verdict::Worse);
        assert_eq!(judged(&large, ALWAYS), "shut");
        // A rate that has halved.
        (large.better, large.lines[0].low, large.lines[0].high) =
            (Better::Higher, Some(0.4), Some(0.6));
        large.lines.truncate(1);
        assert_eq!(judged(&large, ALWAYS), "shut");
        large.lines[0].high = Some(0.9);
        assert_eq!(judged(&large, ALWAYS), "suspect");
    }

    #[test]
    fn pooled_verdict_decides_from_six_hosts_on() {
        for (verdict, default, gain) in [
            (Some(Verdict::Better), "open", "open"),
            (Some(Verdict::NoDifferenceShown), "open", "shut"),
            (Some(Verdict::Inconclusive), "unclear", "unclear"),
            (Some(Verdict::Worse), "shut", "shut"),
            (Some(Verdict::Refused), "shut", "shut"),
            (None, "shut", "shut"),
        ] {
            // A host that is worse by itself does not decide.
            let plan = plan(6, (0.9, 1.2), verdict, Verdict::Worse);
            assert_eq!((judged(&plan, Wants::default()), judged(&plan, GAIN)), (default, gain));
        }
        let narrow = plan(6, (0.8, 1.05), Some(Verdict::Inconclusive), Verdict::Inconclusive);
        assert_eq!((judged(&narrow, Wants::default()), judged(&narrow, GAIN)), ("open", "unclear"));
    }

    #[test]
    fn hurt_hosts_shut_the_gate_of_a_plan_that_is_better_on_average() {
        let mut plan = plan(40, (0.8, 0.9), Some(Verdict::Better), Verdict::Better);
        plan.hurt = 2;
        assert_eq!(judged(&plan, GAIN), "open", "5 %");
        plan.hurt = 3;
        assert_eq!(judged(&plan, GAIN), "shut");
        (plan.hosts, plan.hurt) = (6, 1);
        assert_eq!(judged(&plan, GAIN), "open");
        plan.hurt = 2;
        assert_eq!(judged(&plan, GAIN), "shut");
    }

    #[test]
    fn control_group_that_differs_from_itself_voids_the_proof() {
        let plan = plan(6, (1.1, 1.2), Some(Verdict::Worse), Verdict::Worse);
        assert!(matches!(gate(Some(&plan), ALWAYS, (3, 2), RESOLVE), RolloutGate::Void(_)));
        assert!(matches!(gate(Some(&plan), ALWAYS, (4, 2), RESOLVE), RolloutGate::Shut(_)));
    }

    #[test]
    fn one_suspicion_is_measured_again_and_a_second_one_rolls_back() {
        let [open, unclear, suspect, void] =
            [RolloutGate::Open, RolloutGate::Unclear, RolloutGate::Suspect, RolloutGate::Void]
                .map(|gate| gate(String::new()));
        for (gates, expected) in [
            (vec![&open], RolloutEvent::Pass),
            (vec![&unclear], RolloutEvent::Again),
            (vec![&unclear, &open], RolloutEvent::Pass),
            (vec![&unclear, &unclear, &unclear], RolloutEvent::Pause),
            (vec![&void], RolloutEvent::Again),
            (vec![&void, &open], RolloutEvent::Pass),
            (vec![&void, &unclear, &void], RolloutEvent::Pause),
            (vec![&suspect], RolloutEvent::Again),
            (vec![&suspect, &suspect], RolloutEvent::Trigger),
            (vec![&suspect, &open], RolloutEvent::Again),
            (vec![&suspect, &open, &open], RolloutEvent::Pass),
            (vec![&suspect, &open, &suspect], RolloutEvent::Trigger),
            (vec![&suspect, &open, &unclear], RolloutEvent::Pause),
            (vec![&unclear, &suspect, &open], RolloutEvent::Pause),
            (vec![&open, &RolloutGate::Shut(String::new())], RolloutEvent::Trigger),
        ] {
            let gates: Vec<RolloutGate> = gates.into_iter().cloned().collect();
            assert_eq!(decide(&gates).0, expected, "{gates:?}");
        }
    }
}
