//! Batches of datagrams: sendmmsg and recvmmsg, segmentation offload, time stamps.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use serde::{Deserialize, Serialize};

use crate::address::RawAddress;
use crate::mmap::Mapping;
use crate::socket;

/// UDP_SEGMENT: the kernel cuts one large send into datagrams of this size.
const UDP_SEGMENT: i32 = 103;
/// UDP_GRO: the kernel hands over several datagrams of a flow as one.
const UDP_GRO: i32 = 104;
/// Room for the control messages of one datagram.
pub(crate) const CONTROL_BYTES: usize = 256;
/// Most segments of one send (UDP_MAX_SEGMENTS is 128 since 6.9; 64 works everywhere).
pub const SEGMENTS_MAX: usize = 64;

/// Source of receive time stamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Stamps {
    #[cfg_attr(feature = "clap", value(skip))]
    Off,
    /// By the kernel, when the driver hands the packet over
    Software,
    /// By the NIC, where it can; its clock must be synchronised with the host's (phc2sys)
    Hardware,
}

/// Makes the kernel attach a receive time stamp to each datagram. Software stamps are
/// CLOCK_REALTIME; the kernel enables them in the background when the first socket of the
/// machine asks, so that the first few datagrams may have none.
///
/// Source: kernel documentation, networking/timestamping.rst.
pub fn set_receive_stamps(fd: BorrowedFd<'_>, stamps: Stamps) -> io::Result<()> {
    let flags = match stamps {
        Stamps::Off => 0,
        Stamps::Software => libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE,
        Stamps::Hardware => {
            libc::SOF_TIMESTAMPING_RX_HARDWARE | libc::SOF_TIMESTAMPING_RAW_HARDWARE
        }
    };
    socket::set_int(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, flags as i32)
}

/// Makes the kernel coalesce datagrams of a flow; see [`ReceivedDatagram::segment_bytes`].
pub fn set_gro(fd: BorrowedFd<'_>) -> io::Result<()> {
    socket::set_int(fd, libc::SOL_UDP, UDP_GRO, 1)
}

/// Lets routers and tunnels on the way fragment datagrams, which they otherwise drop with a report of their MTU.
///
/// Source: ip(7), IP_MTU_DISCOVER; ipv6(7), where the sender alone fragments.
pub fn allow_fragments(fd: BorrowedFd<'_>, is_ipv6: bool) -> io::Result<()> {
    match is_ipv6 {
        true => socket::set_int(
            fd,
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_DONT,
        ),
        false => {
            socket::set_int(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT)
        }
    }
}

/// Makes the kernel attach the number of datagrams dropped so far to each delivered one.
pub fn set_overflow_count(fd: BorrowedFd<'_>) -> io::Result<()> {
    socket::set_int(fd, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)
}

/// One received datagram, or several of equal size when the kernel coalesced them.
#[derive(Debug)]
pub struct ReceivedDatagram<'a> {
    pub bytes: &'a mut [u8],
    pub from: SocketAddr,
    /// Size of each datagram in `bytes` but the last; the whole length when not coalesced.
    pub segment_bytes: usize,
    /// Receive time stamp in nanoseconds: CLOCK_REALTIME, or the NIC's clock.
    pub stamp_ns: Option<u64>,
    /// Datagrams that this socket dropped so far, if the kernel reported it.
    pub overflow_count: Option<u32>,
}

/// Buffers and headers for up to `slots` datagrams a call.
///
/// All parts are in one mapping and accessed only through its address, so that the pointers in the
/// headers stay valid when the batch moves.
#[derive(Debug)]
pub struct Batch {
    memory: Mapping,
    slots: usize,
    slot_bytes: usize,
    /// Slots from the first whose headers are not as [`receive`](Self::receive) needs them.
    unprepared: usize,
}

