//! Multicast datagrams that reached the interface of a line, as the tap saw them before the stack.

use std::net::{Ipv4Addr, SocketAddrV4};

use io::multicast::Group;
use sys::packet_tap::SeenPacket;
use wire::ipv4;

/// Senders, ports and groups that are told apart.
const KINDS_MAX: usize = 8;
/// Fragmented datagrams that are followed.
const FRAGMENTED_MAX: usize = 64;

/// Counts of packets, each at most once.
#[derive(Debug, Clone, Default)]
pub(super) struct Sightings {
    /// Datagrams of the group and port, by sender; whole ones, or all fragments of one.
    pub(super) senders: Vec<(Ipv4Addr, u64)>,
    /// Those of them whose frames are for another host.
    pub(super) for_other_host: u64,
    /// Fragmented datagrams of the group that are not whole.
    pub(super) fragmented: Vec<Fragmented>,
    /// Datagrams of the group to other ports.
    pub(super) other_ports: Vec<(u16, u64)>,
    /// Datagrams of other groups.
    pub(super) other_groups: Vec<(SocketAddrV4, u64)>,
}

/// Fragments of one datagram so far.
#[derive(Debug, Clone)]
pub(super) struct Fragmented {
    sender: Ipv4Addr,
    identification: u16,
    seen_bytes: usize,
    /// Length of all, known from the last fragment.
    all_bytes: Option<usize>,
    /// Known from the first fragment.
    port: Option<u16>,
}

fn count_one<K: PartialEq>(counts: &mut Vec<(K, u64)>, kind: K) {
    if let Some((_, count)) = counts.iter_mut().find(|(known, _)| *known == kind) {
        *count += 1;
    } else if counts.len() < KINDS_MAX {
        counts.push((kind, 1));
    }
}

impl Sightings {
    pub(super) fn add(&mut self, packet: SeenPacket<'_>, group: &Group) {
        // The kernel passes the begin of the packet; its length is in the header.
        let Ok(header) = ipv4::Header::parse(packet.bytes, usize::MAX) else { return };
        let Some(&[.., high, low, first, second]) = packet.bytes.first_chunk::<8>() else { return };
        let fragment = u16::from_be_bytes([first, second]);
        let offset_bytes = usize::from(fragment & 0x1fff) * 8;
        let port =
            packet.bytes.get(header.header_bytes() + 2..).and_then(|ports| ports.first_chunk());
        let port = port.map(|port| u16::from_be_bytes(*port)).filter(|_| offset_bytes == 0);
        let is_own_group = header.dst() == *group.address.ip();
        if header.is_fragment() && is_own_group {
            let identification = u16::from_be_bytes([high, low]);
            let is_last = fragment & 0x2000 == 0;
            let end_bytes = offset_bytes + header.payload_bytes();
            let part = (header.payload_bytes(), is_last.then_some(end_bytes), port);
            self.add_fragment((header.src(), identification), part, group);
            return;
        }
        let Some(port) = port else { return };
        match (is_own_group, port == group.address.port()) {
            (true, true) => {
                self.for_other_host += u64::from(packet.is_for_other_host);
                count_one(&mut self.senders, header.src());
            }
            (true, false) => count_one(&mut self.other_ports, port),
            (false, _) => {
                count_one(&mut self.other_groups, SocketAddrV4::new(header.dst(), port));
            }
        }
    }

    fn add_fragment(
        &mut self,
        (sender, identification): (Ipv4Addr, u16),
        (bytes, all_bytes, port): (usize, Option<usize>, Option<u16>),
        group: &Group,
    ) {
        let at = match self.fragmented.iter().position(|known: &Fragmented| {
            known.sender == sender && known.identification == identification
        }) {
            Some(at) => at,
            None if self.fragmented.len() < FRAGMENTED_MAX => {
                let (seen_bytes, all_bytes, port) = (0, None, None);
                self.fragmented.push(Fragmented {
                    sender,
                    identification,
                    seen_bytes,
                    all_bytes,
                    port,
                });
                self.fragmented.len() - 1
            }
            None => return,
        };
        let known = &mut self.fragmented[at];
        known.seen_bytes += bytes;
        known.all_bytes = known.all_bytes.or(all_bytes);
        known.port = known.port.or(port);
        if known.all_bytes.is_some_and(|all| known.seen_bytes >= all) {
            let whole = self.fragmented.swap_remove(at);
            match whole.port {
                Some(port) if port != group.address.port() => {
                    count_one(&mut self.other_ports, port)
                }
                _ => count_one(&mut self.senders, sender),
            }
        }
    }

