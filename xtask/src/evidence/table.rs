//! A result of `prove --json` as a Markdown table.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// Judged metrics that have a column.
const COLUMNS: usize = 4;

/// The fields of a result that a table has; `docs/reference/results.md` describes them.
#[derive(Deserialize)]
struct Document {
    started: String,
    version: String,
    machine: Machine,
    blocks: u64,
    ended: String,
    judged: Vec<String>,
    arms: Vec<Arm>,
    #[serde(default)]
    floor: BTreeMap<String, Interval>,
}

#[derive(Deserialize)]
struct Machine {
    kernel: String,
    cpu: String,
    cpus: u64,
    hypervisor: Option<String>,
    nic: String,
}

#[derive(Deserialize)]
struct Interval {
    low: f64,
    high: f64,
}

#[derive(Deserialize)]
struct Arm {
    name: String,
    kind: String,
    #[serde(default)]
    mode: BTreeMap<String, String>,
    support: Support,
    metrics: BTreeMap<String, Metric>,
}

#[derive(Deserialize)]
#[serde(tag = "status", rename_all = "kebab-case")]
enum Support {
    Yes,
    Unsupported { what: String },
    Refused { why: String },
}

#[derive(Deserialize)]
struct Metric {
    unit: String,
    median: Option<f64>,
    ratio: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    verdict: Option<String>,
    why: Option<String>,
    difference: Option<Difference>,
}

#[derive(Deserialize)]
struct Difference {
    mean: f64,
    low: f64,
    high: f64,
}

/// Returns the table of a result, an empty line, and the line that says where and when it was measured.
///
/// Errors: the text is not one result, or none of its figures is judged.
pub(super) fn render(json: &[u8]) -> Result<String> {
    let result: Document = serde_json::from_slice(json)
        .context("the output is not one result of `prove`; a marker has no --runs")?;
    let judged = &result.judged[..result.judged.len().min(COLUMNS)];
    if judged.is_empty() {
        bail!(
            "the result has no judged figure; choose a load that has, `wirepath paths` lists them"
        );
    }
    let mut table =
        format!("| arm | {} |\n|---|{}\n", judged.join(" | "), "---|".repeat(judged.len()));
    for arm in &result.arms {
        let cells: Vec<String> = judged.iter().map(|name| cell(arm, name)).collect();
        table += &format!("| {} | {} |\n", shown_name(arm), cells.join(" | "));
    }
    Ok(format!("{table}\n{}\n", source(&result, judged)))
}

/// Name of an arm, with the version of a peer program.
fn shown_name(arm: &Arm) -> String {
    let version = arm.mode.get("version").filter(|_| arm.kind == "peer");
    version.map_or(plain(&arm.name), |version| format!("{} {}", plain(&arm.name), plain(version)))
}

/// Value, change with its interval, and verdict of an arm in one metric.
fn cell(arm: &Arm, name: &str) -> String {
    match &arm.support {
        Support::Unsupported { what } => return format!("not here: {}", plain(what)),
        Support::Refused { why } => return format!("refused: {}", plain(why)),
        Support::Yes => {}
    }
    let Some(metric) = arm.metrics.get(name) else { return "–".into() };
    let Some(median) = metric.median else {
        return metric.why.as_ref().map_or("–".into(), |why| plain(why));
    };
    let mut parts = vec![quantity(median, &metric.unit)];
    parts.extend(change(metric));
    parts.extend(metric.verdict.as_ref().map(|verdict| verdict.replace('-', " ")));
    parts.join(", ")
}

/// Ratio to the baselines with its 95 % interval; of counts the difference per trial.
fn change(metric: &Metric) -> Option<String> {
    if let Some(difference) = &metric.difference {
        let [mean, low, high] = [difference.mean, difference.low, difference.high].map(rounded);
        return Some(format!("{mean} more a trial [{low}, {high}]"));
    }
    let ratio = metric.ratio?;
    let Some(low) = metric.low else { return Some(format!("{}×", rounded(ratio))) };
    // Without an upper end beside a lower one it is infinite: trials failed.
    let high = metric.high.map_or("∞".into(), rounded);
    Some(format!("{}× [{}, {high}]", rounded(ratio), rounded(low)))
}

/// Machine, date, version, blocks and noise floor.
fn source(result: &Document, judged: &[String]) -> String {
    let machine = &result.machine;
    let mut parts = vec![format!("{}, {} CPUs", plain(&machine.cpu), machine.cpus)];
    parts.extend(machine.hypervisor.as_ref().map(|name| format!("under {}", plain(name))));
    let kernel = machine.kernel.split_whitespace().next().unwrap_or("unknown");
    let date = result.started.split('T').next().unwrap_or_default();
    parts.push(format!("Linux {}", plain(kernel)));
    parts.push(plain(&machine.nic));
    parts.push(format!("{}, wirepath {}", plain(date), plain(&result.version)));
    parts.push(format!(
        "{} blocks, ended: {}",
        result.blocks,
        plain(&result.ended.replace('-', " "))
    ));
    for name in judged {
        let Some(floor) = result.floor.get(name) else { continue };
        let (low, high) = (rounded(floor.low), rounded(floor.high));
        parts.push(format!("A/A floor of {name} {low} to {high}"));
    }
    format!("{}.", parts.join("; "))
}

