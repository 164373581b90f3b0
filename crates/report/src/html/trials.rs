//! Every trial's value, as it was measured.

use model::Outcome;

use super::escape;
use crate::{units, words};

/// Judged metrics, one table each, below a line that opens them; empty without trials.
pub(super) fn tables(outcome: &Outcome) -> String {
    let tables: String = outcome.judged.iter().filter_map(|name| table(outcome, name)).collect();
    if tables.is_empty() {
        return tables;
    }
    format!(
        "<details><summary>Every value, block by block</summary><p class=\"muted\">In the order of \
         blocks; – where a trial failed or gave no figure. <code>wirepath history export {} -o \
         trials.csv</code> writes all metrics of all trials.</p>{tables}</details>",
        escape(&words::shell(&outcome.id))
    )
}

fn table(outcome: &Outcome, name: &str) -> Option<String> {
    let arms = || outcome.arms.iter().filter_map(|arm| Some((arm, arm.metrics.get(name)?)));
    let values = || arms().flat_map(|(_, metric)| metric.trials.iter().flatten());
    let (least, most) = values().fold((f64::INFINITY, 0.0_f64), |(least, most), value| {
        (least.min(value.abs()), most.max(value.abs()))
    });
    if !least.is_finite() {
        return None;
    }
    let (step, unit) =
        units::step((least.max(most / 1e3) * most).sqrt(), &words::shape(outcome, name)?.unit);
    let mut rows = String::new();
    for (arm, metric) in arms() {
        let text = |value: &Option<f64>| value.map_or("–".into(), |v| units::digits(v / step));
        let values: Vec<String> = metric.trials.iter().map(text).collect();
        rows.push_str(&format!(
            "<tr><th scope=\"row\">{}</th><td class=\"values\">{}</td></tr>",
            escape(&arm.name),
            escape(&values.join(" "))
        ));
    }
    Some(format!(
        "<table><caption>{} <code>{}</code> ({})</caption><thead><tr><th scope=\"col\">arm</th>\
         <th scope=\"col\">value of each block</th></tr></thead><tbody>{rows}</tbody></table>",
        escape(&words::metric(name)),
        escape(name),
        escape(&unit)
    ))
}
