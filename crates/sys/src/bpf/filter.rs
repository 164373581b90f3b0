//! XDP filter in front of AF_XDP sockets.

use std::os::fd::{AsRawFd, BorrowedFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::error::BpfError;
use super::link::{XdpMode, XdpProgram};
use super::object::{Opened, embedded, map_error, per_cpu, shared_types};

mod probe {
    super::shared_types!("probe");
}

mod tunnel {
    super::shared_types!("tunnel");
}

/// Frames that the probe's [`SocketFilter`] redirects to the sockets.
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

/// Frames that a forwarder's [`SocketFilter`] redirects to the sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TunnelFilterSpec {
    pub frames: TunnelFrames,
    /// Accept frames of more than one buffer, as of [`ProbeFilterSpec::frags`].
    pub frags: bool,
    /// Receive queues of the interface, at least 1.
    pub queues: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TunnelFrames {
    /// All: the side of plain frames.
    All,
    /// Those of tunnels over IPv4 and IPv6, unfragmented, with at most one VLAN tag.
    Tunnels {
        /// UDP port of VXLAN; 0 for none.
        vxlan_port: u16,
        gre: bool,
    },
}

/// Counters of a [`SocketFilter`] over all CPUs, in frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FilterCounts {
    /// Redirected to a socket, which may have dropped them: see XDP_STATISTICS.
    pub redirected: u64,
    /// Not matched; passed to the stack.
    pub passed: u64,
    /// Matched, but the queue has no socket; passed to the stack.
    pub map_missed: u64,
}

/// XDP program that redirects matching frames to the AF_XDP socket of their queue and passes the
/// others to the stack.
///
/// Detach (or drop) it before the sockets are closed: frames that arrive in between are lost.
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
        let (udp_port, arp_icmp) = (spec.udp_port, spec.arp_icmp.into());
        let config = probe::config { udp_port, arp_icmp, reserved: 0 };
        let opened = Opened::open("probe", embedded!("probe"))?.config(&config)?.frags(spec.frags);
        Self::load(opened, spec.queues)
    }

    /// Loads the program that takes a forwarder's frames; nothing is attached yet.
    ///
    /// # Errors
    /// As of [`Self::for_probe`].
    pub fn for_tunnel(spec: &TunnelFilterSpec) -> Result<Self, BpfError> {
        let (vxlan_port, all, gre) = match spec.frames {
            TunnelFrames::All => (0, true, false),
            TunnelFrames::Tunnels { vxlan_port, gre } => (vxlan_port, false, gre),
        };
        let config = tunnel::config { vxlan_port, all: all.into(), gre: gre.into() };
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

    /// Attaches the program to an interface until [`Self::detach`], drop or the end of the process.
    /// Call it on a thread in the interface's network namespace.
    ///
    /// # Errors
    /// See [`BpfError`]; each names the interface and the remedy.
    pub fn attach(&mut self, ifindex: u32, mode: XdpMode) -> Result<(), BpfError> {
        self.program.attach(ifindex, mode)
    }

    /// Detaches the program, if it is attached.
    pub fn detach(&mut self) {
        self.program.detach();
    }

    /// Assigns a bound AF_XDP socket to a queue, replacing any other.
    ///
    /// # Errors
    /// [`BpfError::NoQueue`]; [`BpfError::Map`] if it is no AF_XDP socket.
    pub fn insert_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), BpfError> {
        if queue >= self.queues {
            return Err(BpfError::NoQueue { queue, queues: self.queues });
        }
        let value = socket.as_raw_fd().to_ne_bytes();
        self.sockets
            .update(&queue.to_ne_bytes(), &value, MapFlags::ANY)
            .map_err(|why| map_error("sockets", "written", why))
    }

    /// Counters since loading.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn counts(&self) -> Result<FilterCounts, BpfError> {
        let mut sum = FilterCounts::default();
        // Both programs have the map of bpf/sockets.h.
        for cpu in per_cpu::<probe::counts>(&self.counts, 0)? {
            sum.redirected += cpu.redirected;
            sum.passed += cpu.passed;
            sum.map_missed += cpu.map_missed;
        }
        Ok(sum)
    }
}
