//! Results that leave the database: import, documents as baselines, every form. On the simulated path, without
//! privileges.

use std::fs;
use std::path::Path;

use crate::QUICK;
use crate::common::{Data, all_text, fail, json, run, succeed};
use serde_json::Value;

fn export(data: &Data, ids: &[&str]) -> String {
    succeed(data.wirepath(&[&["history", "export", "--format", "json"], ids].concat()))
}

#[test]
fn export_import_export_gives_the_same_bytes_and_nothing_is_imported_by_halves() {
    let (here, there) = (Data::new(), Data::new());
    succeed(here.wirepath(&[QUICK, &["--runs", "2"]].concat()));
    let exported = export(&here, &["--all"]);
    let file = here.file("history.json");
    fs::write(&file, &exported).unwrap();
    let said = succeed(there.wirepath(&["history", "import", &file]));
    assert!(said.contains("imported 2 experiments"), "{said}");
    assert_eq!(export(&there, &["--all"]), exported);
    let again = json(there.wirepath(&["history", "import", &file, "--json"]));
    assert_eq!((&again["imported"], &again["known_count"]), (&Value::Array(vec![]), &2.into()));
    assert_eq!(export(&there, &["--all"]), exported);
    assert!(succeed(there.wirepath(&["history", "check"])).contains("intact"));
    assert!(succeed(there.wirepath(&["history"])).contains("imported"));
    let said = fail(there.wirepath(&["report", "--format", "hlog"]), 1);
    assert!(said.contains("no histograms"), "{said}");

    // The first document is fine and new, the second is not.
    let mut list: Value = serde_json::from_str(&exported).unwrap();
    let broken = |change: &dyn Fn(&mut Value)| {
        let data = Data::new();
        let mut list = list.clone();
        change(&mut list[1]);
        let file = data.file("broken.json");
        fs::write(&file, list.to_string()).unwrap();
        let said = fail(data.wirepath(&["history", "import", &file]), 2);
        assert_eq!(
            json(data.wirepath(&["history", "--json"]))["experiments"],
            Value::Array(vec![])
        );
        said
    };
    let said = broken(&|one| one["schema"] = 99.into());
    assert!(
        said.contains("document 2") && said.contains("99") && said.contains("1 to 2"),
        "{said}"
    );
    let said = broken(&|one| one["arms"] = 7.into());
    assert!(said.contains("document 2") && said.contains("docs/results.md"), "{said}");
    // The same id with other content; the id of the first is new.
    list[0]["id"] = "20200101-000000-fake-aaaa".into();
    list[1]["blocks"] = 7.into();
    let file = there.file("changed.json");
    fs::write(&file, list.to_string()).unwrap();
    let said = fail(there.wirepath(&["history", "import", &file]), 1);
    assert!(said.contains("another content"), "{said}");
    assert_eq!(export(&there, &["--all"]), exported);
    list[1]["id"] = "last".into();
    fs::write(&file, list.to_string()).unwrap();
    assert!(fail(there.wirepath(&["history", "import", &file]), 1).contains("`last`"));
}

#[test]
fn documents_of_every_schema_are_exported_again_with_the_same_bytes() {
    let (old, new) = (Data::new(), Data::new());
    let fixture =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../report/tests/fixtures/history-v1.db");
    fs::copy(fixture, old.path().join("history.db")).unwrap();
    let exported = export(&old, &["--all"]);
    let list: Value = serde_json::from_str(&exported).unwrap();
    let schemas: Vec<_> =
        list.as_array().unwrap().iter().map(|one| one["schema"].as_u64()).collect();
    assert_eq!(schemas, (1..=model::SCHEMA).map(|schema| Some(schema.into())).collect::<Vec<_>>());
    fs::write(old.file("all.json"), &exported).unwrap();
    succeed(new.wirepath(&["history", "import", &old.file("all.json")]));
    assert_eq!(export(&new, &["--all"]), exported);
}

