//! The chip at one moment, for a reader.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::csr::csr0;
use super::ring::{Ring, RingKind};
use super::{Lance, csr};
use crate::bus::GuestMemory;

/// A ring as the chip sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingState {
    /// Descriptors in it.
    pub len: u16,
    /// The chip's next.
    pub next: u16,
    /// The chip owns that descriptor; `None` if the address is not memory.
    pub is_next_owned: Option<bool>,
    /// Number of descriptors that the chip owns.
    pub owned_count: u16,
}

impl fmt::Display for RingState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RingState { len, next, is_next_owned, owned_count } = self;
        let whose = match is_next_owned {
            Some(true) => "the chip's",
            Some(false) => "the driver's",
            None => "nowhere",
        };
        write!(f, "{owned_count} of {len} the chip's, its next is {next}, {whose}")
    }
}

/// State that decides the next step of the chip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// CSR0 with its derived bits.
    pub status: u16,
    /// CSR3.
    pub masks: u16,
    /// CSR4.
    pub features: u16,
    /// CSR5.
    pub extended: u16,
    /// Register that RDP addresses.
    pub rap: u8,
    /// Level of the interrupt line.
    pub irq: bool,
    /// The transmit ring.
    pub tx: RingState,
    /// The receive ring.
    pub rx: RingState,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (csr0::TDMD, " TDMD"),
            (csr0::TXON, " TXON"),
            (csr0::RXON, " RXON"),
            (csr0::INEA, " INEA"),
            (csr0::INTR, " INTR"),
            (csr0::TINT, " TINT"),
            (csr0::RINT, " RINT"),
            (csr0::MERR, " MERR"),
            (csr0::MISS, " MISS"),
        ];
        write!(f, "CSR0 {:04x}", self.status)?;
        for (_, name) in names.into_iter().filter(|(bit, _)| self.status & bit != 0) {
            f.write_str(name)?;
        }
        write!(
            f,
            ", CSR3 {:04x}, CSR4 {:04x}, CSR5 {:04x}, RAP {}, line {}; transmit ring: {}; receive \
             ring: {}",
            self.masks,
            self.features,
            self.extended,
            self.rap,
            if self.irq { "high" } else { "low" },
            self.tx,
            self.rx
        )
    }
}

impl Lance {
    /// Current state of the chip; reads every descriptor of both rings and changes nothing.
    pub fn state(&self, memory: &impl GuestMemory) -> State {
        State {
            status: self.csr.status(),
            masks: self.csr.get(csr::MASKS),
            features: self.csr.get(csr::FEATURES),
            extended: self.csr.get(csr::EXTENDED),
            rap: self.rap,
            irq: self.irq(),
            tx: self.ring_state(memory, RingKind::Tx),
            rx: self.ring_state(memory, RingKind::Rx),
        }
    }

    fn ring_state(&self, memory: &impl GuestMemory, kind: RingKind) -> RingState {
        let ring = Ring::new(&self.csr, self.bcr.style(), kind);
        let mut owned =
            (0..ring.len()).map(|ahead| Some(ring.load(memory, u32::from(ahead)).ok()?.is_owned()));
        let is_next_owned = owned.next().flatten();
        let owned_count = owned.chain([is_next_owned]).filter(|owned| *owned == Some(true)).count();
        RingState {
            len: ring.len(),
            next: ring.index(),
            is_next_owned,
            owned_count: owned_count as u16,
        }
    }
}
