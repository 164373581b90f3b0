//! Comparison of two series of runs whose days differ: how often it is wrong, and what it finds.
//!
//! Runs of two arms and a baseline in three metrics with a noise of 2 % each, in sessions of one or three runs, each
//! session on a day of its own that shifts all arms alike or each one by itself.
//! `cargo test -p wirepath-model --test compare_days -- --nocapture` prints the shares.

mod support;

use support::documents::{run, template};
use wirepath_model::{
    By, GateAnswer, Outcome, Random, RunComparison, Undecided, Unit, Verdict, compare, sessions,
};

const METRICS: [&str; 3] = ["rtt_ns_p50", "rtt_ns_p99", "cpu_ns"];
const ARMS: [&str; 3] = ["baseline", "a", "b"];
const NOISE: f64 = 0.02;
const COMPARISONS: u64 = 200;

/// Days of one series.
#[derive(Clone, Copy)]
struct World {
    sessions: u64,
    /// Runs of a session.
    runs: u64,
    /// Standard deviation of the shift of a day that all arms share.
    shared: f64,
    /// Standard deviation of the shift of a day that each arm and metric has for itself.
    own: f64,
    /// Sessions of one day.
    sessions_a_day: u64,
    /// Factor of arm `a`.
    change: f64,
}

const WORLD: World =
    World { sessions: 7, runs: 1, shared: 0.0, own: 0.0, sessions_a_day: 1, change: 1.0 };

/// Runs of a series that begins on 1 January plus so many days.
fn series(world: World, first_day: u64, seed: u64) -> Vec<Outcome> {
    let mut random = Random::new(seed, first_day);
    let mut all = Vec::new();
    let template = template(&ARMS, &METRICS);
    let (mut shared, mut own) = (0.0, [[0.0; METRICS.len()]; ARMS.len()]);
    for session in 0..world.sessions {
        if session % world.sessions_a_day == 0 {
            shared = world.shared * random.normal();
            own = own.map(|arm| arm.map(|_| world.own * random.normal()));
        }
        let day = first_day + session / world.sessions_a_day;
        let hour = 2 * (session % world.sessions_a_day);
        for at in 0..world.runs {
            let started =
                format!("2026-{:02}-{:02}T{hour:02}:{:02}:00Z", 1 + day / 28, 1 + day % 28, at * 5);
            let mut values = [[0.0; METRICS.len()]; ARMS.len()];
            for (value, own) in values.iter_mut().flatten().zip(own.iter().flatten()) {
                *value = 100.0 * (shared + own + NOISE * random.normal()).exp();
            }
            values[1].iter_mut().for_each(|value| *value *= world.change);
            let mut outcome = template.clone();
            (outcome.id, outcome.started) = (format!("{first_day}-{session}-{at}"), started);
            for (of, arm) in outcome.arms.iter_mut().enumerate() {
                for (at, metric) in arm.metrics.values_mut().enumerate() {
                    metric.median = Some(values[of][at]);
                    metric.ratio = (of > 0).then(|| values[of][at] / values[0][at]);
                }
            }
            all.push(outcome);
        }
    }
    all
}

fn compared(old: World, new: World, seed: u64, unit: Unit) -> RunComparison {
    compare(&series(old, 0, seed), &series(new, 100, seed), unit, 1.05).expect("comparable")
}

fn has_false_verdict(comparison: &RunComparison, by: By) -> bool {
    comparison.values().any(|(.., metric)| metric.change(by).is_some_and(|c| c.verdict.differs()))
}

/// Shares of comparisons with a false value, with a false worth, with a gate of 4 and of 0.
#[expect(clippy::print_stderr, reason = "the shares are shown with --nocapture")]
fn shares(label: &str, world: World, unit: Unit) -> [f64; 4] {
    let mut counts = [0u32; 4];
    for seed in 0..COMPARISONS {
        let comparison = compared(world, world, seed, unit);
        let gate = comparison.decide(By::Value, comparison.resolve).answer;
        let found = [
            has_false_verdict(&comparison, By::Value),
            has_false_verdict(&comparison, By::Worth),
            gate == GateAnswer::Worse,
            gate == GateAnswer::NoWorse,
        ];
        for (count, found) in counts.iter_mut().zip(found) {
            *count += u32::from(found);
        }
    }
    let shares = counts.map(|count| f64::from(count) / COMPARISONS as f64);
    let [value, worth, worse, no_worse] = shares.map(|share| share * 100.0);
    eprintln!(
        "{label}, {}: false value {value:.1} %, worth {worth:.1} %, exit 4 {worse:.1} %, exit 0 {no_worse:.1} %",
        unit.name()
    );
    shares
}

/// Bound of a share of 5 %: 200 comparisons exceed it by chance in one of 200 worlds.
const BOUND: f64 = 0.09;

#[test]
fn days_that_differ_are_no_change() {
    for runs in [1, 3] {
        for shift in [0.01, 0.03, 0.05] {
            for (shared, own) in [(shift, 0.0), (0.0, shift)] {
                let world = World { runs, shared, own, ..WORLD };
                let whose = if shared > 0.0 { "shared" } else { "each arm" };
                let label = format!("7 sessions of {runs}, {whose} {} %", shift * 100.0);
                let [value, worth, worse, _] = shares(&label, world, Unit::Session);
                assert!(value <= BOUND && worth <= BOUND && worse <= BOUND, "{label}");
            }
        }
    }
}

