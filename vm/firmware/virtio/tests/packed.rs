//! Differences of a packed ring: one ring for both directions, wrap counters, and two structures
//! in place of flags and event indexes.

mod common;

use common::*;
use wirepath_virtio::DeviceFault;
use wirepath_virtio::fake::{Access, Behaviour, RX, TX};
use wirepath_virtio::net::{HEADER_BYTES, Settings};
use wirepath_virtio::packed::{EVENT_DESC, EVENT_DISABLE, EVENT_ENABLE, Position, passed};

const PACKED_SILENT: Settings = Settings { tx_interrupts: false, ..PACKED };
const PACKED_EVENT_SILENT: Settings = Settings { tx_interrupts: false, ..PACKED_EVENT };

/// A device that sends only when the test asks for it.
fn late(queue_frames_max: u32) -> Behaviour {
    Behaviour { sends_at_once: false, queue_frames_max, ..Behaviour::default() }
}

#[test]
fn ring_of_any_size_is_used_as_it_is() {
    for (max, expected) in [(1024, 256), (256, 256), (100, 100), (3, 3), (2, 2)] {
        let behaviour = Behaviour { queue_frames_max: max, ..Behaviour::default() };
        let (device, driver) = started(behaviour, PACKED);
        assert_eq!(driver.ring_frames(), (expected, expected));
        assert_eq!(device.packed_layout(RX).1, expected);
    }
}

#[test]
fn parts_are_aligned_and_do_not_overlap() {
    let (device, _driver) = started(Behaviour::default(), PACKED);
    let mut parts = Vec::new();
    for queue in [RX, TX] {
        let (layout, size) = device.packed_layout(queue);
        assert!(layout.descriptors.is_multiple_of(16));
        assert!(layout.driver.is_multiple_of(4) && layout.device.is_multiple_of(4));
        parts.push(layout.descriptors..layout.descriptors + 16 * usize::from(size));
        parts.push(layout.driver..layout.driver + 4);
        parts.push(layout.device..layout.device + 4);
    }
    parts.sort_by_key(|part| part.start);
    assert!(parts.windows(2).all(|pair| pair[0].end <= pair[1].start), "{parts:?}");
}

#[test]
fn flags_come_last_and_the_devices_request_is_read_after_a_full_barrier() {
    for settings in [PACKED, PACKED_EVENT] {
        let (device, mut driver) = started(late(256), settings);
        let (layout, _) = device.packed_layout(TX);
        device.start_log();
        assert!(send(&mut driver, &[0; 60]));
        let expected = [
            Access::Write(layout.descriptor(0)),
            Access::Write(layout.len(0)),
            Access::Write(layout.id(0)),
            Access::WriteBarrier,
            Access::Write(layout.flags(0)),
            Access::FullBarrier,
            // Position and flags in one read.
            Access::Read(layout.device),
            Access::Doorbell(1),
        ];
        assert_eq!(device.take_log(), expected);
    }
}

#[test]
fn batch_is_seen_as_a_whole_or_not_at_all() {
    let (device, mut driver) = started(late(8), PACKED);
    // Across the wrap, too.
    for turn in 0..20_u8 {
        for number in 0..5 {
            let frame = driver.take_free().expect("there are enough");
            driver.with_frame(&frame, 60, |bytes| bytes.fill(turn * 5 + number));
            driver.tx_post(frame, 60).expect("there is room");
            assert_eq!(device.owned_count(TX), 0, "the device sees {number} of turn {turn}");
        }
        let (layout, _) = device.packed_layout(TX);
        device.start_log();
        driver.tx_kick();
        let head = (usize::from(turn) * 5 % 8) as u16;
        let log = device.take_log();
        assert_eq!(log[..2], [Access::WriteBarrier, Access::Write(layout.flags(head))], "{log:?}");
        assert_eq!(device.owned_count(TX), 5);
        device.send_waiting(|waiting| waiting - 1);
        assert_eq!(driver.tx_reap(), (5, None));
    }
    let sent: Vec<u8> = device.take_sent().iter().map(|frame| frame[0]).collect();
    assert_eq!(sent, (0..100).collect::<Vec<u8>>());
    assert_eq!(driver.notify_stats().tx_shown_count, 20);
}

#[test]
fn read_barrier_comes_between_the_flags_and_the_rest_of_a_used_element() {
    let (device, mut driver) = started(Behaviour::default(), PACKED);
    assert!(device.receive(&[0; 60]));
    let (layout, _) = device.packed_layout(RX);
    device.start_log();
    let received = driver.rx_take().expect("it is there").expect("it is good");
    let expected = [
        Access::Read(layout.flags(0)),
        Access::ReadBarrier,
        Access::Read(layout.id(0)),
        Access::Read(layout.len(0)),
    ];
    assert_eq!(device.take_log(), expected);
    driver.free(received.frame);
}