impl Batch {
    /// `slots` datagrams of at most `slot_bytes` each.
    pub fn new(slots: usize, slot_bytes: usize) -> io::Result<Self> {
        let per_slot = size_of::<libc::mmsghdr>()
            + size_of::<libc::iovec>()
            + size_of::<RawAddress>()
            + CONTROL_BYTES
            + slot_bytes;
        let memory = Mapping::anonymous(slots * per_slot)?;
        let batch = Batch { memory, slots, slot_bytes, unprepared: slots };
        for slot in 0..slots {
            // SAFETY: all-zero is a valid mmsghdr.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            header.msg_hdr.msg_iov = batch.iovec(slot).as_ptr();
            header.msg_hdr.msg_iovlen = 1;
            let iovec = libc::iovec {
                iov_base: batch.payload_at(slot).as_ptr().cast(),
                iov_len: slot_bytes,
            };
            // SAFETY: the pointer leads to this slot's header, inside the mapping.
            unsafe { batch.header(slot).write(header) };
            // SAFETY: the pointer leads to this slot's iovec, inside the mapping.
            unsafe { batch.iovec(slot).write(iovec) };
        }
        Ok(batch)
    }

    pub fn slots(&self) -> usize {
        self.slots
    }

    fn header(&self, slot: usize) -> NonNull<libc::mmsghdr> {
        let size = size_of::<libc::mmsghdr>();
        self.memory.at(slot * size, size).cast()
    }

    fn iovec(&self, slot: usize) -> NonNull<libc::iovec> {
        let size = size_of::<libc::iovec>();
        let base = self.slots * size_of::<libc::mmsghdr>();
        self.memory.at(base + slot * size, size).cast()
    }

    fn control(&self, slot: usize) -> NonNull<u8> {
        let before = size_of::<libc::mmsghdr>() + size_of::<libc::iovec>();
        self.memory.at(self.slots * before + slot * CONTROL_BYTES, CONTROL_BYTES)
    }

    fn address(&self, slot: usize) -> NonNull<RawAddress> {
        let before = size_of::<libc::mmsghdr>() + size_of::<libc::iovec>() + CONTROL_BYTES;
        let size = size_of::<RawAddress>();
        self.memory.at(self.slots * before + slot * size, size).cast()
    }

    fn payload_at(&self, slot: usize) -> NonNull<u8> {
        let before = size_of::<libc::mmsghdr>()
            + size_of::<libc::iovec>()
            + CONTROL_BYTES
            + size_of::<RawAddress>();
        self.memory.at(self.slots * before + slot * self.slot_bytes, self.slot_bytes)
    }

    /// The whole buffer of a slot, to be filled for sending.
    pub fn payload(&mut self, slot: usize) -> &mut [u8] {
        // SAFETY: `payload_at` checked the range; `self` is borrowed for as long as the slice
        // lives, and the kernel touches the memory only during `send` and `receive`.
        unsafe { std::slice::from_raw_parts_mut(self.payload_at(slot).as_ptr(), self.slot_bytes) }
    }

    /// Prepares a slot for sending: length, destination (`None` on a connected socket), and segment
    /// size for the kernel to cut it (0: no segmentation).
    pub fn set(
        &mut self,
        slot: usize,
        len_bytes: usize,
        to: Option<SocketAddr>,
        segment_bytes: u16,
    ) {
        assert!(len_bytes <= self.slot_bytes, "datagram longer than its slot");
        self.unprepared = self.unprepared.max(slot + 1);
        // SAFETY: the slot's header lies in the mapping; nothing else refers to it now.
        let header = unsafe { &mut self.header(slot).as_mut().msg_hdr };
        // SAFETY: as for the header.
        unsafe { self.iovec(slot).as_mut() }.iov_len = len_bytes;
        header.msg_name = std::ptr::null_mut();
        header.msg_namelen = 0;
        header.msg_control = std::ptr::null_mut();
        header.msg_controllen = 0;
        if let Some(to) = to {
            let address = RawAddress::from(to);
            // SAFETY: the slot's address lies in the mapping.
            unsafe { self.address(slot).write(address) };
            header.msg_name = self.address(slot).as_ptr().cast();
            header.msg_namelen = address.len_bytes();
        }
        if segment_bytes > 0 {
            let control = self.control(slot).cast::<libc::cmsghdr>();
            let cmsg = libc::cmsghdr {
                // SAFETY: CMSG_LEN only computes.
                cmsg_len: unsafe { libc::CMSG_LEN(2) } as _,
                cmsg_level: libc::SOL_UDP,
                cmsg_type: UDP_SEGMENT,
            };
            // SAFETY: the control area is large enough and aligned for a cmsghdr.
            unsafe { control.write(cmsg) };
            // SAFETY: `control` points to a whole cmsghdr; the result stays in its area.
            let value = unsafe { libc::CMSG_DATA(control.as_ptr()) };
            // SAFETY: the control area has room for the header and two bytes behind it.
            unsafe { value.cast::<u16>().write_unaligned(segment_bytes) };
            header.msg_control = control.as_ptr().cast();
            // SAFETY: CMSG_SPACE only computes.
            header.msg_controllen = unsafe { libc::CMSG_SPACE(2) } as _;
        }
    }

