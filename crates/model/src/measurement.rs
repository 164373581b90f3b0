//! What one trial saw.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Which direction of a metric is an improvement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Less is better.
    Lower,
    /// More is better.
    Higher,
}

/// The books of one direction of traffic, in datagrams.
///
/// Source for reordering: RFC 4737 section 3.3 (a datagram is reordered when its
/// sequence number is below the highest seen before it); duplicates are never
/// counted as reordered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// Handed to the kernel or the ring and completed by it.
    pub sent_count: u64,
    /// Arrivals, duplicates included.
    pub received_count: u64,
    /// Arrivals of a sequence number that had arrived before.
    pub duplicated_count: u64,
    /// First arrivals below the highest sequence number seen before them.
    pub reordered_count: u64,
}

impl Delivery {
    /// Sequence numbers that were sent and never arrived.
    pub fn lost_count(&self) -> u64 {
        self.sent_count.saturating_sub(self.received_count.saturating_sub(self.duplicated_count))
    }

    /// Lost share of what was sent, 0.0 to 1.0; `None` when nothing was sent.
    pub fn loss(&self) -> Option<f64> {
        (self.sent_count > 0).then(|| self.lost_count() as f64 / self.sent_count as f64)
    }

    /// Whether sent = received − duplicated + lost, without clamping.
    pub fn balances(&self) -> bool {
        self.received_count >= self.duplicated_count
            && self.received_count - self.duplicated_count <= self.sent_count
    }
}

/// How much arrived in how long, at the receiving end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throughput {
    /// First to last arrival, in nanoseconds.
    pub interval_ns: u64,
    /// Datagrams that arrived in it.
    pub received_count: u64,
    /// Bytes of UDP payload that arrived in it.
    pub payload_bytes: u64,
}

/// What a trial cost one end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// CPU time in user mode, nanoseconds.
    pub user_ns: u64,
    /// CPU time in the kernel on behalf of this end, nanoseconds.
    pub system_ns: u64,
    /// CPU time in softirq threads of the kernel that could be told apart, nanoseconds.
    pub softirq_ns: Option<u64>,
    /// Context switches, voluntary and not.
    pub context_switch_count: u64,
    /// System calls made on the data path, where they were counted.
    pub syscall_count: Option<u64>,
}

impl Cost {
    /// All CPU time, nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        self.user_ns + self.system_ns + self.softirq_ns.unwrap_or(0)
    }
}

/// A switch that was on and changed nothing, with the evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotEffective {
    /// The switch.
    pub switch: String,
    /// What was read that shows it, and what would be needed.
    pub why: String,
}

/// Something known to spoil a measurement that was found at work, with what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trap {
    /// What was found.
    pub what: String,
    /// What to do.
    pub advice: String,
}

/// What one trial saw.
///
/// Latency histograms are in nanoseconds, by segment (`rtt`, `kernel→app`).
/// Deliveries are by direction (`forward`, `return`), costs by end (`near`, `far`).
#[derive(Debug, Clone, Default)]
pub struct Measurement {
    /// Wall time of the trial's measured part, nanoseconds.
    pub wall_ns: u64,
    /// Books, by direction.
    pub deliveries: BTreeMap<String, Delivery>,
    /// Latencies in nanoseconds, by segment.
    pub segments: BTreeMap<String, Histogram<u64>>,
    /// Throughput at the receiver, where the load asks for it.
    pub throughput: Option<Throughput>,
    /// Inter-arrival jitter in nanoseconds (RFC 3550 section 6.4.1), where it was taken.
    pub jitter_ns: Option<u64>,
    /// Cost, by end.
    pub costs: BTreeMap<String, Cost>,
    /// CPU time taken by anything else on the machine meanwhile, nanoseconds.
    pub others_cpu_ns: u64,
    /// CPU time stolen by the hypervisor meanwhile, nanoseconds.
    pub steal_ns: u64,
    /// The mode really in use, e.g. `xdp` → `native, copy`.
    pub mode: BTreeMap<String, String>,
    /// Further counts that belong in the record, name → value (unit in the name).
    pub counters: BTreeMap<String, u64>,
    /// Metrics of the path's own, or of another program's report, by the metric's name, with the
    /// unit in it as [`crate::describe`] reads it: `main_wait_ns_per_packet`.
    pub figures: BTreeMap<String, f64>,
    /// Switches of the arm that had no effect.
    pub not_effective: Vec<NotEffective>,
    /// Traps that the arm went into.
    pub traps: Vec<Trap>,
    /// Percentiles that another program reported of itself, where it gives no
    /// histogram: segment → (quantile, nanoseconds). Used only by peer arms.
    pub reported: BTreeMap<String, Vec<(f64, f64)>>,
}

/// A metric that was not given, and why.
pub type Refusal = String;

/// One number derived from a [`Measurement`].
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// Name, unit before the qualifier: `rtt_ns_p99`.
    pub name: String,
    /// Unit: `ns`, `pps`, `bps`, `count`.
    pub unit: &'static str,
    /// Which way is better.
    pub better: Better,
    /// The value, or why there is none.
    pub value: Result<f64, Refusal>,
}

/// Quantiles that are reported, with the suffix of their metric.
pub const QUANTILES: [(f64, &str); 4] =
    [(0.50, "p50"), (0.90, "p90"), (0.99, "p99"), (0.999, "p999")];

/// Samples that must lie beyond a quantile before it is printed.
pub const SAMPLES_BEYOND_QUANTILE: f64 = 10.0;

/// A histogram with the range and precision that all latencies use:
/// 1 ns to 60 s, three significant digits; larger values saturate.
pub fn latency_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("constant bounds are valid")
}

impl Measurement {
    /// Lost datagrams over all directions.
    pub fn lost_count(&self) -> u64 {
        self.deliveries.values().map(Delivery::lost_count).sum()
    }

    /// CPU time of all ends, nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        self.costs.values().map(Cost::cpu_ns).sum()
    }
}