#[test]
fn requesting_an_interrupt_is_one_write_a_full_barrier_and_a_check() {
    for settings in [PACKED, PACKED_EVENT] {
        let (device, driver) = started(Behaviour::default(), settings);
        let (layout, _) = device.packed_layout(RX);
        device.start_log();
        assert!(!driver.rx_enable_interrupts());
        let expected =
            [Access::Write(layout.driver), Access::FullBarrier, Access::Read(layout.flags(0))];
        assert_eq!(device.take_log(), expected);
        assert!(device.receive(&[0; 60]));
        assert!(driver.rx_enable_interrupts(), "it was there before we asked");
    }
}

#[test]
fn batches_of_used_elements_are_taken_across_the_wrap() {
    for (settings, size) in [(PACKED, 256), (PACKED_EVENT, 256), (PACKED_EVENT, 10)] {
        let (device, mut driver) = started(late(size), settings);
        for turn in 0..200 {
            let count = 1 + turn % 9;
            let mut ids: Vec<u16> = (0..count).filter_map(|_| device.take_available(RX)).collect();
            let half = ids.len() / 2;
            ids.rotate_left(half);
            let len = |id: u16| (HEADER_BYTES + 14 + usize::from(id)) as u32;
            let elements: Vec<(u16, u32)> = ids.iter().map(|id| (*id, len(*id))).collect();
            let interrupts = device.interrupt_count();
            device.complete_batch(RX, &elements);
            assert_eq!(device.interrupt_count(), interrupts + 1, "turn {turn}");
            driver.take_interrupt();
            let taken: Vec<usize> = (0..count)
                .map(|_| take(&mut driver).expect("it is there").expect("it is good").len())
                .collect();
            let expected: Vec<usize> = ids.iter().map(|id| 14 + usize::from(*id)).collect();
            assert_eq!(taken, expected, "turn {turn}");
            assert!(!driver.rx_enable_interrupts());
        }
        assert_ledger_balances(&device, &driver);
    }
}

#[test]
fn named_position_is_distinguished_from_the_same_slot_a_lap_away() {
    // All advances of up to a whole lap, around both kinds of wrap, against counting.
    for size in [2_u16, 3, 8] {
        let place = |count: u32| {
            let size = u32::from(size);
            Position { slot: (count % size) as u16, wrap: (count / size).is_multiple_of(2) }
        };
        for start in 0..4 * u32::from(size) {
            for by in 0..=size {
                let now = start + u32::from(by);
                for event in 0..2 * u32::from(size) {
                    let word = place(event).word();
                    let crossed = (start..now).any(|count| place(count).word() == word);
                    // A position on this lap's or the last lap's side of the current one.
                    assert_eq!(
                        passed(word, place(now), by, size),
                        crossed,
                        "{size} {start} {by} {event}"
                    );
                }
            }
        }
    }
}

#[test]
fn interrupts_are_turned_off_and_on_with_and_without_event_idx() {
    for settings in [PACKED_SILENT, PACKED_EVENT_SILENT] {
        let (device, mut driver) = started(Behaviour::default(), settings);
        let ((rx, _), (tx, _)) = (device.packed_layout(RX), device.packed_layout(TX));
        assert_eq!(device.peek16(tx.driver + 2), EVENT_DISABLE);
        driver.rx_disable_interrupts();
        assert_eq!(device.peek16(rx.driver + 2), EVENT_DISABLE);
        assert!(device.receive(&[0; 60]));
        assert!(send(&mut driver, &[0; 60]));
        assert!(!device.interrupt_is_up());
        assert!(driver.rx_enable_interrupts(), "one is there, and announced by nothing");
        assert!(driver.tx_enable_interrupts(), "likewise");
        let on = if settings.event_idx { EVENT_DESC } else { EVENT_ENABLE };
        assert_eq!(device.peek16(rx.driver + 2), on);
    }
}

