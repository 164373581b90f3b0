//! The known traps of driver design, each against a device that sets it.
//!
//! Numbers are those of the list in vm/docs/internals-firmware.md.

mod common;

use common::*;
use wirepath_virtio::fake::{Access, Behaviour, FakeDevice, FakeMemory, RX, TX};
use wirepath_virtio::mmio::{
    FEATURE_EVENT_IDX, FEATURE_INDIRECT_DESC, FEATURE_RING_PACKED, FEATURE_VERSION_1, status,
};
use wirepath_virtio::net::{FRAME_BYTES_MAX, HEADER_BYTES, NetDriver, POOL_FRAMES, Settings};
use wirepath_virtio::ring::need_event;
use wirepath_virtio::split::AVAIL_NO_INTERRUPT;
use wirepath_virtio::{DeviceFault, StartError};

// 1: completions are identified by their id.

#[test]
fn trap_1_completions_out_of_order_free_the_right_frames() {
    for settings in every() {
        let behaviour = Behaviour { sends_at_once: false, ..Behaviour::default() };
        let (device, mut driver) = started(behaviour, settings);
        let mut random = 1_u64;
        let mut next = move |below: usize| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 33) as usize % below.max(1)
        };
        let mut number = 0_u32;
        for _ in 0..300 {
            // The fake panics when a descriptor that it owns is posted once more.
            for _ in 0..next(200) {
                if send(&mut driver, &[&number.to_be_bytes()[..], &[0; 56]].concat()) {
                    number += 1;
                }
            }
            device.send_waiting(&mut next);
            let (_, fault) = driver.tx_reap();
            assert_eq!(fault, None);
        }
        let sent = device.take_sent();
        assert_eq!(sent.len(), number as usize);
        for (number, frame) in sent.iter().enumerate() {
            assert_eq!(frame[..4], (number as u32).to_be_bytes(), "frame {number}");
        }
        assert_eq!(driver.tx_posted(), 0);
        assert_ledger_balances(&device, &driver);
    }
}

#[test]
fn trap_1_receive_buffers_complete_in_any_order() {
    for settings in [PLAIN, PACKED] {
        let (device, mut driver) = started(Behaviour::default(), settings);
        let mut ids: Vec<u16> = (0..100).filter_map(|_| device.take_available(RX)).collect();
        ids.reverse();
        for id in ids {
            device.complete(RX, id, (HEADER_BYTES + 60) as u32);
        }
        for _ in 0..100 {
            assert_eq!(take(&mut driver).expect("it is there").map(|bytes| bytes.len()), Ok(60));
        }
        assert!(take(&mut driver).is_none());
        assert_ledger_balances(&device, &driver);
    }
}

// 2: indexes wrap as u16; the size is the negotiated one.

#[test]
fn trap_2_indexes_wrap_over_200_000_packets_both_ways() {
    let both = Settings { packed: true, indirect: true, ..EVENT_SILENT };
    for (settings, queue_frames_max) in [
        (PLAIN, 256),
        (EVENT, 256),
        (EVENT_SILENT, 16),
        (EVENT, 2),
        (INDIRECT, 256),
        (PACKED, 256),
        (PACKED_EVENT, 256),
        (PACKED_EVENT, 100),
        (PACKED_EVENT, 2),
        (both, 7),
    ] {
        let behaviour = Behaviour { queue_frames_max, ..Behaviour::default() };
        let (device, mut driver) = started(behaviour, settings);
        for number in 0..200_001_u32 {
            let frame = [&number.to_be_bytes()[..], &[7; 56]].concat();
            assert!(device.receive(&frame), "packet {number}");
            let taken = take(&mut driver).expect("it is there").expect("it is good");
            assert_eq!(taken, frame);
            assert!(send(&mut driver, &frame), "packet {number}");
            assert_eq!(driver.tx_reap(), (1, None));
            if number % 1000 == 0 {
                assert_eq!(device.take_sent().last(), Some(&frame));
            }
            while driver.rx_enable_interrupts() {}
        }
        assert_ledger_balances(&device, &driver);
    }
}

