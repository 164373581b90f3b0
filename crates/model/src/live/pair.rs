//! Two periods, and the difference between them.

use super::{LiveArm, LiveFigure, LiveScale};
use crate::Better;

/// Figures of one period, as the caller measured it.
#[derive(Debug, Clone, PartialEq)]
pub struct LivePeriod {
    /// The arm that [`LiveStep`](super::LiveStep) asked for.
    pub arm: LiveArm,
    /// By figure, over the time from the end of the wash-out to `end_ns`; `None` without a value.
    pub values: Vec<Option<f64>>,
    /// The same over the first and the second half of that time.
    pub halves: [Vec<Option<f64>>; 2],
    /// Requests over that time.
    pub request_count: u64,
    /// Reason of the guard that ended the period. It counts as the worst in either arm: without tripped on-periods, the
    /// setting looked better than it is in up to 32 % of simulated runs.
    pub trip: Option<String>,
    /// Begin of the act of switching, on the caller's clock.
    pub start_ns: u64,
    /// Time that the act took.
    pub act_ns: u64,
    /// End of the period.
    pub end_ns: u64,
}

impl LivePeriod {
    /// True if no request came. A tripped period is not: its requests waited.
    fn is_silent(&self) -> bool {
        self.request_count == 0 && self.trip.is_none()
    }
}

/// An on-period and an off-period.
#[derive(Debug, Clone)]
pub(super) struct Pair {
    pub(super) first: LiveArm,
    pub(super) on: LivePeriod,
    pub(super) off: LivePeriod,
}

impl Pair {
    pub(super) fn new(first: LivePeriod, second: LivePeriod) -> Self {
        match first.arm {
            LiveArm::On => Pair { first: LiveArm::On, on: first, off: second },
            LiveArm::Off => Pair { first: LiveArm::Off, on: second, off: first },
        }
    }

    /// True if either period had no request: the pair is left out.
    pub(super) fn is_silent(&self) -> bool {
        self.on.is_silent() || self.off.is_silent()
    }

    pub(super) fn silent_arms(&self) -> impl Iterator<Item = LiveArm> {
        [&self.on, &self.off]
            .into_iter()
            .filter(|period| period.is_silent())
            .map(|period| period.arm)
    }

    pub(super) fn has_trip(&self) -> bool {
        self.on.trip.is_some() || self.off.trip.is_some()
    }

    pub(super) fn end_ns(&self) -> u64 {
        self.on.end_ns.max(self.off.end_ns)
    }

    /// On less off, on the figure's scale; infinite if exactly one period tripped. `None` if the pair is left out.
    pub(super) fn difference(&self, index: usize, figure: &LiveFigure) -> Option<f64> {
        if self.is_silent() {
            return None;
        }
        let worst = match figure.better {
            Better::Lower => f64::INFINITY,
            Better::Higher => f64::NEG_INFINITY,
        };
        match (self.on.trip.is_some(), self.off.trip.is_some()) {
            (true, true) => Some(0.0),
            (true, false) => Some(worst),
            (false, true) => Some(-worst),
            (false, false) => difference(
                value(&self.on.values, index)?,
                value(&self.off.values, index)?,
                figure.scale,
            ),
        }
    }

    /// The same for the first and the second half of the periods; `None` also if a period tripped.
    pub(super) fn half_differences(&self, index: usize, figure: &LiveFigure) -> Option<[f64; 2]> {
        if self.is_silent() || self.has_trip() {
            return None;
        }
        let [first, second] = [0, 1].map(|half: usize| {
            let on = value(&self.on.halves[half], index)?;
            difference(on, value(&self.off.halves[half], index)?, figure.scale)
        });
        Some([first?, second?])
    }

    /// Mean of the two values; `None` if one is missing.
    pub(super) fn level(&self, index: usize) -> Option<f64> {
        Some((value(&self.on.values, index)? + value(&self.off.values, index)?) / 2.0)
    }
}

/// `None` also for values that no figure has.
fn value(values: &[Option<f64>], index: usize) -> Option<f64> {
    values.get(index).copied().flatten().filter(is_figure)
}

/// False for values that no figure has.
pub(super) fn is_figure(value: &f64) -> bool {
    value.is_finite() && *value >= 0.0
}

/// On less off on a scale. Of a ratio, 0 is the least value of its pair.
pub(super) fn difference(on: f64, off: f64, scale: LiveScale) -> Option<f64> {
    match scale {
        _ if on == off => Some(0.0),
        LiveScale::Ratio => Some(on.ln() - off.ln()),
        LiveScale::Count => Some(on - off),
    }
}
