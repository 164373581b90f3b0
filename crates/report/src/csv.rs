//! CSV of verdicts: one row per arm and metric.

use model::{Outcome, Support};

use crate::wording;

/// Returns CSV (RFC 4180, lines end with CRLF) with a header line.
///
/// An arm without metrics gets one row with its support. Figures have full precision, in the unit of
/// the `unit` column.
pub fn to_csv(outcome: &Outcome) -> String {
    let mut out = row(&[
        "id", "path", "arm", "kind", "switches", "support", "trials", "metric", "unit", "better",
        "median", "ratio", "low", "high", "p", "verdict", "why",
    ]);
    for arm in &outcome.arms {
        let (support, why) = match &arm.support {
            Support::Yes => ("yes", String::new()),
            Support::Unsupported { what, needs } => ("unsupported", format!("{what}: {needs}")),
            Support::Refused { why } => ("refused", why.clone()),
        };
        let switches = arm.switches.join("+");
        let trials = arm.trials.to_string();
        let head = [
            outcome.id.as_str(),
            &outcome.path,
            &arm.name,
            wording::kind(arm.kind),
            &switches,
            support,
            &trials,
        ];
        if arm.metrics.is_empty() {
            let rest = ["", "", "", "", "", "", "", "", "", &why];
            out.push_str(&row(&[&head[..], &rest[..]].concat()));
        }
        for (name, metric) in &arm.metrics {
            let [median, ratio, low, high, p] =
                [metric.median, metric.ratio, metric.low, metric.high, metric.p]
                    .map(|value| value.map(|v| v.to_string()).unwrap_or_default());
            let better = match metric.better {
                model::Better::Lower => "lower",
                model::Better::Higher => "higher",
            };
            let rest = [
                name.as_str(),
                &metric.unit,
                better,
                &median,
                &ratio,
                &low,
                &high,
                &p,
                metric.verdict.map_or("", wording::verdict),
                metric.why.as_deref().unwrap_or(&why),
            ];
            out.push_str(&row(&[&head[..], &rest[..]].concat()));
        }
    }
    out
}

pub(crate) fn row(cells: &[&str]) -> String {
    let quoted: Vec<_> = cells.iter().map(|cell| quote(cell)).collect();
    quoted.join(",") + "\r\n"
}

fn quote(cell: &str) -> String {
    // Shown on a terminal, a table must not drive it.
    let cell = &*crate::text::visible(cell);
    // A spreadsheet evaluates text that begins like a formula, such as `+spin`. Quotes do not
    // prevent that and a tab would change the value, so Wirepath's own names stay as they are.
    if cell.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}
