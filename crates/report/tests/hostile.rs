//! Every text of a result, filled with what has a meaning in some form, in every form of output.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, SystemTime};

use model::{Ended, Measurement, Outcome, Verdict, latency_histogram};
use serde_json::Value;
use testkit::hostile;
use wirepath_report::export::{Table, TrialsCsv, TrialsJson};
use wirepath_report::formats::{
    to_action_benchmark, to_bencher, to_benchfmt, to_github, to_hlog, to_junit, to_markdown,
    to_openmetrics,
};
use wirepath_report::page::{
    Bar, BarChart, Page, Remark, SummaryAnswer, SummaryPage, SummaryTable,
};
use wirepath_report::screen::Tone;
use wirepath_report::store::{SqliteStore, Store, Summary, TrialRecord};
use wirepath_report::text::{self, Detail, Style};
use wirepath_report::{csv, html, json};

/// Structure of a document: two documents have the same one if no text of theirs changed it.
type Structure = Vec<String>;

/// Elements of HTML without an end.
const VOID: [&str; 4] = ["meta", "link", "br", "input"];

/// A form of output: its name, its writer, and its reader, which panics if the text is not of the form.
struct Form {
    name: &'static str,
    write: fn(&Outcome) -> String,
    read: fn(&str, &str) -> Structure,
}

fn forms() -> Vec<Form> {
    let form = |name, write, read| Form { name, write, read };
    vec![
        form("text", |outcome| text::ladder(outcome, Style::default(), Detail::Full), terminal),
        form("colours", |outcome| text::ladder(outcome, colored(), Detail::Full), terminal),
        form("ASCII", |outcome| text::ladder(outcome, ascii(), Detail::Brief), terminal),
        form("list", |outcome| text::list(&[summary(outcome)], Style::default()), terminal),
        form("comparison", |outcome| text::compare(&compared(outcome), Style::default()), terminal),
        form("watch", |outcome| text::watch(&watched(outcome), Style::default()), terminal),
        form("html of a watch", |outcome| html::watch_page(&watched(outcome)), web),
        form("markdown", |outcome| to_markdown(&Page::from_outcome(outcome)), markdown),
        form("github", |outcome| to_github(&Page::from_outcome(outcome)), github),
        form("junit", |outcome| to_junit(&Page::from_outcome(outcome)), xml),
        form("html", html::page, web),
        form("html of a comparison", |outcome| html::comparison_page(&compared(outcome)), web),
        form("html of the list", listed, web),
        form("html of a failure", |outcome| html::served::failure(&outcome.id, &outcome.path), web),
        form("csv", csv::to_csv, table),
        form("csv of trials", |outcome| exported(outcome, true), table),
        form("openmetrics", |outcome| to_openmetrics(&Page::from_outcome(outcome)), openmetrics),
        form("benchfmt", to_benchfmt, lines),
        form(
            "benchmark action",
            |outcome| to_action_benchmark(outcome, model::Better::Lower),
            shape,
        ),
        form("bencher", |outcome| to_bencher(&Page::from_outcome(outcome)), shape),
        form("json", |outcome| text::visible_json(&json::to_json(outcome)).into_owned(), shape),
        form(
            "json of trials",
            |outcome| text::visible_json(&exported(outcome, false)).into(),
            shape,
        ),
        form("hlog", histogram_log, lines),
    ]
}

fn colored() -> Style {
    Style { color: true, ..Style::default() }
}

fn ascii() -> Style {
    Style { ascii: true, ..Style::default() }
}

fn summary(outcome: &Outcome) -> Summary {
    Summary {
        title: "Which switch makes a ping faster?".into(),
        note: None,
        id: outcome.id.clone(),
        started: outcome.started.clone(),
        path: outcome.path.clone(),
        load: outcome.load.clone(),
        machine: outcome.machine.id.clone(),
        version: outcome.version.clone(),
        arms: outcome.arms.len() as u32,
        blocks: outcome.blocks,
        trials: 7,
        ended: outcome.ended,
        headline: Some(wirepath_report::answer::headline(outcome)),
    }
}

fn compared(outcome: &Outcome) -> model::RunComparison {
    let [old, new] = ["-old", "-new"].map(|name| {
        [1, 2, 3, 4].map(|number| Outcome {
            id: format!("{}{name}{number}", outcome.id),
            ..outcome.clone()
        })
    });
    model::compare(&old, &new, model::Unit::Session, 1.05)
        .expect("runs of the same experiment are comparable")
}

