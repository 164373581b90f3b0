use super::driver::{MAC, STYLES, Station};
use crate::lance::{Lance, RAP_DWORD, RAP_WORD, RDP, RESET_DWORD, RESET_WORD, Width, csr0, csr5};

#[test]
fn driver_probe_finds_the_chip_as_it_would_on_a_board() {
    let mut station = Station::new(0);
    // Reset, then the 16-bit signature: CSR0 reads STOP, and RAP keeps what is written.
    assert_eq!(station.lance.read(RESET_WORD, Width::Word), 0);
    assert_eq!(station.csr(0), csr0::STOP);
    station.out(RAP_WORD, Width::Word, 88);
    assert_eq!(station.lance.read(RAP_WORD, Width::Word), 88);
    let chip = u32::from(station.csr(88)) | u32::from(station.csr(89)) << 16;
    assert_eq!(chip & 0xfff, 0x003);
    assert_eq!(chip >> 12 & 0xffff, 0x2621);
    let prom: Vec<u8> = (0..6).map(|at| station.lance.read(at, Width::Byte) as u8).collect();
    assert_eq!(prom, MAC);
    assert_eq!(station.lance.read(14, Width::Word), 0x5757);
    for (at, pair) in MAC.chunks(2).enumerate() {
        assert_eq!(station.csr(12 + at as u8).to_le_bytes(), pair);
    }
    // The link is up when LED 0 says so.
    assert_ne!(station.bcr(4), 0xc0);
}

#[test]
fn reset_values_are_those_of_the_data_sheet() {
    let mut station = Station::started(2, 0);
    station.set_csr(3, 0x5f00);
    station.set_csr(5, csr5::TOKINTD);
    assert_eq!(station.lance.read(RESET_WORD, Width::Word), 0);
    let expected = [
        (0, 0x0004),
        (3, 0),
        (4, 0x0115),
        (5, 0),
        (72, 1),
        (74, 1),
        (76, 1),
        (78, 1),
        (80, 0x1410),
        (112, 0),
    ];
    for (at, value) in expected {
        assert_eq!(station.csr(at), value, "CSR{at}");
    }
    // A soft reset keeps the software style, the reset line does not.
    assert_eq!(station.bcr(20), 0x0302);
    station.lance.hard_reset();
    assert_eq!((station.bcr(20), station.bcr(18)), (0x0200, 0x9001));
    assert!(!station.lance.pci.is_bus_master());
}

#[test]
fn wrong_widths_read_ones_and_change_nothing() {
    let mut lance = Lance::new(MAC);
    for (offset, width) in [
        (RDP, Width::Byte),
        (RDP, Width::Dword),
        (RAP_WORD, Width::Dword),
        (RESET_WORD, Width::Dword),
        (0, Width::Dword),
        (1, Width::Word),
        (0x1c, Width::Dword),
        (0xff, Width::Byte),
    ] {
        assert_eq!(lance.read(offset, width), width.mask(), "{offset:#x} {width:?}");
    }
    let mut station = Station::new(0);
    station.out(RAP_WORD, Width::Word, 15);
    station.out(RAP_WORD, Width::Byte, 3);
    station.out(RAP_WORD, Width::Dword, 4);
    assert_eq!(station.lance.rap(), 15);
    station.out(RAP_WORD, Width::Word, 0x8f);
    assert_eq!(station.lance.rap(), 15);
}

#[test]
fn dword_write_to_rdp_changes_the_layout_until_reset() {
    let mut station = Station::new(0);
    station.out(RDP, Width::Dword, 0);
    assert_eq!(station.lance.read(RDP, Width::Word), 0xffff);
    station.out(RAP_DWORD, Width::Dword, 88);
    assert_eq!(station.lance.read(RAP_DWORD, Width::Dword), 88);
    assert_eq!(station.csr(88), 0x1003);
    assert_eq!(station.bcr(18) & 0x80, 0x80);
    assert_eq!(station.lance.read(0, Width::Dword).to_le_bytes(), MAC[..4]);
    assert_eq!(station.lance.read(RESET_DWORD, Width::Dword), 0);
    assert_eq!(station.lance.read(RDP, Width::Word), u32::from(csr0::STOP));
}

