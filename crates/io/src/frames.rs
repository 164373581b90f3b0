//! Whole frames for packet engines: headers around a payload, the payload of an arrived frame, and
//! echoes built in place.

use std::ops::Range;

use wire::frame::{self, HEADERS_BYTES, IPV4_OFFSET, RestSum, UDP_OFFSET, UdpMeta, UdpTemplate};
use wire::probe::{self, Kind};
use wire::{checksum, ethernet, ipv4, udp};

use crate::engine::{Arrival, Local, Remote, Setup};
use crate::error::IoError;

/// Length of the frame around a payload, in bytes.
pub(crate) fn frame_bytes(payload_bytes: usize) -> usize {
    HEADERS_BYTES + payload_bytes
}

/// Headers of all datagrams of one flow.
#[derive(Debug, Clone)]
pub struct Template {
    headers: UdpTemplate,
    rest: RestSum,
    /// Frames may hold data of earlier use behind the probe header.
    wipe: bool,
}

impl Template {
    /// For datagrams of one size from `local` (its port plus `flow`) to `remote`.
    pub fn new(
        local: &Local,
        remote: &Remote,
        flow: u16,
        payload_bytes: usize,
    ) -> Result<Self, IoError> {
        let packet_bytes = payload_bytes + HEADERS_BYTES - ethernet::HEADER_BYTES;
        let refused = |why: String| IoError::PayloadSize {
            payload_bytes,
            why,
            remedy: "choose another --size, or raise the MTU of both ends".into(),
        };
        if packet_bytes > local.mtu_bytes as usize {
            let (ifname, mtu) = (&local.ifname, local.mtu_bytes);
            return Err(refused(format!(
                "makes packets of {packet_bytes} bytes; {ifname} has an MTU of {mtu}"
            )));
        }
        if payload_bytes < probe::HEADER_BYTES {
            return Err(refused(format!("is below the probe's header of {}", probe::HEADER_BYTES)));
        }
        let meta = UdpMeta {
            src_mac: local.mac,
            dst_mac: remote.mac,
            src_ip: local.ip,
            dst_ip: remote.ip,
            src_port: local.port.wrapping_add(flow),
            dst_port: remote.port,
        };
        let headers = UdpTemplate::new(meta, payload_bytes).map_err(|e| refused(e.to_string()))?;
        // All bytes behind the header are zero, and so is their sum.
        Ok(Template { headers, rest: RestSum::of(&[]), wipe: false })
    }

    /// One for each flow; none without a remote. `wipe`: frames are also used to receive.
    pub(crate) fn for_flows(setup: &Setup<'_>, wipe: bool) -> Result<Vec<Self>, IoError> {
        let Setup { local, remote, flows, payload_bytes, .. } = *setup;
        let Some(remote) = remote else { return Ok(Vec::new()) };
        (0..flows.max(1) as u16)
            .map(|flow| Ok(Template { wipe, ..Self::new(local, remote, flow, payload_bytes)? }))
            .collect()
    }

    /// Length of a frame in bytes.
    pub fn frame_bytes(&self) -> usize {
        self.headers.frame_bytes()
    }

    /// Writes a frame: headers, what `fill` writes to the payload's probe header, checksum.
    /// Bytes behind the probe header must be zero already (or are wiped).
    #[inline]
    pub(crate) fn build(&self, frame: &mut [u8], fill: &mut impl FnMut(&mut [u8])) {
        if self.wipe {
            frame[HEADERS_BYTES + probe::HEADER_BYTES..].fill(0);
        }
        self.build_unchecked(frame, fill);
        // Cannot fail: `new` refused payloads without room for the probe header.
        let filled = self.headers.fill_checksum_from(frame, self.rest);
        debug_assert!(filled.is_ok());
    }

    /// Writes a frame without UDP checksum, which IPv4 allows; returns the range of the payload.
    pub fn build_unchecked(
        &self,
        frame: &mut [u8],
        fill: &mut impl FnMut(&mut [u8]),
    ) -> Range<usize> {
        // Cannot fail: engines hand out frames of `frame_bytes`.
        let written = self.headers.write_into(frame);
        debug_assert!(written.is_ok());
        fill(&mut frame[HEADERS_BYTES..]);
        HEADERS_BYTES..frame.len()
    }
}