#[test]
fn trap_2_smaller_ring_of_the_device_is_used() {
    for (max, expected) in [(1024, 256), (256, 256), (100, 64), (2, 2)] {
        let behaviour = Behaviour { queue_frames_max: max, ..Behaviour::default() };
        let (device, driver) = started(behaviour, PLAIN);
        assert_eq!(driver.ring_frames(), (expected, expected));
        assert_eq!(device.layout(RX).1, expected);
    }
    for max in [0, 1] {
        let behaviour = Behaviour { queue_frames_max: max, ..Behaviour::default() };
        let refused = try_start(behaviour, PLAIN).err();
        assert_eq!(refused, Some(StartError::QueueSize { queue: 0, max_frames: max }));
    }
}

// 3: barriers.

#[test]
fn trap_3_write_barrier_before_the_index_and_full_barrier_before_the_devices_request() {
    for settings in [PLAIN, EVENT] {
        let behaviour = Behaviour { sends_at_once: false, ..Behaviour::default() };
        let (device, mut driver) = started(behaviour, settings);
        let (layout, size) = device.layout(TX);
        device.start_log();
        assert!(send(&mut driver, &[0; 60]));
        let log = device.take_log();
        let position_text =
            |access| log.iter().position(|one| *one == access).expect("it happened");
        let index = position_text(Access::Write(layout.avail_index()));
        let slot = position_text(Access::Write(layout.avail_slot(0)));
        let barrier = position_text(Access::WriteBarrier);
        let full = position_text(Access::FullBarrier);
        let wish = position_text(Access::Read(if settings.event_idx {
            layout.avail_event(size)
        } else {
            layout.used_flags()
        }));
        assert!(slot < barrier && barrier < index, "{log:?}");
        assert!(index < full && full < wish, "{log:?}");
        assert!(wish < position_text(Access::Doorbell(1)), "{log:?}");
    }
}

#[test]
fn trap_3_read_barrier_between_the_used_index_and_its_element() {
    let (device, mut driver) = started(Behaviour::default(), PLAIN);
    assert!(device.receive(&[0; 60]));
    let (layout, _) = device.layout(RX);
    device.start_log();
    let received = driver.rx_take().expect("it is there").expect("it is good");
    let log = device.take_log();
    let expected = [
        Access::Read(layout.used_index()),
        Access::ReadBarrier,
        Access::Read(layout.used_slot(0)),
        Access::Read(layout.used_slot(0) + 4),
    ];
    assert_eq!(log, expected);
    driver.free(received.frame);
}

#[test]
fn trap_3_requesting_an_interrupt_is_followed_by_a_full_barrier_and_a_check() {
    for settings in [PLAIN, EVENT] {
        let (device, driver) = started(Behaviour::default(), settings);
        let (layout, size) = device.layout(RX);
        device.start_log();
        assert!(!driver.rx_enable_interrupts());
        let wish = if settings.event_idx { layout.used_event(size) } else { layout.avail_flags() };
        let expected =
            [Access::Write(wish), Access::FullBarrier, Access::Read(layout.used_index())];
        assert_eq!(device.take_log(), expected);
        assert!(device.receive(&[0; 60]));
        assert!(driver.rx_enable_interrupts(), "it was there before we asked");
    }
}

// 4: alignment. The fake panics when a ring is not aligned to 16, 2 and 4.

#[test]
fn trap_4_rings_are_aligned_and_do_not_overlap() {
    let (device, _driver) = started(Behaviour::default(), PLAIN);
    let mut parts = Vec::new();
    for queue in [RX, TX] {
        let (layout, size) = device.layout(queue);
        let size = usize::from(size);
        assert!(layout.descriptors.is_multiple_of(16));
        assert!(layout.available.is_multiple_of(2));
        assert!(layout.used.is_multiple_of(4));
        parts.push(layout.descriptors..layout.descriptors + 16 * size);
        parts.push(layout.available..layout.available + 6 + 2 * size);
        parts.push(layout.used..layout.used + 6 + 8 * size);
    }
    parts.sort_by_key(|part| part.start);
    assert!(parts.windows(2).all(|pair| pair[0].end <= pair[1].start), "{parts:?}");
}

// 5: the receive ring is refilled and the device notified.

