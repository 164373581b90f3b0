//! Work that a sender leaves to a device: checksums over the pseudo header alone, and super-frames.
//!
//! Sockets of this machine behind a veth or a TAP device send frames that no card has finished. A packet
//! socket tells which they are; AF_XDP does not, but they can be recognised: the field of the checksum
//! then holds the sum of the pseudo header.
//!
//! Source: kernel documentation, networking/checksum-offloads.rst and networking/segmentation-offloads.rst.

use crate::{checksum, ethernet, flow, gre, ipv4, ipv6, udp, vxlan};

const TCP: u8 = 6;
const SCTP: u8 = 132;
const TCP_HEADER_BYTES_MIN: usize = 20;
const TCP_SEQUENCE_OFFSET: usize = 4;
const TCP_LEN_OFFSET: usize = 12;
const TCP_FLAGS_OFFSET: usize = 13;
const TCP_CHECKSUM_OFFSET: usize = 16;
const SCTP_CHECKSUM_OFFSET: usize = 8;
const SCTP_HEADER_BYTES: usize = 12;
const TCP_FIN: u8 = 1;
const TCP_PSH: u8 = 8;
const TCP_CWR: u8 = 0x80;
const V4_ID_OFFSET: usize = 4;
/// IP headers of a frame that are found: a packet in tunnels.
const LAYERS_MAX: usize = 4;

/// Place of a checksum that a sender left to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unfinished {
    /// First byte that it covers.
    pub start: usize,
    /// Of its field, behind `start`.
    pub offset: usize,
}

/// Upper layer of a frame's outermost packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpperLayer {
    /// True behind IPv4, false behind IPv6.
    pub is_v4: bool,
    /// Its protocol's number.
    pub protocol: u8,
    /// Offset of its header in the frame.
    pub at: usize,
}

/// Finds the upper layer of a frame, behind VLAN tags; `None` if the frame is not IP, a fragment, or cut.
#[inline]
pub fn upper_layer(frame: &[u8]) -> Option<UpperLayer> {
    let Layer { is_v4, protocol, upper_at: at, .. } = Layer::of(frame, 0)?;
    Some(UpperLayer { is_v4, protocol, at })
}

/// An IP header of a frame, and the packet behind it.
#[derive(Debug, Clone, Copy)]
struct Layer {
    ip_at: usize,
    is_v4: bool,
    protocol: u8,
    /// Range of the upper layer.
    upper_at: usize,
    upper_end: usize,
}

/// The layers of a frame from the outside in.
#[derive(Debug, Clone, Copy, Default)]
struct Layers {
    found: [Option<Layer>; LAYERS_MAX],
}

impl Layer {
    /// The layer of the frame that begins at `at`; `None` if it is not IP, a fragment, or cut.
    #[inline]
    fn of(frame: &[u8], at: usize) -> Option<Layer> {
        let (ethertype, behind) = ethernet::network(frame.get(at..)?)?;
        let ip_at = at + behind;
        let packet = frame.get(ip_at..)?;
        match ethertype {
            ethernet::TYPE_IPV4 => {
                let header = ipv4::Header::parse(packet, packet.len()).ok()?;
                let upper_at = ip_at + header.header_bytes();
                (!header.is_fragment()).then_some(Layer {
                    ip_at,
                    is_v4: true,
                    protocol: header.protocol(),
                    upper_at,
                    upper_end: upper_at + header.payload_bytes(),
                })
            }
            ethernet::TYPE_IPV6 => {
                let header = ipv6::Header::parse(packet, packet.len()).ok()?;
                let upper = ipv6::upper(packet, &header);
                let upper_end = ip_at + ipv6::HEADER_BYTES + header.payload_bytes();
                (!upper.is_opaque && ip_at + upper.at <= upper_end).then_some(Layer {
                    ip_at,
                    is_v4: false,
                    protocol: upper.protocol,
                    upper_at: ip_at + upper.at,
                    upper_end,
                })
            }
            _ => None,
        }
    }

