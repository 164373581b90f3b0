//! Errors of labs.

use std::io;

use sys::netns::NetnsError;
use sys::sysfs::SysfsError;
use thiserror::Error;

use host::net::NetError;

#[derive(Debug, Error)]
pub enum LabError {
    #[error(transparent)]
    Netns(#[from] NetnsError),
    #[error(transparent)]
    Net(#[from] NetError),
    #[error(transparent)]
    Sysfs(#[from] SysfsError),
    #[error(
        "cannot write {path}{}",
        match .source.kind() {
            io::ErrorKind::PermissionDenied =>
                ", which needs CAP_NET_ADMIN: run as root, or grant it with `sudo setcap \
                 cap_sys_admin,cap_net_admin,cap_net_raw,cap_bpf,cap_perfmon+ep PROGRAM`",
            _ => "",
        }
    )]
    Sysctl {
        /// File below `/proc/sys`.
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("cannot enter the network namespace of a lab end")]
    Enter {
        #[source]
        source: io::Error,
    },
    #[error("cannot pin a thread to CPUs {cpus:?}")]
    Pin {
        cpus: Vec<usize>,
        #[source]
        source: io::Error,
    },
    #[error("{ifname} has no IPv4 address")]
    NoAddress { ifname: String },
    #[error("cannot make a TAP interface: it takes CAP_NET_ADMIN and /dev/net/tun")]
    Tap {
        #[source]
        source: io::Error,
    },
    #[error(
        "no virtual machine attached to {ifname} within 10 s; name {{tap}} and {{tap2}} in its command"
    )]
    NotAttached { ifname: String },
    #[error("the wire with distance failed at {what}; it takes CAP_NET_RAW and CAP_NET_ADMIN")]
    Wire {
        what: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("{ifname} has no carrier a second after both ends were set up")]
    NoCarrier { ifname: String },
}
