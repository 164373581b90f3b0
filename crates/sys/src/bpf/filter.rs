//! The filter in front of AF_XDP sockets.

use std::os::fd::{AsRawFd, BorrowedFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::error::BpfError;
use super::link::{XdpMode, XdpProgram};
use super::object::{Opened, embedded, map_error, sum_per_cpu};

/// What a [`SocketFilter`] of the probe gives to the sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeFilterSpec {
    /// Destination port of the UDP datagrams (IPv4, whole, at most one VLAN tag); 0 for none.
    pub udp_port: u16,
    /// ARP and ICMP over IPv4 too.
    pub arp_icmp: bool,
    /// Accept frames of more than one buffer (jumbo in native mode); the
    /// sockets must be bound with XDP_USE_SG then.
    pub frags: bool,
    /// Receive queues of the interface, at least 1.
    pub queues: u32,
}

/// What a [`SocketFilter`] of a forwarder gives to the sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TunnelFilterSpec {
    /// Which frames.
    pub frames: TunnelFrames,
    /// Accept frames of more than one buffer, as of [`ProbeFilterSpec::frags`].
    pub frags: bool,
    /// Receive queues of the interface, at least 1.
    pub queues: u32,
}

/// Frames for a forwarder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TunnelFrames {
    /// All: the side of the plain frames.
    All,
    /// Those of tunnels over IPv4 and IPv6, unfragmented, with at most one VLAN tag.
    Tunnels {
        /// UDP port of VXLAN; 0 for none.
        vxlan_port: u16,
        /// GRE too.
        gre: bool,
    },
}

/// What a [`SocketFilter`] saw, over all CPUs, in frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FilterCounts {
    /// Given to a socket. It may still have had no room: see XDP_STATISTICS.
    pub redirected: u64,
    /// Not ours; passed to the stack.
    pub passed: u64,
    /// Ours, but no socket sits on that queue; passed to the stack.
    pub map_missed: u64,
}

/// XDP program that gives frames to AF_XDP sockets by queue, and all others to the stack: which
/// ones, it is told when it is loaded.
///
/// Detach (or drop) it before the sockets are closed: frames that arrive in
/// between would be lost.
#[derive(Debug)]
pub struct SocketFilter {
    program: XdpProgram,
    sockets: MapHandle,
    counts: MapHandle,
    queues: u32,
}

impl SocketFilter {
    /// Loads the program that takes the probe's datagrams; nothing is attached yet.
    ///
    /// # Errors
    /// [`BpfError::Permission`] without CAP_BPF and CAP_NET_ADMIN,
    /// [`BpfError::Invalid`] for no queues, [`BpfError::Load`] otherwise.
    pub fn for_probe(spec: &ProbeFilterSpec) -> Result<Self, BpfError> {
        // struct config of probe.bpf.c.
        let port = spec.udp_port.to_ne_bytes();
        let config = [port[0], port[1], u8::from(spec.arp_icmp), 0];
        let opened = Opened::open("probe", embedded!("probe"))?.config(&config)?.frags(spec.frags);
        Self::load(opened, spec.queues)
    }

    /// Loads the program that takes a forwarder's frames; nothing is attached yet.
    ///
    /// # Errors
    /// As of [`Self::for_probe`].
    pub fn for_tunnel(spec: &TunnelFilterSpec) -> Result<Self, BpfError> {
        // struct config of tunnel.bpf.c.
        let (vxlan_port, all, gre) = match spec.frames {
            TunnelFrames::All => (0, true, false),
            TunnelFrames::Tunnels { vxlan_port, gre } => (vxlan_port, false, gre),
        };
        let port = vxlan_port.to_ne_bytes();
        let config = [port[0], port[1], u8::from(all), u8::from(gre)];
        let opened = Opened::open("tunnel", embedded!("tunnel"))?.config(&config)?;
        Self::load(opened.frags(spec.frags), spec.queues)
    }

    fn load(opened: Opened, queues: u32) -> Result<Self, BpfError> {
        if queues == 0 {
            return Err(BpfError::Invalid { what: "a filter needs at least 1 queue".into() });
        }
        let loaded = opened.map_entries("sockets", queues)?.load()?;
        Ok(SocketFilter {
            sockets: loaded.map("sockets")?,
            counts: loaded.map("counts")?,
            queues,
            program: XdpProgram::new(loaded),
        })
    }

    /// Puts the program on an interface, until [`Self::detach`], drop or the
    /// end of the process. Call it on a thread in the interface's network
    /// namespace.
    ///
    /// # Errors
    /// See [`BpfError`]; each names the interface and the remedy.
    pub fn attach(&mut self, ifindex: u32, mode: XdpMode) -> Result<(), BpfError> {
        self.program.attach(ifindex, mode)
    }

    /// Takes the program off; nothing happens when it is not attached.
    pub fn detach(&mut self) {
        self.program.detach();
    }

    /// Puts a bound AF_XDP socket on a queue, in place of any before it.
    ///
    /// # Errors
    /// [`BpfError::NoQueue`], or [`BpfError::Map`] when it is no AF_XDP socket.
    pub fn insert_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), BpfError> {
        self.check(queue)?;
        let value = socket.as_raw_fd().to_ne_bytes();
        self.sockets
            .update(&queue.to_ne_bytes(), &value, MapFlags::ANY)
            .map_err(|why| map_error("sockets", "written", why))
    }

    /// Takes the socket off a queue; nothing happens when there is none.
    ///
    /// # Errors
    /// [`BpfError::NoQueue`], or [`BpfError::Map`].
    pub fn remove_socket(&self, queue: u32) -> Result<(), BpfError> {
        self.check(queue)?;
        match self.sockets.delete(&queue.to_ne_bytes()) {
            Err(why) if why.kind() != libbpf_rs::ErrorKind::NotFound => {
                Err(map_error("sockets", "written", why))
            }
            _ => Ok(()),
        }
    }

    /// What it has seen since it was loaded.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn counts(&self) -> Result<FilterCounts, BpfError> {
        let [redirected, passed, map_missed] = sum_per_cpu(&self.counts)?;
        Ok(FilterCounts { redirected, passed, map_missed })
    }

    fn check(&self, queue: u32) -> Result<(), BpfError> {
        if queue < self.queues {
            Ok(())
        } else {
            Err(BpfError::NoQueue { queue, queues: self.queues })
        }
    }
}
