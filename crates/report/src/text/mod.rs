//! What a person sees in a terminal.

mod compare;
mod screen;

use model::{ArmKind, ArmOutcome, Ended, MetricOutcome, Outcome, Support, Verdict};

use crate::store::Summary;
use crate::{units, words};
pub use compare::compare;
use screen::{Cell, Column, Screen, Tone};
pub use screen::{ascii, entry};

/// Judged metrics that get a table of their own.
const TABLES: usize = 3;

/// Columns from which on there is room for whole words beside a bar.
const ROOMY: usize = 92;

/// How to write for this terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Columns; no line is longer. Taken as 40 when it is less.
    pub width: usize,
    /// Whether ANSI colours may be used.
    pub color: bool,
    /// Whether only ASCII may be written.
    pub ascii: bool,
}

impl Default for Style {
    fn default() -> Self {
        Style { width: 80, color: false, ascii: false }
    }
}

/// An experiment: headlines, a table per judged metric, and all that qualifies them.
pub fn ladder(outcome: &Outcome, style: Style) -> String {
    let mut screen = Screen::new(style);
    let subject = words::subject(&outcome.path, &outcome.load);
    screen.heading(&format!("{subject}  {}", outcome.id));
    for headline in words::headlines(outcome) {
        screen.paragraph("", &headline, Tone::Strong);
    }
    if outcome.ended == Ended::Unfinished {
        screen.paragraph("", "Not finished: figures of the trials so far.", Tone::Bad);
    }
    for name in outcome.judged.iter().take(TABLES) {
        screen.blank();
        table(&mut screen, outcome, name);
    }
    if outcome.judged.len() > TABLES {
        let rest: Vec<_> = outcome.judged[TABLES..].iter().map(|n| words::metric(n)).collect();
        screen.paragraph("also judged: ", &format!("{} (see --json)", rest.join(", ")), Tone::Dim);
    }
    remarks(&mut screen, outcome);
    screen.blank();
    screen.paragraph("machine  ", &words::machine(outcome), Tone::Dim);
    screen.paragraph("method   ", &words::method(outcome), Tone::Dim);
    screen.paragraph(
        "         ",
        "ratio: arm over baseline, median of paired blocks, 95 % interval; p: permutation test",
        Tone::Dim,
    );
    screen.finish()
}

fn table(screen: &mut Screen, outcome: &Outcome, name: &str) {
    let Some(shape) = words::shape(outcome, name) else {
        screen.paragraph(
            "",
            &format!("{}: no arm gave this figure", words::metric(name)),
            Tone::Dim,
        );
        return;
    };
    screen.heading(&format!("{} ({})", words::metric(name), words::better(shape.better)));
    let floor = match outcome.floor.get(name) {
        Some(floor) => format!(
            "A/A floor {} to {}: verdicts count only beyond it",
            units::ratio(floor.low),
            units::ratio(floor.high)
        ),
        None => "A/A floor not known: take no verdict for more than its interval".into(),
    };
    screen.paragraph("", &floor, Tone::Dim);

    let longest = outcome
        .arms
        .iter()
        .filter_map(|arm| arm.metrics.get(name)?.median)
        .filter(|median| median.is_finite())
        .fold(0.0, f64::max);
    let mut rows = Vec::new();
    let brief = screen.width() < ROOMY;
    for arm in &outcome.arms {
        rows.push(row(arm, arm.metrics.get(name), longest, brief));
    }
    screen.table(
        &[
            Column::left("arm").keep(),
            Column::right("median").keep(),
            Column::right("ratio").keep(),
            Column::left("interval"),
            Column::right("p"),
            Column::left("verdict").keep(),
            Column::bar("median"),
        ],
        rows,
    );
}

fn row(arm: &ArmOutcome, metric: Option<&MetricOutcome>, longest: f64, brief: bool) -> Vec<Cell> {
    let Some(metric) = metric else {
        let none = || Cell::plain("–");
        let why = match &arm.support {
            Support::Unsupported { .. } => "unsupported",
            Support::Refused { .. } => "refused",
            Support::Yes if arm.trials == 0 => "no trial",
            Support::Yes => "not measured",
        };
        return vec![
            Cell::plain(&arm.name),
            none(),
            none(),
            none(),
            none(),
            Cell::toned(why, Tone::Dim),
            Cell::bar(0.0, Tone::Dim),
        ];
    };
    let figure = |text: Option<String>| Cell::plain(&text.unwrap_or_else(|| "–".into()));
    let tone = tone(metric.verdict);
    let verdict = match (metric.verdict, arm.kind) {
        (None, ArmKind::Baseline) => "baseline",
        (None, _) => "not judged",
        (Some(Verdict::NoDifferenceShown), _) if brief => "no diff. shown",
        (Some(verdict), _) => words::verdict(verdict),
    };
    let range = |low, high| format!("{}–{}", units::digits(low), units::digits(high));
    let median = metric.median.filter(|m| m.is_finite());
    vec![
        Cell::plain(&arm.name),
        figure(median.map(|m| units::value(m, &metric.unit))),
        figure(metric.ratio.map(units::ratio)),
        figure(metric.low.zip(metric.high).map(|(low, high)| range(low, high))),
        figure(metric.p.map(units::p)),
        Cell::toned(verdict, tone),
        Cell::bar(median.map_or(0.0, |m| if longest > 0.0 { m / longest } else { 0.0 }), tone),
    ]
}

