//! Two experiments against each other, in a terminal.

use model::{RunComparison, Verdict};

use super::screen::{Cell, Column, Screen, Tone};
use super::{Style, tone};
use crate::{compared, units, words};

/// What differs, the answer, a table per judged metric, and all that qualifies them.
pub fn compare(comparison: &RunComparison, style: Style) -> String {
    let mut screen = Screen::new(style);
    screen.heading(&words::subject(&comparison.path, &comparison.load));
    for (label, run) in [("before  ", &comparison.old), ("now     ", &comparison.new)] {
        let what = format!(
            "{} ({}, wirepath {})",
            run.id,
            words::counted(run.blocks, "block"),
            run.version
        );
        screen.paragraph(label, &what, Tone::Plain);
    }
    match comparison.same_machine {
        true => screen.paragraph("machine ", "the same by its description", Tone::Dim),
        false => screen.paragraph("machine ", "NOT the same", Tone::Bad),
    }
    for difference in &comparison.differences {
        let text = format!("{} before, {} now", difference.old, difference.new);
        screen.item(&difference.what, &text, Tone::Doubt);
    }
    screen.blank();
    for (label, by_worth) in [("values: ", false), ("worth:  ", true)] {
        let (word, verdict) = compared::verdict(comparison, by_worth);
        let text = format!("{word}: {}", compared::sentence(comparison, by_worth));
        screen.paragraph(
            label,
            &text,
            match tone(Some(verdict)) {
                Tone::Plain => Tone::Strong,
                tone => tone,
            },
        );
    }
    for name in &comparison.judged {
        screen.blank();
        table(&mut screen, comparison, name);
    }
    remarks(&mut screen, comparison);
    screen.blank();
    screen.paragraph(
        "value    ",
        "now over before; counts beyond both A/A floors and both runs' own drift",
        Tone::Dim,
    );
    screen.paragraph(
        "worth    ",
        "each arm over its own run's baseline, now over before: free of what moves all arms alike; \
         counts beyond both A/A floors",
        Tone::Dim,
    );
    screen.finish()
}

fn table(screen: &mut Screen, comparison: &RunComparison, name: &str) {
    let better =
        comparison.values().find(|(_, n, _)| *n == name).map(|(_, _, metric)| metric.better);
    let better = better.map_or(String::new(), |better| format!(" ({})", words::better(better)));
    screen.heading(&format!("{}{better}", words::metric(name)));
    screen.paragraph("", &compared::noise(comparison, name), Tone::Dim);
    let mut rows = Vec::new();
    for arm in &comparison.arms {
        let Some(metric) = arm.metrics.get(name) else { continue };
        let figure = |value: Option<f64>| {
            Cell::plain(&value.map_or("–".into(), |value| units::value(value, &metric.unit)))
        };
        let change = |change: &Option<model::Change>| {
            let Some(change) = change else { return [Cell::plain("–"), Cell::plain("–")] };
            let word = match change.verdict {
                Verdict::NoDifferenceShown => "no diff.",
                verdict => words::verdict(verdict),
            };
            [
                Cell::plain(&units::ratio(change.ratio)),
                Cell::toned(word, tone(Some(change.verdict))),
            ]
        };
        let [value, value_word] = change(&metric.value);
        let [worth, worth_word] = change(&metric.worth);
        rows.push(vec![
            Cell::plain(&arm.name),
            figure(metric.old),
            figure(metric.new),
            value,
            value_word,
            worth,
            worth_word,
        ]);
    }
    screen.table(
        &[
            Column::left("arm").keep(),
            Column::right("before").keep(),
            Column::right("now").keep(),
            Column::right("value").keep(),
            Column::left("verdict").keep(),
            Column::right("worth"),
            Column::left("verdict"),
        ],
        rows,
    );
}

fn remarks(screen: &mut Screen, comparison: &RunComparison) {
    let mut items: Vec<(String, String)> = comparison
        .values()
        .filter_map(|(arm, name, metric)| {
            let why = metric.why.as_ref()?;
            Some((format!("{}, {}", arm.name, words::metric(name)), why.clone()))
        })
        .collect();
    for (arms, when) in [(&comparison.only_old, "before"), (&comparison.only_new, "now")] {
        if !arms.is_empty() {
            items.push((format!("only {when}"), arms.join(", ")));
        }
    }
    items.extend(comparison.warnings.iter().map(|w| (w.what.clone(), w.advice.clone())));
    if items.is_empty() {
        return;
    }
    screen.blank();
    screen.heading("what qualifies this");
    for (subject, text) in items {
        screen.item(&subject, &text, Tone::Doubt);
    }
}
