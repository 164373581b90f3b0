//! Quality of service: a token bucket, queues of strict priority with tail drop, and the class of a
//! frame. The caller passes the time.

use std::collections::VecDeque;

use wire::ethernet;

use super::inner;
use super::order::Frame;

/// Maximum burst of a bucket, in bytes; limited because credit is kept in bits times nanoseconds.
pub const BURST_BYTES_MAX: u64 = 256 << 20;
/// Maximum rate of a bucket, in bits per second.
pub const RATE_BITS_PER_S_MAX: u64 = 1_000_000_000_000;
/// Maximum number of classes.
pub const CLASS_COUNT_MAX: usize = 8;

const NS_PER_S: u64 = 1_000_000_000;

/// Token bucket: a rate in bits per second with a burst.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    rate_bits_per_s: u64,
    /// Maximum and current credit, in bits times 10⁹; below zero after frames on credit.
    credit_max: i64,
    credit: i64,
    last_ns: u64,
}

impl TokenBucket {
    /// A full bucket.
    ///
    /// - `rate_bits_per_s`: 1 to [`RATE_BITS_PER_S_MAX`], clamped to that range.
    /// - `burst_bytes`: 1 to [`BURST_BYTES_MAX`], likewise. A frame larger than the burst never
    ///   passes.
    pub fn new(rate_bits_per_s: u64, burst_bytes: u64, now_ns: u64) -> TokenBucket {
        let credit_max = price(burst_bytes.clamp(1, BURST_BYTES_MAX));
        TokenBucket {
            rate_bits_per_s: rate_bits_per_s.clamp(1, RATE_BITS_PER_S_MAX),
            credit_max,
            credit: credit_max,
            last_ns: now_ns,
        }
    }

    /// Takes credit for `bytes`. Returns false if there is not enough.
    #[inline]
    pub fn take(&mut self, bytes: u64, now_ns: u64) -> bool {
        self.take_copies(bytes, 1, now_ns)
    }

    /// Takes credit for copies of `bytes` each. Returns false if there is not enough for one: the others
    /// may be on credit, which later frames pay, so that a frame for many tunnels does not need a burst
    /// that holds them all.
    #[inline]
    pub fn take_copies(&mut self, bytes: u64, copies: u16, now_ns: u64) -> bool {
        self.fill(now_ns);
        let price = price(bytes);
        let has = price <= self.credit;
        if has {
            self.credit = self.credit.saturating_sub(price.saturating_mul(copies.into()));
        }
        has
    }

    /// Earliest time for `bytes` if nothing else is sent; `None` for never.
    pub fn ready_ns(&self, bytes: u64) -> Option<u64> {
        let price = price(bytes);
        if price > self.credit_max {
            return None;
        }
        let missing = price.saturating_sub(self.credit).max(0).unsigned_abs();
        Some(self.last_ns.saturating_add(missing.div_ceil(self.rate_bits_per_s)))
    }

    /// Largest frame that ever passes.
    fn burst_bytes(&self) -> u64 {
        self.credit_max.unsigned_abs() / (8 * NS_PER_S)
    }

    #[inline]
    fn fill(&mut self, now_ns: u64) {
        // A clock that runs backwards neither adds nor removes credit.
        let elapsed_ns = now_ns.saturating_sub(self.last_ns);
        self.last_ns = self.last_ns.max(now_ns);
        let gained = elapsed_ns.saturating_mul(self.rate_bits_per_s);
        self.credit = self.credit.saturating_add_unsigned(gained).min(self.credit_max);
    }
}

/// Credit for a frame.
#[inline]
fn price(bytes: u64) -> i64 {
    i64::try_from(bytes.saturating_mul(8 * NS_PER_S)).unwrap_or(i64::MAX)
}

/// Bounds of a class's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueSpec {
    /// Above it, arriving frames are dropped.
    pub frame_count_max: usize,
    /// Of whole frames; above it, arriving ones are dropped.
    pub byte_count_max: u64,
}

/// A class's queue with its counters.
#[derive(Debug, Clone)]
struct Queue {
    spec: QueueSpec,
    frames: VecDeque<Frame>,
    byte_count: u64,
    counts: ClassCounts,
}

/// Counters of a class.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ClassCounts {
    /// Frames queued.
    pub queued_count: u64,
    /// Frames dropped because the queue was full.
    pub tail_drop_count: u64,
    /// Frames sent.
    pub sent_count: u64,
}

/// Strict-priority queues behind one shaper; class 0 has the highest priority.
#[derive(Debug, Clone)]
pub struct Shaper {
    bucket: Option<TokenBucket>,
    /// Bytes on the wire per frame beyond the frame's own.
    overhead_bytes: u64,
    queues: Box<[Queue]>,
}

