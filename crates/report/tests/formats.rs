//! Forms for CI systems and other tools, read back by programs that are not Wirepath's.

mod common;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use model::{ArmKind, Better, Measurement, Outcome, Verdict, latency_histogram};
use serde_json::{Value, json};
use wirepath_report::formats::{
    HlogError, action_benchmark_left_out, result_metrics, to_action_benchmark, to_bencher,
    to_benchfmt, to_github, to_hlog, to_junit, to_markdown, to_openmetrics,
};
use wirepath_report::page::Page;
use wirepath_report::store::TrialRecord;

fn outcomes() -> [Outcome; 3] {
    [common::ping(), common::flood(), common::hostile()]
}

fn pages() -> [Page; 3] {
    outcomes().map(|outcome| Page::from_outcome(&outcome))
}

/// Runs a program with standard input; returns its standard output.
#[track_caller]
fn piped(program: &str, arguments: &[&str], input: &str) -> String {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}\n{input}");
    String::from_utf8(output.stdout).expect("text")
}

/// Judged verdicts of an outcome that satisfy a condition, the baseline's left out.
fn verdicts(outcome: &Outcome, wanted: impl Fn(Verdict) -> bool) -> usize {
    outcome
        .judged
        .iter()
        .map(|name: &String| {
            let of_arms = outcome.arms.iter().filter_map(|arm| arm.metrics.get(name)?.verdict);
            of_arms.filter(|verdict| wanted(*verdict)).count()
        })
        .sum()
}

#[test]
fn figure_that_was_not_judged_is_skipped_with_its_reason_and_never_passes() {
    let skipped =
        |outcome: &Outcome| to_junit(&Page::from_outcome(outcome)).matches("<skipped").count();
    let mut outcome = common::ping();
    let (before, name) = (skipped(&outcome), outcome.judged[0].clone());
    let of_arms = outcome.arms.iter_mut().filter_map(|arm| arm.metrics.get_mut(&name));
    let metric = of_arms
        .into_iter()
        .find(|metric| matches!(metric.verdict, Some(Verdict::Better | Verdict::Worse)))
        .expect("a judged arm");
    (metric.verdict, metric.why) = (None, Some("values below 0 have no ratio".into()));
    assert_eq!(skipped(&outcome), before + 1);
    let text = to_junit(&Page::from_outcome(&outcome));
    assert!(
        text.contains("not judged: ") && text.contains("values below 0 have no ratio"),
        "{text}"
    );
}

#[test]
fn junit_is_read_by_python_and_worse_arms_are_its_failures() {
    if !testkit::is_installed("python3") {
        return;
    }
    let script = "import json, sys, xml.etree.ElementTree as tree
root = tree.fromstring(sys.stdin.buffer.read())
suites = list(root)
assert root.tag == 'testsuites' and all(s.tag == 'testsuite' for s in suites)
for s in suites:
    cases = s.findall('testcase')
    assert int(s.get('tests')) == len(cases), s.attrib
    assert int(s.get('failures')) == len(s.findall('testcase/failure')), s.attrib
    assert int(s.get('skipped')) == len(s.findall('testcase/skipped')), s.attrib
cases = [c for s in suites for c in s.findall('testcase')]
print(json.dumps({'suites': len(suites), 'names': [c.get('name') for c in cases],
    'failures': sum(c.find('failure') is not None for c in cases)}))";
    for outcome in outcomes() {
        let text = to_junit(&Page::from_outcome(&outcome));
        let read: Value = serde_json::from_str(&piped("python3", &["-c", script], &text)).unwrap();
        let worse = verdicts(&outcome, |verdict| verdict == Verdict::Worse);
        assert_eq!(read["failures"], worse, "{text}");
        let arms = outcome.arms.len() * read["suites"].as_u64().unwrap() as usize;
        assert_eq!(read["names"].as_array().unwrap().len(), arms);
    }
    let worse = verdicts(&common::ping(), |verdict| verdict == Verdict::Worse);
    assert!(worse > 0, "the fixture has a worse arm");
}

#[test]
fn text_format_is_read_by_promtool() {
    if testkit::is_installed("promtool") {
        for page in pages() {
            piped("promtool", &["check", "metrics"], &result_metrics(&page).text());
        }
    }
}

