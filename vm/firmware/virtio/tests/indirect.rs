//! Frames sent as a table of two descriptors, through one slot of either ring.

mod common;

use common::*;
use wirepath_virtio::fake::{Behaviour, RX, TX};
use wirepath_virtio::net::{FRAME_BYTES_MAX, HEADER_BYTES, Settings};

/// Tables in both kinds of ring.
fn with_tables() -> impl Iterator<Item = Settings> {
    every().filter(|settings| settings.indirect)
}

fn late(queue_frames_max: u32) -> Behaviour {
    Behaviour { sends_at_once: false, queue_frames_max, ..Behaviour::default() }
}

#[test]
fn header_and_frame_are_two_buffers_behind_one_slot() {
    for settings in with_tables() {
        let (device, mut driver) = started(late(4), settings);
        for len in [14, 60, FRAME_BYTES_MAX] {
            assert!(send(&mut driver, &vec![len as u8; len]));
            assert_eq!(driver.tx_posted(), 1, "one slot");
            let id = device.take_available(TX).expect("it is there");
            let parts = device.parts(TX, id);
            assert_eq!(parts.len(), 2);
            let ((header, header_bytes), (frame, frame_bytes)) = (parts[0], parts[1]);
            assert_eq!((header_bytes, frame_bytes), (HEADER_BYTES, len));
            assert_ne!(header + HEADER_BYTES, frame, "header and frame are contiguous");
            device.complete(TX, id, 0);
            assert_eq!(driver.tx_reap(), (1, None));
        }
        assert_eq!(driver.notify_stats().tx_table_count, 3);
        assert_ledger_balances(&device, &driver);
    }
}

#[test]
fn ring_of_two_slots_holds_two_frames_of_two_parts_each() {
    for settings in with_tables() {
        let (device, mut driver) = started(late(2), settings);
        for turn in 0..1000_u32 {
            let frame = |more: u32| [&(turn + more).to_be_bytes()[..], &[9; 40]].concat();
            assert!(send(&mut driver, &frame(0)) && send(&mut driver, &frame(1)));
            assert!(!send(&mut driver, &frame(2)), "it is full");
            device.send_waiting(|waiting| waiting - 1);
            assert_eq!(
                (driver.tx_reap(), device.take_sent()),
                ((2, None), vec![frame(0), frame(1)])
            );
        }
        assert_ledger_balances(&device, &driver);
    }
}

#[test]
fn received_frame_is_sent_on_without_a_copy() {
    for settings in with_tables() {
        let (device, mut driver) = started(Behaviour::default(), settings);
        for number in 0..1000_u32 {
            let frame = [&number.to_be_bytes()[..], &vec![3; number as usize]].concat();
            let frame = if frame.len() < 14 { [frame, vec![0; 14]].concat() } else { frame };
            assert!(device.receive(&frame));
            let received = driver.rx_take().expect("it is there").expect("it is good");
            // The device wrote its own header in front of it: that one is not sent.
            driver.tx_post(received.frame, received.len_bytes).expect("there is room");
            driver.tx_kick();
            driver.rx_refill();
            driver.rx_kick();
            assert_eq!((driver.tx_reap(), device.take_sent()), ((1, None), vec![frame]));
        }
        assert_eq!(device.owned_count(RX), 256);
        assert_ledger_balances(&device, &driver);
    }
}

#[test]
fn table_of_a_frame_in_flight_is_not_written() {
    for settings in with_tables() {
        let (device, mut driver) = started(late(256), settings);
        let frame = |number: u16| vec![number as u8; 20 + usize::from(number)];
        for number in 0..200 {
            assert!(send(&mut driver, &frame(number)));
        }
        let ids: Vec<u16> = (0..200).filter_map(|_| device.take_available(TX)).collect();
        // Every second one completes and is sent again, with another length.
        for id in ids.iter().skip(1).step_by(2) {
            device.complete(TX, *id, 0);
        }
        assert_eq!(driver.tx_reap(), (100, None));
        for _ in 0..100 {
            assert!(send(&mut driver, &[0xee; 700]));
        }
        for (number, id) in ids.iter().enumerate().step_by(2) {
            assert_eq!(device.parts(TX, *id)[1].1, 20 + number, "frame {number}");
            device.complete(TX, *id, 0);
        }
        device.send_waiting(|_| 0);
        assert!(device.take_sent().iter().all(|sent| *sent == [0xee; 700]));
        assert_eq!(driver.tx_reap(), (200, None));
        assert_ledger_balances(&device, &driver);
    }
}

#[test]
fn device_that_does_not_offer_tables_gets_none() {
    let offered = Behaviour::default().offered & !wirepath_virtio::mmio::FEATURE_INDIRECT_DESC;
    for settings in with_tables() {
        let (device, mut driver) = started(Behaviour { offered, ..Behaviour::default() }, settings);
        assert!(!driver.has_indirect());
        // The fake panics at a table that was not negotiated.
        assert!(send(&mut driver, &[5; 60]));
        assert_eq!(
            (device.take_sent(), driver.notify_stats().tx_table_count),
            (vec![vec![5; 60]], 0)
        );
    }
}
