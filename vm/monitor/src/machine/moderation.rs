//! Interrupts that tell only of frames sent, put off to tell of several.

/// Frames that one interrupt tells of at most.
pub const MODERATE_FRAMES: u64 = 16;
/// Longest time that one is put off, in microseconds: the tick of send combining.
pub const MODERATE_TICK_US: u64 = super::COMBINE_TICK_US;

/// Sent frames whose interrupt is delayed.
#[derive(Debug, Default)]
pub(super) struct Moderation {
    frame_count: u64,
    /// When the first of them was sent; `None` while nothing is put off.
    since_ns: Option<u64>,
}

impl Moderation {
    /// `frame_count` more were sent, of which the line is to tell: whether that is put off.
    pub(super) fn puts_off(&mut self, frame_count: u64, now_ns: u64) -> bool {
        self.frame_count += frame_count;
        self.since_ns.get_or_insert(now_ns);
        if self.frame_count >= MODERATE_FRAMES || self.is_overdue(now_ns) {
            self.clear();
        }
        self.is_waiting()
    }

    /// The interrupt has been raised, for any reason, or the guest has taken the frames.
    pub(super) fn clear(&mut self) {
        *self = Moderation::default();
    }

    /// True if an interrupt is delayed.
    pub(super) fn is_waiting(&self) -> bool {
        self.since_ns.is_some()
    }

    /// True if the delay has reached its limit.
    pub(super) fn is_overdue(&self, now_ns: u64) -> bool {
        let tick_ns = MODERATE_TICK_US * 1000;
        self.since_ns.is_some_and(|since_ns| now_ns.saturating_sub(since_ns) >= tick_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK_NS: u64 = MODERATE_TICK_US * 1000;

    #[test]
    fn interrupt_comes_with_the_sixteenth_frame() {
        let mut moderation = Moderation::default();
        for now_ns in 1..MODERATE_FRAMES {
            assert!(moderation.puts_off(1, now_ns));
        }
        assert!(!moderation.puts_off(1, MODERATE_FRAMES));
        assert!(!moderation.is_waiting());
        // And from the start again.
        assert!(moderation.puts_off(MODERATE_FRAMES - 1, 0));
        assert!(!moderation.puts_off(1, 0));
    }

    #[test]
    fn interrupt_of_a_lone_frame_comes_a_tick_later() {
        let mut moderation = Moderation::default();
        assert!(moderation.puts_off(1, 5));
        assert!(!moderation.is_overdue(TICK_NS + 4));
        assert!(moderation.is_overdue(TICK_NS + 5));
        assert!(!moderation.puts_off(0, TICK_NS + 5));
        assert!(!moderation.is_overdue(u64::MAX));
    }

    #[test]
    fn what_the_guest_was_told_of_otherwise_counts_no_more() {
        let mut moderation = Moderation::default();
        assert!(moderation.puts_off(MODERATE_FRAMES - 1, 0));
        moderation.clear();
        assert!(moderation.puts_off(1, TICK_NS));
        assert!(!moderation.is_overdue(TICK_NS));
    }
}
