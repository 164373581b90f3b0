//! Changes in the history of each figure.
//!
//! `cargo test -p wirepath-model --test watch -- --nocapture` prints the shares.

mod support;

use support::documents::template;
use wirepath_model::{
    By, Ended, GateAnswer, Outcome, Random, Undecided, Unit, Verdict, Watch, watch,
};

const ARMS: [&str; 3] = ["baseline", "a", "b"];
const METRICS: [&str; 2] = ["cpu_ns", "rtt_ns_p50"];

/// One run a day whose figures have a noise of 1 %; arm `a` is multiplied by `factor` of the day.
fn history(days: usize, seed: u64, factor: impl Fn(usize) -> f64) -> Vec<Outcome> {
    let template = template(&ARMS, &METRICS);
    let mut random = Random::new(seed, days as u64);
    let run = |day: usize| {
        let mut outcome = template.clone();
        outcome.id = format!("run-{day}");
        outcome.started = format!("2026-{:02}-{:02}T08:00:00Z", 1 + day / 28, 1 + day % 28);
        for arm in &mut outcome.arms {
            let own = if arm.name == "a" { factor(day) } else { 1.0 };
            for metric in arm.metrics.values_mut() {
                metric.median = Some(100.0 * own * (0.01 * random.normal()).exp());
                metric.ratio = Some(own);
            }
        }
        outcome
    };
    (0..days).map(run).collect()
}

fn watched(outcomes: &[Outcome]) -> Watch {
    watch(outcomes, Unit::Session, By::Value, 1.05)
}

#[test]
fn latest_change_for_the_worse_is_found_and_fails_the_gate() {
    let found = watched(&history(40, 1, |day| if day < 25 { 1.0 } else { 1.10 }));
    assert_eq!((found.series.len(), found.family, found.needed), (6, 6, 10));
    let changed: Vec<_> = found.series.iter().filter(|one| !one.changes.is_empty()).collect();
    assert_eq!(changed.len(), 2, "{changed:#?}");
    for series in changed {
        assert_eq!((series.arm.as_str(), series.changes.len()), ("a", 1));
        let change = &series.changes[0];
        assert!((24..=26).contains(&change.at), "{change:?}");
        assert_eq!(change.verdict, Verdict::Worse);
        assert!((1.08..1.12).contains(&change.ratio.unwrap()), "{change:?}");
    }
    let gate = found.decide();
    assert_eq!(gate.answer, GateAnswer::Worse);
    assert_eq!(gate.decisions.iter().filter(|d| d.answer == GateAnswer::NoWorse).count(), 4);
    // A change of less than the resolution does not fail, and one that was mended does not, either.
    let small = watched(&history(40, 1, |day| if day < 25 { 1.0 } else { 1.03 }));
    assert!(small.series[0].changes[0].verdict == Verdict::Worse);
    assert_eq!(small.decide().answer, GateAnswer::NoWorse);
    let mended = |day| if (15..28).contains(&day) { 1.10 } else { 1.0 };
    let mended = watched(&history(40, 1, mended));
    assert_eq!(mended.series[0].changes.len(), 2);
    assert_eq!(mended.decide().answer, GateAnswer::NoWorse);
}

#[test]
fn few_sessions_are_not_decided_and_the_number_that_is_needed_is_named() {
    let found = watched(&history(9, 1, |day| if day < 5 { 1.0 } else { 1.5 }));
    assert!(found.series.iter().all(|series| series.changes.is_empty()));
    let gate = found.decide();
    assert_eq!(gate.answer, GateAnswer::NotDecided);
    let few = Undecided::FewPoints { unit: Unit::Session, sessions: 9, needed: 10 };
    assert_eq!(gate.decisions[0].reason, Some(few));
    assert_eq!(watched(&[]).decide().answer, GateAnswer::NotDecided);
}

#[test]
fn series_of_another_machine_and_runs_that_were_broken_off_are_apart() {
    let mut runs = history(30, 1, |_| 1.0);
    runs[..12].iter_mut().for_each(|run| run.machine.id = "old".into());
    runs[20].ended = Ended::Interrupted;
    let found = watched(&runs);
    assert_eq!(found.series.len(), 12);
    let lengths = |is_current| -> Vec<usize> {
        let of = found.series.iter().filter(|series| series.is_current == is_current);
        of.map(|series| series.points.len()).collect()
    };
    assert_eq!((lengths(true), lengths(false)), (vec![17; 6], vec![12; 6]));
    assert!(found.warnings[0].what.contains("1 of 30"));
    assert_eq!(found.decide().decisions.len(), 6, "the old machine is not judged");
}

#[test]
fn pages_without_a_change_seldom_show_one() {
    const PAGES: u64 = 1_000;
    let count = (0..PAGES)
        .filter(|seed| {
            let days = 10 + (*seed as usize * 7) % 21;
            watched(&history(days, *seed, |_| 1.0)).series.iter().any(|one| !one.changes.is_empty())
        })
        .count();
    eprintln!("pages of 6 series without a change: {count} of {PAGES} show one");
    assert!(count <= 68, "5 %, and 2.6 standard errors: {count}");
}
