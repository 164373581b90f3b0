//! A proof on a running service, in a terminal: at most 40 lines.

use super::Style;
use crate::page::LivePage;
use crate::screen::{Cell, Screen, Tone};

/// Lists are cut here, so that the whole fits.
const ROWS_MAX: usize = 10;
const TRIPS_MAX: usize = 3;

/// Formats a proof: a sentence for each judged figure, the trust, and one table.
pub fn live(page: &LivePage, style: Style) -> String {
    let mut screen = Screen::new(style);
    screen.heading(&page.title);
    for sentence in page.sentences.iter().take(ROWS_MAX) {
        screen.paragraph("", &sentence.text, sentence.tone);
    }
    screen.paragraph("", &format!("{}.", page.trust.0), page.trust.1);
    screen.paragraph("", &page.end.0, page.end.1);
    screen.blank();
    let rows = page.rows.iter().take(ROWS_MAX).map(|row| {
        vec![
            Cell::plain(format!("  {}", row.figure)),
            Cell::plain(&row.baseline),
            Cell::plain(&row.ratio),
            Cell::toned(&row.verdict, row.tone),
            Cell::plain(&row.evidence),
            Cell::plain(&row.decided),
        ]
    });
    screen.table(&["", ">baseline", ">on over off", "verdict", ">evidence", ">after"], rows);
    screen.blank();
    for (what, text) in &page.facts {
        screen.paragraph(&format!("{what}: "), text, Tone::Dim);
    }
    for [at, arm, reason, undone] in page.trips.iter().take(TRIPS_MAX) {
        let text = format!("{at} after the first switch, {arm}: {reason}; undone after {undone}");
        screen.paragraph("Trip: ", &text, Tone::Doubt);
    }
    for (figure, why) in page.absent.iter().take(TRIPS_MAX) {
        screen.paragraph("Absent: ", &format!("{figure}: {why}"), Tone::Dim);
    }
    screen.finish()
}
