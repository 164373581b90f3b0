//! Counts of a wire, as its process sends them to its owner.

use model::WireSpec;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Lateness that a wire may always have, and as a share of its delay.
const LATE_NS_FLOOR: u64 = 250_000;
const LATE_SHARE_MAX: f64 = 0.05;

/// Counts of one direction since the start of a trial.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct WireCounts {
    /// Segments that arrived at the wire.
    pub segment_count: u64,
    /// Segments that losses are counted by, which the queue took.
    pub data_segment_count: u64,
    /// Of these, those that were lost as planned.
    pub lost_count: u64,
    /// Segments that did not fit into the queue.
    pub queue_drop_count: u64,
    /// Segments that were marked for congestion.
    pub marked_count: u64,
    /// Segments that were delivered.
    pub delivered_count: u64,
    /// Frames that were dropped because the process was too slow or had no memory.
    pub unplanned_drop_count: u64,
    /// Super-frames that could not be cut, and were lost or delivered as a whole.
    pub uncut_count: u64,
    pub late_ns_p50: u64,
    pub late_ns_p99: u64,
    pub late_ns_max: u64,
    /// The process ran under SCHED_FIFO: 1, or 0.
    pub real_time_count: u64,
}

impl WireCounts {
    /// Lost share of the data segments; `None` without any.
    pub fn loss(&self) -> Option<f64> {
        (self.data_segment_count > 0)
            .then(|| self.lost_count as f64 / self.data_segment_count as f64)
    }

    /// Reason why a trial over the wire is not valid; `None` if it kept its delay and dropped nothing by mistake.
    pub fn fault(&self, wire: &WireSpec) -> Option<String> {
        let limit_ns = late_limit_ns(wire);
        if self.late_ns_p99 > limit_ns {
            return Some(format!(
                "the wire was late: 1 % of its segments by {} us or more, and the limit at this delay is {} us",
                self.late_ns_p99 / 1_000,
                limit_ns / 1_000
            ));
        }
        if self.unplanned_drop_count > 0 {
            let count = self.unplanned_drop_count;
            return Some(format!("the wire dropped {count} frames because it was too slow"));
        }
        (self.uncut_count > 0).then(|| {
            let count = self.uncut_count;
            format!(
                "the wire could not cut {count} super-frames, so their segments were lost together"
            )
        })
    }
}

/// Largest p99 lateness of a wire that is used.
pub fn late_limit_ns(wire: &WireSpec) -> u64 {
    LATE_NS_FLOOR.max((wire.delay.as_nanos() as f64 * LATE_SHARE_MAX) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_survive_the_connection() {
        let counts =
            WireCounts { segment_count: 1, real_time_count: u64::MAX, ..Default::default() };
        assert_eq!(WireCounts::read_from_bytes(counts.as_bytes()), Ok(counts));
    }

    #[test]
    fn a_late_or_leaking_wire_has_a_fault() {
        let wire: WireSpec = "delay=20ms,rate=100mbit".parse().unwrap();
        let short: WireSpec = "delay=1ms,rate=100mbit".parse().unwrap();
        let late = WireCounts { late_ns_p99: 900_000, ..Default::default() };
        assert_eq!(late.fault(&wire), None);
        assert!(
            late.fault(&short).is_some_and(|why| why.contains("the limit at this delay is 250 us"))
        );
        let late = WireCounts { late_ns_p99: 1_000_001, ..Default::default() };
        assert!(late.fault(&wire).is_some_and(|why| why.contains("1000 us")));
        let leaking = WireCounts { unplanned_drop_count: 1, ..Default::default() };
        assert!(leaking.fault(&wire).is_some());
    }
}
