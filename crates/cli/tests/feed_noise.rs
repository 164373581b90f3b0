//! `wirepath feed noise`: its sums, and a CPU that does not exist.

mod common;

use common::{fail, json, wirepath};

#[test]
fn the_causes_add_up_to_the_interruptions() {
    let cpu = sys::affinity::allowed_cpus().unwrap()[0].to_string();
    let args = ["feed", "noise", "--cpu", &cpu, "-d", "600ms", "--over", "500ns", "--json"];
    let document = json(wirepath(&args));
    assert_eq!(document["untraced"], serde_json::Value::Null);
    assert!(document["watched_ns"].as_u64().unwrap() >= 600_000_000, "{document}");
    let causes = document["causes"].as_array().unwrap();
    let counts = causes.iter().map(|row| row["count"].as_u64().unwrap());
    assert_eq!(counts.sum::<u64>(), document["count"].as_u64().unwrap());
    // Somewhat more than half a second does not pass without a timer or another task.
    assert!(causes.iter().any(|row| row["cause"] != "unknown"), "{document}");
}

#[test]
fn a_cpu_that_does_not_exist_is_named() {
    let said = fail(wirepath(&["feed", "noise", "--cpu", "1000"]), 2);
    assert!(said.contains("CPU 1000"), "{said}");
}
