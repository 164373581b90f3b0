use super::driver::{MAC, STYLES, Station, frame};
use crate::lance::{Reception, csr0, mode, status, tx_error};

const INTERNAL: u16 = mode::LOOP | mode::INTL;

#[test]
fn internal_loopback_stays_inside_and_external_does_not() {
    for style in STYLES {
        for (bits, outside) in [(INTERNAL, 0), (mode::LOOP, 1)] {
            let mut station = Station::started(style, bits);
            let frame = frame(MAC, 200);
            station.tx_put(&[&frame], 0);
            station.kick();
            assert_eq!(station.wire.frames.len(), outside);
            let (bits, bytes) = station.rx_take().expect("it came back");
            assert_eq!(bits & 0xff00, status::STP | status::ENP);
            assert_eq!(bytes[..200], frame);
            let both = csr0::TINT | csr0::RINT;
            assert_eq!(station.csr(0) & both, both);
            // Frames from the network are ignored during loopback.
            assert_eq!(station.receive(&frame), Reception::Filtered);
        }
    }
}

#[test]
fn receiver_checks_the_sequence_that_software_made() {
    let mut station = Station::started(2, INTERNAL | mode::DXMTFCS);
    let frame = frame(MAC, 100);
    let mut with_fcs = frame.clone();
    with_fcs.extend(crc32fast::hash(&frame).to_le_bytes());
    station.tx_put(&[&with_fcs], 0);
    station.kick();
    let (bits, bytes) = station.rx_take().unwrap();
    assert_eq!((bits & status::CRC, bytes), (0, with_fcs.clone()));
    with_fcs[103] ^= 0x40;
    station.tx_put(&[&with_fcs], 0);
    station.kick();
    let (bits, _) = station.rx_take().unwrap();
    assert_eq!(bits & (status::CRC | status::ERR), status::CRC | status::ERR);
}

#[test]
fn loopback_obeys_the_filter_and_runts_need_permission() {
    let mut station = Station::started(2, INTERNAL);
    station.tx_put(&[&frame([2, 2, 2, 2, 2, 2], 100)], 0);
    station.tx_put(&[&frame(MAC, 20)], 0);
    station.kick();
    assert!(station.rx_take().is_none());
    station.set_csr(124, 1 << 3);
    station.tx_put(&[&frame(MAC, 20)], 0);
    station.kick();
    assert_eq!(station.rx_take().unwrap().1.len(), 24);
}

#[test]
fn forced_collision_ends_in_a_retry_error() {
    for style in STYLES {
        let mut station = Station::started(style, INTERNAL | mode::FCOLL);
        station.tx_put(&[&frame(MAC, 100)], 0);
        station.kick();
        let (bits, errors) = station.descriptor(station.tx_at(0));
        assert_eq!(bits, status::STP | status::ENP | status::ERR);
        assert_eq!(errors, if style == 0 { tx_error::RTRY >> 16 } else { tx_error::RTRY });
        assert!(station.rx_take().is_none());
        assert_eq!(station.csr(0) & (csr0::TINT | csr0::TXON), csr0::TINT | csr0::TXON);
    }
}
