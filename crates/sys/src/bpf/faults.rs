//! Known faults between two ends: the truth that counters are held against.

use std::io;
use std::os::fd::AsFd;

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::error::BpfError;
use super::interface::Interface;
use super::link::Link;
use super::object::{Loaded, Opened, embedded, map_error, read_single, to_u64};

/// Hits datagram `n`, counted from 0, when `n % every == phase`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Period in datagrams, at least 1.
    pub every: u32,
    /// Which of each period, below `every`.
    pub phase: u32,
}

/// What a [`FaultFilter`] does to UDP datagrams (IPv4, whole, at most one VLAN tag).
///
/// All faults count the same datagrams, so periods that are equal need
/// different phases to keep out of each other's way. A dropped datagram meets
/// no other fault; one that is kept back for a swap is not duplicated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultSpec {
    /// Source or destination port; 0 takes every datagram.
    pub udp_port: u16,
    /// Datagrams that vanish.
    pub drop: Option<Fault>,
    /// Datagrams that are sent twice.
    pub duplicate: Option<Fault>,
    /// Datagrams that are sent after the next one; up to 2048 bytes a frame.
    pub reorder: Option<Fault>,
}

/// What a [`FaultFilter`] did since it was loaded, in datagrams.
///
/// `seen - dropped + duplicated - held - failed` left by the other interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Came in and could be hit.
    pub seen: u64,
    /// Taken away.
    pub dropped: u64,
    /// Sent a second time.
    pub duplicated: u64,
    /// Sent after their successor: one for each swap.
    pub reordered: u64,
    /// Due for a swap, but longer than can be kept, and so sent in order.
    pub reorder_skipped: u64,
    /// Frames that hold several datagrams (GSO, GRO). No single one could be
    /// hit, so they went through as they were and are not in `seen`: switch
    /// the offload off when this is not 0.
    pub gso_passed: u64,
    /// Lost by this filter, for want of memory; always 0 where the books are to be trusted.
    pub failed: u64,
    /// Kept back for a swap whose partner has not come yet: 0 or 1.
    pub held: u64,
}

/// tc program that forwards all that enters one interface out of another, with faults.
///
/// It makes a wire with known faults of a namespace with two interfaces, for
/// one direction; the other direction takes a second filter. Frames that are
/// no datagrams of the port are forwarded untouched.
#[derive(Debug)]
pub struct FaultFilter {
    // Before the object, so that it is taken off first.
    link: Option<Link>,
    counts: MapHandle,
    loaded: Loaded,
}

impl FaultFilter {
    /// Loads the program; nothing is attached yet.
    ///
    /// # Errors
    /// [`BpfError::Permission`] without CAP_BPF, CAP_NET_ADMIN (and, to read
    /// the checksum's state, CAP_PERFMON); [`BpfError::Invalid`] for a period of
    /// 0 or a phase beyond it; [`BpfError::Load`] otherwise.
    pub fn load(spec: &FaultSpec) -> Result<Self, BpfError> {
        // struct config of faults.bpf.c.
        let mut config = Vec::with_capacity(28);
        for fault in [spec.drop, spec.duplicate, spec.reorder] {
            let Fault { every, phase } = fault.unwrap_or(Fault { every: 0, phase: 0 });
            if fault.is_some() && phase >= every {
                return Err(BpfError::Invalid {
                    what: format!("phase {phase} never comes in a period of {every} datagrams"),
                });
            }
            config.extend(every.to_ne_bytes());
            config.extend(phase.to_ne_bytes());
        }
        config.extend(u32::from(spec.udp_port).to_ne_bytes());
        let loaded = Opened::open("faults", embedded!("faults"))?.config(&config)?.load()?;
        Ok(FaultFilter { link: None, counts: loaded.map("counts")?, loaded })
    }

    /// Forwards what enters `from` out of `to`, until [`Self::detach`], drop or
    /// the end of the process. Call it on a thread in the namespace of both.
    ///
    /// # Errors
    /// [`BpfError::InUse`], [`BpfError::NoInterface`] or [`BpfError::Attach`]
    /// (BPF_TCX_INGRESS needs kernel 6.6).
    pub fn attach(&mut self, from_ifindex: u32, to_ifindex: u32) -> Result<(), BpfError> {
        if let Some(link) = &self.link {
            return Err(BpfError::InUse { interface: link.interface().clone() });
        }
        let to = Interface::read(to_ifindex);
        if to.is_unknown() {
            return Err(BpfError::NoInterface {
                ifindex: to_ifindex,
                source: io::Error::from_raw_os_error(libc::ENODEV),
            });
        }
        self.loaded
            .map(".bss")?
            .update(&0_u32.to_ne_bytes(), &to_ifindex.to_ne_bytes(), MapFlags::ANY)
            .map_err(|why| map_error(".bss", "written", why))?;
        let name = self.loaded.name();
        let program = self.loaded.program(name)?;
        self.link = Some(Link::tcx_ingress(program.as_fd(), name, from_ifindex)?);
        Ok(())
    }

    /// Takes the program off; a datagram that is still held is lost. Nothing
    /// happens when it is not attached.
    pub fn detach(&mut self) {
        self.link = None;
    }

    /// What it has done since it was loaded.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn counts(&self) -> Result<FaultCounts, BpfError> {
        let bytes = read_single(&self.counts)?;
        // struct counts of faults.bpf.c, in order.
        let mut words = bytes.chunks_exact(size_of::<u64>()).map(to_u64);
        let mut word = || words.next().unwrap_or_default();
        Ok(FaultCounts {
            seen: word(),
            dropped: word(),
            duplicated: word(),
            reordered: word(),
            reorder_skipped: word(),
            gso_passed: word(),
            failed: word(),
            held: word(),
        })
    }
}
