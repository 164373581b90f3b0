use proptest::prelude::*;

use super::driver::{MAC, RING_LEN, STYLES, Station, frame};
use crate::lance::{Reception, fuzzing, status};

proptest! {
    #[test]
    fn hostile_streams_of_operations_break_nothing(
        bytes in prop::collection::vec(any::<u8>(), 0..2000)
    ) {
        fuzzing::run(&bytes);
    }

    #[test]
    fn any_split_of_a_frame_goes_out_whole(
        style in prop::sample::select(STYLES.to_vec()),
        len in 60usize..1515,
        cuts in prop::collection::vec(1usize..1514, 0..RING_LEN as usize - 1),
        skip in 0..RING_LEN,
    ) {
        let mut station = Station::started(style, 0);
        for _ in 0..skip {
            station.tx_put(&[&[0xff; 60]], 0);
            station.kick();
        }
        station.wire.frames.clear();
        let frame = frame([0xff; 6], len);
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|&cut| cut < len).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let mut parts = Vec::new();
        let mut rest = &frame[..];
        for cut in cuts.into_iter().rev() {
            let (head, tail) = rest.split_at(cut);
            parts.insert(0, tail);
            rest = head;
        }
        parts.insert(0, rest);
        station.tx_put(&parts, 0);
        station.kick();
        prop_assert_eq!(&station.wire.frames, &[frame]);
    }

    #[test]
    fn received_bytes_are_in_the_buffers_in_order_whatever_their_sizes(
        style in prop::sample::select(STYLES.to_vec()),
        len in 60usize..1515,
        sizes in prop::array::uniform4(1usize..2048),
    ) {
        let mut station = Station::started(style, 0);
        for (i, &size) in sizes.iter().enumerate() {
            station.rx_post(i as u32, size);
        }
        let frame = frame(MAC, len);
        let mut message = frame.clone();
        message.extend(crc32fast::hash(&frame).to_le_bytes());
        prop_assert_eq!(station.receive(&frame), Reception::Stored);
        let mut found = Vec::new();
        let mut end = None;
        for (i, &size) in sizes.iter().enumerate() {
            let (bits, extra) = station.descriptor(station.rx_at(i as u32));
            if bits & status::OWN != 0 {
                break;
            }
            prop_assert_eq!(bits & status::STP != 0, i == 0);
            let len = (message.len() - found.len()).min(size);
            found.extend(station.rx_buffer(i as u32, len));
            end = Some((bits, extra));
        }
        let (bits, extra) = end.expect("one descriptor at least");
        let fits = sizes.iter().sum::<usize>() >= message.len();
        prop_assert_eq!(bits & status::ENP != 0, fits);
        prop_assert_eq!(bits & status::BUFF != 0, !fits);
        prop_assert_eq!(&found[..], &message[..found.len()]);
        if fits {
            prop_assert_eq!((found.len(), extra as usize), (message.len(), message.len()));
        }
    }
}