#[test]
fn a_document_in_a_file_is_a_baseline_like_stored_runs() {
    let data = Data::new();
    let runs = succeed(data.wirepath(&[QUICK, &["--runs", "5", "--json"]].concat()));
    let file = data.file("main.json");
    fs::write(&file, &runs).unwrap();
    let elsewhere = Data::new();
    let more =
        ["--runs", "5", "--baseline", &file, "--unit", "run", "--fail-on", "worse", "--json"];
    let doc = json(elsewhere.wirepath(&[QUICK, &more].concat()));
    assert_eq!(doc["comparison"]["old_runs"].as_array().map(Vec::len), Some(5));
    // A comparison of a file with a file needs no database.
    let said = fail(Data::new().wirepath(&["history", "compare", &file, &file]), 2);
    assert!(said.contains("with itself"), "{said}");
    let said = fail(elsewhere.wirepath(&[QUICK, &["--baseline", "no/such"]].concat()), 2);
    assert!(said.contains("cannot read no/such"), "{said}");
}

#[test]
fn watched_ladders_are_of_an_unfinished_run_and_the_result_is_not() {
    let data = Data::new();
    let text = succeed(data.wirepath(&[QUICK, &["--watch"]].concat()));
    assert_eq!(
        text.matches("Which switch makes a difference?").count(),
        8,
        "after each of 7 blocks, and at the end: {text}"
    );
    let (unfinished, result) =
        text.rsplit_once("Which switch makes a difference?").expect("the result");
    assert!(unfinished.contains("So far: ") && !result.contains("So far: "), "{text}");
    assert!(result.contains("fast") && result.contains("better"), "{text}");
    let said = fail(data.wirepath(&[QUICK, &["--watch", "--json"]].concat()), 2);
    assert!(said.contains("--watch"), "{said}");
}

#[test]
fn a_stored_run_is_printed_in_every_form() {
    let data = Data::new();
    succeed(data.wirepath(QUICK));
    for (format, part) in [
        ("markdown", "| **worse** |"),
        ("github", "::error title="),
        ("junit", "<failure type=\"worse\""),
        ("bencher", "rtt_ns_p50_ratio"),
        ("benchfmt", "BenchmarkFake/arm=fast"),
        ("github-action-benchmark", "\"unit\": \"ns\""),
        ("github-action-benchmark-bigger", "[]"),
        ("openmetrics", "# EOF"),
        ("hlog", "Tag=fast/rtt,"),
    ] {
        let text = succeed(data.wirepath(&["report", "last", "--format", format]));
        assert!(text.contains(part), "{format}: {text}");
    }
    let said = fail(data.wirepath(&["report", "--format", "junit", "--json"]), 2);
    assert!(said.contains("exclude each other"), "{said}");
}

#[test]
fn a_series_is_exported_for_otava_and_a_mixture_is_refused() {
    let data = Data::new();
    succeed(data.wirepath(&[QUICK, &["--runs", "3"]].concat()));
    let export = ["history", "export", "--all", "--format", "otava"];
    let table = succeed(data.wirepath(&export));
    let rows: Vec<Vec<&str>> =
        table.lines().map(|line| line.trim_end().split(',').collect()).collect();
    assert_eq!(rows.len(), 4, "{table}");
    let column = rows[0].iter().position(|name| *name == "fast:rtt_ns_p50").expect("a figure");
    let times: Vec<&str> = rows[1..].iter().map(|row| row[0]).collect();
    assert!(times.is_sorted() && rows[1..].iter().all(|row| row[column].parse::<f64>().is_ok()));
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/foreign_result");
    let other = data.file("other.json");
    fs::copy(corpus.join("hyperfine-1"), &other).unwrap();
    succeed(data.wirepath(&["history", "import", &other]));
    let said = fail(data.wirepath(&export), 2);
    assert!(said.contains("2 series: ") && said.contains("name the ids"), "{said}");
}

