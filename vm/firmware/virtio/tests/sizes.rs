//! Rings and pools of other sizes than the largest, in memory that just suffices.

mod common;

use common::{PLAIN, every, send, take};
use wirepath_virtio::StartError;
use wirepath_virtio::fake::{Behaviour, FakeDevice};
use wirepath_virtio::net::{NetDriver, Settings, memory_bytes, pool_frames};

#[test]
fn small_rings_receive_and_send_in_the_memory_they_need() {
    for ring_frames in [2, 3, 8, 20, 64] {
        for settings in every() {
            let settings = Settings { ring_frames, ..settings };
            let (device, registers, memory) =
                FakeDevice::with_memory(Behaviour::default(), memory_bytes(ring_frames));
            let mut driver = NetDriver::start(registers, memory, settings).expect("it starts");
            for turn in 0..300_u16 {
                let frame = [turn as u8; 1514];
                assert!(device.receive(&frame), "{settings:?}, turn {turn}");
                assert_eq!(take(&mut driver), Some(Ok(frame.to_vec())));
                assert!(send(&mut driver, &frame[..60]));
                assert_eq!(device.take_sent(), [&frame[..60]]);
                assert_eq!(driver.tx_reap(), (1, None));
            }
            let ledger = driver.ledger();
            let expected = (pool_frames(ring_frames) as u32, 0);
            assert_eq!((ledger.total(), ledger.held_count), expected, "{settings:?}");
        }
    }
}

#[test]
fn size_beyond_the_supported_ones_becomes_the_nearest() {
    for (ring_frames, expected) in [(0, 2), (1, 2), (300, 256)] {
        let (_device, registers, memory) = FakeDevice::new(Behaviour::default());
        let settings = Settings { ring_frames, ..PLAIN };
        let driver = NetDriver::start(registers, memory, settings).expect("it starts");
        assert_eq!(driver.ring_frames(), (expected, expected));
    }
}

#[test]
fn memory_for_smaller_rings_is_refused_with_the_size_needed() {
    let given_bytes = memory_bytes(64);
    let (_device, registers, memory) = FakeDevice::with_memory(Behaviour::default(), given_bytes);
    let settings = Settings { ring_frames: 65, ..PLAIN };
    let refused = NetDriver::start(registers, memory, settings).err();
    let needed_bytes = memory_bytes(65);
    assert_eq!(refused, Some(StartError::Memory { needed_bytes, given_bytes }));
}

#[test]
fn frame_is_found_by_its_number_only_while_it_is_held() {
    let (_device, registers, memory) = FakeDevice::new(Behaviour::default());
    let mut driver = NetDriver::start(registers, memory, PLAIN).expect("it starts");
    let number = driver.take_free().expect("some are free").number();
    let frame = driver.held(number).expect("it is held");
    driver.free(frame);
    for other in [number, 0, u16::MAX] {
        assert_eq!(driver.held(other), None, "{other}");
    }
}
