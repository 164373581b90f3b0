//! io_uring, as far as it receives datagrams: one multishot request, and buffers that the kernel
//! chooses from a ring.
//!
//! The layout is the kernel's include/uapi/linux/io_uring.h (6.1).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::time::Duration;

use crate::address::RawAddress;
use crate::mmap::Mapping;
use crate::udp::{CONTROL_BYTES, ReceivedDatagram, read_control};

mod layout;
mod zero_copy_receive;

use layout::*;

pub use zero_copy_receive::{ZeroCopyReceive, zero_copy_receive};

/// Entries of the submission ring: there is one request at a time.
const SUBMISSIONS: u32 = 2;
/// Waits of 10 ms for a cancelled request.
const CANCEL_WAITS: usize = 100;
pub const BUFFERS_MAX: u16 = 1024;

/// Receives the datagrams of one socket through io_uring.
///
/// The thread that first receives owns the ring: the kernel does the work of a request when that
/// thread waits (DEFER_TASKRUN).
#[derive(Debug)]
pub struct DatagramRing {
    fd: OwnedFd,
    socket: OwnedFd,
    rings: Mapping,
    sqes: Mapping,
    /// The ring of buffers, the message header, the buffers. `None` after drop.
    memory: Option<Mapping>,
    params: Params,
    buffers: u16,
    payload_bytes: usize,
    is_enabled: bool,
    is_armed: bool,
    /// Entries of the ring of buffers that were given to the kernel, modulo 2^16.
    buffer_tail: u16,
    /// Calls of io_uring_enter.
    pub enter_count: u64,
    /// Requests: one serves until it fails or finds no buffer.
    pub request_count: u64,
    /// Times that a datagram found no buffer; it then waits in the socket.
    pub no_buffer_count: u64,
}

