//! OpenMetrics, for a push gateway or GitLab's metrics reports.

use super::base_unit::base_unit;
use crate::metrics::{Exposition, Family, Metrics};
use crate::page::{Figures, Page, PageMetric};

/// Families of medians: the base unit, and the name that ends in it.
const MEDIANS: [(&str, &str); 5] = [
    ("seconds", "median_seconds"),
    ("bytes", "median_bytes"),
    ("ratio", "median_ratio"),
    ("packets_per_second", "median_packets_per_second"),
    ("bytes_per_second", "median_bytes_per_second"),
];

/// Returns gauges of each arm and judged metric, in base units.
///
/// Source: OpenMetrics 1.0.
pub fn to_openmetrics(page: &Page) -> String {
    result_metrics(page).write(Exposition::OpenMetrics)
}

/// Metrics of a result: facts of the run, and the figures of each arm and judged metric.
pub fn result_metrics(page: &Page) -> Metrics {
    let mut metrics = Metrics::new("wirepath_result");
    let about = [
        ("path", page.path.as_str()),
        ("load", &page.load_name),
        ("id", &page.id),
        ("started", &page.started),
        ("version", &page.version),
        ("machine", &page.machine_line),
    ];
    metrics.info("info", "The experiment.").sample(&about, 1);
    for (unit, name) in MEDIANS {
        let help = "Median over the trials of an arm.";
        medians(page, metrics.gauge(name, help), |metric| base_name(metric) == Some(unit));
    }
    let help = "Median over the trials of an arm, of a count or in the unit of the label.";
    medians(page, metrics.gauge("median", help), |metric| base_name(metric).is_none());
    let help = "Ratio of an arm to the baseline.";
    ratios(page, metrics.gauge("ratio", help), |figures| figures.ratio);
    let help = "Lower end of the 95 % interval of the ratio.";
    ratios(page, metrics.gauge("low_ratio", help), |figures| figures.low);
    let help = "Upper end of the 95 % interval of the ratio.";
    ratios(page, metrics.gauge("high_ratio", help), |figures| figures.high);
    let help = "Verdict on an arm: 1 beside the one that was reached.";
    verdicts(page, metrics.gauge("verdict", help));
    metrics
}

fn base_name(metric: &PageMetric) -> Option<&'static str> {
    base_unit(&metric.unit).map(|base| base.name)
}

/// Labels of every sample, before those of its family.
fn labels<'a>(
    page: &'a Page,
    metric: &'a PageMetric,
    arm: &'a str,
) -> [(&'static str, &'a str); 4] {
    [("path", &page.path), ("load", &page.load_name), ("arm", arm), ("metric", &metric.name)]
}

fn medians(page: &Page, mut family: Family<'_>, is_of: impl Fn(&PageMetric) -> bool) {
    for metric in page.metrics.iter().filter(|metric| is_of(metric)) {
        let base = base_unit(&metric.unit);
        for row in &metric.rows {
            let Some(median) = row.figures.median else { continue };
            let labels = labels(page, metric, &row.arm);
            match base {
                Some(base) => family.sample(&labels, median * base.factor),
                None => family.sample(&[&labels[..], &[("unit", &metric.unit)]].concat(), median),
            };
        }
    }
}

fn ratios(page: &Page, mut family: Family<'_>, figure: impl Fn(&Figures) -> Option<f64>) {
    for metric in &page.metrics {
        for row in &metric.rows {
            if let Some(value) = figure(&row.figures) {
                family.sample(&labels(page, metric, &row.arm), value);
            }
        }
    }
}

fn verdicts(page: &Page, mut family: Family<'_>) {
    for metric in &page.metrics {
        for row in metric.rows.iter().filter(|row| row.figures.verdict.is_some()) {
            let labels = labels(page, metric, &row.arm);
            family.sample(&[&labels[..], &[("verdict", row.verdict)]].concat(), 1);
        }
    }
}
