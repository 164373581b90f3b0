use super::driver::{MAC, RING_LEN, STYLES, Station, frame};
use crate::lance::{Reception, csr0, csr4, csr5, hash, mode, status};

const WHOLE: u16 = status::STP | status::ENP;

#[test]
fn frame_arrives_with_check_sequence_length_and_reason() {
    for style in STYLES {
        let mut station = Station::started(style, 0);
        for i in 0..3 * RING_LEN as usize {
            let frame = frame(MAC, 60 + i * 121);
            assert_eq!(station.receive(&frame), Reception::Stored);
            assert!(station.lance.irq());
            assert_eq!(station.interrupt() & csr0::RINT, csr0::RINT);
            assert!(!station.lance.irq());
            let (bits, bytes) = station.rx_take().expect("it was stored");
            let reason = if style == 0 { 0 } else { 1 << 6 };
            assert_eq!(bits, WHOLE | reason);
            let (body, fcs) = bytes.split_at(frame.len());
            assert_eq!(body, frame);
            assert_eq!(fcs, crc32fast::hash(&frame).to_le_bytes());
            assert!(station.rx_take().is_none());
            station.set_csr(0, csr0::INEA);
        }
    }
}

#[test]
fn short_arrivals_are_padded_as_the_wire_would() {
    let mut station = Station::started(2, 0);
    assert_eq!(station.receive(&frame(MAC, 42)), Reception::Stored);
    let (_, bytes) = station.rx_take().unwrap();
    assert_eq!(bytes.len(), 64);
    assert!(bytes[42..60].iter().all(|&byte| byte == 0));
    assert_eq!(station.receive(&[0xff; 13]), Reception::Lost);
    assert_eq!(station.receive(&[0xff; 5000]), Reception::Lost);
}

#[test]
fn filters_tell_why_they_let_a_frame_pass() {
    let group = [0x01, 0, 0x5e, 0, 0, 5];
    let mut ladrf = [0; 4];
    let bit = usize::from(hash(group));
    ladrf[bit / 16] = 1 << (bit % 16);
    let mut station = Station::new(2);
    station.init(0, ladrf);
    station.set_csr(0, csr0::STRT);
    for (to, reason) in [([0xff; 6], 1 << 4), (group, 1 << 5), (MAC, 1 << 6)] {
        assert_eq!(station.receive(&frame(to, 64)), Reception::Stored);
        assert_eq!(station.rx_take().unwrap().0, WHOLE | reason);
    }
    assert_eq!(station.receive(&frame([2, 1, 1, 1, 1, 1], 64)), Reception::Filtered);
    let mut station = Station::started(2, mode::PROM);
    assert_eq!(station.receive(&frame([2, 1, 1, 1, 1, 1], 64)), Reception::Stored);
    assert_eq!(station.rx_take().unwrap().0, WHOLE);
}

#[test]
fn frame_is_spread_over_small_buffers() {
    for style in STYLES {
        let mut station = Station::started(style, 0);
        for i in 0..RING_LEN {
            station.rx_post(i, 64);
        }
        let frame = frame(MAC, 150);
        assert_eq!(station.receive(&frame), Reception::Stored);
        let bits: Vec<u16> =
            (0..4).map(|i| station.descriptor(station.rx_at(i)).0 & 0xff00).collect();
        assert_eq!(bits, [status::STP, 0, status::ENP, status::OWN]);
        assert_eq!(station.descriptor(station.rx_at(2)).1, 154);
        let mut whole = station.rx_buffer(0, 64);
        whole.extend(station.rx_buffer(1, 64));
        whole.extend(station.rx_buffer(2, 22));
        assert_eq!(whole, frame);
        // The next one begins behind it.
        station.rx_post(0, 64);
        assert_eq!(station.receive(&frame[..60]), Reception::Stored);
        assert_eq!(station.descriptor(station.rx_at(3)).0 & 0xff00, WHOLE);
    }
}

#[test]
fn frame_that_outgrows_the_ring_is_an_overflow() {
    for style in STYLES {
        let mut station = Station::started(style, 0);
        for i in 0..RING_LEN {
            station.rx_post(i, 32);
        }
        assert_eq!(station.receive(&frame(MAC, 1000)), Reception::Stored);
        let (bits, _) = station.descriptor(station.rx_at(RING_LEN - 1));
        assert_eq!(bits, status::OFLO | status::BUFF | status::ERR);
        assert_eq!(station.lance.counters.rx_torn_count, 1);
        // The next finds nothing: it is missed, and counted by the chip.
        assert_eq!(station.receive(&frame(MAC, 64)), Reception::Lost);
        assert_eq!(station.csr(112), 1);
        assert_eq!(station.csr(0) & csr0::MISS, csr0::MISS);
    }
}

#[test]
fn chain_ends_where_the_host_owns_the_next_buffer() {
    let mut station = Station::started(2, 0);
    station.rx_post(0, 32);
    station.rx_post(1, 32);
    station.set_descriptor(station.rx_at(2), 0, 32, 0);
    assert_eq!(station.receive(&frame(MAC, 100)), Reception::Stored);
    assert_eq!(station.descriptor(station.rx_at(0)).0, status::STP);
    let torn = status::OFLO | status::BUFF | status::ERR;
    assert_eq!(station.descriptor(station.rx_at(1)).0, torn);
    assert_eq!(station.csr(72), 2);
}

#[test]
fn receiver_that_is_off_leaves_the_frame_with_its_owner() {
    let mut station = Station::new(2);
    assert_eq!(station.receive(&frame(MAC, 64)), Reception::Off);
    let mut station = Station::started(2, mode::DRX);
    assert_eq!(station.receive(&frame(MAC, 64)), Reception::Off);
    let mut station = Station::started(2, 0);
    station.set_csr(5, csr5::SPND);
    assert_eq!(station.receive(&frame(MAC, 64)), Reception::Off);
    station.set_csr(5, 0);
    assert_eq!(station.receive(&frame(MAC, 64)), Reception::Stored);
}

#[test]
fn missed_frame_counter_tells_its_overflow() {
    let mut station = Station::new(2);
    station.init(0, [0; 4]);
    station.set_csr(112, 0xffff);
    station.set_csr(0, csr0::STOP);
    station.set_csr(112, 0xffff);
    station.set_csr(0, csr0::STRT);
    for i in 0..RING_LEN {
        station.set_descriptor(station.rx_at(i), 0, 64, 0);
    }
    station.receive(&frame(MAC, 64));
    assert_eq!(station.csr(112), 0);
    assert_eq!(station.csr(4) & 0x0200, 0x0200);
}

#[test]
fn pad_bytes_of_a_frame_with_a_length_are_stripped_on_request() {
    let mut station = Station::started(2, 0);
    station.set_csr(4, csr4::ASTRP_RCV | 0x0115);
    let mut short = frame(MAC, 60);
    short[12..14].copy_from_slice(&[0, 10]);
    station.receive(&short);
    assert_eq!(station.rx_take().unwrap().1, short[..24]);
    station.receive(&frame(MAC, 60));
    assert_eq!(station.rx_take().unwrap().1.len(), 64);
}