impl DatagramRing {
    /// Prepares to receive; nothing is received before the first call of [`Self::receive`].
    ///
    /// - `socket`: blocking. With O_NONBLOCK the kernel fails a request at once in place of waiting.
    /// - `buffers`: a power of two of at most [`BUFFERS_MAX`].
    ///
    /// Errors: ENOSYS or EPERM where io_uring is absent or forbidden (sysctl kernel.io_uring_disabled);
    /// EINVAL before Linux 6.1.
    pub fn new(socket: BorrowedFd<'_>, buffers: u16, payload_bytes: usize) -> io::Result<Self> {
        assert!(buffers.is_power_of_two() && buffers <= BUFFERS_MAX, "{buffers} buffers");
        let mut params = Params {
            cq_entries: 2 * u32::from(buffers),
            flags: SETUP_CQSIZE | SETUP_R_DISABLED | SETUP_SINGLE_ISSUER | SETUP_DEFER_TASKRUN,
            ..Params::default()
        };
        // SAFETY: the call reads and writes one io_uring_params, which has this layout.
        let rc = unsafe { libc::syscall(libc::SYS_io_uring_setup, SUBMISSIONS, &raw mut params) };
        if rc < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: io_uring_setup(2) returned a new descriptor without another owner.
        let fd = unsafe { OwnedFd::from_raw_fd(rc as RawFd) };
        if params.features & (FEAT_SINGLE_MMAP | FEAT_EXT_ARG) != FEAT_SINGLE_MMAP | FEAT_EXT_ARG {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let sq_bytes = params.sq.seventh as usize + params.sq_entries as usize * 4;
        let cq_bytes = params.cq.sixth as usize + params.cq_entries as usize * CQE_BYTES;
        let rings = Mapping::of_fd(fd.as_fd(), sq_bytes.max(cq_bytes), 0)?;
        let sqes = Mapping::of_fd(fd.as_fd(), params.sq_entries as usize * SQE_BYTES, OFF_SQES)?;
        let slot_bytes = slot_bytes(payload_bytes);
        let front = header_at(buffers) + size_of::<libc::msghdr>().next_multiple_of(16);
        let memory = Mapping::anonymous(front + usize::from(buffers) * slot_bytes)?;
        let mut ring = DatagramRing {
            socket: socket.try_clone_to_owned()?,
            fd,
            rings,
            sqes,
            memory: Some(memory),
            params,
            buffers,
            payload_bytes,
            is_enabled: false,
            is_armed: false,
            buffer_tail: 0,
            enter_count: 0,
            request_count: 0,
            no_buffer_count: 0,
        };
        // SAFETY: all-zero is a valid msghdr.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_namelen = NAME_BYTES as libc::socklen_t;
        header.msg_controllen = CONTROL_BYTES as _;
        let at = ring.memory().at(header_at(buffers), size_of::<libc::msghdr>());
        // SAFETY: the range lies in the mapping, aligned to 16 bytes.
        unsafe { at.cast::<libc::msghdr>().write(header) };
        for bid in 0..buffers {
            ring.provide(bid);
        }
        let registration = BufReg {
            ring_addr: ring.memory().base().as_ptr() as u64,
            ring_entries: buffers.into(),
            ..BufReg::default()
        };
        ring.register(REGISTER_PBUF_RING, (&raw const registration).cast(), 1)?;
        Ok(ring)
    }

    fn memory(&self) -> &Mapping {
        self.memory.as_ref().expect("present until drop")
    }

    fn register(&self, what: u32, arg: *const u8, count: u32) -> io::Result<()> {
        // SAFETY: the callers pass an argument of the layout that the operation reads, which
        // outlives the call.
        let rc = unsafe {
            libc::syscall(libc::SYS_io_uring_register, self.fd.as_raw_fd(), what, arg, count)
        };
        if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Gives a buffer to the kernel.
    fn provide(&mut self, bid: u16) {
        let slot = usize::from(self.buffer_tail & (self.buffers - 1));
        let buffer = Buf {
            addr: self.slot(bid).as_ptr() as u64,
            len: slot_bytes(self.payload_bytes) as u32,
            bid,
            tail: 0,
        };
        // Without the last field: that of the first entry is the tail, which the kernel reads.
        let at = self.memory().at(slot * size_of::<Buf>(), size_of::<Buf>()).cast::<u8>().as_ptr();
        let from = (&raw const buffer).cast::<u8>();
        // SAFETY: the entry lies in the mapping, and belongs to us until the tail moves past it; the
        // memories do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(from, at, BUF_FIELDS) };
        self.buffer_tail = self.buffer_tail.wrapping_add(1);
        let tail = self.memory().at(size_of::<Buf>() - 2, 2).cast::<u16>().as_ptr();
        // SAFETY: an aligned u16 inside the mapping, shared with the kernel only by atomic accesses.
        let tail = unsafe { AtomicU16::from_ptr(tail) };
        // Release: the kernel that sees the tail sees the entry.
        tail.store(self.buffer_tail, Ordering::Release);
    }

    fn slot(&self, bid: u16) -> NonNull<u8> {
        let front = header_at(self.buffers) + size_of::<libc::msghdr>().next_multiple_of(16);
        let bytes = slot_bytes(self.payload_bytes);
        self.memory().at(front + usize::from(bid) * bytes, bytes)
    }

    /// An index of a ring, at its offset in the mapping.
    fn index(&self, offset: u32) -> &AtomicU32 {
        let at = self.rings.at(offset as usize, 4).cast::<u32>().as_ptr();
        // SAFETY: an aligned u32 inside the mapping, shared with the kernel only by atomic accesses.
        unsafe { AtomicU32::from_ptr(at) }
    }

    /// Puts the request into the submission ring.
    fn arm(&mut self) {
        let tail = self.index(self.params.sq.tail).load(Ordering::Relaxed);
        let slot = tail & (self.params.sq_entries - 1);
        let header = self.memory().at(header_at(self.buffers), size_of::<libc::msghdr>());
        let request = Sqe {
            opcode: OP_RECVMSG,
            flags: SQE_BUFFER_SELECT,
            ioprio: RECV_MULTISHOT,
            fd: self.socket.as_raw_fd(),
            addr: header.as_ptr() as u64,
            len: 1,
            ..Sqe::default()
        };
        let at = self.sqes.at(slot as usize * SQE_BYTES, SQE_BYTES).cast::<Sqe>();
        // SAFETY: the entry lies in the mapping, and is ours until the tail moves past it.
        unsafe { at.write(request) };
        self.index(self.params.sq.seventh + slot * 4).store(slot, Ordering::Relaxed);
        // Release: the kernel that sees the tail sees the entry.
        self.index(self.params.sq.tail).store(tail.wrapping_add(1), Ordering::Release);
        self.is_armed = true;
        self.request_count += 1;
    }

    /// Submits, lets the kernel complete what has arrived, and waits for one completion at most
    /// `timeout`.
    fn enter(&mut self, to_submit: u32, timeout: Duration) -> io::Result<()> {
        let limit = [timeout.as_secs() as i64, i64::from(timeout.subsec_nanos())];
        let waits = u32::from(!timeout.is_zero());
        let events = GetEvents {
            sigmask: 0,
            sigmask_bytes: 0,
            min_wait_us: 0,
            timeout: (&raw const limit) as u64,
        };
        self.enter_count += 1;
        // SAFETY: the argument is an io_uring_getevents_arg whose time limit outlives the call; the
        // request in the ring leads to memory of this value.
        let rc = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                self.fd.as_raw_fd(),
                to_submit,
                waits,
                ENTER_GETEVENTS | ENTER_EXT_ARG,
                &raw const events,
                size_of::<GetEvents>(),
            )
        };
        if rc >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ETIME | libc::EINTR) => Ok(()),
            _ => Err(error),
        }
    }

    fn ready(&self) -> u32 {
        let head = self.index(self.params.cq.head).load(Ordering::Relaxed);
        // Acquire: entries up to the tail are written.
        self.index(self.params.cq.tail).load(Ordering::Acquire).wrapping_sub(head)
    }

    /// Waits at most `timeout` for the first datagram; true if one is there.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        if self.ready() > 0 {
            return Ok(true);
        }
        if !self.is_enabled {
            self.register(REGISTER_ENABLE_RINGS, std::ptr::null(), 0)?;
            self.is_enabled = true;
        }
        let to_submit = u32::from(!self.is_armed);
        if to_submit > 0 {
            self.arm();
        }
        self.enter(to_submit, timeout)?;
        Ok(self.ready() > 0)
    }

    /// Passes at most `most` datagrams to `each`, and returns how many. Waits for the first at most
    /// `timeout`, and not at all if it is zero.
    ///
    /// Errors: that of the socket, such as ECONNREFUSED; the next call goes on.
    pub fn receive(
        &mut self,
        most: usize,
        timeout: Duration,
        each: &mut impl FnMut(ReceivedDatagram<'_>),
    ) -> io::Result<usize> {
        if !self.wait(timeout)? {
            return Ok(0);
        }
        let ready = self.ready().min(most as u32);
        let mut taken = 0;
        let mut failed = None;
        for _ in 0..ready {
            let completion = self.take_completion();
            if completion.flags & CQE_BUFFER != 0 {
                let bid = (completion.flags >> CQE_BUFFER_SHIFT) as u16;
                if bid >= self.buffers {
                    return Err(io::Error::other(format!("io_uring named buffer {bid}")));
                }
                if let Some(received) = self.received(bid, completion.res) {
                    each(received);
                    taken += 1;
                }
                self.provide(bid);
            }
            match -completion.res {
                libc::ENOBUFS => self.no_buffer_count += 1,
                libc::EINTR | libc::EAGAIN | libc::ECANCELED => {}
                errno if errno > 0 => failed = Some(io::Error::from_raw_os_error(errno)),
                _ => {}
            }
        }
        match failed {
            Some(error) if taken == 0 => Err(error),
            _ => Ok(taken),
        }
    }

    /// Takes the completion at the head; one is [`ready`](Self::ready).
    fn take_completion(&mut self) -> Cqe {
        let head = self.index(self.params.cq.head).load(Ordering::Relaxed);
        let slot = (head & (self.params.cq_entries - 1)) as usize;
        let at = self.rings.at(self.params.cq.sixth as usize + slot * CQE_BYTES, CQE_BYTES);
        // SAFETY: the entry lies in the mapping, aligned, and was written before the tail.
        let completion = unsafe { at.cast::<Cqe>().read() };
        // Release: the entry is read before the kernel may reuse it.
        self.index(self.params.cq.head).store(head.wrapping_add(1), Ordering::Release);
        self.is_armed &= completion.flags & CQE_MORE != 0;
        completion
    }

    /// Ends the request, if there is one. Returns true when the kernel has let go of the socket and of the
    /// buffers: a close of the ring does that later.
    ///
    /// Another thread than the ring's cannot end it.
    fn end_request(&mut self) -> bool {
        let cancel =
            SyncCancel { fd: -1, flags: CANCEL_ANY, timeout_s: 1, ..SyncCancel::default() };
        if self.is_armed
            && let Err(error) = self.register(REGISTER_SYNC_CANCEL, (&raw const cancel).cast(), 1)
            && error.raw_os_error() != Some(libc::ENOENT)
        {
            return false;
        }
        // The cancelled request completes when this thread lets the kernel work.
        for _ in 0..CANCEL_WAITS {
            if !self.is_armed || self.enter(0, Duration::from_millis(10)).is_err() {
                break;
            }
            while self.ready() > 0 {
                self.take_completion();
            }
        }
        !self.is_armed
    }

    /// The datagram in a buffer. `None` if the kernel's lengths do not fit it.
    fn received(&mut self, bid: u16, used_bytes: i32) -> Option<ReceivedDatagram<'_>> {
        let used = usize::try_from(used_bytes).ok()?;
        let len_bytes = used.checked_sub(FRONT_BYTES)?;
        if used > slot_bytes(self.payload_bytes) {
            return None;
        }
        let slot = self.slot(bid);
        // SAFETY: the slot begins with this header, aligned to 16 bytes.
        let out = unsafe { slot.cast::<RecvmsgOut>().read() };
        // SAFETY: the name follows the header, in the slot.
        let name = unsafe { slot.add(size_of::<RecvmsgOut>()) }.cast::<RawAddress>();
        // SAFETY: the name lies in the slot; every bit pattern is a valid array of bytes.
        let from = unsafe { name.read_unaligned() }.written(out.name_bytes as usize);
        // SAFETY: the control area follows the name, in the slot.
        let control = unsafe { slot.add(size_of::<RecvmsgOut>() + NAME_BYTES) };
        // SAFETY: the payload follows the control area; `used` was checked against the slot.
        let payload = unsafe { slot.add(FRONT_BYTES) };
        // SAFETY: all-zero is a valid msghdr.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_control = control.as_ptr().cast();
        header.msg_controllen = (out.control_bytes as usize).min(CONTROL_BYTES) as _;
        let mut received = ReceivedDatagram {
            // SAFETY: `len_bytes` of the slot behind its front, checked above; the kernel has no
            // access until the buffer is provided again, and `self` stays borrowed.
            bytes: unsafe { std::slice::from_raw_parts_mut(payload.as_ptr(), len_bytes) },
            from,
            segment_bytes: len_bytes,
            stamp_ns: None,
            overflow_count: None,
        };
        // SAFETY: the header describes the control area of this slot, which the kernel wrote.
        unsafe { read_control(&header, &mut received) };
        Some(received)
    }
}