/// Text of OpenMetrics with a time beside each sample, which a block needs.
fn stamped(text: &str) -> String {
    let lines = text.lines().map(|line| {
        if line.starts_with('#') { format!("{line}\n") } else { format!("{line} 1800000000\n") }
    });
    lines.collect()
}

#[test]
fn openmetrics_is_read_by_prometheus_own_strict_parser() {
    let texts = pages().map(|page| to_openmetrics(&page));
    for text in &texts {
        assert!(text.ends_with("\n# EOF\n") && text.matches("# EOF").count() == 1, "{text}");
    }
    if !testkit::is_installed("promtool") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let read = |text: &str, name: &str| {
        let (file, blocks) = (folder.path().join(name), folder.path().join(format!("{name}.db")));
        std::fs::write(&file, stamped(text)).unwrap();
        let made = Command::new("promtool")
            .args(["tsdb", "create-blocks-from", "openmetrics"])
            .args([&file, &blocks])
            .output()
            .expect("it starts");
        let said = String::from_utf8_lossy(&made.stderr).into_owned();
        // A dump reads the log of a server too, which a folder of blocks lacks.
        let _ = std::fs::create_dir_all(blocks.join("wal"));
        let dump = Command::new("promtool").args(["tsdb", "dump"]).arg(&blocks).output();
        let dump = dump.expect("it starts");
        (made.status.success(), said, String::from_utf8_lossy(&dump.stdout).into_owned())
    };
    for (place, text) in texts.iter().enumerate() {
        let (is_read, said, dump) = read(text, &format!("t{place}"));
        assert!(is_read, "{said}\n{text}");
        let samples = text.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(dump.lines().count(), samples, "{dump}\n{text}");
    }
    // A parser that reads all would show nothing: a unit that the name does not end in, and no end.
    let wrong = texts[0]
        .replace("# UNIT wirepath_result_ratio ratio", "# UNIT wirepath_result_ratio bytes");
    assert_ne!(wrong, texts[0]);
    let endless = texts[0].replace("# EOF\n", "");
    for (name, text) in [("unit", &wrong), ("end", &endless)] {
        assert!(!read(text, name).0, "{name}");
    }
}

#[test]
fn openmetrics_has_seconds_and_ratios_and_parts_path_from_load() {
    let page = Page::from_outcome(&common::ping());
    let text = to_openmetrics(&page);
    let row = &page.metrics[0].rows[0];
    let seconds = row.figures.median.unwrap() * 1e-9;
    let sample = format!(
        "wirepath_result_median_seconds{{path=\"probe\",load=\"{}\",arm=\"baseline\",metric=\"rtt_ns_p50\"}} {seconds}\n",
        page.load_name
    );
    assert!(text.contains(&sample) && page.load_name.starts_with("ping"), "{sample}\n{text}");
    for line in [
        "# TYPE wirepath_result info\n",
        "# UNIT wirepath_result_median_seconds seconds\n",
        "# UNIT wirepath_result_low_ratio ratio\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!text.contains("unit=\"ns\""), "{text}");
}

#[test]
fn every_trial_is_read_by_benchstat_with_its_direction() {
    let benchstat = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/benchstat");
    if !benchstat.is_file() {
        return testkit::skip("benchstat", "not installed; ./test builds it");
    }
    let folder = tempfile::tempdir().unwrap();
    for (place, outcome) in outcomes().iter().enumerate() {
        let file = folder.path().join(place.to_string());
        std::fs::write(&file, to_benchfmt(outcome)).unwrap();
        let options = ["-format", "csv", "-col", "/arm", "-filter", "*"];
        let read = Command::new(&benchstat).args(options).arg(&file).output().expect("it starts");
        let said = String::from_utf8_lossy(&read.stderr);
        assert!(read.status.success() && !said.contains("missing"), "{said}");
        let table = String::from_utf8(read.stdout).unwrap();
        let wanted = outcome.arms.iter().flat_map(|arm| &arm.metrics);
        let units: std::collections::BTreeSet<&String> = wanted
            .filter(|(_, of)| of.median.is_some() && of.trials.iter().flatten().next().is_some())
            .map(|(name, _)| name)
            .collect();
        // Each unit has a table of its own.
        assert_eq!(table.matches(",CI").count() > 0, !units.is_empty(), "{table}");
    }
    let outcome = common::ping();
    let file = folder.path().join("0");
    let read =
        Command::new(&benchstat).args(["-format", "csv", "-col", "/arm"]).arg(&file).output();
    let table = String::from_utf8(read.unwrap().stdout).unwrap();
    let mut rows = table.lines().skip_while(|line| !line.starts_with(",rtt-p50-sec"));
    let _units = rows.next().expect("a table of rtt-p50-sec");
    let row = rows.next().expect("a row").split(',').nth(1).unwrap().parse::<f64>();
    let trials = &outcome.arms[0].metrics["rtt_ns_p50"].trials;
    let values: Vec<f64> = trials.iter().flatten().copied().collect();
    let median = model::statistics::median(&values).unwrap() * 1e-9;
    assert!((row.clone().unwrap() / median - 1.0).abs() < 1e-6, "{row:?} {median}\n{table}");
}

