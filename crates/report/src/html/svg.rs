//! A canvas over plotters' SVG backend: scales, ticks, and a text alternative.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::escape;

/// Backend pixels per pixel of the page: the backend knows whole pixels only, and
/// a curve drawn on those would show steps.
const FINE: f64 = 4.0;

// Colours of the light page. The style sheet finds them by value to turn them
// for a dark one, so each must differ from all others.
/// Text and the baseline.
pub(super) const INK: RGBColor = RGBColor(0x1C, 0x24, 0x30);
/// Axis texts.
pub(super) const MUTED: RGBColor = RGBColor(0x5C, 0x66, 0x73);
/// Grid lines.
pub(super) const GRID: RGBColor = RGBColor(0xE2, 0xE6, 0xEB);
/// The noise floor's band.
pub(super) const FLOOR: RGBColor = RGBColor(0xC9, 0xD6, 0xE6);
/// The ground that the chart lies on.
pub(super) const GROUND: RGBColor = RGBColor(0xFF, 0xFF, 0xFE);
/// Better.
pub(super) const GOOD: RGBColor = RGBColor(0x1A, 0x7F, 0x4B);
/// Worse.
pub(super) const BAD: RGBColor = RGBColor(0xC0, 0x39, 0x2B);
/// Neither shown.
pub(super) const DOUBT: RGBColor = RGBColor(0x96, 0x5C, 0x0A);

/// Lines of arms: readable on light and dark ground alike.
pub(super) const LINES: [RGBColor; 12] = [
    RGBColor(0x3B, 0x6F, 0xD4),
    RGBColor(0x0F, 0x8F, 0xA8),
    RGBColor(0x1D, 0x9A, 0x6C),
    RGBColor(0x6F, 0x93, 0x1D),
    RGBColor(0xB0, 0x85, 0x12),
    RGBColor(0xD9, 0x77, 0x2B),
    RGBColor(0xD4, 0x50, 0x4A),
    RGBColor(0xC2, 0x47, 0x8F),
    RGBColor(0x8F, 0x5B, 0xD0),
    RGBColor(0x66, 0x75, 0xA8),
    RGBColor(0x8A, 0x6D, 0x57),
    RGBColor(0x4F, 0x9B, 0xD9),
];

/// `#rrggbb`, as the backend writes it.
pub(super) fn hex(color: RGBColor) -> String {
    format!("#{:02X}{:02X}{:02X}", color.0, color.1, color.2)
}

/// Where a text stands relative to its point.
#[derive(Clone, Copy)]
pub(super) enum At {
    /// To the right of it.
    Start,
    /// Around it.
    Middle,
    /// To the left of it.
    End,
}

/// For which pages a drawing is made; the style sheet shows the one that fits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Page {
    /// A desktop, and paper.
    Wide,
    /// A telephone.
    Narrow,
}

impl Page {
    pub(super) fn width(self) -> f64 {
        match self {
            Page::Wide => 860.0,
            Page::Narrow => 340.0,
        }
    }

    fn class(self) -> &'static str {
        match self {
            Page::Wide => "wide",
            Page::Narrow => "narrow",
        }
    }
}

/// A drawing in pixels of the page.
pub(super) struct Canvas<'a>(DrawingArea<SVGBackend<'a>, Shift>);

fn fine((x, y): (f64, f64)) -> (i32, i32) {
    // A point off by light years must not wrap around.
    let clamp = |v: f64| (v * FINE).round().clamp(-1e6, 1e6) as i32;
    (clamp(x), clamp(y))
}

