//! `wirepath probe measure`: small curves in the lab.

mod common;

use common::{LONG, Running, Spaces, fail, json, own_links, wirepath};
use serde_json::Value;

/// Few datagrams a trial; the rates end where the arm does.
const SMALL: [&str; 10] =
    ["probe", "measure", "--start", "500", "--trial", "20ms", "--trials", "2", "--seed", "7"];

fn count(point: &Value, name: &str) -> u64 {
    point[name].as_u64().unwrap_or_else(|| panic!("{name}: {point}"))
}

#[test]
fn curves_end_where_an_arm_does_not_carry_the_rate_and_their_books_balance() {
    let links = own_links();
    let page = tempfile::NamedTempFile::new().expect("a file");
    let path = page.path().to_str().expect("text");
    let arms = ["--arms", "spin,spin+bypass,zero-copy", "--json", "--html", path];
    let said = json(wirepath(&[&SMALL[..], &arms].concat()));
    let arms = said["arms"].as_array().expect("a list");
    let names: Vec<&str> = arms.iter().filter_map(|arm| arm["name"].as_str()).collect();
    assert_eq!(names, ["baseline", "spin", "spin+bypass", "zero-copy"]);
    for arm in &arms[..3] {
        let points = arm["points"].as_array().expect("a list");
        assert_eq!(arm["end"], "not-carried", "{arm}");
        for (place, point) in points.iter().enumerate() {
            is_whole(point);
            assert_eq!(count(point, "offered_pps"), 500 << place, "{arm}");
            let answered = count(point, "received_count") as f64;
            let is_carried = answered >= 0.98 * count(point, "offered_count") as f64;
            assert_eq!(is_carried, place + 1 < points.len(), "{arm}");
        }
        let (knee, beyond) = (&arm["knee"]["rate_pps"], &arm["knee"]["beyond_pps"]);
        assert!(knee.is_null() && beyond.is_null(), "two trials bound no knee: {arm}");
        assert_eq!(arm["knee"]["unbounded"]["kind"], "few-trials", "{arm}");
        assert_eq!(points[0]["trials"].as_array().map(Vec::len), Some(2), "{arm}");
    }
    assert_eq!(
        (&arms[3]["end"], arms[3]["points"].as_array()),
        (&"not-run".into(), Some(&Vec::new()))
    );
    let page = std::fs::read_to_string(page.path()).expect("a page");
    assert!(page.contains("<svg") && page.contains("spin+bypass"), "{page}");
    assert_eq!(own_links(), links);
}

#[test]
fn curve_of_a_far_end_in_another_namespace_has_both_machines() {
    if !common::is_installed("ip") {
        return;
    }
    let spaces = Spaces::new();
    let far = format!("netns:{}", spaces.far);
    let args = ["--arms", "spin", "--json", "--far", &far];
    let said = json(spaces.near(&[&SMALL[..], &args].concat()));
    assert!(said["machine"]["far"]["kernel"].is_string(), "{said}");
    for arm in said["arms"].as_array().expect("a list") {
        let points = arm["points"].as_array().expect("a list");
        assert!(!points.is_empty(), "{arm}");
        points.iter().for_each(is_whole);
    }
}

/// Counts of a point balance, and a maximum is of all datagrams or absent.
fn is_whole(point: &Value) {
    let counted = |name| count(point, name);
    assert_eq!(counted("trial_count"), 2, "{point}");
    assert_eq!(
        counted("offered_count"),
        counted("sent_count") + counted("unsent_count"),
        "{point}"
    );
    assert_eq!(counted("sent_count"), counted("received_count") + counted("lost_count"), "{point}");
    let missing = counted("lost_count") + counted("unsent_count");
    assert_eq!(
        point["rtt_ns_max"].is_null(),
        missing > 0 || counted("received_count") == 0,
        "{point}"
    );
}

#[test]
fn bad_values_are_refused_with_the_remedy() {
    for (args, needle) in [
        (&["--arms", "warp"][..], "is not a switch of probe; it has: spin"),
        (&["--size", "10"], "use --size between"),
        (&["--start", "0"], "--start"),
        (&["--trials", "0"], "--trials"),
        (&["--queue", "1"], "--far"),
    ] {
        let said = fail(wirepath(&[&["probe", "measure"][..], args].concat()), 2);
        assert!(said.contains(needle), "{args:?}: {said}");
    }
}

#[test]
fn interrupted_and_killed_runs_leave_no_namespace_and_no_program() {
    let links = own_links();
    let measure = ["probe", "measure", "--arms", "spin+bypass", "--start", "100"];
    let verbs = [
        "prove",
        "probe",
        "--load",
        "storm",
        "--arms",
        "baseline",
        "--peers",
        "xdp-tx",
        "--no-history",
    ];
    for (signal, args) in [("INT", &measure[..]), ("KILL", &measure), ("KILL", &verbs)] {
        let running = Running::start(wirepath(args));
        let mut held = running.holdings();
        // Of the verb: it, the counter of returned frames, the generator and its trace.
        let program_count = if args == verbs { 4 } else { 1 };
        let in_use = common::until(LONG, || {
            held = running.holdings();
            held.namespaces.len() >= 2 && held.programs.len() >= program_count
        });
        assert!(in_use, "the check itself must see the lab in use: {}", running.stderr());
        running.end_by(signal, LONG);
        held.assert_gone();
    }
    assert_eq!(own_links(), links);
}
