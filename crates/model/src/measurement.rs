//! Measurement of one trial.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::AddAssign;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::{Better, CpuSamples, SwitchId};

/// Delivery of echoes that only their sender counts: what was sent, and what was answered.
pub const ROUND_TRIP: &str = "round-trip";

/// Name of the mode that is the version of a peer program.
pub const VERSION_MODE: &str = "version";

/// Packet counts of one direction of traffic.
///
/// Source for reordering: RFC 4737 section 3.3 (a datagram is reordered if its sequence number is
/// below the highest received before it); duplicates are never counted as reordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// Datagrams passed to the kernel or ring and completed by it.
    pub sent_count: u64,
    /// Arrivals, including duplicates.
    pub received_count: u64,
    /// Arrivals of a sequence number that had arrived before; `None` if they were not counted. A loss and
    /// a duplicate then cancel each other in [`lost_count`](Self::lost_count).
    pub duplicated_count: Option<u64>,
    /// First arrivals below the highest sequence number received before them.
    pub reordered_count: u64,
}

/// Nothing sent, and nothing arrived.
impl Default for Delivery {
    fn default() -> Self {
        Delivery { sent_count: 0, received_count: 0, duplicated_count: Some(0), reordered_count: 0 }
    }
}

impl AddAssign for Delivery {
    fn add_assign(&mut self, other: Self) {
        self.sent_count = self.sent_count.saturating_add(other.sent_count);
        self.received_count = self.received_count.saturating_add(other.received_count);
        let duplicated = self.duplicated_count.zip(other.duplicated_count);
        self.duplicated_count = duplicated.map(|(own, more)| own.saturating_add(more));
        self.reordered_count = self.reordered_count.saturating_add(other.reordered_count);
    }
}

impl Delivery {
    /// Arrivals without duplicates; all arrivals if duplicates were not counted.
    pub fn first_arrival_count(&self) -> u64 {
        self.received_count.saturating_sub(self.duplicated_count.unwrap_or(0))
    }

    /// Sequence numbers that were sent and never arrived.
    pub fn lost_count(&self) -> u64 {
        self.sent_count.saturating_sub(self.first_arrival_count())
    }

    /// Lost share of the sent datagrams, 0.0 to 1.0; `None` if none was sent.
    pub fn loss(&self) -> Option<f64> {
        (self.sent_count > 0).then(|| self.lost_count() as f64 / self.sent_count as f64)
    }

    /// True if sent = received − duplicated + lost holds without clamping.
    pub fn balances(&self) -> bool {
        self.received_count >= self.duplicated_count.unwrap_or(0)
            && self.first_arrival_count() <= self.sent_count
    }
}

/// Datagrams and bytes that arrived at the receiver over a time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throughput {
    /// First to last arrival, in nanoseconds.
    pub interval_ns: u64,
    /// Datagrams that arrived in it.
    pub received_count: u64,
    /// Bytes of UDP payload that arrived in it.
    pub payload_bytes: u64,
}

/// CPU time and kernel work of one end during a trial.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cost {
    /// CPU time in user mode, nanoseconds.
    pub user_ns: u64,
    /// CPU time in the kernel on behalf of this end, nanoseconds.
    pub system_ns: u64,
    /// CPU time of kernel softirq threads, nanoseconds, if it could be attributed.
    pub softirq_ns: Option<u64>,
    /// Voluntary and involuntary context switches.
    pub context_switch_count: u64,
    /// System calls on the data path, if they were counted.
    pub syscall_count: Option<u64>,
    /// Counts of the processor, if the kernel gave them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<Hardware>,
}

/// Counts of the processor for one end during a trial.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hardware {
    /// Completed ones, in user and kernel mode.
    pub instruction_count: u64,
    /// Cycles of the core's own clock.
    pub cycle_count: u64,
    /// Reads that the last level of the cache did not have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llc_miss_count: Option<u64>,
    /// Addresses of data that the translation buffer did not have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tlb_miss_count: Option<u64>,
}

impl Cost {
    pub fn cpu_ns(&self) -> u64 {
        total([self.user_ns, self.system_ns, self.softirq_ns.unwrap_or(0)])
    }
}

/// A switch that was on without effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NotEffective {
    /// The switch.
    pub switch: String,
    /// Evidence, and the missing requirement.
    pub why: String,
}

impl NotEffective {
    /// Reports a switch without effect.
    pub fn new(switch: impl Into<SwitchId>, why: impl Into<String>) -> Self {
        NotEffective { switch: switch.into().to_string(), why: why.into() }
    }
}

/// A detected condition that is known to spoil measurements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trap {
    pub what: String,
    pub advice: String,
}

