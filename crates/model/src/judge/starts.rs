//! Spread of the judged metrics between starts of one program, and the pairs that allow for it.

use std::collections::BTreeMap;

use super::Table;
use crate::StartSpread;
use crate::pairs::Pairs;
use crate::starts::{Components, by_start};

impl<'a> Table<'a> {
    /// Spread of each judged metric between starts, over all arms; empty if each block has starts of its own.
    pub(crate) fn spreads(&self) -> BTreeMap<&'a str, Components> {
        let mut spreads = BTreeMap::new();
        if self.starts.shared(self.complete).is_none() {
            return spreads;
        }
        for name in &self.experiment.plan.judged {
            let mut spread = Components::default();
            for (arm, series) in self.arms.iter().enumerate() {
                let pairs = series.get(name.as_str()).map(|series| self.pairs(arm, name, series));
                let Some(Ok(pairs)) = pairs else { continue };
                if let Some(epochs) = self.starts.shared(pairs.differences.len()) {
                    spread.add(&pairs.differences, epochs);
                }
            }
            spreads.insert(name.as_str(), spread);
        }
        spreads
    }

    /// Starts of the arm with the fewest, and the share of each judged metric's spread that is between them; none if
    /// starts are not known.
    pub(crate) fn start_spreads(&self) -> Vec<StartSpread> {
        let known = self.starts.counts.iter().copied().filter(|count| *count > 0);
        let Some(fewest) = known.min() else { return Vec::new() };
        let spread = |name: &String| StartSpread {
            metric: name.clone(),
            starts: fewest as u32,
            share: self.spreads.get(name.as_str()).and_then(Components::share),
        };
        self.experiment.plan.judged.iter().map(spread).collect()
    }

    /// Judged metrics of which one start counts as one block, with the share that is between starts.
    pub(crate) fn judged_by_start(&self) -> impl Iterator<Item = (&'a str, f64)> {
        let shared = self.spreads.iter().filter(|(_, spread)| spread.is_shared());
        shared.filter_map(|(name, spread)| Some((*name, spread.share()?)))
    }

    /// The pairs, or one for each start if trials of one start are not independent.
    pub(crate) fn independent(&self, name: &str, pairs: Pairs) -> Pairs {
        let is_shared = self.spreads.get(name).is_some_and(Components::is_shared);
        match self.starts.shared(pairs.differences.len()).filter(|_| is_shared) {
            Some(epochs) => pairs.grouped(|column| by_start(column, epochs)),
            None => pairs,
        }
    }
}
