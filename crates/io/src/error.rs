//! What can go wrong in an engine, and what to do about it.

use std::io;

/// Why an engine could not be opened or went down.
#[derive(Debug, thiserror::Error)]
pub enum IoError {
    /// An AF_XDP socket.
    #[error(transparent)]
    Xsk(#[from] sys::xsk::XskError),
    /// A BPF program.
    #[error(transparent)]
    Bpf(#[from] sys::bpf::BpfError),
    /// A multicast group.
    #[error(transparent)]
    Multicast(#[from] sys::multicast::MulticastError),
    /// The UDP port has another user.
    #[error(
        "UDP port {port} of {ip} is taken; stop the program that has it, or choose another with --port"
    )]
    PortTaken {
        /// Local address.
        ip: std::net::Ipv4Addr,
        /// Port.
        port: u16,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A capability is missing.
    #[error(
        "{what} needs {capability}; run as root, or grant it: \
         setcap cap_net_raw,cap_net_admin,cap_bpf,cap_perfmon+ep $(command -v wirepath)"
    )]
    Permission {
        /// What was tried.
        what: &'static str,
        /// The capability's name.
        capability: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The interface went down.
    #[error("interface {ifname} is down; bring it up (ip link set {ifname} up)")]
    LinkDown {
        /// Interface.
        ifname: String,
    },
    /// The interface was deleted.
    #[error("interface {ifname} no longer exists")]
    Gone {
        /// Interface.
        ifname: String,
    },
    /// A payload that the engine cannot send in one datagram.
    #[error("a payload of {payload_bytes} bytes {why}; {remedy}")]
    PayloadSize {
        /// Payload asked for.
        payload_bytes: usize,
        /// The limit that it breaks.
        why: String,
        /// What to do.
        remedy: String,
    },
    /// The kernel took no datagram for a long time.
    #[error("the kernel took no datagram on {ifname} for {waited_ms} ms; is its queue stopped?")]
    Stalled {
        /// Interface.
        ifname: String,
        /// How long we tried.
        waited_ms: u64,
    },
    /// The engine was opened without what this needs.
    #[error("this engine has no address to send to; give the far end's address")]
    NoRemote,
    /// Anything else.
    #[error("{what} on {ifname} failed")]
    System {
        /// The call.
        what: &'static str,
        /// Interface, or local address.
        ifname: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}
