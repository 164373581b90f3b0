//! Latency by instrument.

/// Latencies of an instrument, as differences of two clocks: all are too large by one offset, which is
/// known at the end of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Latency {
    pub count: u64,
    sum_ns: i128,
    smallest_ns: i64,
    largest_ns: i64,
}

impl Latency {
    #[inline]
    fn add(&mut self, difference_ns: i64) {
        let is_first = self.count == 0;
        self.count += 1;
        self.sum_ns += i128::from(difference_ns);
        self.smallest_ns =
            if is_first { difference_ns } else { self.smallest_ns.min(difference_ns) };
        self.largest_ns = if is_first { difference_ns } else { self.largest_ns.max(difference_ns) };
    }

    /// Mean minus `offset_ns`, nanoseconds.
    pub fn mean_ns(&self, offset_ns: i64) -> u64 {
        let mean = self.sum_ns / i128::from(self.count.max(1)) - i128::from(offset_ns);
        u64::try_from(mean).unwrap_or(0)
    }

    /// Smallest minus `offset_ns`, nanoseconds.
    pub fn smallest_ns(&self, offset_ns: i64) -> u64 {
        self.smallest_ns.saturating_sub(offset_ns).max(0) as u64
    }

    /// Largest minus `offset_ns`, nanoseconds.
    pub fn largest_ns(&self, offset_ns: i64) -> u64 {
        self.largest_ns.saturating_sub(offset_ns).max(0) as u64
    }
}

/// Latencies of all instruments, by number.
#[derive(Debug)]
pub struct Instruments {
    latencies: Box<[Latency]>,
    names: Box<[[u8; 8]]>,
}

impl Instruments {
    pub(super) fn new(most: u32) -> Self {
        Instruments {
            latencies: vec![Latency::default(); most as usize].into_boxed_slice(),
            names: vec![[b' '; 8]; most as usize].into_boxed_slice(),
        }
    }

    /// Enters a delivered message; numbers beyond the limit are not kept.
    #[inline]
    pub fn add(&mut self, number: u32, difference_ns: i64) {
        if let Some(latency) = self.latencies.get_mut(number as usize) {
            latency.add(difference_ns);
        }
    }

    /// Names an instrument: ASCII, padded with spaces.
    #[inline]
    pub fn name(&mut self, number: u32, name: [u8; 8]) {
        if let Some(known) = self.names.get_mut(number as usize) {
            *known = name;
        }
    }

    /// Instruments with any message: number, name if known, latencies.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &str, &Latency)> {
        let all = (0..).zip(&self.names).zip(&self.latencies);
        all.filter(|(_, latency)| latency.count > 0).map(|((number, name), latency)| {
            (number, std::str::from_utf8(name).unwrap_or_default().trim_end(), latency)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_exact_whatever_the_offset() {
        let mut instruments = Instruments::new(4);
        for difference_ns in [-1_000, 3_000, 10_000] {
            instruments.add(2, difference_ns);
        }
        instruments.add(9, 5);
        instruments.name(2, *b"2330    ");
        let all: Vec<_> = instruments.iter().collect();
        let [(2, "2330", latency)] = all[..] else { panic!("{all:?}") };
        let offset_ns = -2_000;
        assert_eq!(latency.count, 3);
        assert_eq!(latency.smallest_ns(offset_ns), 1_000);
        assert_eq!((latency.mean_ns(offset_ns), latency.largest_ns(offset_ns)), (6_000, 12_000));
    }
}
