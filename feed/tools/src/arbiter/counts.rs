//! Counters of an arbiter.

use super::SequenceDomain;
use serde::Serialize;

/// Counters of one line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LineCounts {
    #[serde(rename = "received_count")]
    pub received: u64,
    /// Messages that this line carried first, delivered or held.
    #[serde(rename = "first_count")]
    pub first: u64,
    /// Duplicates of another line.
    #[serde(rename = "copy_count")]
    pub copies: u64,
    /// Duplicates of this line.
    #[serde(rename = "repeat_count")]
    pub repeats: u64,
    /// Arrived after the gap timed out, or below the first sequence.
    #[serde(rename = "late_count")]
    pub late: u64,
    /// Too far back to distinguish a duplicate from a late message.
    #[serde(rename = "forgotten_count")]
    pub forgotten: u64,
    /// Domain beyond the limit, or invalid sequence.
    #[serde(rename = "refused_count")]
    pub refused: u64,
    /// Below the line's highest sequence of the domain, and not a repeat (RFC 4737 section 3.3).
    #[serde(rename = "reordered_count")]
    pub reordered: u64,
}

impl LineCounts {
    /// Duplicates of any line.
    pub fn duplicates(&self) -> u64 {
        self.copies + self.repeats
    }

    /// True if every received message is counted exactly once.
    pub fn balances(&self) -> bool {
        self.received == self.first + self.duplicates() + self.late + self.forgotten + self.refused
    }
}

/// Counters of all lines together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    pub delivered: u64,
    /// Messages that were held, with any outcome.
    pub held: u64,
    /// Largest number of messages held at once.
    pub held_max: u64,
    /// Gaps that timed out.
    pub gaps: u64,
    /// Messages in these gaps.
    pub missing: u64,
    /// Gaps closed early for lack of space or reach.
    pub overflows: u64,
    /// Epochs after the first, of all domains.
    pub restarts: u64,
    /// Domains that were removed.
    pub removed_domains: u64,
    /// Messages of these: span, delivered, missing.
    pub removed: (u64, u64, u64),
}

/// Accounting of one domain over all its epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DomainStats {
    pub domain: SequenceDomain,
    /// Epochs begun after the first.
    pub restarts: u32,
    /// First sequence of the current epoch; `None` until known.
    pub first: Option<u64>,
    /// Highest sequence of the current epoch; `None` before the first message.
    pub highest: Option<u64>,
    /// Sum of highest − first + 1 over all epochs.
    pub span: u64,
    pub delivered: u64,
    pub missing: u64,
    pub held: u64,
    /// Messages in open gaps.
    pub open: u64,
}

impl DomainStats {
    /// True if every sequence of the span is delivered, held, in an open gap or missing.
    pub fn balances(&self) -> bool {
        self.delivered + self.held + self.open + self.missing == self.span
    }
}