    /// Offset of the frame in it, if it is a tunnel: VXLAN to this port, or Ethernet over GRE.
    #[inline]
    fn frame_inside(&self, frame: &[u8], vxlan_port: u16) -> Option<usize> {
        match self.protocol {
            ipv4::PROTOCOL_UDP => {
                let port = word(frame, self.upper_at + udp::DST_PORT_OFFSET)?;
                let is_vxlan = port == vxlan_port || port == vxlan::PORT;
                is_vxlan.then_some(self.upper_at + udp::HEADER_BYTES + vxlan::HEADER_BYTES)
            }
            gre::PROTOCOL => {
                let header = gre::Repr::parse(frame.get(self.upper_at..)?).ok()?;
                let is_bridged = header.ethertype == gre::TYPE_BRIDGED;
                is_bridged.then_some(self.upper_at + header.header_bytes())
            }
            _ => None,
        }
    }

    /// Sum of the pseudo header of its upper layer.
    #[inline]
    fn pseudo_header_sum(&self, frame: &[u8]) -> Option<u16> {
        let upper_bytes = self.upper_end - self.upper_at;
        if self.is_v4 {
            let header = ipv4::Header::parse(frame.get(self.ip_at..)?, usize::MAX).ok()?;
            let (src, dst) = (header.src(), header.dst());
            // By the header's own length, it fits.
            Some(checksum::pseudo_header_sum(src, dst, self.protocol, upper_bytes as u16))
        } else {
            let header = ipv6::Header::parse(frame.get(self.ip_at..)?, usize::MAX).ok()?;
            let (src, dst) = (header.src(), header.dst());
            Some(ipv6::pseudo_header_sum(src, dst, self.protocol, upper_bytes as u32))
        }
    }

    /// Finishes the checksum of its upper layer if it is that of the pseudo header alone.
    #[inline]
    fn finish(&self, frame: &mut [u8]) -> Option<()> {
        let offset = match self.protocol {
            TCP => TCP_CHECKSUM_OFFSET,
            ipv4::PROTOCOL_UDP => udp::CHECKSUM_OFFSET,
            SCTP => {
                let field = self.upper_at + SCTP_CHECKSUM_OFFSET;
                let is_left = frame.get(field..field + 4)? == [0; 4];
                return is_left.then(|| finish_sctp(frame, self.upper_at, self.upper_end))?;
            }
            _ => return None,
        };
        let found = word(frame, self.upper_at + offset)?;
        let pseudo = self.pseudo_header_sum(frame)?;
        if found != pseudo {
            return None;
        }
        let sum = checksum::sum(frame.get(self.upper_at..self.upper_end)?);
        // One packet in 65,536 is finished and looks like this.
        if checksum::add(sum, pseudo) == 0xffff {
            return None;
        }
        put(frame, self.upper_at + offset, checksum::finish_udp(sum))
    }
}

impl Layers {
    /// Walks through tunnels: VXLAN to this port, Ethernet over GRE.
    #[inline]
    fn of(frame: &[u8], vxlan_port: u16) -> Layers {
        let mut layers = Layers::default();
        let mut at = 0;
        for found in &mut layers.found {
            let Some(layer) = Layer::of(frame, at) else { break };
            *found = Some(layer);
            match layer.frame_inside(frame, vxlan_port) {
                Some(inside) => at = inside,
                None => break,
            }
        }
        layers
    }

    fn inside_out(&self) -> impl Iterator<Item = &Layer> {
        self.found.iter().rev().flatten()
    }
}

