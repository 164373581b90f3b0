//! Datagrams that waited longer than allowed between the kernel and the application.

use host::interruptions::Delay;

use super::core::Now;

/// Late datagrams of a second that can be explained; more are counted.
pub(super) const LATE_MAX: usize = 1024;

/// Late datagrams of an interval.
#[derive(Debug)]
pub struct LateList {
    /// CLOCK_MONOTONIC.
    pub delays: Vec<Delay>,
    /// Late ones for which there was no room.
    pub beyond_count: u64,
}

impl Default for LateList {
    fn default() -> Self {
        LateList { delays: Vec::with_capacity(LATE_MAX), beyond_count: 0 }
    }
}

impl LateList {
    pub(super) fn clear(&mut self) {
        self.delays.clear();
        self.beyond_count = 0;
    }

    /// Adds a datagram if it is late; never allocates.
    ///
    /// - `is_behind`: another one was read since it arrived.
    #[inline]
    pub(super) fn note(&mut self, over_ns: u64, waited_ns: u64, now: Now, is_behind: bool) {
        if waited_ns < over_ns {
            return;
        }
        if self.delays.len() == LATE_MAX {
            self.beyond_count += 1;
            return;
        }
        let end_ns = now.monotonic_ns;
        let begin_ns = end_ns.saturating_sub(waited_ns);
        self.delays.push(Delay { begin_ns, end_ns, is_behind });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_datagrams_are_kept_up_to_a_bound_and_counted_beyond() {
        let mut late = LateList::default();
        let now = Now { monotonic_ns: 5000, real_ns: 0 };
        late.note(100, 99, now, false);
        assert!(late.delays.is_empty());
        for _ in 0..LATE_MAX + 3 {
            late.note(100, 100, now, true);
        }
        assert_eq!(late.delays[0], Delay { begin_ns: 4900, end_ns: 5000, is_behind: true });
        assert_eq!((late.delays.len(), late.beyond_count), (LATE_MAX, 3));
        assert_eq!(late.delays.capacity(), LATE_MAX, "nothing is allocated while it runs");
    }
}
