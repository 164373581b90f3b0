//! Whole frames for packet engines: headers around a payload, the payload of an arrived frame, and
//! echoes built in place.

use std::ops::Range;

use wire::ethernet;
use wire::frame::{self, Received, RestSum, UdpMeta, UdpTemplate};
use wire::probe::{self, Kind};

use crate::engine::{Arrival, Local, Remote, Setup};
use crate::error::IoError;

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
        let packet_bytes = frame::headers_bytes(remote.ip) + payload_bytes - ethernet::HEADER_BYTES;
        if packet_bytes > local.mtu_bytes as usize {
            let (ifname, mtu) = (&local.ifname, local.mtu_bytes);
            let why =
                format!("makes packets of {packet_bytes} bytes; {ifname} has an MTU of {mtu}");
            return Err(size_error(payload_bytes, why));
        }
        if payload_bytes < probe::HEADER_BYTES {
            let why = format!("is below the probe's header of {}", probe::HEADER_BYTES);
            return Err(size_error(payload_bytes, why));
        }
        let meta = UdpMeta {
            src_mac: local.mac,
            dst_mac: remote.mac,
            src_ip: local.ip,
            dst_ip: remote.ip,
            src_port: local.port.wrapping_add(flow),
            dst_port: remote.port,
        };
        let headers = UdpTemplate::new(meta, payload_bytes)
            .map_err(|e| size_error(payload_bytes, e.to_string()))?;
        // All bytes behind the header are zero, and so is their sum.
        Ok(Template { headers, rest: RestSum::of(&[]), wipe: false })
    }

    /// One for each flow; none without a remote. `wipe`: frames are also used to receive.
    pub(crate) fn for_flows(setup: &Setup<'_>, wipe: bool) -> Result<Vec<Self>, IoError> {
        let Setup { spec, local, remote, flows, payload_bytes, .. } = *setup;
        let Some(remote) = remote else { return Ok(Vec::new()) };
        let mut templates = Vec::with_capacity(flows);
        for flow in 0..flows.max(1) as u16 {
            let mut template = Template { wipe, ..Self::new(local, remote, flow, payload_bytes)? };
            if let Some(tag) = spec.frame_tag() {
                template.headers = template.headers.tagged(tag);
            }
            templates.push(template);
        }
        Ok(templates)
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
            frame[self.headers.headers_bytes() + probe::HEADER_BYTES..].fill(0);
        }
        self.build_unchecked(frame, fill);
        // Cannot fail: `new` refused payloads without room for the probe header.
        let filled = self.headers.fill_checksum_from(frame, self.rest);
        debug_assert!(filled.is_ok());
    }

    /// Writes a frame without UDP checksum, which IPv4 allows and IPv6 does not; returns the range of the
    /// payload.
    pub fn build_unchecked(
        &self,
        frame: &mut [u8],
        fill: &mut impl FnMut(&mut [u8]),
    ) -> Range<usize> {
        // Cannot fail: engines hand out frames of `frame_bytes`.
        let written = self.headers.write_into(frame);
        debug_assert!(written.is_ok());
        let at = self.headers.headers_bytes();
        fill(&mut frame[at..]);
        at..frame.len()
    }
}

fn size_error(payload_bytes: usize, why: String) -> IoError {
    let remedy = "choose another --size, or raise the MTU of both ends".into();
    IoError::PayloadSize { payload_bytes, why, remedy }
}

/// The payload of a received datagram.
pub(crate) fn arrival<'a>(received: &'a mut Received<'_>, stamp_ns: Option<u64>) -> Arrival<'a> {
    let payload_bytes = received.payload_bytes();
    Arrival { payload: received.payload_mut(), payload_bytes, stamp_ns }
}

