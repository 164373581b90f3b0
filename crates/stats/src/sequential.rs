//! Judge of one figure, pair by pair: a verdict that may be looked at after every pair.
//!
//! A pair is a measurement with a setting on and one with it off, whose order a fair coin decides: then the sign of the
//! difference is a coin as well if the setting does nothing, whatever else goes on in the machine and however its noise is
//! correlated. [`crate::bets`] turn the signs into evidence.

use crate::bets::{RankBets, interval};
use crate::paired::{finite, mean, median};
use crate::pairs::Scale;
use crate::{Better, CountDifference, Verdict};

/// Evidence that decides one figure: 1 / 5 %.
const EVIDENCE: f64 = 20.0;

/// Evidence of the soft guard.
const GUARD_EVIDENCE: f64 = 100.0;

/// Smallest difference of counts that a run is asked to decide: one event in 10,000 requests.
const COUNT_MARGIN_MIN: f64 = 1e-4;

/// Evidence that is reported at most; more would say nothing.
const EVIDENCE_SHOWN_MAX: f64 = 1e12;

/// Factor between two intervals' capital: the evidence against "no difference" is the mean of twelve bets, six of which bet on
/// the other side and are counted as lost.
const SIDES: f64 = 2.0;

/// Question about a figure, fixed before its first pair.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SequentialPlan {
    /// Scale of the differences: logarithms of on over off, or on less off in events per request.
    pub scale: Scale,
    /// Direction in which the figure improves.
    pub better: Better,
    /// Smallest ratio that is asked to be decided, above 1.
    pub resolve: f64,
    /// Figures that are judged together, at least 1: each needs so many times more evidence.
    pub figures: usize,
    /// Ratio above 1 that must not be exceeded for the worse; not used for counts.
    pub guard_factor: f64,
}

impl SequentialPlan {
    /// A single figure whose ratio decides, with a guard at twice as bad.
    pub fn ratio(better: Better, resolve: f64) -> Self {
        SequentialPlan { scale: Scale::Ratio, better, resolve, figures: 1, guard_factor: 2.0 }
    }
}

/// On over off: the median over the pairs, and the interval that holds at every look.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SequentialRatio {
    /// Median of the pairs' ratios.
    pub median: f64,
    /// Lower end of its interval; `None` if the pairs exclude nothing there.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
}

/// Fewest pairs before a verdict: 18 for one judged figure, 24 for ten.
pub fn pairs_min(figures: usize) -> u32 {
    (18.0 + 6.0 * (figures.max(1) as f64).log10()).ceil() as u32
}

/// One figure's differences, and the bets on them.
#[derive(Debug, Clone)]
pub struct SequentialJudge {
    plan: SequentialPlan,
    /// Evidence that decides.
    needed: f64,
    pairs_min: usize,
    differences: Vec<f64>,
    /// Against no difference, and against a difference of the resolution upwards and downwards.
    zero: RankBets,
    above_margin: RankBets,
    below_margin: RankBets,
    /// Against "worse by at most the guard's factor", with the logarithm of that.
    guard: Option<(RankBets, f64)>,
    /// Sum of the pairs' mean values, and the requests of the arm with fewer; of counts.
    level_sum: f64,
    request_counts: [u64; 2],
    evidence: f64,
    is_below_margin: bool,
    is_above_margin: bool,
    decided: Option<Verdict>,
    is_guarded: bool,
}

impl SequentialJudge {
    /// A judge without a pair.
    pub fn new(plan: SequentialPlan) -> Self {
        let is_ratio = plan.scale == Scale::Ratio;
        SequentialJudge {
            needed: EVIDENCE * plan.figures.max(1) as f64,
            pairs_min: pairs_min(plan.figures) as usize,
            differences: Vec::new(),
            zero: RankBets::new(),
            above_margin: RankBets::new(),
            below_margin: RankBets::new(),
            guard: is_ratio.then(|| (RankBets::new(), plan.guard_factor.ln())),
            level_sum: 0.0,
            request_counts: [0; 2],
            evidence: 0.0,
            is_below_margin: false,
            is_above_margin: false,
            decided: None,
            is_guarded: false,
            plan,
        }
    }

    /// Takes the next pair of two measurements above 0, by their ratio.
    pub fn add_ratio(&mut self, on: f64, off: f64) {
        let difference = if on == off { 0.0 } else { on.ln() - off.ln() };
        self.add(difference, 0.0, [0; 2]);
    }