#[test]
fn trap_5_device_without_buffers_is_notified_of_new_ones() {
    for settings in every() {
        let (device, mut driver) = started(Behaviour::default(), settings);
        for turn in 0..5 {
            let mut delivered = 0;
            while device.receive(&[0; 60]) {
                delivered += 1;
            }
            assert_eq!(delivered, 256, "turn {turn}");
            let doorbells = device.doorbell_count(RX);
            for _ in 0..delivered {
                assert!(take(&mut driver).expect("it is there").is_ok());
            }
            assert!(device.doorbell_count(RX) > doorbells, "the device stays asleep");
        }
        assert_ledger_balances(&device, &driver);
    }
}

#[test]
fn trap_5_largest_frame_fits_with_its_header() {
    for settings in both_rings(PLAIN) {
        let (device, mut driver) = started(Behaviour::default(), settings);
        let frame: Vec<u8> = (0..FRAME_BYTES_MAX).map(|at| at as u8).collect();
        assert!(device.receive(&frame));
        assert_eq!(take(&mut driver), Some(Ok(frame.clone())));
        assert!(send(&mut driver, &frame));
        assert_eq!(device.take_sent(), [frame]);
    }
}

// 6: EVENT_IDX, and interrupts that occur or do not.

#[test]
fn trap_6_need_event_is_the_specifications() {
    for event in [0_u16, 1, 5, 0x7fff, 0xfffe, 0xffff] {
        for old in [0_u16, 4, 0x7ffe, 0xfff0, 0xffff] {
            for more in [0_u16, 1, 2, 100, 256] {
                let new = old.wrapping_add(more);
                // The index passed the event: event + 1 is among old + 1 ..= new.
                let passed = (1..=more).any(|by| old.wrapping_add(by) == event.wrapping_add(1));
                assert_eq!(need_event(event, new, old), passed, "{event} {old} {new}");
            }
        }
    }
}

#[test]
fn trap_6_flags_stay_0_with_event_idx_and_the_event_moves() {
    let (device, mut driver) = started(Behaviour::default(), EVENT_SILENT);
    let ((rx, size), (tx, _)) = (device.layout(RX), device.layout(TX));
    for number in 1..=1000_u16 {
        assert!(device.receive(&[0; 60]));
        assert!(device.interrupt_is_up(), "packet {number} was not announced");
        assert!(driver.take_interrupt().used);
        driver.rx_disable_interrupts();
        assert!(take(&mut driver).is_some());
        assert!(send(&mut driver, &[0; 60]));
        driver.tx_reap();
        assert!(!driver.rx_enable_interrupts());
        assert_eq!(device.peek16(rx.used_event(size)), number);
        assert_eq!(device.peek16(rx.avail_flags()), 0);
        assert_eq!(device.peek16(tx.avail_flags()), 0);
    }
    assert_eq!(device.interrupt_count(), 1000, "none for frames sent");
}

#[test]
fn trap_6_without_event_idx_flags_turn_interrupts_off_and_on() {
    let (device, mut driver) = started(Behaviour::default(), SILENT);
    let ((rx, _), (tx, _)) = (device.layout(RX), device.layout(TX));
    assert_eq!(device.peek16(tx.avail_flags()), AVAIL_NO_INTERRUPT);
    driver.rx_disable_interrupts();
    assert_eq!(device.peek16(rx.avail_flags()), AVAIL_NO_INTERRUPT);
    assert!(device.receive(&[0; 60]));
    assert!(send(&mut driver, &[0; 60]));
    assert!(!device.interrupt_is_up());
    assert!(driver.rx_enable_interrupts(), "one is there, and announced by nothing");
    assert!(driver.tx_enable_interrupts(), "likewise");
}

#[test]
fn trap_6_spurious_interrupts_are_recognised_and_harmless() {
    for settings in every() {
        let (device, mut driver) = started(Behaviour::default(), settings);
        assert!(driver.take_interrupt().is_spurious());
        device.raise_interrupt(1);
        assert!(driver.take_interrupt().used);
        assert!(driver.rx_take().is_none());
        assert_eq!(driver.tx_reap(), (0, None));
        assert!(!device.interrupt_is_up());
        assert_ledger_balances(&device, &driver);
    }
}

