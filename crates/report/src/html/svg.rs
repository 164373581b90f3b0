//! A small SVG pen: lines, rectangles, discs and texts; scales and ticks.

use std::fmt::Write;

use maud::{Markup, PreEscaped, html};

use crate::screen::Tone;

// Colours of the light page. The style sheet replaces them by value for a dark page, so each must
// differ from all others.
/// Text and the baseline.
pub(super) const INK: &str = "#1C2430";
/// Axis texts.
pub(super) const MUTED: &str = "#5C6673";
/// Grid lines.
pub(super) const GRID: &str = "#E2E6EB";
/// Band of the noise floor.
pub(super) const FLOOR: &str = "#C9D6E6";
/// Background of a chart.
pub(super) const GROUND: &str = "#FFFFFE";
const GOOD: &str = "#1A7F4B";
const BAD: &str = "#C0392B";
const DOUBT: &str = "#965C0A";

/// Lines of arms: readable on light and dark ground.
pub(super) const LINES: [&str; 12] = [
    "#3B6FD4", "#0F8FA8", "#1D9A6C", "#6F931D", "#B08512", "#D9772B", "#D4504A", "#C2478F",
    "#8F5BD0", "#6675A8", "#8A6D57", "#4F9BD9",
];

pub(super) fn color(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain | Tone::Strong => INK,
        Tone::Dim => MUTED,
        Tone::Good => GOOD,
        Tone::Bad => BAD,
        Tone::Doubt => DOUBT,
    }
}

/// Side of its point that a text begins or ends at.
#[derive(Clone, Copy)]
pub(super) enum At {
    /// To the right of it.
    Start,
    /// Around it.
    Middle,
    /// To the left of it.
    End,
}

/// Page that a drawing is made for; the style sheet shows the one that fits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Page {
    /// A desktop, and paper.
    Wide,
    /// A telephone.
    Narrow,
}

impl Page {
    pub(super) fn width(self) -> f64 {
        self.pick([860.0, 340.0])
    }

    fn class(self) -> &'static str {
        self.pick(["wide", "narrow"])
    }

    /// One of two values: that of a wide page, and that of a narrow one.
    pub(super) fn pick<T>(self, [wide, narrow]: [T; 2]) -> T {
        match self {
            Page::Wide => wide,
            Page::Narrow => narrow,
        }
    }
}

/// A drawing in pixels of the page.
pub(super) struct Canvas(String);

/// A coordinate; values far outside the drawing must not end up as `NaN` or with an exponent.
fn px(value: f64) -> String {
    if !value.is_finite() {
        return "0".into();
    }
    format!("{:.1}", value.clamp(-1e5, 1e5))
}

impl Canvas {
    fn add(&mut self, element: Markup) {
        self.0.push_str(&element.0);
    }

    pub(super) fn line(&mut self, points: &[(f64, f64)], color: &str, width: f64) {
        let mut list = String::new();
        for (x, y) in points {
            let _ = write!(list, "{},{} ", px(*x), px(*y));
        }
        let list = list.trim_end();
        self.add(
            html! { polyline fill="none" stroke=(color) stroke-width=(width) points=(list) {} },
        );
    }

    pub(super) fn rect(&mut self, from: (f64, f64), to: (f64, f64), color: &str) {
        let size = (px(to.0 - from.0), px(to.1 - from.1));
        self.add(html! {
            rect x=(px(from.0)) y=(px(from.1)) width=(size.0) height=(size.1) fill=(color) {}
        });
    }

    pub(super) fn dot(&mut self, at: (f64, f64), radius: f64, color: &str) {
        self.add(html! { circle cx=(px(at.0)) cy=(px(at.1)) r=(radius) fill=(color) {} });
    }

    pub(super) fn text(&mut self, text: &str, at: (f64, f64), size: f64, color: &str, side: At) {
        self.any_text(text, at, size, color, side, None);
    }

    /// Text that is read from bottom to top, for the title of a vertical axis.
    pub(super) fn upright(&mut self, text: &str, at: (f64, f64), size: f64, color: &str) {
        let turn = format!("rotate(270,{},{})", px(at.0), px(at.1));
        self.any_text(text, at, size, color, At::Middle, Some(&turn));
    }

    fn any_text(
        &mut self,
        text: &str,
        at: (f64, f64),
        size: f64,
        color: &str,
        side: At,
        turn: Option<&str>,
    ) {
        let anchor = match side {
            At::Start => "start",
            At::Middle => "middle",
            At::End => "end",
        };
        self.add(html! {
            text x=(px(at.0)) y=(px(at.1)) dy="0.35em" font-size=(size) fill=(color)
                text-anchor=(anchor) transform=[turn] { (text) }
        });
    }

    /// A number in a small disc, to tell lines apart without colour.
    pub(super) fn tag(&mut self, number: usize, at: (f64, f64), color: &str) {
        self.dot(at, 7.5, color);
        self.dot(at, 6.3, GROUND);
        self.text(&number.to_string(), at, 9.0, INK, At::Middle);
    }
}

/// Returns the drawing for a wide page and that for a narrow page, with title and text alternative.
pub(super) fn figure(
    id: &str,
    title: &str,
    description: &str,
    heights: [f64; 2],
    paint: impl Fn(&mut Canvas, Page),
) -> Markup {
    let drawings = [Page::Wide, Page::Narrow].map(|page| {
        let mut canvas = Canvas(String::new());
        paint(&mut canvas, page);
        let (class, id) = (page.class(), format!("{id}-{}", page.class()));
        let size = format!("0 0 {} {}", page.width(), page.pick(heights));
        html! {
            svg class=(class) viewBox=(size) role="img" aria-labelledby={ (id) "-t " (id) "-d" }
                xmlns="http://www.w3.org/2000/svg" {
                title id={ (id) "-t" } { (title) }
                desc id={ (id) "-d" } { (description) }
                (PreEscaped(canvas.0))
            }
        }
    });
    html! { @for drawing in drawings { (drawing) } }
}

