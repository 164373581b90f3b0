//! A measurement as a program writes it by hand.

use std::collections::BTreeMap;

use host::text::printable;
use model::{
    Cost, Delivery, Measurement, NotEffective, ROUND_TRIP, SAMPLE_COUNT_MAX, Throughput,
    latency_histogram,
};
use serde::{Deserialize, Serialize};

use super::RuleError;
use super::description::check_metric;

/// Most samples of a trial, of all segments together.
pub const SAMPLES_MAX: usize = 500_000;
const ENTRIES_MAX: usize = 64;
const TEXT_LEN_MAX: usize = 400;

/// Result of one trial. Every field may be left out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrialReport {
    /// Time of the trial's measured part, nanoseconds.
    pub wall_ns: u64,
    /// Metrics by name; the name states the unit: `wait_ns_per_packet`.
    pub metrics: BTreeMap<String, f64>,
    /// Latencies in nanoseconds, by segment: those of `rtt` become `rtt_ns_p50`, `rtt_ns_p99` and so on.
    pub samples_ns: BTreeMap<String, Vec<u64>>,
    /// Datagrams by direction: `forward`, `return`, or `round-trip` if only answers are counted.
    pub deliveries: BTreeMap<String, DeliveryReport>,
    /// Arrivals at the receiver over a time.
    pub throughput: Option<Throughput>,
    /// CPU time of this end. With `deliveries` it becomes `cpu_ns_per_packet`.
    pub cost: Option<CostReport>,
    /// Modes in use, for the record.
    pub mode: BTreeMap<String, String>,
    /// Further counts, for the record.
    pub counters: BTreeMap<String, u64>,
    /// Switches of the arm that had no effect, with the evidence.
    pub not_effective: Vec<NotEffective>,
}

/// Datagrams of one direction; see [`Delivery`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeliveryReport {
    pub sent_count: u64,
    /// Arrivals, duplicates among them.
    pub received_count: u64,
    pub duplicated_count: u64,
    pub reordered_count: u64,
}

/// CPU time and kernel work of one end; see [`Cost`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CostReport {
    pub user_ns: u64,
    pub system_ns: u64,
    pub context_switch_count: u64,
    /// `None` if they were not counted.
    pub syscall_count: Option<u64>,
}

impl TrialReport {
    /// The measurement.
    ///
    /// - `end`: `near` or `far`, which has the cost.
    /// - `arm`: switches that were on.
    ///
    /// Errors: it breaks a rule of the contract.
    pub fn measurement(self, end: &str, arm: &[String]) -> Result<Measurement, RuleError> {
        let counts = [
            ("metrics", self.metrics.len()),
            ("segments", self.samples_ns.len()),
            ("deliveries", self.deliveries.len()),
            ("modes", self.mode.len()),
            ("counters", self.counters.len()),
            ("switches without effect", self.not_effective.len()),
        ];
        if let Some((what, count)) = counts.into_iter().find(|(_, count)| *count > ENTRIES_MAX) {
            return Err(format!("it has {count} {what}; at most {ENTRIES_MAX} are allowed").into());
        }
        let names = self.metrics.keys().chain(self.samples_ns.keys()).chain(self.counters.keys());
        names.chain(self.mode.keys()).try_for_each(|name| check_metric(name))?;
        if let Some((name, value)) = self.metrics.iter().find(|(_, value)| !value.is_finite()) {
            return Err(format!("metric {name} is {value}").into());
        }
        check_sizes([self.wall_ns])?;
        self.counters.values().try_for_each(|count| check_sizes([*count]))?;
        let mut measurement = Measurement { wall_ns: self.wall_ns, ..Measurement::default() };
        self.enter_samples(&mut measurement)?;
        self.enter_deliveries(&mut measurement)?;
        if let Some(cost) = self.cost {
            measurement.costs.insert(end.to_owned(), cost.into());
        }
        if let Some(throughput) = self.throughput {
            let Throughput { interval_ns, received_count, payload_bytes } = throughput;
            check_sizes([interval_ns, received_count, payload_bytes])?;
            measurement.throughput = Some(throughput);
        }
        measurement.not_effective = without_effect(self.not_effective, arm)?;
        measurement.figures = self.metrics;
        measurement.counters.extend(self.counters);
        let modes = self.mode.into_iter();
        measurement.mode =
            modes.map(|(name, text)| (name, printable(&text, TEXT_LEN_MAX))).collect();
        Ok(measurement)
    }

    fn enter_samples(&self, measurement: &mut Measurement) -> Result<(), String> {
        let count: usize = self.samples_ns.values().map(Vec::len).sum();
        if count > SAMPLES_MAX {
            return Err(format!("it has {count} samples; at most {SAMPLES_MAX} are allowed"));
        }
        for (segment, samples_ns) in &self.samples_ns {
            let mut histogram = latency_histogram();
            samples_ns.iter().for_each(|ns| histogram.saturating_record(*ns));
            measurement.segments.insert(segment.clone(), histogram);
        }
        Ok(())
    }

