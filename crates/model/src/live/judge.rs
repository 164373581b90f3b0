//! Judge of one figure, pair by pair, with its name and the time of its verdict.

use stats::pairs::Scale;
use stats::sequential::{SequentialJudge, SequentialPlan};

use super::outcome::{LiveRatio, LiveVerdict};
use super::pair::Pair;
use super::{LiveFigure, LiveScale};
use crate::Verdict;

#[derive(Debug, Clone)]
pub(super) struct FigureJudge {
    figure: LiveFigure,
    index: usize,
    judge: SequentialJudge,
    /// Time of the verdict, since the first switch.
    decided_ns: Option<u64>,
}

impl FigureJudge {
    pub(super) fn new(
        figures: &[LiveFigure],
        index: usize,
        resolve: f64,
        guard_factor: f64,
    ) -> Self {
        let figure = figures[index].clone();
        let scale = match figure.scale {
            LiveScale::Ratio => Scale::Ratio,
            LiveScale::Count => Scale::Count,
        };
        let judge = SequentialJudge::new(SequentialPlan {
            scale,
            better: figure.better,
            resolve,
            figures: figures.len(),
            guard_factor,
        });
        FigureJudge { figure, index, judge, decided_ns: None }
    }

    /// Takes the next pair.
    ///
    /// - `now_ns`: since the first switch.
    pub(super) fn add(&mut self, pair: &Pair, now_ns: u64) {
        let Some(difference) = pair.difference(self.index, &self.figure) else { return };
        let request_counts = [pair.on.request_count, pair.off.request_count];
        let level = pair.level(self.index).unwrap_or_default();
        self.add_difference(difference, level, request_counts, now_ns);
    }

    /// Takes the next difference.
    ///
    /// - `level`: mean of the values that it was made from.
    /// - `request_counts`: behind these, on and off.
    pub(super) fn add_difference(
        &mut self,
        difference: f64,
        level: f64,
        request_counts: [u64; 2],
        now_ns: u64,
    ) {
        self.judge.add(difference, level, request_counts);
        if self.judge.decided().is_some() {
            self.decided_ns.get_or_insert(now_ns);
        }
    }

    pub(super) fn decided(&self) -> Option<Verdict> {
        self.judge.decided().map(Verdict::from)
    }

    /// True if the figure is shown to be worse by more than the guard's factor.
    pub(super) fn is_guarded(&self) -> bool {
        self.judge.is_guarded()
    }

    pub(super) fn figure(&self) -> &LiveFigure {
        &self.figure
    }

    pub(super) fn differences(&self) -> &[f64] {
        self.judge.differences()
    }

    /// - `within_ns`: longest period at which the verdict was shown.
    pub(super) fn verdict(&self, within_ns: u64) -> LiveVerdict {
        let ratio = self.judge.ratio();
        LiveVerdict {
            figure: self.figure.name.clone(),
            verdict: self.decided().unwrap_or(Verdict::Inconclusive),
            pairs: self.differences().len() as u32,
            ratio: ratio.map(|of| LiveRatio { median: of.median, low: of.low, high: of.high }),
            difference: self.judge.difference(),
            evidence: self.judge.evidence(),
            evidence_needed: self.judge.evidence_needed(),
            decided_ns: self.decided_ns,
            within_ns,
        }
    }
}