    /// Takes the next difference, on less off on the plan's scale.
    ///
    /// - `level`: mean of the values that it was made from; of counts.
    /// - `request_counts`: behind these, on and off; of counts.
    pub fn add(&mut self, difference: f64, level: f64, request_counts: [u64; 2]) {
        // Of differences before this one: a margin must not depend on the sign that is bet on.
        let margin = self.margin();
        self.differences.push(difference);
        self.level_sum += level;
        for (sum, count) in self.request_counts.iter_mut().zip(request_counts) {
            *sum = sum.saturating_add(count);
        }
        self.zero.add(difference);
        self.above_margin.add(difference - margin);
        self.below_margin.add(difference + margin);
        if let Some((bets, shift)) = &mut self.guard {
            let harm = match self.plan.better {
                Better::Lower => difference,
                Better::Higher => -difference,
            };
            bets.add(harm - *shift);
            if !self.is_guarded && bets.above() >= GUARD_EVIDENCE {
                self.is_guarded = true;
                self.evidence = self.evidence.max(self.zero.above().max(self.zero.below()) / SIDES);
                self.decided.get_or_insert(Verdict::Worse);
            }
        }
        if self.differences.len() >= self.pairs_min {
            self.look(margin);
        }
    }

    /// Difference on the figure's scale that the resolution is.
    fn margin(&self) -> f64 {
        match self.plan.scale {
            Scale::Ratio => self.plan.resolve.ln(),
            Scale::Count => {
                let level = self.level_sum / self.differences.len().max(1) as f64;
                COUNT_MARGIN_MIN.max((self.plan.resolve - 1.0) * level)
            }
        }
    }

    fn look(&mut self, margin: f64) {
        let (up, down) = (self.zero.above() / SIDES, self.zero.below() / SIDES);
        self.evidence = self.evidence.max(up.max(down));
        self.is_below_margin |= self.above_margin.below() >= self.needed;
        self.is_above_margin |= self.below_margin.above() >= self.needed;
        if self.decided.is_some() {
            return;
        }
        let (lower, higher) = match self.plan.better {
            Better::Lower => (Verdict::Better, Verdict::Worse),
            Better::Higher => (Verdict::Worse, Verdict::Better),
        };
        let verdict = if up >= self.needed {
            higher
        } else if down >= self.needed {
            lower
        } else if self.is_below_margin && self.is_above_margin && self.has_events_for(margin) {
            Verdict::NoDifferenceShown
        } else {
            return;
        };
        self.decided = Some(verdict);
    }

    /// True of ratios, and of counts if the mean difference lies within the margin as well, and so many requests came that
    /// not one event in them excludes the margin. Most differences of rare events are 0, and no bet is on the mean.
    fn has_events_for(&self, margin: f64) -> bool {
        if self.plan.scale == Scale::Ratio {
            return true;
        }
        let [on, off] = self.request_counts;
        on.min(off) as f64 * margin >= self.needed.ln()
            && self.interval_of_counts().is_some_and(|(low, high)| low > -margin && high < margin)
    }

    /// Interval of the mean difference that holds at every length, for large numbers of pairs.
    ///
    /// Source: Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas 2024, "Time-uniform central limit theory and asymptotic
    /// confidence sequences", Annals of Statistics 52, 2613-2640, equation 2.3; narrowest at 100 pairs.
    fn interval_of_counts(&self) -> Option<(f64, f64)> {
        let count = self.differences.len() as f64;
        let finite: Vec<f64> = self.differences.iter().copied().filter_map(finite).collect();
        // A tripped period has no count.
        let center = mean(&finite).filter(|_| finite.len() == self.differences.len())?;
        if finite.len() < self.pairs_min {
            return None;
        }
        let variance = finite.iter().map(|value| (value - center).powi(2)).sum::<f64>() / count;
        let doubt = 2.0 * self.needed.ln();
        let narrowest = (doubt + doubt.ln() + 1.0) / 100.0;
        let scaled = count * narrowest + 1.0;
        let reach =
            (scaled / (count * count * narrowest) * (doubt + scaled.ln()) * variance).sqrt();
        Some((center - reach, center + reach))
    }

    /// The verdict; `None` while nothing is decided. The first one stays.
    pub fn decided(&self) -> Option<Verdict> {
        self.decided
    }

    /// True if the figure is shown to be worse by more than the guard's factor.
    pub fn is_guarded(&self) -> bool {
        self.is_guarded
    }

    /// Differences so far.
    pub fn differences(&self) -> &[f64] {
        &self.differences
    }

    /// Largest evidence against "no difference" at a look so far, at most 10^12.
    pub fn evidence(&self) -> f64 {
        self.evidence.min(EVIDENCE_SHOWN_MAX)
    }

    /// Evidence that decides: 20 times the number of judged figures.
    pub fn evidence_needed(&self) -> f64 {
        self.needed
    }

    /// Ratio on over off; `None` of counts, and without a finite median.
    pub fn ratio(&self) -> Option<SequentialRatio> {
        if self.plan.scale != Scale::Ratio {
            return None;
        }
        let median = finite(median(&self.differences)?.exp())?;
        let (low, high) = interval(&self.differences, self.pairs_min, SIDES * self.needed);
        Some(SequentialRatio {
            median,
            low: low.map(f64::exp),
            high: high.map(f64::exp).and_then(finite),
        })
    }

