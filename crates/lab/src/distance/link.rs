//! The bottleneck: a queue with a limit, and a transmitter of one rate.

use model::WireSpec;

/// One direction of the bottleneck, in virtual time: a segment that is accepted has its place in the schedule at once.
#[derive(Debug, Clone)]
pub(super) struct Link {
    rate_bps: u64,
    buffer_bytes: u64,
    mark_bytes: Option<u64>,
    /// Time at which all accepted segments have left.
    free_ns: u64,
}

/// A segment that was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Accepted {
    /// Time at which its last bit has left.
    pub(super) left_ns: u64,
    /// It met a queue above the threshold of marks.
    pub(super) is_marked: bool,
}

impl Link {
    pub(super) fn new(wire: &WireSpec) -> Self {
        Link {
            rate_bps: wire.rate_bps,
            buffer_bytes: wire.buffer_bytes(),
            mark_bytes: wire.mark_bytes(),
            free_ns: 0,
        }
    }

    /// Time of bytes on the wire.
    pub(super) fn time_ns(&self, wire_bytes: u64) -> u64 {
        wire_bytes * 8_000_000_000 / self.rate_bps
    }

    /// Queues a segment that arrives at `now_ns`; `None` if it does not fit and is dropped.
    pub(super) fn accept(&mut self, now_ns: u64, wire_bytes: u64) -> Option<Accepted> {
        let wait_ns = self.free_ns.saturating_sub(now_ns);
        let queue_bytes = wait_ns.saturating_mul(self.rate_bps) / 8_000_000_000;
        if queue_bytes + wire_bytes > self.buffer_bytes {
            return None;
        }
        self.free_ns = now_ns + wait_ns + self.time_ns(wire_bytes);
        let is_marked = self.mark_bytes.is_some_and(|mark| queue_bytes > mark);
        Some(Accepted { left_ns: self.free_ns, is_marked })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(wire: &str) -> Link {
        Link::new(&wire.parse().unwrap())
    }

    #[test]
    fn segments_leave_one_after_the_other_at_the_rate() {
        let mut link = link("delay=20ms,rate=100mbit");
        let left = |accepted: Option<Accepted>| accepted.unwrap().left_ns;
        assert_eq!(left(link.accept(1_000, 1_538)), 1_000 + 123_040);
        assert_eq!(left(link.accept(1_000, 1_538)), 1_000 + 246_080);
        assert_eq!(left(link.accept(5_000_000, 84)), 5_000_000 + 6_720);
    }

    #[test]
    fn a_full_queue_drops_what_comes_and_holds_its_bytes() {
        let mut link = link("delay=10ms,rate=100mbit,buffer=250kb,mark=100kb");
        let accepted: Vec<_> = std::iter::from_fn(|| link.accept(0, 1_538)).collect();
        assert_eq!(accepted.len(), 250_000 / 1_538);
        // At 100 Mbit/s 250 kB are 20 ms.
        assert_eq!(accepted.last().unwrap().left_ns, 162 * 123_040);
        assert_eq!(accepted.iter().filter(|one| !one.is_marked).count(), 100_000 / 1_538 + 1);
        assert!(link.accept(200_000, 1_538).is_some(), "one has left meanwhile");
    }
}
