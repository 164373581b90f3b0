//! Report of one end.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use io::EngineReport;
use model::{Cost, Delivery, Throughput};

/// Report of one end.
#[derive(Debug, Clone, Default)]
pub struct RoleReport {
    /// Datagrams that left this end.
    pub sent_count: u64,
    /// Arrivals; `sent_count` is known to the other end.
    pub arrived: Delivery,
    /// Arrivals of this run whose sequence number was too old to judge.
    pub too_old_count: u64,
    /// Arrivals that are not of this run.
    pub stray_count: u64,
    /// Throughput of arrivals.
    pub throughput: Throughput,
    /// Jitter of arrivals (RFC 3550), nanoseconds.
    pub jitter_ns: Option<u64>,
    /// Latencies by segment.
    pub segments: BTreeMap<String, Histogram<u64>>,
    /// Cost of this end.
    pub cost: Cost,
    /// Measured time in nanoseconds.
    pub wall_ns: u64,
    /// Datagrams that the other end must have sent, by the highest number that arrived in each
    /// flow: for runs without the other end's report.
    pub expected_count: u64,
    /// The engine's own report.
    pub engine: EngineReport,
}

impl RoleReport {
    /// Adds the report of another thread of the same end.
    pub fn merge(&mut self, other: RoleReport) {
        self.sent_count += other.sent_count;
        self.arrived += other.arrived;
        self.too_old_count += other.too_old_count;
        self.stray_count += other.stray_count;
        self.expected_count += other.expected_count;
        self.throughput.interval_ns = self.throughput.interval_ns.max(other.throughput.interval_ns);
        self.throughput.received_count += other.throughput.received_count;
        self.throughput.payload_bytes += other.throughput.payload_bytes;
        self.jitter_ns = self.jitter_ns.max(other.jitter_ns);
        for (segment, histogram) in other.segments {
            match self.segments.get_mut(&segment) {
                // All latency histograms have the same bounds, so that adding cannot fail.
                Some(own) => own.add(histogram).unwrap_or_default(),
                None => {
                    self.segments.insert(segment, histogram);
                }
            }
        }
        self.cost.user_ns += other.cost.user_ns;
        self.cost.system_ns += other.cost.system_ns;
        self.cost.context_switch_count += other.cost.context_switch_count;
        self.cost.syscall_count = match (self.cost.syscall_count, other.cost.syscall_count) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
        self.wall_ns = self.wall_ns.max(other.wall_ns);
        for (name, value) in other.engine.counters {
            match self.engine.counters.iter_mut().find(|(n, _)| *n == name) {
                // The XDP program is shared: each thread read the same counter.
                Some((n, own)) if is_shared(n) => *own = (*own).max(value),
                Some((_, own)) => *own += value,
                None => self.engine.counters.push((name, value)),
            }
        }
        self.engine.unsent_count += other.engine.unsent_count;
        if let (Some(own), Some(more)) = (self.engine.ledger.as_mut(), other.engine.ledger) {
            *own += more;
        }
        for (name, value) in other.engine.mode {
            if !self.engine.mode.iter().any(|(known, _)| *known == name) {
                self.engine.mode.push((name, value));
            }
        }
        self.engine.not_effective.extend(other.engine.not_effective);
    }
}

/// True for counters of the XDP program, which all queues share.
fn is_shared(counter: &str) -> bool {
    ["xdp_redirected_count", "xdp_passed_count", "xdp_map_missed_count"].contains(&counter)
}
