//! Counts of the observer, as causes ask for them.

use super::Evidence;
use crate::causes::finding::Severity;
use crate::observer::{Observed, ObservedCopies, ObservedDirection, ObservedInterface};

/// Frames from which counts are judged.
pub(crate) const FRAMES_MIN: u64 = 50;
/// Flows from which their spreading is judged.
const FLOWS_MIN: u64 = 8;
/// Share of its time from which a CPU's softirqs are its main work.
const BUSY_SHARE: f64 = 0.3;

impl Evidence {
    /// Evidence with the counts of an observation.
    #[must_use]
    pub fn observed(mut self, observed: Observed) -> Self {
        self.observed = Some(observed);
        self
    }

    /// Counts of an interface; `None` without an observation, or if no frame crossed it.
    pub(crate) fn observed_at(&self, index: u32) -> Option<&ObservedInterface> {
        self.observed.as_ref()?.interface(self.netns_inode()?, index)
    }

    /// Copies of frames of the namespace's interfaces.
    pub(crate) fn observed_copies(&self) -> impl Iterator<Item = &ObservedCopies> {
        let netns = self.netns_inode();
        let copies = self.observed.iter().flat_map(|observed| &observed.copies);
        copies.filter(move |copies| Some(copies.netns) == netns)
    }

    /// Clones of frames of the namespace's interfaces.
    pub(crate) fn observed_clones(&self) -> impl Iterator<Item = &ObservedCopies> {
        let netns = self.netns_inode();
        let clones = self.observed.iter().flat_map(|observed| &observed.clones);
        clones.filter(move |clones| Some(clones.netns) == netns)
    }

    fn netns_inode(&self) -> Option<u32> {
        self.system.netns().inode().ok().map(|inode| inode as u32)
    }

    /// Received frames of many flows which one CPU alone handled, although their hashes differ, and that CPU.
    pub(crate) fn on_one_cpu(&self, index: u32) -> Option<(&ObservedDirection, usize)> {
        let received = &self.observed_at(index)?.received;
        let [cpu] = received.cpus()[..] else { return None };
        let many = received.count >= FRAMES_MIN && received.flows_count >= FLOWS_MIN;
        (many && !has_constant_hash(received)).then_some((received, cpu))
    }

    /// Severity of frames that one CPU handles alone: by the time that this takes.
    pub(crate) fn one_cpu_severity(&self, cpu: usize) -> Severity {
        if self.softirq_share(cpu) >= BUSY_SHARE { Severity::Medium } else { Severity::Low }
    }

    /// `4000 frames of 64 flows in the window, all on CPU 0, which spent 31.0 % of its time in NET_RX softirqs`.
    pub(crate) fn one_cpu_cost(&self, index: u32) -> Option<String> {
        let (received, cpu) = self.on_one_cpu(index)?;
        Some(format!(
            "{} frames of {} flows in the window, all on CPU {cpu}, which spent {:.1} % of its time in NET_RX softirqs",
            received.count,
            received.flows_count,
            self.softirq_share(cpu) * 100.0
        ))
    }

    /// Share of the window that a CPU spent in NET_RX softirqs, 0.0 to 1.0.
    pub(crate) fn softirq_share(&self, cpu: usize) -> f64 {
        let Some(observed) = &self.observed else { return 0.0 };
        let found = observed.cpus.iter().find(|one| one.cpu == cpu);
        found.map_or(0.0, |one| observed.share_of_window(one.softirqs_ns))
    }
}

/// True if many flows share very few hashes.
pub(crate) fn has_constant_hash(direction: &ObservedDirection) -> bool {
    let are_hashed =
        direction.hashed_count >= FRAMES_MIN && direction.hashed_count * 10 >= direction.count * 9;
    let flows = direction.flows_count;
    are_hashed && flows >= FLOWS_MIN && direction.hashes_count * 8 <= flows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_constant_only_if_many_flows_that_have_one_share_it() {
        let direction = |hashed_count, flows_count, hashes_count| ObservedDirection {
            count: 1000,
            by_cpu: vec![1000],
            hashed_count,
            flows_count,
            hashes_count,
        };
        assert!(has_constant_hash(&direction(1000, 64, 1)));
        for other in [
            direction(1000, 64, 64),
            direction(1000, 64, 60),
            // One program, and frames whose hash is not known.
            direction(1000, 4, 1),
            direction(40, 64, 1),
            direction(0, 64, 0),
        ] {
            assert!(!has_constant_hash(&other), "{other:?}");
        }
    }
}
