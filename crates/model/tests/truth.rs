//! The harness against simulated machines with known effects: it must find those and no others.

mod support;

use support::{arm, metric, plan, run, strong_drift};
use wirepath_model::statistics::{self, LEVEL, PAIRS_MIN};
use wirepath_model::{Ended, FakeDrift, FakeSource, FakeSwitch, FakeWorld, Random, Verdict};

fn world(seed: u64, noise: f64, drift: Vec<FakeDrift>) -> FakeWorld {
    FakeWorld { seed, noise, drift, samples: 2_000, ..FakeWorld::default() }
}

fn changed(verdict: Option<Verdict>) -> bool {
    matches!(verdict, Some(Verdict::Better | Verdict::Worse))
}

#[test]
fn large_effects_are_found_under_strong_drift() {
    for seed in 0..20 {
        let outcome = run(plan(seed, "fast,harmful"), world(seed, 0.02, strong_drift()));
        let fast = metric(&outcome, "fast", "rtt_ns_p50");
        let harmful = metric(&outcome, "harmful", "rtt_ns_p50");
        assert_eq!(fast.verdict, Some(Verdict::Better), "seed {seed}: {fast:?}");
        assert_eq!(harmful.verdict, Some(Verdict::Worse), "seed {seed}: {harmful:?}");
        let ratio = fast.ratio.unwrap();
        assert!((0.6..0.8).contains(&ratio), "seed {seed}: {ratio}");
    }
}

#[test]
fn three_per_cent_are_found_with_low_noise_and_a_fine_resolution() {
    let mut found = 0;
    for seed in 0..20 {
        let mut plan = plan(seed, "slight");
        plan.resolve = 1.01;
        let drift = vec![FakeDrift::Walk(0.02), FakeDrift::Ramp(0.01)];
        let outcome = run(plan, world(seed, 0.005, drift));
        let slight = metric(&outcome, "slight", "rtt_ns_p50");
        assert!((0.955..0.985).contains(&slight.ratio.unwrap()), "seed {seed}: {slight:?}");
        assert_ne!(slight.verdict, Some(Verdict::Worse), "seed {seed}");
        found += u32::from(slight.verdict == Some(Verdict::Better));
    }
    assert!(found >= 18, "found in {found} of 20");
}

#[test]
fn intervals_keep_their_coverage_after_an_early_stop() {
    let (mut held, mut settled) = (0, 0);
    let experiments = 300;
    for seed in 0..experiments {
        let drift = vec![FakeDrift::Walk(0.03), FakeDrift::Ramp(-0.01)];
        let outcome = run(plan(seed, "fast"), world(seed, 0.03, drift));
        let fast = metric(&outcome, "fast", "rtt_ns_p50");
        held += u32::from(fast.low.unwrap() <= 0.7 && 0.7 <= fast.high.unwrap());
        settled += u32::from(outcome.ended == Ended::Settled);
    }
    eprintln!("held in {held}, stopped early in {settled} of {experiments}");
    let share = f64::from(held) / experiments as f64;
    // It holds at every look, so it covers more than 95 % at one of them.
    assert!((0.93..1.0).contains(&share), "{share}");
    assert!(f64::from(settled) > 0.9 * experiments as f64, "{settled}");
}

#[test]
fn no_effect_is_found_where_there_is_none() {
    let (mut experiments_fooled, mut verdicts_fooled, mut control_fooled) = (0u32, 0u32, 0u32);
    let (mut settled, mut blocks) = (0u32, 0u32);
    let experiments = 400;
    for seed in 0..experiments {
        let drift = match seed % 4 {
            0 => vec![],
            1 => vec![FakeDrift::Walk(0.05)],
            2 => vec![FakeDrift::Ramp(0.02)],
            _ => strong_drift(),
        };
        let mut plan = plan(seed, "nothing,idle");
        plan.judged = vec!["rtt_ns_p50".into(), "rtt_ns_p99".into()];
        // `idle` says so itself; here only its figures matter.
        plan.arms[3].0.switches = [FakeSwitch::Nothing].into_iter().collect();
        let noise = [0.01, 0.03, 0.1][seed as usize % 3];
        let outcome = run(plan, world(seed, noise, drift));
        let wrong = |name: &str| {
            let judged = ["rtt_ns_p50", "rtt_ns_p99"].iter();
            judged.filter(|m| changed(metric(&outcome, name, m).verdict)).count() as u32
        };
        let variants = wrong("nothing") + wrong("idle");
        verdicts_fooled += variants;
        experiments_fooled += u32::from(variants > 0);
        control_fooled += u32::from(wrong("baseline again") > 0);
        settled += u32::from(outcome.ended == Ended::Settled);
        blocks += outcome.blocks;
    }
    eprintln!(
        "of {experiments} null experiments with 4 verdicts each: {experiments_fooled} with a false \
         verdict, {verdicts_fooled} false verdicts, control distrusted in {control_fooled}, \
         {settled} stopped early, {:.1} blocks each",
        f64::from(blocks) / experiments as f64
    );
    assert!(experiments_fooled <= 20, "{experiments_fooled} of 400");
    assert!(control_fooled <= 20, "{control_fooled} of 400");
    assert!(settled > 100, "{settled}: the early stop was not put to the test");
}