/// Medians and ratios of the judged metrics of one direction, in all arms but the control.
fn figure_count(outcome: &Outcome, better: Better) -> usize {
    let arms = outcome.arms.iter().filter(|arm| arm.kind != ArmKind::Control);
    let metrics = arms.flat_map(|arm| outcome.judged.iter().filter_map(|m| arm.metrics.get(m)));
    metrics
        .filter(|of| of.better == better)
        .map(|of| usize::from(of.median.is_some()) + usize::from(of.ratio.is_some()))
        .sum()
}

#[test]
fn benchmark_action_gets_each_direction_by_itself() {
    for (outcome, has_higher) in [(common::ping(), false), (common::flood(), true)] {
        let [lower, higher]: [Vec<Value>; 2] = [Better::Lower, Better::Higher]
            .map(|better| serde_json::from_str(&to_action_benchmark(&outcome, better)).unwrap());
        assert_eq!(!higher.is_empty(), has_higher);
        assert_eq!(action_benchmark_left_out(&outcome, Better::Lower) > 0, has_higher);
        assert_eq!(lower.len(), figure_count(&outcome, Better::Lower));
        assert_eq!(higher.len(), figure_count(&outcome, Better::Higher));
        let mut names = std::collections::BTreeSet::new();
        for entry in lower.iter().chain(&higher) {
            assert!(entry["value"].is_number() && entry["unit"].is_string(), "{entry}");
            assert!(names.insert(entry["name"].as_str().unwrap().to_owned()), "{entry}");
        }
    }
}

#[test]
fn openmetrics_holds_every_figure_and_verdict() {
    let text = to_openmetrics(&Page::from_outcome(&common::ping()));
    let samples = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
    assert_eq!(samples("wirepath_result_verdict{"), verdicts(&common::ping(), |_| true));
    assert!(samples("wirepath_result_ratio{") > 10);
    assert!(text.contains("arm=\"+rps\",metric=\"rtt_ns_p50\",verdict=\"worse\"} 1"), "{text}");
}

/// Shape of Bencher's published schema, `https://bencher.dev/v0/bmf.json`: objects of objects of figures, each
/// with a number `value`, and numbers `lower_value` and `upper_value` if they are there. Stricter than that:
/// the lengths of names are those of Bencher's documentation, and nothing else is allowed.
fn bmf_schema() -> Value {
    let number = json!({ "type": "number" });
    let figure = json!({
        "type": "object",
        "required": ["value"],
        "properties": { "value": number, "lower_value": number, "upper_value": number },
        "additionalProperties": false,
    });
    let named = |chars_max: u32, of: Value| {
        json!({
            "type": "object",
            "propertyNames": { "minLength": 1, "maxLength": chars_max },
            "additionalProperties": of,
            "minProperties": 1,
        })
    };
    let mut schema = named(1024, named(64, figure));
    schema["$schema"] = "http://json-schema.org/draft-07/schema#".into();
    schema
}

/// Checks a document against a schema by Python's jsonschema; prints `ok`, or the first mistake.
const VALIDATE: &str = "import json, sys, jsonschema
schema = json.loads(sys.argv[1])
jsonschema.Draft7Validator.check_schema(schema)
errors = list(jsonschema.Draft7Validator(schema).iter_errors(json.load(sys.stdin)))
print(errors[0].message if errors else 'ok')";

