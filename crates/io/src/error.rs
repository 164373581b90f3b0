//! Errors of engines; each message has a remedy.

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum IoError {
    #[error(transparent)]
    Xsk(crate::SocketError),
    #[error(transparent)]
    Bpf(#[from] sys::bpf::BpfError),
    #[error(transparent)]
    Multicast(#[from] sys::multicast::MulticastError),
    /// The UDP port has another user.
    #[error(
        "UDP port {port} of {ip} is taken; stop the program that has it, or choose another with --port"
    )]
    PortTaken {
        ip: std::net::IpAddr,
        port: u16,
        #[source]
        source: io::Error,
    },
    #[error(
        "{what} needs {capability}; run as root, or grant it: \
         setcap cap_net_raw,cap_net_admin,cap_bpf,cap_perfmon+ep $(command -v wirepath)"
    )]
    Permission {
        what: &'static str,
        capability: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("interface {ifname} is down; bring it up (ip link set {ifname} up)")]
    LinkDown { ifname: String },
    #[error("interface {ifname} no longer exists")]
    Gone { ifname: String },
    /// The driver reset the link for the XDP program.
    #[error(
        "interface {ifname} lost its link when its XDP program was attached, and had none again within \
         {waited_ms} ms; see dmesg, and ip link show {ifname}"
    )]
    NoCarrier { ifname: String, waited_ms: u64 },
    #[error(
        "interface {ifname} has {queues} receive queues; an engine takes at most {most}: name one with \
         -q, or lower their number (ethtool -L {ifname} combined {most})"
    )]
    TooManyQueues {
        ifname: String,
        queues: u32,
        /// Most queues of an engine.
        most: usize,
    },
    /// A payload that the engine cannot send in one datagram.
    #[error("a payload of {payload_bytes} bytes {why}; {remedy}")]
    PayloadSize {
        payload_bytes: usize,
        /// The limit that it breaks.
        why: String,
        remedy: String,
    },
    /// The kernel took no datagram for a long time.
    #[error("the kernel took no datagram on {ifname} for {waited_ms} ms; is its queue stopped?")]
    Stalled { ifname: String, waited_ms: u64 },
    /// Too few huge pages are reserved and free.
    #[error(
        "a UMEM of {umem_bytes} bytes needs {page_count} free huge pages of 2 MiB; reserve them \
         (echo {page_count} > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages, once for each end on \
         this host), or leave out huge pages"
    )]
    NoHugePages {
        umem_bytes: u64,
        page_count: u64,
        #[source]
        source: io::Error,
    },
    /// Unaligned frames cross pages, which a device may not hold side by side.
    #[error(
        "unaligned chunks cross pages, and a zero-copy device drops a frame whose pages are not side by side \
         for it; use unaligned chunks without zero-copy"
    )]
    UnalignedZeroCopy,
    /// The engine was opened without a remote address.
    #[error("this engine has no address to send to; give the far end's address")]
    NoRemote,
    #[error("{what} on {ifname} failed")]
    System {
        what: &'static str,
        /// Interface, or local address.
        ifname: String,
        #[source]
        source: io::Error,
    },
}

impl IoError {
    /// Failure of an AF_PACKET socket.
    ///
    /// - `what`: the call or the part that failed.
    pub fn packet(source: io::Error, what: &'static str, ifname: &str) -> Self {
        let ifname = ifname.to_owned();
        match (source.kind(), source.raw_os_error()) {
            (io::ErrorKind::PermissionDenied, _) => {
                IoError::Permission { what, capability: "CAP_NET_RAW", source }
            }
            (io::ErrorKind::NetworkDown, _) => IoError::LinkDown { ifname },
            (_, Some(sys::socket::ENXIO | sys::socket::ENODEV)) => IoError::Gone { ifname },
            _ => IoError::System { what, ifname, source },
        }
    }
}
