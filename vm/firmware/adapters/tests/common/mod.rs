//! A card on the fake device, and frames of a peer.
#![allow(dead_code, reason = "each test binary uses part of it")]

use adapters::{Card, SETTINGS};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::*;
use virtio::fake::{Behaviour, FakeDevice, FakeMemory, FakeRegisters, RX};
use virtio::net::{NetDriver, POOL_FRAMES, Settings};

pub(crate) const US: Ipv4Address = Ipv4Address::new(10, 0, 0, 2);
pub(crate) const THEM: Ipv4Address = Ipv4Address::new(10, 0, 0, 1);
pub(crate) const OUR_MAC: EthernetAddress = EthernetAddress([0x52, 0x54, 0, 0x12, 0x34, 0x56]);
pub(crate) const THEIR_MAC: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 1]);

pub(crate) type FakeCard = Card<FakeRegisters, FakeMemory>;

/// Settings of each kind of ring and notification.
pub(crate) fn every() -> impl Iterator<Item = Settings> {
    (0..16).map(|bits| Settings {
        event_idx: bits & 1 != 0,
        packed: bits & 2 != 0,
        indirect: bits & 4 != 0,
        tx_interrupts: bits & 8 != 0,
        ..SETTINGS
    })
}

pub(crate) fn card(behaviour: Behaviour, settings: Settings) -> (FakeDevice, FakeCard) {
    let (device, registers, memory) = FakeDevice::new(behaviour);
    let driver = NetDriver::start(registers, memory, settings).expect("the device starts");
    (device, Card::new(driver))
}

fn frame(dst_addr: EthernetAddress, ethertype: EthernetProtocol, payload_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0; 14 + payload_bytes];
    let header = EthernetRepr { src_addr: THEIR_MAC, dst_addr, ethertype };
    header.emit(&mut EthernetFrame::new_unchecked(&mut bytes));
    bytes
}

/// The peer asks for our address.
pub(crate) fn arp() -> Vec<u8> {
    let arp = ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Request,
        source_hardware_addr: THEIR_MAC,
        source_protocol_addr: THEM,
        target_hardware_addr: EthernetAddress([0; 6]),
        target_protocol_addr: US,
    };
    let mut bytes = frame(EthernetAddress::BROADCAST, EthernetProtocol::Arp, arp.buffer_len());
    arp.emit(&mut ArpPacket::new_unchecked(&mut bytes[14..]));
    bytes
}

/// The peer pings us.
pub(crate) fn ping(seq_no: u16, data: &[u8]) -> Vec<u8> {
    let icmp = Icmpv4Repr::EchoRequest { ident: 1, seq_no, data };
    let ip = Ipv4Repr {
        src_addr: THEM,
        dst_addr: US,
        next_header: IpProtocol::Icmp,
        payload_len: icmp.buffer_len(),
        hop_limit: 64,
    };
    let checksums = ChecksumCapabilities::default();
    let mut bytes = frame(OUR_MAC, EthernetProtocol::Ipv4, ip.buffer_len() + icmp.buffer_len());
    ip.emit(&mut Ipv4Packet::new_unchecked(&mut bytes[14..]), &checksums);
    icmp.emit(&mut Icmpv4Packet::new_unchecked(&mut bytes[34..]), &checksums);
    bytes
}

/// Number and data of an echo reply to the peer, with right checksums.
pub(crate) fn pong(bytes: &[u8]) -> (u16, Vec<u8>) {
    let ethernet = EthernetFrame::new_checked(bytes).expect("it is whole");
    assert_eq!((ethernet.src_addr(), ethernet.dst_addr()), (OUR_MAC, THEIR_MAC));
    let ip = Ipv4Packet::new_checked(ethernet.payload()).expect("it is whole");
    assert_eq!((ip.src_addr(), ip.dst_addr(), ip.verify_checksum()), (US, THEM, true));
    let icmp = Icmpv4Packet::new_checked(ip.payload()).expect("it is whole");
    match Icmpv4Repr::parse(&icmp, &ChecksumCapabilities::default()) {
        Ok(Icmpv4Repr::EchoReply { seq_no, data, .. }) => (seq_no, data.to_vec()),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn is_arp_reply(bytes: &[u8]) -> bool {
    let ethernet = EthernetFrame::new_checked(bytes).expect("it is whole");
    ethernet.ethertype() == EthernetProtocol::Arp
        && ArpPacket::new_checked(ethernet.payload()).expect("it is whole").operation()
            == ArpOperation::Reply
}

/// No frame is lost or held, and device and driver agree on the frames that the device owns.
pub(crate) fn assert_no_leak(device: &FakeDevice, card: &mut FakeCard) {
    let (ledger, (ring, _)) = (card.driver().ledger(), card.driver().ring_frames());
    assert_eq!((ledger.total(), ledger.held_count), (POOL_FRAMES as u32, 0));
    assert_eq!(ledger.receive_count, ring);
    assert_eq!(device.owned_count(RX), usize::from(ring));
}
