//! Bursts: messages in short windows of time.

use std::cmp::Reverse;

use hdrhistogram::Histogram;

/// Windows in which messages are counted, nanoseconds.
pub const WINDOWS_NS: [u64; 2] = [100_000, 1_000_000];
/// Densest windows that are kept.
const TOP: usize = 5;
/// Largest count of a window that is told apart.
const COUNT_MAX: u64 = 10_000_000;

/// A window and its messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Burst {
    pub message_count: u64,
    /// Begin of the window, on the clock of the arrivals.
    pub begin_ns: u64,
}

/// Windows of one length, aligned to multiples of it.
#[derive(Debug)]
struct Window {
    len_ns: u64,
    open: Burst,
    /// Messages of every window with any.
    counts: Histogram<u64>,
    densest: [Burst; TOP],
}

impl Window {
    fn new(len_ns: u64) -> Self {
        let counts = Histogram::new_with_bounds(1, COUNT_MAX, 3);
        let counts = counts.expect("constant bounds are valid");
        Window { len_ns, open: Burst::default(), counts, densest: Default::default() }
    }

    #[inline]
    fn add(&mut self, at_ns: u64) {
        // A stamp from before the open window counts as of this one: stamps of several CPUs overlap.
        if at_ns - at_ns % self.len_ns > self.open.begin_ns {
            self.close();
            self.open.begin_ns = at_ns - at_ns % self.len_ns;
        }
        self.open.message_count += 1;
    }

    fn close(&mut self) {
        let burst = std::mem::take(&mut self.open);
        if burst.message_count == 0 {
            return;
        }
        self.counts.saturating_record(burst.message_count);
        let last = &mut self.densest[TOP - 1];
        if burst.message_count > last.message_count {
            *last = burst;
            self.densest.sort_unstable_by_key(|burst| Reverse(burst.message_count));
        }
    }
}

/// Windows of a line.
#[derive(Debug)]
pub struct Bursts([Window; WINDOWS_NS.len()]);

impl Default for Bursts {
    fn default() -> Self {
        Bursts(WINDOWS_NS.map(Window::new))
    }
}

impl Bursts {
    #[inline]
    pub(super) fn add(&mut self, at_ns: u64) {
        self.0.iter_mut().for_each(|window| window.add(at_ns));
    }

    pub(super) fn finish(&mut self) {
        self.0.iter_mut().for_each(Window::close);
    }

    /// Messages of the windows with any, by index of [`WINDOWS_NS`].
    pub fn counts(&self, window: usize) -> &Histogram<u64> {
        &self.0[window].counts
    }

    /// Densest windows, the densest first, by index of [`WINDOWS_NS`].
    pub fn densest(&self, window: usize) -> impl Iterator<Item = &Burst> {
        self.0[window].densest.iter().filter(|burst| burst.message_count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_aligned_and_the_densest_are_kept_with_their_time() {
        let mut bursts = Bursts::default();
        // In millisecond n, n + 1 messages 10 µs apart.
        for n in 0..20_u64 {
            for message in 0..=n {
                bursts.add(5_000_000_000 + n * 1_000_000 + message * 10_000);
            }
        }
        bursts.finish();
        assert_eq!((bursts.counts(1).len(), bursts.counts(1).max()), (20, 20));
        let densest: Vec<_> = bursts.densest(1).map(|burst| burst.message_count).collect();
        assert_eq!(densest, [20, 19, 18, 17, 16]);
        assert_eq!(bursts.densest(1).next().map(|burst| burst.begin_ns), Some(5_019_000_000));
        // Ten of 10 µs fit in 100 µs.
        assert_eq!(bursts.counts(0).max(), 10);
        let sum: u64 = bursts
            .counts(0)
            .iter_recorded()
            .map(|s| s.value_iterated_to() * s.count_at_value())
            .sum();
        assert_eq!(sum, (1..=20).sum::<u64>());
    }

    #[test]
    fn a_stamp_from_before_the_window_does_not_open_another() {
        let mut bursts = Bursts::default();
        for at_ns in [2_000_000, 1_999_999, 2_000_001] {
            bursts.add(at_ns);
        }
        bursts.finish();
        assert_eq!((bursts.counts(1).len(), bursts.counts(1).max()), (1, 3));
    }
}