/// Finishes the checksums that the sender of a frame left to a device, in tunnels too. True if there was one.
///
/// One that holds the sum of its pseudo header and is not right by that is taken for one that was left: a frame
/// damaged on its way looks like this once in 65,536 times.
///
/// - `vxlan_port`: UDP port of VXLAN beside that of its RFC.
#[inline]
pub fn finish_left(frame: &mut [u8], vxlan_port: u16) -> bool {
    let layers = Layers::of(frame, vxlan_port);
    // The sum of a tunnel's packet is right once those inside are.
    let mut is_any = false;
    for layer in layers.inside_out() {
        is_any |= layer.finish(frame).is_some();
    }
    is_any
}

/// Finishes a checksum whose field holds the sum of the pseudo header. `None` if the frame is too short.
pub fn finish(frame: &mut [u8], place: Unfinished) -> Option<()> {
    let Unfinished { start, offset } = place;
    // No other checksum is at this offset.
    if offset == SCTP_CHECKSUM_OFFSET {
        return finish_sctp(frame, start, frame.len());
    }
    let sum = checksum::sum(frame.get(start..)?);
    // One's complement has two zeros; as the kernel does, this one is sent by every protocol.
    put(frame, start.checked_add(offset)?, checksum::finish_udp(sum))
}

/// Source: RFC 9260, section 6.8.
fn finish_sctp(frame: &mut [u8], start: usize, end: usize) -> Option<()> {
    let packet = frame.get_mut(start..end).filter(|packet| packet.len() >= SCTP_HEADER_BYTES)?;
    packet[SCTP_CHECKSUM_OFFSET..SCTP_CHECKSUM_OFFSET + 4].fill(0);
    let crc = flow::crc32c(packet);
    packet[SCTP_CHECKSUM_OFFSET..SCTP_CHECKSUM_OFFSET + 4].copy_from_slice(&crc.to_le_bytes());
    Some(())
}

/// A super-frame of TCP or UDP, in tunnels too, and the part of it that was not cut into frames yet.
#[derive(Debug, Clone, Copy)]
pub struct Cut {
    layers: Layers,
    upper: Layer,
    headers_bytes: usize,
    segment_bytes: usize,
    /// Of the payload.
    done_bytes: usize,
    frame_count: u16,
}

impl Cut {
    /// `None` if the frame's headers are not as the kernel describes it.
    ///
    /// - `start`: of the header of TCP or UDP whose payload is cut.
    /// - `segment_bytes`: payload of a frame.
    pub fn of(frame: &[u8], start: usize, segment_bytes: u16, vxlan_port: u16) -> Option<Cut> {
        let mut layers = Layers::of(frame, vxlan_port);
        let last = layers.found.iter().flatten().position(|layer| layer.upper_at == start)?;
        layers.found[last + 1..].fill(None);
        let upper = layers.found[last]?;
        let header_bytes = match upper.protocol {
            TCP => usize::from(frame.get(start + TCP_LEN_OFFSET)? >> 4) * 4,
            ipv4::PROTOCOL_UDP => udp::HEADER_BYTES,
            _ => return None,
        };
        let is_whole = upper.protocol != TCP || header_bytes >= TCP_HEADER_BYTES_MIN;
        let headers_bytes = start + header_bytes;
        (is_whole && segment_bytes > 0 && headers_bytes < upper.upper_end).then_some(Cut {
            layers,
            upper,
            headers_bytes,
            segment_bytes: segment_bytes.into(),
            done_bytes: 0,
            frame_count: 0,
        })
    }

    /// Length of the next frame; `None` after the last one.
    pub fn next_bytes(&self) -> Option<usize> {
        let left = self.upper.upper_end - self.headers_bytes - self.done_bytes;
        (left > 0).then_some(self.headers_bytes + left.min(self.segment_bytes))
    }