/// Makes a received frame of `frame_bytes`, or its first part, its own answer, when `answer` gives it a reply
/// number: headers swapped, kind and reply written, checksum updated. Returns true if it is one.
pub(crate) fn turn_around(
    head: &mut [u8],
    frame_bytes: usize,
    stamp_ns: Option<u64>,
    answer: &mut impl FnMut(&mut Arrival<'_>) -> Option<u32>,
) -> bool {
    let Ok(mut received) = Received::parse(head, frame_bytes) else { return false };
    let Some(reply) = answer(&mut arrival(&mut received, stamp_ns)) else { return false };
    received.answer_probe(Kind::Pong, reply).is_ok()
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
    use wire::frame::{UdpChecksum, verify_checksums};
    use wire::probe::Header;

    use super::*;

    const V4: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
    const V6: [&str; 2] = ["fd77::1", "fd77::2"];

    fn ends([near, far]: [&str; 2], mtu_bytes: u32) -> (Local, Remote) {
        let local = Local {
            ifindex: 1,
            ifname: "veth0".into(),
            mtu_bytes,
            queue: 0,
            queues: 1,
            mac: [2, 0, 0, 0, 0, 1],
            ip: near.parse().unwrap(),
            addresses: Vec::new(),
            port: 9001,
        };
        (local, Remote { mac: [2, 0, 0, 0, 0, 2], ip: far.parse().unwrap(), port: 9000 })
    }

    fn header(sequence: u32) -> Header {
        Header { kind: Kind::Ping, flow: 0, session: 7, sequence, reply: 0, time_ns: 123_456 }
    }

    fn built(ips: [&str; 2], payload_bytes: usize, wipe: bool, stale: u8) -> Vec<u8> {
        let (local, remote) = ends(ips, 9000);
        let template =
            Template { wipe, ..Template::new(&local, &remote, 0, payload_bytes).unwrap() };
        let mut frame = vec![stale; template.frame_bytes()];
        template.build(&mut frame, &mut |p| header(42).write(p).unwrap());
        frame
    }

    #[test]
    fn a_built_frame_has_valid_checksums_whatever_the_frame_held_before() {
        for (ips, size) in [V4, V6].into_iter().flat_map(|ips| [24, 25, 64, 1460].map(|n| (ips, n)))
        {
            for (wipe, stale) in [(true, 0xa5), (false, 0)] {
                let frame = built(ips, size, wipe, stale);
                assert_eq!(verify_checksums(&frame).unwrap(), UdpChecksum::Valid);
            }
        }
    }

    #[test]
    fn an_answer_is_swapped_numbered_and_has_valid_checksums() {
        for ips in [V4, V6] {
            let mut frame = built(ips, 100, false, 0);
            let len = frame.len();
            assert!(turn_around(&mut frame, len, None, &mut |_| Some(99)));
            assert_eq!(verify_checksums(&frame).unwrap(), UdpChecksum::Valid);
            let (meta, range) = frame::udp_payload(&frame).unwrap();
            assert_eq!((meta.src_port, meta.dst_port), (9000, 9001));
            assert_eq!([meta.src_ip.to_string(), meta.dst_ip.to_string()], [ips[1], ips[0]]);
            let answered = Header::parse(&frame[range]).unwrap();
            assert_eq!((answered.kind, answered.reply, answered.sequence), (Kind::Pong, 99, 42));
        }
    }

    #[test]
    fn the_first_part_of_a_long_packet_is_answered_like_the_whole() {
        for ips in [V4, V6] {
            let [whole, part] = [usize::MAX, 2048].map(|bytes| {
                let mut frame = built(ips, 5000, false, 0);
                let len = frame.len();
                assert!(turn_around(&mut frame[..bytes.min(len)], len, None, &mut |_| Some(5)));
                frame
            });
            assert_eq!(part, whole);
        }
    }

    #[test]
    fn what_is_not_answered_stays_as_it_was() {
        let mut frame = built(V4, 64, false, 0);
        let (before, len) = (frame.clone(), frame.len());
        assert!(!turn_around(&mut frame, len, None, &mut |_| None));
        assert_eq!(frame, before);
        assert!(!turn_around(&mut [0; 60], 60, None, &mut |_| Some(1)));
    }

    #[test]
    fn a_payload_that_does_not_fit_names_the_mtu() {
        for (ips, most) in [(V4, 1472), (V6, 1452)] {
            let (local, remote) = ends(ips, 1500);
            let error = Template::new(&local, &remote, 0, most + 1).unwrap_err().to_string();
            assert!(error.contains("of 1501 bytes") && error.contains("MTU of 1500"), "{error}");
            assert!(Template::new(&local, &remote, 0, most).is_ok());
            assert!(Template::new(&local, &remote, 0, 8).is_err());
        }
    }
}
