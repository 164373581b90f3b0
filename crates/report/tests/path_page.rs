//! Page of a path: latest result per switch.

mod common;

use model::{Ended, Outcome, SwitchScope, SwitchSpec, Verdict};
use wirepath_report::html::{LoadText, PathPage};
use wirepath_report::store::{ExperimentHeader, Filter, SqliteStore, Store};

const fn switch(id: &'static str) -> SwitchSpec {
    SwitchSpec {
        id,
        effect: "Does <it>.",
        by: "",
        scope: SwitchScope::Process,
        needs: "",
        source: "udp(7)",
    }
}

const SWITCHES: &[SwitchSpec] =
    &[switch("spin"), switch("batch"), switch("zero-copy"), switch("busy-poll"), switch("lost")];

const LOADS: &[LoadText<'_>] = &[
    LoadText { name: "ping", what: "to and fro", judged: &["rtt_ns_p50", "cpu_ns_per_packet"] },
    LoadText { name: "flood", what: "one way", judged: &["received_pps"] },
];

fn page(outcomes: &[Outcome]) -> PathPage<'_> {
    PathPage {
        name: "probe",
        what: "engines & rings",
        loads: LOADS,
        switches: SWITCHES,
        machine: Some("m-1"),
        machines: &[],
        outcomes,
        total: outcomes.len() as u64,
    }
}

/// Rows of the table of one load, by switch.
fn row<'a>(html: &'a str, load: &str, switch: &str) -> Option<&'a str> {
    let (_, table) = html.split_once(&format!("<caption>Load {load}: "))?;
    let (table, _) = table.split_once("</table>")?;
    let (_, row) = table.split_once(&format!("<th scope=\"row\"><code>{switch}</code></th>"))?;
    Some(row.split_once("</tr>")?.0)
}

fn at(mut outcome: Outcome, id: &str, started: &str) -> Outcome {
    (outcome.id, outcome.started) = (id.into(), started.into());
    outcome
}

#[test]
fn latest_result_per_switch_is_shown_with_its_experiment() {
    let mut newer = at(common::ping(), "newer", "2026-11-22T09:10:11Z");
    // The newer experiment has results for spin only.
    newer.arms.retain(|arm| ["baseline", "baseline again", "+spin"].contains(&arm.name.as_str()));
    let outcomes = [newer, at(common::ping(), "older", "2026-11-20T08:00:00Z"), common::flood()];
    let html = page(&outcomes).served();
    let spin = row(&html, "ping", "spin").unwrap();
    assert!(spin.contains("href=\"/experiment/newer\">2026-11-22 09:10<"), "{spin}");
    assert!(spin.contains("class=\"good\">better<") && spin.contains(">nothing<"), "{spin}");
    let batch = row(&html, "ping", "batch").unwrap();
    assert!(batch.contains("/experiment/older\">2026-11-20 08:00<"), "{batch}");
    assert!(batch.contains("no difference shown") && batch.contains(">spin<"), "{batch}");
    assert!(row(&html, "ping", "zero-copy").unwrap().contains("unsupported"));
    assert!(row(&html, "ping", "busy-poll").unwrap().contains("not effective"));
    assert!(row(&html, "ping", "lost").is_none());
    assert!(html.contains("Not compared under this load: lost."));
    assert!(row(&html, "flood", "batch").unwrap().contains("better"));
    assert!(html.contains("2026-11-22 09:10: 0.0610× [0.0603, 0.0617] +spin. 2026-11-20 08:00"));
    assert!(!html.contains("time-flood"), "one experiment gives no chart over time");
}

#[test]
fn results_with_a_switch_that_the_path_no_longer_has_are_shown() {
    let mut old = at(common::ping(), "old", "2026-11-20T08:00:00Z");
    for switch in old.arms.iter_mut().flat_map(|arm| &mut arm.switches) {
        *switch = switch.replace("spin", "gone");
    }
    let html = page(&[old]).served();
    assert!(row(&html, "ping", "gone").is_none());
    assert!(
        html.contains("Not compared under this load: spin"),
        "the switch of today has no result"
    );
    let batch = row(&html, "ping", "batch").unwrap();
    assert!(
        batch.contains("/experiment/old\">2026-11-20 08:00<") && batch.contains(">gone<"),
        "{batch}"
    );
}

#[test]
fn file_has_no_links_and_everything_is_escaped() {
    let outcomes = [common::ping(), at(common::hostile(), "<b>", "<i>")];
    let html = page(&outcomes).file();
    assert!(!html.contains("<a ") && !html.contains("<form"));
    assert!(html.contains("default-src 'none'"));
    assert!(html.contains("engines &amp; rings") && html.contains("Does &lt;it&gt;."));
    assert!(!html.contains("<it>") && !html.contains("<b><") && !html.contains("<script"));
}

#[test]
fn page_without_experiments_names_the_command() {
    let html = page(&[]).file();
    assert!(html.contains("Nothing was measured here yet: <code>wirepath prove probe</code>."));
    assert!(html.contains("<h2>Switches</h2>") && html.contains("<h2>Loads</h2>"));
    assert!(!html.contains("over time"));
}

#[test]
fn outcomes_are_filtered_by_path_and_machine_newest_first() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = SqliteStore::open(folder.path().join("h.db")).unwrap();
    let mut save = |id: &str, day: u32, path: &str, machine: &str, whole: bool| {
        let mut outcome = at(common::ping(), id, &format!("2026-11-{day:02}T08:00:00Z"));
        outcome.path = path.into();
        outcome.machine.id = machine.into();
        let header = ExperimentHeader {
            id: id.into(),
            started: outcome.started.clone(),
            path: path.into(),
            load: outcome.load.clone(),
            machine: outcome.machine.clone(),
            seed: 1,
            schedule: Default::default(),
            arms: Vec::new(),
            version: "0.1.0".into(),
            name: None,
            note: None,
            phrases: Default::default(),
            search: None,
        };
        store.begin(&header).unwrap();
        if whole {
            store.save_outcome(&outcome).unwrap();
            store.finish(id, Ended::Settled).unwrap();
        }
    };
    save("a", 1, "probe", "m-1", true);
    save("b", 2, "probe", "m-1", true);
    save("c", 3, "probe", "m-2", true);
    save("d", 4, "feed", "m-1", true);
    save("e", 5, "probe", "m-1", false);
    let page = |limit| {
        let filter = Filter {
            path: Some("probe".into()),
            machine: Some("m-1".into()),
            limit,
            ..Filter::default()
        };
        let outcomes = store.outcomes(&filter).unwrap();
        outcomes.into_iter().map(|outcome| outcome.id).collect::<Vec<_>>()
    };
    assert_eq!(page(None), ["b", "a"]);
    assert_eq!(page(Some(1)), ["b"]);
    let all = store.outcomes(&Filter::default()).unwrap();
    assert_eq!(all.len(), 4);
    assert_eq!(all[0].arms[2].metrics["rtt_ns_p50"].verdict, Some(Verdict::Better));
}