/// A history of two runs, with a change between them.
fn watched(outcome: &Outcome) -> model::Watch {
    let runs = [1, 2].map(|number| Outcome {
        id: format!("{}-{number}", outcome.id),
        ended: Ended::Settled,
        ..outcome.clone()
    });
    let mut watch = model::watch(&runs, model::Unit::Run, model::By::Value, 1.05);
    for series in &mut watch.series {
        let Some(point) = series.points.get(1) else { continue };
        series.changes.push(model::SeriesChange {
            at: 1,
            id: point.id.clone(),
            started: point.started.clone(),
            ratio: Some(1.2),
            low: Some(1.1),
            high: Some(1.3),
            difference: None,
            p: 0.001,
            verdict: Verdict::Worse,
        });
    }
    watch.gate = Some(watch.decide());
    watch
}

fn listed(outcome: &Outcome) -> String {
    let (rows, names) = ([summary(outcome)], [outcome.path.clone()]);
    html::served::list(&html::served::List {
        rows: &rows,
        total: 1,
        per_page: 50,
        filter: &wirepath_report::store::Filter {
            path: Some(outcome.path.clone()),
            machine: Some(outcome.machine.id.clone()),
            ..Default::default()
        },
        paths: &names,
        machines: std::slice::from_ref(&outcome.machine.id),
    })
}

fn exported(outcome: &Outcome, is_csv: bool) -> String {
    let mut out = Vec::new();
    let mut table: Box<dyn Table + '_> = if is_csv {
        Box::new(TrialsCsv::new(&mut out).unwrap())
    } else {
        Box::new(TrialsJson::new(&mut out).unwrap())
    };
    table.add(outcome).unwrap();
    table.finish().unwrap();
    String::from_utf8(out).unwrap()
}

fn histogram_log(outcome: &Outcome) -> String {
    let mut histogram = latency_histogram();
    histogram.record(1000).unwrap();
    let trial = |arm: &model::ArmOutcome| TrialRecord {
        ordinal: 0,
        block: 1,
        arm: arm.name.clone(),
        warmup: false,
        noisy: false,
        started_ms: 5,
        wall_ns: 7,
        result: Ok(Measurement {
            segments: arm.latency.keys().map(|name| (name.clone(), histogram.clone())).collect(),
            ..Measurement::default()
        }),
    };
    let trials: Vec<_> = outcome.arms.iter().map(trial).collect();
    to_hlog(&trials, SystemTime::UNIX_EPOCH + Duration::from_secs(1)).expect("histograms")
}

/// Text wraps at its width, so that its lines differ; only own colours are control characters.
fn terminal(text: &str, about: &str) -> Structure {
    hostile::assert_shows(&text.replace("\x1b[", ""), &[], about);
    assert_eq!(text::visible_colored(text), text, "{about}");
    Vec::new()
}

fn lines(text: &str, about: &str) -> Structure {
    hostile::assert_shows(text, &[], about);
    hostile::assert_no_line(text, about);
    text.lines().map(|_| "line".to_owned()).collect()
}

/// Kind of each line, with its columns.
fn markdown(text: &str, about: &str) -> Structure {
    lines(text, about);
    text.lines()
        .map(|line| {
            let plain = line.replace("\\|", "").replace("\\\\", "");
            let start: String =
                line.chars().take_while(|c| "#>*-| ".contains(*c)).take(2).collect();
            for active in ["<", "]("] {
                let escaped = plain.replace("\\<", "").replace("\\]", "");
                assert!(!escaped.contains(active), "{about}: {active} in {line}");
            }
            format!("{start}{}", plain.matches('|').count())
        })
        .collect()
}

fn github(text: &str, about: &str) -> Structure {
    lines(text, about);
    text.lines()
        .map(|line| {
            let (kind, rest) = line
                .strip_prefix("::")
                .and_then(|line| line.split_once(" title="))
                .expect("a command");
            let (title, _) = rest.split_once("::").expect("a message");
            assert!(["error", "warning", "notice"].contains(&kind), "{about}: {line}");
            assert!(!title.contains([':', ',']), "{about}: {line}");
            kind.to_owned()
        })
        .collect()
}

