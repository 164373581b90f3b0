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
    /// Chains that wait in the receive and the transmit queue of each pair; `None` if the queue is not ready or
    /// broken.
    pub available_counts: Vec<[Option<u16>; 2]>,
    /// Pairs that the driver uses.
    pub active_pairs: u16,
    /// Rule that the driver broke.
    pub fault: Option<String>,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let State { status, features, causes, available_counts, active_pairs, fault } = self;
        write!(
            f,
            "status {status:#x}, features {features:#x}, interrupt status {causes}; available"
        )?;
        for (pair, counts) in available_counts.iter().enumerate() {
            let [rx, tx] =
                counts.map(|count| count.map_or("not ready".into(), |count| count.to_string()));
            let number = if pair > 0 { format!(" pair {}", pair + 1) } else { String::new() };
            write!(f, "{}{number}: receive {rx}, transmit {tx}", if pair > 0 { ";" } else { "" })?;
        }
        if available_counts.len() > 1 {
            write!(f, "; {active_pairs} of {} pairs in use", available_counts.len())?;
        }
        fault.as_ref().map_or(Ok(()), |fault| write!(f, "; needs a reset: {fault}"))
    }
}

impl VirtioNet {
    /// Current state of the card; changes nothing.
    pub fn state(&self, memory: &impl GuestMemory) -> State {
        let pairs = (RX..2 * self.pairs()).step_by(2);
        let available_counts = pairs.map(|rx| {
            [rx, rx + TX]
                .map(|queue| self.queues[usize::from(queue)].as_ref()?.available_count(memory).ok())
        });
        State {
            status: self.status,
            features: self.chosen(),
            causes: self.causes,
            available_counts: available_counts.collect(),
            active_pairs: self.active_pairs,
            fault: self.fault.map(|fault| fault.to_string()),
        }
    }
}
