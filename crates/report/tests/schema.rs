//! The schema of results, checked against documents.

mod common;

use std::path::Path;

use model::{Outcome, Support};
use schemars::generate::SchemaSettings;
use serde_json::Value;
use wirepath_report::json::to_json;
use wirepath_report::store::{Filter, SqliteStore, Store};

/// Schema of what is written: fields that may be `null` but are never left out are required.
fn schema() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    settings.into_generator().into_root_schema_for::<Outcome>().to_value()
}

/// Places where a document breaks the schema.
fn faults(document: &Value) -> Vec<String> {
    let root = schema();
    let mut faults = Vec::new();
    Check { root: &root, faults: &mut faults }.value(&root, document, "");
    faults
}

/// The part of JSON Schema that our types use; panics at a keyword that it does not know. (The
/// existing validators bring forty crates along.)
struct Check<'a> {
    root: &'a Value,
    faults: &'a mut Vec<String>,
}

impl Check<'_> {
    fn value(&mut self, schema: &Value, value: &Value, at: &str) {
        let Value::Object(rules) = schema else {
            assert!(schema == &Value::Bool(true), "{at}: {schema}");
            return;
        };
        for (name, rule) in rules {
            match name.as_str() {
                "$schema" | "$defs" | "title" | "description" | "default" | "format" => {}
                "$ref" => {
                    let place = rule.as_str().and_then(|r| r.strip_prefix('#')).unwrap();
                    let root = self.root;
                    self.value(root.pointer(place).unwrap(), value, at);
                }
                "type" => {
                    let kinds = rule.as_array().cloned().unwrap_or(vec![rule.clone()]);
                    let fits = kinds.iter().any(|kind| is_kind(value, kind.as_str().unwrap()));
                    self.want(fits, at, name);
                }
                "minimum" => {
                    self.want(
                        value.as_f64().is_none_or(|n: f64| n >= rule.as_f64().unwrap()),
                        at,
                        name,
                    );
                }
                "const" => self.want(value == rule, at, name),
                "enum" => self.want(rule.as_array().unwrap().contains(value), at, name),
                "oneOf" | "anyOf" => {
                    let fitting = rule.as_array().unwrap().iter().filter(|s| self.fits(s, value));
                    let count = fitting.count();
                    self.want(count == 1 || (count > 1 && name == "anyOf"), at, name);
                }
                "required" => {
                    for field in rule.as_array().unwrap() {
                        let there = value.get(field.as_str().unwrap()).is_some();
                        self.want(there, at, &format!("required {field}"));
                    }
                }
                "properties" => {
                    for (field, rule) in rule.as_object().unwrap() {
                        if let Some(value) = value.get(field) {
                            self.value(rule, value, &format!("{at}/{field}"));
                        }
                    }
                }
                "additionalProperties" => {
                    let known = &rules.get("properties").unwrap_or(&Value::Null);
                    let others = value.as_object().into_iter().flatten();
                    for (field, value) in others.filter(|(name, _)| known.get(name).is_none()) {
                        self.value(rule, value, &format!("{at}/{field}"));
                    }
                }
                "prefixItems" => {
                    let items = value.as_array().into_iter().flatten();
                    for (n, (item, rule)) in items.zip(rule.as_array().unwrap()).enumerate() {
                        self.value(rule, item, &format!("{at}/{n}"));
                    }
                }
                "items" => {
                    assert!(rules.get("prefixItems").is_none(), "{at}: items after others");
                    for (n, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.value(rule, item, &format!("{at}/{n}"));
                    }
                }
                "minItems" | "maxItems" => {
                    let (count, bound) =
                        (value.as_array().map(Vec::len), rule.as_u64().unwrap() as usize);
                    self.want(
                        count.is_none_or(
                            |n| if name == "minItems" { n >= bound } else { n <= bound },
                        ),
                        at,
                        name,
                    );
                }
                unknown => panic!("{at}: this check does not know `{unknown}`"),
            }
        }
    }

    fn fits(&self, schema: &Value, value: &Value) -> bool {
        let mut faults = Vec::new();
        Check { root: self.root, faults: &mut faults }.value(schema, value, "");
        faults.is_empty()
    }

    fn want(&mut self, holds: bool, at: &str, rule: &str) {
        if !holds {
            self.faults.push(format!("{at}: {rule}"));
        }
    }
}

fn is_kind(value: &Value, kind: &str) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("no type of JSON: {other}"),
    }
}

#[test]
fn documents_of_every_kind_fit_the_schema() {
    let mut refused = common::ping();
    refused.arms[3].support = Support::Refused { why: "on purpose".into() };
    for outcome in [common::ping(), common::flood(), common::hostile(), refused] {
        assert_eq!(faults(&serde_json::from_str(&to_json(&outcome)).unwrap()), [""; 0]);
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/ping.json");
    let golden = serde_json::from_str(&std::fs::read_to_string(golden).unwrap()).unwrap();
    assert_eq!(faults(&golden), [""; 0]);
}

#[test]
fn documents_of_older_versions_fit_the_schema() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/history-v1.db");
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("history.db");
    std::fs::copy(fixture, &copy).unwrap();
    let store = SqliteStore::open(&copy).unwrap();
    let outcomes: Vec<_> = store
        .list(&Filter::default())
        .unwrap()
        .iter()
        .filter_map(|summary| store.load(&summary.id).unwrap().outcome)
        .collect();
    assert!(!outcomes.is_empty());
    for outcome in outcomes {
        assert_eq!(faults(&serde_json::from_str(&to_json(&outcome)).unwrap()), [""; 0]);
    }
}

#[test]
fn other_documents_do_not_fit_the_schema() {
    let document: Value = serde_json::from_str(&to_json(&common::ping())).unwrap();
    let bent: [(&str, Value); 6] = [
        ("/seed", "seven".into()),
        ("/ended", "perhaps".into()),
        ("/blocks", (-1).into()),
        ("/arms/2/metrics/rtt_ns_p50/verdict", "splendid".into()),
        (
            "/arms/2/support",
            Value::Object([("status".to_owned(), "unsupported".into())].into_iter().collect()),
        ),
        ("/arms/2/latency/rtt/quantiles/0", vec![Value::from(0.5)].into()),
    ];
    for (place, value) in bent {
        let mut document = document.clone();
        *document.pointer_mut(place).unwrap() = value;
        assert!(!faults(&document).is_empty(), "{place} is not held to anything");
    }
    for field in ["schema", "arms", "machine", "floor"] {
        let mut document = document.clone();
        document.as_object_mut().unwrap().remove(field);
        assert!(!faults(&document).is_empty(), "{field} may be left out");
    }
}
