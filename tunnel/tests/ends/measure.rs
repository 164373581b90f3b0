//! `wirepath tunnel measure`: small runs of each kind of forwarder.

use std::time::Duration;

use crate::common::{LONG, Running, fail, is_installed, json, own_links, succeed, wirepath};
use serde_json::Value;

/// Two sizes, short trials, one trial a rate, coarse bounds.
const SMALL: [&str; 13] = [
    "tunnel",
    "measure",
    "--sizes",
    "64,1518",
    "--trial",
    "30ms",
    "--trials",
    "1",
    "--repeats",
    "3",
    "--resolution",
    "25",
    "--forwarder",
];

#[test]
fn rates_delays_and_order_are_found_for_every_kind_of_forwarder() {
    for forwarder in
        ["kernel", "baseline", "bypass+batch+prepend", "bypass+batch+prepend+gretap+sequence"]
    {
        let links = own_links();
        let said = json(wirepath(&[&SMALL[..], &[forwarder, "--json"]].concat()));
        assert_eq!(said["forwarder"], forwarder, "{said}");
        let sizes = said["sizes"].as_array().expect("a list");
        assert_eq!(sizes.len(), 2, "{said}");
        for size in sizes {
            let source_pps = size["source_pps"].as_f64().expect("a rate");
            assert!(source_pps > 1000.0, "{size}");
            assert_eq!(size["duplicated_count"], 0, "{size}");
            // One worker, one queue: nothing can overtake.
            assert_eq!(size["reordered_count"], 0, "{size}");
            assert!(size["received_count"].as_u64() > Some(100), "{size}");
            for found in [&size["ndr"], &size["pdr"]] {
                // Other tests may keep the source from its CPU at any rate; the books say so.
                if found["pps"].is_null() && found["beyond_pps"].is_null() {
                    assert!(size["trials"]["rate_not_offered"].as_u64() > Some(0), "{size}");
                } else {
                    bounds_make_sense(found, source_pps);
                }
            }
            // On a machine that is never quiet no rate may be without loss.
            if size["ndr"]["pps"].is_number() {
                let at = size["latency"].as_array().expect("a list");
                assert_eq!(at.len(), 2, "{size}");
                for at in at {
                    delays_make_sense(at);
                }
            }
        }
        assert_eq!(own_links(), links);
    }
}

fn bounds_make_sense(found: &Value, source_pps: f64) {
    let (rate, beyond) = (found["pps"].as_f64(), found["beyond_pps"].as_f64());
    assert!(rate.is_none_or(|rate| (1.0..=source_pps).contains(&rate)), "{found} {source_pps}");
    if let (Some(rate), Some(beyond)) = (rate, beyond) {
        assert!(rate < beyond && beyond / rate <= 1.26, "{found}");
    }
}

fn delays_make_sense(at: &Value) {
    if at["loss"] == 1.0 {
        return;
    }
    let ns = |name: &str| at[name].as_u64().unwrap_or_else(|| panic!("{name}: {at}"));
    let (half, most, all) = (ns("delay_ns_p50"), ns("delay_ns_p99"), ns("delay_ns_max"));
    // Two wires and a forwarder take more than a memory access, and less than the trial with its
    // drain.
    assert!(100 < half && half <= most && most <= all && all < 5_000_000_000, "{at}");
}

#[test]
fn table_names_what_was_measured() {
    let args = [&SMALL[..3], &["64"], &SMALL[4..], &["kernel"]].concat();
    let text = succeed(wirepath(&args));
    for word in ["forwarder: kernel", "NDR pps", "PDR pps", "reordered", "p99 us"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_the_remedy() {
    for (args, needle) in [
        (&["--forwarder", "warp"][..], "not a switch of tunnel"),
        (&["--forwarder", "batch"], "bypass+batch"),
        (&["--forwarder", "bypass+batch+sequence"], "gretap+sequence"),
        (&["--forwarder", "flow-hash"], "load multi-flow-hash"),
        (&["--sizes", "60"], "62 to 1518"),
        (&["--trials", "2"], "odd"),
        (&["--resolution", "0"], "percent"),
    ] {
        let said = fail(wirepath(&[&["tunnel", "measure"][..], args].concat()), 2);
        assert!(said.contains(needle), "{args:?}: {said}");
    }
}

#[test]
fn a_killed_measurement_leaves_nothing() {
    if !is_installed("ip") {
        return;
    }
    let links = own_links();
    let running = Running::start(wirepath(&["tunnel", "measure", "--trial", "2s"]));
    let mut held = running.holdings();
    let seen = crate::common::until(LONG, || {
        held = running.holdings();
        held.namespaces.len() >= 3 && !held.programs.is_empty()
    });
    assert!(seen, "the check itself must see the lab in use");
    std::thread::sleep(Duration::from_millis(100));
    running.end_by("KILL", LONG);
    held.assert_gone();
    assert_eq!(own_links(), links);
}
