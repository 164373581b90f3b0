//! Due times of datagrams.

use super::ReplayPace;

/// Due times of datagrams, from the start.
#[derive(Debug)]
pub(super) struct Timing {
    pace: ReplayPace,
    first_ns: Option<u64>,
    latest_ns: u64,
    /// Datagrams with an earlier stamp than their predecessor.
    pub(super) backwards: u64,
}

impl Timing {
    pub(super) fn new(pace: ReplayPace) -> Self {
        Timing { pace, first_ns: None, latest_ns: 0, backwards: 0 }
    }

    /// - `stamp_ns`: time of capture.
    /// - `messages`: number sent before.
    pub(super) fn due_ns(&mut self, stamp_ns: Option<u64>, messages: u64) -> u64 {
        match self.pace {
            ReplayPace::Max => 0,
            ReplayPace::Rate(schedule) => schedule.due_ns(messages),
            ReplayPace::Own(speed) => {
                let stamp_ns = stamp_ns.unwrap_or(self.latest_ns);
                let first_ns = *self.first_ns.get_or_insert(stamp_ns);
                self.backwards += u64::from(stamp_ns < self.latest_ns);
                self.latest_ns = self.latest_ns.max(stamp_ns);
                ((self.latest_ns - first_ns) as f64 / speed) as u64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::SendSchedule;

    #[test]
    fn a_capture_keeps_its_relative_times_at_any_speed() {
        let mut timing = Timing::new(ReplayPace::Own(2.0));
        let due = [1_000, 1_500, 1_400, 3_000].map(|stamp| timing.due_ns(Some(stamp), 0));
        assert_eq!(due, [0, 250, 250, 1_000]);
        assert_eq!(timing.backwards, 1);
        let mut timing = Timing::new(ReplayPace::Rate(SendSchedule::burst(10, 1000)));
        assert_eq!([0, 9, 10, 25].map(|n| timing.due_ns(None, n)), [0, 0, 10_000_000, 20_000_000]);
    }
}
