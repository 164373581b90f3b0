//! The filter in front of a forwarder's AF_XDP sockets.

use std::os::fd::{AsRawFd, BorrowedFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::error::BpfError;
use super::filter::FilterCounts;
use super::link::{XdpMode, XdpProgram};
use super::object::{Opened, embedded, map_error, sum_per_cpu};

/// What a [`TunnelFilter`] gives to the sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TunnelFilterSpec {
    /// Which frames.
    pub frames: TunnelFrames,
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

/// XDP program that gives a forwarder's frames to AF_XDP sockets by queue.
///
/// Detach (or drop) it before the sockets are closed: frames that arrive in
/// between would be lost.
#[derive(Debug)]
pub struct TunnelFilter {
    program: XdpProgram,
    sockets: MapHandle,
    counts: MapHandle,
    queues: u32,
}

impl TunnelFilter {
    /// Loads the program; nothing is attached yet.
    ///
    /// # Errors
    /// [`BpfError::Permission`] without CAP_BPF and CAP_NET_ADMIN,
    /// [`BpfError::Invalid`] for no queues, [`BpfError::Load`] otherwise.
    pub fn load(spec: &TunnelFilterSpec) -> Result<Self, BpfError> {
        if spec.queues == 0 {
            return Err(BpfError::Invalid { what: "a filter needs at least 1 queue".into() });
        }
        // struct config of tunnel.bpf.c.
        let (vxlan_port, all, gre) = match spec.frames {
            TunnelFrames::All => (0, true, false),
            TunnelFrames::Tunnels { vxlan_port, gre } => (vxlan_port, false, gre),
        };
        let port: [u8; 2] = vxlan_port.to_ne_bytes();
        let config = [port[0], port[1], u8::from(all), u8::from(gre)];
        let loaded = Opened::open("tunnel", embedded!("tunnel"))?
            .config(&config)?
            .map_entries("sockets", spec.queues)?
            .load()?;
        Ok(TunnelFilter {
            sockets: loaded.map("sockets")?,
            counts: loaded.map("counts")?,
            queues: spec.queues,
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
