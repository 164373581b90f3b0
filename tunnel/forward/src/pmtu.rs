//! Inner packets that do not fit the tunnel: TCP is told a smaller segment size when it connects, and
//! senders of others are told the MTU by ICMP.

use std::sync::atomic::{AtomicU64, Ordering};

use wire::{checksum, ethernet, ipv4, ipv6};

use crate::encap::PacketPlace;
use crate::inner::{self, Ip, word};

const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_ICMP6: u8 = 58;
const TCP_BYTES_MIN: usize = 20;
const TCP_CHECKSUM_AT: usize = 16;
const TCP_LEN_AT: usize = 12;
const TCP_FLAGS_AT: usize = 13;
const TCP_SYN: u8 = 0x02;
/// Option of the maximum segment size. Source: RFC 9293, section 3.2.
const OPTION_MSS: u8 = 2;
const OPTION_MSS_BYTES: u8 = 4;
const FRAGMENT_MASK: u16 = 0x3fff;

const ICMP_BYTES: usize = 8;
/// Bytes of an answer: its IP packet. Source: RFC 1812, section 4.3.2.3; RFC 4443, section 3.2.
const ANSWER_V4_BYTES_MAX: usize = 576;
const ANSWER_V6_BYTES_MAX: usize = 1280;

/// Answers between two are due after this time, apart from a burst.
const INTERVAL_NS: u64 = 1_000_000;
const BURST_NS: u64 = 50 * INTERVAL_NS;

/// Answer to the sender of a packet that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MtuAnswer {
    /// "Fragmentation needed".
    V4(PacketPlace),
    /// "Packet too big".
    V6(PacketPlace),
    /// None, because it must not be answered: not IP, may be fragmented, to or from a group, an ICMP error.
    None,
}

/// Limits the segment size that a TCP SYN announces. Returns true if it was larger.
///
/// - `frame_bytes_max`: longest frame that fits the tunnel.
#[inline]
pub(crate) fn clamp_mss(frame: &mut [u8], frame_bytes_max: usize) -> bool {
    if let Some(header) = inner::untagged_v4(frame)
        && header[ipv4::PROTOCOL_OFFSET] != PROTOCOL_TCP
    {
        return false;
    }
    let Some((ip_bytes, tcp_at)) = syn(frame) else { return false };
    // Headers without options: their length is the sender's matter (RFC 6691).
    let max = frame_bytes_max.saturating_sub(ip_bytes + TCP_BYTES_MIN);
    clamp_option(frame, tcp_at, u16::try_from(max).unwrap_or(u16::MAX)).is_some()
}

/// Bytes up to the end of an IP header without options, and the position of the TCP header, if the frame
/// is a SYN.
#[inline]
fn syn(frame: &[u8]) -> Option<(usize, usize)> {
    let (fixed, tcp_at) = match inner::ip(frame)? {
        Ip::V4 { at } => {
            let header: &[u8; ipv4::HEADER_BYTES_MIN] = frame.get(at..)?.first_chunk()?;
            let is_tcp = header[ipv4::PROTOCOL_OFFSET] == PROTOCOL_TCP
                && word(header, ipv4::FRAGMENT_OFFSET)? & FRAGMENT_MASK == 0;
            let header_bytes = usize::from(header[0] & 15) * 4;
            let is_whole = header_bytes >= ipv4::HEADER_BYTES_MIN;
            (is_tcp && is_whole).then_some((at + ipv4::HEADER_BYTES_MIN, at + header_bytes))?
        }
        Ip::V6 { at } => {
            let packet = frame.get(at..)?;
            let header = ipv6::Header::parse(packet, packet.len()).ok()?;
            let upper = ipv6::upper(packet, &header);
            let is_tcp = upper.protocol == PROTOCOL_TCP && !upper.is_opaque;
            is_tcp.then_some((at + ipv6::HEADER_BYTES, at + upper.at))?
        }
    };
    (frame.get(tcp_at + TCP_FLAGS_AT)? & TCP_SYN != 0).then_some((fixed, tcp_at))
}

fn clamp_option(frame: &mut [u8], tcp_at: usize, mss_max: u16) -> Option<()> {
    let header_bytes = usize::from(frame.get(tcp_at + TCP_LEN_AT)? >> 4) * 4;
    let tcp = frame.get_mut(tcp_at..tcp_at + header_bytes)?;
    let mut at = TCP_BYTES_MIN;
    // Each turn takes at least one of at most 40 bytes.
    loop {
        let len = match *tcp.get(at)? {
            0 => return None,
            1 => 1,
            kind => {
                let len = *tcp.get(at + 1)?;
                if (kind, len) == (OPTION_MSS, OPTION_MSS_BYTES) {
                    break;
                }
                usize::from(len).max(2)
            }
        };
        at += len;
    }
    let field = at + 2;
    let mss = word(tcp, field).filter(|mss| *mss > mss_max)?;
    tcp[field..field + 2].copy_from_slice(&mss_max.to_be_bytes());
    // The sum is over words: a field at an odd offset lies across two.
    let [mss, mss_max] =
        [mss, mss_max].map(|it| if field.is_multiple_of(2) { it } else { it.swap_bytes() });
    let sum = checksum::update(word(tcp, TCP_CHECKSUM_AT)?, mss, mss_max);
    tcp[TCP_CHECKSUM_AT..TCP_CHECKSUM_AT + 2].copy_from_slice(&sum.to_be_bytes());
    Some(())
}

