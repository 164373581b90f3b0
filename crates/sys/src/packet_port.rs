//! A packet socket that receives and sends whole frames with the work that their sender left to a device: frames of
//! TCP and UDP that stand for many segments, and unfinished checksums.
//!
//! Source: packet(7); the kernel's networking/packet_mmap.rst; virtio 1.2 section 5.1.6, struct virtio_net_hdr.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::packet::{
    self, FLAG_NEEDS_CSUM, GSO_ECN, GSO_NONE, GSO_TCP_V4, GSO_TCP_V6, GSO_UDP_L4,
    PACKET_IGNORE_OUTGOING, PACKET_QDISC_BYPASS, PACKET_VNET_HDR,
};
use crate::socket;

const PACKET_AUXDATA: i32 = 8;
const TP_STATUS_VLAN_VALID: u32 = 1 << 4;
const TP_STATUS_VLAN_TPID_VALID: u32 = 1 << 6;
const ETHERTYPE_VLAN: u16 = 0x8100;
/// Room for the control messages of one frame: a stamp and struct tpacket_auxdata.
const CONTROL_BYTES: usize = 128;

/// Kind of the segments that a super-frame stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentKind {
    Tcp4,
    Tcp6,
    Udp,
    /// A kind that this program does not cut.
    Other(u8),
}

/// Header in front of each frame of a [`PacketPort`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortHeader {
    /// Place of the unfinished checksum from the frame's start, and of its field behind that.
    pub checksum: Option<(u16, u16)>,
    /// Kind and payload bytes of the segments of a super-frame.
    pub segments: Option<(SegmentKind, u16)>,
    /// The segments are of a connection with ECN.
    pub has_ecn: bool,
    /// Headers of a super-frame, all together; a hint.
    pub header_bytes: u16,
}

impl PortHeader {
    pub const BYTES: usize = 10;

    pub fn read(bytes: [u8; Self::BYTES]) -> Self {
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let [flags, gso_type, ..] = bytes;
        let kind = match gso_type & !GSO_ECN {
            GSO_NONE => None,
            GSO_TCP_V4 => Some(SegmentKind::Tcp4),
            GSO_TCP_V6 => Some(SegmentKind::Tcp6),
            GSO_UDP_L4 => Some(SegmentKind::Udp),
            other => Some(SegmentKind::Other(other)),
        };
        PortHeader {
            checksum: (flags & FLAG_NEEDS_CSUM != 0).then_some((word(6), word(8))),
            segments: kind.map(|kind| (kind, word(4))),
            has_ecn: gso_type & GSO_ECN != 0,
            header_bytes: word(2),
        }
    }

