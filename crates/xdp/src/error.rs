//! Errors of AF_XDP sockets; each message has a remedy.
#![expect(missing_docs, reason = "the fields are the parts of each message")]

use std::io;

/// Failure of an AF_XDP socket.
#[derive(Debug, thiserror::Error)]
pub enum XskError {
    /// The driver has no zero-copy mode for the queue.
    #[error(
        "zero-copy is not offered by interface {ifname} queue {queue}; allow copy mode, or use a driver with AF_XDP zero-copy \
         (virtio-net needs Linux 6.16 and a device behind an IOMMU: iommu_platform=on in QEMU)"
    )]
    ZeroCopyRefused {
        ifname: String,
        queue: u32,
        #[source]
        source: io::Error,
    },
    /// Another AF_XDP socket may use the queue.
    #[error(
        "queue {queue} of {ifname} stayed busy for {waited_ms} ms; stop the program that has \
         an AF_XDP socket on it, or choose another queue"
    )]
    QueueBusy { ifname: String, queue: u32, waited_ms: u64 },
    /// The last AF_XDP socket of the queue was closed, and the kernel has not released it.
    #[error(
        "the kernel did not release queue {queue} of {ifname} within {waited_ms} ms after its last AF_XDP \
         socket was closed; try again when it is less busy"
    )]
    NotReleased { ifname: String, queue: u32, waited_ms: u64 },
    /// The interface has fewer queues.
    #[error(
        "interface {ifname} has no queue {queue} (it has {queues}); choose one below {queues}, \
         or raise the channel count (ethtool -L {ifname} combined N)"
    )]
    NoQueue { ifname: String, queue: u32, queues: u32 },
    /// The interface is down.
    #[error("interface {ifname} is down; bring it up (ip link set {ifname} up)")]
    LinkDown { ifname: String },
    /// The interface was deleted.
    #[error("interface {ifname} no longer exists")]
    Gone { ifname: String },
    /// The driver refuses a queue of an interface that is there and up.
    #[error(
        "the driver of {ifname} refuses {what} on queue {queue} although the interface is up: it is being \
         reset, or its XDP program was taken off; see dmesg, and try again"
    )]
    NotReady {
        ifname: String,
        queue: u32,
        what: &'static str,
        #[source]
        source: io::Error,
    },
    /// A right is missing.
    #[error(
        "opening an AF_XDP socket needs CAP_NET_RAW; run as root, or grant it (setcap cap_net_raw+ep \
         PROGRAM; loading an XDP program needs cap_net_admin,cap_bpf,cap_perfmon too)"
    )]
    Permission {
        #[source]
        source: io::Error,
    },
    /// The kernel was built without.
    #[error("this kernel has no AF_XDP sockets (CONFIG_XDP_SOCKETS); use UDP or AF_PACKET sockets")]
    NoAfXdp,
    /// The kernel does not take the memory.
    #[error(
        "no memory for a UMEM of {umem_bytes} bytes: raise the locked-memory limit \
         (ulimit -l unlimited), grant CAP_IPC_LOCK, which lifts it, \
         or use fewer frames"
    )]
    Memory {
        umem_bytes: u64,
        #[source]
        source: io::Error,
    },
    /// Kernel or driver have no packets in several frames.
    #[error(
        "interface {ifname} refuses packets that span frames; they need Linux 6.6 and a driver that \
         supports them: bind without multi-buffer, and use packets that fit into one frame"
    )]
    NoMultiBuffer {
        ifname: String,
        #[source]
        source: io::Error,
    },
    /// A packet that the frames cannot hold.
    #[error(
        "a packet of {len_bytes} bytes needs {needed} frames of {frame_bytes} bytes; the most is {most}"
    )]
    TooLong { len_bytes: usize, needed: usize, frame_bytes: u32, most: usize },
    /// A [`SendRequest`](crate::SendRequest) that cannot be posted.
    #[error("a request with a frame is not possible: {why}")]
    Request {
        /// The reason, and the remedy.
        why: &'static str,
    },
    /// Another system call failed.
    #[error("AF_XDP on {ifname} queue {queue}: {what} failed")]
    System {
        ifname: String,
        queue: u32,
        what: &'static str,
        #[source]
        source: io::Error,
    },
}
