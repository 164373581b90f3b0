//! A receiver that counts and drops.

use libbpf_rs::MapHandle;

use super::error::BpfError;
use super::link::{XdpMode, XdpProgram};
use super::object::{Opened, embedded, sum_per_cpu};

/// What a [`DropCounter`] looks at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DropSpec {
    /// Accept frames of more than one buffer (jumbo in native mode).
    pub frags: bool,
    /// Where in the frame a running sequence number lies (32 bits, big endian,
    /// starting from 0), in bytes; `None` checks none. All frames must arrive
    /// on one receive queue.
    pub sequence_offset: Option<usize>,
    /// What the four bytes before the number are in the frames of the flow; 0 for anything.
    /// Frames without it are counted as strays and as nothing else.
    pub tag: u32,
}

/// What a [`DropCounter`] saw since it was loaded, over all CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DropCounts {
    /// Frames.
    pub frames: u64,
    /// Bytes from the Ethernet header on, without the frame check sequence.
    pub bytes: u64,
    /// Frames whose sequence number was not one more than the one before; 0 when not checked.
    pub sequence_breaks: u64,
    /// Frames with a number below the highest before them that had not come yet (RFC 4737
    /// section 3.3); 0 when not checked.
    pub reordered: u64,
    /// Frames with a number that had come before, among the last 65,536; 0 when not checked.
    pub duplicated: u64,
    /// Frames of somebody else: without the tag.
    pub strays: u64,
}

/// XDP program that counts every frame and drops it.
#[derive(Debug)]
pub struct DropCounter {
    program: XdpProgram,
    counts: MapHandle,
}

impl DropCounter {
    /// Loads the program; nothing is attached yet.
    ///
    /// # Errors
    /// [`BpfError::Permission`] without CAP_BPF and CAP_NET_ADMIN,
    /// [`BpfError::Invalid`] for an offset beyond any frame, [`BpfError::Load`] otherwise.
    pub fn load(spec: &DropSpec) -> Result<Self, BpfError> {
        let offset = sequence_offset(spec.sequence_offset.unwrap_or(0))?;
        // struct config of drop.bpf.c.
        let mut config = [0; 12];
        config[..4].copy_from_slice(&offset.to_ne_bytes());
        config[4..8].copy_from_slice(&u32::from(spec.sequence_offset.is_some()).to_ne_bytes());
        config[8..].copy_from_slice(&spec.tag.to_be_bytes());
        let loaded =
            Opened::open("drop", embedded!("drop"))?.config(&config)?.frags(spec.frags).load()?;
        Ok(DropCounter { counts: loaded.map("counts")?, program: XdpProgram::new(loaded) })
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

    /// What it has seen since it was loaded.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn counts(&self) -> Result<DropCounts, BpfError> {
        let [frames, bytes, sequence_breaks, reordered, duplicated, strays] =
            sum_per_cpu(&self.counts)?;
        Ok(DropCounts { frames, bytes, sequence_breaks, reordered, duplicated, strays })
    }
}

/// Largest offset that the verifier takes for one packet pointer.
const OFFSET_MAX: usize = u16::MAX as usize - size_of::<u32>();

/// Checks an offset that a program will add to the start of a frame.
pub(super) fn sequence_offset(offset: usize) -> Result<u32, BpfError> {
    u32::try_from(offset).ok().filter(|_| offset <= OFFSET_MAX).ok_or_else(|| BpfError::Invalid {
        what: format!("sequence offset {offset} is beyond any frame; give at most {OFFSET_MAX}"),
    })
}