/// Text of a tick without trailing zeros: `0.0500×` → `0.05×`, `10.0 µs` → `10 µs`.
pub(super) fn trimmed(text: &str) -> String {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    if number.contains('.') {
        format!("{}{unit}", number.trim_end_matches('0').trim_end_matches('.'))
    } else {
        text.into()
    }
}

/// Largest magnitude that is drawn, and the inverse of the smallest: computations with values beyond
/// stay finite.
const FARTHEST: f64 = 1e100;

/// Map from values to pixels, linear or logarithmic.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    log: bool,
    from: f64,
    to: f64,
}

impl Scale {
    /// Maps `values` to `from..to` pixels with some room at both ends; logarithmic if all are above
    /// zero and span more than a factor of `log_from`. `None` without a finite value.
    pub(super) fn over(
        values: impl Iterator<Item = f64>,
        (from, to): (f64, f64),
        log_from: f64,
    ) -> Option<Self> {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|v| v.is_finite()) {
            let size = value.abs().clamp(1.0 / FARTHEST, FARTHEST);
            let value = if value == 0.0 { 0.0 } else { size.copysign(value) };
            (low, high) = (low.min(value), high.max(value));
        }
        if low > high {
            return None;
        }
        let log = low > 0.0 && high / low > log_from;
        if log {
            let room = (high / low).powf(0.04);
            (low, high) = (low / room, high * room);
        } else {
            let room = ((high - low) * 0.06).max(high.abs() * 0.01).max(f64::MIN_POSITIVE);
            (low, high) = (low - room, high + room);
        }
        Some(Scale { low, high, log, from, to })
    }

    /// A logarithmic scale with exact ends, both above zero.
    pub(super) fn log(low: f64, high: f64, (from, to): (f64, f64)) -> Self {
        Scale { low, high, log: true, from, to }
    }

    pub(super) fn is_log(&self) -> bool {
        self.log
    }

    /// The value half-way along.
    pub(super) fn middle(&self) -> f64 {
        if self.log { (self.low * self.high).sqrt() } else { (self.low + self.high) / 2.0 }
    }

    /// Returns the pixel of a value, never beyond the ends.
    pub(super) fn at(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// About `wanted` round values.
    pub(super) fn ticks(&self, wanted: usize) -> Vec<f64> {
        if self.log {
            let steps: [&[f64]; 4] =
                [&[1.0, 1.5, 2.0, 3.0, 5.0, 7.0], &[1.0, 2.0, 5.0], &[1.0, 3.0], &[1.0]];
            let mut ticks = Vec::new();
            for step in steps {
                ticks = self.decades(step, 1);
                if ticks.len() <= wanted {
                    break;
                }
            }
            let every = ticks.len().div_ceil(wanted.max(1)) as i32;
            if every > 1 {
                ticks = self.decades(&[1.0], every);
            }
            if ticks.len() >= 2 {
                return ticks;
            }
        }
        let rough = (self.high - self.low) / wanted.max(1) as f64;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|s| s * power).into_iter().find(|s| *s >= rough);
        let Some(step) = step.filter(|s| *s > 0.0) else { return Vec::new() };
        let first = (self.low / step).ceil();
        (0..=wanted + 1)
            .map(|i| (first + i as f64) * step)
            .filter(|tick| (self.low..=self.high).contains(tick))
            .collect()
    }

    fn decades(&self, steps: &[f64], every: i32) -> Vec<f64> {
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        (first..=last)
            .filter(|power| power % every == 0)
            .flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)))
            .filter(|tick| (self.low * 0.9999..=self.high * 1.0001).contains(tick))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within_the_scale() {
        let scale = Scale::log(1e-5, 1.0, (0.0, 100.0));
        let ticks = scale.ticks(6);
        assert_eq!(ticks.len(), 6, "{ticks:?}");
        let scale = Scale::over([0.97, 1.04].into_iter(), (0.0, 100.0), 3.0).unwrap();
        let ticks = scale.ticks(6);
        assert!(ticks.iter().any(|t| (t - 1.0).abs() < 1e-9), "{ticks:?}");
        assert!((2..=7).contains(&ticks.len()), "{ticks:?}");
        let scale = Scale::over([1.0, 1e12].into_iter(), (0.0, 100.0), 3.0).unwrap();
        assert!((2..=6).contains(&scale.ticks(6).len()), "{:?}", scale.ticks(6));
    }

    #[test]
    fn scale_of_extreme_values_has_few_finite_ticks() {
        for values in [[5e-324, f64::MAX], [1.0, f64::MAX], [f64::MIN, f64::MAX], [5e-324, 1.0]] {
            let scale = Scale::over(values.into_iter(), (0.0, 100.0), 3.0).unwrap();
            let ticks = scale.ticks(6);
            assert!((2..=7).contains(&ticks.len()), "{values:?}: {ticks:?}");
            for value in ticks.into_iter().chain(values) {
                assert!((0.0..=100.0).contains(&scale.at(value)), "{value:e} of {values:?}");
            }
        }
    }

    #[test]
    fn scale_of_one_value_or_none_does_not_divide_by_zero() {
        let scale = Scale::over([0.0].into_iter(), (0.0, 100.0), 3.0).unwrap();
        assert!(scale.at(0.0).is_finite());
        assert!(Scale::over([f64::NAN].into_iter(), (0.0, 1.0), 3.0).is_none());
    }
}
