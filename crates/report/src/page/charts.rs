//! Data of charts: titles, text alternatives, and values; the drawing is `html`'s.

use model::{ArmKind, ArmOutcome, Floor, Outcome};

use crate::screen::Tone;
use crate::{units, wording};

/// CPUs of a chart, the busiest.
pub(crate) const CPUS_MAX: usize = 8;

/// Ratios with their intervals, one per line, over a band of noise.
#[derive(Debug, Clone, PartialEq)]
pub struct RatioChart {
    pub title: String,
    pub description: String,
    /// Label of the line at 1.
    pub one: &'static str,
    /// Title of the axis.
    pub axis: String,
    pub notes: &'static str,
    /// Band that counts as noise.
    pub floor: Option<Floor>,
    pub rows: Vec<RatioRow>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct RatioRow {
    pub name: String,
    pub ratio: Option<f64>,
    pub interval: Option<(f64, f64)>,
    pub tone: Tone,
    /// Text beside the line on a wide page.
    pub note: String,
    /// Text in place of the point on a narrow page, if there is no ratio.
    pub missing: Option<&'static str>,
}

impl RatioChart {
    /// `None` if no row has a ratio. The description lists every row.
    pub(crate) fn unless_empty(mut self) -> Option<RatioChart> {
        self.rows.iter().find_map(|row| row.ratio)?;
        for row in &self.rows {
            self.description.push_str(&format!("{}: {}. ", row.name, row.note));
        }
        Some(self)
    }
}

/// Overlaid lines, one per arm.
#[derive(Debug, Clone, PartialEq)]
pub struct LineChart {
    pub title: String,
    pub description: String,
    pub label: String,
    pub unit: String,
    pub lines: Vec<ChartLine>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ChartLine {
    pub arm: String,
    /// Place among all arms, from 1.
    pub number: usize,
    pub kind: ArmKind,
    /// Place among variants and peers, from 0; chooses the colour.
    pub variant: usize,
    /// Points between gaps.
    pub stretches: Vec<Vec<(f64, f64)>>,
}

fn lines(
    outcome: &Outcome,
    points: impl Fn(&ArmOutcome) -> Vec<Vec<(f64, f64)>>,
) -> Vec<ChartLine> {
    let lines = outcome.arms.iter().enumerate().map(|(place, arm)| ChartLine {
        arm: arm.name.clone(),
        number: place + 1,
        kind: arm.kind,
        variant: outcome.arms[..place].iter().filter(|arm| arm.kind.is_compared()).count(),
        stretches: points(arm),
    });
    lines.filter(|line| line.stretches.iter().any(|stretch| !stretch.is_empty())).collect()
}

fn arm<'a>(outcome: &'a Outcome, line: &ChartLine) -> &'a ArmOutcome {
    &outcome.arms[line.number - 1]
}

/// Tail of every segment's latencies, the segment of the first judged metric first.
pub(crate) fn tails(outcome: &Outcome) -> Vec<LineChart> {
    let mut names: Vec<&String> = outcome.arms.iter().flat_map(|arm| arm.latency.keys()).collect();
    names.sort();
    names.dedup();
    let judged = outcome.judged.first().map_or("", String::as_str);
    names.sort_by_key(|name| !judged.starts_with(name.as_str()));
    names.into_iter().filter_map(|segment| tail(outcome, segment)).collect()
}

/// Share of samples that took longer, over the latency in nanoseconds.
fn tail(outcome: &Outcome, segment: &str) -> Option<LineChart> {
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
    if lines.is_empty() {
        return None;
    }
    let mut description = String::from("By arm: ");
    for line in &lines {
        let Some(d) = arm(outcome, line).latency.get(segment) else { continue };
        let mean = d.mean_ns.map(|ns| format!("mean {}, ", units::value(ns as f64, "ns")));
        description.push_str(&format!(
            "{}: shortest {}, median {}, {}p99 {}, longest {}, {} samples. ",
            line.arm,
            units::value(d.min_ns as f64, "ns"),
            quantile_text(&d.quantiles, 0.5),
            mean.unwrap_or_default(),
            quantile_text(&d.quantiles, 0.99),
            units::value(d.max_ns as f64, "ns"),
            units::grouped_count(d.count)
        ));
    }
    let title = format!("{segment}: share of samples slower than a latency");
    Some(LineChart { title, description, label: segment.into(), unit: "ns".into(), lines })
}

