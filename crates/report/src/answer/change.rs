//! One arm against what it is compared with, by one figure: the statements from which sentences are made.

use model::{ArmOutcome, Better, By, CountDifference, Decision, MetricOutcome};

use super::words::{Words, amount, both_values, figure, is_worse, percent, range};
use crate::wording;

/// A compared figure, with its words.
pub(super) struct Change<'a> {
    pub(super) arm: &'a str,
    pub(super) base: &'a str,
    /// Name of the figure.
    pub(super) metric: &'a str,
    unit: &'a str,
    better: Better,
    /// Of the arm, and of what it is compared with.
    values: Option<(f64, f64)>,
    ratio: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    difference: Option<CountDifference>,
    words: Words,
}

/// True if two medians lie to each other as the ratio of their pairs does.
fn agrees(new: f64, old: f64, ratio: Option<f64>) -> bool {
    match ratio {
        Some(ratio) => (new > old) == (ratio > 1.0),
        None => true,
    }
}

impl<'a> Change<'a> {
    /// `None` for failed trials.
    pub(super) fn from_decision(decision: &'a Decision, by: By) -> Option<Self> {
        let metric = decision.metric.as_deref()?;
        let Decision { unit, better, difference, .. } = decision;
        Some(Change {
            arm: &decision.arm,
            base: &decision.base,
            metric,
            unit,
            better: *better,
            values: decision.value.zip(decision.base_value),
            ratio: decision.ratio,
            low: decision.low,
            high: decision.high,
            difference: *difference,
            words: match by {
                By::Value => Words::new(metric, unit, *better, difference.is_some()),
                By::Worth => Words::worth(),
            },
        })
    }

    pub(super) fn from_arm(
        arm: &'a ArmOutcome,
        base: &'a ArmOutcome,
        metric: &'a str,
        figures: &'a MetricOutcome,
    ) -> Self {
        let base_value = base.metrics.get(metric).and_then(|base| base.median);
        let MetricOutcome { unit, better, difference, .. } = figures;
        Change {
            arm: &arm.name,
            base: &base.name,
            metric,
            unit,
            better: *better,
            values: figures.median.zip(base_value),
            ratio: figures.ratio.filter(|ratio| ratio.is_finite() && *ratio > 0.0),
            low: figures.low,
            high: figures.high,
            difference: *difference,
            words: Words::new(metric, unit, *better, difference.is_some()),
        }
    }

    /// True if the sentence needs the figure's name before it.
    ///
    /// - `is_one_of_several`: other figures are judged, too.
    pub(super) fn needs_label(&self, is_one_of_several: bool) -> bool {
        let is_speed = self.words.worse == "slower";
        !self.words.names_figure && (is_one_of_several || !is_speed)
    }

    /// ` CPU per packet`, where the sentence names the figure.
    fn noun(&self) -> String {
        if self.words.names_figure { format!(" {}", self.label()) } else { String::new() }
    }

    pub(super) fn label(&self) -> String {
        wording::metric(self.metric)
    }

    /// `: 1,240 requests/s in place of 1,550`. Empty where the medians of all trials lie the other way round than the pairs
    /// of each block, as they may beside work that comes and goes.
    fn values(&self) -> String {
        let (values, ratio) = (self.values, self.ratio);
        let values = values
            .filter(|(new, old)| agrees(*new, *old, ratio))
            .map(|(new, old)| both_values(new, old, self.unit));
        values.map_or(String::new(), |values| format!(": {values}"))
    }

    /// ` (95 %: 17 to 23 % slower)`.
    fn interval(&self) -> String {
        let said = match (&self.difference, self.low) {
            (Some(difference), _) => difference.low.zip(difference.high).map(|(low, high)| {
                let (low, high) = (low.abs().min(high.abs()), low.abs().max(high.abs()));
                format!("{} to {}", figure(low), figure(high))
            }),
            (None, Some(low)) if low > 0.0 => Some(range(low, self.high, self.better, &self.words)),
            _ => None,
        };
        said.map_or(String::new(), |said| format!(" (95 %: {said})"))
    }

    /// `new is 20 % slower than old: 1,240 requests/s in place of 1,550 (95 %: 17 to 23 % slower)`.
    ///
    /// - `is_worse_by_verdict`: its direction where the figures show none.
    pub(super) fn differs(&self, is_worse_by_verdict: bool) -> String {
        let Words { verb, worse, better, .. } = self.words;
        let (arm, base, noun) = (self.arm, self.base, self.noun());
        let rest = format!("{}{}", self.values(), self.interval());
        let word = if is_worse_by_verdict { worse } else { better };
        if let Some(difference) = &self.difference {
            let count = figure(difference.mean.abs());
            return format!("{arm} {verb} {count} {word} a trial than {base}{rest}");
        }
        match self.ratio {
            // "3 times more" has two meanings.
            Some(ratio) if self.words.names_figure && ratio >= 2.0 => {
                format!("{arm} {verb} {} times the{noun} of {base}{rest}", figure(ratio))
            }
            Some(ratio) if self.words.names_figure => {
                let share = percent((1.0 - ratio).abs());
                format!("{arm} {verb} {share} {word}{noun} than {base}{rest}")
            }
            Some(ratio) => format!("{arm} {verb} {} {word} than {base}{rest}", amount(ratio)),
            None => format!("{arm} {verb} {word}{noun} than {base}{rest}"),
        }
    }