#[test]
fn an_export_of_another_tool_is_stored_once_and_a_hostile_one_is_refused() {
    let data = Data::new();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/foreign_result");
    for (name, path) in [("hyperfine-2", "hyperfine"), ("k6-handle-summary", "k6")] {
        let file = data.file(&format!("{name}.json"));
        fs::copy(corpus.join(name), &file).unwrap();
        let new = json(data.wirepath(&["history", "import", &file, "--json"]));
        assert!(new["imported"][0].as_str().unwrap().starts_with(path), "{new}");
        // A copy has another time.
        let copy = data.file("copy.json");
        fs::copy(&file, &copy).unwrap();
        let again = json(data.wirepath(&["history", "import", &copy, "--json"]));
        assert_eq!(again["known_count"], 1, "{again}");
        let shown = succeed(data.wirepath(&["report", new["imported"][0].as_str().unwrap()]));
        assert!(shown.contains(path), "{shown}");
    }
    let file = data.file("bad.json");
    fs::copy(corpus.join("hyperfine-negative"), &file).unwrap();
    let said = fail(data.wirepath(&["history", "import", &file]), 2);
    assert!(said.contains("bad.json: a JSON export of hyperfine with a time"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[cfg(feature = "fleet")]
mod atlas {
    use super::*;

    fn hostname() -> String {
        fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned()
    }

    #[test]
    fn a_shared_run_has_no_names_and_passes_the_check() {
        let data = Data::new();
        let secret = "run-on-db7-by-alice";
        succeed(data.wirepath(&[QUICK, &["--name", secret, "--note", secret]].concat()));
        let (file, named) = (data.file("mine.json"), data.file("named.json"));
        succeed(data.wirepath(&["history", "export", "last", "--share", "--out", &file]));
        let share = ["history", "export", "last", "--share", "--with-names", "--out", &named];
        succeed(data.wirepath(&share));
        let text =
            |file: &str| fleet::signed_file::open_file(&fs::read(file).unwrap()).unwrap().text;
        let shared = text(&file);
        for name in [secret, &hostname(), &data.path().display().to_string()] {
            assert!(!shared.contains(name), "{name} in {shared}");
        }
        assert!(text(&named).contains(secret));
        let accepted = succeed(data.wirepath(&["atlas", "--check", &file]));
        assert!(accepted.contains("accepted: 1 run, signed by U"), "{accepted}");
        let refused = run(data.wirepath(&["atlas", "--check", &named]));
        let said = all_text(&refused);
        assert_eq!(refused.status.code(), Some(4), "{said}");
        assert!(said.contains("with names") && said.contains("1 of 1 file refused"), "{said}");
        succeed(data.wirepath(&["atlas", "--check", &named, "--with-names"]));
        fail(data.wirepath(&["atlas", "--check", &data.file("none.json")]), 2);
    }

    #[test]
    fn a_site_names_the_file_that_it_leaves_out() {
        let data = Data::new();
        succeed(data.wirepath(QUICK));
        let folder = data.path().join("results");
        fs::create_dir(&folder).unwrap();
        let good = folder.join("good.json");
        let share = ["history", "export", "last", "--share", "--out"];
        succeed(data.wirepath(&[&share[..], &[good.to_str().unwrap()]].concat()));
        let mut bytes = fs::read(&good).unwrap();
        bytes[40] ^= 1;
        fs::write(folder.join("changed.json"), bytes).unwrap();
        let (folder, site) = (folder.display().to_string(), data.file("site"));
        let doc = json(data.wirepath(&["atlas", &folder, "--out", &site, "--json"]));
        assert_eq!(doc["wrote"].as_array().map(Vec::len), Some(2), "{doc}");
        assert_eq!(doc["contributions"][0]["problems"].as_array().map(Vec::len), Some(1), "{doc}");
        let index = fs::read_to_string(Path::new(&site).join("index.html")).unwrap();
        assert!(index.contains("changed.json") && !index.contains("<script"), "{index}");
        let empty = data.path().join("empty");
        fs::create_dir(&empty).unwrap();
        let said = fail(data.wirepath(&["atlas", empty.to_str().unwrap(), "--out", &site]), 2);
        assert!(said.contains("--share"), "{said}");
    }
}