/// Turns a frame that does not fit into the answer to its sender, in front of the packet. The answer
/// comes from the packet's destination, as from the kernel's tunnels: a bridge has no address.
///
/// - `bytes`: buffer of the frame, which is untouched if there is no answer.
/// - `frame_bytes_max`: longest frame that fits the tunnel.
///
/// Source: RFC 1191, section 4; RFC 4443, section 3.2; iptunnel_pmtud_build_icmp, net/ipv4/ip_tunnel_core.c.
pub(crate) fn answer(bytes: &mut [u8], place: PacketPlace, frame_bytes_max: usize) -> MtuAnswer {
    let PacketPlace { at, len } = place;
    let frame = at.checked_add(len).and_then(|end| bytes.get(at..end)).unwrap_or(&[]);
    let answered = match answerable(frame) {
        Some(Ip::V4 { at }) => answer_v4(bytes, place, at, frame_bytes_max).map(MtuAnswer::V4),
        Some(Ip::V6 { at }) => answer_v6(bytes, place, at, frame_bytes_max).map(MtuAnswer::V6),
        None => None,
    };
    answered.unwrap_or(MtuAnswer::None)
}

/// IP header of a frame whose sender may be answered.
pub(crate) fn answerable(frame: &[u8]) -> Option<Ip> {
    let firsts = [ethernet::DST_OFFSET, ethernet::SRC_OFFSET].map(|offset| frame.get(offset));
    if firsts.into_iter().any(|first| first.is_none_or(|first| first & 1 != 0)) {
        return None;
    }
    inner::ip(frame).filter(|ip| {
        let may = match *ip {
            Ip::V4 { at } => frame.get(at..).and_then(may_answer_v4),
            Ip::V6 { at } => frame.get(at..).and_then(may_answer_v6),
        };
        may == Some(true)
    })
}

/// Source: RFC 1122, section 3.2.2.
fn may_answer_v4(packet: &[u8]) -> Option<bool> {
    let fragment = word(packet, ipv4::FRAGMENT_OFFSET)?;
    let is_first = fragment & 0x1fff == 0;
    let firsts =
        [ipv4::SRC_OFFSET, ipv4::DST_OFFSET].map(|at| packet.get(at).copied().unwrap_or(0));
    let are_unicast = firsts.into_iter().all(|first| !matches!(first, 0 | 127 | 224..));
    let header_bytes = usize::from(packet[0] & 15) * 4;
    let is_error = *packet.get(ipv4::PROTOCOL_OFFSET)? == ipv4::PROTOCOL_ICMP
        && !matches!(packet.get(header_bytes)?, 0 | 8);
    let is_whole = header_bytes >= ipv4::HEADER_BYTES_MIN;
    Some(fragment & ipv4::DONT_FRAGMENT != 0 && is_first && is_whole && are_unicast && !is_error)
}

/// Source: RFC 4443, section 2.4.
fn may_answer_v6(packet: &[u8]) -> Option<bool> {
    let header = ipv6::Header::parse(packet, packet.len()).ok()?;
    let upper = ipv6::upper(packet, &header);
    let is_error =
        upper.protocol == PROTOCOL_ICMP6 && packet.get(upper.at).is_none_or(|kind| *kind < 128);
    let source = header.src();
    Some(!is_error && !source.is_unspecified() && !source.is_multicast())
}

/// Moves the link header `room` bytes forward, with its addresses exchanged. Returns its new position and
/// the range between it and the packet.
fn open_up(
    bytes: &mut [u8],
    place: PacketPlace,
    ip_at: usize,
    room: usize,
) -> Option<(usize, usize)> {
    let to = place.at.checked_sub(room)?;
    bytes.copy_within(place.at..place.at + ip_at, to);
    let (destination, rest) = bytes.get_mut(to..)?.split_first_chunk_mut::<6>()?;
    destination.swap_with_slice(rest.first_chunk_mut::<6>()?);
    Some((to, to + ip_at))
}

