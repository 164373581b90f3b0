//! Two runs against each other as text and page, and the pages of `serve`.

mod common;

use model::{Ended, Outcome, RunComparison};
use wirepath_report::html::{self, served};
use wirepath_report::store::{Filter, Progress, Summary};
use wirepath_report::text::{self, Style};

/// The same run a day later: another kernel, and +gso a quarter slower.
fn later() -> Outcome {
    let mut outcome = common::ping();
    outcome.id = "20261122-083000-probe-2b4d".into();
    outcome.started = "2026-11-22T08:30:00Z".into();
    outcome.machine.kernel = "6.18.6 #1 SMP PREEMPT_DYNAMIC".into();
    outcome.machine.id = "m-77aa".into();
    let metric = outcome.arms[4].metrics.get_mut("rtt_ns_p50").unwrap();
    metric.median = metric.median.map(|value| value * 1.25);
    metric.trials.iter_mut().flatten().for_each(|value| *value *= 1.25);
    outcome.arms.remove(9);
    outcome
}

fn comparison() -> RunComparison {
    model::compare(&common::ping(), &later()).unwrap()
}

#[test]
fn the_text_is_as_it_was_when_a_person_looked_at_it() {
    let text = text::compare(&comparison(), Style::default());
    common::golden("compare.txt", &text);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let ascii = text::compare(&comparison(), Style { width: 60, color: true, ascii: true });
    assert!(ascii.is_ascii(), "{ascii}");
}

#[test]
fn the_page_has_what_differs_first_and_every_picture_in_words() {
    let page = html::comparison_page(&comparison());
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("no {text}"));
    assert!(at("What differs between the runs") < at("<h2>Answer"));
    assert!(at("The machines differ") < at("<h2>Answer"));
    assert!(at("6.18.6") < at("<h2>Answer"));
    assert!(page.contains("+gso: 1.25× ["), "in the chart's description");
    assert_eq!(page.matches("<svg").count(), page.matches("<title id").count());
    assert!(
        !page.contains("http://")
            || page.replace("http://www.w3.org/2000/svg", "").find("http://").is_none()
    );
}

fn summary(id: &str) -> Summary {
    let outcome = common::hostile();
    Summary {
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
fn names_that_try_to_leave_their_place_stay_in_it_on_every_page() {
    let evil = common::hostile();
    let mut other = evil.clone();
    other.id = format!("{}2", evil.id);
    let comparison = model::compare(&evil, &other).unwrap();
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
        // What a page of `serve` may load is of its own origin; no markup but ours.
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
fn a_run_that_is_silent_for_long_is_said_to_be_killed() {
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
    assert!(said.starts_with("Nothing heard for 5 min 0 s: it was killed"), "{said}");
    progress.ended = Ended::Settled;
    let said = served::progress_words(&progress, 300_000);
    assert_eq!(said, "Finished: every verdict was settled.");
}
