//! Drawing of overlaid lines: tails of latencies, and trials over time.

use maud::{Markup, html};
use model::ArmKind;

use super::svg::{self, At, Canvas, GRID, INK, LINES, MUTED, Page, Scale};
use crate::page::{ChartLine, CurveChart, LineChart};
use crate::units;

const TOP: f64 = 14.0;
const BOTTOM: f64 = 46.0;

fn color(line: &ChartLine) -> &'static str {
    match line.kind {
        ArmKind::Baseline => INK,
        ArmKind::Control => MUTED,
        ArmKind::Variant | ArmKind::Peer => LINES[line.variant % LINES.len()],
    }
}

fn points(chart: &LineChart) -> impl Iterator<Item = &(f64, f64)> {
    chart.lines.iter().flat_map(|line| line.stretches.iter().flatten())
}

/// Draws shares over latencies, both logarithmic.
pub(super) fn tail(chart: &LineChart, id: &str) -> Markup {
    let rarest = points(chart).map(|(_, beyond)| *beyond).fold(f64::INFINITY, f64::min);
    let heights = [430.0, 340.0];
    with_legend(chart, id, heights, |canvas: &mut Canvas, page: Page| {
        let frame = Frame::new(page, page.pick(heights));
        let latencies = points(chart).map(|(ns, _)| *ns);
        let Some(x) = Scale::over(latencies, (frame.left, frame.right), 1.0001) else { return };
        let y = Scale::log(rarest.min(0.1), 1.0, (frame.bottom, frame.top));
        let (step, unit) = units::step(x.middle(), &chart.unit);
        frame.grid(canvas, (&x, &|ns| plain(ns / step)), (&y, &|beyond| plain(beyond * 100.0)));
        let across = format!("{} latency ({unit}, log)", chart.label);
        frame.titles(canvas, &across, "samples slower than that (%, log)");
        draw(canvas, &chart.lines, &x, &y);
    })
}

/// Draws each trial's value over its block.
pub(super) fn series(chart: &LineChart, id: &str) -> Markup {
    let last = points(chart).map(|(block, _)| *block).fold(0.0, f64::max);
    let heights = [360.0, 320.0];
    with_legend(chart, id, heights, |canvas: &mut Canvas, page: Page| {
        let frame = Frame::new(page, page.pick(heights));
        let blocks = [1.0, last].into_iter();
        let Some(x) = Scale::over(blocks, (frame.left, frame.right), f64::INFINITY) else { return };
        let values = points(chart).map(|(_, value)| *value);
        let Some(y) = Scale::over(values, (frame.bottom, frame.top), 6.0) else { return };
        let (step, unit) = units::step(y.middle(), &chart.unit);
        frame.grid(canvas, (&x, &whole_block), (&y, &|v| plain(v / step)));
        let log = if y.is_log() { ", log" } else { "" };
        let upright = format!("{} ({unit}{log})", chart.label);
        frame.titles(canvas, "block (count, in order of time)", &upright);
        draw(canvas, &chart.lines, &x, &y);
    })
}

/// Number of a block; empty between two of them.
fn whole_block(block: f64) -> String {
    let is_whole = block.fract().abs() < 1e-9 && block >= 1.0;
    if is_whole { format!("{block:.0}") } else { String::new() }
}

/// Draws latencies over offered rates, both logarithmic where they span enough, with a dot at each knee.
pub(super) fn curve(curve: &CurveChart, id: &str) -> Markup {
    let chart = &curve.chart;
    let heights = [400.0, 330.0];
    with_legend(chart, id, heights, |canvas: &mut Canvas, page: Page| {
        let frame = Frame::new(page, page.pick(heights));
        let rates = points(chart).map(|(pps, _)| *pps);
        let Some(x) = Scale::over(rates, (frame.left, frame.right), 1.0001) else { return };
        let latencies = points(chart).map(|(_, ns)| *ns);
        let Some(y) = Scale::over(latencies, (frame.bottom, frame.top), 6.0) else { return };
        let (rate_step, rate_unit) = units::step(x.middle(), "pps");
        let (step, unit) = units::step(y.middle(), &chart.unit);
        frame.grid(canvas, (&x, &|pps| plain(pps / rate_step)), (&y, &|ns| plain(ns / step)));
        let log = if y.is_log() { ", log" } else { "" };
        let across = format!("offered rate ({rate_unit}, log)");
        frame.titles(canvas, &across, &format!("{} ({unit}{log})", chart.label));
        // Below the lines' tags, and wider.
        for (line, (pps, ns)) in &curve.knees {
            canvas.dot((x.at(*pps), y.at(*ns)), 9.0, color(&chart.lines[*line]));
        }
        draw(canvas, &chart.lines, &x, &y);
    })
}