/// The run as the unit is what sessions are there to replace: it must look as bad as it is.
#[test]
fn runs_of_few_sessions_would_be_fooled() {
    let world = World { sessions: 2, runs: 7, shared: 0.03, ..WORLD };
    let [value, ..] = shares("2 sessions of 7, shared 3 %", world, Unit::Run);
    assert!(value > 0.3);
}

#[test]
fn two_sessions_have_no_verdict_however_many_their_runs() {
    for change in [1.0, 1.5] {
        let world = World { sessions: 2, runs: 7, own: 0.03, ..WORLD };
        let comparison = compared(world, World { change, ..world }, 1, Unit::Session);
        assert_eq!((comparison.old_units, comparison.new_units), (2, 2));
        let verdicts = comparison.values().filter_map(|(.., metric)| metric.value.as_ref());
        for change in verdicts {
            assert_eq!((change.verdict, change.low), (Verdict::Inconclusive, None));
            assert_eq!((change.old_count, change.new_count), (2, 2));
        }
        let gate = comparison.decide(By::Value, 1.05);
        assert_eq!(gate.answer, GateAnswer::NotDecided);
        let few = Undecided::FewSessions { unit: Unit::Session, old: 2, new: 2, needed: 6 };
        assert!(gate.decisions.iter().all(|decision| decision.reason == Some(few.clone())));
        assert!(comparison.warnings[0].what.contains("the day cannot be told from the change"));
    }
}

#[test]
fn change_is_found_through_days_that_differ() {
    let old = World { shared: 0.01, ..WORLD };
    let found = |runs, change| {
        let (old, new) = (World { runs, ..old }, World { runs, change, ..old });
        let found = (0..100)
            .filter(|seed| {
                let comparison = compared(old, new, *seed, Unit::Session);
                let change = comparison.arms[1].metrics[METRICS[0]].change(By::Value).cloned();
                change.is_some_and(|change| change.verdict == Verdict::Worse)
            })
            .count();
        eprintln!("a change of {change} in 7 sessions of {runs}, shared 1 %: found in {found} %");
        found
    };
    assert!(found(3, 1.05) >= 90);
    assert!(found(1, 1.10) >= 95);
    found(1, 1.05);
}

#[test]
fn change_just_beyond_the_resolution_is_seldom_called_no_difference() {
    let old = World { runs: 3, sessions: 9, ..WORLD };
    let new = World { change: 1.0501, ..old };
    let count = (0..COMPARISONS)
        .filter(|seed| {
            let comparison = compared(old, new, *seed, Unit::Session);
            let verdicts =
                comparison.arms[1].metrics.values().filter_map(|of| of.change(By::Value));
            verdicts.into_iter().any(|change| change.verdict == Verdict::NoDifferenceShown)
        })
        .count();
    eprintln!("5.01 % in 3 metrics: \"no difference shown\" in {count} of {COMPARISONS}");
    assert!(count as f64 <= BOUND * COMPARISONS as f64, "{count}");
    assert!(
        (0..100)
            .filter(|seed| {
                let comparison = compared(old, old, *seed, Unit::Session);
                let equal = comparison.arms[1].metrics[METRICS[0]].change(By::Value).cloned();
                equal.is_some_and(|change| change.verdict == Verdict::NoDifferenceShown)
            })
            .count()
            >= 90,
        "equal ones are"
    );
}

#[test]
fn sessions_of_one_day_are_one_day() {
    let world = World { sessions_a_day: 7, ..WORLD };
    let by_session = compared(world, world, 1, Unit::Session);
    assert_eq!(by_session.old_units, 7);
    assert!(by_session.warnings.iter().any(|w| w.what.contains("of one day")), "{by_session:#?}");
    let by_day = compared(world, world, 1, Unit::Day);
    assert_eq!((by_day.old_units, by_day.new_units), (1, 1));
}

fn run_at(time: &str, machine: &str) -> Outcome {
    let mut outcome = run(&format!("2026-11-21T{time}:00Z"), Vec::new(), &[]);
    (outcome.id, outcome.machine.id) = (time.into(), machine.into());
    outcome
}

#[test]
fn runs_within_an_hour_of_one_machine_are_a_session() {
    let runs = [
        run_at("08:00", "m"),
        run_at("09:32", "m"),
        run_at("08:30", "m"),
        run_at("08:45", "n"),
        // 60 minutes after the end of the run at 09:32, which took a minute.
        run_at("10:33", "m"),
        run_at("23:50", "m"),
    ];
    let ids = |unit| -> Vec<Vec<String>> {
        let groups = sessions(&runs, unit);
        groups.iter().map(|group| group.iter().map(|run| run.id.clone()).collect()).collect()
    };
    assert_eq!(ids(Unit::Session)[0], ["08:00", "08:30"]);
    assert_eq!(ids(Unit::Session).len(), 5);
    assert_eq!(ids(Unit::Day).len(), 2);
    assert_eq!(ids(Unit::Run).len(), 6);
    let unknown = [run("", Vec::new(), &[]), run("?", Vec::new(), &[])];
    assert_eq!(sessions(&unknown, Unit::Session).len(), 1);
}
