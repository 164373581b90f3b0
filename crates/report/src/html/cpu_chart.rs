//! Drawing of the load of each CPU, by arm.

use maud::Markup;

use super::svg::{self, At, Canvas, GRID, INK, LINES, MUTED, Page};
use crate::page::{CPUS_MAX, Cpu, CpuChart, whole_percent};

const ROW: f64 = 22.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 46.0;

/// Space to the right of a bar for its figure.
const FIGURE: f64 = 50.0;

fn cpus_max(page: Page) -> usize {
    page.pick([CPUS_MAX, 2])
}

fn shown_cpus(chart: &CpuChart, page: Page) -> Vec<&Cpu> {
    let mut shown: Vec<&Cpu> = chart.cpus.iter().take(cpus_max(page)).collect();
    shown.sort_by_key(|cpu| cpu.number);
    shown
}

/// Draws one column of bars per CPU.
pub(super) fn draw(chart: &CpuChart, id: &str) -> Markup {
    let height = TOP + ROW * chart.arms.len() as f64 + BOTTOM;
    svg::figure(
        id,
        "How busy each CPU was, by arm",
        &chart.description,
        [height; 2],
        |canvas: &mut Canvas, page: Page| {
            let wide = page == Page::Wide;
            let (left, right) = if wide { (196.0, 850.0) } else { (118.0, 338.0) };
            let bottom = height - BOTTOM;
            let shown = shown_cpus(chart, page);
            let each = (right - left) / shown.len() as f64;
            for (place, arm) in chart.arms.iter().enumerate() {
                let y = TOP + ROW * (place as f64 + 0.5);
                let name = super::shortened(arm, if wide { 24 } else { 14 });
                canvas.text(&name, (left - 10.0, y), 12.5, INK, At::End);
            }
            for (n, cpu) in shown.into_iter().enumerate() {
                let from = left + each * n as f64;
                let to = from + each - FIGURE;
                let name = format!("CPU {}", cpu.number);
                canvas.text(&name, ((from + to) / 2.0, TOP - 14.0), 11.0, MUTED, At::Middle);
                for share in [0.0, 0.5, 1.0] {
                    let x = from + share * (to - from);
                    canvas.line(&[(x, TOP), (x, bottom)], GRID, 1.0);
                    // Three texts need room.
                    if share != 0.5 || to - from > 90.0 {
                        let text = format!("{:.0}", share * 100.0);
                        canvas.text(&text, (x, bottom + 13.0), 11.0, MUTED, At::Middle);
                    }
                }
                for (place, busy) in cpu.busy.iter().enumerate() {
                    let y = TOP + ROW * (place as f64 + 0.5);
                    let end = from + busy * (to - from);
                    canvas.rect((from, y - 5.0), (end.max(from + 1.0), y + 5.0), LINES[0]);
                    canvas.text(&whole_percent(*busy), (to + 6.0, y), 11.0, INK, At::Start);
                }
            }
            let middle = if wide { (left + right) / 2.0 } else { page.width() / 2.0 };
            let across = "share of the CPU's time in use (%)";
            canvas.text(across, (middle, bottom + 33.0), 11.5, MUTED, At::Middle);
        },
    )
}
