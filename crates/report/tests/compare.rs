//! Two series of runs against each other as text and page, and the pages of `serve`.

mod common;

use model::{Ended, Outcome, Random, RunComparison};
use wirepath_report::html::{self, served};
use wirepath_report::store::{Filter, Progress, Summary};
use wirepath_report::text::{self, Style};

/// Run number `at` of a series: every figure is off by some thousandths of its own.
fn repeated(mut outcome: Outcome, at: u64) -> Outcome {
    outcome.id = format!("{}{at}", outcome.id);
    // Every two hours.
    outcome.started.replace_range(11..13, &format!("{:02}", 2 * (at % 10)));
    let mut random = Random::new(at, outcome.id.len() as u64);
    for metric in outcome.arms.iter_mut().flat_map(|arm| arm.metrics.values_mut()) {
        let factor = (0.005 * random.normal()).exp();
        metric.median = metric.median.map(|value| value * factor);
        metric.ratio = metric.ratio.map(|ratio| ratio * factor);
    }
    outcome
}

/// The same run a day later: another kernel, and +gso a quarter slower.
fn later() -> Outcome {
    let mut outcome = common::ping();
    outcome.id = "20261122-083000-probe-2b4d".into();
    outcome.started = "2026-11-22T08:30:00Z".into();
    outcome.machine.kernel = "6.18.6 #1 SMP PREEMPT_DYNAMIC".into();
    outcome.machine.id = "m-77aa".into();
    let metric = outcome.arms[4].metrics.get_mut("rtt_ns_p50").unwrap();
    metric.median = metric.median.map(|value| value * 1.25);
    metric.ratio = metric.ratio.map(|ratio| ratio * 1.25);
    outcome.arms.remove(9);
    outcome
}

fn comparison() -> RunComparison {
    let olds: Vec<Outcome> = (0..8).map(|at| repeated(common::ping(), at)).collect();
    let news: Vec<Outcome> = (10..18).map(|at| repeated(later(), at)).collect();
    model::compare(&olds, &news, model::Unit::Session, 1.05).unwrap()
}

#[test]
fn a_series_is_summed_up_by_arm() {
    let outcomes: Vec<Outcome> = (0..5).map(|at| repeated(common::ping(), at)).collect();
    common::golden("repeated.txt", &text::repeated(&outcomes, Style::default()));
}

#[test]
fn text_is_that_of_the_golden_and_fits_the_terminal() {
    let text = text::compare(&comparison(), Style::default());
    common::golden("compare.txt", &text);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let ascii = text::compare(&comparison(), Style { width: 60, color: true, ascii: true });
    assert!(ascii.is_ascii(), "{ascii}");
}

#[test]
fn page_starts_with_the_differences_and_describes_every_chart() {
    let page = html::comparison_page(&comparison());
    let position = |text: &str| page.find(text).unwrap_or_else(|| panic!("no {text}"));
    assert!(position("What differs between the runs") < position("<h2>Answer"));
    assert!(position("The machines differ") < position("<h2>Answer"));
    assert!(position("6.18.6") < position("<h2>Answer"));
    assert!(page.contains("+gso: 1.2"), "in the chart's description");
    assert_eq!(page.matches("<svg").count(), page.matches("<title id").count());
    assert!(
        !page.contains("http://")
            || page.replace("http://www.w3.org/2000/svg", "").find("http://").is_none()
    );
}

fn summary(id: &str) -> Summary {
    let outcome = common::hostile();
    Summary {
        title: "Which switch makes a ping faster?".into(),
        note: None,
        id: id.into(),
        started: outcome.started,
        path: outcome.path,
        load: outcome.load,
        machine: id.into(),
        version: outcome.version,
        arms: 3,
        blocks: 6,
        trials: 21,
        ended: Ended::Unfinished,
        headline: Some(outcome.id),
    }
}

#[test]
fn hostile_names_are_escaped_on_every_page() {
    let evil = common::hostile();
    let mut other = evil.clone();
    other.id = format!("{}2", evil.id);
    let comparison = model::compare(
        std::slice::from_ref(&evil),
        std::slice::from_ref(&other),
        model::Unit::Session,
        1.05,
    )
    .unwrap();
    let (rows, words) = ([summary(&evil.id), summary(&other.id)], [evil.id.clone()]);
    let filter = Filter { path: Some(evil.id.clone()), offset: 50, ..Filter::default() };
    let list = served::List {
        rows: &rows,
        total: 170,
        per_page: 50,
        filter: &filter,
        paths: &words,
        machines: &words,
    };
    let progress = Progress {
        id: evil.id.clone(),
        started: evil.id.clone(),
        ended: Ended::Unfinished,
        trials: 9,
        failed: 1,
        block: 2,
        elapsed_ms: 5_000,
        since_start_ms: 5_900,
        budget_ms: Some(60_000),
        arm: Some(evil.id.clone()),
    };
    for (name, page) in [
        ("list", served::list(&list)),
        ("experiment", served::experiment(&evil, &progress, 0)),
        ("comparison", served::comparison(&comparison)),
        ("file", html::comparison_page(&comparison)),
        ("form", served::comparison_form(&rows)),
        ("failure", served::failure("Not there", &evil.id)),
    ] {
        assert!(!page.contains("<script>alert"), "{name}");
        assert!(!page.contains("</svg><script"), "{name}");
        // A page of `serve` loads only from its own origin, and has no other script.
        let scripts = page.matches("<script").count();
        assert_eq!(scripts, usize::from(name == "experiment"), "{name}");
        for attribute in [" href=\"", " src=\"", " action=\"", " data-progress=\""] {
            for rest in page.split(attribute).skip(1) {
                assert!(rest.starts_with('/'), "{name}: {attribute}{}", &rest[..40]);
                let value = rest.split('"').next().unwrap();
                assert!(!value.contains(['<', '\'', ' ']), "{name}: {value}");
            }
        }
    }
}

#[test]
fn run_without_trials_for_long_is_reported_as_killed() {
    let mut progress = Progress {
        id: "a".into(),
        started: "2026-11-21T08:30:00Z".into(),
        ended: Ended::Unfinished,
        trials: 20,
        failed: 0,
        block: 4,
        elapsed_ms: 5_000,
        since_start_ms: 5_900,
        budget_ms: Some(60_000),
        arm: Some("+spin".into()),
    };
    let said = served::progress_words(&progress, 900);
    assert_eq!(said, "Block 4, 20 trials, the last of +spin, 5.00 s of 60.0 s at most.");
    let said = served::progress_words(&progress, 300_000);
    assert!(said.starts_with("No trial for 5 min 0 s: the run was probably killed"), "{said}");
    progress.ended = Ended::Settled;
    let said = served::progress_words(&progress, 300_000);
    assert_eq!(said, "Finished: every verdict was settled.");
}