fn answer_v4(
    bytes: &mut [u8],
    place: PacketPlace,
    ip_at: usize,
    frame_bytes_max: usize,
) -> Option<PacketPlace> {
    const ROOM: usize = ipv4::HEADER_BYTES_MIN + ICMP_BYTES;
    let quoted = (place.len - ip_at).min(ANSWER_V4_BYTES_MAX - ROOM);
    let mtu = u16::try_from(frame_bytes_max.saturating_sub(ip_at)).unwrap_or(u16::MAX);
    let (to, at) = open_up(bytes, place, ip_at, ROOM)?;
    let packet = bytes.get_mut(at..at + ROOM + quoted)?;
    let (header, message) = packet.split_first_chunk_mut::<{ ipv4::HEADER_BYTES_MIN }>()?;
    let original = message.get(ICMP_BYTES..)?;
    let source: [u8; 4] = *original.get(ipv4::SRC_OFFSET..)?.first_chunk()?;
    let destination: [u8; 4] = *original.get(ipv4::DST_OFFSET..)?.first_chunk()?;
    *header = [0; ipv4::HEADER_BYTES_MIN];
    header[0] = 0x45;
    // Internetwork control. Source: RFC 1812, section 4.3.2.5.
    header[ipv4::SERVICE_OFFSET] = 6 << 5;
    header[ipv4::TOTAL_OFFSET..][..2].copy_from_slice(&((ROOM + quoted) as u16).to_be_bytes());
    header[ipv4::FRAGMENT_OFFSET..][..2].copy_from_slice(&ipv4::DONT_FRAGMENT.to_be_bytes());
    header[ipv4::TTL_OFFSET] = ipv4::TTL;
    header[ipv4::PROTOCOL_OFFSET] = ipv4::PROTOCOL_ICMP;
    header[ipv4::SRC_OFFSET..][..4].copy_from_slice(&destination);
    header[ipv4::DST_OFFSET..][..4].copy_from_slice(&source);
    let sum = checksum::checksum(&header[..]).to_be_bytes();
    header[ipv4::CHECKSUM_OFFSET..][..2].copy_from_slice(&sum);
    let [high, low] = mtu.to_be_bytes();
    message[..ICMP_BYTES].copy_from_slice(&[3, 4, 0, 0, 0, 0, high, low]);
    let sum = checksum::checksum(message).to_be_bytes();
    message[2..4].copy_from_slice(&sum);
    Some(PacketPlace { at: to, len: ip_at + ROOM + quoted })
}

fn answer_v6(
    bytes: &mut [u8],
    place: PacketPlace,
    ip_at: usize,
    frame_bytes_max: usize,
) -> Option<PacketPlace> {
    const ROOM: usize = ipv6::HEADER_BYTES + ICMP_BYTES;
    let quoted = (place.len - ip_at).min(ANSWER_V6_BYTES_MAX - ROOM);
    let mtu = frame_bytes_max.saturating_sub(ip_at) as u32;
    let (to, at) = open_up(bytes, place, ip_at, ROOM)?;
    let packet = bytes.get_mut(at..at + ROOM + quoted)?;
    let (header, message) = packet.split_first_chunk_mut::<{ ipv6::HEADER_BYTES }>()?;
    let original = message.get(ICMP_BYTES..)?;
    let source: [u8; 16] = *original.get(ipv6::SRC_OFFSET..)?.first_chunk()?;
    let destination: [u8; 16] = *original.get(ipv6::DST_OFFSET..)?.first_chunk()?;
    *header = [0; ipv6::HEADER_BYTES];
    header[0] = 0x60;
    let payload = (ICMP_BYTES + quoted) as u16;
    header[ipv6::PAYLOAD_OFFSET..][..2].copy_from_slice(&payload.to_be_bytes());
    header[ipv6::NEXT_OFFSET] = PROTOCOL_ICMP6;
    header[ipv6::HOPS_OFFSET] = ipv4::TTL;
    header[ipv6::SRC_OFFSET..][..16].copy_from_slice(&destination);
    header[ipv6::DST_OFFSET..][..16].copy_from_slice(&source);
    let pseudo =
        ipv6::pseudo_header_sum(destination.into(), source.into(), PROTOCOL_ICMP6, payload.into());
    message[..4].copy_from_slice(&[2, 0, 0, 0]);
    message[4..ICMP_BYTES].copy_from_slice(&mtu.to_be_bytes());
    let sum = checksum::finish(checksum::add(pseudo, checksum::sum(message))).to_be_bytes();
    message[2..4].copy_from_slice(&sum);
    Some(PacketPlace { at: to, len: ip_at + ROOM + quoted })
}

/// Rate limit of the answers, shared by all workers without a lock.
#[derive(Debug, Default)]
pub(crate) struct Limiter {
    /// Time at which the next answer is due, were they sent evenly.
    due_ns: AtomicU64,
}

impl Limiter {
    /// True if an answer may be sent now.
    pub(crate) fn admits(&self, now_ns: u64) -> bool {
        let admitted = self.due_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |due_ns| {
            let due_ns = due_ns.max(now_ns.saturating_sub(BURST_NS));
            (due_ns <= now_ns).then_some(due_ns + INTERVAL_NS)
        });
        admitted.is_ok()
    }
}

#[cfg(test)]
mod tests;
