//! The card at one moment, for a reader.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{RX, TX, VirtioNet};
use crate::bus::GuestMemory;

/// State that decides the next step of the card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Device status.
    pub status: u32,
    /// Features that the driver has chosen.
    pub features: u64,
    /// Interrupt status.
    pub causes: u32,
    /// Chains that wait in the receive and the transmit queue; `None` if the queue is not ready or
    /// broken.
    pub available_counts: [Option<u16>; 2],
    /// Rule that the driver broke.
    pub fault: Option<String>,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let State { status, features, causes, available_counts: [rx, tx], fault } = self;
        let [rx, tx] =
            [rx, tx].map(|count| count.map_or("not ready".into(), |count| count.to_string()));
        write!(
            f,
            "status {status:#x}, features {features:#x}, interrupt status {causes}; available: \
             receive {rx}, transmit {tx}"
        )?;
        fault.as_ref().map_or(Ok(()), |fault| write!(f, "; needs a reset: {fault}"))
    }
}

impl VirtioNet {
    /// Current state of the card; changes nothing.
    pub fn state(&self, memory: &impl GuestMemory) -> State {
        let available_counts = [RX, TX]
            .map(|queue| self.queues[usize::from(queue)].as_ref()?.available_count(memory).ok());
        State {
            status: self.status,
            features: self.chosen(),
            causes: self.causes,
            available_counts,
            fault: self.fault.map(|fault| fault.to_string()),
        }
    }
}
