//! Results in a terminal.

mod brief;
mod compare;
mod curve;
mod live;
mod mesh;
mod pooled;
mod rollout;
mod watch;

use model::Outcome;

use crate::page::{
    Beside, BesideCell, Calibrated, Failures, FunctionLine, FunctionTable, Page, PageMetric,
    Remark, Row, Traffic,
};
use crate::screen::{Cell, Screen, Tone};
use crate::store::Summary;
use crate::{units, wording};

pub use crate::screen::{Style, ascii, visible, visible_colored, visible_json};
pub use compare::{compare, repeated};
pub use curve::curve;
pub use live::live;
pub use mesh::mesh;
pub use pooled::pooled;
pub use rollout::rollout;
pub use watch::watch;

/// Judged metrics that get a table of their own; one has all.
const TABLES_MAX: usize = 3;

/// Columns from which a table has room for whole verdicts.
const ROOMY: usize = 92;

/// Extent of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Sentences, one table, and the line of trust: one screen.
    Brief,
    /// Every table, distribution of reasons, machine and method.
    Full,
}

/// Formats an experiment: its sentences, then one table, or with [`Detail::Full`] all figures and their qualifications.
pub fn ladder(outcome: &Outcome, style: Style, detail: Detail) -> String {
    let page = Page::from_outcome(outcome);
    let mut screen = Screen::new(style);
    screen.heading(&match detail {
        Detail::Brief => page.title.clone(),
        Detail::Full => format!("{}  {}", page.title, page.id),
    });
    head(&mut screen, &page);
    match detail {
        Detail::Brief => brief::figures(&mut screen, &page),
        Detail::Full => full(&mut screen, &page),
    }
    screen.finish()
}

/// Note and sentences.
fn head(screen: &mut Screen, page: &Page) {
    if let Some(note) = &page.note {
        screen.paragraph("", note, Tone::Dim);
    }
    for sentence in &page.sentences {
        screen.paragraph("", &sentence.text, sentence.tone);
    }
}

fn full(screen: &mut Screen, page: &Page) {
    for line in page.further_answers() {
        screen.paragraph("", &line.sentence, line.tone);
    }
    for metric in page.metrics.iter().take(TABLES_MAX) {
        screen.blank();
        table(screen, metric);
    }
    if let Some(figures) = &page.beside {
        screen.blank();
        beside(screen, figures);
    }
    if let Some(figures) = &page.traffic {
        screen.blank();
        traffic(screen, figures);
    }
    if let Some(figures) = &page.calibrated {
        screen.blank();
        calibrated(screen, figures);
    }
    if let Some(table) = &page.functions {
        screen.blank();
        functions(screen, table);
    }
    let failures: Vec<Remark> = page.failures.iter().map(Failures::remark).collect();
    for (title, remarks) in [
        ("the best set", &page.members),
        ("why there is no verdict", &page.reasons),
        ("delivery", &page.delivery),
        ("failed trials", &failures),
        ("mode in use", &page.modes),
        ("not run here", &page.not_run),
        ("warnings", &page.warnings),
    ] {
        section(screen, title, remarks);
    }
    screen.blank();
    screen.paragraph("load     ", &page.subject, Tone::Dim);
    screen.paragraph("machine  ", &page.machine_line, Tone::Dim);
    screen.paragraph("method   ", &page.method, Tone::Dim);
    let smallest = page.smallest_p.iter().map(|note| format!("; {note}")).collect::<String>();
    screen.paragraph(
        "         ",
        &format!(
            "ratio: arm over the mean of both baselines, median of blocks, 95 % interval, of the best of several \
             arms one that holds for all of them; A/A floor: the baseline against itself; step: over the rung with one \
             switch less; p: permutation test, corrected for the number of verdicts{smallest}"
        ),
        Tone::Dim,
    );
}

fn table(screen: &mut Screen, metric: &PageMetric) {
    let is_empty = metric.rows.iter().all(|row| row.median.is_none());
    let Some(better) = metric.better.filter(|_| !is_empty) else {
        screen.paragraph("", &format!("{}: no arm gave this figure", metric.label), Tone::Dim);
        return;
    };
    screen.heading(&format!("{} ({better})", metric.label));
    let floor = match &metric.floor {
        Some(floor) => format!("A/A floor {floor}"),
        None => "A/A floor not known: the control gave no interval".into(),
    };
    let checks = metric.checks.iter().map(|checks| format!("; {checks}")).collect::<String>();
    let found = metric.finds.as_ref();
    let found = found.map(|least| format!("; finds {least} in 19 of 20 runs"));
    screen.paragraph("", &format!("{floor}{checks}{}", found.unwrap_or_default()), Tone::Dim);
    if let Some(reason) = metric.distrust {
        screen.paragraph("", reason, Tone::Bad);
    }
    let narrow = screen.width() < ROOMY;
    screen.table(
        // The bar is that of the median; a second heading of that name would promise another column.
        &["arm", ">median", ">ratio", ">step", "interval?", ">p?", "verdict", "|?"],
        metric.rows.iter().filter(|row| row.runs_here).map(|row| arm_row(row, narrow)),
    );
}

