//! Where the CPU time went: how busy each CPU was, arm by arm.

use model::{ArmOutcome, Outcome};

use super::svg::{self, At, Canvas, GRID, INK, LINES, MUTED, Page};

const ROW: f64 = 22.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 46.0;

/// Right of a bar, for its figure.
const FIGURE: f64 = 50.0;

/// CPUs that there is room for, the busiest.
fn most(page: Page) -> usize {
    match page {
        Page::Wide => 8,
        Page::Narrow => 2,
    }
}

/// One CPU under every arm that ran.
struct Lane {
    cpu: u32,
    /// Share of its time in use, 0 to 1, in the order of [`ran`].
    busy: Vec<f64>,
}

/// Arms of which it is known how long they ran.
fn ran(outcome: &Outcome) -> Vec<&ArmOutcome> {
    outcome.arms.iter().filter(|arm| wall_ns(arm).is_some()).collect()
}

fn wall_ns(arm: &ArmOutcome) -> Option<u64> {
    arm.counters.get("machine_wall_ns").copied().filter(|ns| *ns > 0)
}

/// CPUs, the busiest first.
fn lanes(outcome: &Outcome) -> Vec<Lane> {
    let arms = ran(outcome);
    let mut cpus: Vec<u32> = arms
        .iter()
        .flat_map(|arm| arm.counters.keys())
        .filter_map(|name| {
            name.strip_prefix("machine_cpu")?.strip_suffix("_unused_ns")?.parse().ok()
        })
        .collect();
    cpus.sort_unstable();
    cpus.dedup();
    let busy = |arm: &ArmOutcome, cpu: u32| {
        let unused = arm.counters.get(&format!("machine_cpu{cpu}_unused_ns"));
        let unused = *unused.unwrap_or(&0) as f64 / wall_ns(arm).unwrap_or(1) as f64;
        (1.0 - unused).clamp(0.0, 1.0)
    };
    let lane = |cpu| Lane { cpu, busy: arms.iter().map(|arm| busy(arm, cpu)).collect() };
    let mut lanes: Vec<Lane> = cpus.into_iter().map(lane).collect();
    lanes.sort_by(|a, b| b.busy.iter().sum::<f64>().total_cmp(&a.busy.iter().sum()));
    lanes
}

/// The figure, and whether it shows some of the CPUs only; `None` where no trial kept account.
pub(super) fn chart(outcome: &Outcome, id: &str) -> Option<(String, bool)> {
    let (arms, lanes) = (ran(outcome), lanes(outcome));
    let shown = |page| {
        let mut shown: Vec<&Lane> = lanes.iter().take(most(page)).collect();
        shown.sort_by_key(|lane| lane.cpu);
        shown
    };
    if lanes.is_empty() {
        return None;
    }
    let mut description = String::new();
    for (place, arm) in arms.iter().enumerate() {
        let of_cpu = |lane: &&Lane| format!("CPU {} {}", lane.cpu, percent(lane.busy[place]));
        let cpus: Vec<_> = shown(Page::Wide).iter().map(of_cpu).collect();
        description.push_str(&format!("{}: {}. ", arm.name, cpus.join(", ")));
    }
    let height = |_| TOP + ROW * arms.len() as f64 + BOTTOM;
    let paint = |canvas: &Canvas<'_>, page: Page| {
        let wide = page == Page::Wide;
        let (left, right) = if wide { (196.0, 850.0) } else { (118.0, 338.0) };
        let bottom = height(page) - BOTTOM;
        let shown = shown(page);
        let each = (right - left) / shown.len() as f64;
        for (place, arm) in arms.iter().enumerate() {
            let y = TOP + ROW * (place as f64 + 0.5);
            let name = super::shortened(&arm.name, if wide { 24 } else { 14 });
            canvas.text(&name, (left - 10.0, y), 12.5, INK, At::End);
        }
        for (n, lane) in shown.into_iter().enumerate() {
            let from = left + each * n as f64;
            let to = from + each - FIGURE;
            let name = format!("CPU {}", lane.cpu);
            canvas.text(&name, ((from + to) / 2.0, TOP - 14.0), 11.0, MUTED, At::Middle);
            for share in [0.0, 0.5, 1.0] {
                let x = from + share * (to - from);
                canvas.line(vec![(x, TOP), (x, bottom)], GRID, 1.0);
                // Three texts need their room.
                if share != 0.5 || to - from > 90.0 {
                    let text = format!("{:.0}", share * 100.0);
                    canvas.text(&text, (x, bottom + 13.0), 11.0, MUTED, At::Middle);
                }
            }
            for (place, busy) in lane.busy.iter().enumerate() {
                let y = TOP + ROW * (place as f64 + 0.5);
                let end = from + busy * (to - from);
                canvas.rect((from, y - 5.0), (end.max(from + 1.0), y + 5.0), LINES[0]);
                canvas.text(&percent(*busy), (to + 6.0, y), 11.0, INK, At::Start);
            }
        }
        let middle = if wide { (left + right) / 2.0 } else { page.width() / 2.0 };
        let across = "share of the CPU's time in use (%)";
        canvas.text(across, (middle, bottom + 33.0), 11.5, MUTED, At::Middle);
    };
    let figure = svg::figure(id, "How busy each CPU was, by arm", &description, height, paint);
    Some((figure, lanes.len() > most(Page::Wide)))
}

/// Steps of 10 ms a trial leave no more digits than these.
fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
