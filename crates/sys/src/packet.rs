//! AF_PACKET sockets with TPACKET_V3 rings: blocks of packets to receive, slots to send.
//!
//! Source: kernel documentation, networking/packet_mmap.rst.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use libc::{tpacket_req3, tpacket3_hdr};

use crate::mmap::Mapping;
use crate::socket::{self, FilterStep};

const PACKET_VERSION: i32 = 10;
const PACKET_RX_RING: i32 = 5;
const PACKET_TX_RING: i32 = 13;
const PACKET_LOSS: i32 = 14;
const PACKET_STATISTICS: i32 = 6;
pub(crate) const PACKET_IGNORE_OUTGOING: i32 = 23;
pub(crate) const PACKET_QDISC_BYPASS: i32 = 20;
pub(crate) const PACKET_VNET_HDR: i32 = 15;
const TPACKET_V3: i32 = 2;
/// Bytes from the start of a TX slot to the packet: the aligned header.
const TX_OFFSET: usize = size_of::<tpacket3_hdr>().next_multiple_of(16);
/// Offset of the status word in a block descriptor: behind version and private offset.
const BLOCK_STATUS: usize = 8;
/// Offset of the packet count of a block.
const BLOCK_PACKETS: usize = 12;
/// Offset of the offset of the first packet of a block.
const BLOCK_FIRST: usize = 16;

const BLOCK_BYTES: usize = 1 << 16;
/// A block holds the largest super-frame, of 64 KiB and its headers.
const BLOCK_BYTES_OFFLOADED: usize = 1 << 17;
/// Time after which the kernel releases a block that is not full, in whole milliseconds: the
/// longest wait of a single packet.
const RETIRE_MS: u32 = 1;

/// Header in front of a frame that says what was left to a device.
///
/// Source: struct virtio_net_hdr, include/uapi/linux/virtio_net.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct OffloadHeader {
    flags: u8,
    gso_type: u8,
    hdr_len: u16,
    gso_size: u16,
    csum_start: u16,
    csum_offset: u16,
}

pub(crate) const FLAG_NEEDS_CSUM: u8 = 1;
pub(crate) const GSO_NONE: u8 = 0;
pub(crate) const GSO_TCP_V4: u8 = 1;
pub(crate) const GSO_TCP_V6: u8 = 4;
pub(crate) const GSO_UDP_L4: u8 = 5;
/// Bit of the type: the sender uses ECN.
pub(crate) const GSO_ECN: u8 = 0x80;

/// Work on a received frame that its sender, or GRO, left to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameOffload {
    /// Place of the unfinished checksum: first byte covered, and its field behind that. A super-frame has
    /// it too.
    pub checksum: (usize, usize),
    /// Payload of each frame that a super-frame stands for; 0 for a frame.
    pub segment_bytes: u16,
    /// It is a super-frame of another kind than TCP's and UDP's.
    pub is_unknown: bool,
}

impl OffloadHeader {
    fn offload(self) -> Option<FrameOffload> {
        let kind = self.gso_type & !GSO_ECN;
        let is_super = kind != GSO_NONE;
        (is_super || self.flags & FLAG_NEEDS_CSUM != 0).then_some(FrameOffload {
            checksum: (self.csum_start.into(), self.csum_offset.into()),
            segment_bytes: if is_super { self.gso_size } else { 0 },
            is_unknown: !matches!(kind, GSO_NONE | GSO_TCP_V4 | GSO_TCP_V6 | GSO_UDP_L4),
        })
    }
}

/// Counters of a receive socket; reading them resets the kernel's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PacketStatistics {
    /// Packets that passed the filter, dropped ones included.
    pub packet_count: u64,
    /// Dropped because no block was free.
    pub drop_count: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct StatisticsV3 {
    packets: u32,
    drops: u32,
    freezes: u32,
}

/// Frames that a packet socket has dropped for lack of room since the last call, and since
/// [`PacketRx::statistics`].
///
/// Errors: it is no packet socket.
pub fn take_drop_count(socket: BorrowedFd<'_>) -> io::Result<u64> {
    // SAFETY: StatisticsV3 is a plain C struct of integers.
    let s: StatisticsV3 = unsafe { socket::get(socket, libc::SOL_PACKET, PACKET_STATISTICS) }?;
    Ok(s.drops.into())
}

