//! A packet socket that looks at the multicast datagrams of an interface before the stack does, while it is asked to.
//!
//! Opening it needs CAP_NET_RAW; watching an interface later needs no right. In between the kernel passes it nothing,
//! so it costs nothing.
//!
//! Source: packet(7).

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::packet::bind;
use crate::socket::{self, FilterStep};

/// Bytes of a packet that are seen: IPv4 with options, and UDP.
pub const SEEN_BYTES: usize = 68;

/// An EtherType for experiments, which no packet has. The kernel cannot unbind a packet socket.
const ETHERTYPE_NONE: u16 = 0x88b5;
const PACKET_IGNORE_OUTGOING: i32 = 23;
const PACKET_OTHERHOST: u8 = 3;

/// A packet that arrived.
#[derive(Debug, Clone, Copy)]
pub struct SeenPacket<'a> {
    /// From the IPv4 header on, at most [`SEEN_BYTES`].
    pub bytes: &'a [u8],
    /// Its frame has the hardware address of another host, so the stack ignores it.
    pub is_for_other_host: bool,
}

#[derive(Debug)]
pub struct MulticastTap {
    fd: OwnedFd,
}

/// Accepts UDP over IPv4 to multicast groups other than `ignored`, fragments included, and refuses packets of VLANs,
/// which are of other interfaces. The packet begins with its IPv4 header.
///
/// Source: linux/filter.h, SKF_AD_PROTOCOL and SKF_AD_VLAN_TAG_PRESENT.
fn multicast_filter(ignored: Ipv4Addr) -> [FilterStep; 12] {
    const ANCILLARY: u32 = 0xffff_f000;
    let step = |code, jt, jf, k| FilterStep { code, jt, jf, k };
    [
        step(0x28, 0, 0, ANCILLARY), // A = EtherType
        step(0x15, 0, 9, 0x0800),
        step(0x20, 0, 0, ANCILLARY + 48), // A = has a VLAN tag
        step(0x15, 0, 7, 0),
        step(0x30, 0, 0, 9), // A = protocol
        step(0x15, 0, 5, 17),
        step(0x20, 0, 0, 16), // A = destination
        step(0x15, 3, 0, ignored.to_bits()),
        step(0x54, 0, 0, 0xf000_0000),
        step(0x15, 0, 1, 0xe000_0000),
        step(0x06, 0, 0, SEEN_BYTES as u32),
        step(0x06, 0, 0, 0), // refuse
    ]
}

impl MulticastTap {
    /// - `ignored`: a group that is not looked at, because it costs time in the receiving of it.
    /// - Errors: `PermissionDenied` without CAP_NET_RAW.
    pub fn open(ignored: Option<Ipv4Addr>) -> io::Result<Self> {
        let fd = socket::open(libc::AF_PACKET, libc::SOCK_DGRAM, 0)?;
        socket::attach_filter(
            fd.as_fd(),
            &mut multicast_filter(ignored.unwrap_or(Ipv4Addr::UNSPECIFIED)),
        )?;
        socket::set_int(fd.as_fd(), libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)?;
        Ok(MulticastTap { fd })
    }

    /// Begins to look at what arrives on an interface of the socket's namespace.
    pub fn watch(&self, ifindex: u32) -> io::Result<()> {
        bind(&self.fd, ifindex, libc::ETH_P_ALL as u16)
    }

    /// Ends it. The kernel waits for all CPUs, for milliseconds.
    pub fn rest(&self, ifindex: u32) -> io::Result<()> {
        bind(&self.fd, ifindex, ETHERTYPE_NONE)
    }

    /// Takes up to `max` packets that wait; returns their number. The queue is short: of a flood, some are seen.
    pub fn take(&self, max: usize, each: &mut impl FnMut(SeenPacket<'_>)) -> usize {
        let mut buffer = [0; SEEN_BYTES];
        for taken in 0..max {
            // SAFETY: all-zero is a valid sockaddr_ll.
            let mut from: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
            let mut from_bytes = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            // SAFETY: both pointers and lengths describe locals that outlive the call.
            let got = unsafe {
                libc::recvfrom(
                    self.fd.as_raw_fd(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    libc::MSG_DONTWAIT,
                    (&raw mut from).cast(),
                    &mut from_bytes,
                )
            };
            // Nothing waits, or the interface went down.
            let Ok(len_bytes) = usize::try_from(got) else { return taken };
            each(SeenPacket {
                bytes: &buffer[..len_bytes.min(SEEN_BYTES)],
                is_for_other_host: from.sll_pkttype == PACKET_OTHERHOST,
            });
        }
        max
    }
}
