//! OpenMetrics, for a push gateway or the text files of node_exporter.

use crate::metrics::{Family, Metrics};
use crate::page::{Figures, Page};

/// Returns gauges of each arm and judged metric.
///
/// Source: OpenMetrics 1.0.
pub fn to_openmetrics(page: &Page) -> String {
    let mut metrics = Metrics::new("wirepath_result");
    let about = [
        ("subject", page.subject.as_str()),
        ("id", &page.id),
        ("started", &page.started),
        ("version", &page.version),
        ("machine", &page.machine_line),
    ];
    metrics.gauge("info", "The experiment.").sample(&about, 1);
    gauges(
        page,
        metrics.gauge("median", "Median over the trials of an arm, in the unit of the label."),
        |f| f.median,
    );
    gauges(page, metrics.gauge("ratio", "Ratio of an arm to the baseline."), |f| f.ratio);
    gauges(page, metrics.gauge("ratio_low", "Lower end of the 95 % interval of the ratio."), |f| {
        f.low
    });
    gauges(
        page,
        metrics.gauge("ratio_high", "Upper end of the 95 % interval of the ratio."),
        |f| f.high,
    );
    verdicts(
        page,
        metrics.gauge("verdict", "Verdict on an arm: 1 beside the one that was reached."),
    );
    metrics.finish() + "# EOF\n"
}

fn gauges(page: &Page, mut family: Family<'_>, of: impl Fn(&Figures) -> Option<f64>) {
    for metric in &page.metrics {
        for row in &metric.rows {
            let labels = [
                ("path", page.subject.as_str()),
                ("arm", &row.arm),
                ("metric", &metric.name),
                ("unit", &metric.unit),
            ];
            if let Some(value) = of(&row.figures) {
                family.sample(&labels, value);
            }
        }
    }
}

fn verdicts(page: &Page, mut family: Family<'_>) {
    for metric in &page.metrics {
        for row in metric.rows.iter().filter(|row| row.figures.verdict.is_some()) {
            let labels = [
                ("path", page.subject.as_str()),
                ("arm", &row.arm),
                ("metric", &metric.name),
                ("verdict", row.verdict),
            ];
            family.sample(&labels, 1);
        }
    }
}