#[test]
fn position_for_the_next_interrupt_moves_with_the_wrap_counter() {
    let (device, mut driver) = started(late(6), PACKED_EVENT_SILENT);
    let (rx, size) = device.packed_layout(RX);
    for number in 1..=1000_u32 {
        assert!(device.receive(&[0; 60]));
        assert!(device.interrupt_is_up(), "packet {number} was not announced");
        assert!(driver.take_interrupt().used);
        driver.rx_disable_interrupts();
        assert!(take(&mut driver).is_some());
        assert!(send(&mut driver, &[0; 60]));
        device.send_waiting(|_| 0);
        assert_eq!(driver.tx_reap(), (1, None));
        assert!(!driver.rx_enable_interrupts());
        let (slot, turn) = (number % u32::from(size), number / u32::from(size));
        let word = slot as u16 | u16::from(turn.is_multiple_of(2)) << 15;
        assert_eq!(device.peek16(rx.driver), word, "packet {number}");
    }
    assert_eq!(device.interrupt_count(), 1000, "none for frames sent");
}

#[test]
fn doorbell_is_rung_when_the_position_named_by_the_device_is_passed() {
    let (device, mut driver) = started(late(6), PACKED_EVENT);
    let mut expected = 0;
    for turn in 0..100 {
        // The device has checked at the end of the last lap: it requests the first.
        for _ in 0..1 + turn % 6 {
            assert!(send(&mut driver, &[0; 60]));
        }
        expected += 1;
        assert_eq!(device.doorbell_count(TX), expected, "turn {turn}");
        device.send_waiting(|_| 0);
        assert_eq!(driver.tx_reap().1, None);
    }
}

#[test]
fn device_that_sleeps_past_the_position_it_named_is_woken() {
    for size in [4_u16, 6, 256] {
        // Slots that it went beyond the position, and completions already seen.
        for gone in 1..=size {
            for reaped in [false, true] {
                let (device, mut driver) = started(late(size.into()), PACKED_EVENT);
                let (layout, _) = device.packed_layout(TX);
                // Not from the start of the ring.
                for _ in 0..5 {
                    assert!(send(&mut driver, &[0; 60]));
                    device.send_waiting(|_| 0);
                    driver.tx_reap();
                }
                let place = device.peek16(layout.device);
                device.poke16(layout.device + 2, EVENT_DISABLE);
                let before = device.doorbell_count(TX);
                for _ in 0..gone {
                    assert!(send(&mut driver, &[0; 60]));
                }
                assert_eq!(device.doorbell_count(TX), before, "it is awake");
                // It names the position, but too late; sends everything, and sleeps.
                device.behave(|behaviour| behaviour.names_no_place = true);
                device.poke16(layout.device, place);
                device.poke16(layout.device + 2, EVENT_DESC);
                device.send_waiting(|_| 0);
                if reaped {
                    assert_eq!(driver.tx_reap(), (gone, None));
                }
                let posted = send(&mut driver, &[0; 60]);
                assert_eq!(posted, reaped || gone < size);
                if posted {
                    let rung = device.doorbell_count(TX) - before;
                    assert_eq!(rung, 1, "{size} {gone} {reaped}: it stays asleep");
                }
            }
        }
    }
}

#[test]
fn device_that_is_busy_or_waits_for_a_batch_gets_no_doorbell() {
    let (device, mut driver) = started(late(16), PACKED_EVENT);
    let (layout, _) = device.packed_layout(TX);
    device.behave(|behaviour| behaviour.names_no_place = true);
    // The position is the next one: one doorbell. None for those after it, of which none completed.
    device.poke16(layout.device, 1 << 15);
    device.poke16(layout.device + 2, EVENT_DESC);
    for _ in 0..10 {
        assert!(send(&mut driver, &[0; 60]));
    }
    assert_eq!(device.doorbell_count(TX), 1);
    device.send_waiting(|_| 0);
    assert_eq!(driver.tx_reap(), (10, None));
    // The position is the fifth from here: one doorbell, at the fifth of six.
    device.poke16(layout.device, Position { slot: 14, wrap: true }.word());
    for number in 1..=6 {
        assert!(send(&mut driver, &[0; 60]));
        let expected = if number < 5 { 1 } else { 2 };
        assert_eq!(device.doorbell_count(TX), expected, "frame {number}");
    }
    device.send_waiting(|_| 0);
    assert_eq!(driver.tx_reap(), (6, None));
    device.poke16(layout.device, Position { slot: 2, wrap: false }.word());
    for number in 1..=4 {
        assert!(send(&mut driver, &[0; 60]));
        let expected = if number < 3 { 2 } else { 3 };
        assert_eq!(device.doorbell_count(TX), expected, "frame {number}, behind the wrap");
    }
}