impl Shaper {
    /// Empty queues, allocated to their bounds.
    ///
    /// - `bucket`: `None` for no limit.
    /// - `overhead_bytes`: 24 to shape to an Ethernet line rate (preamble, FCS, gap).
    /// - `classes`: 1 to [`CLASS_COUNT_MAX`]; more are ignored; none means one queue of size 0.
    pub fn new(bucket: Option<TokenBucket>, overhead_bytes: u16, classes: &[QueueSpec]) -> Shaper {
        let queues = classes.iter().take(CLASS_COUNT_MAX).map(|spec| Queue {
            spec: *spec,
            frames: VecDeque::with_capacity(spec.frame_count_max.min(1 << 16)),
            byte_count: 0,
            counts: ClassCounts::default(),
        });
        Shaper { bucket, overhead_bytes: overhead_bytes.into(), queues: queues.collect() }
    }

    /// Queues a frame by its class; an unknown class means the last one. Errors: the frame, if the
    /// queue is full.
    #[inline]
    pub fn enqueue(&mut self, frame: Frame) -> Result<(), Frame> {
        let last = self.queues.len().saturating_sub(1);
        let class = usize::from(frame.class()).min(last);
        let Some(queue) = self.queues.get_mut(class) else { return Err(frame) };
        let byte_count = queue.byte_count + u64::from(frame.len_bytes());
        let is_full = queue.frames.len() >= queue.spec.frame_count_max
            || byte_count > queue.spec.byte_count_max;
        if is_full {
            queue.counts.tail_drop_count += 1;
            return Err(frame);
        }
        queue.frames.push_back(frame);
        queue.byte_count = byte_count;
        queue.counts.queued_count += 1;
        Ok(())
    }

    /// Next frame if there is credit for it: the head of the first class with queued frames. A
    /// smaller frame of a later class never overtakes it.
    #[inline]
    pub fn dequeue(&mut self, now_ns: u64) -> Option<Frame> {
        let queue = self.queues.iter_mut().find(|queue| !queue.frames.is_empty())?;
        let frame = *queue.frames.front()?;
        let bytes = u64::from(frame.len_bytes()) + self.overhead_bytes;
        if let Some(bucket) = &mut self.bucket
            && !bucket.take(bytes.min(bucket.burst_bytes()), now_ns)
        {
            return None;
        }
        queue.frames.pop_front();
        queue.byte_count -= u64::from(frame.len_bytes());
        queue.counts.sent_count += 1;
        Some(frame)
    }

    /// Removes all queued frames, first class first.
    pub fn take_all(&mut self) -> Vec<Frame> {
        let waiting = self.queues.iter_mut().flat_map(|queue| {
            queue.byte_count = 0;
            queue.frames.drain(..)
        });
        waiting.collect()
    }

    /// Earliest time of the next frame; `None` if the queues are empty.
    pub fn ready_ns(&self) -> Option<u64> {
        let frame = self.queues.iter().find_map(|queue| queue.frames.front())?;
        let bytes = u64::from(frame.len_bytes()) + self.overhead_bytes;
        match &self.bucket {
            Some(bucket) => bucket.ready_ns(bytes.min(bucket.burst_bytes())),
            None => Some(0),
        }
    }

    /// Queued frames.
    pub fn frame_count(&self) -> usize {
        self.queues.iter().map(|queue| queue.frames.len()).sum()
    }

    /// Counters, class by class.
    pub fn counts(&self) -> impl Iterator<Item = ClassCounts> + '_ {
        self.queues.iter().map(|queue| queue.counts)
    }
}

/// Assignment of frames to classes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classifier {
    by_dscp: [u8; 64],
    by_priority: [u8; 8],
    other: u8,
}

impl Classifier {
    /// Assigns all frames to class `other`.
    pub fn new(other: u8) -> Classifier {
        Classifier { by_dscp: [other; 64], by_priority: [other; 8], other }
    }

    /// Assigns IP packets of a DSCP to a class. A DSCP above 63 is ignored.
    pub fn set_dscp(&mut self, dscp: u8, class: u8) {
        if let Some(entry) = self.by_dscp.get_mut(usize::from(dscp)) {
            *entry = class;
        }
    }

    /// Assigns frames of a VLAN priority (0 to 7) to a class, unless they are IP.
    pub fn set_priority(&mut self, priority: u8, class: u8) {
        if let Some(entry) = self.by_priority.get_mut(usize::from(priority)) {
            *entry = class;
        }
    }

