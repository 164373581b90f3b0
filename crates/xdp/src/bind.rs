//! Binds an AF_XDP socket to a queue: flags, fall-back, busy queues, errors.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use libc::{SOL_XDP, xdp_options};

use crate::XskError;
use crate::os;

/// XDP_USE_SG: packets may span several frames.
const XDP_USE_SG: u16 = 1 << 4;
/// Longest time to wait for a queue that another AF_XDP socket may have.
const BUSY_TIMEOUT: Duration = Duration::from_millis(1500);
/// Longest time to wait for a queue that none has: a busy kernel took more than 1.5 seconds to release one.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest time that a driver takes to reset an interface.
const RESET_TIMEOUT: Duration = Duration::from_secs(5);

/// Copying between driver and UMEM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Copying {
    /// The kernel copies each frame (XDP_COPY): every driver has it.
    Copy,
    /// Zero-copy if the driver has it, else copy.
    PreferZeroCopy,
    /// Zero-copy, or an error if the driver has none (XDP_ZEROCOPY).
    RequireZeroCopy,
}

/// Queue and mode of a socket.
#[derive(Debug, Clone)]
pub struct Bind {
    /// Interface index, in the calling thread's network namespace.
    pub ifindex: u32,
    /// Its name, for messages.
    pub ifname: String,
    /// Receive queue, or the queue to send on.
    pub queue: u32,
    /// Receive queues that the interface has, for messages.
    pub queues: u32,
    /// Zero-copy or copy mode.
    pub copying: Copying,
    /// XDP_USE_NEED_WAKEUP: the kernel sleeps until it is notified.
    pub need_wakeup: bool,
    /// Packets may span frames.
    pub multi_buffer: bool,
    /// Entries of the RX and TX rings; a power of two.
    pub ring_entries: u32,
    /// Most frames in the fill ring; the rest stay for sending.
    pub fill_target: u32,
    /// Descriptors sent by one notification, if the kernel lets it be set.
    pub tx_budget: u32,
}

/// Entries of the rings of [`Bind::to_queue`].
const RING_ENTRIES: u32 = 2048;

impl Bind {
    /// A queue of an interface of the calling thread's network namespace: zero-copy if the driver has it,
    /// with XDP_USE_NEED_WAKEUP, rings of 2,048 entries, and half of as many frames to receive into.
    ///
    /// Errors: there is no such interface.
    pub fn to_queue(ifname: &str, queue: u32) -> io::Result<Bind> {
        let ifindex = os::interface_index(ifname)?;
        Ok(Bind {
            ifindex,
            ifname: ifname.to_owned(),
            queue,
            queues: receive_queue_count(ifname).unwrap_or(queue + 1),
            copying: Copying::PreferZeroCopy,
            need_wakeup: true,
            multi_buffer: false,
            ring_entries: RING_ENTRIES,
            fill_target: RING_ENTRIES / 2,
            tx_budget: RING_ENTRIES,
        })
    }
}

/// Receive queues of an interface by sysfs.
fn receive_queue_count(ifname: &str) -> Option<u32> {
    let entries = std::fs::read_dir(format!("/sys/class/net/{ifname}/queues")).ok()?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    u32::try_from(names.filter(|name| name.starts_with("rx-")).count()).ok().filter(|n| *n > 0)
}

pub(super) fn system(bind: &Bind, what: &'static str, source: io::Error) -> XskError {
    XskError::System { ifname: bind.ifname.clone(), queue: bind.queue, what, source }
}

