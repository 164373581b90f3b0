//! The labs of the path: where a guest's frames go, and where host sockets meet them.

use std::net::Ipv4Addr;

use host::lab::{End, Pair, PairSpec, TapEnd};

use super::vmm::{Receiver, Sender, ring_backend, tap_backend};
use crate::path::PathError;

/// Address of the guest's device.
pub(super) const MAC: [u8; 6] = [0x02, b'w', b'p', 0, 0, 9];

/// A lab for each back end.
pub(super) struct Ends {
    tap: TapEnd,
    wire: Pair,
}

/// One of the two back ends, ready.
pub(super) struct Wire<'a> {
    pub(super) sender: Box<dyn Sender>,
    pub(super) receiver: Box<dyn Receiver>,
    /// Where its frames arrive.
    pub(super) far: &'a End,
    /// Address that the guest has on it.
    pub(super) guest_ip: Ipv4Addr,
    /// What it is.
    pub(super) mode: &'static str,
}

impl Ends {
    pub(super) fn new() -> Result<Self, PathError> {
        let wire = Pair::new(&PairSpec { tso: false, ..PairSpec::default() });
        let wire = wire.map_err(PathError::part)?;
        // No offloads: a frame in the ring is as long as on a wire, and has its checksums.
        wire.far.set_feature("tx-checksum-ip-generic", false).map_err(PathError::part)?;
        // The guest takes the place of the near end, with its own address.
        let known = wire.far.run(|| host::net::set_neighbour(wire.far.ifindex, wire.near.ip, MAC));
        known.map_err(PathError::part)?.map_err(PathError::part)?;
        Ok(Ends { tap: TapEnd::new().map_err(PathError::part)?, wire })
    }

    /// The host's side of a back end.
    pub(super) fn far(&self, shared_ring: bool) -> &End {
        if shared_ring { &self.wire.far } else { &self.tap.host }
    }

    /// A TAP, or rings on a veth; new sockets each time.
    pub(super) fn open(&self, shared_ring: bool) -> Result<Wire<'_>, PathError> {
        if shared_ring {
            let near = &self.wire.near;
            let opened = near.run(|| ring_backend(near.ifindex)).map_err(PathError::part)?;
            let (sender, receiver) = opened.map_err(PathError::part)?;
            return Ok(Wire {
                sender: Box::new(sender),
                receiver: Box::new(receiver),
                far: &self.wire.far,
                guest_ip: near.ip,
                mode: "TPACKET_V3 rings on a veth",
            });
        }
        let (sender, receiver) = tap_backend(&self.tap.tap).map_err(PathError::part)?;
        Ok(Wire {
            sender: Box::new(sender),
            receiver: Box::new(receiver),
            far: &self.tap.host,
            guest_ip: self.tap.guest_ip,
            mode: "TAP",
        })
    }
}

/// Frames that the wire of an end lost so far, before any socket had them.
pub(super) fn lost_on_wire(far: &End) -> Result<u64, PathError> {
    let sysfs = far.sysfs().map_err(PathError::part)?;
    let mut lost_count = 0;
    for name in ["rx_dropped", "rx_errors"] {
        let path = format!("class/net/{}/statistics/{name}", far.ifname);
        let text = sysfs.read(path).map_err(PathError::part)?;
        lost_count += text.trim().parse::<u64>().unwrap_or(0);
    }
    Ok(lost_count)
}