/// Range of the UDP payload in a whole frame; `None` if it is no UDP datagram.
pub(crate) fn payload_of(frame: &[u8]) -> Option<Range<usize>> {
    frame::udp_payload(frame).ok().map(|(_, range)| range)
}

/// The payload of a packet of which only the first frame is at hand.
pub(crate) struct Part {
    /// Range of the part in this frame.
    pub(crate) part: Range<usize>,
    /// Its whole length.
    pub(crate) whole_bytes: usize,
}

/// As [`payload_of`], for the first frame of a packet of `packet_bytes`.
pub(crate) fn payload_of_part(head: &[u8], packet_bytes: usize) -> Option<Part> {
    let (_, range) = frame::udp_payload_of_head(head, packet_bytes).ok()?;
    let whole_bytes = range.len();
    Some(Part { part: range.start.min(head.len())..range.end.min(head.len()), whole_bytes })
}

/// Makes a whole received frame its own answer, when `answer` gives it a reply number: headers
/// swapped, kind and reply written, checksum updated. Returns true if it is one.
pub(crate) fn turn_around(
    frame: &mut [u8],
    stamp_ns: Option<u64>,
    answer: &mut impl FnMut(&mut Arrival<'_>) -> Option<u32>,
) -> bool {
    let Some(range) = payload_of(frame) else { return false };
    let payload_bytes = range.len();
    let payload = &mut frame[range];
    let Some(reply) = answer(&mut Arrival { payload, payload_bytes, stamp_ns }) else {
        return false;
    };
    frame::answer_probe(frame, Kind::Pong, reply).is_ok()
}

/// As [`turn_around`], for the first frame of a longer packet. Only frames without VLAN tag
/// and IPv4 options; a checksum that the sender left unfinished becomes none, as the rest of
/// the payload is not at hand to finish it.
pub(crate) fn turn_around_part(
    head: &mut [u8],
    packet_bytes: usize,
    answer: &mut impl FnMut(&mut Arrival<'_>) -> Option<u32>,
) -> bool {
    let plain = payload_of_part(head, packet_bytes)
        .filter(|p| p.part.start == HEADERS_BYTES && p.part.len() >= probe::HEADER_BYTES);
    let Some(Part { part, whole_bytes }) = plain else { return false };
    let at = part.start;
    let payload = &mut head[part];
    let mut arrival = Arrival { payload, payload_bytes: whole_bytes, stamp_ns: None };
    let Some(reply) = answer(&mut arrival) else { return false };
    let checksum_at = UDP_OFFSET + udp::CHECKSUM_OFFSET;
    let found = u16::from_be_bytes([head[checksum_at], head[checksum_at + 1]]);
    let header = at..at + probe::HEADER_BYTES;
    let before = checksum::sum(&head[header.clone()]);
    answer_in_place(&mut head[header.clone()], reply);
    let updated = checksum::update_udp(found, before, checksum::sum(&head[header]));
    let ip = |offset: usize| {
        let at = IPV4_OFFSET + offset;
        std::net::Ipv4Addr::new(head[at], head[at + 1], head[at + 2], head[at + 3])
    };
    let len = (whole_bytes + udp::HEADER_BYTES) as u16;
    let unfinished = checksum::pseudo_header_sum(
        ip(ipv4::SRC_OFFSET),
        ip(ipv4::DST_OFFSET),
        ipv4::PROTOCOL_UDP,
        len,
    );
    let checksum = if found == 0 || found == unfinished { 0 } else { updated };
    head[checksum_at..checksum_at + 2].copy_from_slice(&checksum.to_be_bytes());
    swap(head, ethernet::DST_OFFSET, ethernet::SRC_OFFSET, 6);
    swap(head, IPV4_OFFSET + ipv4::SRC_OFFSET, IPV4_OFFSET + ipv4::DST_OFFSET, 4);
    swap(head, UDP_OFFSET + udp::SRC_PORT_OFFSET, UDP_OFFSET + udp::DST_PORT_OFFSET, 2);
    true
}

/// Swaps two fields of `len` bytes that do not overlap.
fn swap(bytes: &mut [u8], first: usize, second: usize, len: usize) {
    for n in 0..len {
        bytes.swap(first + n, second + n);
    }
}

/// Makes a ping's payload its answer; nothing behind the probe header changes.
pub(crate) fn answer_in_place(payload: &mut [u8], reply: u32) {
    if payload.len() >= probe::HEADER_BYTES {
        payload[probe::KIND_OFFSET] = Kind::Pong as u8;
        payload[probe::REPLY_OFFSET..probe::REPLY_OFFSET + 4].copy_from_slice(&reply.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use wire::frame::{UdpChecksum, verify_checksums};
    use wire::probe::Header;

    use super::*;

    fn ends(mtu_bytes: u32) -> (Local, Remote) {
        let local = Local {
            ifindex: 1,
            ifname: "veth0".into(),
            mtu_bytes,
            queue: 0,
            queues: 1,
            mac: [2, 0, 0, 0, 0, 1],
            ip: Ipv4Addr::new(10, 77, 0, 1),
            addresses: Vec::new(),
            port: 9001,
        };
        (local, Remote { mac: [2, 0, 0, 0, 0, 2], ip: Ipv4Addr::new(10, 77, 0, 2), port: 9000 })
    }

    fn header(sequence: u32) -> Header {
        Header { kind: Kind::Ping, flow: 0, session: 7, sequence, reply: 0, time_ns: 123_456 }
    }

    fn built(payload_bytes: usize, wipe: bool, stale: u8) -> Vec<u8> {
        let (local, remote) = ends(9000);
        let template =
            Template { wipe, ..Template::new(&local, &remote, 0, payload_bytes).unwrap() };
        let mut frame = vec![stale; template.frame_bytes()];
        template.build(&mut frame, &mut |p| header(42).write(p).unwrap());
        frame
    }

    #[test]
    fn a_built_frame_has_valid_checksums_whatever_the_frame_held_before() {
        for size in [24, 25, 64, 1460] {
            assert_eq!(verify_checksums(&built(size, true, 0xa5)).unwrap(), UdpChecksum::Valid);
            assert_eq!(verify_checksums(&built(size, false, 0)).unwrap(), UdpChecksum::Valid);
        }
    }

    #[test]
    fn an_answer_is_swapped_numbered_and_has_valid_checksums() {
        let mut frame = built(100, false, 0);
        assert!(turn_around(&mut frame, None, &mut |_| Some(99)));
        assert_eq!(verify_checksums(&frame).unwrap(), UdpChecksum::Valid);
        let (meta, range) = frame::udp_payload(&frame).unwrap();
        assert_eq!((meta.src_port, meta.dst_port), (9000, 9001));
        let answered = Header::parse(&frame[range]).unwrap();
        assert_eq!((answered.kind, answered.reply, answered.sequence), (Kind::Pong, 99, 42));
    }

    #[test]
    fn the_first_part_of_a_long_packet_is_answered_like_the_whole() {
        let whole = {
            let mut frame = built(5000, false, 0);
            assert!(turn_around(&mut frame, None, &mut |_| Some(5)));
            frame
        };
        let mut frame = built(5000, false, 0);
        let len = frame.len();
        assert!(turn_around_part(&mut frame[..2048], len, &mut |_| Some(5)));
        assert_eq!(frame, whole);
    }

    #[test]
    fn what_is_not_answered_stays_as_it_was() {
        let mut frame = built(64, false, 0);
        let before = frame.clone();
        assert!(!turn_around(&mut frame, None, &mut |_| None));
        assert_eq!(frame, before);
        assert!(!turn_around(&mut [0; 60], None, &mut |_| Some(1)));
    }

    #[test]
    fn a_payload_that_does_not_fit_names_the_mtu() {
        let (local, remote) = ends(1500);
        let error = Template::new(&local, &remote, 0, 1473).unwrap_err().to_string();
        assert!(error.contains("MTU of 1500"), "{error}");
        assert!(Template::new(&local, &remote, 0, 1472).is_ok());
        assert!(Template::new(&local, &remote, 0, 8).is_err());
    }
}