/// True if log-ratios differ from 0 by their interval and by their p-value.
fn differs(log_ratios: &[f64], level: f64) -> bool {
    let comparison = statistics::compare(log_ratios, level).unwrap();
    let interval = comparison.interval.unwrap();
    comparison.p < 1.0 - level && (interval.low > 1.0 || interval.high < 1.0)
}

/// Interim looks without a correction: streams of log-ratios around 0, stopped when
/// both levels conclude "different", otherwise at the end.
#[test]
fn looking_early_does_not_inflate_false_positives_much_even_without_correction() {
    let (mut looking, mut waiting) = (0, 0);
    let streams = 3000;
    for seed in 0..streams {
        let mut random = Random::new(seed, 0);
        let values: Vec<f64> = (0..64).map(|_| 0.05 * random.normal()).collect();
        let last = differs(&values, LEVEL);
        waiting += u32::from(last);
        let early = [8, 11, 15, 20, 27, 36, 48, 64].iter().any(|&look| {
            differs(&values[..look], LEVEL) && differs(&values[..look], statistics::STRICT_LEVEL)
        });
        looking += u32::from(last || early);
    }
    let share = |count| f64::from(count) / streams as f64;
    eprintln!("false positives: {:.3} waiting, {:.3} looking", share(waiting), share(looking));
    assert!(share(waiting) <= 0.055);
    assert!(share(looking) <= 0.08);
}

/// A A A A B B B B, the way that benchmarks are often run; for these tests only.
fn sequential(world: FakeWorld, trials: usize) -> (Vec<f64>, Vec<f64>) {
    let arms = support::fake_arms("nothing");
    let mut fake = FakeSource::new(world);
    let mut take = |arm: usize| -> Vec<f64> {
        (0..trials)
            .map(|_| {
                let metrics = fake.trial(&arms[arm].0).metrics();
                let metric = metrics.iter().find(|metric| metric.name == "rtt_ns_p50");
                metric.expect("the fake path has it").value.clone().expect("nothing is lost")
            })
            .collect()
    };
    let baseline = take(0);
    (baseline, take(2))
}

fn log_ratios(arm: &[f64], base: &[f64]) -> Vec<f64> {
    arm.iter().zip(base).map(|(arm, base)| (arm / base).ln()).collect()
}

#[test]
fn drift_biases_sequential_order_but_not_interleaving() {
    let experiments = 60;
    let (mut sequential_fooled, mut interleaved_fooled) = (0, 0);
    for seed in 0..experiments {
        let (base, nothing) = sequential(world(seed, 0.01, strong_drift()), 20);
        sequential_fooled += u32::from(differs(&log_ratios(&nothing, &base), LEVEL));

        let mut plan = plan(seed, "nothing");
        plan.stop_early = false;
        plan.max_blocks = 20;
        let outcome = run(plan, world(seed, 0.01, strong_drift()));
        assert_eq!(outcome.blocks, 20);
        // Judged as the sequential runs are, so that the order alone makes the difference.
        let values = |name: &str| -> Vec<f64> {
            metric(&outcome, name, "rtt_ns_p50").trials.iter().map(|value| value.unwrap()).collect()
        };
        let ratios = log_ratios(&values("nothing"), &values("baseline"));
        interleaved_fooled += u32::from(differs(&ratios, LEVEL));
    }
    eprintln!(
        "fooled of {experiments}: {sequential_fooled} in sequence, {interleaved_fooled} interleaved"
    );
    // A third, where one in twenty is what the level allows.
    assert!(sequential_fooled > 20, "{sequential_fooled}");
    assert!(interleaved_fooled <= 7, "{interleaved_fooled}");
}

#[test]
fn switch_that_lost_its_effect_is_not_judged_better() {
    // The same experiment as in `large_effects_…`, with the effect taken away.
    let mut world = world(5, 0.02, strong_drift());
    world.effects.clear();
    let outcome = run(plan(5, "fast,harmful"), world);
    assert!(!changed(metric(&outcome, "fast", "rtt_ns_p50").verdict));
    assert!(!changed(metric(&outcome, "harmful", "rtt_ns_p50").verdict));
}

#[test]
fn two_runs_agree_within_their_intervals() {
    let run = |seed| run(plan(seed, "fast"), world(seed, 0.02, strong_drift()));
    let (first, second) = (run(11), run(12));
    let (first, second) =
        (metric(&first, "fast", "rtt_ns_p50"), metric(&second, "fast", "rtt_ns_p50"));
    assert!(first.low < second.high && second.low < first.high);
}

#[test]
fn fewest_blocks_still_have_an_interval() {
    let mut plan = plan(1, "fast");
    plan.max_blocks = PAIRS_MIN as u32;
    let outcome = run(plan, world(1, 0.01, vec![]));
    assert_eq!((outcome.blocks, outcome.ended), (PAIRS_MIN as u32, Ended::BlockLimit));
    assert_eq!(arm(&outcome, "fast").trials, PAIRS_MIN as u32);
    assert_eq!(metric(&outcome, "fast", "rtt_ns_p50").verdict, Some(Verdict::Better));
}
