//! Work on a frame that its sender leaves to the next stage, in the header that guest, card and TAP exchange.
//!
//! A guest's header is hostile. The kernel trusts much of it, so a card passes on no field that it has not checked
//! against the frame.
//!
//! Source: virtio 1.2, section 5.1.6; struct virtio_net_hdr, include/uapi/linux/virtio_net.h.

use wire::ethernet;
use wire::offload::upper_layer;

/// Longest frame that is still to be cut: Ethernet header, a VLAN tag, and the longest IPv4 packet.
pub(crate) const SUPER_FRAME_BYTES_MAX: usize =
    ethernet::HEADER_BYTES + ethernet::VLAN_BYTES + 65_535;

/// Flag: the checksum at `csum_offset` covers the frame from `csum_start` on, and holds the pseudo header's sum.
pub(crate) const NEEDS_CHECKSUM: u8 = 1;
/// Flag of a received frame: its checksum was verified.
const CHECKSUM_VALID: u8 = 2;

/// Value of `gso_type`: one frame.
const WHOLE: u8 = 0;
/// TCP over IPv4, to be cut into segments of `gso_size` bytes.
pub(crate) const TCP_V4: u8 = 1;
/// TCP over IPv6.
pub(crate) const TCP_V6: u8 = 4;

const TCP: u8 = 6;
const TCP_CHECKSUM_OFFSET: u16 = 16;
const TCP_LEN_OFFSET: usize = 12;
const TCP_HEADER_BYTES_MIN: usize = 20;
/// Most segments of a frame: 64 KiB by the smallest segment of Linux, 48 bytes. A header that asks for segments of one
/// byte would have the host build 65,535 frames for one.
const SEGMENTS_MAX: usize = 1366;

/// Kinds of work that may be left to the next stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Offloads {
    /// Checksums of TCP and UDP over the payload.
    pub checksum: bool,
    /// Segmentation of TCP over IPv4.
    pub tcp_v4: bool,
    /// Segmentation of TCP over IPv6.
    pub tcp_v6: bool,
}

impl Offloads {
    /// True if frames may be longer than the wire's.
    pub fn has_segmentation(self) -> bool {
        self.tcp_v4 || self.tcp_v6
    }
}

/// Header of a frame. All fields are the sender's words.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OffloadHeader {
    pub flags: u8,
    pub gso_type: u8,
    /// Length of all headers of a frame to be cut.
    pub hdr_len: u16,
    /// Payload of a segment.
    pub gso_size: u16,
    pub csum_start: u16,
    /// From `csum_start` on.
    pub csum_offset: u16,
}

impl OffloadHeader {
    pub const BYTES: usize = 10;
    /// Of a frame with nothing left to do.
    pub const FINISHED: OffloadHeader = OffloadHeader {
        flags: 0,
        gso_type: WHOLE,
        hdr_len: 0,
        gso_size: 0,
        csum_start: 0,
        csum_offset: 0,
    };

