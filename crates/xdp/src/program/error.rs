//! Errors of the program in front of sockets; each message has a remedy.
#![expect(missing_docs, reason = "the fields are the parts of each message")]

use std::io;

/// Failure of the program in front of sockets.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// A right is missing.
    #[error(
        "{what} needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON; run as root, or grant them (setcap \
         cap_net_raw,cap_net_admin,cap_bpf,cap_perfmon+ep PROGRAM)"
    )]
    Permission {
        /// The step.
        what: &'static str,
        #[source]
        source: io::Error,
    },
    /// The kernel shows no functions that read hints.
    #[error(
        "this kernel has no metadata of received frames; it needs Linux 6.3 and its types \
         (CONFIG_DEBUG_INFO_BTF)"
    )]
    NoHints {
        /// Why the types cannot be read; `None` if they name no such function.
        #[source]
        source: Option<io::Error>,
    },
    /// The calling thread's network namespace has no such interface.
    #[error("there is no interface {ifindex} in this network namespace")]
    NoInterface {
        /// Index of the interface.
        ifindex: u32,
    },
    /// The kernel refused the program.
    #[error("the kernel refused the XDP program: {log}")]
    Load {
        /// Log of the verifier.
        log: String,
        #[source]
        source: io::Error,
    },
    /// The interface has an XDP program.
    #[error(
        "interface {ifindex} already has an XDP program; end its process, take the program off (ip \
         link set dev IF xdp off), or put the socket into its map"
    )]
    AlreadyAttached {
        /// Index of the interface.
        ifindex: u32,
        #[source]
        source: io::Error,
    },
    /// A program with metadata runs in the driver alone.
    #[error("an XDP program with metadata cannot be attached in SKB mode; use native mode")]
    MetadataInSkbMode {
        #[source]
        source: io::Error,
    },
    /// Another step failed.
    #[error("{what} failed")]
    System {
        /// The step.
        what: &'static str,
        #[source]
        source: io::Error,
    },
}