/// - `quantiles`: ascending, each with its nanoseconds.
fn quantile_text(quantiles: &[(f64, u64)], wanted: f64) -> String {
    let found = quantiles.iter().find(|(quantile, _)| *quantile >= wanted - 1e-9);
    found.map_or("not known".into(), |(_, ns)| units::value(*ns as f64, "ns"))
}

/// Value of each trial of a metric, by block; `None` for fewer than two blocks.
pub(crate) fn series(outcome: &Outcome, name: &str, unit: &str) -> Option<LineChart> {
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
    let mut points = lines.iter().flat_map(|line| line.stretches.iter().flatten());
    if points.all(|(block, _)| *block < 2.0) {
        return None;
    }
    let label = wording::metric(name);
    let mut description = String::from("Lowest and highest trial by arm: ");
    for line in &lines {
        let values = line.stretches.iter().flatten().map(|(_, value)| *value);
        let (least, most) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), v| {
            (least.min(v), most.max(v))
        });
        description.push_str(&format!(
            "{}: {} to {}. ",
            line.arm,
            units::value(least, unit),
            units::value(most, unit)
        ));
    }
    let title = format!("{label} of each trial, in the order of blocks");
    Some(LineChart { title, description, label, unit: unit.into(), lines })
}

#[derive(Debug, Clone, PartialEq)]
pub struct CpuChart {
    pub description: String,
    /// Arms whose trials recorded their wall time.
    pub arms: Vec<String>,
    /// The busiest CPUs, the busiest first.
    pub cpus: Vec<Cpu>,
    /// True if there are more CPUs than `cpus`.
    pub is_part: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Cpu {
    pub number: u32,
    /// Share of its time in use, 0 to 1, by arm.
    pub busy: Vec<f64>,
}

/// Share of its time in which a CPU was busy, by arm.
fn busy_shares(arms: &[(&ArmOutcome, f64)], number: u32) -> Vec<f64> {
    let name = format!("machine_cpu{number}_unused_ns");
    arms.iter()
        .map(|(arm, wall_ns)| {
            let unused_ns = arm.counters.get(&name).copied().unwrap_or(0);
            (1.0 - unused_ns as f64 / wall_ns).clamp(0.0, 1.0)
        })
        .collect()
}

/// `None` if no trial recorded CPU time, as in results of older versions.
pub(crate) fn cpus(outcome: &Outcome) -> Option<CpuChart> {
    let arms: Vec<(&ArmOutcome, f64)> = outcome
        .arms
        .iter()
        .filter_map(|arm| {
            let wall_ns = arm.counters.get("machine_wall_ns").filter(|ns| **ns > 0)?;
            Some((arm, *wall_ns as f64))
        })
        .collect();
    let mut numbers: Vec<u32> = arms
        .iter()
        .flat_map(|(arm, _)| arm.counters.keys())
        .filter_map(|name| {
            name.strip_prefix("machine_cpu")?.strip_suffix("_unused_ns")?.parse().ok()
        })
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    if numbers.is_empty() {
        return None;
    }
    let mut cpus: Vec<Cpu> = numbers
        .into_iter()
        .map(|number| Cpu { number, busy: busy_shares(&arms, number) })
        .collect();
    cpus.sort_by(|a, b| b.busy.iter().sum::<f64>().total_cmp(&a.busy.iter().sum()));
    let is_part = cpus.len() > CPUS_MAX;
    cpus.truncate(CPUS_MAX);
    let mut ordered: Vec<&Cpu> = cpus.iter().collect();
    ordered.sort_by_key(|cpu| cpu.number);
    let mut description = String::new();
    for (place, (arm, _)) in arms.iter().enumerate() {
        let shares: Vec<_> = ordered
            .iter()
            .map(|cpu: &&Cpu| format!("CPU {} {}", cpu.number, whole_percent(cpu.busy[place])))
            .collect();
        description.push_str(&format!("{}: {}. ", arm.name, shares.join(", ")));
    }
    let arms = arms.iter().map(|(arm, _)| arm.name.clone()).collect();
    Some(CpuChart { description, arms, cpus, is_part })
}

/// Steps of 10 ms per trial carry no more digits than this.
pub(crate) fn whole_percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
