//! Pooled outcome of one experiment on many hosts.

mod support;

use support::{plan, run};
use wirepath_model::pool::{FleetSide, PooledMetric, PooledOutcome, pool};
use wirepath_model::{Ended, FakeWorld, Outcome, Verdict};

type Host = (String, Result<Outcome, String>);

/// A host on which the switch `fast` multiplies times by `fast`.
fn host(at: u64, fast: f64) -> Host {
    let mut world = FakeWorld { seed: at, noise: 0.02, samples: 500, ..FakeWorld::default() };
    world.effects.insert("fast".into(), fast);
    let mut plan = plan(at, "fast");
    plan.stop_early = false;
    plan.max_blocks = 12;
    let mut outcome = run(plan, world);
    outcome.id = format!("run-{at}");
    outcome.path = "fake".into();
    (format!("h{at}"), Ok(outcome))
}

fn fleet(count: u64) -> Vec<Host> {
    (0..count).map(|at| host(at, 0.8 + 0.005 * at as f64)).collect()
}

fn metric(pooled: &PooledOutcome) -> &PooledMetric {
    let arm = pooled.arms.iter().find(|arm| arm.name.contains("fast")).expect("the arm");
    &arm.metrics["rtt_ns_p50"]
}

#[test]
fn arm_that_helps_every_host_is_better_everywhere() {
    let pooled = pool(&fleet(7));
    let of = metric(&pooled);
    assert_eq!((of.verdict, of.everywhere), (Some(Verdict::Better), Some(true)), "{of:?}");
    assert_eq!((of.hosts, of.missing, of.helped, of.hurt), (7, 0, 7, 0));
    assert!(of.low.unwrap() < of.ratio.unwrap() && of.ratio.unwrap() < of.high.unwrap());
    assert!(of.next_low.unwrap() <= of.low.unwrap() && of.next_high.unwrap() >= of.high.unwrap());
    assert!(of.lines.iter().all(|line| line.side == FleetSide::Helped && line.ratio.is_some()));
    assert!(of.floor.is_some() && pooled.path == "fake" && pooled.hosts.len() == 7);
}

#[test]
fn arm_that_was_decided_before_the_end_is_pooled_by_the_blocks_in_which_it_ran() {
    let hosts: Vec<Host> = (0..7)
        .map(|at| {
            let mut plan = plan(at, "fast,nothing");
            (plan.resolve, plan.max_blocks) = (1.005, 40);
            let world = FakeWorld { seed: at, noise: 0.02, samples: 500, ..FakeWorld::default() };
            (format!("h{at}"), Ok(run(plan, world)))
        })
        .collect();
    for (_, outcome) in &hosts {
        let outcome = outcome.as_ref().unwrap();
        let ran = support::metric(outcome, "fast", "rtt_ns_p50").trials.len() as u32;
        assert!(2 * ran < outcome.blocks, "{ran} of {}", outcome.blocks);
    }
    let pooled = pool(&hosts);
    let of = metric(&pooled);
    assert_eq!((of.verdict, of.helped, of.missing), (Some(Verdict::Better), 7, 0), "{of:?}");
    assert!((0.65..0.75).contains(&of.ratio.unwrap()), "{of:?}");
}

#[test]
fn arm_that_helps_most_hosts_names_those_that_it_hurts_and_a_guess_why() {
    let mut hosts = fleet(10);
    for at in [3, 8] {
        hosts[at] = host(at as u64, 1.3);
        let Ok(outcome) = &mut hosts[at].1 else { panic!("measured") };
        outcome.machine.kernel = "5.10".into();
    }
    let pooled = pool(&hosts);
    let of = metric(&pooled);
    assert_eq!((of.helped, of.hurt), (8, 2));
    assert_ne!(of.everywhere, Some(true), "{of:?}");
    assert_eq!(of.split.as_deref(), Some("kernel"));
    assert_eq!(of.lines[8].side, FleetSide::Hurt);
}

#[test]
fn few_hosts_have_a_line_each_and_no_pooled_verdict() {
    let pooled = pool(&fleet(3));
    let of = metric(&pooled);
    assert_eq!((of.verdict, of.ratio), (None, None));
    assert!(of.why.as_deref().unwrap().contains("needs 6"));
    assert_eq!(of.lines.len(), 3);
    assert!(of.lines.iter().all(|line| line.verdict == Some(Verdict::Better)));
}

#[test]
fn hosts_without_an_outcome_stay_in_the_denominator() {
    let mut hosts = fleet(8);
    hosts[2].1 = Err("cannot reach h2 by ssh".into());
    let pooled = pool(&hosts);
    let of = metric(&pooled);
    assert_eq!((of.verdict, of.hosts, of.missing), (Some(Verdict::Refused), 8, 1));
    assert!(of.why.as_deref().unwrap().contains("1 of 8"));
    assert_eq!(of.lines[2].why.as_deref(), Some("cannot reach h2 by ssh"));
    assert_eq!(pooled.hosts[2].why.as_deref(), Some("cannot reach h2 by ssh"));
}

#[test]
fn interrupted_host_and_host_without_the_arm_are_not_pooled() {
    let mut hosts = fleet(8);
    let Ok(outcome) = &mut hosts[1].1 else { panic!("measured") };
    outcome.ended = Ended::Interrupted;
    assert_eq!(metric(&pool(&hosts)).lines[1].why.as_deref(), Some("its run was interrupted"));
    let mut hosts = fleet(8);
    let Ok(outcome) = &mut hosts[1].1 else { panic!("measured") };
    outcome.arms.retain(|arm| !arm.name.contains("fast"));
    let pooled = pool(&hosts);
    let of = metric(&pooled);
    assert_eq!((of.verdict, of.missing), (Some(Verdict::Refused), 1));
    assert!(of.why.as_deref().unwrap().contains("no figure of this arm"));
}

#[test]
fn fleet_without_any_outcome_has_no_arms() {
    let pooled = pool(&[("a".into(), Err("no".into())), ("b".into(), Err("no".into()))]);
    assert!(pooled.arms.is_empty() && pooled.judged.is_empty() && pooled.hosts.len() == 2);
}