    /// Writes the next frame, with all of its checksums, and returns its length.
    ///
    /// - `frame`: the super-frame.
    /// - `into`: at least [`Self::next_bytes`] long.
    pub fn next(&mut self, frame: &[u8], into: &mut [u8]) -> Option<usize> {
        let len = self.next_bytes()?;
        let into = into.get_mut(..len)?;
        let from = self.headers_bytes + self.done_bytes;
        let (headers, payload) = into.split_at_mut(self.headers_bytes);
        headers.copy_from_slice(frame.get(..self.headers_bytes)?);
        payload.copy_from_slice(frame.get(from..from + payload.len())?);
        let payload_bytes = payload.len();
        self.fill(into)?;
        self.done_bytes += payload_bytes;
        self.frame_count = self.frame_count.wrapping_add(1);
        Some(len)
    }

    /// Makes the copied headers those of a frame of their own.
    fn fill(&self, frame: &mut [u8]) -> Option<()> {
        let is_last = self.headers_bytes + self.done_bytes + (frame.len() - self.headers_bytes)
            == self.upper.upper_end;
        if self.upper.protocol == TCP {
            let tcp = frame.get_mut(self.upper.upper_at..)?;
            let sequence = tcp.get_mut(TCP_SEQUENCE_OFFSET..)?.first_chunk_mut::<4>()?;
            let next = u32::from_be_bytes(*sequence).wrapping_add(self.done_bytes as u32);
            *sequence = next.to_be_bytes();
            let flags = tcp.get_mut(TCP_FLAGS_OFFSET)?;
            if !is_last {
                *flags &= !(TCP_FIN | TCP_PSH);
            }
            if self.done_bytes > 0 {
                *flags &= !TCP_CWR;
            }
        }
        for layer in self.layers.inside_out() {
            self.fill_layer(frame, layer)?;
        }
        Some(())
    }

    /// Lengths and checksums of a layer; those inside are right already.
    fn fill_layer(&self, frame: &mut [u8], layer: &Layer) -> Option<()> {
        let len = frame.len();
        let Layer { ip_at, upper_at, .. } = *layer;
        // A frame is far below 64 KiB.
        if layer.is_v4 {
            put(frame, ip_at + ipv4::TOTAL_OFFSET, (len - ip_at) as u16)?;
            let id = word(frame, ip_at + V4_ID_OFFSET)?;
            put(frame, ip_at + V4_ID_OFFSET, id.wrapping_add(self.frame_count))?;
            put(frame, ip_at + ipv4::CHECKSUM_OFFSET, 0)?;
            let checksum = checksum::checksum(frame.get(ip_at..upper_at)?);
            put(frame, ip_at + ipv4::CHECKSUM_OFFSET, checksum)?;
        } else {
            let payload_bytes = len - ip_at - ipv6::HEADER_BYTES;
            put(frame, ip_at + ipv6::PAYLOAD_OFFSET, payload_bytes as u16)?;
        }
        let is_innermost = upper_at == self.upper.upper_at;
        let layer = Layer { upper_end: len, ..*layer };
        match layer.protocol {
            TCP => {
                put(frame, upper_at + TCP_CHECKSUM_OFFSET, layer.pseudo_header_sum(frame)?)?;
                finish(frame, Unfinished { start: upper_at, offset: TCP_CHECKSUM_OFFSET })
            }
            ipv4::PROTOCOL_UDP => {
                put(frame, upper_at + udp::LEN_OFFSET, (len - upper_at) as u16)?;
                // A tunnel may have none.
                if !is_innermost && word(frame, upper_at + udp::CHECKSUM_OFFSET)? == 0 {
                    return Some(());
                }
                put(frame, upper_at + udp::CHECKSUM_OFFSET, layer.pseudo_header_sum(frame)?)?;
                finish(frame, Unfinished { start: upper_at, offset: udp::CHECKSUM_OFFSET })
            }
            gre::PROTOCOL => {
                let packet = frame.get_mut(upper_at..)?;
                if gre::Repr::parse(packet).ok()?.has_checksum {
                    gre::fill_checksum(packet).ok()?;
                }
                Some(())
            }
            _ => None,
        }
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_be_bytes)
}