    /// Class of an Ethernet frame: by its DSCP if it is IP, else by the priority of its VLAN tag.
    #[inline]
    pub fn class(&self, frame: &[u8]) -> u8 {
        if let Some(service) = inner::ip(frame).and_then(|ip| ip.service(frame)) {
            return self.by_dscp[usize::from(service.service >> 2)];
        }
        match inner::word(frame, ethernet::TYPE_OFFSET) {
            Some(ethernet::TYPE_VLAN | ethernet::TYPE_PROVIDER_VLAN) => {
                let tag = inner::word(frame, ethernet::HEADER_BYTES).unwrap_or(0);
                self.by_priority[usize::from(tag >> 13)]
            }
            _ => self.other,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = NS_PER_S;

    fn frame(index: u32, len_bytes: u16, class: u8) -> Frame {
        Frame::new(index, 0, len_bytes, class)
    }

    fn queue(frame_count_max: usize) -> QueueSpec {
        QueueSpec { frame_count_max, byte_count_max: u64::MAX }
    }

    #[test]
    fn burst_passes_at_once_and_then_the_rate_applies() {
        let mut bucket = TokenBucket::new(8_000, 3_000, 0);
        assert_eq!(
            (0..4).map(|_| bucket.take(1_000, 0)).collect::<Vec<_>>(),
            [true, true, true, false]
        );
        assert_eq!(bucket.ready_ns(1_000), Some(SECOND));
        assert!(!bucket.take(1_000, SECOND - 1));
        assert!(bucket.take(1_000, SECOND));
        assert!(!bucket.take(1, SECOND));
    }

    #[test]
    fn credit_accumulates_up_to_the_burst() {
        let mut bucket = TokenBucket::new(1_000_000_000, 2_000, 0);
        assert!(bucket.take(2_000, u64::MAX / 2));
        assert!(!bucket.take(1, u64::MAX / 2));
        assert_eq!(bucket.ready_ns(2_001), None);
    }

    #[test]
    fn copies_beyond_the_burst_are_on_credit_that_later_frames_pay() {
        // 1,000 bytes a second, of which the bucket holds 1,500.
        let mut bucket = TokenBucket::new(8_000, 1_500, 0);
        assert!(bucket.take_copies(1_000, 5, 0));
        assert!(!bucket.take_copies(1_000, 5, 4 * SECOND), "500 bytes are there");
        assert!(!bucket.take(1_000, 4 * SECOND));
        assert_eq!(bucket.ready_ns(1_000), Some(4 * SECOND + SECOND / 2));
        assert!(bucket.take_copies(1_000, 2, 5 * SECOND));
        // No debt is too large to be noted, and none overflows.
        assert!(bucket.take_copies(1_500, u16::MAX, 100 * SECOND));
        assert!(!bucket.take(1, 1_000 * SECOND));
        assert!(bucket.take_copies(1_500, 1, u64::MAX));
    }

    #[test]
    fn backward_clock_neither_adds_nor_removes_credit() {
        let mut bucket = TokenBucket::new(8_000, 1_000, 10 * SECOND);
        assert!(bucket.take(1_000, 10 * SECOND));
        assert!(!bucket.take(1, 0));
        assert!(!bucket.take(1_000, 10 * SECOND), "the second is not credited twice");
        assert!(bucket.take(1_000, 11 * SECOND));
    }

    #[test]
    fn extremes_of_rate_and_burst_do_not_overflow() {
        let mut bucket = TokenBucket::new(u64::MAX, u64::MAX, 0);
        assert!(bucket.take(BURST_BYTES_MAX, u64::MAX));
        assert!(!bucket.take(u64::MAX, u64::MAX));
        let mut bucket = TokenBucket::new(0, 0, 0);
        assert!(bucket.take(1, 0) && !bucket.take(1, SECOND));
        assert_eq!(bucket.ready_ns(1), Some(8 * SECOND));
    }

    #[test]
    fn classes_have_strict_priority_and_keep_their_order() {
        let mut shaper = Shaper::new(None, 0, &[queue(9), queue(9)]);
        for (index, class) in [(1, 1), (2, 0), (3, 7), (4, 0)] {
            shaper.enqueue(frame(index, 60, class)).expect("there is room");
        }
        assert_eq!(shaper.ready_ns(), Some(0));
        let order: Vec<_> = std::iter::from_fn(|| shaper.dequeue(0)).map(Frame::index).collect();
        assert_eq!(order, [2, 4, 1, 3]);
        assert_eq!((shaper.frame_count(), shaper.ready_ns()), (0, None));
    }

    #[test]
    fn full_queue_returns_the_frame_and_counts_it() {
        let bytes = QueueSpec { frame_count_max: 9, byte_count_max: 100 };
        let mut shaper = Shaper::new(None, 0, &[queue(1), bytes]);
        assert_eq!(shaper.enqueue(frame(1, 60, 0)), Ok(()));
        assert_eq!(shaper.enqueue(frame(2, 60, 0)), Err(frame(2, 60, 0)));
        assert_eq!(shaper.enqueue(frame(3, 60, 1)), Ok(()));
        assert_eq!(shaper.enqueue(frame(4, 41, 1)), Err(frame(4, 41, 1)));
        assert_eq!(shaper.enqueue(frame(5, 40, 1)), Ok(()));
        shaper.dequeue(0);
        let counts: Vec<_> = shaper.counts().collect();
        assert_eq!(counts[0], ClassCounts { queued_count: 1, tail_drop_count: 1, sent_count: 1 });
        assert_eq!(counts[1], ClassCounts { queued_count: 2, tail_drop_count: 1, sent_count: 0 });
        assert_eq!(Shaper::new(None, 0, &[]).enqueue(frame(1, 60, 0)), Err(frame(1, 60, 0)));
    }

    #[test]
    fn small_frame_of_a_later_class_does_not_overtake_a_waiting_large_one() {
        let bucket = TokenBucket::new(8_000, 1_000, 0);
        let mut shaper = Shaper::new(Some(bucket), 24, &[queue(9), queue(9)]);
        for (index, len_bytes, class) in [(1, 476, 0), (2, 600, 0), (3, 10, 1)] {
            shaper.enqueue(frame(index, len_bytes, class)).expect("there is room");
        }
        assert_eq!(shaper.dequeue(0).map(Frame::index), Some(1));
        assert_eq!(shaper.dequeue(0), None);
        // 500 bytes of credit are left; 624 are needed, at 1000 bytes a second.
        assert_eq!(shaper.ready_ns(), Some(124_000_000));
        assert_eq!(shaper.dequeue(123_999_999), None);
        assert_eq!(shaper.dequeue(124_000_000).map(Frame::index), Some(2));
    }

    #[test]
    fn frame_larger_than_the_burst_costs_the_whole_burst() {
        let bucket = TokenBucket::new(8_000, 100, 0);
        let mut shaper = Shaper::new(Some(bucket), 0, &[queue(9)]);
        shaper.enqueue(frame(1, 1500, 0)).expect("there is room");
        assert!(shaper.dequeue(0).is_some(), "otherwise it would block its class forever");
    }

    #[test]
    fn class_comes_from_dscp_then_tag_then_default() {
        let mut classifier = Classifier::new(3);
        classifier.set_dscp(46, 0);
        classifier.set_dscp(64, 1);
        classifier.set_priority(5, 1);
        let mut packet = [0; 34];
        (packet[12], packet[14], packet[15]) = (0x08, 0x45, 46 << 2 | 3);
        assert_eq!(classifier.class(&packet), 0);
        packet[15] = 0;
        assert_eq!(classifier.class(&packet), 3);
        let arp = |tag: &[u8]| [&[2; 12][..], tag, &[0x08, 0x06, 0, 1]].concat();
        assert_eq!(classifier.class(&arp(&[0x81, 0x00, 0xa0, 0x05])), 1);
        assert_eq!(classifier.class(&arp(&[])), 3);
        assert_eq!(classifier.class(&[]), 3);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn no_interval_passes_more_than_burst_and_rate(
            rate in 1_000u64..10_000_000_000,
            burst in 64u64..100_000,
            steps in prop::collection::vec((0u64..2_000_000, 1u64..2_000), 1..300),
        ) {
            let mut bucket = TokenBucket::new(rate, burst, 0);
            let (mut now_ns, mut passed_bytes) = (0u64, 0u64);
            for (later_ns, bytes) in steps {
                now_ns += later_ns;
                let ready_ns = bucket.ready_ns(bytes);
                let took = bucket.take(bytes, now_ns);
                prop_assert_eq!(took, ready_ns.is_some_and(|ready| ready <= now_ns));
                passed_bytes += if took { bytes } else { 0 };
                let allowed = u128::from(burst) * 8 * u128::from(NS_PER_S)
                    + u128::from(now_ns) * u128::from(rate);
                prop_assert!(u128::from(passed_bytes) * 8 * u128::from(NS_PER_S) <= allowed);
            }
        }

        #[test]
        fn every_frame_is_sent_queued_or_returned(
            steps in prop::collection::vec((any::<bool>(), 0u8..4, 1u16..1500), 0..300),
        ) {
            let mut shaper = Shaper::new(None, 0, &[queue(5), queue(7), queue(3)]);
            let (mut offered, mut dropped, mut sent) = (0, 0, 0);
            for (index, (put, class, len)) in steps.into_iter().enumerate() {
                if put {
                    offered += 1;
                    dropped += u64::from(shaper.enqueue(frame(index as u32, len, class)).is_err());
                } else {
                    sent += u64::from(shaper.dequeue(0).is_some());
                }
            }
            prop_assert_eq!(offered, dropped + sent + shaper.frame_count() as u64);
            let total: u64 = shaper.counts().map(|c| c.tail_drop_count + c.queued_count).sum();
            prop_assert_eq!(total, offered);
        }
    }
}
