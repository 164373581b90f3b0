//! What an arbiter counts.

use super::Domain;

/// What one line brought.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LineCounts {
    /// Messages offered.
    pub received: u64,
    /// Brought before any other line, and delivered or held.
    pub first: u64,
    /// Another line had brought it.
    pub copies: u64,
    /// This line had brought it.
    pub repeats: u64,
    /// Given up before it came, or of before the beginning.
    pub late: u64,
    /// Too far back to tell a duplicate from a late one.
    pub forgotten: u64,
    /// Of one domain too many, or of a sequence that cannot be.
    pub refused: u64,
    /// Below the highest that this line had brought of the domain, and no repeat (RFC 4737
    /// section 3.3).
    pub reordered: u64,
}

impl LineCounts {
    /// Brought before by any line.
    pub fn duplicates(&self) -> u64 {
        self.copies + self.repeats
    }

    /// Whether what was received is what became of it.
    pub fn balances(&self) -> bool {
        self.received == self.first + self.duplicates() + self.late + self.forgotten + self.refused
    }
}

/// What became of all lines together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Messages delivered.
    pub delivered: u64,
    /// Messages that had to be held, whatever came of it.
    pub held: u64,
    /// Most messages held at once.
    pub held_max: u64,
    /// Gaps given up.
    pub gaps: u64,
    /// Messages in them.
    pub missing: u64,
    /// Times that a gap was given up early, for want of room or reach.
    pub overflows: u64,
    /// Epochs begun after a domain's first.
    pub restarts: u64,
}

/// The book of one domain over all its epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DomainBook {
    /// Whose it is.
    pub domain: Domain,
    /// Epochs begun after the first.
    pub restarts: u32,
    /// First sequence of the present epoch; `None` until it is settled.
    pub first: Option<u64>,
    /// Highest sequence of the present epoch; `None` before any.
    pub highest: Option<u64>,
    /// Highest − first + 1, of all epochs together.
    pub span: u64,
    /// Messages delivered.
    pub delivered: u64,
    /// Messages given up.
    pub missing: u64,
    /// Messages held now.
    pub held: u64,
    /// Messages in gaps that are waited for.
    pub open: u64,
}

impl DomainBook {
    /// Whether every sequence of the span is delivered, held, waited for or missing.
    pub fn balances(&self) -> bool {
        self.delivered + self.held + self.open + self.missing == self.span
    }
}
