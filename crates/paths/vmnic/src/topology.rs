//! The lab of the path: a TAP and a veth that carry a guest's frames to sockets of the host.

use std::net::Ipv4Addr;

use lab::{End, GuestWire, TapEnd};
use sys::tap::Tap;

use model::PathError;
use vmm::{Receiver, Sender, Switches, ring_backend, tap_backend, xdp_backend};

/// Address of the guest's device.
pub(super) const MAC: [u8; 6] = [0x02, b'w', b'p', 0, 0, 9];

/// Kernel interface that carries the guest's frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BackEnd {
    /// A TAP: a system call a frame.
    Tap,
    /// TPACKET_V3 rings on one end of a veth.
    PacketRing,
    /// AF_XDP rings there.
    XdpRing,
}

impl BackEnd {
    pub(super) fn of(switches: &Switches) -> Self {
        match switches {
            Switches { xdp_ring: true, .. } => BackEnd::XdpRing,
            Switches { shared_ring: true, .. } => BackEnd::PacketRing,
            _ => BackEnd::Tap,
        }
    }
}

/// A TAP, and a veth for both kinds of rings.
pub(super) struct Topology {
    tap: TapEnd,
    wire: GuestWire,
}

/// An open back end.
pub(super) struct Wire<'a> {
    pub(super) sender: Box<dyn Sender>,
    pub(super) receiver: Box<dyn Receiver>,
    /// End at which its frames arrive.
    pub(super) far: &'a End,
    /// Address that the guest has on it.
    pub(super) guest_ip: Ipv4Addr,
    /// Description for the record.
    pub(super) mode: &'static str,
}

impl Topology {
    pub(super) fn new() -> Result<Self, PathError> {
        let tap = TapEnd::new().map_err(PathError::part)?;
        Ok(Topology { tap, wire: GuestWire::new().map_err(PathError::part)? })
    }

    /// The host's side of a back end.
    pub(super) fn far(&self, back_end: BackEnd) -> &End {
        match back_end {
            BackEnd::Tap => &self.tap.host,
            BackEnd::PacketRing | BackEnd::XdpRing => &self.wire.host,
        }
    }

    /// The TAP, for a machine of its own such as QEMU, and the address of the guest on it.
    pub(super) fn tap(&self) -> (&Tap, Ipv4Addr) {
        (&self.tap.tap, self.tap.guest_ip)
    }

    /// Opens a back end with new sockets.
    pub(super) fn open(&self, back_end: BackEnd) -> Result<Wire<'_>, PathError> {
        let (port, far) = (&self.wire.port, self.far(back_end));
        match back_end {
            BackEnd::Tap => {
                let halves = tap_backend(&self.tap.tap).map_err(PathError::part)?;
                Ok(Wire::of(halves, far, self.tap.guest_ip, "TAP"))
            }
            BackEnd::PacketRing => {
                let opened = port.run(|| ring_backend(port.ifindex)).map_err(PathError::part)?;
                let halves = opened.map_err(PathError::part)?;
                Ok(Wire::of(halves, far, self.wire.guest_ip, "TPACKET_V3 rings on a veth"))
            }
            BackEnd::XdpRing => {
                let open = || xdp_backend(port.ifindex, &port.ifname);
                let halves = port.run(open).map_err(PathError::part)?.map_err(PathError::part)?;
                Ok(Wire::of(halves, far, self.wire.guest_ip, "AF_XDP rings on a veth, copying"))
            }
        }
    }
}

impl<'a> Wire<'a> {
    fn of(
        halves: (impl Sender + 'static, impl Receiver + 'static),
        far: &'a End,
        guest_ip: Ipv4Addr,
        mode: &'static str,
    ) -> Self {
        let (sender, receiver) = (Box::new(halves.0), Box::new(halves.1));
        Wire { sender, receiver, far, guest_ip, mode }
    }
}

/// Number of frames lost at an end so far, before any socket received them.
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
