//! Exports of hyperfine and k6 as outcomes.

mod common;

use std::fs;
use std::path::Path;

use model::{Better, Outcome};
use wirepath_report::foreign::{ForeignError, from_json};
use wirepath_report::text::{Detail, Style, ladder};

const MODIFIED: &str = "2026-12-01T12:00:00Z";

fn text(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/foreign_result");
    fs::read_to_string(folder.join(name)).expect("it is committed")
}

fn read(name: &str) -> Outcome {
    from_json(&text(name), MODIFIED).expect("it is valid").expect("it is known")
}

fn refused(name: &str) -> ForeignError {
    from_json(&text(name), MODIFIED).expect_err(name)
}

#[test]
fn hyperfine_s_first_schema_has_every_time_and_a_failed_run_has_none() {
    let outcome = read("hyperfine-1");
    assert_eq!((outcome.path.as_str(), outcome.started.as_str()), ("hyperfine", MODIFIED));
    assert_eq!(outcome.judged, ["client_wall_ns"]);
    let [old, new] = outcome.arms.as_slice() else { panic!("{:?}", outcome.arms) };
    let wall = &old.metrics["client_wall_ns"];
    assert_eq!((old.name.as_str(), wall.trials.len()), ("./sort-old", 4));
    assert!((wall.median.unwrap() - 102e6).abs() < 1.0, "{wall:?}");
    assert_eq!(old.metrics["client_memory_bytes_max"].median, Some(1_000_000.0));
    let wall = &new.metrics["client_wall_ns"];
    assert_eq!(
        (wall.trials[3], new.failures.as_slice()),
        (None, &["run 4 ended with exit code 1".to_owned()][..])
    );
    // The median is that of the runs that did not fail.
    assert!((wall.median.unwrap() - 85e6).abs() < 1.0 && wall.verdict.is_none(), "{wall:?}");
}

#[test]
fn hyperfine_s_second_schema_has_its_start_and_names() {
    let outcome = read("hyperfine-2");
    assert_eq!(outcome.started, "2026-11-30T08:00:00Z");
    assert_eq!(outcome.machine.notes["imported from"], "hyperfine 2.0.0");
    let [old, new] = outcome.arms.as_slice() else { panic!("{:?}", outcome.arms) };
    assert_eq!((old.name.as_str(), new.name.as_str()), ("old", "./sort-new"));
    assert!((new.metrics["client_wall_ns"].median.unwrap() - 85e6).abs() < 1.0);
    assert!((old.metrics["client_cpu_ns"].median.unwrap() - 94.5e6).abs() < 1e3, "{old:?}");
}

#[test]
fn k6_gives_the_same_figures_by_both_of_its_forms() {
    let (export, handle) = (read("k6-summary-export"), read("k6-handle-summary"));
    for outcome in [&export, &handle] {
        assert_eq!(outcome.judged[0], "http_req_duration_ns_p95");
        let metrics = &outcome.arms[0].metrics;
        assert_eq!(metrics["http_req_duration_ns_p95"].median, Some(241e6));
        assert_eq!(metrics["http_reqs_per_s"].median, Some(29.7));
        assert_eq!(metrics["http_reqs_per_s"].better, Better::Higher);
        assert_eq!(metrics["http_req_failed_share"].better, Better::Lower);
        assert!(metrics.contains_key("checks_share") && !metrics.contains_key("vus"));
        // The script's threshold was crossed.
        assert!(outcome.warnings[0].what.contains("p(95)<200"), "{:?}", outcome.warnings);
        assert_eq!(outcome.warnings.len(), 1);
    }
    assert_eq!(handle.arms[0].metrics["http_req_duration_ns_p999"].median, Some(700.1e6));
    assert_eq!(handle.arms[0].metrics["waiting_bytes_p95"].unit, "");
    assert_eq!(handle.wall_ms, 30_321);
}

#[test]
fn hostile_exports_are_refused_with_one_error_each() {
    assert!(matches!(refused("hyperfine-99"), ForeignError::Schema { found: 99, .. }));
    assert!(matches!(refused("hyperfine-no-run"), ForeignError::Empty { .. }));
    assert!(matches!(refused("hyperfine-negative"), ForeignError::Value { .. }));
    assert!(matches!(refused("k6-words"), ForeignError::Shape { .. }));
    let many: Vec<String> =
        (0..1001).map(|n| format!(r#"{{"command":"{n}","median":1}}"#)).collect();
    let many = format!(r#"{{"results":[{}]}}"#, many.join(","));
    assert!(matches!(from_json(&many, MODIFIED), Err(ForeignError::TooMany { .. })));
    for other in [text("neither"), text("hyperfine-cut"), "[]".into(), String::new()] {
        assert!(from_json(&other, MODIFIED).expect("another document").is_none(), "{other}");
    }
}

#[test]
fn names_of_commands_are_short_unique_and_drive_no_terminal() {
    let outcome = read("hyperfine-names");
    let [one, two] = outcome.arms.as_slice() else { panic!("{:?}", outcome.arms) };
    assert!(one.name != two.name && two.name.ends_with("(2)"), "{} {}", one.name, two.name);
    let shown = ladder(&outcome, Style::default(), Detail::Full);
    assert!(!shown.contains(['\x1b', '\u{202e}']), "{shown:?}");
}

#[test]
fn an_import_is_shown_with_the_reason_for_no_verdict() {
    for name in ["hyperfine-1", "k6-handle-summary"] {
        let shown = ladder(&read(name), Style::default(), Detail::Full);
        assert!(
            shown.contains("no verdict") || shown.contains("nothing to be compared"),
            "{shown}"
        );
    }
}
