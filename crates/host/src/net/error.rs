//! Errors of netlink requests about interfaces, routes and neighbours.

use std::io;
use std::net::IpAddr;

use netlink_socket2::{NetlinkSocket, ReplyError};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum NetError {
    #[error(
        "{what} needs CAP_NET_ADMIN: run as root, or grant it with \
         `sudo setcap cap_net_admin,cap_net_raw+ep PROGRAM`"
    )]
    Denied {
        what: String,
        #[source]
        source: ReplyError,
    },
    #[error("{what} is not offered by this kernel or driver")]
    Unsupported { what: String },
    #[error("{what} failed")]
    Kernel {
        what: String,
        #[source]
        source: ReplyError,
    },
    #[error("there is no interface {interface} here: `ip link` lists the existing ones")]
    NoInterface { interface: String },
    #[error("no route to {destination}: `ip route get {destination}` explains")]
    NoRoute {
        destination: IpAddr,
        #[source]
        source: ReplyError,
    },
    #[error(
        "{destination} is reached through {actual}, not {wanted}: name {actual}, or change the \
         route with `ip route add {destination} dev {wanted}`"
    )]
    OtherInterface { destination: IpAddr, wanted: String, actual: String },
    #[error(
        "{next_hop} does not answer on {interface}: is it up and in the same network? \
         (`ip neigh show dev {interface}`)"
    )]
    NoNeighbour { next_hop: IpAddr, interface: String },
    #[error("{interface} has no Ethernet addresses: frames cannot be sent on it")]
    NotEthernet { interface: String },
    #[error("{interface} has no {what}")]
    Absent { interface: String, what: String },
    #[error("{interface} did not take {what}")]
    NotTaken { interface: String, what: String },
    #[error("{what} failed")]
    Io {
        what: String,
        #[source]
        source: io::Error,
    },
}

impl NetError {
    /// The kernel answered ENOENT.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, NetError::Kernel { source, .. }
            if source.as_io_error().raw_os_error() == Some(libc::ENOENT))
    }
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
