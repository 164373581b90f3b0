//! Packets of a tunnel that a router quotes in a report.

use std::net::IpAddr;

use wire::{flow, gre, ipv4, ipv6, udp, vxlan};

use super::{Encap, IP_AT};
use crate::inner::word;
use crate::spec::Carrier;

impl Encap {
    /// Length of a packet by its IP header, if this tunnel may have sent it: both addresses, the carrier, and
    /// the port, network identifier or key as far as they are quoted. `None` for the packet of another sender.
    ///
    /// - `packet`: its first bytes, from the IP header on. Routers return at least 8 bytes behind that
    ///   (RFC 792), so that a network identifier may be missing.
    pub(crate) fn quoted_bytes(&self, packet: &[u8]) -> Option<u32> {
        let (header_bytes, protocol, total_bytes) = match self.tunnel.remote {
            IpAddr::V4(_) => {
                let header: &[u8; ipv4::HEADER_BYTES_MIN] = packet.first_chunk()?;
                let fragment = word(header, ipv4::FRAGMENT_OFFSET)?;
                // A later fragment has no carrier; a packet that may be fragmented is not reported.
                let is_whole = header[0] == 0x45 && fragment == ipv4::DONT_FRAGMENT;
                let total_bytes = word(header, ipv4::TOTAL_OFFSET)?;
                is_whole.then_some(())?;
                (header.len(), header[ipv4::PROTOCOL_OFFSET], u32::from(total_bytes))
            }
            IpAddr::V6(_) => {
                let header: &[u8; ipv6::HEADER_BYTES] = packet.first_chunk()?;
                (header[0] >> 4 == 6).then_some(())?;
                let payload_bytes = word(header, ipv6::PAYLOAD_OFFSET)?;
                let total_bytes = u32::from(payload_bytes) + ipv6::HEADER_BYTES as u32;
                (header.len(), header[ipv6::NEXT_OFFSET], total_bytes)
            }
        };
        let addresses = match self.tunnel.remote {
            IpAddr::V4(_) => ipv4::SRC_OFFSET..ipv4::HEADER_BYTES_MIN,
            IpAddr::V6(_) => ipv6::SRC_OFFSET..ipv6::HEADER_BYTES,
        };
        let own = self.headers.get(IP_AT..)?;
        let is_ours = packet.get(addresses.clone()) == own.get(addresses)
            && protocol == self.protocol
            && self.has_quoted_carrier(packet.get(header_bytes..)?);
        is_ours.then_some(total_bytes)
    }

