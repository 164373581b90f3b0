//! Overlaid lines, one an arm: the tail of the latencies, and the trials in time.

use model::{ArmKind, ArmOutcome, Outcome};
use plotters::style::RGBColor;

use super::escape;
use super::svg::{self, At, Canvas, GRID, INK, LINES, MUTED, Page, Scale};
use crate::{units, words};

const TOP: f64 = 14.0;
const BOTTOM: f64 = 46.0;

/// One arm's line.
struct Line<'a> {
    arm: &'a ArmOutcome,
    number: usize,
    color: RGBColor,
    /// Stretches without a gap.
    points: Vec<Vec<(f64, f64)>>,
}

/// Colour of the arm at this place: ink for the baseline, grey for its control.
fn color(outcome: &Outcome, place: usize) -> RGBColor {
    match outcome.arms[place].kind {
        ArmKind::Baseline => INK,
        ArmKind::Control => MUTED,
        _ => {
            let before = outcome.arms[..place]
                .iter()
                .filter(|arm| matches!(arm.kind, ArmKind::Variant | ArmKind::Peer));
            LINES[before.count() % LINES.len()]
        }
    }
}

fn lines<'a>(
    outcome: &'a Outcome,
    points: impl Fn(&ArmOutcome) -> Vec<Vec<(f64, f64)>>,
) -> Vec<Line<'a>> {
    let lines = outcome.arms.iter().enumerate().map(|(place, arm)| Line {
        arm,
        number: place + 1,
        color: color(outcome, place),
        points: points(arm),
    });
    lines.filter(|line| line.points.iter().any(|stretch| !stretch.is_empty())).collect()
}

/// Segments of which there are distributions, the one that is judged first.
pub(super) fn segments(outcome: &Outcome) -> Vec<String> {
    let mut names: Vec<String> =
        outcome.arms.iter().flat_map(|arm| arm.latency.keys().cloned()).collect();
    names.sort();
    names.dedup();
    let judged = outcome.judged.first().map_or("", String::as_str);
    names.sort_by_key(|name| !judged.starts_with(name.as_str()));
    names
}

/// The share of samples that took longer, over the latency; both logarithmic.
pub(super) fn tail(outcome: &Outcome, segment: &str, id: &str) -> Option<String> {
    let lines = lines(outcome, |arm| {
        let Some(distribution) = arm.latency.get(segment) else { return Vec::new() };
        let points = distribution.quantiles.iter();
        vec![
            points
                .filter(|(quantile, ns)| (0.0..1.0).contains(quantile) && *ns > 0)
                .map(|&(quantile, ns)| (ns as f64, 1.0 - quantile))
                .collect(),
        ]
    });
    let all = || lines.iter().flat_map(|line| line.points.iter().flatten());
    let rarest = all().map(|(_, beyond)| *beyond).fold(f64::INFINITY, f64::min);
    if !rarest.is_finite() {
        return None;
    }
    let title = format!("{segment}: share of samples slower than a latency");
    let mut description = String::from("By arm: ");
    for line in &lines {
        let Some(d) = line.arm.latency.get(segment) else { continue };
        let quantile = |wanted: f64| {
            let found = d.quantiles.iter().find(|(q, _)| *q >= wanted - 1e-9);
            found.map_or("not known".into(), |(_, ns)| units::value(*ns as f64, "ns"))
        };
        description.push_str(&format!(
            "{}: median {}, p99 {}, longest {}, {} samples. ",
            line.arm.name,
            quantile(0.5),
            quantile(0.99),
            units::value(d.max_ns as f64, "ns"),
            units::grouped(d.count as i64)
        ));
    }
    let height = |page| if page == Page::Wide { 430.0 } else { 340.0 };
    let paint = |canvas: &Canvas<'_>, page: Page| {
        let frame = Frame::of(page, height(page));
        let latencies = all().map(|(ns, _)| *ns);
        let Some(x) = Scale::over(latencies, (frame.left, frame.right), 1.0001) else { return };
        let y = Scale::log(rarest.min(0.1), 1.0, (frame.bottom, frame.top));
        let (step, unit) = units::step(x.middle(), "ns");
        frame.grid(canvas, (&x, &|ns| plain(ns / step)), (&y, &|beyond| plain(beyond * 100.0)));
        let across = format!("{segment} latency ({unit}, log)");
        frame.titles(canvas, &across, "samples slower than that (%, log)");
        draw(canvas, &lines, &x, &y);
    };
    let figure = svg::figure(id, &title, &description, height, paint);
    Some(figure + &legend(&lines))
}