#[test]
fn invalid_words_of_the_device_cost_extra_doorbells_at_most() {
    for settings in [PACKED, PACKED_EVENT] {
        let (device, mut driver) = started(late(16), settings);
        let (layout, _) = device.packed_layout(TX);
        for word in [0, 1, 15, 16, 0x7fff, 0x8000, 0x800f, 0xffff] {
            for flags in [0, 1, 2, 3, 0xfffc, 0xffff] {
                device.poke16(layout.device, word);
                device.poke16(layout.device + 2, flags);
                for _ in 0..3 {
                    assert!(send(&mut driver, &[0; 60]));
                }
                assert_eq!(device.owned_count(TX), 3, "{word:#x} {flags:#x}");
                device.send_waiting(|_| 0);
                assert_eq!(driver.tx_reap(), (3, None));
            }
        }
        let stats = driver.notify_stats();
        assert!(stats.tx_doorbell_count > 0 && stats.tx_doorbell_count < stats.tx_shown_count);
    }
    // A position may be named with EVENT_IDX only: without it, ring once too often.
    let (device, mut driver) = started(late(16), PACKED);
    let (layout, _) = device.packed_layout(TX);
    device.poke16(layout.device, 9);
    device.poke16(layout.device + 2, EVENT_DESC);
    assert!(send(&mut driver, &[0; 60]));
    assert_eq!(device.doorbell_count(TX), 1);
}

#[test]
fn ids_that_the_device_does_not_have_put_the_ring_out_of_step_until_the_restart() {
    for id in [256, 300, u16::MAX] {
        let (device, mut driver) = started(Behaviour::default(), PACKED);
        assert!(device.receive(&[1; 60]));
        device.forge_used(RX, id.into(), 100);
        assert_eq!(take(&mut driver), Some(Ok(vec![1; 60])), "those before it are good");
        for _ in 0..3 {
            assert_eq!(take(&mut driver), Some(Err(DeviceFault::Place { id })));
        }
        assert!(DeviceFault::Place { id }.needs_restart());
        driver.restart().expect("the device starts");
        assert!(take(&mut driver).is_none());
        assert!(device.receive(&[4; 60]));
        assert_eq!(take(&mut driver), Some(Ok(vec![4; 60])));
        assert_ledger_balances(&device, &driver);
    }
}

#[test]
fn buffer_completed_twice_is_a_fault_and_frees_nothing_twice() {
    let (device, mut driver) = started(late(256), PACKED);
    assert!(send(&mut driver, &[0; 60]) && send(&mut driver, &[0; 60]));
    let id = device.take_available(TX).expect("it is there");
    device.complete(TX, id, 0);
    device.forge_used(TX, id.into(), 0);
    assert_eq!(driver.tx_reap(), (1, Some(DeviceFault::Place { id })));
    assert_eq!(driver.tx_posted(), 1);
    assert_ledger_balances(&device, &driver);
    driver.restart().expect("the device starts");
    assert_eq!(driver.tx_posted(), 0);
}

#[test]
fn completion_of_a_buffer_that_was_never_published_is_a_fault_until_the_restart() {
    let (device, mut driver) = started(late(256), PACKED);
    let expected = Some(DeviceFault::Index { announced: 1, posted: 0 });
    device.forge_used(TX, 0, 0);
    assert_eq!((driver.tx_reap(), driver.tx_reap()), ((0, expected), (0, expected)));
    // Posted but not published: the device was not shown it.
    driver.restart().expect("the device starts");
    let frame = driver.take_free().expect("there are enough");
    driver.tx_post(frame, 60).expect("there is room");
    device.forge_used(TX, 0, 0);
    assert_eq!(driver.tx_reap(), (0, expected));
    driver.restart().expect("the device starts");
    assert!(send(&mut driver, &[7; 60]));
    device.send_waiting(|_| 0);
    assert_eq!((driver.tx_reap(), device.take_sent()), ((1, None), vec![vec![7; 60]]));
    assert_ledger_balances(&device, &driver);
}

#[test]
fn every_slot_can_be_owned_by_the_device_at_once_and_no_more() {
    for (settings, size) in [(PACKED, 256), (PACKED_EVENT, 100), (PACKED_EVENT, 2)] {
        let (device, mut driver) = started(late(size), settings);
        for turn in 0..7 {
            let mut posted = 0;
            while send(&mut driver, &[turn; 60]) {
                posted += 1;
            }
            assert_eq!(posted, size, "turn {turn}");
            // One completes: exactly one more is accepted.
            let id = device.take_available(TX).expect("it is there");
            device.complete(TX, id, 0);
            assert_eq!(driver.tx_reap(), (1, None));
            assert!(send(&mut driver, &[turn; 60]) && !send(&mut driver, &[turn; 60]));
            device.send_waiting(|waiting| waiting / 2);
            assert_eq!(driver.tx_reap(), (size as u16, None));
        }
        assert_ledger_balances(&device, &driver);
    }
}
