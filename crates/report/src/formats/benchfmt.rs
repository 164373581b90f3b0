//! Go benchmark format, for `benchstat` and other tools of `golang.org/x/perf`.

use std::collections::BTreeMap;
use std::fmt::Write;

use model::{ArmOutcome, Better, MetricOutcome, Outcome, stated_unit};

use super::one_line;
use crate::wording;

/// Longest name of a unit, characters.
const UNIT_CHARS_MAX: usize = 100;

/// Name of a metric's unit in the format, and the factor that makes it of a value.
struct Unit {
    name: String,
    factor: f64,
}

/// Returns one line per trial of each arm, with every metric that the trial gave, behind the lines of configuration.
///
/// Compare arms by `benchstat -col /arm`, and runs by `benchstat OLD NEW`. Id and start are comments: as configuration they
/// would part the runs.
///
/// Source: the Go benchmark data format, `https://golang.org/design/14313-benchmark-format`, with its unit metadata.
pub fn to_benchfmt(outcome: &Outcome) -> String {
    let mut out = format!("# {}, {}\n", one_line(&outcome.id), one_line(&outcome.started));
    for (key, value) in configuration(outcome) {
        let _ = writeln!(out, "{key}: {}", one_line(&value).trim());
    }
    let units = units(outcome);
    for (name, unit) in &units {
        let shapes = outcome.arms.iter().find_map(|arm| arm.metrics.get(*name));
        let better = match shapes.map(|metric| metric.better) {
            Some(Better::Higher) => "higher",
            _ => "lower",
        };
        let _ = writeln!(out, "Unit {} better={better}", unit.name);
    }
    outcome.arms.iter().for_each(|arm| trials(&mut out, outcome, arm, &units));
    out
}

fn configuration(outcome: &Outcome) -> Vec<(&'static str, String)> {
    let machine = &outcome.machine;
    let mut lines = vec![
        ("goos", "linux".to_owned()),
        ("pkg", format!("wirepath/{}", outcome.path)),
        ("cpu", machine.cpu.clone()),
        ("kernel", machine.kernel.clone()),
        ("nic", machine.nic.clone()),
        ("hypervisor", machine.hypervisor.clone().unwrap_or_default()),
        ("load", wording::load(&outcome.load)),
        ("wirepath", outcome.version.clone()),
    ];
    lines.retain(|(_, value)| !value.is_empty());
    lines
}

/// One word without a slash, which would begin another part of a name.
fn word(text: &str) -> String {
    let text: String = one_line(text).chars().map(plain).collect();
    if text.is_empty() { "-".to_owned() } else { text }
}

fn plain(c: char) -> char {
    if c.is_whitespace() || c == '/' { '_' } else { c }
}

/// `BenchmarkProbe/arm=+spin-2`: at the end is the number of CPUs, as of Go's own benchmarks.
fn benchmark_name(outcome: &Outcome, arm: &ArmOutcome) -> String {
    let path = wording::capitalised(&word(&outcome.path));
    let cpus = outcome.machine.cpus.max(1);
    format!("Benchmark{path}/arm={}-{cpus}", word(&arm.name))
}

/// Units by metric; no two metrics have the same one, as a line may have a unit once.
fn units(outcome: &Outcome) -> BTreeMap<&str, Unit> {
    let mut units: BTreeMap<&str, Unit> = BTreeMap::new();
    for (name, metric) in outcome.arms.iter().flat_map(|arm| &arm.metrics) {
        if units.contains_key(name.as_str()) {
            continue;
        }
        let mut unit = unit(name, &metric.unit);
        let plain = unit.name.clone();
        let mut number = 2;
        while units.values().any(|other| other.name == unit.name) {
            unit.name = format!("{number}-{plain}");
            number += 1;
        }
        units.insert(name, unit);
    }
    units
}

/// `rtt_ns_p50` in ns is `rtt-p50-ns`, which benchstat shows as seconds.
fn unit(name: &str, unit: &str) -> Unit {
    let (base, factor) = match unit {
        "us" => ("ns", 1e3),
        "ms" => ("ns", 1e6),
        "s" => ("ns", 1e9),
        "bytes" => ("B", 1.0),
        "pps" => ("packets/s", 1.0),
        "bps" => ("bits/s", 1.0),
        "share" => ("ratio", 1.0),
        "count" => ("", 1.0),
        unit => (unit, 1.0),
    };
    let stated = stated_unit(name).map(|(unit, _)| unit);
    let words = name.split('_').filter(|word| Some(*word) != stated || *word == name);
    let words = words.chain((!base.is_empty()).then_some(base)).collect::<Vec<_>>().join("-");
    let name: String = one_line(&words).chars().take(UNIT_CHARS_MAX).collect();
    let name: String = name.split_whitespace().collect::<Vec<_>>().join("_");
    Unit { name: if name.is_empty() { "value".to_owned() } else { name }, factor }
}

fn trials(out: &mut String, outcome: &Outcome, arm: &ArmOutcome, units: &BTreeMap<&str, Unit>) {
    let name = benchmark_name(outcome, arm);
    let count = arm.metrics.values().map(|metric| metric.trials.len()).max().unwrap_or(0);
    for block in 0..count {
        let values: Vec<String> = arm
            .metrics
            .iter()
            .filter_map(|(name, metric)| pair(block, metric, units.get(name.as_str())?))
            .collect();
        if !values.is_empty() {
            let _ = writeln!(out, "{name} 1 {}", values.join(" "));
        }
    }
}

/// Value and unit of a trial; `None` if it gave none, or if the figure was refused.
fn pair(block: usize, metric: &MetricOutcome, unit: &Unit) -> Option<String> {
    metric.median?;
    let value = metric.trials.get(block).copied().flatten()? * unit.factor;
    value.is_finite().then(|| format!("{value} {}", unit.name))
}

#[cfg(test)]
mod tests {
    use super::unit;

    #[test]
    fn unit_has_the_time_as_a_word_that_benchstat_knows() {
        for (name, of, expected, factor) in [
            ("rtt_ns_p50", "ns", "rtt-p50-ns", 1.0),
            ("cpu_ns_per_packet", "ns", "cpu-per-packet-ns", 1.0),
            ("p99_us", "us", "p99-ns", 1e3),
            ("received_pps", "pps", "received-packets/s", 1.0),
            ("rps", "rps", "rps-rps", 1.0),
            ("lost_count", "count", "lost", 1.0),
            ("a b\n", "x y", "a_b_-x_y", 1.0),
            ("", "", "value", 1.0),
        ] {
            let unit = unit(name, of);
            assert_eq!((unit.name.as_str(), unit.factor), (expected, factor), "{name}");
        }
    }
}
