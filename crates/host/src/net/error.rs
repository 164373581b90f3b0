//! What can go wrong when asking the kernel about interfaces, routes and neighbours.

use std::io;
use std::net::Ipv4Addr;

use netlink_socket2::{NetlinkSocket, ReplyError};
use thiserror::Error;

/// Why a question to the kernel, or a change, failed.
#[derive(Debug, Error)]
pub enum NetError {
    /// The capability is missing.
    #[error(
        "{what} needs CAP_NET_ADMIN: run as root, or grant it with \
         `sudo setcap cap_net_admin,cap_net_raw+ep PROGRAM`"
    )]
    Denied {
        /// What was tried.
        what: String,
        /// The kernel's answer.
        #[source]
        source: ReplyError,
    },
    /// The kernel or the driver does not offer it.
    #[error("{what} is not offered by this kernel or driver")]
    Unsupported {
        /// What was tried.
        what: String,
    },
    /// The kernel refused, and says why as far as it tells.
    #[error("{what} failed")]
    Kernel {
        /// What was tried.
        what: String,
        /// The kernel's answer.
        #[source]
        source: ReplyError,
    },
    /// No such interface in this network namespace.
    #[error("there is no interface {interface} here: `ip link` lists those there are")]
    NoInterface {
        /// Name or index asked for.
        interface: String,
    },
    /// The destination cannot be reached.
    #[error("no route to {destination}: `ip route get {destination}` explains")]
    NoRoute {
        /// Address asked for.
        destination: Ipv4Addr,
        /// The kernel's answer.
        #[source]
        source: ReplyError,
    },
    /// The route leads through another interface than the one asked for.
    #[error(
        "{destination} is reached through {actual}, not {wanted}: name {actual}, or change the \
         route with `ip route add {destination}/32 dev {wanted}`"
    )]
    OtherInterface {
        /// Address asked for.
        destination: Ipv4Addr,
        /// Interface asked for.
        wanted: String,
        /// Interface of the route.
        actual: String,
    },
    /// Nobody answered for the next hop.
    #[error(
        "{next_hop} does not answer on {interface}: is it up and in the same network? \
         (`ip neigh show dev {interface}`)"
    )]
    NoNeighbour {
        /// Address whose MAC address is wanted.
        next_hop: Ipv4Addr,
        /// Interface of the route.
        interface: String,
    },
    /// The interface is not Ethernet.
    #[error("{interface} has no Ethernet addresses: frames cannot be sent on it")]
    NotEthernet {
        /// Interface of the route.
        interface: String,
    },
    /// The interface has no such queue, feature or setting.
    #[error("{interface} has no {what}")]
    Absent {
        /// Interface.
        interface: String,
        /// What was asked for.
        what: String,
    },
    /// A feature was set and the driver did not follow.
    #[error("{interface} did not take {what}")]
    NotTaken {
        /// Interface.
        interface: String,
        /// What was asked for.
        what: String,
    },
    /// A system call failed.
    #[error("{what} failed")]
    Io {
        /// What was tried.
        what: String,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
}

/// Runs an exchange on a fresh netlink socket of the calling thread's network namespace.
pub(crate) fn ask<T>(
    what: impl Into<String>,
    exchange: impl FnOnce(&mut NetlinkSocket) -> Result<T, ReplyError>,
) -> Result<T, NetError> {
    exchange(&mut NetlinkSocket::new()).map_err(|source| {
        let what = what.into();
        match source.as_io_error().raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => NetError::Denied { what, source },
            Some(libc::EOPNOTSUPP) => NetError::Unsupported { what },
            _ => NetError::Kernel { what, source },
        }
    })
}
