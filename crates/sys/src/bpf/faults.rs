//! Known faults between two ends, against which counters are checked.

use std::io;
use std::os::fd::AsFd;

use libbpf_rs::MapHandle;

use super::error::BpfError;
use super::interface::Interface;
use super::link::{BpfLink, Tcx};
use super::object::{Loaded, Opened, embedded, read_single, shared_types, write_single};

mod types {
    super::shared_types!("faults");
}

/// Hits datagram `n`, counted from 0, if `n % every == phase`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Period in datagrams, at least 1.
    pub every: u32,
    /// Index in each period, below `every`.
    pub phase: u32,
}

/// Faults of UDP datagrams (IPv4, unfragmented, at most one VLAN tag).
///
/// All faults count the same datagrams, so equal periods need different phases to hit different
/// datagrams. A dropped datagram meets no other fault; one held for a swap is not duplicated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultSpec {
    /// Source or destination port; 0 takes every datagram.
    pub udp_port: u16,
    pub drop: Option<Fault>,
    /// Datagrams that are sent twice.
    pub duplicate: Option<Fault>,
    /// Datagrams that are sent after the next one; up to 2048 bytes a frame.
    pub reorder: Option<Fault>,
}

/// Counters of a [`FaultFilter`] since it was loaded, in datagrams.
///
/// `seen - dropped + duplicated - held - failed` left by the other interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Came in and could be hit.
    pub seen: u64,
    pub dropped: u64,
    pub duplicated: u64,
    /// Sent after their successor: one for each swap.
    pub reordered: u64,
    /// Due for a swap, but too long to hold, and therefore sent in order.
    pub reorder_skipped: u64,
    /// Frames of several datagrams (GSO, GRO). They passed unchanged and are not in `seen`: disable
    /// the offload if this is not 0.
    pub gso_passed: u64,
    /// Lost by this filter because memory ran out; the other counters are exact only if 0.
    pub failed: u64,
    /// Held for a swap whose partner has not arrived yet: 0 or 1.
    pub held: u64,
}

/// tc program that forwards all frames from one interface to another, with faults.
///
/// A namespace with two interfaces becomes a wire with known faults, for one direction; the other
/// direction takes a second filter. Frames other than datagrams of the port pass unchanged.
#[derive(Debug)]
pub struct FaultFilter {
    // Before the object, so that it is detached first.
    link: Option<BpfLink>,
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
        let fault = |fault: Option<Fault>| match fault {
            None => Ok(types::fault { every: 0, phase: 0 }),
            Some(Fault { every, phase }) if phase < every => Ok(types::fault { every, phase }),
            Some(Fault { every, phase }) => Err(BpfError::Invalid {
                what: format!("phase {phase} never comes in a period of {every} datagrams"),
            }),
        };
        let config = types::config {
            drop: fault(spec.drop)?,
            duplicate: fault(spec.duplicate)?,
            reorder: fault(spec.reorder)?,
            udp_port: spec.udp_port.into(),
        };
        let loaded = Opened::open("faults", embedded!("faults"))?.config(&config)?.load()?;
        Ok(FaultFilter { link: None, counts: loaded.handle("counts")?, loaded })
    }

    /// Forwards frames from `from` to `to` until [`Self::detach`], drop or the end of the process.
    /// Call it on a thread in the namespace of both.
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
        write_single(&self.loaded.handle(".bss")?, &to_ifindex)?;
        let name = self.loaded.name();
        let program = self.loaded.program(name)?;
        self.link = Some(BpfLink::tcx(program.as_fd(), name, from_ifindex, Tcx::Ingress)?);
        Ok(())
    }

    /// Detaches the program, if it is attached; a datagram that is still held is lost.
    pub fn detach(&mut self) {
        self.link = None;
    }

    /// Counters since loading.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn counts(&self) -> Result<FaultCounts, BpfError> {
        let counts: types::counts = read_single(&self.counts)?;
        Ok(FaultCounts {
            seen: counts.seen,
            dropped: counts.dropped,
            duplicated: counts.duplicated,
            reordered: counts.reordered,
            reorder_skipped: counts.reorder_skipped,
            gso_passed: counts.gso_passed,
            failed: counts.failed,
            held: counts.held,
        })
    }
}
