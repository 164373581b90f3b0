//! The figures of an experiment on one screen.

use model::Verdict;

use super::{calibrated, range, traffic, verdict};
use crate::page::{Absent, Page, PageMetric, Row};
use crate::screen::{Cell, Screen, Tone, wrap};
use crate::units;

/// Lines of a remark; the rest is cut.
const REMARK_LINES_MAX: usize = 2;

/// Lines of a result that the head and the table leave to warnings at the least.
const LINES_MAX: usize = 40;

/// Longest subject in the line of trust, characters: that of the user's own programs is a command line.
const SUBJECT_LEN_MAX: usize = 48;

/// Warnings that are shown; more are counted.
const WARNINGS_MAX: usize = 3;

/// Writes the table of all arms, the line of trust, and what changes how to read them.
pub(super) fn figures(screen: &mut Screen, page: &Page) {
    if let Some(first) = page.metrics.first() {
        screen.blank();
        table(screen, first, &page.metrics[1..]);
    }
    if let Some(figures) = &page.traffic {
        screen.blank();
        traffic(screen, figures);
    }
    if let Some(figures) = &page.calibrated {
        screen.blank();
        calibrated(screen, figures);
    }
    screen.blank();
    let is_told = page.title.contains(&page.subject);
    let subject = if is_told || page.subject.chars().count() > SUBJECT_LEN_MAX {
        String::new()
    } else {
        format!("{}: ", page.subject)
    };
    screen.paragraph("", &format!("{subject}{}; {}", page.trust, page.id), Tone::Dim);
    absent(screen, "no effect: ", &page.without_effect);
    absent(screen, "not here: ", &page.not_here);
    if let Some(set) = page.members.first() {
        remark(screen, &set.subject, &set.text, Tone::Strong);
    }
    for failures in page.failures.iter().take(1) {
        remark(screen, &format!("failed trials of {}", failures.arm), &failures.summary, Tone::Bad);
    }
    for lost in page.delivery.iter().take(1) {
        let others = page.delivery.len() - 1;
        let more = if others > 0 {
            format!("; {}", units::plural(others as u32, "more arm"))
        } else {
            String::new()
        };
        remark(screen, "delivery", &format!("{}: {}{more}", lost.subject, lost.text), Tone::Doubt);
    }
    warnings(screen, page);
}

/// All arms that ran: the first metric with its interval and verdict, and value and change of the others.
fn table(screen: &mut Screen, first: &PageMetric, others: &[PageMetric]) {
    let mut columns = vec![
        "arm".to_owned(),
        format!(">{}", first.label),
        ">change".to_owned(),
        "95 % interval?".to_owned(),
        "verdict".to_owned(),
    ];
    let others: Vec<&PageMetric> = others.iter().filter(|metric| has_figures(metric)).collect();
    columns.extend(others.iter().map(|metric| format!(">{}?", metric.label)));
    let shown = first.rows.iter().filter(|row| row.runs_here && !row.is_control && !is_idle(row));
    screen.table(
        &columns,
        shown.map(|row| {
            let tone =
                if row.figures.verdict == Some(Verdict::Worse) { Tone::Bad } else { Tone::Plain };
            let mut cells = vec![
                Cell::toned(&row.label, tone),
                Cell::or_dash(row.median.as_deref()),
                Cell::or_dash(row.ratio.as_deref()),
                Cell::or_dash(row.interval.as_deref().map(range).as_deref()),
                Cell::toned(verdict(row.verdict, true), row.tone),
            ];
            cells.extend(others.iter().map(|metric| other(metric, &row.arm)));
            cells
        }),
    );
}

fn has_figures(metric: &PageMetric) -> bool {
    metric.rows.iter().any(|row| row.median.is_some())
}

/// `2.80 µs 0.520×`.
fn other(metric: &PageMetric, arm: &str) -> Cell {
    let Some(row) = metric.rows.iter().find(|row| row.arm == arm) else {
        return Cell::or_dash(None);
    };
    let parts: Vec<&str> =
        [&row.median, &row.ratio].into_iter().flatten().map(String::as_str).collect();
    if parts.is_empty() {
        return Cell::or_dash(None);
    }
    Cell::toned(parts.join(" "), row.tone)
}

fn is_idle(row: &Row) -> bool {
    row.figures.verdict == Some(Verdict::NotEffective)
}

/// `not here: zero-copy (zero-copy on veth), huge-pages; -v for reasons`.
fn absent(screen: &mut Screen, label: &str, absent: &[Absent]) {
    if absent.is_empty() {
        return;
    }
    let names: Vec<String> = absent.iter().map(Absent::briefly).collect();
    screen.paragraph(label, &format!("{}; -v for reasons", names.join(", ")), Tone::Dim);
}

/// A remark of two lines at most.
fn remark(screen: &mut Screen, subject: &str, text: &str, tone: Tone) {
    let room = screen.width().saturating_sub(4);
    let whole = format!("{subject}: {text}");
    let lines = wrap(&whole, room);
    let text = if lines.len() > REMARK_LINES_MAX {
        let kept = lines[..REMARK_LINES_MAX].join(" ");
        let kept: String = kept.chars().take(kept.chars().count().saturating_sub(6)).collect();
        format!("{}…; -v", kept.strip_prefix(&format!("{subject}: ")).unwrap_or(text))
    } else {
        text.to_owned()
    };
    screen.item(subject, &text, tone);
}

fn warnings(screen: &mut Screen, page: &Page) {
    let room = LINES_MAX.saturating_sub(screen.line_count() + 1) / REMARK_LINES_MAX;
    let shown = room.min(WARNINGS_MAX);
    for warning in page.warnings.iter().take(shown) {
        remark(screen, &warning.subject, &warning.text, warning.tone);
    }
    let others = page.warnings.len().saturating_sub(shown);
    if others > 0 {
        let more = format!("{}: -v", units::plural(others as u32, "more warning"));
        screen.paragraph("  ", &more, Tone::Dim);
    }
}