    /// Reads the little-endian header.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let [flags, gso_type, h0, h1, g0, g1, s0, s1, o0, o1] = *bytes;
        OffloadHeader {
            flags,
            gso_type,
            hdr_len: u16::from_le_bytes([h0, h1]),
            gso_size: u16::from_le_bytes([g0, g1]),
            csum_start: u16::from_le_bytes([s0, s1]),
            csum_offset: u16::from_le_bytes([o0, o1]),
        }
    }

    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let OffloadHeader { flags, gso_type, hdr_len, gso_size, csum_start, csum_offset } = self;
        let ([h0, h1], [g0, g1]) = (hdr_len.to_le_bytes(), gso_size.to_le_bytes());
        let ([s0, s1], [o0, o1]) = (csum_start.to_le_bytes(), csum_offset.to_le_bytes());
        [flags, gso_type, h0, h1, g0, g1, s0, s1, o0, o1]
    }

    /// True if the next stage has to compute a checksum.
    pub fn leaves_checksum(&self) -> bool {
        self.flags & NEEDS_CHECKSUM != 0
    }

    /// True if the next stage has to cut the frame.
    pub fn leaves_segmentation(&self) -> bool {
        self.gso_type != WHOLE
    }

    /// The header with only those fields that its flags make valid, and with the true length of the headers;
    /// `None` if it leaves work that is not `allowed`, or does not fit the frame.
    pub(crate) fn checked(self, frame: &[u8], allowed: Offloads) -> Option<Self> {
        let mut checked = OffloadHeader {
            flags: self.flags & NEEDS_CHECKSUM,
            gso_type: self.gso_type,
            ..OffloadHeader::FINISHED
        };
        if self.leaves_checksum() {
            let end = usize::from(self.csum_start) + usize::from(self.csum_offset) + 2;
            let fits = usize::from(self.csum_start) >= ethernet::HEADER_BYTES && end <= frame.len();
            if !allowed.checksum || !fits {
                return None;
            }
            (checked.csum_start, checked.csum_offset) = (self.csum_start, self.csum_offset);
        } else if allowed.checksum {
            checked.flags = self.flags & CHECKSUM_VALID;
        }
        // The bit for ECN is not offered, so it makes an unknown type.
        let is_allowed = match self.gso_type {
            WHOLE => return Some(checked),
            TCP_V4 => allowed.tcp_v4,
            TCP_V6 => allowed.tcp_v6,
            _ => false,
        };
        let is_tcp = self.leaves_checksum() && self.csum_offset == TCP_CHECKSUM_OFFSET;
        if !is_allowed || !is_tcp || self.gso_size == 0 {
            return None;
        }
        let headers_bytes = tcp_headers_bytes(frame, self.csum_start.into(), self.gso_type)?;
        let payload_bytes = frame.len() - headers_bytes;
        checked.hdr_len = u16::try_from(headers_bytes).ok()?;
        checked.gso_size = self.gso_size;
        (payload_bytes.div_ceil(self.gso_size.into()) <= SEGMENTS_MAX).then_some(checked)
    }
}

