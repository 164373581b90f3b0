//! A curve of latency against load in a terminal.

use model::LoadCurve;

use super::{Style, section};
use crate::page::{CurveArm, CurvePage};
use crate::screen::{Cell, Screen, Tone};

/// Formats a curve: the knees, a table per arm, and their qualifications.
pub fn curve(curve: &LoadCurve, style: Style) -> String {
    let page = CurvePage::from_curve(curve);
    let mut screen = Screen::new(style);
    screen.heading(&page.subject);
    screen.paragraph("", &page.below, Tone::Dim);
    for knee in &page.knees {
        screen.item(&knee.subject, &knee.text, knee.tone);
    }
    for arm in &page.arms {
        screen.blank();
        table(&mut screen, arm);
    }
    section(&mut screen, "doubts", &page.doubts);
    screen.blank();
    screen.paragraph("machine  ", &page.machine_line, Tone::Dim);
    screen.paragraph("method   ", &page.method, Tone::Dim);
    screen.finish()
}

fn table(screen: &mut Screen, arm: &CurveArm) {
    screen.heading(&arm.name);
    let columns = [
        ">offered",
        ">sent?",
        ">received?",
        ">lost",
        ">unsent",
        ">p50",
        ">p99",
        ">max",
        ">CPU/packet?",
    ];
    let rows = arm.rows.iter().map(|row| {
        let figures = row.figures.iter().map(|figure| figure.as_deref().unwrap_or("–"));
        // The knee has its sentence above.
        let tone = if row.is_knee { Tone::Good } else { row.tone };
        [row.offered.as_str()]
            .into_iter()
            .chain(row.counts.iter().map(String::as_str))
            .chain(figures)
            .map(|text| Cell::toned(text, tone))
            .collect()
    });
    screen.table(&columns, rows);
}
