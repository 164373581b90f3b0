//! A ring over plain memory with both ends in user space, for tests and benchmarks.

use std::sync::Arc;

use super::ring::{Consumer, Layout, Producer};
use crate::mmap::Mapping;

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

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(CASES))]

        /// Any mix of pushes, publications, takes and releases behaves like a bounded queue,
        /// from any starting index, across the wrap.
        #[test]
        fn a_ring_behaves_like_a_bounded_queue(
            start in prop_oneof![Just(0u32), Just(u32::MAX - 3), any::<u32>()],
            steps in proptest::collection::vec(0u8..4, 1..400),
        ) {
            let (mut producer, mut consumer) = plain::<u64>(8, start, start);
            let (mut pushed, mut visible, mut held) = (VecDeque::new(), VecDeque::new(), 0usize);
            for (n, step) in steps.into_iter().enumerate() {
                let n = n as u64;
                match step {
                    0 => {
                        let full = pushed.len() + visible.len() + held == 8;
                        prop_assert_eq!(producer.push(n).is_err(), full);
                        if !full {
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
                        prop_assert_eq!(got, visible.pop_front());
                    }
                    _ => {
                        consumer.release();
                        held = 0;
                    }
                }
            }
        }
    }
}