/// Each trial's value of a metric, in block order.
pub(super) fn series(outcome: &Outcome, name: &str, id: &str) -> Option<String> {
    let lines = lines(outcome, |arm| {
        let Some(metric) = arm.metrics.get(name) else { return Vec::new() };
        let mut stretches = vec![Vec::new()];
        for (block, value) in metric.trials.iter().enumerate() {
            match (value.filter(|v| v.is_finite()), stretches.last_mut()) {
                (Some(value), Some(stretch)) => stretch.push((block as f64 + 1.0, value)),
                _ => stretches.push(Vec::new()),
            }
        }
        stretches
    });
    let all = || lines.iter().flat_map(|line| line.points.iter().flatten());
    let last = all().map(|(block, _)| *block).fold(0.0, f64::max);
    if last < 2.0 {
        return None;
    }
    let unit = words::shape(outcome, name)?.unit.clone();
    let label = words::metric(name);
    let title = format!("{label} of each trial, in the order of blocks");
    let mut description = String::from("Lowest and highest trial by arm: ");
    for line in &lines {
        let values = || line.points.iter().flatten().map(|(_, v)| *v);
        description.push_str(&format!(
            "{}: {} to {}. ",
            line.arm.name,
            units::value(values().fold(f64::INFINITY, f64::min), &unit),
            units::value(values().fold(f64::NEG_INFINITY, f64::max), &unit)
        ));
    }
    let height = |page| if page == Page::Wide { 360.0 } else { 320.0 };
    let paint = |canvas: &Canvas<'_>, page: Page| {
        let frame = Frame::of(page, height(page));
        let blocks = [1.0, last].into_iter();
        let Some(x) = Scale::over(blocks, (frame.left, frame.right), f64::INFINITY) else { return };
        let values = all().map(|(_, value)| *value);
        let Some(y) = Scale::over(values, (frame.bottom, frame.top), 6.0) else { return };
        let whole = |block: f64| match block.fract().abs() < 1e-9 && block >= 1.0 {
            true => format!("{block:.0}"),
            false => String::new(),
        };
        let (step, unit) = units::step(y.middle(), &unit);
        frame.grid(canvas, (&x, &whole), (&y, &|v| plain(v / step)));
        let log = if y.is_log() { ", log" } else { "" };
        frame.titles(canvas, "block (count, in order of time)", &format!("{label} ({unit}{log})"));
        draw(canvas, &lines, &x, &y);
    };
    let figure = svg::figure(id, &title, &description, height, paint);
    Some(figure + &legend(&lines))
}

fn draw(canvas: &Canvas<'_>, lines: &[Line<'_>], x: &Scale, y: &Scale) {
    for line in lines {
        let width = if line.arm.kind == ArmKind::Baseline { 2.25 } else { 1.5 };
        for stretch in &line.points {
            let pixels: Vec<_> = stretch.iter().map(|&(a, b)| (x.at(a), y.at(b))).collect();
            match pixels[..] {
                [single] => canvas.dot(single, 2.0, line.color),
                _ => canvas.line(pixels, line.color, width),
            }
        }
    }
    // After all lines and staggered along them, so that tags stay readable.
    for (i, line) in lines.iter().enumerate() {
        let points: Vec<_> = line.points.iter().flatten().collect();
        let share = (i as f64 + 0.7) / (lines.len() as f64 + 0.4);
        let place = (share * (points.len() - 1) as f64).round() as usize;
        if let Some(&&(a, b)) = points.get(place) {
            canvas.tag(line.number, (x.at(a), y.at(b)), line.color);
        }
    }
}

fn legend(lines: &[Line<'_>]) -> String {
    let mut out = String::from("<ul class=\"legend\" aria-label=\"lines\">");
    for line in lines {
        out.push_str(&format!(
            "<li><svg viewBox=\"0 0 16 16\" aria-hidden=\"true\"><circle cx=\"8\" cy=\"8\" r=\"8\" \
             fill=\"{}\"/><circle cx=\"8\" cy=\"8\" r=\"6.5\" fill=\"{}\"/></svg><b>{}</b>{}</li>",
            svg::hex(line.color),
            svg::hex(svg::GROUND),
            line.number,
            escape(&line.arm.name)
        ));
    }
    out + "</ul>"
}

/// A round number without idle zeros: `1000`, `10`, `0.001`.
fn plain(value: f64) -> String {
    let places = (3.0 - value.abs().max(1e-9).log10()).clamp(0.0, 9.0) as usize;
    let text = format!("{value:.places$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').into(),
        false => text,
    }
}

/// The plot's own area.
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    wide: bool,
}

/// A scale, and how its values are written.
type Axis<'a> = (&'a Scale, &'a dyn Fn(f64) -> String);

impl Frame {
    fn of(page: Page, height: f64) -> Self {
        let wide = page == Page::Wide;
        let (left, right) = if wide { (96.0, 844.0) } else { (76.0, 332.0) };
        Frame { left, right, top: TOP, bottom: height - BOTTOM, wide }
    }

    fn grid(&self, canvas: &Canvas<'_>, (x, x_text): Axis<'_>, (y, y_text): Axis<'_>) {
        for tick in x.ticks(if self.wide { 9 } else { 4 }) {
            let at = x.at(tick);
            canvas.line(vec![(at, self.top), (at, self.bottom)], GRID, 1.0);
            canvas.text(&x_text(tick), (at, self.bottom + 13.0), 11.0, MUTED, At::Middle);
        }
        for tick in y.ticks(7) {
            let at = y.at(tick);
            canvas.line(vec![(self.left, at), (self.right, at)], GRID, 1.0);
            canvas.text(&y_text(tick), (self.left - 8.0, at), 11.0, MUTED, At::End);
        }
        let corner =
            vec![(self.left, self.top), (self.left, self.bottom), (self.right, self.bottom)];
        canvas.line(corner, MUTED, 1.0);
    }

    fn titles(&self, canvas: &Canvas<'_>, x: &str, y: &str) {
        let middle = ((self.left + self.right) / 2.0, self.bottom + 33.0);
        canvas.text(x, middle, 11.5, MUTED, At::Middle);
        canvas.upright(y, (11.0, (self.top + self.bottom) / 2.0), 11.5, MUTED);
    }
}
