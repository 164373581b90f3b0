//! Hosts that a pooled page names as helped or hurt: how often it names one without an effect.
//!
//! `cargo test -p wirepath-model --test pool_hosts -- --nocapture` prints the shares.

mod support;

use std::collections::BTreeMap;

use support::documents::template;
use wirepath_model::pool::{FleetSide, PooledOutcome, pool, pool_groups};
use wirepath_model::{ArmKind, Outcome, Random, Verdict, statistics};

const ARMS: [&str; 8] = ["baseline", "again", "a", "b", "c", "d", "e", "f"];
const METRICS: [&str; 3] = ["cpu_ns", "rtt_ns_p50", "rtt_ns_p99"];
const BLOCKS: usize = 14;

type Host = (String, Result<Outcome, String>);

/// Hosts with noise of 5 % and so many arms; `effect` is the logarithm of an arm on a host.
fn fleet(arms: usize, hosts: usize, seed: u64, effect: impl Fn(usize, &str) -> f64) -> Vec<Host> {
    let mut template = template(&ARMS[..2 + arms], &METRICS);
    template.blocks = BLOCKS as u32;
    template.arms[1].kind = ArmKind::Control;
    let mut random = Random::new(seed, hosts as u64);
    let mut host = |at: usize| {
        let mut outcome = template.clone();
        for name in METRICS {
            let mut logs = |of: f64| -> Vec<f64> {
                (0..BLOCKS).map(|_| of + 0.05 * random.normal()).collect()
            };
            let (base, again) = (logs(0.0), logs(0.0));
            for arm in &mut outcome.arms {
                let own = match arm.kind {
                    ArmKind::Baseline => base.clone(),
                    ArmKind::Control => again.clone(),
                    _ => logs(effect(at, &arm.name)),
                };
                let both = base.iter().zip(&again).map(|(one, other)| (one + other) / 2.0);
                let ratios: Vec<f64> = own.iter().zip(both).map(|(own, base)| own - base).collect();
                let metric = arm.metrics.get_mut(name).expect("the metric");
                metric.trials = own.iter().map(|log| Some(100.0 * log.exp())).collect();
                metric.ratio = statistics::median(&ratios).map(f64::exp);
                metric.p = Some(statistics::p_value(&ratios));
                metric.verdict = Some(Verdict::Inconclusive);
            }
        }
        (format!("h{at}"), Ok(outcome))
    };
    (0..hosts).map(&mut host).collect()
}

fn named(pooled: &PooledOutcome) -> usize {
    let metrics = pooled.arms.iter().flat_map(|arm| arm.metrics.values());
    metrics
        .flat_map(|metric| &metric.lines)
        .filter(|line| line.side != FleetSide::Undecided)
        .count()
}

#[test]
fn pages_without_an_effect_seldom_name_a_host() {
    const PAGES: u64 = 150;
    for (arms, hosts) in [(1, 20), (6, 20), (6, 6)] {
        let count = (0..PAGES)
            .filter(|seed| named(&pool(&fleet(arms, hosts, *seed, |_, _| 0.0))) > 0)
            .count();
        eprintln!("{arms} arms, 3 metrics, {hosts} hosts: {count} of {PAGES} pages name a host");
        // 5 %, and 2.6 standard errors.
        assert!(count <= 14, "{count}");
    }
}

#[test]
fn host_that_is_hurt_is_named_among_many_figures() {
    let pooled = pool(&fleet(
        6,
        20,
        1,
        |host: usize, arm: &str| if host == 3 && arm == "b" { 0.3 } else { 0.0 },
    ));
    let lines = &pooled.arms[1].metrics["rtt_ns_p50"].lines;
    assert_eq!((lines[3].side, named(&pooled)), (FleetSide::Hurt, 3));
}

fn groups(count: usize) -> BTreeMap<String, String> {
    (0..11).map(|at| (format!("h{at}"), format!("rack{}", at % count))).collect()
}

#[test]
fn groups_are_counted_and_few_of_them_decide_nothing() {
    let hosts = fleet(1, 12, 1, |_, _| -0.3);
    let metric = |pooled: &PooledOutcome| pooled.arms[0].metrics["rtt_ns_p50"].clone();
    assert_eq!(
        (metric(&pool(&hosts)).groups, metric(&pool(&hosts)).verdict),
        (None, Some(Verdict::Better))
    );
    // The last host has no group, and is one of its own.
    let pooled = pool_groups(&hosts, &groups(4));
    let few = metric(&pooled);
    assert_eq!((few.groups, few.hosts, few.verdict), (Some(5), 12, Some(Verdict::Inconclusive)));
    assert!(few.why.unwrap().contains("5 groups"));
    assert_eq!(pooled.hosts[4].group.as_deref(), Some("rack0"));
    assert_eq!((pooled.hosts[11].group.as_deref(), few.helped), (None, 12));
    assert!(pooled.warnings[0].what.contains("5 groups of hosts cannot decide 3 figures"));
    assert_eq!(metric(&pool_groups(&hosts, &groups(9))).verdict, Some(Verdict::Better));
}