fn tone(verdict: Option<Verdict>) -> Tone {
    match verdict {
        Some(Verdict::Better) => Tone::Good,
        Some(Verdict::Worse) => Tone::Bad,
        Some(Verdict::Refused | Verdict::NotEffective | Verdict::Inconclusive) => Tone::Doubt,
        _ => Tone::Plain,
    }
}

/// All that qualifies the tables: only what there is something to say of.
fn remarks(screen: &mut Screen, outcome: &Outcome) {
    let mut section = Section { screen, title: None };
    section.begin("why there is no verdict");
    for arm in outcome.arms.iter().filter(|arm| arm.support.is_yes()) {
        for (why, metrics) in words::reasons(arm, &outcome.judged) {
            section.item(&arm.name, &format!("{} ({})", why, metrics.join(", ")), Tone::Doubt);
        }
    }
    section.begin("delivery");
    for arm in &outcome.arms {
        if let Some(books) = words::Books::of(arm).words() {
            section.item(&arm.name, &books, Tone::Doubt);
        }
    }
    section.begin("failed trials");
    for arm in outcome.arms.iter().filter(|arm| !arm.failures.is_empty()) {
        let text = format!("{} failed, the last: {}", arm.failures.len(), last(&arm.failures));
        section.item(&arm.name, &text, Tone::Bad);
    }
    section.begin("mode in use");
    for (name, mode, arms) in words::modes(outcome) {
        section.item(&format!("{name}: {mode}"), &arms.join(", "), Tone::Plain);
    }
    section.begin("not run here");
    for arm in &outcome.arms {
        match &arm.support {
            Support::Yes => {}
            Support::Unsupported { what, needs } => {
                section.item(&arm.name, &format!("{what}. To run it: {needs}"), Tone::Doubt);
            }
            Support::Refused { why } => {
                section.item(&arm.name, &format!("not run on purpose: {why}"), Tone::Doubt);
            }
        }
    }
    section.begin("warnings");
    if let Some(fault) = words::control_fault(outcome) {
        section.item("A/A control", &format!("{fault}. Repeat on a quieter machine."), Tone::Bad);
    }
    for warning in &outcome.warnings {
        section.item(&warning.what, &warning.advice, Tone::Doubt);
    }
}

fn last(failures: &[String]) -> &str {
    failures.last().map_or("", String::as_str)
}

/// Writes its title before its first item, and nothing when there is none.
struct Section<'a> {
    screen: &'a mut Screen,
    title: Option<&'static str>,
}

impl Section<'_> {
    fn begin(&mut self, title: &'static str) {
        self.title = Some(title);
    }

    fn item(&mut self, subject: &str, text: &str, tone: Tone) {
        if let Some(title) = self.title.take() {
            self.screen.blank();
            self.screen.heading(title);
        }
        self.screen.item(subject, text, tone);
    }
}

/// Experiments in the store, one a line and its headline below.
pub fn list(rows: &[Summary], style: Style) -> String {
    let mut screen = Screen::new(style);
    if rows.is_empty() {
        screen.paragraph("", "No experiment saved yet. `wirepath prove` makes one.", Tone::Plain);
        return screen.finish();
    }
    for row in rows {
        let state = match row.ended {
            Ended::Settled => ("settled", Tone::Good),
            Ended::TimeUp => ("time up", Tone::Plain),
            Ended::BlockLimit => ("block limit", Tone::Plain),
            Ended::Interrupted => ("interrupted", Tone::Doubt),
            Ended::Unfinished => ("unfinished", Tone::Doubt),
        };
        screen.heading(&row.id);
        let counts = format!(
            "{} · {} · {} · {} · ",
            words::subject(&row.path, &row.load),
            words::counted(row.arms, "arm"),
            words::counted(row.blocks, "block"),
            words::counted(row.trials, "trial")
        );
        screen.item(&counts, state.0, state.1);
        if let Some(headline) = &row.headline {
            screen.item("", headline, Tone::Plain);
        }
    }
    screen.finish()
}