impl Drop for DatagramRing {
    fn drop(&mut self) {
        // A request that is still there may write to a buffer.
        if !self.end_request() {
            std::mem::forget(self.memory.take());
        }
    }
}

/// Offset of the message header in the memory.
fn header_at(buffers: u16) -> usize {
    usize::from(buffers) * size_of::<Buf>()
}

/// Bytes of a buffer, a multiple of 16.
fn slot_bytes(payload_bytes: usize) -> usize {
    (FRONT_BYTES + payload_bytes).next_multiple_of(16)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    const TEST_TIMEOUT: Duration = Duration::from_secs(10);

    /// A ring on a socket, and a sender to it; `None` where io_uring is forbidden or too old.
    ///
    /// The receiver has an address of its own, so that no test beside this one can be given its port when it is free.
    fn ends(buffers: u16) -> Option<(DatagramRing, UdpSocket, UdpSocket)> {
        static RECEIVERS: AtomicU16 = AtomicU16::new(1);
        let [high, low] = RECEIVERS.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let receiver = UdpSocket::bind((std::net::Ipv4Addr::new(127, 75, high, low), 0)).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        match DatagramRing::new(receiver.as_fd(), buffers, 100) {
            Ok(ring) => Some((ring, sender, receiver)),
            Err(error) => {
                testkit::skip("kernel", format!("io_uring: {error}"));
                None
            }
        }
    }

    #[test]
    fn layouts_are_those_of_the_kernel() {
        assert_eq!(size_of::<Params>(), 120);
        assert_eq!(size_of::<Sqe>(), SQE_BYTES);
        assert_eq!(size_of::<Cqe>(), CQE_BYTES);
        assert_eq!(size_of::<Buf>(), 16);
        assert_eq!(size_of::<BufReg>(), 40);
        assert_eq!(size_of::<SyncCancel>(), 64);
        assert_eq!(size_of::<GetEvents>(), 24);
    }

    #[test]
    fn datagrams_arrive_in_order_with_their_sender_by_one_request() {
        let Some((mut ring, sender, _receiver)) = ends(8) else { return };
        let own = sender.local_addr().unwrap();
        for round in 0..50u8 {
            for n in 0..5u8 {
                sender.send(&vec![round; usize::from(n) + 1]).unwrap();
            }
            let mut lengths = Vec::new();
            while lengths.len() < 5 {
                let taken = ring.receive(64, TEST_TIMEOUT, &mut |received| {
                    assert!(received.bytes.iter().all(|b| *b == round));
                    assert_eq!(received.from, own);
                    lengths.push(received.bytes.len());
                });
                assert!(taken.unwrap() > 0, "timed out after {lengths:?}");
            }
            assert_eq!(lengths, [1, 2, 3, 4, 5]);
        }
        assert_eq!((ring.request_count, ring.no_buffer_count), (1, 0));
    }

    #[test]
    fn datagrams_beyond_the_buffers_wait_in_the_socket() {
        let Some((mut ring, sender, _receiver)) = ends(4) else { return };
        assert!(!ring.wait(Duration::ZERO).unwrap());
        for n in 0..20u8 {
            sender.send(&[n]).unwrap();
        }
        let mut numbers = Vec::new();
        while numbers.len() < 20 {
            ring.receive(64, TEST_TIMEOUT, &mut |received| numbers.push(received.bytes[0]))
                .unwrap();
        }
        assert_eq!(numbers, (0..20).collect::<Vec<u8>>());
        assert!(ring.no_buffer_count > 0, "4 buffers held 20 datagrams");
    }

    #[test]
    fn nothing_there_ends_with_the_time_limit() {
        let Some((mut ring, _sender, _receiver)) = ends(4) else { return };
        for timeout in [Duration::ZERO, Duration::from_millis(5)] {
            assert_eq!(ring.receive(1, timeout, &mut |_| panic!("nothing was sent")).unwrap(), 0);
        }
    }

    #[test]
    fn the_socket_is_free_once_the_ring_is_dropped() {
        for _ in 0..20 {
            let Some((mut ring, sender, receiver)) = ends(4) else { return };
            sender.send(b"x").unwrap();
            assert_eq!(ring.receive(1, TEST_TIMEOUT, &mut |_| {}).unwrap(), 1);
            let at = receiver.local_addr().unwrap();
            drop((ring, receiver));
            UdpSocket::bind(at).expect("the port is free at once");
        }
    }

    #[test]
    fn a_ring_of_another_thread_can_be_dropped_while_it_receives() {
        let Some((mut ring, sender, _receiver)) = ends(4) else { return };
        let ring = std::thread::spawn(move || {
            sender.send(b"x").unwrap();
            assert_eq!(ring.receive(1, TEST_TIMEOUT, &mut |_| {}).unwrap(), 1);
            ring
        });
        drop(ring.join().unwrap());
    }
}
