//! The rule of pooled verdicts against simulated fleets: how often it is wrong, and what it finds.
//!
//! Hosts of 14 blocks with noise of 2 to 20 %, whose true effects differ by 5 %.
//! `cargo test -p wirepath-model --test pool_worlds -- --nocapture` prints the shares.

use wirepath_model::pool::{Effect, PoolAnswer, PoolQuestion, answers, effect};
use wirepath_model::{Better, RESOLVE, Random, Verdict, statistics};

const FLEETS: u64 = 2_000;
const BLOCKS: usize = 14;
/// Standard deviation of the hosts' true effects.
const TAU: f64 = 0.05;

fn host(random: &mut Random, mean: f64, tau: f64) -> (Option<Effect>, Option<Effect>) {
    let noise = 0.02 + 0.18 * random.unit();
    let own = mean + tau * random.normal();
    let mut draw = |effect_of: f64| {
        let logs: Vec<f64> = (0..BLOCKS).map(|_| effect_of + noise * random.normal()).collect();
        effect(&logs)
    };
    (draw(own), draw(0.0))
}

fn fleet(seed: u64, hosts: usize, mean: f64) -> PoolQuestion {
    let mut random = Random::new(seed, hosts as u64);
    let (effects, control) = (0..hosts).map(|_| host(&mut random, mean, TAU)).unzip();
    PoolQuestion { effects, control, groups: Vec::new(), better: Better::Lower }
}

/// Shares of fleets that are called different.
struct Shares {
    /// By the interval of Hartung and Knapp and the signed ranks.
    found: f64,
    /// By the whole rule, with the floor.
    called: f64,
}

#[expect(clippy::print_stderr, reason = "the shares are shown with --nocapture")]
fn shares(hosts: usize, mean: f64, fleets: u64) -> Shares {
    let (mut found, mut called) = (0, 0);
    for seed in 0..fleets {
        let answer = answers(&[fleet(seed, hosts, mean)], RESOLVE).remove(0);
        found += u64::from(answer.p.is_some_and(|p| p < 0.05));
        called += u64::from(differs(&answer));
    }
    let share = |count: u64| count as f64 / fleets as f64;
    let shares = Shares { found: share(found), called: share(called) };
    eprintln!("{hosts} hosts, {mean}: found {}, called {}", shares.found, shares.called);
    shares
}

fn differs(answer: &PoolAnswer) -> bool {
    answer.verdict.is_some_and(Verdict::differs)
}

#[test]
fn fleets_without_an_effect_are_seldom_called_different() {
    for hosts in [6, 8, 20, 50] {
        let bound = if hosts == 6 { 0.08 } else { 0.05 };
        let Shares { found, called } = shares(hosts, 0.0, FLEETS);
        assert!(found <= bound && called <= found, "{hosts} hosts: {found}");
    }
}

/// Several questions of one fleet, all without an effect.
#[test]
fn many_questions_fool_no_more_fleets_than_one() {
    let fooled = (0..1_000)
        .filter(|seed| {
            let questions: Vec<PoolQuestion> =
                (0..12).map(|at| fleet(seed * 100 + at, 20, 0.0)).collect();
            answers(&questions, RESOLVE).iter().any(differs)
        })
        .count();
    assert!(fooled <= 50, "{fooled} of 1000");
}

#[test]
fn effects_are_found() {
    assert!(shares(8, -0.05, FLEETS).found > 0.33);
    let Shares { found, called } = shares(20, -0.05, FLEETS);
    assert!(found > 0.84 && called > 0.60);
    assert!(shares(20, -0.10, 500).called > 0.98);
}

/// A fleet of racks that differ by 5 %, whose hosts differ by 1 % within.
fn racks(seed: u64, (racks, hosts): (usize, usize), is_grouped: bool) -> PoolQuestion {
    let mut random = Random::new(seed, (racks * 1_000 + hosts) as u64);
    let shared: Vec<f64> = (0..racks).map(|_| 0.05 * random.normal()).collect();
    let of_host = |host: usize| host % racks;
    let (effects, control) =
        (0..hosts).map(|at| host(&mut random, shared[of_host(at)], 0.01)).unzip();
    let groups = if is_grouped { (0..hosts).map(of_host).collect() } else { Vec::new() };
    PoolQuestion { effects, control, groups, better: Better::Lower }
}

/// Share of fleets in which any of so many figures is called different.
#[expect(clippy::print_stderr, reason = "the shares are shown with --nocapture")]
fn fooled(size: (usize, usize), figures: u64, is_grouped: bool) -> f64 {
    const FLEETS_OF_RACKS: u64 = 200;
    let share = (0..FLEETS_OF_RACKS)
        .filter(|seed| {
            let questions: Vec<PoolQuestion> =
                (0..figures).map(|at| racks(seed * 100 + at, size, is_grouped)).collect();
            answers(&questions, RESOLVE).iter().any(differs)
        })
        .count() as f64
        / FLEETS_OF_RACKS as f64;
    let unit = if is_grouped { "rack" } else { "host" };
    eprintln!("{} racks, {} hosts, {figures} figures, by {unit}: {share}", size.0, size.1);
    share
}

#[test]
fn hosts_of_few_racks_are_not_so_many_samples() {
    for figures in [1, 12] {
        // Six racks are the fewest for a verdict.
        assert_eq!(fooled((4, 20), figures, true), 0.0);
        // 5 %, and 2.6 standard errors.
        assert!(fooled((8, 24), figures, true) <= 0.09);
    }
    assert!(fooled((20, 60), 1, true) <= 0.09);
    assert!(fooled((4, 20), 1, false) > 0.10, "the host as the unit must look as bad as it is");
}

#[test]
fn effect_is_found_by_the_median_of_each_rack() {
    let found = (0..200).filter(|seed| {
        let mut question = racks(*seed, (12, 36), true);
        for effect in question.effects.iter_mut().flatten() {
            effect.log_ratio -= 0.10;
        }
        answers(&[question], RESOLVE)[0].verdict == Some(Verdict::Better)
    });
    assert!(found.count() >= 190);
}

/// The pot of all trials is what the rule is there to replace: it must look as bad as it is.
#[test]
fn one_pot_of_all_trials_would_be_fooled() {
    let fooled = (0..500)
        .filter(|seed| {
            let mut random = Random::new(*seed, 0);
            let mut pot = Vec::new();
            for _ in 0..20 {
                let own = TAU * random.normal();
                pot.extend((0..BLOCKS).map(|_| own + 0.05 * random.normal()));
            }
            statistics::p_value(&pot) < 0.05
        })
        .count();
    assert!(fooled > 75, "{fooled} of 500");
}