fn xml(text: &str, about: &str) -> Structure {
    hostile::assert_shows(text, &[], about);
    hostile::elements(text, &[], about)
}

fn web(text: &str, about: &str) -> Structure {
    hostile::assert_shows(text, &[], about);
    let elements = hostile::elements(text, &VOID, about);
    let banned = ["script", "iframe", "img", "object", "foreignObject"];
    let found =
        elements.iter().find(|element| banned.contains(&element.split(' ').next().unwrap()));
    assert_eq!(found, None, "{about}");
    elements
}

fn table(text: &str, about: &str) -> Structure {
    hostile::assert_shows(text, &['\r'], about);
    hostile::csv(text, about).iter().map(|row| row.len().to_string()).collect()
}

fn openmetrics(text: &str, about: &str) -> Structure {
    lines(text, about);
    assert!(text.ends_with("\n# EOF\n") && text.matches("\n# EOF").count() == 1, "{about}");
    let kind = |line: &str| {
        if line.starts_with('#') {
            return line.to_owned();
        }
        let (name, rest) = line.split_once('{').expect("labels");
        let mut labels = String::new();
        let mut rest = rest;
        loop {
            let (label, after) = rest.split_once("=\"").expect("a label");
            labels += label;
            let mut is_escaped = false;
            let end = after.find(|c| {
                let is_end = c == '"' && !is_escaped;
                is_escaped = c == '\\' && !is_escaped;
                is_end
            });
            rest = &after[end.expect("the end of a value") + 1..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break,
            }
        }
        let value = rest.strip_prefix("} ").expect("a value");
        assert!(value.parse::<f64>().is_ok(), "{about}: {line}");
        format!("{name} {labels}")
    };
    let mut kinds: Structure = text.lines().map(kind).collect();
    // Arms and metrics are in the order of their names.
    kinds.sort();
    kinds
}

/// Number of values of each kind.
fn shape(text: &str, about: &str) -> Structure {
    hostile::assert_shows(text, &[], about);
    fn collect(value: &Value, kinds: &mut Structure) {
        match value {
            Value::Array(all) => all.iter().for_each(|value| collect(value, kinds)),
            Value::Object(all) => {
                kinds.push(format!("object of {}", all.len()));
                all.values().for_each(|value| collect(value, kinds));
            }
            Value::String(_) => kinds.push("text".into()),
            _ => kinds.push("figure".into()),
        }
    }
    let mut kinds = Vec::new();
    collect(&serde_json::from_str(text).unwrap_or_else(|e| panic!("{about}: {e}")), &mut kinds);
    kinds.sort();
    kinds
}

/// A result with a text in each place that has one.
fn document() -> Value {
    let mut outcome = common::ping();
    let baseline_and_rungs = [0, 1, 2, 7, 8, 11];
    let mut place = 0;
    outcome.arms.retain(|_| {
        place += 1;
        baseline_and_rungs.contains(&(place - 1))
    });
    // A third metric and more blocks would show no other text.
    for arm in &mut outcome.arms {
        arm.metrics.remove("rtt_ns_p99");
        for metric in arm.metrics.values_mut() {
            metric.trials.truncate(4);
        }
        for latency in arm.latency.values_mut() {
            latency.quantiles.truncate(6);
        }
    }
    outcome.judged.retain(|name| name != "rtt_ns_p99");
    outcome.floor.remove("rtt_ns_p99");
    outcome.machine.governor = Some("performance".into());
    outcome.load.insert("args".into(), "prove probe --load ping --seed 7".into());
    outcome.load.insert("client".into(), "bench --once".into());
    serde_json::to_value(outcome).unwrap()
}

fn read(document: &Value) -> Result<Outcome, String> {
    let text = serde_json::to_string(document).unwrap();
    let outcomes = json::all_from_json(&text).map_err(|error| error.to_string())?;
    Ok(outcomes.into_iter().next().expect("one document"))
}

/// A panic with the place in which it happened.
fn within<T>(about: &str, run: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        testkit::note(&format!("in {about}:"));
        resume_unwind(panic)
    })
}