#[test]
fn bencher_reads_its_format_by_the_published_schema() {
    // Debian's own, which has its package of jsonschema.
    let python = "/usr/bin/python3";
    let has_it = Command::new(python).args(["-c", "import jsonschema"]).output();
    if !has_it.is_ok_and(|output| output.status.success()) {
        return testkit::skip("jsonschema", "python3-jsonschema is not installed");
    }
    let schema = bmf_schema().to_string();
    let checked =
        |document: &str| piped(python, &["-W", "ignore", "-c", VALIDATE, &schema], document);
    for page in pages() {
        assert_eq!(checked(&to_bencher(&page)), "ok\n");
    }
    // A validator that accepts all would show nothing.
    for bad in [
        r#"{"a": {"b": {"lower_value": 1}}}"#,
        r#"{"a": {"b": {"value": "1"}}}"#,
        r#"{"a": {"b": {"value": null}}}"#,
        r#"{"a": [{"value": 1}]}"#,
        &format!(r#"{{"a": {{"{}": {{"value": 1}}}}}}"#, "b".repeat(65)),
    ] {
        assert_ne!(checked(bad), "ok\n", "{bad}");
    }
}

fn bencher_figure_count(outcome: &Outcome) -> usize {
    let text = to_bencher(&Page::from_outcome(outcome));
    let document: BTreeMap<String, BTreeMap<String, Value>> = serde_json::from_str(&text).unwrap();
    document.values().map(BTreeMap::len).sum()
}

#[test]
fn bencher_gets_every_figure_of_metrics_with_the_longest_names() {
    let mut outcome = common::ping();
    let before = bencher_figure_count(&outcome);
    let metric = outcome.arms[2].metrics["rtt_ns_p50"].clone();
    assert!(metric.median.is_some() && metric.ratio.is_some());
    for end in ["a", "b"] {
        let name = format!("{}{end}", "x".repeat(63));
        outcome.arms[2].metrics.insert(name.clone(), metric.clone());
        outcome.judged.push(name);
    }
    // A median and a ratio of each.
    assert_eq!(bencher_figure_count(&outcome), before + 4);
}

#[test]
fn bencher_gets_its_format_with_the_intervals_of_ratios() {
    let outcome = common::ping();
    let page = Page::from_outcome(&outcome);
    let document: Value = serde_json::from_str(&to_bencher(&page)).unwrap();
    let spin = &document[format!("{}: {}", page.subject, outcome.arms[2].name)];
    let metric = &outcome.arms[2].metrics["rtt_ns_p50"];
    assert_eq!(spin["rtt_ns_p50"]["value"].as_f64(), metric.median);
    let ratio = &spin["rtt_ns_p50_ratio"];
    let [value, low, high] = ["value", "lower_value", "upper_value"].map(|f| ratio[f].as_f64());
    assert_eq!([value, low, high], [metric.ratio, metric.low, metric.high]);
}

#[test]
fn markdown_has_a_row_per_arm_and_no_markup_of_names() {
    for outcome in outcomes() {
        let page = Page::from_outcome(&outcome);
        let text = to_markdown(&page);
        let tables = page.metrics.iter().filter(|metric| metric.better.is_some());
        let rows: usize = tables.map(|metric| metric.rows.len() + 2).sum();
        assert_eq!(text.lines().filter(|line| line.starts_with('|')).count(), rows, "{text}");
        assert!(
            text.lines().filter(|line| line.starts_with('|')).all(|line| line
                .replace("\\|", "")
                .matches('|')
                .count()
                == 7)
        );
        let mut before = ' ';
        for c in text.chars() {
            assert!(!"<&".contains(c) || before == '\\', "{text}");
            before = c;
        }
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    }
}

#[test]
fn github_gets_an_error_per_worse_arm_and_names_cannot_end_a_command() {
    for outcome in outcomes() {
        let text = to_github(&Page::from_outcome(&outcome));
        assert!(text.lines().all(|line| line.starts_with("::")), "{text}");
        let errors = text.lines().filter(|line| line.starts_with("::error ")).count();
        assert_eq!(errors, verdicts(&outcome, |verdict| verdict == Verdict::Worse), "{text}");
        let mut titles = text.lines().map(|line| line.split("::").nth(1).unwrap_or_default());
        assert!(titles.all(|title| !title.contains([':', ','])), "{text}");
    }
}

fn trial(ordinal: u32, arm: &str, warmup: bool) -> TrialRecord {
    let mut rtt = latency_histogram();
    (0..100).for_each(|i| rtt.record(50_000 + 1_000 * i).unwrap());
    TrialRecord {
        ordinal,
        block: ordinal,
        arm: arm.into(),
        warmup,
        noisy: false,
        started_ms: 1_500 * u64::from(ordinal),
        wall_ns: 1_000_000_000,
        result: Ok(Measurement {
            segments: [("kernel→app".to_owned(), rtt)].into(),
            ..Measurement::default()
        }),
    }
}

/// Tag, start, end, count, least, greatest and 90th percentile of each interval.
const READ_LOG: &str = "import json, sys
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
reader = HistogramLogReader('/dev/stdin', HdrHistogram(1, 60 * 10**9, 3))
while (one := reader.get_next_interval_histogram()) is not None:
    print(json.dumps([one.get_tag(), one.get_start_time_stamp(), one.get_end_time_stamp(), one.get_total_count(),
        one.get_min_value(), one.get_max_value(), one.get_value_at_percentile(90)]))";

#[test]
fn histogram_log_is_read_by_hdrhistogram_for_python() {
    let package =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/hdrhistogram/hdrh");
    if !package.is_dir() {
        return testkit::skip("hdrhistogram", "not installed; ./test installs it");
    }
    let trials = [trial(0, "a", false), trial(1, "b", false)];
    let text = to_hlog(&trials, SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000));
    let script =
        format!("import sys; sys.path.insert(0, {:?})\n{READ_LOG}", package.with_file_name(""));
    let read = piped("python3", &["-c", &script], &text.unwrap());
    let written = &trials[0].result.as_ref().unwrap().segments["kernel→app"];
    let figures = [written.len(), written.min(), written.max(), written.value_at_quantile(0.9)];
    let lines: Vec<Value> = read.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{read}");
    for (line, (tag, start_ms)) in
        lines.iter().zip([("a/kernel→app", 1.8e12), ("b/kernel→app", 1.8e12 + 1.5e3)])
    {
        assert_eq!((line[0].as_str(), line[1].as_f64()), (Some(tag), Some(start_ms)), "{read}");
        assert_eq!(line[2].as_f64(), Some(start_ms + 1e3), "{read}");
        assert_eq!([3, 4, 5, 6].map(|at| line[at].as_u64().unwrap()), figures, "{read}");
    }
}