    pub fn write(self) -> [u8; Self::BYTES] {
        let flags = if self.checksum.is_some() { FLAG_NEEDS_CSUM } else { 0 };
        let (start, offset) = self.checksum.unwrap_or_default();
        let (gso_type, gso_size) = match self.segments {
            None => (GSO_NONE, 0),
            Some((SegmentKind::Tcp4, size)) => (GSO_TCP_V4, size),
            Some((SegmentKind::Tcp6, size)) => (GSO_TCP_V6, size),
            Some((SegmentKind::Udp, size)) => (GSO_UDP_L4, size),
            Some((SegmentKind::Other(kind), size)) => (kind, size),
        };
        let ecn = if self.has_ecn && gso_type != GSO_NONE { GSO_ECN } else { 0 };
        let header_bytes = if gso_type == GSO_NONE { 0 } else { self.header_bytes };
        let mut bytes = [flags, gso_type | ecn, 0, 0, 0, 0, 0, 0, 0, 0];
        for (into, word) in
            bytes[2..].chunks_exact_mut(2).zip([header_bytes, gso_size, start, offset])
        {
            into.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

/// A frame that was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortFrame {
    /// Bytes of the [`PortHeader`] and the frame; more than the room if it was cut off.
    pub len_bytes: usize,
    /// Arrival, CLOCK_REALTIME nanoseconds; `None` for the first few frames, before the kernel stamps any.
    pub stamp_ns: Option<u64>,
    /// Tag that the kernel took from the frame, behind the addresses: EtherType and VLAN.
    pub vlan: Option<[u8; 4]>,
}

#[derive(Debug)]
pub struct PacketPort {
    fd: OwnedFd,
}

impl PacketPort {
    /// Opens a port on an interface of the calling thread's network namespace. It receives what arrives there.
    ///
    /// - `buffer_bytes`: of received frames that wait, with the kernel's bookkeeping.
    ///
    /// Errors: `PermissionDenied` without CAP_NET_RAW; ENODEV, ENETDOWN for the interface.
    pub fn open(ifindex: u32, buffer_bytes: usize) -> io::Result<Self> {
        let fd = socket::open(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, 0)?;
        let of_packet = [
            (PACKET_IGNORE_OUTGOING, 1),
            (PACKET_VNET_HDR, 1),
            (PACKET_AUXDATA, 1),
            (PACKET_QDISC_BYPASS, 1),
        ];
        for (option, value) in of_packet {
            socket::set_int(fd.as_fd(), libc::SOL_PACKET, option, value)?;
        }
        socket::set_int(fd.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        socket::set_receive_buffer(fd.as_fd(), buffer_bytes)?;
        // Last: until it is bound it receives nothing.
        packet::bind(&fd, ifindex, libc::ETH_P_ALL as u16)?;
        Ok(PacketPort { fd })
    }

    /// Takes the next frame that has arrived, behind its header; `None` if there is none.
    pub fn receive(&self, into: &mut [u8]) -> io::Result<Option<PortFrame>> {
        let mut room = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
        let mut control = [0_u64; CONTROL_BYTES / 8];
        // SAFETY: all-zero is a valid msghdr, a plain C struct of integers and pointers.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut room;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = CONTROL_BYTES as _;
        // SAFETY: the message's pointers and lengths describe `into` and `control`, which outlive the call.
        let got = unsafe {
            libc::recvmsg(
                self.fd.as_raw_fd(),
                &raw mut message,
                libc::MSG_DONTWAIT | libc::MSG_TRUNC,
            )
        };
        let Ok(len_bytes) = usize::try_from(got) else {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        };
        let mut frame = PortFrame { len_bytes, stamp_ns: None, vlan: None };
        // SAFETY: the kernel filled `control` as the message says.
        let mut next = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
        while !next.is_null() {
            // SAFETY: a header that CMSG_FIRSTHDR or CMSG_NXTHDR returned lies whole in `control`.
            let header = unsafe { next.read_unaligned() };
            // SAFETY: as above; only the address is computed.
            let value = unsafe { libc::CMSG_DATA(next) };
            // SAFETY: the length of an empty message is a constant.
            let empty_bytes = unsafe { libc::CMSG_LEN(0) } as usize;
            let value_bytes = (header.cmsg_len as usize).saturating_sub(empty_bytes);
            match (header.cmsg_level, header.cmsg_type) {
                (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS)
                    if value_bytes >= size_of::<libc::timespec>() =>
                {
                    // SAFETY: the message holds a whole timespec; any bit pattern is valid.
                    let at: libc::timespec =
                        unsafe { value.cast::<libc::timespec>().read_unaligned() };
                    frame.stamp_ns = Some(at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64);
                }
                (libc::SOL_PACKET, PACKET_AUXDATA)
                    if value_bytes >= size_of::<libc::tpacket_auxdata>() =>
                {
                    // SAFETY: the message holds a whole tpacket_auxdata; any bit pattern is valid.
                    let seen = unsafe { value.cast::<libc::tpacket_auxdata>().read_unaligned() };
                    frame.vlan = vlan_tag(&seen);
                }
                _ => {}
            }
            // SAFETY: `next` is a header of this message.
            next = unsafe { libc::CMSG_NXTHDR(&raw const message, next) };
        }
        Ok(Some(frame))
    }

    /// Sends a frame, in two parts, the first of which begins with a [`PortHeader`].
    ///
    /// Errors: the interface is down, the kernel has no memory, or the frame is malformed.
    pub fn send(&self, parts: [&[u8]; 2]) -> io::Result<()> {
        let mut parts = parts.map(|part| libc::iovec {
            iov_base: part.as_ptr().cast_mut().cast(),
            iov_len: part.len(),
        });
        // SAFETY: all-zero is a valid msghdr, a plain C struct of integers and pointers.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len() as _;
        // SAFETY: the message's parts outlive the call, which only reads them.
        let rc =
            unsafe { libc::sendmsg(self.fd.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT) };
        if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Frames that were dropped for lack of room since the last call.
    pub fn take_drop_count(&self) -> io::Result<u64> {
        packet::take_drop_count(self.fd.as_fd())
    }
}

fn vlan_tag(seen: &libc::tpacket_auxdata) -> Option<[u8; 4]> {
    if seen.tp_status & TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let has_type = seen.tp_status & TP_STATUS_VLAN_TPID_VALID != 0;
    let ethertype = if has_type { seen.tp_vlan_tpid } else { ETHERTYPE_VLAN };
    let ([a, b], [c, d]) = (ethertype.to_be_bytes(), seen.tp_vlan_tci.to_be_bytes());
    Some([a, b, c, d])
}

impl AsFd for PacketPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_survive_being_written_and_read() {
        let plain = PortHeader { checksum: None, segments: None, has_ecn: false, header_bytes: 0 };
        let kinds = [SegmentKind::Tcp4, SegmentKind::Tcp6, SegmentKind::Udp, SegmentKind::Other(3)];
        let supers = kinds.map(|kind| PortHeader {
            checksum: Some((34, 16)),
            segments: Some((kind, 1448)),
            has_ecn: true,
            header_bytes: 66,
        });
        for header in [plain, PortHeader { checksum: Some((34, 6)), ..plain }].iter().chain(&supers)
        {
            assert_eq!(PortHeader::read(header.write()), *header);
        }
    }
}
