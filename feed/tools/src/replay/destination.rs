//! Destinations: which are allowed, and errors of sending to them that recur.

use std::io::{Error, ErrorKind};
use std::net::SocketAddrV4;

use super::ReplayError;

/// Errors: the destination is outside the interface's own network.
pub fn check_destination(to: SocketAddrV4, ifindex: u32, ifname: &str) -> Result<(), ReplayError> {
    let refused = || ReplayError::Destination { to, ifname: ifname.to_owned() };
    if to.ip().is_multicast() {
        return Ok(());
    }
    if to.ip().is_broadcast() || to.ip().is_unspecified() {
        return Err(refused());
    }
    let route = host::net::route_to(*to.ip()).map_err(|_| refused())?;
    let is_near = route.gateway.is_none() && !route.is_broadcast && route.ifindex == ifindex;
    if is_near { Ok(()) } else { Err(refused()) }
}

/// True for errors that would recur for the next datagram.
pub(super) fn is_fatal(error: &Error) -> bool {
    use ErrorKind::{HostUnreachable, NetworkDown, NetworkUnreachable, PermissionDenied};
    let no_device = error.raw_os_error() == Some(19);
    no_device
        || matches!(
            error.kind(),
            HostUnreachable | NetworkDown | NetworkUnreachable | PermissionDenied
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_groups_and_neighbours_are_allowed() {
        let check = |to: &str| check_destination(to.parse().expect("an address"), 1, "lo");
        assert!(check("224.0.100.100:10000").is_ok());
        assert!(check("127.0.0.9:10000").is_ok());
        for refused in ["192.0.2.1:9", "255.255.255.255:9", "0.0.0.0:9"] {
            let said = check(refused).expect_err("not allowed").to_string();
            assert!(said.contains(refused) && said.contains("lo"), "{said}");
        }
    }
}