fn with_legend(
    chart: &LineChart,
    id: &str,
    heights: [f64; 2],
    paint: impl Fn(&mut Canvas, Page),
) -> Markup {
    html! {
        (svg::figure(id, &chart.title, &chart.description, heights, paint))
        (legend(&chart.lines))
    }
}

fn draw(canvas: &mut Canvas, lines: &[ChartLine], x: &Scale, y: &Scale) {
    for line in lines {
        let width = if line.kind == ArmKind::Baseline { 2.25 } else { 1.5 };
        for stretch in &line.stretches {
            let pixels: Vec<_> = stretch.iter().map(|&(a, b)| (x.at(a), y.at(b))).collect();
            match pixels[..] {
                [single] => canvas.dot(single, 2.0, color(line)),
                _ => canvas.line(&pixels, color(line), width),
            }
        }
    }
    // After all lines and staggered along them, so that tags stay readable.
    for (i, line) in lines.iter().enumerate() {
        let points: Vec<_> = line.stretches.iter().flatten().collect();
        let share = (i as f64 + 0.7) / (lines.len() as f64 + 0.4);
        let place = (share * (points.len() - 1) as f64).round() as usize;
        if let Some(&&(a, b)) = points.get(place) {
            canvas.tag(line.number, (x.at(a), y.at(b)), color(line));
        }
    }
}

fn legend(lines: &[ChartLine]) -> Markup {
    html! {
        ul.legend aria-label="lines" {
            @for line in lines {
                li {
                    svg viewBox="0 0 16 16" aria-hidden="true" {
                        circle cx="8" cy="8" r="8" fill=(color(line)) {}
                        circle cx="8" cy="8" r="6.5" fill=(svg::GROUND) {}
                    }
                    b { (line.number) }
                    (line.arm)
                }
            }
        }
    }
}

/// A round number without trailing zeros: `1000`, `10`, `0.001`.
fn plain(value: f64) -> String {
    let places = (3.0 - value.abs().max(1e-9).log10()).clamp(0.0, 9.0) as usize;
    let text = format!("{value:.places$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    wide: bool,
}

/// A scale and the format of its ticks.
type Axis<'a> = (&'a Scale, &'a dyn Fn(f64) -> String);

impl Frame {
    fn new(page: Page, height: f64) -> Self {
        let wide = page == Page::Wide;
        let (left, right) = if wide { (96.0, 844.0) } else { (76.0, 332.0) };
        Frame { left, right, top: TOP, bottom: height - BOTTOM, wide }
    }

    fn grid(&self, canvas: &mut Canvas, (x, x_text): Axis<'_>, (y, y_text): Axis<'_>) {
        for tick in x.ticks(if self.wide { 9 } else { 4 }) {
            let at = x.at(tick);
            canvas.line(&[(at, self.top), (at, self.bottom)], GRID, 1.0);
            canvas.text(&x_text(tick), (at, self.bottom + 13.0), 11.0, MUTED, At::Middle);
        }
        for tick in y.ticks(7) {
            let at = y.at(tick);
            canvas.line(&[(self.left, at), (self.right, at)], GRID, 1.0);
            canvas.text(&y_text(tick), (self.left - 8.0, at), 11.0, MUTED, At::End);
        }
        let corner = [(self.left, self.top), (self.left, self.bottom), (self.right, self.bottom)];
        canvas.line(&corner, MUTED, 1.0);
    }

    fn titles(&self, canvas: &mut Canvas, x: &str, y: &str) {
        let middle = ((self.left + self.right) / 2.0, self.bottom + 33.0);
        canvas.text(x, middle, 11.5, MUTED, At::Middle);
        canvas.upright(y, (11.0, (self.top + self.bottom) / 2.0), 11.5, MUTED);
    }
}