    fn enter_deliveries(&self, measurement: &mut Measurement) -> Result<(), String> {
        for (direction, report) in &self.deliveries {
            let DeliveryReport { sent_count, received_count, duplicated_count, reordered_count } =
                *report;
            check_sizes([sent_count, received_count, duplicated_count, reordered_count])?;
            let duplicated_count = Some(duplicated_count);
            let delivery =
                Delivery { sent_count, received_count, duplicated_count, reordered_count };
            match direction.as_str() {
                ROUND_TRIP => measurement.enter_round_trips(delivery),
                "forward" | "return" => {
                    measurement.deliveries.insert(direction.clone(), delivery);
                }
                other => {
                    let other = printable(other, TEXT_LEN_MAX);
                    return Err(format!(
                        "{other:?} is not a valid direction: use forward, return or {ROUND_TRIP}"
                    ));
                }
            }
        }
        Ok(())
    }
}

impl From<CostReport> for Cost {
    fn from(cost: CostReport) -> Self {
        let CostReport { user_ns, system_ns, context_switch_count, syscall_count } = cost;
        Cost {
            user_ns: user_ns.min(SAMPLE_COUNT_MAX),
            system_ns: system_ns.min(SAMPLE_COUNT_MAX),
            context_switch_count: context_switch_count.min(SAMPLE_COUNT_MAX),
            syscall_count: syscall_count.map(|count| count.min(SAMPLE_COUNT_MAX)),
            ..Cost::default()
        }
    }
}

/// Errors: floating-point numbers do not hold one of the counts.
fn check_sizes<const N: usize>(counts: [u64; N]) -> Result<(), String> {
    match counts.into_iter().find(|count| *count > SAMPLE_COUNT_MAX) {
        Some(count) => Err(format!("{count} is not a valid count: it is above 2^53")),
        None => Ok(()),
    }
}

/// Errors: a switch is not of the arm.
fn without_effect(
    reported: Vec<NotEffective>,
    arm: &[String],
) -> Result<Vec<NotEffective>, String> {
    let checked = reported.into_iter().map(|NotEffective { switch, why }| {
        if arm.contains(&switch) {
            return Ok(NotEffective { switch, why: printable(&why, TEXT_LEN_MAX) });
        }
        let switch = printable(&switch, TEXT_LEN_MAX);
        Err(format!("{switch:?} had no effect, it says, and was not on"))
    });
    checked.collect()
}

#[cfg(test)]
mod tests {
    use model::Metric;

    use super::*;

    fn read(json: &str) -> Result<Measurement, String> {
        let report: TrialReport = serde_json::from_str(json).map_err(|error| error.to_string())?;
        report.measurement("near", &["spin".to_owned()]).map_err(|error| error.to_string())
    }

    fn value(metrics: &[Metric], name: &str) -> Result<f64, String> {
        let found = metrics.iter().find(|metric| metric.name == name);
        found.unwrap_or_else(|| panic!("{name}: {metrics:?}")).value.clone()
    }

    #[test]
    fn samples_and_counts_become_the_metrics_of_every_path() {
        let samples = vec!["1000"; 100].join(",");
        let measured = read(&format!(
            r#"{{"wall_ns":5,"samples_ns":{{"rtt":[{samples}]}},"metrics":{{"wait_us":1.5}},
            "deliveries":{{"round-trip":{{"sent_count":100,"received_count":100}}}},
            "cost":{{"user_ns":400,"system_ns":600}},
            "not_effective":[{{"switch":"spin","why":"it never spun\u001b"}}]}}"#
        ));
        let measured = measured.unwrap();
        let metrics = measured.metrics();
        assert_eq!(value(&metrics, "rtt_ns_p50"), Ok(1000.0));
        assert_eq!(value(&metrics, "cpu_ns_per_packet"), Ok(5.0), "an echo is two packets");
        assert_eq!(value(&metrics, "wait_us"), Ok(1.5));
        assert_eq!(measured.not_effective[0].why, "it never spun");
    }

    #[test]
    fn empty_report_is_a_measurement_without_metrics() {
        assert!(read("{}").unwrap().metrics().is_empty());
    }

    #[test]
    fn hostile_reports_are_refused_with_the_reason() {
        let many: Vec<String> = (0..65).map(|n| format!("\"m{n}\":1")).collect();
        for (report, expected) in [
            (r#"{"metrcs":{}}"#.to_owned(), "unknown field"),
            (r#"{"metrics":{"x":"1"}}"#.into(), "invalid type"),
            (r#"{"metrics":{"x":1e999}}"#.into(), "number out of range"),
            (r#"{"metrics":{"X":1}}"#.into(), "not a valid name of a metric"),
            (format!(r#"{{"metrics":{{{}}}}}"#, many.join(",")), "65 metrics"),
            (r#"{"samples_ns":{"rtt":[-1]}}"#.into(), "invalid value"),
            (r#"{"deliveries":{"up":{}}}"#.into(), "not a valid direction"),
            (r#"{"deliveries":{"forward":{"sent_count":18446744073709551615}}}"#.into(), "2^53"),
            (r#"{"not_effective":[{"switch":"other","why":""}]}"#.into(), "was not on"),
        ] {
            let said = read(&report).expect_err(&report);
            assert!(said.contains(expected), "{expected}: {said}");
        }
        let samples_ns = [("rtt".to_owned(), vec![1; SAMPLES_MAX + 1])].into();
        let most = TrialReport { samples_ns, ..TrialReport::default() };
        assert!(most.measurement("near", &[]).unwrap_err().to_string().contains("500001 samples"));
    }
}