    /// True if a carrier's first bytes are those of this tunnel.
    fn has_quoted_carrier(&self, quoted: &[u8]) -> bool {
        let written = self.headers.get(self.carrier_at()..self.headers_bytes).unwrap_or(&[]);
        // Fields that are the same in each packet, as far as they are quoted.
        let agrees = |from: usize, to: usize| {
            let to = to.min(quoted.len()).max(from);
            quoted.get(from..to).is_some() && quoted.get(from..to) == written.get(from..to)
        };
        match self.tunnel.carrier {
            Carrier::Vxlan { .. } => {
                let source_port = word(quoted, udp::SRC_PORT_OFFSET);
                quoted.len() >= udp::HEADER_BYTES
                    && source_port.is_some_and(|port| port >= flow::SOURCE_PORT_MIN)
                    && agrees(udp::DST_PORT_OFFSET, udp::DST_PORT_OFFSET + 2)
                    && (quoted.len() == udp::HEADER_BYTES
                        || agrees(udp::HEADER_BYTES, udp::HEADER_BYTES + vxlan::HEADER_BYTES))
            }
            Carrier::Gretap { key } => {
                let key_end = self.sequence_at.map_or(written.len(), |at| at - self.carrier_at());
                quoted.len() >= gre::HEADER_BYTES_MIN
                    && agrees(0, gre::HEADER_BYTES_MIN)
                    && (key.is_none() || quoted.len() < key_end || agrees(key_end - 4, key_end))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encap::{HEADERS_BYTES_MAX, Mark, PacketPlace};
    use crate::fuzzing::tunnels;
    use crate::spec::Outer;

    /// Every tunnel, without and with the options of GRE.
    fn encaps() -> Vec<Encap> {
        let mut encaps = Vec::new();
        for tunnel in tunnels() {
            let suggested = Outer::suggested(&tunnel, [2; 6], [4; 6]);
            let is_gre = matches!(tunnel.carrier, Carrier::Gretap { .. });
            for has_options in [false, true] {
                let has_checksum = suggested.has_checksum || has_options;
                let has_sequence = is_gre && has_options;
                let outer = Outer { has_checksum, has_sequence, ..suggested };
                encaps.push(Encap::new(tunnel, outer).expect("valid tunnel"));
            }
        }
        encaps
    }

    /// The packet that a tunnel makes of a frame of 1,000 bytes, from its IP header on.
    fn packet(encap: &Encap) -> Vec<u8> {
        let mut buffer = vec![0x5a; HEADERS_BYTES_MAX + 1000];
        let mark = Mark { flow_hash: 0x1234_5678, sequence: 9 };
        let place = PacketPlace { at: HEADERS_BYTES_MAX, len: 1000 };
        let whole = encap.prepend(&mut buffer, place, mark).expect("it fits");
        buffer[whole.at + IP_AT..whole.at + whole.len].to_vec()
    }

    #[test]
    fn quoted_packet_is_that_of_its_tunnel_and_has_its_length() {
        for encap in encaps() {
            let packet = packet(&encap);
            let ip_bytes = encap.carrier_at() - IP_AT;
            assert_eq!(encap.take_sent_bytes_max() as usize, packet.len());
            assert_eq!(encap.take_sent_bytes_max(), 0, "it was taken");
            for quoted in [ip_bytes + 8, ip_bytes + 16, packet.len()] {
                let found = encap.quoted_bytes(&packet[..quoted]);
                assert_eq!(found, Some(packet.len() as u32), "{:?}: {quoted}", encap.tunnel());
            }
            for short in 0..ip_bytes + 4 {
                assert_eq!(encap.quoted_bytes(&packet[..short]), None, "{short}");
            }
            for other in encaps().iter().filter(|other| other.tunnel() != encap.tunnel()) {
                assert_eq!(other.quoted_bytes(&packet), None, "{:?}", other.tunnel());
            }
        }
    }

    #[test]
    fn packet_of_other_addresses_port_or_number_is_of_another_sender() {
        for encap in encaps() {
            let packet = packet(&encap);
            let carrier_at = encap.carrier_at() - IP_AT;
            let addresses_at = if encap.tunnel().remote.is_ipv4() { 12 } else { 8 };
            let mut places: Vec<usize> = (addresses_at..carrier_at).collect();
            match encap.tunnel().carrier {
                // The upper bits of the source port, the destination port, flags, network identifier.
                Carrier::Vxlan { .. } => {
                    places.extend([0, 2, 3, 8, 12, 13, 14].map(|at| carrier_at + at))
                }
                Carrier::Gretap { .. } => places.extend([0, 1, 2, 3].map(|at| carrier_at + at)),
            }
            for at in places {
                let mut other = packet.clone();
                other[at] ^= 0x80;
                assert_eq!(encap.quoted_bytes(&other), None, "{:?}: byte {at}", encap.tunnel());
            }
        }
    }

    #[test]
    fn path_limits_packets_that_must_not_be_fragmented() {
        use crate::encap::EncapDrop;
        use crate::spec::Field;

        let tunnel = tunnels()[0];
        let place = PacketPlace { at: HEADERS_BYTES_MAX, len: 1300 };
        let mark = Mark { flow_hash: 0, sequence: 0 };
        // An IPv4 packet in front of the rest, which may be fragmented, and one that must not.
        let frame = |flags: u8| {
            let mut buffer = vec![0; HEADERS_BYTES_MAX + 1300];
            let at = HEADERS_BYTES_MAX + 12;
            buffer[at..at + 9].copy_from_slice(&[8, 0, 0x45, 0, 5, 0, 0, 0, flags]);
            buffer
        };
        for (rule, flags, fits) in [
            (Field::Fixed(true), 0, false),
            (Field::Fixed(false), 0x40, true),
            (Field::Inherit(true), 0, true),
            (Field::Inherit(true), 0x40, false),
        ] {
            let suggested = Outer::suggested(&tunnel, [2; 6], [4; 6]);
            let outer = Outer { dont_fragment: rule, ..suggested };
            let encap = Encap::new(tunnel, outer).expect("valid tunnel").over_path(1300);
            let result = encap.prepend(&mut frame(flags), place, mark);
            let expected = if fits { Ok(()) } else { Err(EncapDrop::TooBig) };
            assert_eq!(result.map(drop), expected, "{rule:?} {flags:#x}");
            let limit = if rule == Field::Fixed(false) { 1464 } else { 1264 };
            assert_eq!(encap.inner_bytes_max(), limit, "{rule:?}");
            let longer = PacketPlace { len: 1465, ..place };
            let mut buffer = vec![0; HEADERS_BYTES_MAX + 1465];
            assert_eq!(encap.prepend(&mut buffer, longer, mark), Err(EncapDrop::TooBig));
        }
    }
}
