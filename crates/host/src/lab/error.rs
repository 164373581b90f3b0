//! Why a lab could not be built or changed.

use std::io;

use sys::netns::NetnsError;
use sys::sysfs::SysfsError;
use thiserror::Error;

use crate::net::NetError;

/// Why a lab could not be built or changed.
#[derive(Debug, Error)]
pub enum LabError {
    /// A namespace could not be made or entered.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// Interfaces, addresses or features could not be set.
    #[error(transparent)]
    Net(#[from] NetError),
    /// A setting of an interface could not be read or written.
    #[error(transparent)]
    Sysfs(#[from] SysfsError),
    /// A setting of the namespace could not be written.
    #[error(
        "cannot write {path}{}",
        match .source.kind() {
            io::ErrorKind::PermissionDenied =>
                ", which takes CAP_NET_ADMIN: run as root, or grant it with `sudo setcap \
                 cap_sys_admin,cap_net_admin,cap_net_raw,cap_bpf,cap_perfmon+ep PROGRAM`",
            _ => "",
        }
    )]
    Sysctl {
        /// File below `/proc/sys`.
        path: String,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// An interface that is to be used has no address.
    #[error("{ifname} has no IPv4 address")]
    NoAddress {
        /// Interface.
        ifname: String,
    },
    /// A TAP interface could not be made.
    #[error("cannot make a TAP interface: it takes CAP_NET_ADMIN and /dev/net/tun")]
    Tap {
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// The wire between two ends did not come up in time.
    #[error("{ifname} has no carrier a second after both ends were set up")]
    NoCarrier {
        /// Interface.
        ifname: String,
    },
}
