//! Quality of a feed over a run: lead of one line over the other, bursts, latency by instrument.
//!
//! Everything is counted while it arrives, in memory that does not grow with the number of messages.

mod bursts;
mod instruments;
mod lead;

pub use bursts::{Burst, Bursts, WINDOWS_NS};
pub use instruments::{Instruments, Latency};
pub use lead::Lead;

use crate::arbiter::{FeedLine, MessageArrival, SequenceDomain};

/// Figures of a run.
#[derive(Debug)]
pub struct Quality {
    pub lead: Lead,
    /// Of lines A and B.
    pub bursts: [Bursts; 2],
    pub instruments: Instruments,
}

impl Quality {
    /// - `instruments_max`: instruments that are told apart.
    pub fn new(instruments_max: u32) -> Self {
        Quality {
            lead: Lead::default(),
            bursts: Default::default(),
            instruments: Instruments::new(instruments_max),
        }
    }

    /// Enters a message of line A or B and its outcome.
    ///
    /// - `at_ns`: its arrival; of the line's clock stamps if it has them.
    #[inline]
    pub fn arrived(
        &mut self,
        line: FeedLine,
        domain: SequenceDomain,
        sequence: u64,
        arrival: MessageArrival,
        at_ns: u64,
    ) {
        if let Some(bursts) = self.bursts.get_mut(line as usize) {
            bursts.add(at_ns);
        }
        match arrival {
            MessageArrival::Delivered | MessageArrival::Held | MessageArrival::Late => {
                self.lead.first(line, domain, sequence, at_ns);
            }
            MessageArrival::Copy => self.lead.second(line, domain, sequence, at_ns),
            MessageArrival::Repeat | MessageArrival::Forgotten | MessageArrival::Refused => {}
        }
    }

    /// Forgets the messages of a domain that was removed.
    pub(crate) fn remove(&mut self, domain: SequenceDomain) {
        self.lead.remove(domain);
    }

    /// Ends the windows that are open.
    pub fn finish(&mut self) {
        self.bursts.iter_mut().for_each(Bursts::finish);
    }
}