#[test]
fn trap_6_frames_whose_interrupt_is_missing_are_found_by_polling() {
    for settings in every() {
        let silent = Behaviour { silent: true, ..Behaviour::default() };
        let (device, mut driver) = started(silent, settings);
        assert!(device.receive(&[9; 60]));
        assert!(!device.interrupt_is_up());
        assert!(driver.rx_has_used());
        assert_eq!(take(&mut driver), Some(Ok(vec![9; 60])));
    }
}

#[test]
fn trap_6_full_ring_requests_an_interrupt_and_checks_again() {
    for settings in every().filter(|settings| !settings.tx_interrupts) {
        let behaviour = Behaviour { sends_at_once: false, ..Behaviour::default() };
        let (device, mut driver) = started(behaviour, settings);
        let mut posted = 0;
        while send(&mut driver, &[0; 60]) {
            posted += 1;
        }
        assert_eq!((posted, driver.tx_posted()), (256, 256));
        assert_ledger_balances(&device, &driver);
        // Nothing was sent before the request: an interrupt will follow.
        assert!(!driver.tx_enable_interrupts());
        device.send_waiting(|_| 0);
        assert!(device.interrupt_is_up(), "an interrupt reports that the ring is empty again");
        assert_eq!(driver.tx_reap(), (256, None));
        // Something was sent before the request: no interrupt will follow, but it returns true.
        driver.tx_disable_interrupts();
        assert!(driver.take_interrupt().used);
        assert!(send(&mut driver, &[0; 60]));
        device.send_waiting(|_| 0);
        assert!(!device.interrupt_is_up());
        assert!(driver.tx_enable_interrupts());
    }
}

#[test]
fn trap_6_suppressed_transmit_interrupts_stay_suppressed() {
    for settings in every().filter(|settings| !settings.tx_interrupts) {
        let (device, mut driver) = started(Behaviour::default(), settings);
        // More than an index of 16 bits can count.
        for _ in 0..70_000 {
            assert!(send(&mut driver, &[0; 60]));
            assert_eq!(driver.tx_reap(), (1, None));
        }
        device.take_sent();
        assert_eq!(device.interrupt_count(), 0);
    }
}

#[test]
fn trap_6_doorbell_is_not_rung_when_the_device_wants_none() {
    for settings in both_rings(PLAIN) {
        let behaviour = Behaviour { no_notify: true, sends_at_once: false, ..Behaviour::default() };
        let (device, mut driver) = started(behaviour, settings);
        for _ in 0..10 {
            assert!(send(&mut driver, &[0; 60]));
        }
        assert_eq!((device.doorbell_count(TX), device.owned_count(TX)), (0, 10));
        assert_eq!(
            (driver.notify_stats().tx_shown_count, driver.notify_stats().tx_doorbell_count),
            (10, 0)
        );
    }
    let behaviour = Behaviour { sends_at_once: false, ..Behaviour::default() };
    let (device, mut driver) = started(behaviour, EVENT);
    for _ in 0..10 {
        assert!(send(&mut driver, &[0; 60]));
    }
    // The device has not checked since the first: it is awake, or will check.
    assert_eq!((device.doorbell_count(TX), device.owned_count(TX)), (1, 10));
    assert_eq!(driver.notify_stats().tx_doorbell_count, 1);
}

// 7: the interrupt is acknowledged before the rings are drained.

#[test]
fn trap_7_frame_that_comes_after_the_acknowledgement_raises_the_line_again() {
    for settings in [PLAIN, PACKED] {
        let (device, mut driver) = started(Behaviour::default(), settings);
        assert!(device.receive(&[1; 60]));
        device.start_log();
        assert!(driver.take_interrupt().used);
        assert_eq!(device.take_log(), [Access::Acknowledge]);
        assert!(!device.interrupt_is_up());
        assert_eq!(take(&mut driver), Some(Ok(vec![1; 60])));
        assert!(device.receive(&[2; 60]));
        assert!(device.interrupt_is_up());
    }
}

// 8: reset, features, header, MAC address.