fn put(bytes: &mut [u8], at: usize, value: u16) -> Option<()> {
    *bytes.get_mut(at..)?.first_chunk_mut()? = value.to_be_bytes();
    Some(())
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const PORT: u16 = 4789;

    /// An Ethernet frame with an IP packet of this protocol.
    fn packet(is_v4: bool, protocol: u8, upper: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        if is_v4 {
            frame.extend([8, 0]);
            let mut header = [0; 20];
            let repr = ipv4::Repr {
                src: [10, 0, 0, 1].into(),
                dst: [10, 0, 0, 2].into(),
                protocol,
                ttl: 64,
                payload_bytes: upper.len(),
            };
            repr.write(&mut header).expect("it fits");
            frame.extend(header);
        } else {
            frame.extend([0x86, 0xdd]);
            let mut header = [0; 40];
            let repr = ipv6::Repr {
                src: "fd00::1".parse().expect("an address"),
                dst: "fd00::2".parse().expect("an address"),
                next: protocol,
                hops: 64,
                service: 0,
                flow_label: 0,
                payload_bytes: upper.len(),
            };
            repr.write(&mut header).expect("it fits");
            frame.extend(header);
        }
        frame.extend(upper);
        frame
    }

    fn payload(len: usize) -> Vec<u8> {
        (0..len).map(|n| (n * 7 + n / 251) as u8).collect()
    }

    fn tcp(is_v4: bool, flags: u8, payload: &[u8]) -> Vec<u8> {
        let mut header = vec![0x12, 0x34, 0x1f, 0x90, 0xff, 0xff, 0xff, 0x00, 0, 0, 0, 9];
        header.extend([0x80, flags, 1, 0, 0, 0, 0, 0]);
        // A time stamp.
        header.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        packet(is_v4, TCP, &[&header, payload].concat())
    }

    fn udp(is_v4: bool, port: u16, payload: &[u8]) -> Vec<u8> {
        let mut datagram = vec![0x12, 0x34];
        datagram.extend(port.to_be_bytes());
        datagram.extend((8 + payload.len() as u16).to_be_bytes());
        datagram.extend([0, 0]);
        datagram.extend(payload);
        packet(is_v4, ipv4::PROTOCOL_UDP, &datagram)
    }

    fn vxlan(inner: &[u8]) -> Vec<u8> {
        udp(true, PORT, &[&[8, 0, 0, 0, 0, 0, 42, 0], inner].concat())
    }

    fn gre(inner: &[u8], has_checksum: bool) -> Vec<u8> {
        let repr =
            gre::Repr { has_checksum, key: Some(7), sequence: None, ethertype: gre::TYPE_BRIDGED };
        let mut bytes = vec![0; repr.header_bytes()];
        repr.write(&mut bytes).expect("it fits");
        bytes.extend(inner);
        packet(true, gre::PROTOCOL, &bytes)
    }

    fn last_layer(frame: &[u8]) -> Layer {
        *Layers::of(frame, PORT).inside_out().next().expect("it is IP")
    }

    /// Leaves the checksum of the innermost packet to a device. Returns its place.
    fn leave(frame: &mut [u8]) -> Unfinished {
        let layer = last_layer(frame);
        let offset = if layer.protocol == TCP { TCP_CHECKSUM_OFFSET } else { 6 };
        let sum = layer.pseudo_header_sum(frame).expect("it is whole");
        put(frame, layer.upper_at + offset, sum).expect("it is whole");
        Unfinished { start: layer.upper_at, offset }
    }

    /// Sums of each layer are right; the header's of IPv4 too.
    fn verify(frame: &[u8]) {
        for layer in Layers::of(frame, PORT).inside_out() {
            if layer.is_v4 {
                let header = ipv4::Packet::parse(&frame[layer.ip_at..]).expect("it is whole");
                header.verify_checksum().expect("the header's checksum");
            }
            let upper = &frame[layer.upper_at..layer.upper_end];
            assert_eq!(layer.upper_end, frame.len());
            match layer.protocol {
                gre::PROTOCOL if gre::Repr::parse(upper).expect("GRE").has_checksum => {
                    gre::verify_checksum(upper).expect("GRE's checksum");
                }
                ipv4::PROTOCOL_UDP if upper[6..8] == [0, 0] => {}
                TCP | ipv4::PROTOCOL_UDP => {
                    let pseudo = layer.pseudo_header_sum(frame).expect("it is whole");
                    assert_eq!(checksum::add(checksum::sum(upper), pseudo), 0xffff, "{layer:?}");
                }
                _ => {}
            }
        }
    }

    /// Frames with a packet of TCP or UDP, bare and in tunnels.
    fn frames(payload: &[u8]) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        for is_v4 in [true, false] {
            for inner in [tcp(is_v4, 0x10, payload), udp(is_v4, 53, payload)] {
                frames.push([&inner[..12], &[0x81, 0, 0, 7], &inner[12..]].concat());
                frames.extend([vxlan(&inner), gre(&inner, false), vxlan(&vxlan(&inner)), inner]);
            }
        }
        frames
    }

    #[test]
    fn checksum_that_was_left_is_recognised_and_finished_and_others_stay() {
        for mut frame in frames(&payload(101)) {
            let place = leave(&mut frame);
            let mut by_place = frame.clone();
            assert!(finish_left(&mut frame, PORT), "{frame:02x?}");
            verify(&frame);
            finish(&mut by_place, place).expect("it is whole");
            assert_eq!(by_place, frame);
            let finished = frame.clone();
            assert!(!finish_left(&mut frame, PORT));
            // A damaged packet stays damaged.
            *frame.last_mut().expect("a payload") ^= 1;
            let damaged = frame.clone();
            assert!(!finish_left(&mut frame, PORT));
            assert_eq!(frame, damaged);
            assert_ne!(frame, finished);
        }
    }

    #[test]
    fn sum_of_a_tunnel_is_right_once_the_packet_inside_is_finished() {
        // As the kernel's tunnels write it: over what the inner packet will be.
        let mut frame = vxlan(&tcp(true, 0x10, &payload(300)));
        let mut whole = frame.clone();
        leave(&mut whole);
        finish_left(&mut whole, PORT);
        let outer = Layer::of(&whole, 0).expect("it is IP");
        let pseudo = outer.pseudo_header_sum(&whole).expect("it is whole");
        let sum = checksum::add(pseudo, checksum::sum(&whole[outer.upper_at..]));
        leave(&mut frame);
        put(&mut frame, outer.upper_at + 6, checksum::finish_udp(sum)).expect("it is whole");
        assert!(finish_left(&mut frame, PORT));
        verify(&frame);
        // Or its own is left, and the packet inside is whole.
        put(&mut whole, outer.upper_at + 6, pseudo).expect("it is whole");
        assert!(finish_left(&mut whole, PORT));
        assert_eq!(whole, frame);
    }

    #[test]
    fn sctp_gets_its_crc() {
        let header = [0x12, 0x34, 0, 80, 1, 2, 3, 4, 0, 0, 0, 0, 10, 0, 0, 4];
        let mut frame = packet(true, SCTP, &header);
        let mut by_place = frame.clone();
        assert!(finish_left(&mut frame, PORT));
        let crc = flow::crc32c(&header);
        assert_eq!(frame[34 + 8..34 + 12], crc.to_le_bytes());
        finish(&mut by_place, Unfinished { start: 34, offset: 8 }).expect("it is whole");
        assert_eq!(by_place, frame);
        assert!(!finish_left(&mut frame, PORT));
    }

    #[test]
    fn super_frame_becomes_frames_with_all_of_its_bytes_and_right_sums() {
        let bytes = payload(4000);
        for mut frame in frames(&bytes).into_iter().chain([gre(&tcp(true, 0x10, &bytes), true)]) {
            let Unfinished { start, offset } = leave(&mut frame);
            let mut cut = Cut::of(&frame, start, 1400, PORT).expect("it is one");
            let (mut got, mut count) = (Vec::<u8>::new(), 0);
            while let Some(len) = cut.next_bytes() {
                let mut whole = vec![0xee; len];
                assert_eq!(cut.next(&frame, &mut whole), Some(len));
                verify(&whole);
                let layer = last_layer(&whole);
                let header_bytes = if offset == 16 { 32 } else { 8 };
                if offset == 16 {
                    let sequence = &whole[layer.upper_at + 4..layer.upper_at + 8];
                    let sequence = u32::from_be_bytes(sequence.try_into().expect("four"));
                    assert_eq!(sequence, 0xffff_ff00_u32.wrapping_add(got.len() as u32));
                }
                got.extend(&whole[layer.upper_at + header_bytes..]);
                count += 1;
            }
            assert_eq!((got == bytes, count), (true, 3));
            assert_eq!(cut.next(&frame, &mut [0; 2000]), None);
        }
    }

    #[test]
    fn flags_of_a_super_frame_go_to_its_first_and_last_frame() {
        let mut frame = tcp(true, TCP_CWR | TCP_PSH | TCP_FIN | 0x10, &payload(3000));
        let Unfinished { start, .. } = leave(&mut frame);
        let mut cut = Cut::of(&frame, start, 1000, PORT).expect("it is one");
        let flags = [0, 1, 2].map(|id| {
            let mut whole = [0; 1500];
            cut.next(&frame, &mut whole).expect("there are three");
            assert_eq!(word(&whole, 14 + V4_ID_OFFSET), Some(id));
            whole[start + TCP_FLAGS_OFFSET]
        });
        assert_eq!(flags, [TCP_CWR | 0x10, 0x10, TCP_PSH | TCP_FIN | 0x10]);
    }

    #[test]
    fn frames_that_the_kernel_describes_wrongly_are_no_super_frames() {
        let frame = tcp(true, 0x10, &payload(3000));
        for (start, segment_bytes) in [(34, 0), (33, 1000), (35, 1000), (3000, 1000)] {
            assert!(Cut::of(&frame, start, segment_bytes, PORT).is_none(), "{start}");
        }
        assert!(Cut::of(&frame[..60], 34, 1000, PORT).is_none());
        let mut short = frame;
        short[34 + TCP_LEN_OFFSET] = 0x40;
        assert!(Cut::of(&short, 34, 1000, PORT).is_none());
        assert!(Cut::of(&packet(true, 1, &[8; 64]), 34, 8, PORT).is_none());
        assert_eq!(finish(&mut [0; 40], Unfinished { start: 34, offset: 16 }), None);
        assert_eq!(finish(&mut [0; 40], Unfinished { start: 50, offset: usize::MAX }), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn hostile_frames_are_finished_and_cut_in_bounds(
            which in 0usize..20,
            len in 0usize..300,
            damage in prop::collection::vec((0usize..160, any::<u8>()), 0..6),
            cut_at in 0usize..400,
            start in 0usize..160,
            segment_bytes in 0u16..200,
        ) {
            let mut frame = frames(&payload(len)).swap_remove(which);
            for (at, byte) in damage {
                if let Some(place) = frame.get_mut(at) {
                    *place = byte;
                }
            }
            frame.truncate(cut_at.max(1));
            finish_left(&mut frame, PORT);
            let _ = finish(&mut frame.clone(), Unfinished { start, offset: len });
            if let Some(mut cut) = Cut::of(&frame, start, segment_bytes, PORT) {
                let mut done = 0;
                while let Some(len) = cut.next_bytes() {
                    let mut into = vec![0; len];
                    if cut.next(&frame, &mut into).is_none() {
                        break;
                    }
                    done += 1;
                    prop_assert!(done <= frame.len());
                }
            }
        }
    }
}
