//! The public JSON and CSV forms, and their reference.

mod common;

use std::collections::BTreeSet;

use model::{Cost, Delivery, Floor, Measurement, Support, Throughput, Ticks, latency_histogram};
use serde_json::Value;
use wirepath_report::RESULTS_REFERENCE;
use wirepath_report::csv::to_csv;
use wirepath_report::json::{JsonError, from_json, to_json};

#[test]
fn outcome_reads_back_unchanged() {
    for outcome in [common::ping(), common::flood(), common::hostile()] {
        assert_eq!(from_json(&to_json(&outcome)).unwrap(), outcome);
    }
}

#[test]
fn result_of_more_arms_than_any_experiment_has_is_refused() {
    let mut outcome = common::ping();
    let arm = outcome.arms[2].clone();
    outcome.arms.resize(1001, arm);
    let refused = from_json(&to_json(&outcome));
    assert!(matches!(refused, Err(JsonError::TooManyArms { count: 1001 })), "{refused:?}");
    outcome.arms.pop();
    assert_eq!(from_json(&to_json(&outcome)).unwrap(), outcome);
}

#[test]
fn document_has_the_documented_shape() {
    let document: Value = serde_json::from_str(&to_json(&common::ping())).unwrap();
    assert_eq!(document["schema"], 2);
    assert_eq!(document["arms"][0]["kind"], "baseline");
    assert_eq!(document["arms"][1]["kind"], "control");
    assert_eq!(document["arms"][2]["kind"], "variant");
    assert_eq!(document["arms"][13]["kind"], "peer");
    assert_eq!(document["arms"][2]["support"]["status"], "yes");
    assert_eq!(document["arms"][7]["support"]["status"], "unsupported");
    let metric = &document["arms"][2]["metrics"]["rtt_ns_p50"];
    for field in ["unit", "better", "median", "ratio", "low", "high", "p", "verdict"] {
        assert!(!metric[field].is_null(), "{field}");
    }
    assert_eq!((&metric["better"], &metric["verdict"]), (&"lower".into(), &"better".into()));
    assert!(document["floor"]["rtt_ns_p50"]["low"].is_f64());
}

#[test]
fn every_field_is_in_the_reference() {
    // An arm with each kind of support, so that all their fields appear.
    let mut outcome = common::ping();
    outcome.arms[3].support = Support::Refused { why: "on purpose".into() };
    outcome.schedule.settle = true;
    (outcome.name, outcome.note) = (Some("a name".into()), Some("a note".into()));
    outcome.trust.carry_over[0].after = Some("spin".into());
    outcome.arms[2].samples = Some(common::samples(700));
    outcome.trust.ticks.push(Ticks { metric: "rtt_ns_p50".into(), step: 1e6, share: 0.1 });
    let document: Value = serde_json::from_str(&to_json(&outcome)).unwrap();
    let mut fields = BTreeSet::new();
    collect(&document, &mut fields, "");
    assert!(fields.contains("schema") && fields.contains("why") && fields.contains("quantiles"));
    for field in fields {
        assert!(RESULTS_REFERENCE.contains(&format!("`{field}`")), "`{field}` is not documented");
    }
}

/// Names of fields, without the keys of maps, which the user chooses.
fn collect(value: &Value, fields: &mut BTreeSet<String>, parent: &str) {
    let named_by_content =
        ["load", "by", "notes", "metrics", "latency", "mode", "counters", "floor"]
            .contains(&parent);
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                if !named_by_content {
                    fields.insert(name.clone());
                }
                collect(member, fields, if named_by_content { "" } else { name });
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, fields, parent)),
        _ => {}
    }
}

#[test]
fn every_metric_of_the_model_is_in_the_reference() {
    let mut rtt = latency_histogram();
    (1..100_000).for_each(|i| rtt.record(i).unwrap());
    let cost = Cost { syscall_count: Some(1), ..Cost::default() };
    let books = Delivery { sent_count: 9, received_count: 9, ..Delivery::default() };
    let measurement = Measurement {
        wall_ns: 1_000,
        deliveries: ["forward", "return"].map(|way| (way.to_string(), books)).into(),
        segments: [("rtt".to_string(), rtt)].into(),
        throughput: Some(Throughput { interval_ns: 9, received_count: 9, payload_bytes: 9 }),
        jitter_ns: Some(1),
        costs: [("near".to_string(), cost)].into(),
        ..Measurement::default()
    };
    let metrics = measurement.metrics();
    assert!(metrics.len() > 10);
    for metric in metrics {
        // Per direction, the reference shows one count for all.
        let stem = metric.name.split("_count_").next().unwrap();
        let name = if stem == metric.name { stem.into() } else { format!("{stem}_count") };
        assert!(RESULTS_REFERENCE.contains(&format!("`{name}`")), "`{name}` is not documented");
        assert!(RESULTS_REFERENCE.contains(&format!("`{}`", metric.unit)), "{}", metric.unit);
    }
}

