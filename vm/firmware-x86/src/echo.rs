//! Answers ARP, ICMP echo and UDP to port 7; datagrams to port 9 bound the measured part.

use core::net::Ipv4Addr;
use core::sync::atomic::Ordering;

use guest_pages::{Signal, boot, report};
use wire::{arp, ethernet, frame, icmp, ipv4};

use crate::cpu::ticks;
use crate::nic::Nic;
use crate::pages::{Boot, Report};
use crate::{idle, signal, wake};

/// RFC 862.
const ECHO_PORT: u16 = 7;
/// RFC 863. The first datagram to it begins the measured part, the next ends it.
const DISCARD_PORT: u16 = 9;

/// Answers until the measured part ends, or the monitor stops the guest.
pub(crate) fn run(boot: &Boot, nic: &mut Nic) {
    let ip = Ipv4Addr::from(boot.get(boot::IP) as u32);
    let mac = nic.mac();
    let mut copy = [0; 1514];
    let mut begun = None;
    loop {
        wake::wake_word().store(0, Ordering::Release);
        let mut busy = false;
        while let Some(len) = nic.receive(|frame| {
            let len = frame.len().min(copy.len());
            copy[..len].copy_from_slice(&frame[..len]);
            len
        }) {
            busy = true;
            if answer(&mut copy[..len], mac, ip).is_some() {
                nic.send(len, |frame| frame.copy_from_slice(&copy[..len]));
            } else if is_control(&copy[..len], ip) {
                match begun {
                    None => {
                        Report::get().clear();
                        signal(Signal::Begin);
                        begun = Some(ticks());
                    }
                    Some(begin) => {
                        Report::get().set(report::TOTAL_TICKS, ticks() - begin);
                        signal(Signal::End);
                        return;
                    }
                }
            }
        }
        if !busy {
            idle();
        }
    }
}

/// True for a datagram to this guest's discard port.
fn is_control(bytes: &[u8], ip: Ipv4Addr) -> bool {
    let is_ours = |packet: &ipv4::Packet<'_>| packet.header().dst() == ip;
    let packet = ethernet::Packet::parse(bytes).map(|packet| packet.payload());
    packet.is_ok_and(|packet| ipv4::Packet::parse(packet).is_ok_and(|packet| is_ours(&packet)))
        && frame::udp_payload(bytes).is_ok_and(|(meta, _)| meta.dst_port == DISCARD_PORT)
}

/// Turns a request into its answer, of the same length, in place.
pub(crate) fn answer(bytes: &mut [u8], mac: [u8; 6], ip: Ipv4Addr) -> Option<()> {
    let (source, kind) = {
        let packet = ethernet::Packet::parse(bytes).ok()?;
        (packet.src(), packet.ethertype())
    };
    match kind {
        ethernet::TYPE_ARP => {
            let payload = bytes.get_mut(ethernet::HEADER_BYTES..)?;
            let request = arp::Packet::parse(payload).ok()?;
            if request.operation() != arp::Operation::Request || request.target_ip() != ip {
                return None;
            }
            arp::Repr::of(&request).reply_from(mac).write(payload).ok()?;
        }
        ethernet::TYPE_IPV4 => {
            let packet = ethernet::Packet::parse(bytes).ok()?.payload();
            let packet = ipv4::Packet::parse(packet).ok()?;
            let header = packet.header();
            if header.dst() != ip || packet.verify_checksum().is_err() {
                return None;
            }
            if header.protocol() == ipv4::PROTOCOL_ICMP {
                header.expect_whole(ipv4::PROTOCOL_ICMP).ok()?;
                let (from, len) = (header.header_bytes(), packet.payload().len());
                let message = icmp::Packet::parse(packet.payload()).ok()?;
                if message.kind() != icmp::Kind::EchoRequest {
                    return None;
                }
                let reply = icmp::Repr { kind: icmp::Kind::EchoReply, ..icmp::Repr::of(&message) };
                let ip_at = ethernet::HEADER_BYTES;
                let message = bytes.get_mut(ip_at + from..ip_at + from + len)?;
                reply.write(message).ok()?;
                // Swapping the addresses keeps their sum, and so the header's checksum.
                let addresses = bytes.get_mut(ip_at + ipv4::SRC_OFFSET..)?.get_mut(..8)?;
                addresses.rotate_left(4);
            } else {
                let (meta, _) = frame::udp_payload(bytes).ok()?;
                if meta.dst_port != ECHO_PORT {
                    return None;
                }
                frame::swap_for_echo(bytes).ok()?;
            }
        }
        _ => return None,
    }
    bytes.get_mut(..6)?.copy_from_slice(&source);
    bytes.get_mut(6..12)?.copy_from_slice(&mac);
    Some(())
}
