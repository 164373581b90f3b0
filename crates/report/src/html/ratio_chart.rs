//! Drawing of ratios with their intervals.

use maud::Markup;

use super::svg::{self, At, Canvas, FLOOR, GRID, INK, MUTED, Page, Scale, color};
use crate::page::{RatioChart, RatioRow};
use crate::units;

const ROW: f64 = 26.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 46.0;

/// Draws one line per row over the band of noise.
pub(super) fn draw(chart: &RatioChart, id: &str) -> Markup {
    let (floor, rows) = (chart.floor, &chart.rows);
    let ends: Vec<f64> = rows
        .iter()
        .flat_map(|row| [row.ratio, row.interval.map(|i| i.0), row.interval.map(|i| i.1)])
        .flatten()
        .chain(floor.into_iter().flat_map(|f| [f.low, f.high]))
        .filter(|v| v.is_finite())
        .chain([1.0])
        .collect();
    let height = TOP + ROW * rows.len() as f64 + BOTTOM;
    svg::figure(
        id,
        &chart.title,
        &chart.description,
        [height; 2],
        |canvas: &mut Canvas, page: Page| {
            let wide = page == Page::Wide;
            let (left, right) = if wide { (196.0, 590.0) } else { (118.0, 330.0) };
            let bottom = height - BOTTOM;
            let Some(scale) = Scale::over(ends.iter().copied(), (left + 4.0, right - 4.0), 3.0)
            else {
                return;
            };
            if let Some(floor) = floor {
                let (low, high) = (scale.at(floor.low), scale.at(floor.high));
                // A floor narrower than a pixel would be invisible.
                let middle = (low + high) / 2.0;
                let half = ((high - low) / 2.0).max(1.0);
                canvas.rect((middle - half, TOP), (middle + half, bottom), FLOOR);
            }
            for tick in scale.ticks(if wide { 8 } else { 4 }) {
                let x = scale.at(tick);
                canvas.line(&[(x, TOP), (x, bottom)], GRID, 1.0);
                let text = svg::trimmed(&units::ratio(tick));
                canvas.text(&text, (x, bottom + 13.0), 11.0, MUTED, At::Middle);
            }
            let one = scale.at(1.0);
            canvas.line(&[(one, TOP), (one, bottom)], INK, 1.0);
            let (at, side) = match one {
                x if x > right - 70.0 => (right, At::End),
                x if x < left + 70.0 => (left, At::Start),
                x => (x, At::Middle),
            };
            canvas.text(chart.one, (at, TOP - 12.0), 11.0, MUTED, side);
            let middle = if wide { (left + right) / 2.0 } else { page.width() / 2.0 };
            canvas.text(&chart.axis, (middle, bottom + 33.0), 11.5, MUTED, At::Middle);
            if wide {
                canvas.text(chart.notes, (right + 16.0, TOP - 12.0), 11.0, MUTED, At::Start);
            }
            for (place, row) in rows.iter().enumerate() {
                let y = TOP + ROW * (place as f64 + 0.5);
                let most = if wide { 24 } else { 14 };
                canvas.text(
                    &super::shortened(&row.name, most),
                    (left - 10.0, y),
                    12.5,
                    INK,
                    At::End,
                );
                draw_row(canvas, row, &scale, y);
                if wide {
                    canvas.text(&row.note, (right + 16.0, y), 11.5, color(row.tone), At::Start);
                } else if let Some(why) = row.missing {
                    // On the side away from the line at 1.
                    let (x, side) = if one - left > right - one {
                        (left + 6.0, At::Start)
                    } else {
                        (right - 6.0, At::End)
                    };
                    canvas.text(why, (x, y), 11.0, MUTED, side);
                }
            }
        },
    )
}

fn draw_row(canvas: &mut Canvas, row: &RatioRow, scale: &Scale, y: f64) {
    let Some(ratio) = row.ratio.filter(|r| r.is_finite()) else { return };
    if let Some((low, high)) = row.interval {
        let (low, high) = (scale.at(low), scale.at(high));
        canvas.line(&[(low, y), (high, y)], color(row.tone), 2.0);
        for end in [low, high] {
            canvas.line(&[(end, y - 5.0), (end, y + 5.0)], color(row.tone), 1.5);
        }
    }
    canvas.dot((scale.at(ratio), y), 4.0, color(row.tone));
}