fn arm_row(row: &Row, is_narrow: bool) -> Vec<Cell> {
    let step = row.step.as_ref().map(|(step, tone)| Cell::toned(step, *tone));
    vec![
        Cell::plain(&row.label),
        Cell::or_dash(row.median.as_deref()),
        Cell::or_dash(row.ratio.as_deref()),
        step.unwrap_or_else(|| Cell::or_dash(None)),
        Cell::or_dash(row.interval.as_deref().map(range).as_deref()),
        Cell::or_dash(row.p.as_deref()),
        Cell::toned(verdict(row.verdict, is_narrow), row.tone),
        Cell::bar(row.bar, row.tone),
    ]
}

/// A table of rates, round trips and jitter. All columns but the first two are left out where there is no room.
fn traffic(screen: &mut Screen, traffic: &Traffic) {
    let labels = traffic.labels.iter().enumerate();
    let labels = labels.map(|(at, label)| format!(">{label}{}", if at < 2 { "" } else { "?" }));
    figures_by_arm(screen, labels, &traffic.rows);
}

/// Latency from a time in the packet.
fn calibrated(screen: &mut Screen, calibrated: &Calibrated) {
    screen.paragraph("", calibrated.caption, Tone::Dim);
    let labels = calibrated.labels.iter().map(|label| format!(">{label}"));
    figures_by_arm(screen, labels, &calibrated.rows);
}

fn figures_by_arm(
    screen: &mut Screen,
    labels: impl Iterator<Item = String>,
    rows: &[(String, Vec<Option<String>>)],
) {
    let columns: Vec<String> = std::iter::once("arm".to_owned()).chain(labels).collect();
    let rows = rows.iter().map(|(arm, figures)| {
        let figures = figures.iter().map(|text: &Option<String>| Cell::or_dash(text.as_deref()));
        std::iter::once(Cell::plain(arm)).chain(figures).collect()
    });
    screen.table(&columns, rows);
}

/// A table of what an arm gains beside what it pays.
fn beside(screen: &mut Screen, figures: &Beside) {
    screen.heading("gain beside price");
    screen.paragraph("", figures.note, Tone::Dim);
    let labels = figures.labels.iter().map(|label| format!(">{label}"));
    let columns: Vec<String> = std::iter::once("arm".to_owned()).chain(labels).collect();
    screen.table(
        &columns,
        figures.rows.iter().map(|(arm, cells): &(String, Vec<BesideCell>)| {
            [Cell::plain(arm)]
                .into_iter()
                .chain(cells.iter().map(|(text, tone): &BesideCell| {
                    Cell::toned(text.as_deref().unwrap_or("–"), *tone)
                }))
                .collect()
        }),
    );
}

/// A table of the functions whose CPU time differs most.
fn functions(screen: &mut Screen, table: &FunctionTable) {
    screen.heading("CPU time by function");
    screen.paragraph("", &table.caption, Tone::Dim);
    let [old, new, difference] = &table.labels;
    let columns = [
        "function".to_owned(),
        "in?".to_owned(),
        format!(">{old}"),
        format!(">{new}"),
        format!(">{difference}"),
    ];
    let rows = table.rows.iter().map(|row: &FunctionLine| {
        let place = Some(row.place.as_str()).filter(|place| !place.is_empty());
        let names = [Cell::plain(&row.function), Cell::or_dash(place)];
        names.into_iter().chain(row.figures.iter().map(Cell::plain)).collect()
    });
    screen.table(&columns, rows);
}

/// `[0.988, 1.01]` → `0.988–1.01`, so that the bar fits into 80 columns.
fn range(interval: &str) -> String {
    interval.trim_matches(['[', ']']).replace(", ", "–")
}

fn verdict(verdict: &'static str, narrow: bool) -> &'static str {
    match verdict {
        "no difference shown" if narrow => "no diff. shown",
        verdict => verdict,
    }
}

/// Nothing without remarks.
fn section(screen: &mut Screen, title: &str, remarks: &[Remark]) {
    if remarks.is_empty() {
        return;
    }
    screen.blank();
    screen.heading(title);
    for remark in remarks {
        screen.item(&remark.subject, &remark.text, remark.tone);
    }
}

/// Formats a list of experiments, each with its headline.
pub fn list(rows: &[Summary], style: Style) -> String {
    let mut screen = Screen::new(style);
    if rows.is_empty() {
        screen.paragraph(
            "",
            "No experiments stored; `wirepath prove` runs and stores one.",
            Tone::Plain,
        );
        return screen.finish();
    }
    for row in rows {
        let (state, tone) = wording::ended_briefly(row.ended);
        screen.heading(&format!("{}  {}", row.id, row.title));
        let extent = match row.trials {
            // A document has no trials.
            0 if row.headline.is_some() => "imported".to_owned(),
            trials => format!(
                "{} · {}",
                units::plural(row.blocks, "block"),
                units::plural(trials, "trial")
            ),
        };
        let counts = format!("{} · {} · {extent} · ", row.path, units::plural(row.arms, "arm"));
        screen.item(&counts, state, tone);
        if let Some(headline) = &row.headline {
            screen.item("", headline, Tone::Plain);
        }
        if let Some(note) = &row.note {
            screen.item("", note, Tone::Dim);
        }
    }
    screen.finish()
}
