//! AF_XDP for devices with frames of their own: whole frames to and from one queue.
//!
//! [`XdpFrameTx`] and [`XdpFrameRx`] share a socket and may be on two threads: each locks it for
//! the duration of one call.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sys::bpf::{SocketFilter, XdpMode};
use xdp::{Bind, Copying, Frames, Socket, Then};

use crate::error::IoError;

/// Bytes of a UMEM frame; the kernel reserves 256 bytes in front of a received one.
const FRAME_BYTES: u32 = 2048;
/// Longest frame that is received or sent whole.
pub const XDP_FRAME_BYTES_MAX: usize = FRAME_BYTES as usize - 256;
/// Frames with the kernel to receive into, and as many to send.
const FRAMES_EACH_WAY: u32 = 512;
const RING_ENTRIES: u32 = 512;
/// Frames taken at a time.
const BATCH: usize = 64;
/// Notifications to drain a full ring: in copy mode the kernel sends 32 frames for each.
const KICKS: u32 = RING_ENTRIES / 32;

#[derive(Debug)]
struct Queue {
    // Field order is drop order: the program is detached before the socket closes, so that no frame
    // is redirected to a closed socket.
    _filter: SocketFilter,
    socket: Mutex<Socket>,
}

impl Queue {
    /// Locks the socket. A panic of the other half leaves the rings consistent.
    fn socket(&self) -> MutexGuard<'_, Socket> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub struct XdpFrameTx {
    queue: Arc<Queue>,
    posted: bool,
    /// System calls that notified the kernel to send.
    pub kick_count: u64,
    pub refused_count: u64,
}

/// Receives every frame that arrives at the queue; none goes to the stack.
#[derive(Debug)]
pub struct XdpFrameRx {
    queue: Arc<Queue>,
    /// Duplicate of the socket's descriptor, for waiting without the lock.
    fd: OwnedFd,
}

/// Opens queue 0 of an interface of the calling thread's network namespace; `ifname` is for
/// messages.
///
/// Errors: without CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN or CAP_NET_RAW; an interface that is gone, down or
/// whose queue is taken.
pub fn open_xdp_frames(
    ifindex: u32,
    ifname: &str,
    mode: XdpMode,
) -> Result<(XdpFrameTx, XdpFrameRx), IoError> {
    let frames = Frames::allocate(FRAME_BYTES, 2 * FRAMES_EACH_WAY, 1)
        .map_err(system("allocating the UMEM", ifname))?
        .swap_remove(0);
    let filter = all_frames()?;
    let bind = bind(ifindex, ifname, Copying::PreferZeroCopy);
    let mut socket = Socket::open(frames, bind, None)?;
    // Frames before traffic: an arrival that finds the fill ring empty is lost.
    socket.rx_post();
    let (filter, fd) = attach(filter, mode, socket.as_fd(), socket.bound_to())?;
    let queue = Arc::new(Queue { _filter: filter, socket: Mutex::new(socket) });
    let tx = XdpFrameTx { queue: queue.clone(), posted: false, kick_count: 0, refused_count: 0 };
    Ok((tx, XdpFrameRx { queue, fd }))
}

/// Queue 0 of an interface.
fn bind(ifindex: u32, ifname: &str, copying: Copying) -> Bind {
    Bind {
        ifindex,
        ifname: ifname.to_owned(),
        queue: 0,
        queues: 1,
        copying,
        need_wakeup: true,
        multi_buffer: false,
        ring_entries: RING_ENTRIES,
        fill_target: FRAMES_EACH_WAY,
        tx_budget: RING_ENTRIES,
    }
}

/// A program that passes every frame to its socket.
fn all_frames() -> Result<SocketFilter, IoError> {
    Ok(SocketFilter::for_all(1)?)
}

/// Attaches the program to the socket's interface. Also returns a duplicate of the socket's descriptor.
fn attach(
    mut filter: SocketFilter,
    mode: XdpMode,
    socket: BorrowedFd<'_>,
    bind: &Bind,
) -> Result<(SocketFilter, OwnedFd), IoError> {
    filter.insert_socket(0, socket)?;
    filter.attach(bind.ifindex, mode)?;
    let fd = socket.try_clone_to_owned();
    Ok((filter, fd.map_err(system("duplicating a descriptor", &bind.ifname))?))
}

