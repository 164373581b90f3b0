//! VLANs of a load: AF_XDP tags its frames itself, the kernel's VLAN device those of sockets.

use host::net;
use io::{EngineKind, EngineSpec, Local};
use model::PathError;

use crate::endpoint::queue_count;

/// The local end of an engine whose datagrams are in the VLAN of its settings; unchanged without one.
///
/// - `local`: where the address is. If that is the VLAN's own device, AF_XDP gets the port below it, as the device
///   itself has neither rings nor native XDP.
///
/// Errors: sockets on an interface that tags nothing; a device of another VLAN.
pub fn in_vlan(local: Local, spec: &EngineSpec) -> Result<Local, PathError> {
    let Some(vlan) = spec.vlan() else { return Ok(local) };
    let link = (local.ifindex != 0).then(|| net::link(local.ifindex)).transpose();
    let link = link.map_err(PathError::part)?;
    let is_xdp = spec.kind == EngineKind::Xdp;
    match link.as_ref().and_then(|link| link.vlan) {
        Some(own) if own != vlan => Err(PathError::Invalid {
            what: format!("{} is the device of VLAN {own}, not of {vlan}", local.ifname),
            remedy: format!("give --vlan {own}, or the device of VLAN {vlan} with -i"),
        }),
        Some(_) if is_xdp => below(local, link.and_then(|link| link.peer)),
        None if !is_xdp => {
            let on = if link.is_some() { &local.ifname } else { "IF" };
            Err(PathError::Unsupported {
                what: format!("VLAN {vlan} for sockets on an interface that is not a VLAN device"),
                needs: format!(
                    "give the address to such a device (ip link add link {on} name {on}.{vlan} type vlan id \
                     {vlan}), or use switch bypass"
                ),
            })
        }
        _ => Ok(local),
    }
}

/// As [`in_vlan`] for a peer, whose near end must not reach networks through it that its operator did not join.
///
/// Errors: those, and a VLAN that this host has no device of.
pub(crate) fn in_own_vlan(local: Local, spec: &EngineSpec) -> Result<Local, PathError> {
    let Some(vlan) = spec.vlan() else { return Ok(local) };
    let port = net::link(local.ifindex).map_err(PathError::part)?;
    if port.vlan.is_some() {
        return in_vlan(local, spec);
    }
    let port = port.name;
    Err(PathError::Unsupported {
        what: format!("VLAN {vlan} for a peer whose address is not on the VLAN's device"),
        needs: format!(
            "make it (ip link add link {port} name {port}.{vlan} type vlan id {vlan}), or use `probe echo --vlan` \
             there and --no-peer here"
        ),
    })
}

/// The port that carries a VLAN device, with the device's addresses.
fn below(local: Local, port: Option<net::Peer>) -> Result<Local, PathError> {
    let Some(port) = port.filter(|port| port.netns_id.is_none()) else {
        return Err(PathError::Invalid {
            what: format!("the port below {} is in another network namespace", local.ifname),
            remedy: "run it there, or leave out --vlan".to_owned(),
        });
    };
    let port = net::link(port.index).map_err(PathError::part)?;
    let queues = queue_count(port.index).map_err(PathError::part)?;
    Ok(Local { ifindex: port.index, ifname: port.name, queues, ..local })
}
