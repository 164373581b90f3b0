//! Comparison of two series of runs: changes are found, unchanged arms are not, and incomparable runs
//! are refused.

mod support;

use support::{plan, run};
use wirepath_model::{
    ArmKind, By, Change, CompareError, Ended, FakeDrift, FakeWorld, GateAnswer, Machine, Outcome,
    Random, RunComparison, Undecided, Unit, Verdict, compare,
};

/// Each run is a unit, and the margin is 10 %.
fn compared(old: &[Outcome], new: &[Outcome]) -> Result<RunComparison, CompareError> {
    compare(old, new, Unit::Run, 1.1)
}

fn world(seed: u64, drift: Vec<FakeDrift>) -> FakeWorld {
    FakeWorld { seed, noise: 0.02, drift, samples: 500, ..FakeWorld::default() }
}

/// A run of the fake path with this seed.
fn measured(seed: u64) -> Outcome {
    measured_in(seed, world(seed, vec![FakeDrift::Walk(0.01)]))
}

fn measured_in(seed: u64, world: FakeWorld) -> Outcome {
    let mut plan = plan(seed, "fast,harmful");
    plan.stop_early = false;
    plan.max_blocks = 8;
    let mut outcome = run(plan, world);
    outcome.id = format!("run-{seed}");
    outcome.path = "fake".into();
    outcome.load = [("kind", "simulated"), ("size_bytes", "64")]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into();
    outcome
}

/// So many runs, each on a machine that differs from the last by `machine` (a standard deviation), in
/// which each arm is off by `placement` of its own.
fn series(first: u64, runs: u64, machine: f64, placement: f64, slower: f64) -> Vec<Outcome> {
    (first..first + runs)
        .map(|seed| {
            let mut random = Random::new(seed, 77);
            let mut world = world(seed, vec![FakeDrift::Walk(0.01)]);
            world.rtt_ns *= (machine * random.normal()).exp();
            for name in ["fast", "harmful"] {
                *world.effects.get_mut(name).unwrap() *= (placement * random.normal()).exp();
            }
            *world.effects.get_mut("fast").unwrap() *= slower;
            measured_in(seed, world)
        })
        .collect()
}

fn changed(change: Option<&Change>) -> bool {
    matches!(change.map(|c| c.verdict), Some(Verdict::Better | Verdict::Worse))
}

fn change(comparison: &RunComparison, arm: &str, by: By) -> Change {
    let arm = comparison.arms.iter().find(|a| a.name == arm).expect("the arm is in both");
    arm.metrics["rtt_ns_p50"].change(by).cloned().expect("it has a change")
}

#[test]
fn unchanged_runs_rarely_differ_although_every_run_does() {
    let worlds = [(0.0, 0.0), (0.03, 0.0), (0.05, 0.0), (0.0, 0.03), (0.03, 0.02)];
    for (machine, placement) in worlds {
        let (mut by_value, mut by_worth) = (0, 0);
        let comparisons = 120;
        for at in 0..comparisons {
            let old = series(at * 100, 7, machine, placement, 1.0);
            let new = series(at * 100 + 50, 7, machine, placement, 1.0);
            let comparison = compared(&old, &new).unwrap();
            let any = |by| comparison.values().any(|(.., metric)| changed(metric.change(by)));
            by_value += u32::from(any(By::Value));
            by_worth += u32::from(any(By::Worth));
        }
        eprintln!(
            "machine {machine}, placement {placement}: of {comparisons} comparisons {by_value} by \
             value, {by_worth} by worth"
        );
        // 5 % of 120 is 6; 12 and more have a probability of 2 %.
        assert!(by_value <= 11 && by_worth <= 11, "{by_value} {by_worth}");
    }
}

#[test]
fn a_slower_arm_is_found_by_value_and_by_worth() {
    let (mut by_value, mut by_worth) = (0, 0);
    for at in 0..20 {
        let old = series(at * 100, 10, 0.02, 0.02, 1.0);
        let new = series(at * 100 + 50, 10, 0.02, 0.02, 1.15);
        let comparison = compared(&old, &new).unwrap();
        let worth = change(&comparison, "fast", By::Worth);
        assert!((1.10..1.20).contains(&worth.ratio), "{worth:?}");
        by_worth += u32::from(worth.verdict == Verdict::Worse);
        by_value += u32::from(change(&comparison, "fast", By::Value).verdict == Verdict::Worse);
    }
    assert!(by_value >= 18 && by_worth >= 18, "{by_value} {by_worth} of 20");
}