    /// On less off, in events per request; `None` of ratios.
    pub fn difference(&self) -> Option<CountDifference> {
        if self.plan.scale != Scale::Count {
            return None;
        }
        let mean = finite(mean(&self.differences)?)?;
        let interval = self.interval_of_counts();
        Some(CountDifference {
            mean,
            low: interval.map(|(low, _)| low),
            high: interval.map(|(_, high)| high),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Random;

    fn judge(scale: Scale, better: Better) -> SequentialJudge {
        SequentialJudge::new(SequentialPlan { scale, ..SequentialPlan::ratio(better, 1.05) })
    }

    /// Adds differences until the figure is decided; returns their number.
    fn pairs_until_decided(
        judge: &mut SequentialJudge,
        differences: impl Iterator<Item = f64>,
    ) -> Option<usize> {
        for (index, difference) in differences.enumerate() {
            judge.add(difference, 0.0, [1_000; 2]);
            if judge.decided().is_some() {
                return Some(index + 1);
            }
        }
        None
    }

    #[test]
    fn clear_effect_is_decided_after_the_fewest_pairs_and_not_before() {
        for (better, verdict) in
            [(Better::Lower, Verdict::Worse), (Better::Higher, Verdict::Better)]
        {
            let mut random = Random::new(1, 0);
            let mut judge = judge(Scale::Ratio, better);
            let differences = (0..30).map(|_| 0.4 + 0.01 * random.normal());
            assert_eq!(pairs_until_decided(&mut judge, differences), Some(18));
            assert_eq!(judge.decided(), Some(verdict));
            let ratio = judge.ratio().expect("a ratio");
            assert!((ratio.median - 0.4f64.exp()).abs() < 0.02);
            assert!(ratio.low.is_some_and(|low| low > 1.4), "{ratio:?}");
            assert!(judge.evidence() >= judge.evidence_needed());
        }
    }

    #[test]
    fn interval_agrees_with_the_verdict() {
        for seed in 0..40 {
            let mut random = Random::new(seed, 0);
            let mut judge = judge(Scale::Ratio, Better::Lower);
            let shift = 0.02 * (seed % 4) as f64;
            let differences = (0..120).map(|_| shift + 0.1 * random.normal());
            pairs_until_decided(&mut judge, differences);
            let low = judge.ratio().and_then(|ratio| ratio.low);
            let is_worse = judge.decided() == Some(Verdict::Worse);
            assert_eq!(low.is_some_and(|low| low >= 0.9999), is_worse, "{seed}: {low:?}");
        }
    }

    #[test]
    fn pairs_of_the_forecast_are_within_half_of_the_pairs_needed() {
        // (3.5 * 0.15 / ln 1.05)^2 = 116 pairs.
        let forecast = (3.5 * 0.15 / 1.05f64.ln()).powi(2);
        let mut needed: Vec<usize> = (0..41)
            .filter_map(|seed| {
                let mut random = Random::new(seed, 0);
                let mut judge = judge(Scale::Ratio, Better::Lower);
                let differences = (0..1_000).map(|_| 1.05f64.ln() + 0.15 * random.normal());
                pairs_until_decided(&mut judge, differences)
            })
            .collect();
        needed.sort_unstable();
        let middle = needed[needed.len() / 2] as f64;
        assert!(middle < 1.5 * forecast && middle > forecast / 1.5, "{middle} {forecast}");
    }

    #[test]
    fn one_burst_does_not_outweigh_the_other_pairs() {
        let mut judge = judge(Scale::Ratio, Better::Lower);
        let differences =
            (0..60).map(|index| if index == 10 { 50.0 } else { -0.1 - 1e-4 * f64::from(index) });
        let pairs = pairs_until_decided(&mut judge, differences);
        assert!(pairs.is_some_and(|pairs| pairs <= 24), "{pairs:?}");
        assert_eq!(judge.decided(), Some(Verdict::Better));
    }

    #[test]
    fn counts_without_any_event_are_equal_only_after_many_requests() {
        let mut judge = judge(Scale::Count, Better::Lower);
        // 1,000 requests a period: 30 pairs for one event in 10,000.
        let pairs = pairs_until_decided(&mut judge, std::iter::repeat_n(0.0, 100));
        assert_eq!(pairs, Some(30));
        assert_eq!(judge.decided(), Some(Verdict::NoDifferenceShown));
        let difference = judge.difference().expect("counts");
        assert_eq!((difference.mean, difference.low), (0.0, Some(0.0)));
    }

    #[test]
    fn soft_guard_fires_beyond_its_factor_only() {
        for (factor, is_fired) in [(3.0f64, true), (1.9, false)] {
            let mut random = Random::new(7, 0);
            let mut judge = judge(Scale::Ratio, Better::Lower);
            for _ in 0..200 {
                let difference = factor.ln() + 0.1 * random.normal();
                judge.add(difference, 1.0, [1_000; 2]);
            }
            assert_eq!(judge.is_guarded(), is_fired, "{factor}");
        }
    }
}