    /// `new is no slower than old: at most 1.4 % (asked: 2 %)`.
    pub(super) fn no_worse(&self, threshold: f64) -> String {
        let Words { verb, worse, .. } = self.words;
        let (arm, base, noun) = (self.arm, self.base, self.noun());
        let asked = percent(threshold - 1.0);
        format!("{arm} {verb} no {worse}{noun} than {base}{} (asked: {asked})", self.at_worst())
    }

    /// `: at most 1.4 %`.
    fn at_worst(&self) -> String {
        let Words { worse, better, .. } = self.words;
        if let Some(difference) = &self.difference {
            let end = match self.better {
                Better::Lower => difference.high,
                Better::Higher => difference.low.map(|low| -low),
            };
            return match end {
                Some(end) if end > 0.0 => format!(": at most {} {worse} a trial", figure(end)),
                Some(end) if end < 0.0 => format!(": at least {} {better} a trial", figure(-end)),
                _ => ": none in either".to_owned(),
            };
        }
        let end = match self.better {
            Better::Lower => self.high,
            Better::Higher => self.low,
        };
        match end {
            None => String::new(),
            Some(1.0) => ": equal".to_owned(),
            Some(end) if is_worse(end, self.better) => format!(": at most {}", amount(end)),
            Some(end) => format!(": at least {} {better}", amount(end)),
        }
    }

    /// `new is no slower and no faster than old: between 1 % faster and 2 % slower (asked: 5 %)`.
    pub(super) fn equal(&self, threshold: f64) -> String {
        let Words { verb, worse, better, .. } = self.words;
        let (arm, base, noun) = (self.arm, self.base, self.noun());
        let range = self.range().map_or(String::new(), |range| format!(": {range}"));
        let asked = percent(threshold - 1.0);
        format!("{arm} {verb} no {worse} and no {better}{noun} than {base}{range} (asked: {asked})")
    }

    fn range(&self) -> Option<String> {
        if let Some(difference) = &self.difference {
            let (low, high) = difference.low.zip(difference.high)?;
            let (good, bad) = if self.better == Better::Lower { (low, high) } else { (high, low) };
            let (good, bad) = (self.count_with_side(good), self.count_with_side(bad));
            return Some(format!("between {good} and {bad} a trial"));
        }
        let low = self.low.filter(|low| *low > 0.0)?;
        Some(range(low, self.high, self.better, &self.words))
    }

    /// `3 more`.
    fn count_with_side(&self, count: f64) -> String {
        let is_worse = (count > 0.0) == (self.better == Better::Lower);
        let word = if is_worse { self.words.worse } else { self.words.better };
        format!("{} {word}", figure(count.abs()))
    }

    /// `new is between 12 % faster and 9 % slower`; `None` without an interval.
    pub(super) fn between(&self) -> Option<String> {
        let range = self.range()?;
        Some(format!("{} {} {range}{}", self.arm, self.words.verb, self.noun()))
    }

    /// The largest improvement that the interval allows, as a ratio; `None` if it allows none.
    pub(super) fn gain_at_most(&self) -> Option<f64> {
        let end = match self.better {
            Better::Lower => self.low,
            Better::Higher => self.high,
        };
        end.filter(|end| *end > 0.0 && *end != 1.0 && !is_worse(*end, self.better))
    }

    /// The ratio for the worse as an amount: `2.6 times`; a count for a difference.
    pub(super) fn amount(&self) -> Option<String> {
        match &self.difference {
            Some(difference) => Some(figure(difference.mean.abs())),
            None => self.ratio.map(|ratio| self.words.amount(ratio)),
        }
    }

    /// How much better it is, for a comparison of arms: above 1 is better.
    pub(super) fn improvement(&self) -> f64 {
        match (self.ratio, self.better) {
            (Some(ratio), Better::Lower) => 1.0 / ratio,
            (Some(ratio), Better::Higher) => ratio,
            (None, _) => 0.0,
        }
    }

    /// `1.9 µs in place of 10.4`.
    pub(super) fn in_place(&self) -> Option<String> {
        self.values.map(|(new, old)| both_values(new, old, self.unit))
    }

    /// `5.3 times faster (95 %: 4.9 to 5.6 times faster)`, `74 % less`.
    pub(super) fn gain(&self, ends: (Option<f64>, Option<f64>)) -> Option<String> {
        if let Some(difference) = &self.difference {
            let count = figure(difference.mean.abs());
            return Some(format!("{count} {} a trial", self.words.better));
        }
        let amount = self.words.amount(self.ratio?);
        let interval = ends.0.filter(|low| *low > 0.0).map_or(String::new(), |low| {
            let said = range(low, ends.1, self.better, &self.words);
            let said = said.strip_suffix(self.words.better).map(str::trim_end).unwrap_or(&said);
            format!(" (95 %: {said})")
        });
        Some(format!("{amount} {}{interval}", self.words.better))
    }

    pub(super) fn words(&self) -> &Words {
        &self.words
    }

    pub(super) fn better(&self) -> Better {
        self.better
    }

    pub(super) fn ratio(&self) -> Option<f64> {
        self.ratio
    }

    pub(super) fn is_time(&self) -> bool {
        matches!(self.unit, "ns" | "us" | "ms" | "s") && !self.words.names_figure
    }
}