#[test]
fn histogram_log_reads_back_as_it_was_without_the_warm_up() {
    let failed = TrialRecord { result: Err("no".into()), ..trial(3, "a", false) };
    let trials =
        [trial(0, "a", true), trial(1, "baseline again", false), trial(2, "a,b%", false), failed];
    let started = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let text = to_hlog(&trials, started).unwrap();
    let mut lines = Vec::new();
    for entry in IntervalLogIterator::new(text.as_bytes()) {
        let LogEntry::Interval(line) = entry.expect("a log") else { continue };
        let bytes = base64::Engine::decode(
            &base64::engine::general_purpose::STANDARD,
            line.encoded_histogram(),
        );
        let read: Histogram<u64> =
            Deserializer::new().deserialize(&mut bytes.unwrap().as_slice()).unwrap();
        let written = &trials[1].result.as_ref().unwrap().segments["kernel→app"];
        assert_eq!(
            (read.len(), read.value_at_quantile(0.9)),
            (100, written.value_at_quantile(0.9))
        );
        assert_eq!((read.min(), read.max()), (written.min(), written.max()));
        let tag = line.tag().expect("a tag").as_str().to_owned();
        lines.push((tag, line.start_timestamp(), line.duration()));
    }
    let second = Duration::from_secs(1);
    assert_eq!(
        lines,
        [
            ("baseline%20again/kernel→app".to_owned(), Duration::from_millis(1_500), second),
            ("a%2Cb%25/kernel→app".to_owned(), Duration::from_secs(3), second),
        ]
    );
    assert!(text.contains("#[StartTime: 1800000000"), "{text}");
    let none = to_hlog(&trials[..1], started).unwrap_err();
    assert!(matches!(none, HlogError::NoHistogram), "{none}");
}