#[test]
fn trap_8_reset_is_waited_for_with_a_limit() {
    let slow = Behaviour { reset_reads: 50, ..Behaviour::default() };
    assert!(try_start(slow, PLAIN).is_ok());
    let stuck = Behaviour { reset_reads: u32::MAX, ..Behaviour::default() };
    let refused = try_start(stuck, PLAIN).err();
    assert_eq!(refused, Some(StartError::ResetTimeout { status: status::DRIVER_OK }));
}

#[test]
fn trap_8_legacy_interface_and_missing_version_1_are_refused() {
    let legacy = Behaviour { version: 1, ..Behaviour::default() };
    assert_eq!(try_start(legacy, PLAIN).err(), Some(StartError::Version { found: 1 }));
    let old = Behaviour { offered: FEATURE_EVENT_IDX, ..Behaviour::default() };
    let (device, registers, memory) = FakeDevice::new(old);
    let refused = NetDriver::start(registers, memory, PLAIN).err();
    let feature = "VIRTIO_F_VERSION_1";
    let expected = StartError::FeatureMissing { feature, offered: FEATURE_EVENT_IDX };
    assert_eq!(refused, Some(expected));
    assert_ne!(device.status() & status::FAILED, 0, "the driver sets FAILED");
}

#[test]
fn trap_8_cleared_features_ok_is_detected() {
    for settings in every() {
        let (device, registers, memory) =
            FakeDevice::new(Behaviour { refuse_features: true, ..Behaviour::default() });
        let refused = NetDriver::start(registers, memory, settings).err();
        assert!(matches!(refused, Some(StartError::FeaturesRefused { .. })), "{refused:?}");
        assert_ne!(device.status() & status::FAILED, 0);
        assert_eq!(device.status() & status::DRIVER_OK, 0);
    }
}

#[test]
fn trap_8_only_used_and_offered_features_are_chosen() {
    let (device, driver) = started(Behaviour::default(), EVENT);
    assert_eq!(device.chosen(), FEATURE_VERSION_1 | FEATURE_EVENT_IDX | 1 << 5);
    assert!(driver.has_event_idx());
    let (device, driver) = started(Behaviour::default(), PLAIN);
    assert_eq!(device.chosen(), FEATURE_VERSION_1 | 1 << 5);
    assert!(!driver.has_event_idx());
    for settings in both_rings(PLAIN) {
        let (device, driver) = started(Behaviour::default(), settings);
        let feature_if = |on: bool, feature: u64| if on { feature } else { 0 };
        let more = feature_if(settings.packed, FEATURE_RING_PACKED)
            | feature_if(settings.indirect, FEATURE_INDIRECT_DESC);
        assert_eq!(device.chosen(), FEATURE_VERSION_1 | 1 << 5 | more);
        assert_eq!(driver.has_packed_rings(), settings.packed);
        assert_eq!(driver.has_indirect(), settings.indirect);
    }
    let poor = Behaviour { offered: FEATURE_VERSION_1, ..Behaviour::default() };
    let all = Settings { packed: true, indirect: true, ..EVENT };
    let (device, driver) = started(poor, all);
    assert_eq!(device.chosen(), FEATURE_VERSION_1);
    assert!(!driver.has_event_idx() && driver.mac().is_none());
    assert!(!driver.has_packed_rings() && !driver.has_indirect());
}

#[test]
fn trap_8_features_withdrawn_before_a_restart_are_not_used() {
    for settings in every() {
        let (device, mut driver) = started(Behaviour::default(), settings);
        for _ in 0..100 {
            assert!(device.receive(&[1; 60]) && send(&mut driver, &[2; 60]));
        }
        device.behave(|behaviour| behaviour.offered = FEATURE_VERSION_1);
        driver.restart().expect("it can do without");
        assert!(!driver.has_event_idx() && !driver.has_packed_rings() && !driver.has_indirect());
        device.take_sent();
        for number in 0..600_u16 {
            let frame = [&number.to_be_bytes()[..], &[3; 58]].concat();
            assert!(device.receive(&frame));
            assert_eq!(take(&mut driver), Some(Ok(frame.clone())));
            assert!(send(&mut driver, &frame));
            assert_eq!((driver.tx_reap(), device.take_sent()), ((1, None), vec![frame]));
        }
        // Offered again, it is used again.
        device.behave(|behaviour| behaviour.offered = Behaviour::default().offered);
        driver.restart().expect("it is willing");
        assert_eq!(driver.has_packed_rings(), settings.packed);
        assert!(device.receive(&[4; 60]) && send(&mut driver, &[5; 60]));
        assert_eq!(take(&mut driver), Some(Ok(vec![4; 60])));
        assert_eq!(device.take_sent(), [[5; 60]]);
        assert_ledger_balances(&device, &driver);
        device.behave(|behaviour| behaviour.offered = 0);
        assert!(matches!(driver.restart(), Err(StartError::FeatureMissing { .. })));
    }
}

