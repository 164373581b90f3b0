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
        // A far end reports its threads' counts, and may report any.
        add(&mut self.sent_count, other.sent_count);
        self.arrived += other.arrived;
        add(&mut self.too_old_count, other.too_old_count);
        add(&mut self.stray_count, other.stray_count);
        add(&mut self.expected_count, other.expected_count);
        self.throughput.interval_ns = self.throughput.interval_ns.max(other.throughput.interval_ns);
        add(&mut self.throughput.received_count, other.throughput.received_count);
        add(&mut self.throughput.payload_bytes, other.throughput.payload_bytes);
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
        add(&mut self.cost.user_ns, other.cost.user_ns);
        add(&mut self.cost.system_ns, other.cost.system_ns);
        add(&mut self.cost.context_switch_count, other.cost.context_switch_count);
        self.cost.syscall_count = match (self.cost.syscall_count, other.cost.syscall_count) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
        self.wall_ns = self.wall_ns.max(other.wall_ns);
        self.engine.merge(other.engine);
    }
}

fn add(own: &mut u64, more: u64) {
    *own = own.saturating_add(more);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_the_largest_counts_add_up_to_the_largest() {
        let report = RoleReport {
            sent_count: u64::MAX,
            arrived: Delivery { received_count: u64::MAX, ..Delivery::default() },
            too_old_count: u64::MAX,
            stray_count: u64::MAX,
            expected_count: u64::MAX,
            throughput: Throughput {
                received_count: u64::MAX,
                payload_bytes: u64::MAX,
                interval_ns: 1,
            },
            cost: Cost {
                user_ns: u64::MAX,
                system_ns: u64::MAX,
                context_switch_count: u64::MAX,
                syscall_count: Some(u64::MAX),
                ..Cost::default()
            },
            ..RoleReport::default()
        };
        let mut merged = report.clone();
        merged.merge(report.clone());
        assert_eq!((merged.sent_count, merged.expected_count), (u64::MAX, u64::MAX));
        assert_eq!((merged.arrived, merged.throughput), (report.arrived, report.throughput));
        assert_eq!(merged.cost, report.cost);
    }
}
