//! Whole on/off experiments in simulated worlds: how often they are wrong, and what they find.
//!
//! Every run goes through [`LiveExperiment`](wirepath_model::live::LiveExperiment). `./test` runs few of each world; the table of
//! docs/method.md has 1,000: `RUNS=1000 cargo test --release -p wirepath-model --test live -- --nocapture`

mod live {
    pub(crate) mod service;
}

use live::service::{
    HOUR_NS, SECOND_NS, Transient, WHITE, World, baseline, figures, null_worlds, plan, run,
    run_changed,
};
use wirepath_model::live::{
    CrossedHost, LiveArm, LiveFigure, LiveGroup, LiveOutcome, LivePlan, LiveVerdict, forecast,
    is_first_half_on, placebo, pool_live,
};
use wirepath_model::{Random, Verdict};

/// Runs of a world; `daily` unless the environment says otherwise.
fn runs(daily: u64) -> u64 {
    std::env::var("RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(daily)
}

/// Highest share that so many runs of a true share show in 99.9 % of cases.
fn at_most(share: f64, runs: usize) -> f64 {
    let runs = runs as f64;
    share + 3.09 * (share * (1.0 - share) / runs).sqrt() + 0.5 / runs
}

/// Lowest share, likewise.
fn at_least(share: f64, runs: usize) -> f64 {
    1.0 - at_most(1.0 - share, runs)
}

/// Outcomes of the first seeds, on both CPUs.
fn outcomes(count: u64, run: impl Fn(u64) -> LiveOutcome + Sync) -> Vec<LiveOutcome> {
    std::thread::scope(|scope| {
        let odd = scope.spawn(|| (1..count).step_by(2).map(&run).collect::<Vec<_>>());
        let mut all: Vec<_> = (0..count).step_by(2).map(&run).collect();
        all.extend(odd.join().expect("the other half"));
        all
    })
}

fn share<T>(of: &[T], is: impl Fn(&T) -> bool) -> f64 {
    of.iter().filter(|one| is(one)).count() as f64 / of.len() as f64
}

fn has_difference(outcome: &LiveOutcome) -> bool {
    outcome.verdicts.iter().any(|verdict| verdict.verdict.differs())
}

fn primary(outcome: &LiveOutcome) -> &LiveVerdict {
    &outcome.verdicts[0]
}

fn is_better(outcome: &LiveOutcome) -> bool {
    primary(outcome).verdict == Verdict::Better
}

/// p50 by itself.
fn p50() -> Vec<LiveFigure> {
    figures(2)
}

fn median_s(outcomes: &[LiveOutcome], figure: usize) -> f64 {
    let mut times: Vec<u64> =
        outcomes.iter().filter_map(|outcome| outcome.verdicts[figure].decided_ns).collect();
    times.sort_unstable();
    times.get(times.len() / 2).map_or(f64::NAN, |time| *time as f64 / SECOND_NS as f64)
}

/// A run that is never equal within its resolution, and so looks at all pairs of the hour.
fn whole_hour(figure_count: usize, seed: u64) -> LivePlan {
    LivePlan { resolve: 1.0001, ..plan(figures(figure_count), seed) }
}

/// Returns a table of worlds: shares in per cent of runs with a false difference, and of runs that are not trusted.
fn table_of_null_runs(figure_count: usize, daily: u64) -> String {
    let (mut all, mut table) = (Vec::new(), String::new());
    for (name, world) in null_worlds() {
        let found = outcomes(runs(daily), |seed| run(&world, whole_hour(figure_count, seed)));
        let fooled = share(&found, has_difference);
        let doubted = share(&found, |outcome| !outcome.trusted);
        table += &format!(
            "| {name} | {figure_count} | {:.1} | {:.1} |\n",
            fooled * 100.0,
            doubted * 100.0
        );
        assert!(fooled <= at_most(0.05, found.len()), "{name}: {fooled}");
        assert!(doubted <= at_most(0.02, found.len()), "{name}: {doubted} not trusted");
        all.extend(found);
    }
    let fooled = share(&all, has_difference);
    assert!(fooled <= at_most(0.05, all.len()), "{fooled} of {}", all.len());
    table
}

#[test]
fn null_runs_of_one_figure_are_rarely_fooled() {
    println!("{}", table_of_null_runs(1, 200));
}

#[test]
fn null_runs_of_ten_figures_are_rarely_fooled() {
    println!("{}", table_of_null_runs(10, 40));
}

#[test]
fn alternation_is_fooled_by_a_job_and_the_coin_is_not() {
    let world = World { job_s: 40.0, ..WHITE };
    let alternated = outcomes(runs(100), |seed| {
        run_changed(&world, whole_hour(1, seed), 20, |number, period| {
            period.arm = if number % 2 == 0 { LiveArm::On } else { LiveArm::Off };
        })
    });
    let tossed =
        outcomes(runs(100), |seed| run_changed(&world, whole_hour(1, seed), 20, |_, _| {}));
    let (fooled, right) = (share(&alternated, has_difference), share(&tossed, has_difference));
    println!("job each 40 s at 20 s: alternation {fooled}, coin {right}");
    assert!(fooled >= 0.9, "{fooled}");
    assert!(right <= at_most(0.05, tossed.len()), "{right}");
}

#[test]
fn effects_are_found_within_the_hour() {
    for (name, null) in null_worlds() {
        let world = World { p99: 0.9, p50: 0.95, ..null };
        // At a resolution of 5 %, an effect of 5 % is by chance also "no difference" in up to 5 % of the runs.
        let found =
            outcomes(runs(60), |seed| run(&world, LivePlan { resolve: 1.03, ..plan(p50(), seed) }));
        for (figure, effect) in [(0, "-10 % p99"), (1, "-5 % p50")] {
            let better =
                share(&found, |outcome| outcome.verdicts[figure].verdict == Verdict::Better);
            let time = median_s(&found, figure);
            println!("| {name} | {effect} | {:.1} | {time:.0} s |", better * 100.0);
            assert!(better >= at_least(0.95, found.len()), "{name}, {effect}: {better}");
        }
    }
}

fn plan_of_errors(seed: u64) -> LivePlan {
    LivePlan { resolve: 1.2, ..plan(figures(3), seed) }
}

#[test]
fn half_of_the_errors_is_found_and_an_equal_share_is_not() {
    let halved = World { tau_s: 5.0, errors: 0.5, ..WHITE };
    let found = outcomes(runs(60), |seed| run(&halved, plan_of_errors(seed)));
    let better = share(&found, |outcome| outcome.verdicts[2].verdict == Verdict::Better);
    println!("half of the errors: {better}, {:.0} s", median_s(&found, 2));
    assert!(better >= at_least(0.95, found.len()), "{better}");
    let equal =
        outcomes(runs(60), |seed| run(&World { errors: 1.0, ..halved }, plan_of_errors(seed)));
    let same = share(&equal, |outcome| outcome.verdicts[2].verdict == Verdict::NoDifferenceShown);
    println!("equal share of errors: {same}, {:.0} s", median_s(&equal, 2));
    assert!(same >= at_least(0.8, equal.len()), "{same}");
}

fn is_equal_in_any(outcome: &LiveOutcome) -> bool {
    outcome.verdicts.iter().any(|verdict| verdict.verdict == Verdict::NoDifferenceShown)
}

#[test]
fn equal_is_rarely_claimed_at_the_margin() {
    let mut all = Vec::new();
    for (name, null) in null_worlds() {
        let world = World { p99: 1.05, p50: 1.05, ..null };
        let found = outcomes(runs(60), |seed| run(&world, plan(p50(), seed)));
        let fooled = share(&found, is_equal_in_any);
        println!("| {name} | equal at the margin | {:.1} |", fooled * 100.0);
        assert!(fooled <= at_most(0.05, found.len()), "{name}: {fooled}");
        all.extend(found.iter().map(is_equal_in_any));
    }
    let fooled = share(&all, |fooled| *fooled);
    assert!(fooled <= at_most(0.05, all.len()), "{fooled}");
}

#[test]
fn equal_is_claimed_of_a_setting_that_does_nothing() {
    for (name, world) in null_worlds() {
        let found = outcomes(runs(20), |seed| run(&world, plan(p50(), seed)));
        for (figure, what) in [(0, "p99"), (1, "p50")] {
            let equal = share(&found, |outcome| {
                outcome.verdicts[figure].verdict == Verdict::NoDifferenceShown
            });
            println!(
                "| {name} | {what} equal | {:.1} | {:.0} s |",
                equal * 100.0,
                median_s(&found, figure)
            );
            let least = if figure == 0 { 0.6 } else { 0.9 };
            assert!(equal >= at_least(least, found.len()), "{name}, {what}: {equal}");
        }
    }
}

/// A guard ends periods in which the p99 doubled.
fn guarded(seed: u64, is_watched: impl Fn(LiveArm) -> bool) -> LiveOutcome {
    let world = World { has_bursts: true, tau_s: 5.0, ..WHITE };
    run_changed(&world, whole_hour(1, seed), 5, |_, period| {
        let is_slow = period.values[0].is_some_and(|value| value > 2.0);
        if is_slow && is_watched(period.arm) {
            period.trip = Some("slow".into());
        }
    })
}

#[test]
fn guard_that_cuts_periods_does_not_make_the_setting_better() {
    let both = outcomes(runs(100), |seed| guarded(seed, |_| true));
    let fooled = share(&both, has_difference);
    let trips: u32 = both.iter().map(|outcome| outcome.trips.on + outcome.trips.off).sum();
    println!("guard in both arms: {fooled}, {trips} trips");
    assert!(trips > 0);
    assert!(fooled <= at_most(0.05, both.len()), "{fooled}");
    let on_only = outcomes(runs(100), |seed| guarded(seed, |arm| arm == LiveArm::On));
    let fooled = share(&on_only, is_better);
    println!("guard in on-periods: {fooled}");
    assert!(fooled <= at_most(0.05, on_only.len()), "{fooled}");
}

/// An hour in which a switch to on has an effect that decays while it stays on.
fn carried(
    noise: f64,
    transient: Transient,
    washout_ns: u64,
    period_s: u64,
    seed: u64,
) -> LiveOutcome {
    let world = World { noise, tau_s: 5.0, transient: Some(transient), ..WHITE };
    let plan = LivePlan { washout_ns, confirm: true, ..plan(p50(), seed) };
    run_changed(&world, plan, period_s, |_, _| {})
}

/// True if a run is trusted, and calls the p50 better for effects that show within a time.
fn is_better_within(outcome: &LiveOutcome, seconds: u64) -> bool {
    let verdict = &outcome.verdicts[1];
    outcome.trusted
        && verdict.verdict == Verdict::Better
        && verdict.within_ns == seconds * SECOND_NS
}

#[test]
fn effect_that_passes_is_not_trusted_or_names_its_scale() {
    // The setting is better by 10 % at first, and not in the steady state.
    for decay_s in [10.0, 20.0, 60.0] {
        let transient = Transient { height: 0.9f64.ln(), decay_s };
        let found = outcomes(runs(60), |seed| carried(0.15, transient, SECOND_NS, 5, seed));
        let better = share(&found, |outcome| outcome.verdicts[1].verdict == Verdict::Better);
        let doubted = share(&found, |outcome| !outcome.trusted);
        let short = share(&found, |outcome| is_better_within(outcome, 5));
        let long = share(&found, |outcome| is_better_within(outcome, 80));
        let any = share(&found, |outcome| {
            outcome.trusted && outcome.verdicts[1].verdict == Verdict::Better
        });
        println!(
            "| {decay_s} s | {:.1} | {:.1} | {:.1} | {:.1} |",
            better * 100.0,
            doubted * 100.0,
            short * 100.0,
            long * 100.0
        );
        assert!(better >= 0.9, "the world fools nothing: {better}");
        // Each "better" is doubted or names a scale on which it is true.
        assert!(any <= short + long + 1e-9, "{any} {short} {long}");
        let limit = if decay_s < 60.0 { 0.1 } else { 0.3 };
        assert!(long <= at_most(limit, found.len()), "{decay_s}: {long} confirmed");
    }
}

#[test]
fn effect_that_passes_in_two_seconds_is_gone_after_its_washout() {
    let transient = Transient { height: 1.3f64.ln(), decay_s: 2.0 };
    let early = outcomes(runs(60), |seed| carried(0.03, transient, 0, 20, seed));
    let seen = share(&early, |outcome| !outcome.trusted);
    let late = outcomes(runs(60), |seed| carried(0.15, transient, 8 * SECOND_NS, 40, seed));
    let fooled = share(&late, has_difference);
    let clean = share(&late, |outcome| outcome.trusted);
    println!(
        "decay 2 s: not trusted without a wash-out {seen}; after 4 decays fooled {fooled}, trusted {clean}"
    );
    assert!(seen >= 0.5, "the checks see nothing: {seen}");
    assert!(fooled <= at_most(0.05, late.len()), "{fooled}");
    assert!(clean >= at_least(0.98, late.len()), "{clean}");
}

/// Time that the forecast for the p50 tells after three minutes, with periods of 5 s.
fn forecast_ns(world: &World, seed: u64) -> Option<u64> {
    let slots = baseline(world, 180, seed);
    let plan = LivePlan { time_ns: 100 * HOUR_NS, ..plan(figures(2).split_off(1), seed) };
    let curve = placebo(SECOND_NS / 2, slots.len(), &plan.figures, plan.washout_ns, &|_, range| {
        mean_of_requests(&slots[range])
    });
    let point = curve.into_iter().find(|point| point.period_ns == 5 * SECOND_NS)?;
    forecast(&plan, &[point], 300.0).ok().map(|found| found.time_ns)
}

/// Mean of the second numbers, weighted by the first ones.
fn mean_of_requests(slots: &[(f64, f64)]) -> Option<f64> {
    let requests: f64 = slots.iter().map(|(requests, _)| requests).sum();
    let sum: f64 = slots.iter().map(|(requests, value)| requests * value).sum();
    (requests > 0.0).then(|| sum / requests)
}

#[test]
fn time_of_the_forecast_is_about_that_of_the_runs() {
    for (name, null) in null_worlds() {
        let mut forecasts: Vec<u64> =
            (0..runs(40)).filter_map(|seed| forecast_ns(&null, seed)).collect();
        forecasts.sort_unstable();
        let told_s = forecasts[forecasts.len() / 2] as f64 / SECOND_NS as f64;
        let world = World { p50: 1.0 / 1.05, ..null };
        let found = outcomes(runs(40), |seed| run(&world, plan(p50(), seed)));
        let took_s = median_s(&found, 1);
        println!("| {name} | forecast {told_s:.0} s | took {took_s:.0} s |");
        // Tails of Cauchy noise cost more than its spread says.
        assert!((0.3..2.5).contains(&(told_s / took_s)), "{name}: {told_s} {took_s}");
    }
}

/// A fleet of groups that share a drift between the stages, and whose own effects differ.
fn fleet(groups: u32, effect: f64, is_coin: bool, seed: u64) -> Vec<LiveGroup> {
    let mut random = Random::new(seed, u64::MAX);
    (0..groups)
        .map(|group| {
            let is_first_on = !is_coin || is_first_half_on(seed, group);
            // The second half of each group runs other work, which moves between the stages.
            let (drift, moved) = (0.3 * random.normal(), 0.1);
            let own = effect.ln() + 0.05 * random.normal();
            let hosts = (0..10)
                .map(|host| {
                    let is_on_first = (host < 5) == is_first_on;
                    let level = 0.2 * random.normal();
                    let values = [0, 1].map(|stage| {
                        let is_on = is_on_first == (stage == 0);
                        let stage = f64::from(stage);
                        let other = if host < 5 { 0.0 } else { moved * stage };
                        let noise = 0.05 * random.normal();
                        let on = if is_on { own } else { 0.0 };
                        Some((level + drift * stage + other + on + noise).exp())
                    });
                    CrossedHost { is_on_first, values, request_count: 100_000 }
                })
                .collect();
            LiveGroup { name: format!("rack{group}"), hosts }
        })
        .collect()
}

fn verdicts_of_fleets(groups: u32, effect: f64, is_coin: bool) -> Vec<Verdict> {
    let judged = figures(1);
    (0..runs(60))
        .map(|seed| {
            let groups = fleet(groups, effect, is_coin, seed);
            pool_live(&groups, &judged, 0, 1.05, 600 * SECOND_NS).verdict.verdict
        })
        .collect()
}

#[test]
fn groups_of_a_fleet_are_the_units() {
    let null = verdicts_of_fleets(100, 1.0, true);
    let fooled = share(&null, |verdict| verdict.differs());
    let patterned = share(&verdicts_of_fleets(100, 1.0, false), |verdict| verdict.differs());
    let found = share(&verdicts_of_fleets(40, 0.9, true), |verdict| *verdict == Verdict::Better);
    println!(
        "fleet: fooled {fooled}, without the coin {patterned}, -10 % of 40 groups found {found}"
    );
    assert!(fooled <= at_most(0.05, null.len()), "{fooled}");
    assert!(patterned >= 0.9, "the world fools nothing: {patterned}");
    assert!(found >= at_least(0.95, null.len()), "{found}");
    assert!(
        verdicts_of_fleets(17, 0.5, true).iter().all(|verdict| *verdict == Verdict::Inconclusive)
    );
}

/// Three hosts, a pair and one alone, that are crossed over again and again while all of them drift.
fn crossed_again(rounds: u32, effect: f64, seed: u64) -> Vec<LiveGroup> {
    let mut random = Random::new(seed, u64::MAX);
    let mut drift = 0.0;
    let mut units = Vec::new();
    for round in 0..rounds {
        let drifts = [0, 1].map(|_| {
            drift = 0.9 * drift + 0.1 * random.normal();
            drift
        });
        for (pair, size) in [(0, 2), (1, 1)] {
            let is_first_on = is_first_half_on(seed, 2 * round + pair);
            let hosts = (0..size).map(|place| {
                let is_on_first = (place == 0) == is_first_on;
                let values = [0, 1].map(|stage| {
                    let on = if is_on_first == (stage == 0) { effect.ln() } else { 0.0 };
                    Some((drifts[stage] + on + 0.05 * random.normal()).exp())
                });
                CrossedHost { is_on_first, values, request_count: 100_000 }
            });
            units.push(LiveGroup { name: format!("{pair}.{round}"), hosts: hosts.collect() });
        }
    }
    units
}

#[test]
fn few_hosts_that_are_crossed_over_again_are_judged_at_the_same_error() {
    let judged = figures(1);
    let verdicts = |effect: f64| -> Vec<Verdict> {
        let all = 0..runs(60);
        all.map(|seed| {
            let units = crossed_again(60, effect, seed);
            pool_live(&units, &judged, 0, 1.05, SECOND_NS).verdict.verdict
        })
        .collect()
    };
    let null = verdicts(1.0);
    let fooled = share(&null, |verdict| verdict.differs());
    let found = share(&verdicts(0.9), |verdict| *verdict == Verdict::Better);
    println!("crossed again: fooled {fooled}, -10 % found {found}");
    assert!(fooled <= at_most(0.05, null.len()), "{fooled}");
    assert!(found >= at_least(0.95, null.len()), "{found}");
}

#[test]
fn host_without_a_figure_counts_as_the_worst_and_an_empty_group_not_at_all() {
    let judged = figures(1);
    let mut groups = fleet(40, 0.9, true, 1);
    for host in groups.iter_mut().flat_map(|group| &mut group.hosts) {
        let on = usize::from(!host.is_on_first);
        host.values[on] = None;
    }
    let pooled = pool_live(&groups, &judged, 0, 1.05, SECOND_NS);
    assert_eq!(pooled.verdict.verdict, Verdict::Worse);
    groups[3].hosts.clear();
    let pooled = pool_live(&groups, &judged, 0, 1.05, SECOND_NS);
    assert_eq!((pooled.left_out, pooled.verdict.pairs), (vec!["rack3".to_owned()], 39));
}
