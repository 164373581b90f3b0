//! Evidence of all looks at the figures of a run.

use std::collections::BTreeMap;

use crate::Look;
use crate::decision::GateEvidence;
use crate::verdict::Evidence;

/// Evidence so far, by arm and judged metric.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunEvidence {
    pub(crate) looks: Vec<Look>,
    verdicts: BTreeMap<(usize, String), Evidence>,
    gates: BTreeMap<(usize, String), GateEvidence>,
    /// By arm: smallest p-value of equal shares of failed trials, over the weight of its look.
    failures: BTreeMap<usize, f64>,
    /// By arm that lacks one member of the set: the set against it.
    members: BTreeMap<usize, Evidence>,
}

impl RunEvidence {
    pub(crate) fn verdict(&self, arm: usize, name: &str) -> Evidence {
        self.verdicts.get(&(arm, name.to_owned())).copied().unwrap_or_default()
    }

    pub(crate) fn gate(&self, arm: usize, name: &str) -> GateEvidence {
        self.gates.get(&(arm, name.to_owned())).copied().unwrap_or_default()
    }

    pub(crate) fn failures(&self, arm: usize) -> f64 {
        self.failures.get(&arm).copied().unwrap_or(1.0)
    }

    pub(crate) fn member(&self, rest: usize) -> Evidence {
        self.members.get(&rest).copied().unwrap_or_default()
    }

    pub(crate) fn verdict_mut(&mut self, arm: usize, name: &str) -> &mut Evidence {
        self.verdicts.entry((arm, name.to_owned())).or_default()
    }

    pub(crate) fn gate_mut(&mut self, arm: usize, name: &str) -> &mut GateEvidence {
        self.gates.entry((arm, name.to_owned())).or_default()
    }

    pub(crate) fn member_mut(&mut self, rest: usize) -> &mut Evidence {
        self.members.entry(rest).or_default()
    }

    pub(crate) fn look_at_failures(&mut self, arm: usize, p: f64, weight: f64) {
        let smallest = self.failures.entry(arm).or_insert(1.0);
        *smallest = smallest.min(p / weight);
    }
}
