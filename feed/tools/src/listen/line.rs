//! Accounting of one line by its own sequence: messages received and missing between its first and
//! last.

use crate::arbiter::{ArbiterLimits, MessageArrival, SequenceDomain};

/// Messages of one domain on a line.
#[derive(Debug, Clone, Copy)]
struct DomainTrack {
    domain: SequenceDomain,
    first: u64,
    highest: u64,
    brought: u64,
    /// Sums over earlier epochs: expected and received.
    closed: (u64, u64),
}

/// Messages of one line, per domain.
#[derive(Debug, Default)]
pub(super) struct LineTrack {
    domains: Vec<DomainTrack>,
    last: usize,
    /// Sums of domains that were removed: expected and received.
    removed: (u64, u64),
}

impl LineTrack {
    pub(super) fn with_room(domains: u32) -> Self {
        LineTrack { domains: Vec::with_capacity(domains as usize), last: 0, removed: (0, 0) }
    }

    /// Records a message and its outcome.
    #[inline]
    pub(super) fn note(
        &mut self,
        domain: SequenceDomain,
        sequence: u64,
        arrival: MessageArrival,
        limits: &ArbiterLimits,
    ) {
        if matches!(
            arrival,
            MessageArrival::Repeat | MessageArrival::Forgotten | MessageArrival::Refused
        ) {
            return;
        }
        let seen = match self.domains.get_mut(self.last) {
            Some(seen) if seen.domain == domain => seen,
            _ => match self.domains.iter().position(|seen| seen.domain == domain) {
                Some(at) => {
                    self.last = at;
                    &mut self.domains[at]
                }
                None => {
                    let first = if limits.from_one { sequence.min(1) } else { sequence };
                    let highest = sequence;
                    let seen = DomainTrack { domain, first, highest, brought: 1, closed: (0, 0) };
                    self.last = self.domains.len();
                    self.domains.push(seen);
                    return;
                }
            },
        };
        if sequence > seen.highest {
            seen.highest = sequence;
        } else if arrival != MessageArrival::Late && is_restart(seen.highest, sequence, limits) {
            // The arbiter started a new epoch for this line.
            seen.closed.0 += seen.highest - seen.first + 1;
            seen.closed.1 += seen.brought;
            let at_start = sequence <= limits.restart_first_max;
            seen.first = if at_start { sequence.min(1) } else { sequence };
            (seen.highest, seen.brought) = (sequence, 0);
        } else {
            seen.first = seen.first.min(sequence);
        }
        seen.brought += 1;
    }

    /// Removes a domain, whose messages still count.
    pub(super) fn remove(&mut self, domain: SequenceDomain) {
        let Some(at) = self.domains.iter().position(|seen| seen.domain == domain) else { return };
        let (expected, brought) = self.domains.swap_remove(at).sums();
        self.removed.0 = self.removed.0.saturating_add(expected);
        self.removed.1 += brought;
        self.last = 0;
    }

    /// Messages expected on the line by its own sequences, and those of them received.
    pub(super) fn sums(&self) -> (u64, u64) {
        self.domains
            .iter()
            .map(DomainTrack::sums)
            .fold(self.removed, |(expected, brought), seen| {
                (expected.saturating_add(seen.0), brought + seen.1)
            })
    }
}

impl DomainTrack {
    fn sums(&self) -> (u64, u64) {
        let (closed_expected, closed_brought) = self.closed;
        let span = (self.highest - self.first + 1).max(self.brought);
        (closed_expected.max(closed_brought).saturating_add(span), closed_brought + self.brought)
    }
}

/// The arbiter's rules 1 and 3, for a message that is not a duplicate.
fn is_restart(highest: u64, sequence: u64, limits: &ArbiterLimits) -> bool {
    let back = highest - sequence;
    let at_start = sequence <= limits.restart_first_max && back >= limits.restart_back;
    at_start || back >= u64::from(limits.memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOMAIN: SequenceDomain = SequenceDomain::twse(1, 6);

    fn sums(limits: &ArbiterLimits, messages: &[(u64, MessageArrival)]) -> (u64, u64) {
        let mut track = LineTrack::with_room(4);
        for (sequence, arrival) in messages {
            track.note(DOMAIN, *sequence, *arrival, limits);
        }
        track.sums()
    }

    #[test]
    fn expected_is_first_to_last_and_the_rest_is_missing() {
        use MessageArrival::{Copy, Delivered, Held, Late, Repeat};
        let limits = ArbiterLimits::default();
        let messages = [(10, Delivered), (12, Held), (12, Repeat), (11, Delivered), (16, Copy)];
        assert_eq!(sums(&limits, &messages), (7, 4));
        assert_eq!(sums(&ArbiterLimits { from_one: true, ..limits }, &messages), (16, 4));
        assert_eq!(sums(&limits, &[(10, Delivered), (14, Held), (12, Late)]), (5, 3));
    }

    #[test]
    fn a_removed_domain_still_counts() {
        use MessageArrival::Delivered;
        let limits = ArbiterLimits::default();
        let mut track = LineTrack::with_room(4);
        for sequence in [1, 2, 5] {
            track.note(DOMAIN, sequence, Delivered, &limits);
            track.note(SequenceDomain::twse(2, 6), sequence, Delivered, &limits);
        }
        track.remove(DOMAIN);
        track.note(SequenceDomain::twse(2, 6), 6, Delivered, &limits);
        assert_eq!((track.sums(), track.domains.len()), ((11, 7), 1));
    }

    #[test]
    fn a_restarted_domain_is_counted_separately() {
        use MessageArrival::Delivered;
        let limits = ArbiterLimits::default();
        let messages: Vec<_> = (1..=100).chain(2..=50).map(|n| (n, Delivered)).collect();
        assert_eq!(sums(&limits, &messages), (150, 149));
    }
}