#[test]
fn trap_8_mac_address_is_read_in_bytes_and_again_while_it_changes() {
    let (_, driver) = started(Behaviour::default(), PLAIN);
    assert_eq!(driver.mac(), Some([0x52, 0x54, 0x00, 0x12, 0x34, 0x56]));
    let restless = Behaviour { config_changes: 20, ..Behaviour::default() };
    let (_, driver) = started(restless, PLAIN);
    assert_eq!(driver.mac(), Some([0x52, 0x54, 0x00, 0x12, 0x34, 0x56]));
    let endless = Behaviour { config_changes: u32::MAX, ..Behaviour::default() };
    assert_eq!(try_start(endless, PLAIN).err(), Some(StartError::ConfigUnstable));
}

#[test]
fn trap_8_device_that_fails_at_the_start_is_detected() {
    let failing = Behaviour { fails_at_start: true, ..Behaviour::default() };
    assert!(matches!(try_start(failing, PLAIN).err(), Some(StartError::Failed { .. })));
}

// 9: values from the device are checked.

#[test]
fn trap_9_ids_that_the_device_does_not_have_are_faults_and_nothing_more() {
    let (device, mut driver) = started(Behaviour::default(), PLAIN);
    // Out of the ring, far out, and of a descriptor that was already completed.
    for id in [256, u32::MAX, 0x1_0000] {
        device.forge_used(RX, id, 100);
        assert_eq!(take(&mut driver), Some(Err(DeviceFault::Id { id })));
    }
    let behaviour = Behaviour { sends_at_once: false, ..Behaviour::default() };
    let (device, mut driver) = started(behaviour, PLAIN);
    assert!(send(&mut driver, &[0; 60]) && send(&mut driver, &[0; 60]));
    let id = device.take_available(TX).expect("it is there");
    device.complete(TX, id, 0);
    device.forge_used(TX, id.into(), 0);
    assert_eq!(driver.tx_reap(), (1, Some(DeviceFault::Id { id: id.into() })));
    assert_eq!(driver.tx_posted(), 1);
    assert_ledger_balances(&device, &driver);
}

#[test]
fn trap_9_index_that_runs_ahead_is_a_fault_until_the_restart() {
    let (device, mut driver) = started(Behaviour::default(), PLAIN);
    assert!(send(&mut driver, &[0; 60]));
    device.forge_index(RX, 257);
    let expected = Some(Err(DeviceFault::Index { announced: 257, posted: 256 }));
    for _ in 0..3 {
        assert_eq!(take(&mut driver), expected);
    }
    driver.restart().expect("the device starts");
    assert!(take(&mut driver).is_none());
    assert!(device.receive(&[4; 60]));
    assert_eq!(take(&mut driver), Some(Ok(vec![4; 60])));
    assert_ledger_balances(&device, &driver);
}

#[test]
fn trap_9_invalid_lengths_are_faults_and_the_buffer_is_posted_again() {
    for settings in [PLAIN, PACKED, PACKED_EVENT] {
        let (device, mut driver) = started(Behaviour::default(), settings);
        let least = (HEADER_BYTES + 14) as u32;
        let most = (HEADER_BYTES + FRAME_BYTES_MAX) as u32;
        // Many more than there are buffers: a leak would show.
        for turn in 0..1000 {
            let len = [0, 1, 11, 12, least - 1, most + 1, 2048, 2049, u32::MAX][turn % 9];
            let id = device.take_available(RX).expect("a buffer has leaked");
            device.complete(RX, id, len);
            let expected = DeviceFault::Len { len_bytes: len, min_bytes: least, max_bytes: most };
            assert_eq!(take(&mut driver), Some(Err(expected)));
            driver.rx_kick();
        }
        for len in [least, most] {
            let id = device.take_available(RX).expect("it is there");
            device.complete(RX, id, len);
            let taken = take(&mut driver).expect("it is there").map(|bytes| bytes.len());
            assert_eq!(taken, Ok(len as usize - HEADER_BYTES));
        }
        assert_ledger_balances(&device, &driver);
    }
}

