//! The dashboard and the alert rules in `contrib/grafana` fit the metrics that the program writes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::succeed;
use serde_json::Value;

/// Files that name the metrics of each prefix.
const WRITERS: &[(&str, &str)] = &[
    ("wirepath_doctor_", "crates/house/src/findings/metrics.rs"),
    ("wirepath_explain_", "crates/cli/src/explain/metrics.rs"),
    #[cfg(feature = "feed")]
    ("wirepath_feed_", "feed/tools/src/listen/report/prometheus.rs"),
    ("wirepath_mesh_", "crates/cli/src/fleet/mesh/metrics.rs"),
    #[cfg(feature = "tunnel")]
    ("wirepath_tunnel_", "tunnel/forward/src/run/live.rs"),
    #[cfg(feature = "tunnel")]
    ("wirepath_tunnel_", "tunnel/forward/src/run/keepalive.rs"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
}

fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| WRITERS.iter().any(|(prefix, _)| word.starts_with(prefix))).collect()
}

/// Looks for a metric in its writer; some writers add `_total`, and a histogram adds `_bucket`.
fn is_written(name: &str, writer: &str) -> bool {
    let quoted = |name: &str| writer.contains(&format!("\"{name}\""));
    quoted(name)
        || ["_total", "_bucket"].iter().any(|end| name.strip_suffix(end).is_some_and(quoted))
}

#[test]
fn every_metric_of_dashboard_and_rules_is_one_that_the_program_writes() {
    for file in ["wirepath.dashboard.json", "wirepath.rules.yml", "wirepath.rules.test.yml"] {
        let text = text(&format!("contrib/grafana/{file}"));
        let used = names(&text);
        assert!(used.len() > 5, "{file}: {used:?}");
        for name in used {
            assert!(
                WRITERS.iter().any(|(prefix, writer)| {
                    let name = name.strip_prefix(prefix);
                    name.is_some_and(|name| is_written(name, &self::text(writer)))
                }),
                "{file}: {name} is not written"
            );
        }
    }
}

#[test]
fn every_panel_has_a_place_of_its_own_and_a_query() {
    let dashboard: Value =
        serde_json::from_str(&text("contrib/grafana/wirepath.dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let places: BTreeSet<String> = panels.iter().map(|p| p["gridPos"].to_string()).collect();
    let ids: BTreeSet<u64> = panels.iter().map(|p| p["id"].as_u64().unwrap()).collect();
    assert_eq!((places.len(), ids.len()), (panels.len(), panels.len()));
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let queries = panel["targets"].as_array().unwrap();
        assert!(
            queries.iter().all(|q| q["expr"].as_str().unwrap().contains("$instance")),
            "{panel}"
        );
        assert!(!queries.is_empty(), "{panel}");
    }
}

#[test]
fn alerts_fire_when_they_should() {
    if !crate::common::is_installed("promtool") {
        return;
    }
    let mut command = Command::new("promtool");
    command.args(["test", "rules", "wirepath.rules.test.yml"]);
    command.current_dir(root().join("contrib/grafana"));
    assert!(succeed(command).contains("SUCCESS"));
}
