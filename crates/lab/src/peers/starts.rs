//! Labs of a session, one after the other.

use std::time::Duration;

use model::Restarts;

use super::Peers;

/// When a session builds its lab anew, and the number of the present one.
///
/// A run with peers keeps its lab: their programs are new in each trial, and started ahead of it, as sockperf sleeps for two seconds
/// before it measures. In a new lab it would do so within its trial, which is half of a block.
pub struct LabStarts {
    restarts: Restarts,
    number: u32,
}

impl Default for LabStarts {
    fn default() -> Self {
        LabStarts { restarts: Restarts::new(1), number: 1 }
    }
}

impl LabStarts {
    /// Enters a trial. Returns the number of its lab, from 1, for [`model::Measurement::start`]; `None` with peers, since what one lab
    /// shares between trials is then that of the whole run.
    pub fn ran(&mut self, took: Duration, peers: &Peers) -> Option<u32> {
        self.restarts.ran(took);
        peers.is_empty().then_some(self.number)
    }

    /// Called at the begin of each block. Returns true if the lab is to be built anew before it.
    pub fn is_due(&mut self, peers: &Peers) -> bool {
        peers.is_empty() && self.restarts.is_due()
    }

    /// Enters an attempt to build the lab anew. Without a new one the run goes on in the old one.
    pub fn built(&mut self, took: Duration, is_new: bool) {
        self.restarts.started(took);
        self.number += u32::from(is_new);
    }
}
