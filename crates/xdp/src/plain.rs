//! A ring over plain memory with both ends in user space, for tests and benchmarks.

use std::sync::Arc;

use crate::mmap::Mapping;
use crate::ring::{Consumer, Layout, Producer};

/// Both ends of a ring with the given indexes.
pub(super) fn plain<T: Copy>(
    size: u32,
    producer: u32,
    consumer: u32,
) -> (Producer<T>, Consumer<T>) {
    let layout = Layout { producer: 0, consumer: 64, flags: 128, slots: 192 };
    let len_bytes = layout.slots + size as usize * size_of::<T>();
    let mapping = Arc::new(Mapping::anonymous(len_bytes).expect("memory for a ring"));
    for (at, index) in [(layout.producer, producer), (layout.consumer, consumer)] {
        // SAFETY: the place is in the mapping, aligned, and not shared yet.
        unsafe { mapping.at(at, size_of::<u32>()).cast().write(index) };
    }
    (Producer::new(mapping.clone(), layout, size), Consumer::new(mapping, layout, size))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn full_ring_gives_the_entry_back() {
        let (mut producer, mut consumer) = plain::<u64>(4, 0, 0);
        for n in 0..4 {
            producer.push(n).unwrap();
        }
        assert_eq!(producer.push(9), Err(9));
        producer.publish();
        assert_eq!(consumer.take(), Some(0));
        assert_eq!(producer.push(9), Err(9), "taken but not released yet");
        consumer.release();
        assert_eq!(producer.push(9), Ok(()));
    }

    #[test]
    fn nothing_is_seen_before_it_is_published() {
        let (mut producer, mut consumer) = plain::<u64>(4, 0, 0);
        producer.push(1).unwrap();
        assert_eq!(consumer.take(), None);
        producer.publish();
        assert_eq!(consumer.take(), Some(1));
    }

    #[test]
    fn an_index_that_runs_ahead_never_yields_more_than_the_ring_holds() {
        let (_, mut consumer) = plain::<u64>(8, 1_000_000, 0);
        assert_eq!(consumer.ready(64), 8);
        let (mut producer, _) = plain::<u64>(8, 0, 77);
        assert_eq!(producer.room(9), 0, "the consumer cannot be ahead of us");
    }

    /// Miri takes its time.
    const ENTRIES: u64 = if cfg!(miri) { 400 } else { 200_000 };
    const CASES: u32 = if cfg!(miri) { 4 } else { 256 };

    #[test]
    fn two_threads_pass_every_entry_in_order() {
        let (mut producer, mut consumer) = plain::<u64>(64, u32::MAX - 200, u32::MAX - 200);
        let sender = std::thread::spawn(move || {
            for n in 0..ENTRIES {
                while producer.push(n).is_err() {
                    producer.publish();
                    std::thread::yield_now();
                }
                if n % 7 == 0 {
                    producer.publish();
                }
            }
            producer.publish();
        });
        let mut expected = 0;
        while expected < ENTRIES {
            match consumer.take() {
                Some(n) => {
                    assert_eq!(n, expected);
                    expected += 1;
                }
                None => std::thread::yield_now(),
            }
            consumer.release();
        }
        sender.join().unwrap();
    }

    /// Pushes, publications, takes and releases behave like those of a bounded queue.
    fn like_a_bounded_queue(size: u32, start: u32, steps: impl IntoIterator<Item = u8>) {
        let (mut producer, mut consumer) = plain::<u64>(size, start, start);
        let (mut pushed, mut visible, mut held) = (VecDeque::new(), VecDeque::new(), 0usize);
        for (step, n) in steps.into_iter().zip(0..) {
            match step {
                0 => {
                    let is_full = pushed.len() + visible.len() + held == size as usize;
                    assert_eq!(producer.push(n).is_err(), is_full);
                    if !is_full {
                        pushed.push_back(n);
                    }
                }
                1 => {
                    producer.publish();
                    visible.append(&mut pushed);
                }
                2 => {
                    let got = consumer.take();
                    held += usize::from(got.is_some());
                    assert_eq!(got, visible.pop_front());
                }
                _ => {
                    consumer.release();
                    held = 0;
                }
            }
        }
    }

    /// Every sequence of eight steps, over the wrap of the index.
    #[test]
    fn every_short_sequence_behaves_like_a_bounded_queue() {
        let steps: u32 = if cfg!(miri) { 3 } else { 8 };
        for size in [1, 2] {
            for sequence in 0..1u32 << (2 * steps) {
                like_a_bounded_queue(
                    size,
                    u32::MAX - 1,
                    (0..steps).map(|n| (sequence >> (2 * n) & 3) as u8),
                );
            }
        }
    }

    /// Wherever the other side's index is, no more entries are ready, and no more slots free, than there are.
    #[test]
    fn no_index_of_the_other_side_leads_out_of_the_ring() {
        let powers = (0..32).map(|bit| 1u32 << bit);
        let near = (0..=33).flat_map(|n: u32| [n, n.wrapping_neg()]);
        let ahead: Vec<u32> = powers.chain(near).collect();
        for size in (0..=5).map(|bit| 1u32 << bit) {
            for (start, ahead) in
                [0, 7, u32::MAX].iter().flat_map(|s| ahead.iter().map(|a| (*s, *a)))
            {
                let (mut producer, mut consumer) =
                    plain::<u64>(size, start, start.wrapping_sub(ahead));
                let used = ahead.min(size);
                assert_eq!(producer.room(size), size - used);
                assert_eq!(producer.outstanding(), used);
                assert_eq!(consumer.ready(size), used);
                let taken = std::iter::from_fn(|| consumer.take()).take(2 * size as usize).count();
                assert_eq!(taken as u32, ahead.min(2 * size));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(CASES))]

        /// From any index, over the wrap.
        #[test]
        fn a_ring_behaves_like_a_bounded_queue(
            start in prop_oneof![Just(0u32), Just(u32::MAX - 3), any::<u32>()],
            steps in proptest::collection::vec(0u8..4, 1..400),
        ) {
            like_a_bounded_queue(8, start, steps);
        }
    }
}
