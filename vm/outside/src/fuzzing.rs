//! Oracle of the fuzz target `qemu_log`.

use crate::counts::OutsideCounts;
use crate::qemu::LogReader;

/// A log reads the same in one piece and in pieces; its frames are no more than its lines, its timeline is JSON.
pub fn log(bytes: &[u8]) {
    let (mut whole, mut pieces) = (LogReader::default(), LogReader::default());
    whole.push(bytes);
    bytes.chunks(7).for_each(|piece| pieces.push(piece));
    assert_eq!(whole.book.cards(), pieces.book.cards());
    assert_eq!(whole.book.counts, pieces.book.counts);
    let line_count = bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
    for card in whole.book.cards() {
        assert!(card.frames_to_guest_count + card.frames_from_guest_count <= line_count);
    }
    let mut counts = OutsideCounts { baud: 9600, ..OutsideCounts::default() };
    counts.take_log(whole.book, 0);
    assert!(counts.figures().values().all(|figure| figure.is_finite()));
    assert!(counts.segments().values().all(|stage| stage.len() <= line_count));
    serde_json::from_str::<serde_json::Value>(&counts.timeline()).expect("it is JSON");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    #[test]
    fn corpus_of_logs_holds() {
        testkit::corpus::replay("qemu_log", super::log);
    }

    proptest! {
        /// Words of the log in any order.
        #[test]
        fn no_order_of_events_breaks_it(lines in proptest::collection::vec(
            prop_oneof![
                "1@[0-9]{1,3}\\.00000[0-9]:virtio_queue_notify vdev 0x[12] n [0-3] vq 0x[1-4]",
                "1@[0-9]{1,3}\\.00000[0-9]:virtqueue_pop vq 0x[1-4] elem 0x[1-4] in_num [01] out_num [01]",
                "1@[0-9]{1,3}\\.00000[0-9]:virtqueue_fill vq 0x[1-4] elem 0x[1-4] len 0 idx [01]",
                "virtqueue_fill vq 0x[1-4] elem 0x[1-4] len 0 idx [0-9]{1,20}",
                "virtio_notify vdev 0x[12] vq 0x[1-4]",
                "serial_write write addr 0x0[03] val 0x[08]3",
            ], 0..60))
        {
            super::log((lines.join("\n") + "\n").as_bytes());
        }
    }
}