impl Canvas<'_> {
    pub(super) fn line(&self, points: Vec<(f64, f64)>, color: RGBColor, width: f64) {
        let style = color.stroke_width((width * FINE) as u32);
        let points: Vec<_> = points.into_iter().map(fine).collect();
        drawn(self.0.draw(&PathElement::new(points, style)));
    }

    pub(super) fn rect(&self, from: (f64, f64), to: (f64, f64), color: RGBColor) {
        drawn(self.0.draw(&Rectangle::new([fine(from), fine(to)], color.filled())));
    }

    pub(super) fn dot(&self, at: (f64, f64), radius: f64, color: RGBColor) {
        drawn(self.0.draw(&Circle::new(fine(at), radius * FINE, color.filled())));
    }

    pub(super) fn text(&self, text: &str, at: (f64, f64), size: f64, color: RGBColor, side: At) {
        self.any_text(text, at, size, color, side, FontTransform::None);
    }

    /// Read from below to above, for the title of an upright axis.
    pub(super) fn upright(&self, text: &str, at: (f64, f64), size: f64, color: RGBColor) {
        self.any_text(text, at, size, color, At::Middle, FontTransform::Rotate270);
    }

    fn any_text(
        &self,
        text: &str,
        at: (f64, f64),
        size: f64,
        color: RGBColor,
        side: At,
        turn: FontTransform,
    ) {
        let horizontal = match side {
            At::Start => HPos::Left,
            At::Middle => HPos::Center,
            At::End => HPos::Right,
        };
        // The backend divides sizes by 1.24, to match other backends' fonts.
        let font = ("sans-serif", size * FINE * 1.24).into_font().transform(turn);
        let style = TextStyle::from(font).pos(Pos::new(horizontal, VPos::Center)).color(&color);
        drawn(self.0.draw(&Text::new(text.to_string(), fine(at), style)));
    }

    /// A number in a small disc, to tell one line from another without colour.
    pub(super) fn tag(&self, number: usize, at: (f64, f64), color: RGBColor) {
        self.dot(at, 7.5, color);
        self.dot(at, 6.3, GROUND);
        self.text(&number.to_string(), at, 9.0, INK, At::Middle);
    }
}

/// The SVG backend writes to a string and has nothing to fail at; should it ever,
/// the page still has every figure in its tables.
fn drawn<E>(_: Result<(), E>) {}

/// One figure: the drawing for a wide page and the one for a narrow page, with a
/// title and a text alternative.
pub(super) fn figure(
    id: &str,
    title: &str,
    description: &str,
    height: impl Fn(Page) -> f64,
    paint: impl Fn(&Canvas<'_>, Page),
) -> String {
    let mut out = String::new();
    for page in [Page::Wide, Page::Narrow] {
        let size = (page.width() * FINE, height(page) * FINE);
        let mut svg = String::new();
        {
            let backend = SVGBackend::with_string(&mut svg, (size.0 as u32, size.1 as u32));
            let area = backend.into_drawing_area();
            paint(&Canvas(area.clone()), page);
            drawn(area.present());
        }
        // The backend's own opening tag has a fixed size and no names.
        let body = svg.split_once('>').map_or("", |(_, body)| body);
        let (class, id) = (page.class(), format!("{id}-{}", page.class()));
        out.push_str(&format!(
            "<svg class=\"{class}\" viewBox=\"0 0 {} {}\" role=\"img\" \
             aria-labelledby=\"{id}-t {id}-d\" xmlns=\"http://www.w3.org/2000/svg\">\n\
             <title id=\"{id}-t\">{}</title>\n<desc id=\"{id}-d\">{}</desc>\n{body}",
            size.0,
            size.1,
            escape(title),
            escape(description)
        ));
    }
    out
}

/// A tick's text without idle zeros: `0.0500×` → `0.05×`, `10.0 µs` → `10 µs`.
pub(super) fn trimmed(text: &str) -> String {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    match number.contains('.') {
        true => format!("{}{unit}", number.trim_end_matches('0').trim_end_matches('.')),
        false => text.into(),
    }
}

/// Values that are farther from zero are drawn here, and those nearer to it at the inverse: what is
/// computed of them stays finite.
const FARTHEST: f64 = 1e100;

/// From values to pixels, straight or logarithmic.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    log: bool,
    from: f64,
    to: f64,
}

impl Scale {
    /// `values` → `from..to` pixels, with some room at both ends; logarithmic when
    /// all are above zero and they span more than `log_from` times.
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

    /// Whether it is logarithmic.
    pub(super) fn is_log(&self) -> bool {
        self.log
    }

    /// The value half-way along.
    pub(super) fn middle(&self) -> f64 {
        if self.log { (self.low * self.high).sqrt() } else { (self.low + self.high) / 2.0 }
    }

    /// Pixels of a value; ends are not passed.
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
    fn a_scale_of_any_values_has_few_finite_ticks_and_places_them() {
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
    fn a_scale_of_one_value_or_of_none_divides_by_nothing() {
        let scale = Scale::over([0.0].into_iter(), (0.0, 100.0), 3.0).unwrap();
        assert!(scale.at(0.0).is_finite());
        assert!(Scale::over([f64::NAN].into_iter(), (0.0, 1.0), 3.0).is_none());
    }
}