/// Binds, falling back from zero-copy to copy if allowed; returns true if the kernel runs
/// zero-copy.
pub(super) fn bind_queue(
    fd: BorrowedFd<'_>,
    bind: &Bind,
    shared: Option<BorrowedFd<'_>>,
) -> Result<bool, XskError> {
    let flags = match bind.copying {
        // A shared UMEM has the mode of its first socket; requesting it again is refused.
        _ if shared.is_some() => libc::XDP_SHARED_UMEM,
        Copying::Copy => libc::XDP_COPY,
        Copying::PreferZeroCopy | Copying::RequireZeroCopy => libc::XDP_ZEROCOPY,
    };
    let result = try_bind(fd, bind, flags, shared).or_else(|refusal| {
        if flags != libc::XDP_ZEROCOPY || !may_refuse_zero_copy(&refusal) {
            return Err((refusal, false));
        }
        // EINVAL has other reasons too: only a success in copy mode shows that it was zero-copy.
        match (try_bind(fd, bind, libc::XDP_COPY, shared), bind.copying) {
            (Ok(()), Copying::RequireZeroCopy) => Err((refusal, true)),
            (result, _) => result.map_err(|source| (source, false)),
        }
    });
    let Err((source, is_zero_copy)) = result else {
        // SAFETY: xdp_options is a plain C struct of integers.
        let options: xdp_options = unsafe { os::get(fd, SOL_XDP, libc::XDP_OPTIONS) }
            .map_err(|e| system(bind, "XDP_OPTIONS", e))?;
        return Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0);
    };
    let ifname = bind.ifname.clone();
    let queue = bind.queue;
    Err(match source.raw_os_error() {
        Some(libc::EBUSY) if is_only_socket() => {
            XskError::NotReleased { ifname, queue, waited_ms: RELEASE_TIMEOUT.as_millis() as u64 }
        }
        Some(libc::EBUSY) => {
            XskError::QueueBusy { ifname, queue, waited_ms: BUSY_TIMEOUT.as_millis() as u64 }
        }
        Some(libc::EINVAL) if queue >= bind.queues => {
            XskError::NoQueue { ifname, queue, queues: bind.queues }
        }
        Some(libc::ENETDOWN | libc::ENODEV | libc::ENXIO) => absent(bind, "a socket", source),
        Some(libc::EPERM | libc::EACCES) => XskError::Permission { source },
        _ if is_zero_copy => XskError::ZeroCopyRefused { ifname, queue, source },
        Some(libc::EINVAL) if bind.multi_buffer => XskError::NoMultiBuffer { ifname, source },
        _ => system(bind, "bind", source),
    })
}

/// Error of a device that may be down or gone: ENETDOWN, ENODEV, ENXIO. Drivers answer the same while
/// they are reset or, to a zero-copy send, without an XDP program (mlx5: ENETDOWN, igc: ENXIO).
pub(super) fn absent(bind: &Bind, what: &'static str, source: io::Error) -> XskError {
    let (ifname, queue) = (bind.ifname.clone(), bind.queue);
    match os::is_up(bind.ifindex) {
        None => XskError::Gone { ifname },
        Some(false) => XskError::LinkDown { ifname },
        Some(true) => XskError::NotReady { ifname, queue, what, source },
    }
}

/// EOPNOTSUPP of a driver without zero-copy; EINVAL of virtio-net without an IOMMU.
fn may_refuse_zero_copy(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL))
}

/// True if the thread's network namespace has one AF_XDP socket: the caller's, so that no other holds a queue.
fn is_only_socket() -> bool {
    let protocols = std::fs::read_to_string("/proc/thread-self/net/protocols");
    protocols.is_ok_and(|table| socket_count(&table) == Some(1))
}

/// AF_XDP sockets by the table of protocols, whose columns are name, size of a socket and sockets.
fn socket_count(protocols: &str) -> Option<u32> {
    let mut row = protocols.lines().find_map(|line| line.strip_prefix("XDP "))?.split_whitespace();
    row.nth(1)?.parse().ok()
}

/// Binds when the queue is free: the kernel releases it only a grace period after the last socket
/// was closed.
fn try_bind(
    fd: BorrowedFd<'_>,
    bind: &Bind,
    mode: u16,
    shared: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut flags = mode;
    // A shared socket inherits both from the first one and may not repeat them.
    if shared.is_none() {
        flags |= if bind.need_wakeup { libc::XDP_USE_NEED_WAKEUP } else { 0 };
        flags |= if bind.multi_buffer { XDP_USE_SG } else { 0 };
    }
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: bind.ifindex,
        sxdp_queue_id: bind.queue,
        sxdp_shared_umem_fd: shared.map_or(0, |fd| fd.as_raw_fd() as u32),
    };
    let begun = Instant::now();
    loop {
        // SAFETY: pointer and length describe `address`.
        let rc = unsafe {
            libc::bind(
                fd.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_xdp>() as libc::socklen_t,
            )
        };
        if rc == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        let may_pass = match error.raw_os_error() {
            Some(libc::EBUSY) => {
                let waited = begun.elapsed();
                waited < BUSY_TIMEOUT || waited < RELEASE_TIMEOUT && is_only_socket()
            }
            // Of an interface that is up, whose driver resets its link: igb for 3 s.
            Some(libc::ENETDOWN) => {
                begun.elapsed() < RESET_TIMEOUT && os::is_up(bind.ifindex) == Some(true)
            }
            _ => false,
        };
        if !may_pass {
            return Err(error);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_counted_by_the_table_of_protocols() {
        let table = "\
protocol  size sockets  memory press maxhdr  slab module     cl co di ac io in de sh ss gs se re bi br ha uh gp em
PACKET    1600      3      -1   NI       0   no   kernel      n  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n
XDP       1088      2      -1   NI       0   no   kernel      n  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n
";
        assert_eq!(socket_count(table), Some(2));
        assert_eq!(socket_count("XDP       1088"), None);
        assert_eq!(socket_count(""), None);
    }
}