/// Measurement of one trial.
///
/// Latency histograms are in nanoseconds, by segment (`rtt`, `kernel→app`).
/// Deliveries are by direction (`forward`, `return`), costs by end (`near`, `far`).
///
/// Serialised without the histograms. A field that is missing has its default, so that what an older
/// version stored stays readable.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Measurement {
    /// Wall time of the trial's measured part, nanoseconds.
    pub wall_ns: u64,
    pub deliveries: BTreeMap<String, Delivery>,
    /// Latencies in nanoseconds, by segment.
    #[serde(skip)]
    pub segments: BTreeMap<String, Histogram<u64>>,
    /// Throughput at the receiver, if the load measures it.
    pub throughput: Option<Throughput>,
    /// Inter-arrival jitter in nanoseconds (RFC 3550 section 6.4.1), if measured.
    pub jitter_ns: Option<u64>,
    /// Cost, by end.
    pub costs: BTreeMap<String, Cost>,
    /// Time of the cores that the trial could use, nanoseconds: their number times the interval; 0 if
    /// they are not known, and then the two below are of the whole machine.
    pub cores_ns: u64,
    /// CPU time of everything else on these cores (with all SMT siblings), nanoseconds.
    pub others_cpu_ns: u64,
    /// CPU time stolen from these cores by the hypervisor, nanoseconds.
    pub steal_ns: u64,
    /// Modes in use, e.g. `xdp` → `native, copy`.
    pub mode: BTreeMap<String, String>,
    /// Further counts for the record, name → value (unit in the name).
    pub counters: BTreeMap<String, u64>,
    /// Metrics specific to the path or from another program's report, by name; the name includes the
    /// unit as [`crate::describe`] parses it: `main_wait_ns_per_packet`.
    pub figures: BTreeMap<String, f64>,
    /// Units and directions of figures that the user named, which [`crate::describe`] cannot know.
    pub shapes: BTreeMap<String, Shape>,
    /// Packets that share the costs, if they are not those of `deliveries` or `throughput`.
    pub packet_count: Option<u64>,
    /// Metrics that nothing counted in this trial, by name, with the reason. No other number stands in.
    pub refused: BTreeMap<String, Refusal>,
    /// Switches of the arm that had no effect.
    pub not_effective: Vec<NotEffective>,
    pub traps: Vec<Trap>,
    /// Percentiles reported by another program that provides no histogram: segment → (quantile,
    /// nanoseconds). Only for peer arms.
    pub reported: BTreeMap<String, Vec<(f64, f64)>>,
    /// Number of the start of the program that ran the trial, different for each start of an arm's program; `None` if
    /// each trial is a start, or starts are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<u32>,
    /// CPU time by function; `None` where nothing was sampled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<CpuSamples>,
}

/// Reason for a missing metric.
pub type Refusal = String;

/// Unit and direction of a figure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Shape {
    /// Unit as in [`Metric::unit`], or any other.
    pub unit: String,
    /// Direction of improvement.
    pub better: Better,
}

/// One number derived from a [`Measurement`].
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// Name, unit before the qualifier: `rtt_ns_p99`.
    pub name: String,
    /// Unit: `ns`, `pps`, `bps`, `count`; of a figure that the user named, any.
    pub unit: Cow<'static, str>,
    pub better: Better,
    /// The value, or the reason why there is none.
    pub value: Result<f64, Refusal>,
}

/// Quantiles that are reported, with the suffix of their metric.
pub const QUANTILES: [(f64, &str); 4] =
    [(0.50, "p50"), (0.90, "p90"), (0.99, "p99"), (0.999, "p999")];

/// Fewest samples beyond a quantile for the quantile to be reported.
pub const SAMPLES_BEYOND_QUANTILE: f64 = 10.0;

/// Most samples of a histogram that another program, a far end or a file hands over. Floating-point numbers
/// hold each such count, and the sums of all trials of a run stay below 2^64, which the library cannot pass.
pub const SAMPLE_COUNT_MAX: u64 = 1 << 53;

/// End of the name of a counter of trials in which counts of the same frames did not agree.
pub(crate) const UNBALANCED: &str = "_unbalanced_count";

/// A histogram with the range and precision that all latencies use:
/// 1 ns to 60 s, three significant digits; larger values saturate.
pub fn latency_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("constant bounds are valid")
}

/// Sum of counts that a guest, a far end or another program reports: the maximum if it is larger.
pub fn total(counts: impl IntoIterator<Item = u64>) -> u64 {
    counts.into_iter().fold(0, u64::saturating_add)
}

impl Measurement {
    /// Enters echoes that only their sender counts.
    ///
    /// One that was answered is two packets that arrived. One that was not may have been lost either way,
    /// so the deliveries by direction are refused.
    pub fn enter_round_trips(&mut self, echoes: Delivery) {
        self.packet_count = Some(echoes.first_arrival_count().saturating_mul(2));
        self.counters.insert("sent_count".into(), echoes.sent_count);
        self.deliveries.insert(ROUND_TRIP.into(), echoes);
        for name in ["lost_count_forward", "lost_count_return"] {
            let why = "the end that answers does not count arrivals, so only round trips are known";
            self.refused.insert(name.into(), why.into());
        }
    }

    /// Enters if counts of the same frames agree, as counter `{of}_unbalanced_count`. An outcome warns of those that
    /// do not.
    pub fn enter_balance(&mut self, of: &str, balances: bool) {
        self.counters.insert(format!("{of}{UNBALANCED}"), u64::from(!balances));
    }

    pub fn lost_count(&self) -> u64 {
        total(self.deliveries.values().map(Delivery::lost_count))
    }

    pub fn cpu_ns(&self) -> u64 {
        total(self.costs.values().map(Cost::cpu_ns))
    }
}
