//! Errors of AF_XDP sockets; each message has a remedy.

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum XskError {
    #[error(
        "zero-copy is not offered by interface {ifname} queue {queue}; drop \
         --require-zero-copy to run in copy mode, or use a driver with AF_XDP zero-copy \
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
         an AF_XDP socket on it, or choose another queue with -q"
    )]
    QueueBusy { ifname: String, queue: u32, waited_ms: u64 },
    /// The last AF_XDP socket of the queue was closed, and the kernel has not released it.
    #[error(
        "the kernel did not release queue {queue} of {ifname} within {waited_ms} ms after its last AF_XDP \
         socket was closed; try again when it is less busy"
    )]
    NotReleased { ifname: String, queue: u32, waited_ms: u64 },
    #[error(
        "interface {ifname} has no queue {queue} (it has {queues}); choose one below {queues} \
         with -q, or raise the channel count (ethtool -L {ifname} combined N)"
    )]
    NoQueue { ifname: String, queue: u32, queues: u32 },
    #[error("interface {ifname} is down; bring it up (ip link set {ifname} up)")]
    LinkDown { ifname: String },
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
    #[error(
        "opening an AF_XDP socket needs CAP_NET_RAW; run as root, or grant it: \
         setcap cap_net_raw,cap_net_admin,cap_bpf,cap_perfmon+ep $(command -v wirepath)"
    )]
    Permission {
        #[source]
        source: io::Error,
    },
    #[error(
        "this kernel has no AF_XDP sockets (CONFIG_XDP_SOCKETS); use UDP sockets: no switch bypass"
    )]
    NoAfXdp,
    #[error(
        "no memory for a UMEM of {umem_bytes} bytes: raise the locked-memory limit \
         (ulimit -l unlimited), grant CAP_IPC_LOCK, which lifts it (setcap \
         cap_ipc_lock,cap_net_raw,cap_net_admin,cap_bpf,cap_perfmon+ep $(command -v wirepath)), \
         or use fewer frames"
    )]
    Memory {
        umem_bytes: u64,
        #[source]
        source: io::Error,
    },
    #[error(
        "interface {ifname} refuses packets that span frames; they need Linux 6.6 and a driver that \
         supports them: drop --multi-buffer, and use a --size that fits into one frame"
    )]
    NoMultiBuffer {
        ifname: String,
        #[source]
        source: io::Error,
    },
    #[error(
        "a packet of {len_bytes} bytes needs {needed} frames of {frame_bytes} bytes; the most is {most}"
    )]
    TooLong { len_bytes: usize, needed: usize, frame_bytes: u32, most: usize },
    #[error("AF_XDP on {ifname} queue {queue}: {what} failed")]
    System {
        ifname: String,
        queue: u32,
        what: &'static str,
        #[source]
        source: io::Error,
    },
}
