//! Two series of experiments against each other, in a terminal.

use std::collections::BTreeMap;

use model::{Outcome, RunComparison};

use super::{Style, section};
use crate::page::{ChangeText, ComparedMetric, ComparedRow, ComparisonPage};
use crate::screen::{Cell, Screen, Tone};
use crate::{units, wording};

/// Formats a comparison: differences of the runs, the answer, a table per judged metric, and their
/// qualifications.
pub fn compare(comparison: &RunComparison, style: Style) -> String {
    let page = ComparisonPage::from_comparison(comparison);
    let mut screen = Screen::new(style);
    screen.heading(&page.subject);
    for sentence in &page.sentences {
        screen.paragraph("", &sentence.text, sentence.tone);
    }
    for (label, run) in [("before  ", &page.old), ("now     ", &page.new)] {
        screen.paragraph(label, &format!("{} ({})", run.name, run.extent), Tone::Plain);
    }
    let unit = format!("{}: {}", page.unit_line.subject, page.unit_line.text);
    screen.paragraph("unit    ", &unit, page.unit_line.tone);
    if page.same_machine {
        screen.paragraph("machine ", "the same by its description", Tone::Dim)
    } else {
        screen.paragraph("machine ", "NOT the same", Tone::Bad)
    }
    for difference in &page.differences {
        let text = format!("{} before, {} now", difference.old, difference.new);
        screen.item(&difference.what, &text, Tone::Doubt);
    }
    screen.blank();
    for (label, answer) in [("values: ", &page.values), ("worth:  ", &page.worth)] {
        let text = format!("{}: {}", answer.subject, answer.text);
        screen.paragraph(label, &text, answer.tone);
    }
    for line in &page.gate {
        screen.paragraph("gate:   ", &line.sentence, line.tone);
    }
    for metric in &page.metrics {
        screen.blank();
        table(&mut screen, metric);
    }
    section(&mut screen, "what qualifies this", &page.remarks);
    screen.blank();
    screen.paragraph(
        "value    ",
        &format!("now over before, one figure a {0}; verdicts need five {0}s a side", page.unit),
        Tone::Dim,
    );
    screen.paragraph(
        "worth    ",
        "each arm over its own run's baseline, now over before: changes that move all arms alike \
         cancel",
        Tone::Dim,
    );
    screen.finish()
}

fn table(screen: &mut Screen, metric: &ComparedMetric) {
    let better = metric.better.map_or(String::new(), |better| format!(" ({better})"));
    screen.heading(&format!("{}{better}", metric.label));
    screen.table(
        &["arm", ">before", ">now", ">value", "verdict", ">worth?", "verdict?"],
        metric.rows.iter().map(|row: &ComparedRow| {
            let [value, value_verdict] = change_cells(row.value.as_ref());
            let [worth, worth_verdict] = change_cells(row.worth.as_ref());
            let [old, new] = [&row.old, &row.new].map(|text| Cell::or_dash(text.as_deref()));
            vec![Cell::plain(&row.arm), old, new, value, value_verdict, worth, worth_verdict]
        }),
    );
}

fn change_cells(change: Option<&ChangeText>) -> [Cell; 2] {
    let Some(change) = change else { return [Cell::or_dash(None), Cell::or_dash(None)] };
    let verdict = change.verdict.replace("no difference shown", "no diff.");
    [Cell::plain(&change.ratio), Cell::toned(verdict, change.tone)]
}

/// Formats a series of runs of one experiment: for each arm and judged metric, its ratio to the baseline
/// over the runs, and the number of runs by verdict.
pub fn repeated(outcomes: &[Outcome], style: Style) -> String {
    let mut screen = Screen::new(style);
    let Some(last) = outcomes.last() else { return screen.finish() };
    for name in &last.judged {
        screen.blank();
        let better = last.arms.first().and_then(|arm| arm.metrics.get(name)).map(|m| m.better);
        let better = better.map_or(String::new(), |b| format!(" ({})", wording::better(b)));
        let runs = units::plural(outcomes.len() as u32, "run");
        screen.heading(&format!("{}{better}, ratio over {runs}", wording::metric(name)));
        let variants = last.arms.iter().filter(|arm| arm.kind.is_compared());
        let rows = variants.filter_map(|arm| repeated_row(outcomes, &arm.name, name));
        screen.table(&["arm", ">median", ">least", ">greatest", "runs by verdict?"], rows);
    }
    screen.finish()
}

fn repeated_row(outcomes: &[Outcome], arm: &str, metric: &str) -> Option<Vec<Cell>> {
    let found: Vec<_> = outcomes
        .iter()
        .filter_map(|outcome| outcome.arms.iter().find(|a| a.name == arm)?.metrics.get(metric))
        .collect();
    let mut ratios: Vec<f64> = found.iter().filter_map(|metric| metric.ratio).collect();
    ratios.sort_by(f64::total_cmp);
    let mut verdicts: BTreeMap<&str, u32> = BTreeMap::new();
    for verdict in found.iter().filter_map(|metric| metric.verdict) {
        *verdicts.entry(wording::verdict(verdict)).or_default() += 1;
    }
    let said: Vec<String> =
        verdicts.iter().map(|(word, count)| format!("{count} {word}")).collect();
    Some(vec![
        Cell::plain(arm),
        Cell::plain(units::ratio(model::statistics::median(&ratios)?)),
        Cell::plain(units::ratio(*ratios.first()?)),
        Cell::plain(units::ratio(*ratios.last()?)),
        Cell::plain(said.join(", ")),
    ])
}
