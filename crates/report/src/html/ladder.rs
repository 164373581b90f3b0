//! Ratios with their intervals, one a line, over the floor: an experiment's arms against its
//! baseline, and two experiments against each other.

use model::{ArmKind, ArmOutcome, Floor, MetricOutcome, Outcome, RunComparison, Support, Verdict};
use plotters::style::RGBColor;

use super::svg::{self, At, BAD, Canvas, DOUBT, FLOOR, GOOD, GRID, INK, MUTED, Page, Scale};
use crate::{compared, units, words};

const ROW: f64 = 26.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 46.0;

/// What stands beside a line that was judged.
const VERDICTS: &str = "ratio, 95 % interval, verdict";

/// One line of the chart.
struct Row {
    name: String,
    ratio: Option<f64>,
    interval: Option<(f64, f64)>,
    color: RGBColor,
    /// What stands beside it on a wide page.
    note: String,
    /// Why there is no point, for a narrow page.
    missing: Option<&'static str>,
}

/// What the chart is of.
struct Labels<'a> {
    title: &'a str,
    description: &'a str,
    /// Of the line at 1.
    one: &'a str,
    across: &'a str,
    /// Above the notes.
    beside: &'a str,
}

/// The figure of one judged metric; `None` when no arm has a ratio of it.
pub(super) fn chart(outcome: &Outcome, name: &str, id: &str) -> Option<String> {
    let shape = words::shape(outcome, name)?;
    let floor = outcome.floor.get(name).copied();
    outcome.arms.iter().filter_map(|arm| arm.metrics.get(name)).find_map(|m| m.ratio)?;
    let label = words::metric(name);
    let mut description = match floor {
        Some(f) => format!("A/A floor {} to {}. ", units::ratio(f.low), units::ratio(f.high)),
        None => String::new(),
    };
    for arm in &outcome.arms {
        description.push_str(&format!("{}: {}. ", arm.name, sentence(arm, name)));
    }
    let row = |arm: &ArmOutcome| {
        let metric = arm.metrics.get(name);
        Row {
            name: arm.name.clone(),
            ratio: match arm.kind {
                ArmKind::Baseline => Some(1.0),
                _ => metric.and_then(|m| m.ratio),
            },
            interval: metric.and_then(|m| m.low.zip(m.high)),
            color: metric.map_or(MUTED, |m| color(m.verdict)),
            note: short(arm, name),
            missing: missing(arm, name),
        }
    };
    let better = words::better(shape.better);
    let labels = Labels {
        title: &format!("{label}: ratio of each arm to the baseline"),
        description: &description,
        one: if floor.is_some() { "baseline and A/A floor" } else { "baseline" },
        across: &format!("ratio to baseline (×), {better}, 95 % interval"),
        beside: VERDICTS,
    };
    let rows: Vec<Row> = outcome.arms.iter().map(row).collect();
    Some(draw(id, &labels, floor, &rows))
}

/// The figure of one metric of two runs; `None` when no arm has both.
pub(super) fn of_runs(
    comparison: &RunComparison,
    name: &str,
    by_worth: bool,
    id: &str,
) -> Option<String> {
    let shown = |metric: &model::MetricComparison| match by_worth {
        true => metric.worth.clone(),
        false => metric.value.clone(),
    };
    let metrics = || comparison.arms.iter().filter_map(|arm| arm.metrics.get(name));
    let reach = metrics().filter_map(shown).find_map(|change| change.reach);
    let shape = metrics().next()?;
    let mut rows = Vec::new();
    let mut description = String::new();
    for arm in &comparison.arms {
        if by_worth && arm.kind == ArmKind::Baseline {
            continue;
        }
        let change = arm.metrics.get(name).and_then(shown);
        let note = change.as_ref().map_or("no figure".into(), compared::short);
        description.push_str(&format!("{}: {note}. ", arm.name));
        rows.push(Row {
            name: arm.name.clone(),
            ratio: change.as_ref().map(|change| change.ratio),
            interval: change.as_ref().and_then(|change| change.low.zip(change.high)),
            color: change.as_ref().map_or(MUTED, |change| color(Some(change.verdict))),
            note,
            missing: change.is_none().then_some("no figure"),
        });
    }
    rows.iter().find_map(|row| row.ratio)?;
    let (label, what) = (words::metric(name), if by_worth { "worth" } else { "value" });
    let labels = Labels {
        title: &format!("{label}: {what} of each arm, newer run over older"),
        description: &description,
        one: if reach.is_some() { "no change, and noise of both" } else { "no change" },
        across: &format!(
            "{what}, newer over older (×), {}, 95 % interval",
            words::better(shape.better)
        ),
        beside: VERDICTS,
    };
    let floor = reach.map(|reach| Floor { low: 1.0 / reach, high: reach });
    Some(draw(id, &labels, floor, &rows))
}

