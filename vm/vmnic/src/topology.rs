//! The lab of the path: a TAP and a veth that carry a guest's frames to sockets of the host.

use std::net::Ipv4Addr;

use host::kvm::GuestRam;
use lab::{End, GuestWire, TapEnd};
use sys::tap::Tap;

use model::{Arm, PathError};
use vmm::{
    Halves, Receiver, Sender, Switches, guest_umem_backend, ring_backend, tap_backend, xdp_backend,
};

use super::switches;

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
    /// AF_XDP rings there, with the guest's memory as UMEM.
    GuestUmem,
}

impl BackEnd {
    pub(super) fn new(arm: &Arm) -> Self {
        match switches::monitor_switches(arm) {
            Switches { guest_umem: true, .. } => BackEnd::GuestUmem,
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

/// Where the frames of a back end arrive.
pub(super) struct Wire<'a> {
    /// End at which its frames arrive.
    pub(super) far: &'a End,
    /// Address that the guest has on it.
    pub(super) guest_ip: Ipv4Addr,
    /// Description for the record.
    pub(super) mode: &'static str,
}

impl Topology {
    pub(super) fn new() -> Result<Self, PathError> {
        Topology::with(TapEnd::new().map_err(PathError::part)?)
    }

    /// With a TAP of this namespace, to which it attaches.
    pub(super) fn attached(ifname: &str) -> Result<Self, PathError> {
        Topology::with(TapEnd::attach(ifname).map_err(PathError::part)?)
    }

    fn with(tap: TapEnd) -> Result<Self, PathError> {
        Ok(Topology { tap, wire: GuestWire::new().map_err(PathError::part)? })
    }

    /// The host's side of a back end.
    pub(super) fn far(&self, back_end: BackEnd) -> &End {
        match back_end {
            BackEnd::Tap => &self.tap.host,
            BackEnd::PacketRing | BackEnd::XdpRing | BackEnd::GuestUmem => &self.wire.host,
        }
    }

    /// The TAP, for a machine of its own such as QEMU, and the address of the guest on it.
    pub(super) fn tap(&self) -> (&Tap, Ipv4Addr) {
        (&self.tap.tap, self.tap.guest_ip)
    }

    pub(super) fn wire(&self, back_end: BackEnd) -> Wire<'_> {
        let (far, of_wire) = (self.far(back_end), self.wire.guest_ip);
        let (guest_ip, mode) = match back_end {
            BackEnd::Tap => (self.tap.guest_ip, "TAP"),
            BackEnd::PacketRing => (of_wire, "TPACKET_V3 rings on a veth"),
            BackEnd::XdpRing => (of_wire, "AF_XDP rings on a veth, copying"),
            BackEnd::GuestUmem => (of_wire, "AF_XDP rings on a veth over guest memory"),
        };
        Wire { far, guest_ip, mode }
    }

    /// Opens a back end with new sockets; `ram` is the guest's memory, for [`BackEnd::GuestUmem`].
    pub(super) fn open(
        &self,
        back_end: BackEnd,
        ram: Option<&GuestRam>,
    ) -> Result<Halves, PathError> {
        let port = &self.wire.port;
        match back_end {
            BackEnd::Tap => tap_backend(&self.tap.tap).map(boxed).map_err(PathError::part),
            BackEnd::PacketRing => {
                let opened = port.run(|| ring_backend(port.ifindex)).map_err(PathError::part)?;
                opened.map(boxed).map_err(PathError::part)
            }
            BackEnd::XdpRing => {
                let opened = port.run(|| xdp_backend(port.ifindex, &port.ifname));
                let opened = opened.map_err(PathError::part)?;
                opened.map(boxed).map_err(PathError::part)
            }
            BackEnd::GuestUmem => {
                let ram = ram.ok_or_else(|| PathError::at("guest memory", "there is no guest"))?;
                let opened = port.run(|| guest_umem_backend(port.ifindex, &port.ifname, ram));
                let opened = opened.map_err(PathError::part)?;
                opened.map(boxed).map_err(PathError::part)
            }
        }
    }
}

fn boxed((sender, receiver): (impl Sender + 'static, impl Receiver + 'static)) -> Halves {
    (Box::new(sender), Box::new(receiver))
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
