use super::driver::{MAC, RING_LEN, STYLES, Station, frame};
use crate::lance::{Bus, csr0, csr3, csr4, csr5, mode, status, tx_error};

const ALL: [u8; 6] = [0xff; 6];

#[test]
fn frame_goes_out_as_the_driver_wrote_it_and_the_ring_comes_round() {
    for style in STYLES {
        let mut station = Station::started(style, 0);
        for i in 0..3 * RING_LEN {
            let frame = frame(ALL, 60 + 97 * i as usize % 1454);
            station.tx_put(&[&frame], 0);
            station.kick();
            assert_eq!(station.wire.frames.pop(), Some(frame));
            let (bits, errors) = station.descriptor(station.tx_at(i));
            assert_eq!((bits, errors), (status::STP | status::ENP, 0));
            assert!(station.lance.irq());
            let causes = station.interrupt();
            assert_eq!(causes & (csr0::TINT | csr0::INTR), csr0::TINT | csr0::INTR);
            assert!(!station.lance.irq());
            station.set_csr(0, csr0::INEA);
        }
        assert_eq!(station.csr(74), RING_LEN as u16);
        assert_eq!(station.lance.counters.tx_frame_count, u64::from(3 * RING_LEN));
    }
}

#[test]
fn one_kick_drains_the_ring() {
    for style in STYLES {
        let mut station = Station::started(style, 0);
        let frames: Vec<_> = (0..RING_LEN as usize).map(|i| frame(ALL, 100 + i)).collect();
        for frame in &frames {
            station.tx_put(&[frame], 0);
        }
        station.kick();
        assert_eq!(station.wire.frames, frames);
        assert_eq!(station.lance.counters.tx_pass_frames_max, u64::from(RING_LEN));
        assert_eq!(station.csr(0) & csr0::TDMD, 0);
    }
}

#[test]
fn chained_buffers_make_one_frame() {
    for style in STYLES {
        let mut station = Station::started(style, 0);
        let frame = frame(ALL, 1514);
        station.tx_put(&[&frame[..14], &frame[14..600], &frame[600..]], 0);
        station.kick();
        assert_eq!(station.wire.frames, [frame]);
        for (i, bits) in [status::STP, 0, status::ENP].into_iter().enumerate() {
            assert_eq!(station.descriptor(station.tx_at(i as u32)), (bits, 0));
        }
    }
}

#[test]
fn frame_without_end_is_an_underflow_that_switches_the_transmitter_off() {
    for style in STYLES {
        let mut station = Station::started(style, 0);
        station.set_descriptor(station.tx_at(0), 0x8000, 64, status::OWN | status::STP);
        station.kick();
        assert!(station.wire.frames.is_empty());
        let (bits, errors) = station.descriptor(station.tx_at(0));
        assert_eq!(bits, status::STP | status::ERR);
        let expected = tx_error::BUFF | tx_error::UFLO;
        assert_eq!(errors, if style == 0 { expected >> 16 } else { expected });
        assert_eq!(station.csr(0) & (csr0::TXON | csr0::TINT), csr0::TINT);

        let mut station = Station::new(style);
        station.set_csr(3, csr3::DXSUFLO);
        station.init(0, [0; 4]);
        station.set_csr(0, csr0::STRT);
        station.set_descriptor(station.tx_at(0), 0x8000, 64, status::OWN | status::STP);
        station.kick();
        assert_eq!(station.csr(0) & (csr0::TXON | csr0::TINT), csr0::TXON | csr0::TINT);
        assert_eq!(station.csr(74), RING_LEN as u16 - 1);
    }
}

#[test]
fn ring_full_of_descriptors_without_end_is_one_torn_frame() {
    for style in STYLES {
        let mut station = Station::started(style, 0);
        for i in 0..RING_LEN {
            station.set_descriptor(station.tx_at(i), 0x8000, 64, status::OWN | status::STP);
        }
        station.kick();
        assert_eq!(station.lance.counters.tx_torn_count, 1);
        assert!((0..RING_LEN).all(|i| {
            let (bits, _) = station.descriptor(station.tx_at(i));
            bits & status::OWN == 0
        }));
    }
}

#[test]
fn descriptor_that_begins_no_frame_is_given_back() {
    let mut station = Station::started(2, 0);
    station.set_descriptor(station.tx_at(0), 0x8000, 64, status::OWN | status::ENP);
    station.set_descriptor(station.tx_at(1), 0x8000, 64, status::OWN | status::STP | status::ENP);
    station.kick();
    assert_eq!(station.wire.frames.len(), 1);
    assert_eq!(station.descriptor(station.tx_at(0)).0, status::ENP);
    assert_eq!(station.lance.counters.tx_stray_count, 1);
}