#[test]
fn slower_machine_changes_values_but_not_worth() {
    let old = series(100, 6, 0.005, 0.005, 1.0);
    let mut new = series(200, 6, 0.005, 0.005, 1.0);
    for (metric, value) in new
        .iter_mut()
        .flat_map(|outcome| &mut outcome.arms)
        .flat_map(|arm| arm.metrics.values_mut())
        .filter_map(|metric| metric.median.map(|value| (metric, value)))
    {
        metric.median = Some(value * 1.5);
    }
    let comparison = compared(&old, &new).unwrap();
    assert_eq!(change(&comparison, "baseline", By::Value).verdict, Verdict::Worse);
    assert_eq!(change(&comparison, "fast", By::Value).verdict, Verdict::Worse);
    assert_eq!(change(&comparison, "fast", By::Worth).verdict, Verdict::NoDifferenceShown);
    let told = comparison.warnings.iter().any(|w| w.what.contains("baseline itself changed"));
    assert!(told, "{:?}", comparison.warnings);
}

#[test]
fn one_run_a_side_has_ratios_and_no_verdict() {
    let (old, new) = (series(100, 1, 0.0, 0.0, 1.0), series(200, 1, 0.0, 0.0, 2.0));
    let comparison = compared(&old, &new).unwrap();
    let fast = change(&comparison, "fast", By::Value);
    assert!((1.9..2.1).contains(&fast.ratio), "{fast:?}");
    assert_eq!((fast.low, fast.p, fast.verdict), (None, None, Verdict::Inconclusive));
    assert_eq!((fast.old_count, fast.new_count), (1, 1));
    assert_eq!(undecided(&comparison, By::Value).len(), 3);
    assert_eq!(undecided(&comparison, By::Worth).len(), 2);
    let gate = comparison.decide(By::Value, 1.05);
    assert_eq!(gate.decisions[0].reason, Some(Undecided::FewRuns { needed: 5 }));
    assert!(comparison.warnings[0].what.contains("1 older and 1 newer runs; 5 a side"));
}

#[test]
fn different_paths_loads_and_frame_sizes_are_refused() {
    let old = [measured(1)];
    let refused = |change: &dyn Fn(&mut Outcome)| {
        let mut new = measured(2);
        change(&mut new);
        compared(&old, &[new]).unwrap_err().to_string()
    };
    let size = refused(&|new| drop(new.load.insert("size_bytes".into(), "1400".into())));
    assert!(size.contains("frame size") && size.contains("64") && size.contains("1400"), "{size}");
    let path = refused(&|new| new.path = "probe".into());
    assert!(path.contains("the path is fake in the first and probe"), "{path}");
    let load = refused(&|new| drop(new.load.insert("kind".into(), "flood".into())));
    assert!(load.contains("the load is simulated"), "{load}");
    let rate = refused(&|new| drop(new.load.insert("rate_pps".into(), "5".into())));
    assert!(rate.contains("not given"), "{rate}");
    let judged = refused(&|new| new.judged = vec!["goodput_bps".into()]);
    assert!(judged.contains("no judged figure in common"), "{judged}");
    assert_eq!(compared(&old, &old), Err(CompareError::Same { id: "run-1".into() }));
    assert_eq!(compared(&old, &[]), Err(CompareError::NoRun));
    // Within a series, too.
    let mut large = measured(3);
    large.load.insert("size_bytes".into(), "1400".into());
    assert!(compared(&[measured(1), large], &[measured(2)]).is_err());
    // How long, and which arms, is not what was measured.
    let mut new = measured(2);
    new.load.insert("time_ms".into(), "5000".into());
    assert!(compared(&old, &[new]).is_ok());
}

#[test]
fn another_machine_is_the_first_difference() {
    let old = [measured(1), measured(3)];
    let mut new = measured(2);
    new.machine = Machine { id: "m2".into(), cpus: 8, ..Machine::default() };
    let comparison = compared(&old, &[new]).unwrap();
    assert!(!comparison.same_machine);
    assert_eq!(comparison.differences[0].what, "machine");
    assert!(comparison.differences.iter().any(|d| d.what == "CPUs used" && d.new == "8"));
    let warned = comparison.warnings.iter().any(|w| w.what.contains("different machines"));
    assert!(warned, "{:?}", comparison.warnings);
}