/// A figure in the largest unit that leaves at least one digit before the point.
fn quantity(value: f64, unit: &str) -> String {
    let steps: &[(f64, &str)] = match unit {
        "ns" => &[(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")],
        "pps" => &[(1e6, "Mpps"), (1e3, "kpps"), (1.0, "pps")],
        "bps" => &[(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s")],
        "count" => return rounded(value),
        _ => return format!("{} {}", rounded(value), plain(unit)),
    };
    let fits = steps.iter().find(|(size, _)| value.abs() >= *size);
    let (size, name) = fits.unwrap_or(&steps[steps.len() - 1]);
    format!("{} {name}", rounded(value / size))
}

/// Three significant digits, without an exponent.
fn rounded(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let digits_before = value.abs().log10().floor() + 1.0;
    let decimals = (3.0 - digits_before).clamp(0.0, 12.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 12")]
    let decimals = decimals as usize;
    format!("{value:.decimals$}")
}

/// Text without characters that end a cell, a line or a comment.
fn plain(text: &str) -> String {
    text.replace(char::is_control, " ").replace('|', "\\|").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn sample() -> Value {
        serde_json::from_str(include_str!("../../../crates/report/tests/goldens/ping.json"))
            .unwrap()
    }

    fn table(result: &Value) -> String {
        render(result.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn a_stored_result_as_a_table() {
        let table = table(&sample());
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[0], "| arm | rtt_ns_p50 | rtt_ns_p99 | cpu_ns_per_packet |");
        assert_eq!(lines[1], "|---|---|---|---|");
        assert_eq!(lines[2], "| baseline | 65.8 µs | 92.2 µs | 5.41 µs |");
        assert!(table.contains("\n| +spin | 4.05 µs, 0.0610× [0.0603, 0.0617], better | 4.70 µs"));
        let missing = "not here: zero-copy AF_XDP on veth";
        assert!(table.contains(&format!("| +zero-copy | {missing} | {missing} | {missing} |")));
        assert!(table.contains(", not effective | "), "{table}");
        let last = lines.last().unwrap();
        let start = "AMD EPYC 7B13, 2 CPUs; under KVM; Linux 6.18.5; veth pair in two namespaces; \
            2026-11-21, wirepath 0.1.0; 24 blocks, ended: settled; A/A floor of rtt_ns_p50 ";
        assert!(last.starts_with(start) && last.ends_with('.'), "{last}");
        assert_eq!(lines[lines.len() - 2], "");
    }

    #[test]
    fn odd_figures_are_told_apart() {
        let mut result = sample();
        let metrics = &mut result["arms"][1]["metrics"];
        metrics["rtt_ns_p50"]["high"] = Value::Null;
        metrics["rtt_ns_p99"]["median"] = Value::Null;
        metrics["rtt_ns_p99"]["why"] = json!("p99 refused: too few | samples");
        metrics["cpu_ns_per_packet"]["ratio"] = Value::Null;
        metrics["cpu_ns_per_packet"]["difference"] = json!({"mean": 2, "low": -1.5, "high": 10.25});
        result["arms"][1]["name"] = json!("sock|perf");
        result["arms"][1]["kind"] = json!("peer");
        result["arms"][1]["mode"] = json!({"version": "3.7"});
        let table = table(&result);
        let start = "| sock\\|perf 3.7 |";
        let row = table.lines().find(|line| line.starts_with(start)).unwrap();
        assert!(row.contains(", ∞], better"), "{row}");
        assert!(row.contains("| p99 refused: too few \\| samples |"), "{row}");
        assert!(row.contains("2.00 more a trial [-1.50, 10.2], better"), "{row}");
    }

    #[test]
    fn a_document_without_a_table_is_refused() {
        let mut nothing = sample();
        nothing["judged"] = json!([]);
        for text in [nothing.to_string(), json!({"runs": []}).to_string(), String::new()] {
            assert!(render(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn figures_have_three_digits_and_a_unit_that_fits() {
        for (value, unit, wanted) in [
            (1_940.0, "ns", "1.94 µs"),
            (0.5, "ns", "0.500 ns"),
            (44e6, "ns", "44.0 ms"),
            (12.5e9, "ns", "12.5 s"),
            (851e3, "pps", "851 kpps"),
            (8.05e9, "bps", "8.05 Gbit/s"),
            (0.0, "count", "0"),
            (1_234.0, "rps", "1234 rps"),
        ] {
            assert_eq!(quantity(value, unit), wanted);
        }
    }
}
