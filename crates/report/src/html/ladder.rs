//! The ladder: each arm's ratio to the baseline with its interval, over the floor.

use model::{ArmKind, ArmOutcome, MetricOutcome, Outcome, Support, Verdict};
use plotters::style::RGBColor;

use super::svg::{self, At, BAD, Canvas, DOUBT, FLOOR, GOOD, GRID, INK, MUTED, Page, Scale};
use crate::{units, words};

const ROW: f64 = 26.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 46.0;

/// The figure of one judged metric; `None` when no arm has a ratio of it.
pub(super) fn chart(outcome: &Outcome, name: &str, id: &str) -> Option<String> {
    let shape = words::shape(outcome, name)?;
    let floor = outcome.floor.get(name);
    let figures = || outcome.arms.iter().filter_map(|arm| arm.metrics.get(name));
    let ends = || {
        figures()
            .flat_map(|m| [m.ratio, m.low, m.high])
            .flatten()
            .chain(floor.into_iter().flat_map(|f| [f.low, f.high]))
            .filter(|v| v.is_finite())
    };
    figures().find_map(|m| m.ratio)?;
    let label = words::metric(name);
    let title = format!("{label}: ratio of each arm to the baseline");
    let mut description = match floor {
        Some(f) => format!("A/A floor {} to {}. ", units::ratio(f.low), units::ratio(f.high)),
        None => String::new(),
    };
    for arm in &outcome.arms {
        description.push_str(&format!("{}: {}. ", arm.name, sentence(arm, name)));
    }
    let height = |_| TOP + ROW * outcome.arms.len() as f64 + BOTTOM;
    let better = words::better(shape.better);
    let paint = |canvas: &Canvas<'_>, page: Page| {
        let wide = page == Page::Wide;
        let (left, right) = if wide { (196.0, 590.0) } else { (118.0, 330.0) };
        let bottom = height(page) - BOTTOM;
        let Some(scale) = Scale::over(ends().chain([1.0]), (left + 4.0, right - 4.0), 3.0) else {
            return;
        };
        if let Some(floor) = floor {
            let (low, high) = (scale.at(floor.low), scale.at(floor.high));
            // A floor narrower than a pixel would vanish.
            let middle = (low + high) / 2.0;
            let half = ((high - low) / 2.0).max(1.0);
            canvas.rect((middle - half, TOP), (middle + half, bottom), FLOOR);
        }
        for tick in scale.ticks(if wide { 8 } else { 4 }) {
            let x = scale.at(tick);
            canvas.line(vec![(x, TOP), (x, bottom)], GRID, 1.0);
            canvas.text(
                &svg::trimmed(&units::ratio(tick)),
                (x, bottom + 13.0),
                11.0,
                MUTED,
                At::Middle,
            );
        }
        let one = scale.at(1.0);
        canvas.line(vec![(one, TOP), (one, bottom)], INK, 1.0);
        let mark = if floor.is_some() { "baseline and A/A floor" } else { "baseline" };
        let (at, side) = match one {
            x if x > right - 70.0 => (right, At::End),
            x if x < left + 70.0 => (left, At::Start),
            x => (x, At::Middle),
        };
        canvas.text(mark, (at, TOP - 12.0), 11.0, MUTED, side);
        let axis = format!("ratio to baseline (×), {better}, 95 % interval");
        let middle = if wide { (left + right) / 2.0 } else { page.width() / 2.0 };
        canvas.text(&axis, (middle, bottom + 33.0), 11.5, MUTED, At::Middle);
        if wide {
            canvas.text(
                "ratio, 95 % interval, verdict",
                (right + 16.0, TOP - 12.0),
                11.0,
                MUTED,
                At::Start,
            );
        }
        for (row, arm) in outcome.arms.iter().enumerate() {
            let y = TOP + ROW * (row as f64 + 0.5);
            let most = if wide { 24 } else { 14 };
            canvas.text(&super::shortened(&arm.name, most), (left - 10.0, y), 12.5, INK, At::End);
            draw_row(canvas, arm, arm.metrics.get(name), &scale, y);
            if wide {
                let note = short(arm, name);
                canvas.text(&note, (right + 16.0, y), 11.5, tone(arm, name), At::Start);
            } else if let Some(why) = missing(arm, name) {
                // On the side where the line at 1 is not.
                let (x, side) = if one - left > right - one {
                    (left + 6.0, At::Start)
                } else {
                    (right - 6.0, At::End)
                };
                canvas.text(why, (x, y), 11.0, MUTED, side);
            }
        }
    };
    Some(svg::figure(id, &title, &description, height, paint))
}

fn draw_row(
    canvas: &Canvas<'_>,
    arm: &ArmOutcome,
    metric: Option<&MetricOutcome>,
    scale: &Scale,
    y: f64,
) {
    let color = metric.map_or(MUTED, |m| color(m.verdict));
    let ratio = match (arm.kind, metric) {
        (ArmKind::Baseline, _) => Some(1.0),
        (_, metric) => metric.and_then(|m| m.ratio),
    };
    let Some(ratio) = ratio.filter(|r| r.is_finite()) else { return };
    if let Some((low, high)) = metric.and_then(|m| m.low.zip(m.high)) {
        let (low, high) = (scale.at(low), scale.at(high));
        canvas.line(vec![(low, y), (high, y)], color, 2.0);
        for end in [low, high] {
            canvas.line(vec![(end, y - 5.0), (end, y + 5.0)], color, 1.5);
        }
    }
    canvas.dot((scale.at(ratio), y), 4.0, color);
}

fn tone(arm: &ArmOutcome, name: &str) -> RGBColor {
    arm.metrics.get(name).map_or(MUTED, |m| color(m.verdict))
}

fn color(verdict: Option<Verdict>) -> RGBColor {
    match verdict {
        None => INK,
        Some(Verdict::Better) => GOOD,
        Some(Verdict::Worse) => BAD,
        Some(Verdict::Inconclusive | Verdict::NotEffective | Verdict::Refused) => DOUBT,
        Some(Verdict::NoDifferenceShown | Verdict::Unsupported) => MUTED,
    }
}

/// Why an arm has no point.
fn missing(arm: &ArmOutcome, name: &str) -> Option<&'static str> {
    match (&arm.support, arm.metrics.get(name)) {
        (Support::Unsupported { .. }, _) => Some("unsupported"),
        (Support::Refused { .. }, _) => Some("not run"),
        (_, None) => Some("no figure"),
        (_, Some(metric)) if metric.ratio.is_none() && arm.kind != ArmKind::Baseline => {
            Some(metric.verdict.map_or("no figure", words::verdict))
        }
        _ => None,
    }
}

/// `0.061× [0.060, 0.062] better`.
fn short(arm: &ArmOutcome, name: &str) -> String {
    if let Some(why) = missing(arm, name) {
        return why.into();
    }
    let Some(metric) = arm.metrics.get(name) else { return String::new() };
    let verdict = metric.verdict.map_or("", words::verdict);
    let ratio = metric.ratio.map(units::ratio);
    let parts = [ratio, words::interval(metric), Some(verdict.into())];
    parts.into_iter().flatten().collect::<Vec<String>>().join(" ")
}

fn sentence(arm: &ArmOutcome, name: &str) -> String {
    match arm.kind {
        ArmKind::Baseline => "the base".into(),
        _ => short(arm, name),
    }
}
