use super::driver::{MAC, STYLES, Station, frame};
use crate::lance::{Bus, GuestMemory, Reception, WORK_MAX, Width, csr0, csr5, mode, status};

fn assert_dead(station: &mut Station) {
    assert_eq!(station.csr(0) & (csr0::TXON | csr0::RXON), 0);
    assert_eq!(station.csr(0) & (csr0::MERR | csr0::ERR), csr0::MERR | csr0::ERR);
    assert_eq!(station.csr(5) & csr5::SINT, csr5::SINT);
    assert_eq!(station.lance.pci.read(6, Width::Word) & 0x2000, 0x2000);
    assert_eq!(station.lance.counters.bus_error_count, 1);
}

#[test]
fn init_block_outside_memory_is_a_memory_error() {
    let mut station = Station::new(2);
    station.set_csr(1, 0xfff0);
    station.set_csr(2, 0xffff);
    station.set_csr(0, csr0::INIT | csr0::STRT | csr0::INEA);
    assert_eq!(station.csr(0) & (csr0::IDON | csr0::MERR), csr0::MERR);
    assert!(station.lance.irq());
}

#[test]
fn without_bus_mastering_nothing_is_read() {
    let mut station = Station::new(2);
    station.lance.pci.write(4, Width::Word, 1);
    station.init(0, [0; 4]);
    assert_eq!(station.csr(0) & (csr0::IDON | csr0::MERR), csr0::MERR);
}

#[test]
fn buffers_outside_memory_end_both_engines_until_the_next_init() {
    for style in STYLES {
        let bad = 0xff_fff0;
        let mut station = Station::started(style, 0);
        let bits = status::OWN | status::STP | status::ENP;
        station.set_descriptor(station.tx_at(0), bad, 64, bits);
        station.kick();
        assert!(station.wire.frames.is_empty());
        assert_dead(&mut station);

        let mut station = Station::started(style, 0);
        station.set_descriptor(station.rx_at(0), bad, 64, status::OWN);
        assert_eq!(station.receive(&frame(MAC, 64)), Reception::Lost);
        assert_dead(&mut station);
        assert_eq!(station.receive(&frame(MAC, 64)), Reception::Off);

        station.set_csr(0, csr0::STOP);
        station.init(0, [0; 4]);
        station.set_csr(0, csr0::STRT);
        assert_eq!(station.receive(&frame(MAC, 64)), Reception::Stored);
    }
}

#[test]
fn rings_at_the_top_of_the_bus_do_not_wrap_into_memory() {
    let mut station = Station::new(2);
    station.init(0, [0; 4]);
    station.set_csr(0, csr0::STOP);
    station.set_csr(30, 0xfff0);
    station.set_csr(31, 0xffff);
    station.set_csr(0, csr0::STRT | csr0::TDMD);
    assert_dead(&mut station);
}

#[test]
fn counters_that_software_made_up_stay_within_the_ring() {
    for (len, left) in [(0, 0), (0, 9), (4, 0), (4, 0xffff), (1, 2)] {
        let mut station = Station::new(2);
        station.init(0, [0; 4]);
        station.set_csr(0, csr0::STOP);
        for at in [76, 78] {
            station.set_csr(at, len);
            station.set_csr(at - 4, left);
        }
        station.set_csr(0, csr0::STRT);
        for _ in 0..4 {
            station.tx_put(&[&frame(MAC, 64)], 0);
        }
        station.kick();
        assert_eq!(station.wire.frames.len(), if len < 4 { 1 } else { 4 }, "{len}, {left}");
        assert!((1..=len.max(1)).contains(&station.csr(74)), "{len}, {left}");
        assert_eq!(station.receive(&frame(MAC, 64)), Reception::Stored);
        assert_eq!(station.lance.counters.bus_error_count, 0);
    }
}

#[test]
fn one_call_does_bounded_work_and_leaves_the_rest_as_a_demand() {
    let mut station = Station::new(2);
    // Longer than any initialization block can ask for: all of memory is the ring.
    station.init(0, [0; 4]);
    station.set_csr(0, csr0::STOP);
    station.set_csr(30, 0);
    station.set_csr(78, 2000);
    station.set_csr(74, 2000);
    let bits = status::OWN | status::STP | status::ENP;
    for i in 0..2000 {
        station.set_descriptor(16 * i, 0, 64, bits);
    }
    station.set_csr(0, csr0::STRT);
    station.kick();
    assert_eq!(station.wire.frames.len(), usize::from(WORK_MAX));
    for _ in 0..10 {
        assert_eq!(station.lance.has_demand(), station.wire.frames.len() < 2000);
        let mut bus = Bus { memory: &station.memory, wire: &mut station.wire };
        station.lance.poll(&mut bus);
    }
    assert_eq!(station.wire.frames.len(), 2000);
}

#[test]
fn loopback_into_tiny_buffers_is_bounded_too() {
    let mut station = Station::new(2);
    station.init(mode::LOOP | mode::INTL | mode::PROM, [0; 4]);
    station.set_csr(0, csr0::STOP);
    // Transmit and receive share one ring of one-byte receive buffers and whole frames.
    for at in [24, 30] {
        station.set_csr(at, 0);
    }
    for at in [72, 74, 76, 78] {
        station.set_csr(at, 4000);
    }
    for i in 0..4000 {
        station.memory.store_u32(16 * i, 0).unwrap();
        station.memory.store_u32(16 * i + 4, 0x8300_0fff | u32::from(i % 2 == 0) << 12).unwrap();
    }
    station.memory.take_access_count();
    station.set_csr(0, csr0::STRT | csr0::TDMD);
    assert!(station.memory.take_access_count() < 40_000);
}