    /// Sends `count` slots from `first` in one call; returns how many were sent.
    pub fn send(&mut self, fd: BorrowedFd<'_>, first: usize, count: usize) -> io::Result<usize> {
        self.send_with(fd, first, count, 0)
    }

    /// As [`send`](Self::send), without a copy where the kernel can: the slots must not be written before
    /// [`finished`](crate::zero_copy::finished) has reported them.
    ///
    /// Errors: ENOBUFS while too many sends are unfinished (sysctl net.core.optmem_max).
    pub fn send_pinned(
        &mut self,
        fd: BorrowedFd<'_>,
        first: usize,
        count: usize,
    ) -> io::Result<usize> {
        self.send_with(fd, first, count, libc::MSG_ZEROCOPY)
    }

    fn send_with(
        &mut self,
        fd: BorrowedFd<'_>,
        first: usize,
        count: usize,
        flags: i32,
    ) -> io::Result<usize> {
        assert!(first + count <= self.slots, "slots past the end of the batch");
        if count == 0 {
            return Ok(0);
        }
        let headers = self.header(first).as_ptr();
        // SAFETY: `count` initialised headers from `first` on, whose pointers lead into the
        // same mapping.
        let sent = unsafe { libc::sendmmsg(fd.as_raw_fd(), headers, count as u32, flags as _) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
    }

    /// Receives up to a batch. With `wait`, sleeps for the first datagram up to the socket's receive
    /// timeout. Returns `Ok(0)` if there is none.
    pub fn receive(&mut self, fd: BorrowedFd<'_>, wait: bool) -> io::Result<usize> {
        // A poll that finds nothing touches no slot: it would cost a spinner a cache line a slot.
        for slot in 0..self.unprepared {
            // SAFETY: the slot's header lies in the mapping; nothing else refers to it now.
            let header = unsafe { &mut self.header(slot).as_mut().msg_hdr };
            // SAFETY: as for the header.
            unsafe { self.iovec(slot).as_mut() }.iov_len = self.slot_bytes;
            header.msg_name = self.address(slot).as_ptr().cast();
            header.msg_namelen = size_of::<RawAddress>() as libc::socklen_t;
            header.msg_control = self.control(slot).as_ptr().cast();
            header.msg_controllen = CONTROL_BYTES as _;
        }
        let flags = if wait { libc::MSG_WAITFORONE } else { libc::MSG_DONTWAIT };
        // SAFETY: all headers are initialised and lead into the mapping; no timeout is passed.
        let got = unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                self.header(0).as_ptr(),
                self.slots as u32,
                flags,
                std::ptr::null_mut(),
            )
        };
        if got >= 0 {
            self.unprepared = got as usize;
            return Ok(got as usize);
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {
                // The kernel writes the headers of datagrams alone.
                self.unprepared = 0;
                Ok(0)
            }
            _ => {
                self.unprepared = self.slots;
                Err(error)
            }
        }
    }

    /// A slot that the last [`receive`](Self::receive) filled.
    pub fn received(&mut self, slot: usize) -> ReceivedDatagram<'_> {
        // SAFETY: the slot's header lies in the mapping and was written by the kernel or `new`.
        let header = unsafe { self.header(slot).as_ref() };
        let len_bytes = (header.msg_len as usize).min(self.slot_bytes);
        // SAFETY: the address lies in the mapping; every bit pattern is a valid array of bytes.
        let address = unsafe { self.address(slot).read() };
        let mut received = ReceivedDatagram {
            bytes: &mut [],
            from: address.written(header.msg_hdr.msg_namelen as usize),
            segment_bytes: len_bytes,
            stamp_ns: None,
            overflow_count: None,
        };
        // SAFETY: msg_control and msg_controllen describe this slot's control area.
        unsafe { read_control(&header.msg_hdr, &mut received) };
        let payload = self.payload_at(slot).as_ptr();
        // SAFETY: `payload_at` checked the slot's range, and len_bytes is at most its size;
        // `self` stays mutably borrowed as long as the slice lives.
        received.bytes = unsafe { std::slice::from_raw_parts_mut(payload, len_bytes) };
        received
    }
}

