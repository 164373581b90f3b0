use super::driver::{RING_LEN, STYLES, Station, frame};
use crate::lance::csr0;

#[test]
fn state_tells_what_the_chip_waits_for_and_changes_nothing() {
    for style in STYLES {
        let mut station = Station::started(style, 0);
        let idle = station.lance.state(&station.memory);
        assert_eq!((idle.tx.owned_count, idle.tx.is_next_owned), (0, Some(false)));
        let len = idle.rx.len;
        assert_eq!((u32::from(idle.tx.len), idle.rx.owned_count), (RING_LEN, len));

        // The wire has no room: one frame waits, and the demand with it.
        station.wire.busy = true;
        station.tx_put(&[&frame([0xff; 6], 100)], 0);
        station.kick();
        let busy = station.lance.state(&station.memory);
        assert_eq!((busy.tx.owned_count, busy.tx.is_next_owned), (1, Some(true)));
        assert_eq!(busy.status & (csr0::TDMD | csr0::TINT), csr0::TDMD);
        assert!(busy.to_string().contains("TDMD"), "{busy}");
        assert_eq!(busy, station.lance.state(&station.memory));

        station.wire.busy = false;
        station.kick();
        let sent = station.lance.state(&station.memory);
        assert_eq!((sent.tx.owned_count, sent.tx.next), (0, 1));
        assert!(sent.irq && sent.to_string().contains("line high"), "{sent}");
    }
}

#[test]
fn state_of_rings_that_are_nowhere_says_so() {
    let mut station = Station::new(2);
    station.set_csr(0, csr0::STOP);
    for at in [24, 25, 30, 31] {
        station.set_csr(at, 0xffff);
    }
    let state = station.lance.state(&station.memory);
    assert_eq!((state.tx.is_next_owned, state.rx.owned_count), (None, 0));
    assert!(state.to_string().contains("nowhere"), "{state}");
}