/// Opens a packet socket that receives nothing yet, with V3 rings.
fn open() -> io::Result<OwnedFd> {
    let fd = socket::open(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
    socket::set_int(fd.as_fd(), libc::SOL_PACKET, PACKET_VERSION, TPACKET_V3)?;
    Ok(fd)
}

pub(crate) fn bind(fd: &OwnedFd, ifindex: u32, protocol: u16) -> io::Result<()> {
    // SAFETY: all-zero is a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = ifindex as i32;
    // SAFETY: pointer and length describe `address`.
    let rc = unsafe {
        libc::bind(
            fd.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    if rc != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Accepts unfragmented IPv4 UDP datagrams to `port`, refuses the rest.
fn udp_port_filter(port: u16) -> [FilterStep; 11] {
    let step = |code, jt, jf, k| FilterStep { code, jt, jf, k };
    [
        step(0x28, 0, 0, 12),     // A = EtherType
        step(0x15, 0, 7, 0x0800), // IPv4?
        step(0x30, 0, 0, 23),     // A = protocol
        step(0x15, 0, 5, 17),     // UDP?
        step(0x28, 0, 0, 20),     // A = flags and fragment offset
        step(0x45, 3, 0, 0x1fff), // fragment?
        step(0xb1, 0, 0, 14),     // X = IPv4 header length
        step(0x48, 0, 0, 16),     // A = destination port
        step(0x15, 1, 0, u32::from(port)),
        step(0x06, 0, 0, 0), // refuse
        step(0x06, 0, 0, 0x4_0000),
    ]
}

/// As [`udp_port_filter`] for IPv6, without extension headers.
fn udp6_port_filter(port: u16) -> [FilterStep; 8] {
    let step = |code, jt, jf, k| FilterStep { code, jt, jf, k };
    [
        step(0x28, 0, 0, 12),     // A = EtherType
        step(0x15, 0, 4, 0x86dd), // IPv6?
        step(0x30, 0, 0, 20),     // A = next header
        step(0x15, 0, 2, 17),     // UDP?
        step(0x28, 0, 0, 56),     // A = destination port
        step(0x15, 1, 0, u32::from(port)),
        step(0x06, 0, 0, 0), // refuse
        step(0x06, 0, 0, 0x4_0000),
    ]
}

/// Accepts unfragmented IPv4 UDP datagrams to any of the addresses, from its source if one is
/// given; refuses the rest.
fn flows_filter(flows: &[(Option<Ipv4Addr>, SocketAddrV4)]) -> Vec<FilterStep> {
    let step = |code, jt, jf, k| FilterStep { code, jt, jf, k };
    let refuse = || step(0x06, 0, 0, 0);
    let mut steps = vec![
        step(0x28, 0, 0, 12), // A = EtherType
        step(0x15, 1, 0, 0x0800),
        refuse(),
        step(0x30, 0, 0, 23), // A = protocol
        step(0x15, 1, 0, 17),
        refuse(),
        step(0x28, 0, 0, 20), // A = flags and fragment offset
        step(0x45, 0, 1, 0x3fff),
        refuse(),
        step(0xb1, 0, 0, 14), // X = IPv4 header length
    ];
    for (source, to) in flows {
        let own = if source.is_some() { 4 } else { 2 };
        steps.push(step(0x20, 0, 0, 30)); // A = destination
        steps.push(step(0x15, 0, own + 1, u32::from(*to.ip())));
        if let Some(source) = source {
            steps.push(step(0x20, 0, 0, 26)); // A = source
            steps.push(step(0x15, 0, 3, u32::from(*source)));
        }
        steps.push(step(0x48, 0, 0, 16)); // A = destination port
        steps.push(step(0x15, 0, 1, u32::from(to.port())));
        steps.push(step(0x06, 0, 0, 0x4_0000));
    }
    steps.push(refuse());
    steps
}

/// Receives UDP datagrams, as whole frames, from a TPACKET_V3 ring.
#[derive(Debug)]
pub struct PacketRx {
    ring: Mapping,
    fd: OwnedFd,
    block_bytes: usize,
    /// An [`OffloadHeader`] is in front of each frame.
    has_offloads: bool,
    block_count: usize,
    block: usize,
    left: u32,
    next: usize,
    seen: PacketStatistics,
    pub wait_count: u64,
}

impl PacketRx {
    /// Opens a ring of `ring_bytes` (rounded up to whole blocks of 64 KiB) on an interface of
    /// the calling thread's network namespace.
    ///
    /// Errors: `PermissionDenied` without CAP_NET_RAW; ENODEV, ENETDOWN for the interface.
    pub fn open(ifindex: u32, udp_port: u16, ring_bytes: usize) -> io::Result<Self> {
        Self::open_filtered(ifindex, &mut udp_port_filter(udp_port), libc::ETH_P_IP, ring_bytes)
    }

    /// As [`PacketRx::open`], for datagrams over IPv6.
    pub fn open_v6(ifindex: u32, udp_port: u16, ring_bytes: usize) -> io::Result<Self> {
        Self::open_filtered(ifindex, &mut udp6_port_filter(udp_port), libc::ETH_P_IPV6, ring_bytes)
    }

    /// As [`PacketRx::open`], for datagrams to several addresses and ports, each from one source or
    /// any. Fragments are left out, first ones too.
    pub fn open_flows(
        ifindex: u32,
        flows: &[(Option<Ipv4Addr>, SocketAddrV4)],
        ring_bytes: usize,
    ) -> io::Result<Self> {
        Self::open_filtered(ifindex, &mut flows_filter(flows), libc::ETH_P_IP, ring_bytes)
    }

    /// Makes packets carry the NIC's receive stamps; those without one carry the kernel's.
    ///
    /// Source: packet(7), PACKET_TIMESTAMP.
    pub fn use_hardware_stamps(&self) -> io::Result<()> {
        const PACKET_TIMESTAMP: i32 = 17;
        let raw = libc::SOF_TIMESTAMPING_RAW_HARDWARE as i32;
        socket::set_int(self.fd.as_fd(), libc::SOL_PACKET, PACKET_TIMESTAMP, raw)
    }

    fn open_filtered(
        ifindex: u32,
        filter: &mut [FilterStep],
        protocol: i32,
        ring_bytes: usize,
    ) -> io::Result<Self> {
        let fd = open()?;
        // Filter before binding, so that no other frame gets in.
        socket::attach_filter(fd.as_fd(), filter)?;
        Self::with(fd, ifindex, protocol as u16, ring_bytes)
    }

    /// A socket that sees every frame of the interface, in and out, and keeps none: the cost of a
    /// capture whose filter matches nothing.
    pub fn open_deaf(ifindex: u32) -> io::Result<Self> {
        let fd = open()?;
        socket::attach_filter(fd.as_fd(), &mut [FilterStep { code: 0x06, jt: 0, jf: 0, k: 0 }])?;
        Self::with(fd, ifindex, libc::ETH_P_ALL as u16, 2 * BLOCK_BYTES)
    }

    /// As [`PacketRx::open`], for every frame that arrives; outgoing frames are excluded.
    pub fn open_all(ifindex: u32, ring_bytes: usize) -> io::Result<Self> {
        let fd = open()?;
        socket::set_int(fd.as_fd(), libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)?;
        Self::with(fd, ifindex, libc::ETH_P_ALL as u16, ring_bytes)
    }

    /// As [`Self::open_all`], with what was left to a device of each frame: see [`Self::take_offloaded`].
    pub fn open_offloaded(ifindex: u32, ring_bytes: usize) -> io::Result<Self> {
        let fd = open()?;
        socket::set_int(fd.as_fd(), libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)?;
        // Before the ring: it changes where the kernel writes.
        socket::set_int(fd.as_fd(), libc::SOL_PACKET, PACKET_VNET_HDR, 1)?;
        let protocol = libc::ETH_P_ALL as u16;
        let rx = Self::with_blocks(fd, ifindex, protocol, ring_bytes, BLOCK_BYTES_OFFLOADED)?;
        Ok(PacketRx { has_offloads: true, ..rx })
    }

    /// As [`PacketRx::open`], for every frame of an EtherType; captures the first `snap_bytes`.
    pub fn open_protocol(
        ifindex: u32,
        ethertype: u16,
        snap_bytes: u32,
        ring_bytes: usize,
    ) -> io::Result<Self> {
        let fd = open()?;
        socket::set_int(fd.as_fd(), libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)?;
        // A filter returns the number of bytes to capture.
        let mut filter = [FilterStep { code: 0x06, jt: 0, jf: 0, k: snap_bytes }];
        socket::attach_filter(fd.as_fd(), &mut filter)?;
        Self::with(fd, ifindex, ethertype, ring_bytes)
    }

    fn with(fd: OwnedFd, ifindex: u32, protocol: u16, ring_bytes: usize) -> io::Result<Self> {
        Self::with_blocks(fd, ifindex, protocol, ring_bytes, BLOCK_BYTES)
    }

    fn with_blocks(
        fd: OwnedFd,
        ifindex: u32,
        protocol: u16,
        ring_bytes: usize,
        block_bytes: usize,
    ) -> io::Result<Self> {
        let block_count = ring_bytes.div_ceil(block_bytes).max(2);
        let request = tpacket_req3 {
            tp_block_size: block_bytes as u32,
            tp_block_nr: block_count as u32,
            tp_frame_size: 2048,
            tp_frame_nr: (block_count * block_bytes / 2048) as u32,
            tp_retire_blk_tov: RETIRE_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        socket::set(fd.as_fd(), libc::SOL_PACKET, PACKET_RX_RING, request)?;
        let ring = Mapping::of_fd(fd.as_fd(), block_count * block_bytes, 0)?;
        bind(&fd, ifindex, protocol)?;
        Ok(PacketRx {
            ring,
            fd,
            block_bytes,
            has_offloads: false,
            block_count,
            block: 0,
            left: 0,
            next: 0,
            seen: PacketStatistics::default(),
            wait_count: 0,
        })
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        let at = self.ring.at(self.block * self.block_bytes + offset, 4).cast::<AtomicU32>();
        // SAFETY: blocks are page aligned and the offsets multiples of 4, within the ring,
        // which lives as long as self.
        unsafe { at.as_ref() }
    }

    /// True if a block is open or ready.
    pub fn ready(&self) -> bool {
        // Acquire: the packets are read after the status that releases the block to user space.
        let status = self.word(BLOCK_STATUS).load(Ordering::Acquire);
        self.left > 0 || status & libc::TP_STATUS_USER != 0
    }

    /// Takes up to `max` frames. `each` sees the captured bytes, the frame's whole length and
    /// the kernel's time stamp (CLOCK_REALTIME, nanoseconds). Returns the frames taken.
    pub fn take(&mut self, max: usize, mut each: impl FnMut(&mut [u8], usize, u64)) -> usize {
        self.take_any(max, |bytes, header, _| {
            let stamp_ns = u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec);
            each(bytes, header.tp_len as usize, stamp_ns);
        })
    }

    /// As [`Self::take`] on a ring of [`Self::open_offloaded`]; `each` sees the captured bytes, the frame's
    /// whole length and what was left to a device.
    pub fn take_offloaded(
        &mut self,
        max: usize,
        mut each: impl FnMut(&mut [u8], usize, Option<FrameOffload>),
    ) -> usize {
        self.take_any(max, |bytes, header, offload| each(bytes, header.tp_len as usize, offload))
    }

    fn take_any(
        &mut self,
        max: usize,
        mut each: impl FnMut(&mut [u8], &tpacket3_hdr, Option<FrameOffload>),
    ) -> usize {
        let mut taken = 0;
        while taken < max && self.ready() {
            if self.left == 0 {
                self.left = self.word(BLOCK_PACKETS).load(Ordering::Relaxed);
                self.next = self.word(BLOCK_FIRST).load(Ordering::Relaxed) as usize;
            }
            while self.left > 0 && taken < max {
                let room = self.block_bytes.saturating_sub(self.next);
                if room < size_of::<tpacket3_hdr>() {
                    self.left = 0;
                    break;
                }
                let start = self.block * self.block_bytes + self.next;
                let at = self.ring.at(start, size_of::<tpacket3_hdr>()).cast::<tpacket3_hdr>();
                // SAFETY: a whole header is in range; any bit pattern is valid.
                let header = unsafe { at.read_unaligned() };
                let (mac, len) = (header.tp_mac as usize, header.tp_snaplen as usize);
                if mac + len <= room {
                    let offload = self.offload(start, mac);
                    let bytes = self.ring.at(start + mac, len);
                    // SAFETY: in the ring, checked by `at`; user space owns the block until it is released.
                    let bytes = unsafe { std::slice::from_raw_parts_mut(bytes.as_ptr(), len) };
                    each(bytes, &header, offload);
                    taken += 1;
                }
                self.left -= 1;
                self.next += header.tp_next_offset as usize;
            }
            if self.left == 0 {
                // Release: the packets were read before the kernel may write over them.
                self.word(BLOCK_STATUS).store(libc::TP_STATUS_KERNEL, Ordering::Release);
                self.block = (self.block + 1) % self.block_count;
            }
        }
        taken
    }

    /// Work of the packet whose header is at `start` that was left to a device.
    fn offload(&self, start: usize, mac: usize) -> Option<FrameOffload> {
        const BYTES: usize = size_of::<OffloadHeader>();
        if !self.has_offloads || mac < size_of::<tpacket3_hdr>() + BYTES {
            return None;
        }
        let at = self.ring.at(start + mac - BYTES, BYTES).cast::<OffloadHeader>();
        // SAFETY: in the ring, checked by `at`; any bit pattern is valid.
        unsafe { at.read_unaligned() }.offload()
    }

    /// Sleeps at most `timeout` until a block is ready.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.wait_count += 1;
        socket::wait(self.fd.as_fd(), false, timeout).map(|_| ())
    }

    pub fn statistics(&mut self) -> io::Result<PacketStatistics> {
        // SAFETY: StatisticsV3 is a plain C struct of integers.
        let s: StatisticsV3 =
            unsafe { socket::get(self.fd.as_fd(), libc::SOL_PACKET, PACKET_STATISTICS) }?;
        self.seen.packet_count += u64::from(s.packets);
        self.seen.drop_count += u64::from(s.drops);
        Ok(self.seen)
    }
}

impl AsFd for PacketRx {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Makes an interface receive frames to all addresses, as a bridge does, until it is dropped.
#[derive(Debug)]
pub struct Promiscuous {
    _fd: OwnedFd,
}

impl Promiscuous {
    /// Errors: as for [`PacketRx::open`].
    pub fn new(ifindex: u32) -> io::Result<Self> {
        // It receives nothing itself.
        let fd = socket::open(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
        let request = libc::packet_mreq {
            mr_ifindex: ifindex as i32,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        socket::set(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, request)?;
        Ok(Promiscuous { _fd: fd })
    }
}

/// Sends frames from a TPACKET_V3 ring.
#[derive(Debug)]
pub struct PacketTx {
    ring: Mapping,
    fd: OwnedFd,
    slot_bytes: usize,
    slot_count: usize,
    head: usize,
    tail: usize,
    in_flight: usize,
    pub kick_count: u64,
    /// Frames that the kernel refused as malformed.
    pub refused_count: u64,
}

impl PacketTx {
    /// Opens a ring of `slot_count` (a power of two) slots for frames of at most
    /// `frame_bytes` on an interface of the calling thread's network namespace.
    ///
    /// Errors: as for [`PacketRx::open`].
    pub fn open(ifindex: u32, frame_bytes: usize, slot_count: usize) -> io::Result<Self> {
        Self::with(open()?, ifindex, frame_bytes, slot_count)
    }

    /// As [`Self::open`], but the kernel drops frames above the interface's MTU, uncounted. With
    /// [`Self::open`] it refuses them: it stays at the slot of such a frame and sends none behind it.
    pub fn open_dropping(ifindex: u32, frame_bytes: usize, slot_count: usize) -> io::Result<Self> {
        let fd = open()?;
        socket::set_int(fd.as_fd(), libc::SOL_PACKET, PACKET_LOSS, 1)?;
        Self::with(fd, ifindex, frame_bytes, slot_count)
    }

    fn with(fd: OwnedFd, ifindex: u32, frame_bytes: usize, slot_count: usize) -> io::Result<Self> {
        let slot_bytes = (TX_OFFSET + frame_bytes).next_power_of_two().max(256);
        let block_bytes = slot_bytes.max(BLOCK_BYTES);
        let block_count = (slot_count * slot_bytes).div_ceil(block_bytes);
        let slot_count = block_count * block_bytes / slot_bytes;
        let request = tpacket_req3 {
            tp_block_size: block_bytes as u32,
            tp_block_nr: block_count as u32,
            tp_frame_size: slot_bytes as u32,
            tp_frame_nr: slot_count as u32,
            tp_retire_blk_tov: 0,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        socket::set(fd.as_fd(), libc::SOL_PACKET, PACKET_TX_RING, request)?;
        // Bypass the queueing discipline; older kernels keep it and are slower.
        let _ = socket::set_int(fd.as_fd(), libc::SOL_PACKET, PACKET_QDISC_BYPASS, 1);
        let ring = Mapping::of_fd(fd.as_fd(), block_count * block_bytes, 0)?;
        bind(&fd, ifindex, 0)?;
        Ok(PacketTx {
            ring,
            fd,
            slot_bytes,
            slot_count,
            head: 0,
            tail: 0,
            in_flight: 0,
            kick_count: 0,
            refused_count: 0,
        })
    }

    fn header(&self, slot: usize) -> NonNull<tpacket3_hdr> {
        self.ring.at(slot * self.slot_bytes, size_of::<tpacket3_hdr>()).cast()
    }

    fn status(&self, slot: usize) -> &AtomicU32 {
        // SAFETY: `header` is within the ring; only the field's address is computed.
        let at = unsafe { &raw mut (*self.header(slot).as_ptr()).tp_status };
        // SAFETY: slots are 256-byte aligned, so the word is aligned; it lives as long as self.
        unsafe { AtomicU32::from_ptr(at) }
    }

    /// Posts up to `want` frames of `len_bytes`, each written by `fill`; returns how many. The next
    /// [`kick`](Self::kick) sends them.
    pub fn post(
        &mut self,
        want: usize,
        len_bytes: usize,
        mut fill: impl FnMut(&mut [u8]),
    ) -> usize {
        if TX_OFFSET + len_bytes > self.slot_bytes {
            return 0;
        }
        let mut posted = 0;
        while posted < want && self.in_flight < self.slot_count {
            let slot = self.head;
            let at = self.ring.at(slot * self.slot_bytes + TX_OFFSET, len_bytes);
            // SAFETY: in the ring, checked by `at`; user space owns the slot, which is not in flight.
            fill(unsafe { std::slice::from_raw_parts_mut(at.as_ptr(), len_bytes) });
            // SAFETY: the header is in the ring and user space owns the slot.
            let header = unsafe { self.header(slot).as_mut() };
            header.tp_len = len_bytes as u32;
            header.tp_snaplen = len_bytes as u32;
            header.tp_next_offset = 0;
            // Release: the frame is written before the kernel may see the slot.
            self.status(slot).store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
            self.head = (slot + 1) % self.slot_count;
            self.in_flight += 1;
            posted += 1;
        }
        posted
    }

    /// Makes the kernel send posted frames. Returns true if it took all of them.
    pub fn kick(&mut self) -> io::Result<bool> {
        self.kick_count += 1;
        socket::wake_sender(self.fd.as_fd())
    }

    /// Reclaims slots whose frames were sent; returns how many.
    pub fn reap(&mut self) -> usize {
        let mut reaped = 0;
        while self.in_flight > 0 {
            // Acquire: the kernel has read the frame before it frees the slot.
            let status = self.status(self.tail).load(Ordering::Acquire);
            if status == libc::TP_STATUS_WRONG_FORMAT {
                self.refused_count += 1;
                self.status(self.tail).store(libc::TP_STATUS_AVAILABLE, Ordering::Release);
            } else if status & (libc::TP_STATUS_SEND_REQUEST | libc::TP_STATUS_SENDING) != 0 {
                break;
            }
            self.tail = (self.tail + 1) % self.slot_count;
            self.in_flight -= 1;
            reaped += 1;
        }
        reaped
    }

    /// Slots that can be posted now.
    pub fn room(&self) -> usize {
        self.slot_count - self.in_flight
    }

    /// Slots posted that the kernel has not begun to send. A [`kick`](Self::kick) may leave some
    /// because the socket had no memory.
    pub fn requested(&self) -> usize {
        (1..=self.in_flight)
            .take_while(|&back| {
                // Relaxed: a count, which guards no data.
                let status = self
                    .status((self.head + self.slot_count - back) % self.slot_count)
                    .load(Ordering::Relaxed);
                status & libc::TP_STATUS_SEND_REQUEST != 0
            })
            .count()
    }

    /// Slots posted and not reaped.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }
}