// 10: a frame owned by the device is not reused, however long it takes.

#[test]
fn trap_10_frames_in_flight_are_never_handed_out() {
    for settings in both_rings(PLAIN) {
        let behaviour = Behaviour { sends_at_once: false, ..Behaviour::default() };
        let (device, mut driver) = started(behaviour, settings);
        for number in 0..10_u8 {
            assert!(send(&mut driver, &[number; 60]));
        }
        // Nothing completes. Take and overwrite all free frames.
        let mut taken = Vec::new();
        while let Some(frame) = driver.take_free() {
            driver.with_frame(&frame, FRAME_BYTES_MAX, |bytes| bytes.fill(0xee));
            taken.push(frame);
        }
        assert_eq!(taken.len(), POOL_FRAMES - 256 - 10);
        for frame in taken {
            driver.free(frame);
        }
        device.send_waiting(|_| 0);
        for (number, frame) in device.take_sent().iter().enumerate() {
            assert_eq!(*frame, [number as u8; 60]);
        }
        assert_eq!(driver.tx_reap(), (10, None));
    }
}

#[test]
fn trap_10_reset_reclaims_every_frame_in_flight() {
    for settings in every() {
        let behaviour = Behaviour { sends_at_once: false, ..Behaviour::default() };
        let (device, mut driver) = started(behaviour, settings);
        for turn in 0..50 {
            for _ in 0..100 {
                send(&mut driver, &[0; 60]);
                device.receive(&[0; 60]);
            }
            let held = driver.rx_take().expect("it is there").expect("it is good");
            device.set_status(status::DEVICE_NEEDS_RESET);
            assert!(driver.needs_restart());
            driver.restart().expect("the device starts");
            assert!(!driver.needs_restart());
            assert_eq!(driver.tx_posted(), 0);
            assert_eq!(driver.ledger().held_count, 1, "the driver holds one buffer, turn {turn}");
            driver.free(held.frame);
            assert!(take(&mut driver).is_none(), "the old frames are gone");
            assert_ledger_balances(&device, &driver);
        }
        assert_eq!(driver.ledger().receive_count, 256);
    }
}

#[test]
fn memory_that_is_too_small_is_refused() {
    let (_, registers, _) = FakeDevice::new(Behaviour::default());
    struct Short(FakeMemory);
    impl wirepath_virtio::Memory for Short {
        fn len_bytes(&self) -> usize {
            4096
        }
        fn address(&self) -> u64 {
            self.0.address()
        }
        fn read16(&self, at: usize) -> u16 {
            self.0.read16(at)
        }
        fn read32(&self, at: usize) -> u32 {
            self.0.read32(at)
        }
        fn write16(&self, at: usize, value: u16) {
            self.0.write16(at, value);
        }
        fn write32(&self, at: usize, value: u32) {
            self.0.write32(at, value);
        }
        fn write64(&self, at: usize, value: u64) {
            self.0.write64(at, value);
        }
        fn with_bytes<T>(
            &mut self,
            range: std::ops::Range<usize>,
            work: impl FnOnce(&mut [u8]) -> T,
        ) -> T {
            self.0.with_bytes(range, work)
        }
        fn copy(&mut self, from: usize, to: usize, len_bytes: usize) {
            self.0.copy(from, to, len_bytes);
        }
        fn write_barrier(&self) {}
        fn read_barrier(&self) {}
        fn full_barrier(&self) {}
    }
    let (_, _, memory) = FakeDevice::new(Behaviour::default());
    let refused = NetDriver::start(registers, Short(memory), PLAIN).err();
    assert!(matches!(refused, Some(StartError::Memory { given_bytes: 4096, .. })));
}
