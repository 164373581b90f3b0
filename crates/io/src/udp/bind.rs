//! Sockets of an engine, bound to their ports.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;

use sys::socket;
use wire::frame::PAYLOAD_BYTES_MAX;

use super::POLL_TIMEOUT;
use crate::engine::{Local, Receiving, Setup, Wait};
use crate::error::IoError;

/// Failure of a call for the sockets of an end.
pub(super) fn system_error(local: &Local, what: &'static str) -> impl Fn(io::Error) -> IoError {
    move |source| IoError::System { what, ifname: local.ifname.clone(), source }
}

/// One socket a flow.
pub(super) fn bind_all(setup: &Setup<'_>) -> Result<Vec<UdpSocket>, IoError> {
    let Setup { spec, local, remote, flows, payload_bytes, .. } = *setup;
    if payload_bytes > PAYLOAD_BYTES_MAX {
        return Err(IoError::PayloadSize {
            payload_bytes,
            why: format!("is above UDP's limit of {PAYLOAD_BYTES_MAX}"),
            remedy: "choose a smaller --size".into(),
        });
    }
    let flows = flows.max(1);
    let mut sockets = Vec::with_capacity(flows);
    for flow in 0..flows {
        let port = local.port.wrapping_add(flow as u16);
        let bound = bind(local, port)?;
        if let Some(remote) = remote {
            let to = SocketAddr::new(remote.ip, remote.port);
            bound.connect(to).map_err(|source| match socket::is_up(local.ifindex) {
                // The routes of an interface go down with it.
                Some(false) => IoError::LinkDown { ifname: local.ifname.clone() },
                _ => system_error(local, "connect")(source),
            })?;
        }
        // A request of io_uring on a socket with O_NONBLOCK fails in place of waiting.
        let is_waited_for = spec.wait == Wait::Block
            || (spec.receiving == Receiving::IoUring && setup.role.receives());
        match if is_waited_for { Wait::Block } else { Wait::Spin } {
            Wait::Block => bound
                .set_read_timeout(Some(POLL_TIMEOUT))
                .map_err(system_error(local, "SO_RCVTIMEO"))?,
            Wait::Spin => bound.set_nonblocking(true).map_err(system_error(local, "O_NONBLOCK"))?,
        }
        sockets.push(bound);
    }
    Ok(sockets)
}

fn bind(local: &Local, port: u16) -> Result<UdpSocket, IoError> {
    let ip = local.ip;
    UdpSocket::bind((ip, port)).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => IoError::PortTaken { ip, port, source },
        _ => {
            IoError::System { what: "bind", ifname: SocketAddr::new(ip, port).to_string(), source }
        }
    })
}

/// A socket that occupies the port and drops all datagrams: engines beside the stack use it so
/// that the kernel does not answer "port unreachable".
pub(crate) fn hold_port(local: &Local, port: u16) -> Result<UdpSocket, IoError> {
    let socket = bind(local, port)?;
    socket::attach_drop_all(socket.as_fd()).map_err(|source| IoError::System {
        what: "SO_ATTACH_FILTER",
        ifname: local.ifname.clone(),
        source,
    })?;
    Ok(socket)
}
