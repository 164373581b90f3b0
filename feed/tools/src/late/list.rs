//! Late datagrams whose causes are not known yet.

use host::interruptions::Delay;
use sys::clock;

/// Late datagrams of a second that can be explained; more are counted.
const LATE_MAX: usize = 1024;

/// A late datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LateDatagram {
    /// Its time stamp, nanoseconds since 1970.
    pub stamp_ns: u64,
    pub delay: Delay,
}

/// Late datagrams of a second.
#[derive(Debug)]
pub struct LateList {
    pub datagrams: Vec<LateDatagram>,
    /// Late ones for which there was no room.
    pub beyond_count: u64,
}

impl Default for LateList {
    fn default() -> Self {
        LateList { datagrams: Vec::with_capacity(LATE_MAX), beyond_count: 0 }
    }
}

/// Time of an arrival, nanoseconds: CLOCK_MONOTONIC and CLOCK_REALTIME.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    pub(crate) monotonic_ns: u64,
    pub(crate) real_ns: u64,
}

impl Now {
    pub(crate) fn read() -> Self {
        Now { monotonic_ns: clock::monotonic_ns(), real_ns: clock::realtime_ns() }
    }
}

impl LateList {
    pub(crate) fn clear(&mut self) {
        self.datagrams.clear();
        self.beyond_count = 0;
    }

    /// Adds a datagram if it is late; never allocates.
    ///
    /// - `is_behind`: another one was read since it arrived.
    #[inline]
    pub(crate) fn note(&mut self, over_ns: u64, stamp_ns: u64, now: Now, is_behind: bool) {
        let waited_ns = now.real_ns.saturating_sub(stamp_ns);
        if waited_ns < over_ns {
            return;
        }
        if self.datagrams.len() == LATE_MAX {
            self.beyond_count += 1;
            return;
        }
        let end_ns = now.monotonic_ns;
        let delay = Delay { begin_ns: end_ns.saturating_sub(waited_ns), end_ns, is_behind };
        self.datagrams.push(LateDatagram { stamp_ns, delay });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_datagrams_are_kept_up_to_a_bound_and_counted_beyond() {
        let mut late = LateList::default();
        let now = Now { monotonic_ns: 5000, real_ns: 9000 };
        late.note(100, 8901, now, false);
        assert!(late.datagrams.is_empty());
        for _ in 0..LATE_MAX + 3 {
            late.note(100, 8900, now, true);
        }
        let delay = Delay { begin_ns: 4900, end_ns: 5000, is_behind: true };
        assert_eq!(late.datagrams[0], LateDatagram { stamp_ns: 8900, delay });
        assert_eq!((late.datagrams.len(), late.beyond_count), (LATE_MAX, 3));
        assert_eq!(late.datagrams.capacity(), LATE_MAX, "nothing is allocated while it runs");
    }
}