/// Reads the control messages of a received datagram.
///
/// # Safety
/// `msg_control` and `msg_controllen` describe memory that the kernel wrote control messages to.
pub(crate) unsafe fn read_control(header: &libc::msghdr, received: &mut ReceivedDatagram<'_>) {
    // SAFETY: msg_control and msg_controllen describe one control area, which the caller promises.
    let mut control = unsafe { libc::CMSG_FIRSTHDR(header) };
    while let Some(at) = NonNull::new(control) {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR yield only whole headers in the area.
        let cmsg = unsafe { at.read_unaligned() };
        // SAFETY: the data of a whole header begins right behind it, in the area.
        let value = unsafe { libc::CMSG_DATA(at.as_ptr()) };
        match (cmsg.cmsg_level, cmsg.cmsg_type) {
            (libc::SOL_UDP, UDP_GRO) => {
                // SAFETY: this message carries an int.
                let segment = unsafe { value.cast::<i32>().read_unaligned() };
                if segment > 0 {
                    received.segment_bytes = segment as usize;
                }
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                // SAFETY: this message carries a u32.
                received.overflow_count = Some(unsafe { value.cast::<u32>().read_unaligned() });
            }
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) => {
                // SAFETY: this message carries three timespecs: software, unused, hardware.
                let stamps = unsafe { value.cast::<[libc::timespec; 3]>().read_unaligned() };
                received.stamp_ns = [stamps[0], stamps[2]]
                    .iter()
                    .map(|t| t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
                    .find(|ns| *ns != 0);
            }
            _ => {}
        }
        // SAFETY: `control` is a whole header of this message's control area.
        control = unsafe { libc::CMSG_NXTHDR(header, control) };
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::time::Duration;

    use super::*;

    fn ends() -> (UdpSocket, UdpSocket, SocketAddr) {
        ends_on("127.0.0.1:0")
    }

    fn ends_on(any_port: &str) -> (UdpSocket, UdpSocket, SocketAddr) {
        let receiver = UdpSocket::bind(any_port).unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let to = receiver.local_addr().unwrap();
        (UdpSocket::bind(any_port).unwrap(), receiver, to)
    }

    #[test]
    fn a_batch_arrives_with_its_sender_and_lengths() {
        // Linux may be built or booted without IPv6.
        for any_port in ["127.0.0.1:0", "[::1]:0"] {
            if UdpSocket::bind(any_port).is_ok() {
                a_batch_arrives_on(any_port);
            }
        }
    }

    fn a_batch_arrives_on(any_port: &str) {
        let (sender, receiver, to) = ends_on(any_port);
        let mut out = Batch::new(4, 100).unwrap();
        for slot in 0..4 {
            out.payload(slot)[..=slot].fill(slot as u8);
            out.set(slot, slot + 1, Some(to), 0);
        }
        assert_eq!(out.send(sender.as_fd(), 0, 4).unwrap(), 4);
        let mut into = Batch::new(8, 100).unwrap();
        assert_eq!(into.receive(receiver.as_fd(), true).unwrap(), 4);
        for slot in 0..4 {
            let got = into.received(slot);
            assert_eq!(got.bytes, vec![slot as u8; slot + 1]);
            assert_eq!(got.from, sender.local_addr().unwrap());
            assert_eq!(got.segment_bytes, slot + 1);
        }
    }

    #[test]
    fn nothing_there_is_not_an_error() {
        let (_, receiver, _) = ends();
        assert_eq!(Batch::new(2, 64).unwrap().receive(receiver.as_fd(), false).unwrap(), 0);
    }

    #[test]
    fn slots_that_the_last_call_did_not_use_are_not_written() {
        let (sender, receiver, to) = ends();
        let mut into = Batch::new(8, 64).unwrap();
        sender.send_to(b"x", to).unwrap();
        assert_eq!(into.receive(receiver.as_fd(), true).unwrap(), 1);
        let length = into.iovec(5);
        // SAFETY: the slot's iovec lies in the mapping.
        unsafe { (*length.as_ptr()).iov_len = 7 };
        for _ in 0..2 {
            assert_eq!(into.receive(receiver.as_fd(), false).unwrap(), 0);
        }
        // SAFETY: as above.
        assert_eq!(unsafe { (*length.as_ptr()).iov_len }, 7);
    }

    #[test]
    fn slots_that_were_sent_are_whole_again_for_the_next_datagrams() {
        let (sender, receiver, to) = ends();
        let mut batch = Batch::new(4, 100).unwrap();
        for round in 0..3u8 {
            // More each round, longer than the answers.
            for n in 0..=round {
                sender.send_to(&[n; 80], to).unwrap();
            }
            assert_eq!(batch.receive(receiver.as_fd(), true).unwrap(), usize::from(round) + 1);
            for n in 0..=round {
                let received = batch.received(usize::from(n));
                assert_eq!((&*received.bytes, received.from.port()), (&[n; 80][..], port(&sender)));
            }
            if round == 1 {
                assert_eq!(batch.receive(receiver.as_fd(), false).unwrap(), 0);
            }
            for n in 0..=round {
                batch.set(usize::from(n), 10, Some(to), 4);
            }
        }
    }

    fn port(socket: &UdpSocket) -> u16 {
        socket.local_addr().unwrap().port()
    }

    #[test]
    fn a_segmented_send_arrives_as_separate_datagrams_or_coalesced() {
        for coalesce in [false, true] {
            let (sender, receiver, to) = ends();
            if coalesce {
                set_gro(receiver.as_fd()).unwrap();
            }
            let mut out = Batch::new(1, 4096).unwrap();
            out.payload(0)[..250].copy_from_slice(&[7; 250]);
            out.set(0, 250, Some(to), 100);
            assert_eq!(out.send(sender.as_fd(), 0, 1).unwrap(), 1);
            let mut into = Batch::new(8, 4096).unwrap();
            let mut sizes = Vec::new();
            while sizes.iter().sum::<usize>() < 250 {
                let count = into.receive(receiver.as_fd(), true).unwrap();
                assert!(count > 0, "timed out after {sizes:?}");
                for slot in 0..count {
                    let got = into.received(slot);
                    sizes.extend(got.bytes.chunks(got.segment_bytes).map(<[u8]>::len));
                }
            }
            assert_eq!(sizes, [100, 100, 50]);
        }
    }

    #[test]
    fn software_stamps_are_wall_clock_times_before_the_read() {
        let (sender, receiver, to) = ends();
        set_receive_stamps(receiver.as_fd(), Stamps::Software).unwrap();
        let mut into = Batch::new(1, 64).unwrap();
        // The kernel enables stamps in the background: the first datagrams may have none.
        for _ in 0..1000 {
            let begun = crate::clock::realtime_ns();
            sender.send_to(b"x", to).unwrap();
            assert_eq!(into.receive(receiver.as_fd(), true).unwrap(), 1);
            if let Some(stamp) = into.received(0).stamp_ns {
                assert!(stamp >= begun && stamp <= crate::clock::realtime_ns());
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("no datagram was stamped");
    }

    #[test]
    fn a_full_receive_buffer_is_counted() {
        let (sender, receiver, to) = ends();
        set_overflow_count(receiver.as_fd()).unwrap();
        crate::socket::set_receive_buffer(receiver.as_fd(), 4096).unwrap();
        for _ in 0..200 {
            sender.send_to(&[0; 512], to).unwrap();
        }
        let mut into = Batch::new(256, 600).unwrap();
        let queued = into.receive(receiver.as_fd(), true).unwrap();
        sender.send_to(&[0; 512], to).unwrap();
        assert_eq!(into.receive(receiver.as_fd(), true).unwrap(), 1);
        let dropped = into.received(0).overflow_count.expect("a count") as usize;
        assert_eq!(queued + dropped, 200);
    }
}