fn system(what: &'static str, ifname: &str) -> impl FnOnce(io::Error) -> IoError {
    let ifname = ifname.to_owned();
    move |source| IoError::System { what, ifname, source }
}

/// Longest frame of a guest: Ethernet header and 1,500 bytes.
#[cfg(target_arch = "x86_64")]
const GUEST_FRAME_BYTES_MAX: u32 = 1514;

/// Rings whose UMEM is the memory of a virtual machine.
#[cfg(target_arch = "x86_64")]
#[derive(Debug)]
pub struct GuestFrames {
    // Dropped first, as in `Queue`.
    _filter: SocketFilter,
    pub socket: xdp::ExternalSocket<sys::kvm::GuestRam>,
}

/// As [`open_xdp_frames`], with all of `ram` as UMEM and in copy mode. Also returns a duplicate of the socket's
/// descriptor, to wait for arrivals.
#[cfg(target_arch = "x86_64")]
pub fn open_guest_frames(
    ifindex: u32,
    ifname: &str,
    ram: &sys::kvm::GuestRam,
) -> Result<(GuestFrames, OwnedFd), IoError> {
    let filter = all_frames()?;
    let bind = bind(ifindex, ifname, Copying::Copy);
    let socket = xdp::ExternalSocket::open(ram.clone(), GUEST_FRAME_BYTES_MAX, &bind)?;
    let (filter, fd) = attach(filter, XdpMode::Native, socket.as_fd(), &bind)?;
    Ok((GuestFrames { _filter: filter, socket }, fd))
}

/// Copies a frame into the ring; false if there is no room.
fn post_frame(socket: &mut Socket, frame: &[u8]) -> bool {
    matches!(socket.tx_post(1, frame.len(), |slot| slot.copy_from_slice(frame)), Ok(1))
}

impl XdpFrameTx {
    /// Copies a frame into the ring, to be sent by [`Self::kick`]; `false` if there is no room.
    pub fn post(&mut self, frame: &[u8]) -> bool {
        if frame.is_empty() || frame.len() > XDP_FRAME_BYTES_MAX {
            self.refused_count += 1;
            return true;
        }
        let mut socket = self.queue.socket();
        let mut posted = post_frame(&mut socket, frame);
        if !posted {
            // Completed frames make room.
            posted = socket.tx_reap() > 0 && post_frame(&mut socket, frame);
        }
        self.posted |= posted;
        posted
    }

    /// Makes the kernel send posted frames and reclaims completed ones.
    ///
    /// Frames left over go with the next call. Errors: the device is gone.
    pub fn kick(&mut self) -> Result<(), IoError> {
        if !self.posted {
            return Ok(());
        }
        let mut socket = self.queue.socket();
        let before = socket.wakeup_count;
        let mut kicked = Ok(true);
        for _ in 0..KICKS {
            kicked = socket.kick();
            socket.tx_reap();
            if !matches!(kicked, Ok(false)) || socket.tx_pending() == 0 {
                break;
            }
        }
        self.posted = socket.tx_pending() > 0;
        self.kick_count += socket.wakeup_count - before;
        Ok(kicked.map(|_| ())?)
    }

    /// Frames posted that the last [`Self::kick`] left in the ring.
    pub fn unsent_count(&self) -> u64 {
        if self.posted { self.queue.socket().tx_pending() as u64 } else { 0 }
    }
}

impl XdpFrameRx {
    /// Passes arrived frames to `each`, up to a batch, without a system call; returns how many.
    pub fn take(&mut self, mut each: impl FnMut(&[u8])) -> usize {
        let mut socket = self.queue.socket();
        let taken = socket.rx_take(BATCH, |frame, _| {
            each(frame);
            Then::Release
        });
        if taken > 0 {
            socket.rx_post();
        }
        taken
    }

    /// True if a frame waits; reads the ring's producer index in shared memory.
    pub fn ready(&self) -> bool {
        self.queue.socket().rx_ready()
    }

    /// True in zero-copy mode.
    pub fn is_zero_copy(&self) -> bool {
        self.queue.socket().is_zero_copy()
    }

    /// Frames dropped so far because there was no room.
    pub fn dropped_count(&self) -> io::Result<u64> {
        let s = self.queue.socket().statistics()?;
        Ok(s.rx_dropped_count + s.rx_ring_full_count)
    }
}

impl AsFd for XdpFrameRx {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
