//! Runs as documents, whose figures a test sets.

use std::collections::BTreeMap;

use wirepath_model::{
    ArmKind, ArmOutcome, Better, Ended, Machine, MetricOutcome, Outcome, SCHEMA, Support,
};

/// As a document, so that fields with a default are left out.
fn arm(name: &str, metrics: BTreeMap<String, MetricOutcome>) -> ArmOutcome {
    let kind = if name == "baseline" { ArmKind::Baseline } else { ArmKind::Variant };
    let switches = if kind == ArmKind::Variant { vec![name] } else { Vec::new() };
    serde_json::from_value(serde_json::json!({
        "name": name, "kind": kind, "switches": switches, "trials": 8, "metrics": metrics,
        "support": Support::Yes,
    }))
    .expect("an arm of a document")
}

/// A run of one minute.
pub(crate) fn run(started: &str, arms: Vec<ArmOutcome>, judged: &[&str]) -> Outcome {
    serde_json::from_value(serde_json::json!({
        "schema": SCHEMA, "id": "", "started": started, "version": "", "machine": Machine::default(),
        "path": "fake", "load": {}, "seed": 0, "blocks": 8, "wall_ms": 60_000,
        "ended": Ended::Settled, "judged": judged, "arms": arms, "floor": {}, "warnings": [],
    }))
    .expect("a document")
}

/// A run whose arms, the first of them `baseline`, have metrics without figures.
pub(crate) fn template(arms: &[&str], metrics: &[&str]) -> Outcome {
    let metrics: BTreeMap<String, MetricOutcome> = metrics
        .iter()
        .map(|name| ((*name).to_owned(), MetricOutcome::unjudged("ns", Better::Lower, Vec::new())))
        .collect();
    let names: Vec<&str> = metrics.keys().map(String::as_str).collect();
    run("", arms.iter().map(|name| arm(name, metrics.clone())).collect(), &names)
}