    /// Datagrams of the group of which fragments are missing.
    pub(super) fn torn_count(&self, group: &Group) -> u64 {
        let own = group.address.port();
        let torn = self.fragmented.iter().filter(|torn| torn.port.is_none_or(|port| port == own));
        torn.count() as u64
    }

    /// Datagrams of the group and port from senders that its membership admits.
    pub(super) fn own_count(&self, group: &Group) -> u64 {
        let own = self
            .senders
            .iter()
            .filter(|(sender, _)| group.source.is_none_or(|source| source == *sender));
        own.map(|(_, count)| *count).sum()
    }

    /// The sender of most datagrams of the group and port that its membership does not admit.
    pub(super) fn excluded_sender(&self, group: &Group) -> Option<(Ipv4Addr, u64)> {
        let source = group.source?;
        let excluded = self.senders.iter().filter(|(sender, _)| *sender != source);
        excluded.max_by_key(|(_, count)| *count).copied()
    }
}

#[cfg(test)]
mod tests {
    use wire::udp;

    use super::*;

    fn group(source: Option<Ipv4Addr>) -> Group {
        Group {
            address: SocketAddrV4::new([239, 1, 1, 1].into(), 10_000),
            source,
            ifindex: 1,
            ifname: "eth1".into(),
        }
    }

    const SENDER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);

    fn packet(to: [u8; 4], port: u16, payload_bytes: usize) -> Vec<u8> {
        let mut bytes = vec![0; 28];
        let payload = udp::HEADER_BYTES + payload_bytes;
        let ip = ipv4::Repr {
            src: SENDER,
            dst: to.into(),
            protocol: 17,
            ttl: 1,
            payload_bytes: payload,
        };
        ip.write(&mut bytes).expect("it fits");
        let udp = udp::Repr { src_port: 1, dst_port: port, payload_bytes };
        udp.write_header(&mut bytes[20..]).expect("it fits");
        bytes
    }

    fn seen(bytes: &[u8]) -> SeenPacket<'_> {
        SeenPacket { bytes, is_for_other_host: false }
    }

    #[test]
    fn datagrams_are_told_apart_by_group_port_and_sender() {
        let any = group(None);
        let mut sightings = Sightings::default();
        let own = packet([239, 1, 1, 1], 10_000, 100);
        for bytes in [&own, &own, &packet([239, 1, 1, 1], 7, 0), &packet([239, 9, 9, 9], 10_000, 0)]
        {
            sightings.add(seen(bytes), &any);
        }
        sightings.add(seen(&own[..10]), &any);
        assert_eq!(sightings.own_count(&any), 2);
        assert_eq!(sightings.other_ports, [(7, 1)]);
        assert_eq!(sightings.other_groups, [("239.9.9.9:10000".parse().expect("one"), 1)]);
        let narrow = group(Some([192, 0, 2, 1].into()));
        assert_eq!(sightings.own_count(&narrow), 0);
        assert_eq!(sightings.excluded_sender(&narrow), Some((SENDER, 2)));
    }

    #[test]
    fn a_datagram_is_whole_when_its_last_fragment_has_come() {
        let any = group(None);
        let mut sightings = Sightings::default();
        // Identification 7, 64 bytes at 0 with more to come, then 36 bytes at 64.
        let mut first = packet([239, 1, 1, 1], 10_000, 56);
        first[4..8].copy_from_slice(&[0, 7, 0x20, 0]);
        let mut last = packet([239, 1, 1, 1], 0, 28);
        last[4..8].copy_from_slice(&[0, 7, 0, 8]);
        sightings.add(seen(&first), &any);
        assert_eq!((sightings.own_count(&any), sightings.torn_count(&any)), (0, 1));
        sightings.add(seen(&last), &any);
        assert_eq!((sightings.own_count(&any), sightings.torn_count(&any)), (1, 0));
        // Of another datagram the first fragment never comes.
        last[5] = 8;
        sightings.add(seen(&last), &any);
        assert_eq!((sightings.own_count(&any), sightings.torn_count(&any)), (1, 1));
    }
}