/// Length of all headers of a frame whose TCP header begins at `start`; `None` if it is not such a frame, or has no
/// payload.
fn tcp_headers_bytes(frame: &[u8], start: usize, gso_type: u8) -> Option<usize> {
    let upper = upper_layer(frame)?;
    let is_tcp = upper.protocol == TCP && upper.is_v4 == (gso_type == TCP_V4) && upper.at == start;
    let header_bytes = usize::from(frame.get(start.checked_add(TCP_LEN_OFFSET)?)? >> 4) * 4;
    let end = start + header_bytes;
    (is_tcp && header_bytes >= TCP_HEADER_BYTES_MIN && end < frame.len()).then_some(end)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const ALL: Offloads = Offloads { checksum: true, tcp_v4: true, tcp_v6: true };

    /// A frame of TCP with a payload of this length, its checksum left, and its header for segments of 1,448 bytes.
    pub(crate) fn super_frame(is_v4: bool, payload_bytes: usize) -> (OffloadHeader, Vec<u8>) {
        let upper_bytes = TCP_HEADER_BYTES_MIN + payload_bytes;
        let mut frame = vec![2; 12];
        if is_v4 {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((20 + upper_bytes as u16).to_be_bytes());
            frame.extend([0, 0, 0x40, 0, 64, TCP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        } else {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend((upper_bytes as u16).to_be_bytes());
            frame.extend([TCP, 64]);
            frame.extend([0xfd; 32]);
        }
        let start = frame.len();
        frame.extend([0; TCP_HEADER_BYTES_MIN]);
        frame[start + TCP_LEN_OFFSET] = 0x50;
        frame.extend((0..payload_bytes).map(|i| (i * 7 + i / 256) as u8));
        let header = OffloadHeader {
            flags: NEEDS_CHECKSUM,
            gso_type: if is_v4 { TCP_V4 } else { TCP_V6 },
            hdr_len: (start + TCP_HEADER_BYTES_MIN) as u16,
            gso_size: 1448,
            csum_start: start as u16,
            csum_offset: TCP_CHECKSUM_OFFSET,
        };
        (header, frame)
    }

    #[test]
    fn header_is_that_of_the_kernel() {
        let header = OffloadHeader {
            flags: 1,
            gso_type: 2,
            hdr_len: 0x0403,
            gso_size: 0x0605,
            csum_start: 0x0807,
            csum_offset: 0x0a09,
        };
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
        assert_eq!((header.to_bytes(), OffloadHeader::from_bytes(&bytes)), (bytes, header));
    }

    #[test]
    fn super_frames_pass_with_the_true_length_of_their_headers() {
        for is_v4 in [true, false] {
            let (header, frame) = super_frame(is_v4, 40_000);
            for hdr_len in [0, header.hdr_len, u16::MAX] {
                assert_eq!(OffloadHeader { hdr_len, ..header }.checked(&frame, ALL), Some(header));
            }
            let mut tagged = frame.clone();
            tagged.splice(12..12, [0x81, 0, 0, 7]);
            let (hdr_len, csum_start) = (header.hdr_len + 4, header.csum_start + 4);
            let behind = OffloadHeader { hdr_len, csum_start, ..header };
            assert_eq!(behind.checked(&tagged, ALL), Some(behind));
        }
    }

    #[test]
    fn headers_that_do_not_fit_their_frame_are_refused() {
        let (good, frame) = super_frame(true, 3000);
        for (what, bad) in [
            ("segments of nothing", OffloadHeader { gso_size: 0, ..good }),
            ("segments of a byte", OffloadHeader { gso_size: 1, ..good }),
            ("no checksum", OffloadHeader { flags: 0, ..good }),
            ("ECN", OffloadHeader { gso_type: TCP_V4 | 0x80, ..good }),
            ("the other IP", OffloadHeader { gso_type: TCP_V6, ..good }),
            ("UDP fragments", OffloadHeader { gso_type: 3, ..good }),
            ("UDP segments", OffloadHeader { gso_type: 5, ..good }),
            ("an unknown type", OffloadHeader { gso_type: 0x7f, ..good }),
            ("another start", OffloadHeader { csum_start: 35, ..good }),
            ("a start at the end", OffloadHeader { csum_start: frame.len() as u16, ..good }),
            ("a start beyond", OffloadHeader { csum_start: u16::MAX, ..good }),
            ("a start in the MAC address", OffloadHeader { csum_start: 0, ..good }),
            ("another field", OffloadHeader { csum_offset: 6, ..good }),
            ("a field beyond", OffloadHeader { csum_offset: u16::MAX, ..good }),
        ] {
            assert_eq!(bad.checked(&frame, ALL), None, "{what}");
        }
        // A frame without payload, one whose TCP header is longer than it, and one of UDP.
        assert_eq!(good.checked(&frame[..54], ALL), None);
        for (at, value) in [(46, 0x40), (23, 17), (20, 0x20)] {
            let mut other = frame.clone();
            other[at] = value;
            assert_eq!(good.checked(&other, ALL), None, "byte {at}");
        }
    }

    #[test]
    fn work_that_is_not_allowed_is_refused_and_fields_without_a_flag_are_cleared() {
        let (tcp, frame) = super_frame(true, 3000);
        let sum = OffloadHeader { gso_type: WHOLE, ..tcp };
        let none = Offloads::default();
        let checksum = Offloads { checksum: true, ..none };
        assert_eq!(tcp.checked(&frame, checksum), None);
        assert_eq!(sum.checked(&frame, none), None);
        let cleared = OffloadHeader { hdr_len: 0, gso_size: 0, ..sum };
        assert_eq!(sum.checked(&frame, checksum), Some(cleared));
        let finished = OffloadHeader { flags: 0xfe, gso_type: WHOLE, ..tcp };
        assert_eq!(finished.checked(&frame, none), Some(OffloadHeader::FINISHED));
        let valid = OffloadHeader { flags: CHECKSUM_VALID, ..OffloadHeader::FINISHED };
        assert_eq!(finished.checked(&frame, checksum), Some(valid));
    }
}