/// The best arm of each experiment, in the order given; `None` under two.
pub(super) fn over_time(runs: &[BestOf<'_>], name: &str, id: &str) -> Option<String> {
    let shape = runs.first().filter(|_| runs.len() > 1)?.metric;
    let label = words::metric(name);
    let mut description = String::new();
    let mut rows = Vec::new();
    for BestOf { when, arm, metric } in runs {
        let interval = words::interval(metric).unwrap_or_default();
        let note = format!("{} {interval} {arm}", metric.ratio.map_or("–".into(), units::ratio));
        description.push_str(&format!("{when}: {note}. "));
        rows.push(Row {
            // Without the year, so that it fits a telephone.
            name: when.get(5..).unwrap_or(when).to_owned(),
            ratio: metric.ratio,
            interval: metric.low.zip(metric.high),
            color: GOOD,
            note,
            missing: None,
        });
    }
    let labels = Labels {
        title: &format!("{label}: ratio of the best arm to its baseline, newest experiment first"),
        description: &description,
        one: "baseline",
        across: &format!("ratio to baseline (×), {}, 95 % interval", words::better(shape.better)),
        beside: "ratio, 95 % interval, arm",
    };
    Some(draw(id, &labels, None, &rows))
}

/// The best arm of one experiment by one metric.
pub(super) struct BestOf<'a> {
    /// When the experiment began.
    pub(super) when: String,
    pub(super) arm: &'a str,
    pub(super) metric: &'a MetricOutcome,
}

fn draw(id: &str, labels: &Labels<'_>, floor: Option<Floor>, rows: &[Row]) -> String {
    let ends = || {
        rows.iter()
            .flat_map(|row| [row.ratio, row.interval.map(|i| i.0), row.interval.map(|i| i.1)])
            .flatten()
            .chain(floor.into_iter().flat_map(|f| [f.low, f.high]))
            .filter(|v| v.is_finite())
    };
    let height = |_| TOP + ROW * rows.len() as f64 + BOTTOM;
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
            let text = svg::trimmed(&units::ratio(tick));
            canvas.text(&text, (x, bottom + 13.0), 11.0, MUTED, At::Middle);
        }
        let one = scale.at(1.0);
        canvas.line(vec![(one, TOP), (one, bottom)], INK, 1.0);
        let (at, side) = match one {
            x if x > right - 70.0 => (right, At::End),
            x if x < left + 70.0 => (left, At::Start),
            x => (x, At::Middle),
        };
        canvas.text(labels.one, (at, TOP - 12.0), 11.0, MUTED, side);
        let middle = if wide { (left + right) / 2.0 } else { page.width() / 2.0 };
        canvas.text(labels.across, (middle, bottom + 33.0), 11.5, MUTED, At::Middle);
        if wide {
            canvas.text(labels.beside, (right + 16.0, TOP - 12.0), 11.0, MUTED, At::Start);
        }
        for (place, row) in rows.iter().enumerate() {
            let y = TOP + ROW * (place as f64 + 0.5);
            let most = if wide { 24 } else { 14 };
            canvas.text(&super::shortened(&row.name, most), (left - 10.0, y), 12.5, INK, At::End);
            draw_row(canvas, row, &scale, y);
            if wide {
                canvas.text(&row.note, (right + 16.0, y), 11.5, row.color, At::Start);
            } else if let Some(why) = row.missing {
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
    svg::figure(id, labels.title, labels.description, height, paint)
}

fn draw_row(canvas: &Canvas<'_>, row: &Row, scale: &Scale, y: f64) {
    let Some(ratio) = row.ratio.filter(|r| r.is_finite()) else { return };
    if let Some((low, high)) = row.interval {
        let (low, high) = (scale.at(low), scale.at(high));
        canvas.line(vec![(low, y), (high, y)], row.color, 2.0);
        for end in [low, high] {
            canvas.line(vec![(end, y - 5.0), (end, y + 5.0)], row.color, 1.5);
        }
    }
    canvas.dot((scale.at(ratio), y), 4.0, row.color);
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

/// `0.0611× [0.0603, 0.0619] better`.
fn short(arm: &ArmOutcome, name: &str) -> String {
    if let Some(why) = missing(arm, name) {
        return why.into();
    }
    let Some(metric) = arm.metrics.get(name) else { return String::new() };
    let parts = |metric: &MetricOutcome| {
        let verdict = metric.verdict.map_or("", words::verdict);
        [metric.ratio.map(units::ratio), words::interval(metric), Some(verdict.into())]
    };
    parts(metric).into_iter().flatten().collect::<Vec<String>>().join(" ")
}

fn sentence(arm: &ArmOutcome, name: &str) -> String {
    match arm.kind {
        ArmKind::Baseline => "the base".into(),
        _ => short(arm, name),
    }
}