#[test]
fn the_example_in_the_reference_is_a_valid_document() {
    let (_, rest) = RESULTS_REFERENCE.split_once("```json\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let outcome = from_json(example).unwrap();
    assert!(outcome.arms.len() >= 3);
    // True to shape: what we write of it has the same fields and nothing more.
    let ours: Value = serde_json::from_str(&to_json(&outcome)).unwrap();
    assert_eq!(serde_json::from_str::<Value>(example).unwrap(), ours);
}

#[test]
fn document_of_another_version_is_refused() {
    let error = from_json(r#"{"schema": 7, "all": "else is new"}"#).unwrap_err();
    assert!(matches!(error, JsonError::Schema { found: 7, known: 2 }), "{error}");
    assert!(error.to_string().contains('7'), "{error}");
    assert!(matches!(from_json(r#"{"id": 1}"#), Err(JsonError::NoSchema)));
    assert!(matches!(from_json("[]"), Err(JsonError::NoSchema)));
    assert!(matches!(from_json("not json"), Err(JsonError::Syntax(_))));
    assert!(matches!(from_json(r#"{"schema": 1}"#), Err(JsonError::Shape(_))));
    assert!(matches!(from_json(r#"{"schema": 0}"#), Err(JsonError::Schema { .. })));
}

#[test]
fn document_of_schema_1_is_read_and_the_page_names_its_rules() {
    let mut outcome = common::ping();
    outcome.schema = 1;
    let back = from_json(&to_json(&outcome)).unwrap();
    assert_eq!(back.schema, 1);
    let warnings = wirepath_report::page::Page::from_outcome(&back).warnings;
    assert!(warnings.iter().any(|of| of.text.contains("not corrected")), "{warnings:?}");
}

#[test]
fn document_with_infinite_figures_reads_back() {
    let mut outcome = common::ping();
    outcome.floor.insert("rtt_ns_p99".into(), Floor { low: f64::NAN, high: f64::INFINITY });
    outcome.arms[2].metrics.get_mut("rtt_ns_p50").unwrap().ratio = Some(f64::INFINITY);
    let back = from_json(&to_json(&outcome)).unwrap();
    assert!(!back.floor.contains_key("rtt_ns_p99") && back.floor.contains_key("rtt_ns_p50"));
    assert_eq!(back.arms[2].metrics["rtt_ns_p50"].ratio, None);
}

#[test]
fn csv_has_a_row_per_arm_and_metric() {
    let outcome = common::ping();
    let rows = parse_csv(&to_csv(&outcome));
    assert_eq!(rows.len(), 1 + 13 * 3 + 1);
    assert!(rows.iter().all(|row| row.len() == rows[0].len()));
    let lost = rows.iter().find(|row| row[2] == "+zero-copy").unwrap();
    assert!(lost[5] == "unsupported" && lost.last().unwrap().contains("a NIC whose driver"));
    let median = outcome.arms[2].metrics["rtt_ns_p50"].median.unwrap();
    let row = rows.iter().find(|row| row[2] == "+spin" && row[7] == "rtt_ns_p50").unwrap();
    assert_eq!(row[10].parse::<f64>().unwrap(), median);
}

#[test]
fn hostile_names_stay_in_their_csv_cell() {
    let outcome = common::hostile();
    let rows = parse_csv(&to_csv(&outcome));
    assert!(rows.iter().all(|row| row.len() == rows[0].len()));
    // Control characters are shown by their code.
    let shown = wirepath_report::text::visible(&outcome.arms[3].name);
    assert!(rows.iter().any(|row| row[2] == *shown));
}

/// As in RFC 4180.
fn parse_csv(text: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut cell) = (Vec::new(), Vec::new(), String::new());
    let (mut quoted, mut chars) = (false, text.chars().peekable());
    while let Some(c) = chars.next() {
        match (c, quoted) {
            ('"', true) if chars.peek() == Some(&'"') => cell.extend(chars.next()),
            ('"', _) => quoted = !quoted,
            (',', false) => row.push(std::mem::take(&mut cell)),
            ('\r', false) => {
                assert_eq!(chars.next(), Some('\n'));
                row.push(std::mem::take(&mut cell));
                rows.push(std::mem::take(&mut row));
            }
            (c, _) => cell.push(c),
        }
    }
    assert!(!quoted && cell.is_empty() && row.is_empty(), "the last row ends");
    rows
}

#[test]
fn json_is_that_of_the_golden() {
    // Three arms and three blocks tell as much as all, and can be read.
    let mut outcome = common::ping();
    outcome.arms = vec![
        outcome.arms[0].clone(),
        outcome.arms[2].clone(),
        outcome.arms[7].clone(),
        outcome.arms[8].clone(),
    ];
    for arm in &mut outcome.arms {
        arm.metrics.values_mut().for_each(|metric| metric.trials.truncate(3));
        arm.latency.values_mut().for_each(|curve| curve.quantiles.truncate(3));
    }
    common::golden("ping.json", &to_json(&outcome));
}
