//! Two runs against each other: what changed is found, what did not is not, and what cannot
//! be compared is refused.

mod support;

use support::{plan, run, strong_drift};
use wirepath_model::{
    ArmKind, CompareError, Drift, FakeWorld, Machine, Outcome, RunComparison, Verdict, compare,
};

fn world(seed: u64, drift: Vec<Drift>) -> FakeWorld {
    FakeWorld { seed, noise: 0.02, drift, samples: 2_000, ..FakeWorld::default() }
}

/// A run of the fake path with this seed; `slower` multiplies what `fast` takes.
fn measured(seed: u64, drift: Vec<Drift>, slower: f64) -> Outcome {
    let mut world = world(seed, drift);
    *world.effects.get_mut("fast").unwrap() *= slower;
    let mut plan = plan(seed, "fast,harmful");
    plan.stop_early = false;
    plan.max_blocks = 20;
    let mut outcome = run(plan, world);
    outcome.id = format!("run-{seed}");
    outcome.path = "fake".into();
    outcome.load = [("kind", "simulated"), ("size_bytes", "64")]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into();
    outcome
}

fn steady() -> Vec<Drift> {
    vec![Drift::Walk(0.01)]
}

fn verdicts(comparison: &RunComparison, arm: &str) -> (Verdict, Option<Verdict>) {
    let arm = comparison.arms.iter().find(|a| a.name == arm).expect("the arm is in both");
    let metric = &arm.metrics["rtt_ns_p50"];
    (metric.value.as_ref().unwrap().verdict, metric.worth.as_ref().map(|c| c.verdict))
}

#[test]
fn an_arm_that_got_slower_is_found_by_value_and_by_worth_and_the_others_are_not() {
    let mut found = 0;
    for seed in 0..20 {
        let old = measured(seed, steady(), 1.0);
        let new = measured(seed + 1_000, steady(), 1.3);
        let comparison = compare(&old, &new).unwrap();
        let (value, worth) = verdicts(&comparison, "fast");
        assert_eq!(worth, Some(Verdict::Worse), "seed {seed}");
        found += u32::from(value == Verdict::Worse);
        let metric = &comparison.arms.iter().find(|a| a.name == "fast").unwrap().metrics;
        let ratio = metric["rtt_ns_p50"].worth.as_ref().unwrap().ratio;
        assert!((1.26..1.34).contains(&ratio), "seed {seed}: {ratio}");
        assert!(!matches!(verdicts(&comparison, "harmful").1, Some(Verdict::Worse)));
        assert_eq!(comparison.worse(true), [("fast", "rtt_ns_p50")], "seed {seed}");
    }
    assert!(found >= 18, "by value in {found} of 20");
}

#[test]
fn two_runs_of_the_same_thing_differ_in_worth_almost_never_whatever_the_machine_does() {
    let (mut judged, mut by_worth, mut by_value) = (0, 0, 0);
    for seed in 0..60 {
        let old = measured(seed, strong_drift(), 1.0);
        let new = measured(seed + 1_000, strong_drift(), 1.0);
        let comparison = compare(&old, &new).unwrap();
        for (_, _, metric) in comparison.values() {
            let changed = |change: &Option<wirepath_model::Change>| {
                let verdict = change.as_ref().map(|c| c.verdict);
                u32::from(matches!(verdict, Some(Verdict::Better | Verdict::Worse)))
            };
            judged += u32::from(metric.worth.is_some());
            by_worth += changed(&metric.worth);
            by_value += changed(&metric.value);
        }
    }
    eprintln!(
        "{judged} arms: changed by worth {by_worth}; of {} by value {by_value}",
        judged * 3 / 2
    );
    assert!(by_worth * 100 <= judged, "{by_worth} of {judged}");
}

#[test]
fn a_slower_machine_moves_values_and_not_what_an_arm_is_worth() {
    let old = measured(1, steady(), 1.0);
    let mut world = world(2, steady());
    world.rtt_ns *= 1.5;
    let mut new = run(plan(2, "fast,harmful"), world);
    (new.id, new.path, new.load) = ("run-2".into(), old.path.clone(), old.load.clone());
    let comparison = compare(&old, &new).unwrap();
    assert_eq!(verdicts(&comparison, "baseline"), (Verdict::Worse, None));
    assert_eq!(verdicts(&comparison, "fast"), (Verdict::Worse, Some(Verdict::NoDifferenceShown)));
    let told = comparison.warnings.iter().any(|w| w.what.contains("baseline itself changed"));
    assert!(told, "{:?}", comparison.warnings);
}

#[test]
fn other_paths_loads_and_frame_sizes_are_refused_with_what_differs() {
    let old = measured(1, steady(), 1.0);
    let refused = |change: &dyn Fn(&mut Outcome)| {
        let mut new = measured(2, steady(), 1.0);
        change(&mut new);
        compare(&old, &new).unwrap_err().to_string()
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
    assert_eq!(compare(&old, &old), Err(CompareError::Same { id: "run-1".into() }));
    // How long, and which arms, is not what was measured.
    let mut new = measured(2, steady(), 1.0);
    new.load.insert("time_ms".into(), "5000".into());
    assert!(compare(&old, &new).is_ok());
}

#[test]
fn another_machine_is_compared_and_stands_first_among_the_differences() {
    let old = measured(1, steady(), 1.0);
    let mut new = measured(2, steady(), 1.0);
    new.machine = Machine { id: "m2".into(), cpus: 8, ..Machine::default() };
    let comparison = compare(&old, &new).unwrap();
    assert!(!comparison.same_machine);
    assert_eq!(comparison.differences[0].what, "machine");
    assert!(comparison.differences.iter().any(|d| d.what == "CPUs used" && d.new == "8"));
    assert!(comparison.warnings[0].what.contains("different machines"));
}

#[test]
fn refused_figures_missing_arms_and_too_few_trials_give_no_verdict_but_a_reason() {
    let old = measured(1, steady(), 1.0);
    let mut new = measured(2, steady(), 1.0);
    for arm in &mut new.arms {
        let metric = arm.metrics.get_mut("rtt_ns_p50").unwrap();
        match arm.name.as_str() {
            "fast" => {
                metric.median = None;
                metric.why = Some("3 datagrams lost".into());
            }
            "harmful" => metric.trials.truncate(5),
            _ => {}
        }
    }
    let mut gone = old.clone();
    gone.arms.retain(|arm| arm.name != "fast");
    gone.id = "gone".into();
    let comparison = compare(&old, &new).unwrap();
    let fast = &comparison.arms[1].metrics["rtt_ns_p50"];
    assert!(fast.value.is_none() && fast.worth.is_none());
    assert_eq!(fast.why.as_deref(), Some("no figure in the newer run: 3 datagrams lost"));
    assert_eq!(verdicts(&comparison, "harmful").0, Verdict::Inconclusive);
    let comparison = compare(&gone, &new).unwrap();
    assert_eq!(comparison.only_new, ["fast"]);
    assert!(comparison.arms.iter().all(|arm| arm.kind != ArmKind::Control));
    // Without a floor in either, nothing is said to differ.
    new.floor.clear();
    let comparison = compare(&old, &new).unwrap();
    let all: Vec<_> = comparison.values().filter_map(|(_, _, m)| m.value.as_ref()).collect();
    assert!(!all.is_empty());
    assert!(all.iter().all(|c| c.verdict == Verdict::Inconclusive && c.reach.is_none()));
}