#[test]
fn no_text_of_a_result_changes_the_structure_of_a_form_or_drives_the_terminal() {
    let (document, forms, texts) = (document(), forms(), hostile::texts());
    // Names of the schema, and words of it such as verdicts, are no texts: another one is refused or ignored.
    let mut fields = hostile::fields(&document);
    fields.retain(|field: &String| {
        let read = read(&hostile::replaced(&document, field, hostile::HARMLESS));
        read.is_ok_and(|outcome| json::to_json(&outcome).contains(hostile::HARMLESS))
    });
    let (mut refused, mut shown) = (0, 0);
    for field in &fields {
        let harmless = read(&hostile::replaced(&document, field, hostile::HARMLESS)).unwrap();
        let usual: Vec<Structure> =
            forms.iter().map(|form| (form.read)(&(form.write)(&harmless), field)).collect();
        for (name, text) in &texts {
            let Ok(outcome) = read(&hostile::replaced(&document, field, text)) else {
                refused += 1;
                continue;
            };
            for (form, usual) in forms.iter().zip(&usual) {
                let about = format!("{name} in {field:?} as {}", form.name);
                let written = within(&about, || (form.write)(&outcome));
                let structure = within(&about, || (form.read)(&written, &about));
                assert_eq!(&structure, usual, "{about}:\n{written}");
                shown += 1;
            }
        }
    }
    testkit::note(&format!(
        "{} fields of a result, {} texts, {} forms: {refused} documents refused, {shown} texts read",
        fields.len(),
        texts.len(),
        forms.len()
    ));
    assert!(fields.len() > 40 && shown > 20 * texts.len() * forms.len(), "{shown}");
}

#[test]
fn long_texts_and_deep_documents_are_shown_or_refused() {
    let (document, forms) = (document(), forms());
    let long = hostile::long();
    let outcome: Outcome = read(&document).unwrap();
    // A table repeats a name in each of its rows, so that only texts that are shown once have the full length.
    let names = [&outcome.id, &outcome.path, &outcome.arms[2].name, &outcome.judged[0]];
    let once = [&outcome.warnings[0].what, &outcome.warnings[1].advice];
    let cases = names.map(|name| (name, &long[..1 << 13])).into_iter();
    for (field, text) in cases.chain(once.map(|field| (field, long.as_str()))) {
        let outcome = read(&hostile::replaced(&document, field, text)).unwrap();
        for form in &forms {
            let about = format!("{} bytes in {field:?} as {}", text.len(), form.name);
            let written = within(&about, || (form.write)(&outcome));
            within(&about, || (form.read)(&written, &about));
        }
    }
    for deep in [
        "[".repeat(1 << 20),
        "{\"a\":".repeat(1 << 18),
        format!("[{}", "{\"runs\":[".repeat(1 << 17)),
    ] {
        assert!(json::all_from_json(&deep).is_err());
    }
}

#[test]
fn stored_texts_are_those_of_the_document() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = SqliteStore::open(folder.path().join("history.db")).unwrap();
    let document = document();
    for (at, (_, text)) in hostile::texts().iter().enumerate() {
        let outcome = read(&hostile::replaced(&document, "+spin", text)).unwrap();
        let outcome = Outcome { id: format!("a-{at}"), ..outcome };
        store.import(std::slice::from_ref(&outcome)).unwrap();
        assert_eq!(store.load(&outcome.id).unwrap().outcome, Some(outcome));
    }
}

#[test]
fn names_of_a_feed_do_not_change_its_page() {
    let page = |text: &str| {
        let own = || text.to_owned();
        let bar = Bar { label: own(), value: 7, text: own(), line: 0 };
        SummaryPage {
            title: own(),
            about: own(),
            answers: vec![SummaryAnswer { subject: own(), text: own(), tone: Tone::Bad }],
            bars: vec![BarChart {
                title: own(),
                caption: own(),
                description: own(),
                bars: vec![bar],
            }],
            tables: vec![SummaryTable {
                section: own(),
                caption: own(),
                columns: vec![(own(), false), (own(), true)],
                rows: vec![vec![own(), own()]],
            }],
            notes: vec![Remark { subject: own(), text: own(), tone: Tone::Doubt }],
            method: own(),
        }
    };
    let usual = web(&html::summary_page(&page(hostile::HARMLESS)), "usual");
    for (name, text) in hostile::texts() {
        assert_eq!(web(&html::summary_page(&page(&text)), name), usual, "{name}");
    }
}
