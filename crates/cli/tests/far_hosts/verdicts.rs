//! Verdicts of the same experiment in a lab, over a namespace and over ssh.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use crate::common::json;
use crate::{SYSTEM_PATH, Sshd, prove};

const ARMS: [&str; 6] =
    ["--load", "ping", "--arms", "spin,spin+bypass+native", "--json", "--no-history"];
/// Seconds of each experiment in the long form, which .ci/nightly sets.
const LONG_FORM: &str = "WIREPATH_TEST_VERDICTS";

/// A judged figure of an arm.
#[derive(Debug)]
struct Judged {
    verdict: String,
    /// Interval of the ratio to the baseline, widened by what the baseline differs from itself; `None` if the
    /// experiment bounds it at one side only.
    interval: Option<[f64; 2]>,
}

fn judged(document: &Value) -> BTreeMap<[String; 2], Judged> {
    let mut all = BTreeMap::new();
    let arms = document["arms"].as_array().unwrap_or_else(|| panic!("{document:#}"));
    for arm in arms.iter().filter(|arm| arm["kind"] == "variant") {
        for (figure, metric) in arm["metrics"].as_object().expect("figures") {
            let Some(verdict) = metric["verdict"].as_str() else { continue };
            let floor = ["low", "high"].map(|end| document["floor"][figure][end].as_f64());
            let bounds = ["low", "high"].map(|end| metric[end].as_f64());
            let interval = match bounds {
                [Some(low), Some(high)] => {
                    let [least, most] = floor.map(|end| end.unwrap_or(1.0));
                    Some([low * least.min(1.0), high * most.max(1.0)])
                }
                _ => None,
            };
            let name = arm["name"].as_str().expect("a name").to_owned();
            all.insert([name, figure.clone()], Judged { verdict: verdict.to_owned(), interval });
        }
    }
    all
}

/// A far end is the lab's with another way to start it: the same figures are judged. In the long form no verdict is reversed,
/// and the intervals, widened by both floors, overlap; that needs a quiet machine, as what a spinning receiver costs
/// depends on what else runs.
#[test]
fn verdicts_over_a_namespace_and_over_ssh_are_those_of_the_lab() {
    let Some(sshd) = Sshd::start(SYSTEM_PATH) else { return };
    let seconds = std::env::var(LONG_FORM).ok();
    let is_long = seconds.is_some();
    let time = format!("{}s", seconds.as_deref().unwrap_or("8"));
    let args = [&ARMS[..], &["--time", &time, "--trial", "50ms"]].concat();
    let netns = format!("netns:{}", sshd.spaces.far);
    let run = |command: Command| judged(&json(command));
    let lab = run(prove(&sshd.spaces, &[], &args));
    let by_namespace = run(prove(&sshd.spaces, &["--far", &netns], &args));
    let by_ssh = run(sshd.prove("user", "known", &args));
    sshd.assert_nothing_left();
    for (far, there) in [("netns", by_namespace), ("ssh", by_ssh)] {
        // Others may lack the samples in one of the runs.
        for arm in ["spin", "spin+bypass+native"] {
            let median = [arm.to_owned(), "rtt_ns_p50".to_owned()];
            let is_judged = lab.contains_key(&median) && there.contains_key(&median);
            assert!(is_judged, "{far}, {arm}: {lab:?} {there:?}");
        }
        for (what, here) in lab.iter().filter(|_| is_long) {
            let Some(there) = there.get(what) else { continue };
            let said = format!("{what:?}: lab {here:?}, {far} {there:?}");
            let both = [here.verdict.as_str(), there.verdict.as_str()];
            assert!(both != ["better", "worse"] && both != ["worse", "better"], "{said}");
            if let (Some([low, high]), Some([least, most])) = (here.interval, there.interval) {
                assert!(low <= most && least <= high, "{said}");
            }
        }
    }
}