#[test]
fn ring_registers_are_locked_while_running_and_open_when_suspended() {
    let mut station = Station::started(2, 0);
    for at in [1, 8, 12, 15, 24, 30, 76, 112] {
        let before = station.csr(at);
        station.set_csr(at, !before);
        assert_eq!(station.csr(at), before, "CSR{at}");
    }
    station.set_bcr(20, 0);
    assert_eq!(station.bcr(20), 0x0302);
    station.set_csr(5, csr5::SPND);
    for at in [1, 8, 12, 15, 24, 30, 76, 112] {
        let before = station.csr(at);
        station.set_csr(at, !before);
        assert_eq!(station.csr(at), !before, "CSR{at}");
    }
    station.set_csr(58, 0);
    assert_eq!(station.csr(58), 0x0200);
}

#[test]
fn init_block_fills_the_registers_in_every_style() {
    for style in STYLES {
        let mut station = Station::new(style);
        station.init(0x8000, [1, 2, 3, 4]);
        assert_eq!(station.csr(0), csr0::INIT | csr0::IDON | csr0::INTR);
        assert!(!station.lance.irq());
        assert_eq!(station.csr(15), 0x8000);
        assert_eq!([8, 9, 10, 11].map(|at| station.csr(at)), [1, 2, 3, 4]);
        assert_eq!((station.csr(76), station.csr(78)), (4, 4));
        assert_eq!((station.csr(24), station.csr(30)), (0x1000, 0x2000));
        assert_eq!(station.csr(6), 0x2200);
        station.set_csr(0, csr0::INEA);
        assert!(station.lance.irq());
        station.set_csr(0, csr0::INEA | csr0::IDON | csr0::STRT);
        assert!(!station.lance.irq());
        let running = csr0::INIT | csr0::STRT | csr0::TXON | csr0::RXON | csr0::INEA;
        assert_eq!(station.csr(0), running);
    }
}

#[test]
fn stop_wins_over_init_and_start() {
    let mut station = Station::started(2, 0);
    station.set_csr(0, csr0::INIT | csr0::STRT | csr0::STOP);
    assert_eq!(station.csr(0), csr0::STOP);
    assert!(!station.lance.can_transmit() && !station.lance.can_receive());
}

#[test]
fn status_bits_clear_by_writing_one_and_errors_sum_up() {
    let mut station = Station::started(2, 0);
    for i in 0..4 {
        station.set_descriptor(station.rx_at(i), 0, 64, 0);
    }
    station.receive(&super::driver::frame(MAC, 64));
    let status = station.csr(0);
    assert_eq!(status & (csr0::MISS | csr0::ERR | csr0::INTR), csr0::MISS | csr0::ERR | csr0::INTR);
    assert_eq!(station.csr(112), 1);
    // ERR and INTR are derived: writing them does nothing.
    station.set_csr(0, csr0::ERR | csr0::INTR | csr0::INEA);
    assert_eq!(station.csr(0), status);
    station.set_csr(0, csr0::MISS | csr0::INEA);
    assert_eq!(station.csr(0) & (csr0::MISS | csr0::ERR | csr0::INTR), 0);
    assert!(!station.lance.irq());
}

#[test]
fn masks_and_enables_decide_about_the_line() {
    let mut station = Station::started(2, 0);
    // The user interrupt, raised by its command.
    station.set_csr(4, 0x0115 | 0x0080);
    assert!(station.lance.irq());
    assert_eq!(station.csr(4), 0x0155);
    station.set_csr(4, 0x0115 | 0x0040);
    assert!(!station.lance.irq());
    // A frame that began: masked after reset.
    station.tx_put(&[&super::driver::frame([0xff; 6], 64)], 0);
    station.set_csr(3, 0x0200);
    station.kick();
    assert_eq!(station.csr(0) & csr0::TINT, csr0::TINT);
    assert!(!station.lance.irq());
    station.set_csr(4, 0x0111);
    assert!(station.lance.irq());
    station.set_csr(4, 0x0111 | 0x0008);
    assert!(!station.lance.irq());
    station.set_csr(3, 0);
    assert!(station.lance.irq());
    station.set_csr(0, 0);
    assert!(!station.lance.irq());
    assert_eq!(station.csr(0) & csr0::INTR, csr0::INTR);
}