#[test]
fn missing_figures_give_a_reason_instead_of_a_verdict() {
    let old = series(100, 5, 0.0, 0.0, 1.0);
    let mut new = series(200, 5, 0.0, 0.0, 1.0);
    for arm in new.iter_mut().flat_map(|outcome| &mut outcome.arms) {
        let metric = arm.metrics.get_mut("rtt_ns_p50").unwrap();
        if arm.name == "fast" {
            metric.median = None;
            metric.why = Some("3 datagrams lost".into());
        }
    }
    // One run of five has no figure for this arm: too few for a verdict, and the count says so.
    new[2].arms[3].metrics.get_mut("rtt_ns_p50").unwrap().median = None;
    let comparison = compared(&old, &new).unwrap();
    let fast = &comparison.arms[1].metrics["rtt_ns_p50"];
    assert!(fast.value.is_none() && fast.worth.is_none());
    assert_eq!(fast.why.as_deref(), Some("no figure in the newer runs: 3 datagrams lost"));
    let harmful = change(&comparison, "harmful", By::Value);
    assert_eq!((harmful.new_count, harmful.verdict), (4, Verdict::Inconclusive));
    assert_eq!(undecided(&comparison, By::Value), ["fast", "harmful"]);
    let mut gone = old.clone();
    gone.iter_mut().for_each(|outcome| outcome.arms.retain(|arm| arm.name != "fast"));
    let comparison = compared(&gone, &new).unwrap();
    assert_eq!(comparison.only_new, ["fast"]);
    assert!(comparison.arms.iter().all(|arm| arm.kind != ArmKind::Control));
    // An arm that is gone is not one that is no worse.
    gone.iter_mut().for_each(|outcome| outcome.id.push('2'));
    assert_eq!(undecided(&compared(&old, &gone).unwrap(), By::Value), ["fast"]);
}

/// Arms that a gate of 20 % leaves open.
fn undecided(comparison: &RunComparison, by: By) -> Vec<String> {
    let gate = comparison.decide(by, 1.2);
    assert_ne!(gate.answer, GateAnswer::NoWorse);
    let open = gate.decisions.into_iter().filter(|d| d.answer == GateAnswer::NotDecided);
    open.map(|decision| decision.arm).collect()
}

#[test]
fn gate_between_runs_has_three_answers() {
    let old = series(100, 6, 0.005, 0.005, 1.0);
    let answer =
        |new: &[Outcome], by, threshold| compared(&old, new).unwrap().decide(by, threshold).answer;
    let same = series(200, 6, 0.005, 0.005, 1.0);
    assert_eq!(answer(&same, By::Value, 1.1), GateAnswer::NoWorse);
    assert_eq!(answer(&same, By::Worth, 1.1), GateAnswer::NoWorse);
    let slower = series(200, 6, 0.005, 0.005, 1.3);
    assert_eq!(answer(&slower, By::Value, 1.1), GateAnswer::Worse);
    assert_eq!(answer(&slower, By::Worth, 1.1), GateAnswer::Worse);
    assert_eq!(answer(&slower, By::Value, 1.3), GateAnswer::NotDecided, "about the threshold");
    let mut partial = same.clone();
    partial[2].ended = Ended::Interrupted;
    assert_eq!(answer(&partial, By::Value, 1.1), GateAnswer::NotDecided);
}

fn with_losses(seed: u64, lost: f64) -> Vec<Outcome> {
    let mut runs = series(seed, 5, 0.0, 0.0, 1.0);
    for (at, outcome) in runs.iter_mut().enumerate() {
        outcome.judged = vec!["lost_count".into()];
        for arm in &mut outcome.arms {
            let metric = arm.metrics.get_mut("lost_count").expect("the fake path counts losses");
            metric.trials.iter_mut().for_each(|value| *value = Some(lost * (5 + at) as f64));
        }
    }
    runs
}

#[test]
fn losses_are_compared_between_runs_by_their_differences() {
    let old = with_losses(100, 0.0);
    let answer = |new: &[Outcome]| compared(&old, new).unwrap().decide(By::Value, 1.05);
    assert_eq!(answer(&with_losses(200, 0.0)).answer, GateAnswer::NoWorse);
    let lossy = answer(&with_losses(200, 8.0));
    // The baseline loses as well, so the machine may be the cause.
    let decision = |arm: &str| lossy.decisions.iter().find(|d| d.arm == arm).unwrap();
    assert_eq!(decision("fast").answer, GateAnswer::Worse);
    assert!(decision("fast").difference.unwrap().mean > 40.0);
}
