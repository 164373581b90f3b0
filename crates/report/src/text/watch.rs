//! Changes in the history of each figure, in a terminal.

use model::Watch;

use super::{Style, section};
use crate::page::{WatchPage, WatchRow};
use crate::screen::{Cell, Screen, Tone};

/// Formats a watched history: the gate, every change, then a table of all series.
pub fn watch(watch: &Watch, style: Style) -> String {
    let page = WatchPage::from_watch(watch);
    let mut screen = Screen::new(style);
    screen.heading(&page.subject);
    for line in &page.gate {
        screen.paragraph("gate:   ", &line.sentence, line.tone);
    }
    for row in page.series.iter().filter(|row| !row.changes.is_empty()) {
        screen.blank();
        screen
            .heading(&format!("{}: {} of {} on {}", row.subject, row.metric, row.arm, row.machine));
        for change in &row.changes {
            screen.item(&change.subject, &change.text, change.tone);
        }
    }
    screen.blank();
    let mut last = None;
    let mut rows: Vec<&WatchRow> = page.series.iter().collect();
    rows.sort_by(|a, b| a.subject.cmp(&b.subject));
    for part in rows.chunk_by(|a, b| a.subject == b.subject) {
        if last.replace(&part[0].subject).is_some() {
            screen.blank();
        }
        screen.heading(&part[0].subject);
        let columns = ["arm", "metric", "machine?", ">length", ">latest", "latest change"];
        screen.table(
            &columns,
            part.iter().map(|row: &&WatchRow| {
                let change = Cell::toned(row.change.clone(), row.tone);
                vec![
                    Cell::plain(&row.arm),
                    Cell::plain(&row.metric),
                    Cell::plain(&row.machine),
                    Cell::plain(&row.sessions),
                    Cell::plain(&row.latest),
                    change,
                ]
            }),
        );
    }
    section(&mut screen, "what qualifies this", &page.remarks);
    screen.blank();
    for text in &page.method {
        screen.paragraph("method  ", text, Tone::Dim);
    }
    screen.finish()
}