#[test]
fn interrupt_per_frame_can_be_switched_off_and_asked_for() {
    for (features, bits, is_quiet) in [
        (0, 0, false),
        (csr5::TOKINTD, 0, true),
        (csr5::LTINTEN, 0, true),
        (csr5::LTINTEN, status::LTINT, false),
        (csr5::LTINTEN | csr5::TOKINTD, status::LTINT, false),
        (csr5::TOKINTD, status::LTINT, true),
    ] {
        let mut station = Station::started(2, 0);
        station.set_csr(5, features);
        station.tx_put(&[&frame(ALL, 64)], bits);
        station.kick();
        assert_eq!(station.wire.frames.len(), 1);
        assert_eq!(station.csr(0) & csr0::TINT == 0, is_quiet, "{features:#x} {bits:#x}");
    }
}

#[test]
fn busy_wire_leaves_frame_and_demand_for_later() {
    let mut station = Station::started(2, 0);
    station.wire.busy = true;
    let frame = frame(ALL, 64);
    station.tx_put(&[&frame], 0);
    station.kick();
    assert!(station.lance.has_demand());
    assert_eq!(station.descriptor(station.tx_at(0)).0 & status::OWN, status::OWN);
    assert_eq!(station.csr(0) & csr0::TINT, 0);
    station.wire.busy = false;
    let mut bus = Bus { memory: &station.memory, wire: &mut station.wire };
    station.lance.poll(&mut bus);
    assert_eq!(station.wire.frames, [frame]);
    assert!(!station.lance.has_demand());
}

#[test]
fn chip_polls_by_itself_unless_told_not_to() {
    let mut station = Station::started(2, 0);
    for polling in [0x0115, csr4::DPOLL | 0x0115] {
        station.set_csr(4, polling);
        station.tx_put(&[&frame(ALL, 64)], 0);
        let mut bus = Bus { memory: &station.memory, wire: &mut station.wire };
        station.lance.poll(&mut bus);
        assert_eq!(station.wire.frames.len(), 1, "{polling:#x}");
    }
    station.kick();
    assert_eq!(station.wire.frames.len(), 2);
    assert_eq!(station.lance.poll_interval_ns() / 1000, 1985);
}

#[test]
fn suspended_or_disabled_transmitter_sends_nothing() {
    let mut station = Station::started(2, 0);
    station.set_csr(5, csr5::SPND);
    station.tx_put(&[&frame(ALL, 64)], 0);
    station.kick();
    assert!(station.wire.frames.is_empty());
    station.set_csr(5, 0);
    station.kick();
    assert_eq!(station.wire.frames.len(), 1);
    let mut station = Station::started(2, mode::DTX);
    station.tx_put(&[&frame(ALL, 64)], 0);
    station.kick();
    assert!(station.wire.frames.is_empty());
    assert_eq!(station.csr(0) & (csr0::TXON | csr0::TDMD), 0);
}

#[test]
fn short_frames_are_padded_and_long_ones_babble() {
    let mut station = Station::started(2, 0);
    station.tx_put(&[&frame(MAC, 20)], 0);
    station.set_csr(4, csr4::APAD_XMT | 0x0115);
    station.tx_put(&[&frame(MAC, 20)], 0);
    station.kick();
    assert_eq!(station.wire.frames[0].len(), 60);
    assert!(station.wire.frames[0][20..].iter().all(|&byte| byte == 0));
    assert_eq!(station.csr(0) & csr0::BABL, 0);
    station.tx_put(&[&frame(MAC, 1515)], 0);
    station.kick();
    assert_eq!(station.wire.frames[2].len(), 1515);
    assert_eq!(station.csr(0) & (csr0::BABL | csr0::ERR), csr0::BABL | csr0::ERR);
    // Three buffers of 2,000: more than any wire takes.
    let part = vec![1; 2000];
    station.tx_put(&[&part, &part, &part], 0);
    station.kick();
    assert_eq!(station.wire.frames.len(), 3);
    assert_eq!(station.lance.counters.tx_dropped_count, 1);
}

#[test]
fn check_sequence_from_software_is_stripped_when_right_and_stops_the_frame_when_wrong() {
    let mut station = Station::started(2, mode::DXMTFCS);
    let frame = frame(ALL, 64);
    let mut with_fcs = frame.clone();
    with_fcs.extend(crc32fast::hash(&frame).to_le_bytes());
    station.tx_put(&[&with_fcs], 0);
    with_fcs[20] ^= 1;
    station.tx_put(&[&with_fcs], 0);
    // The descriptor can ask for one all the same.
    station.tx_put(&[&frame], status::ADD_FCS);
    station.kick();
    assert_eq!(station.wire.frames, [frame.clone(), frame]);
    assert_eq!(station.lance.counters.tx_dropped_count, 1);
}
