//! A proof on a running service, in a terminal: at most 40 lines.

use super::Style;
use crate::page::LivePage;
use crate::screen::{Cell, Screen, Tone};
use crate::units;

/// Lists are cut here, so that the whole fits.
const ROWS_MAX: usize = 7;
const TRIPS_MAX: usize = 2;

/// Formats a proof: a sentence for each judged figure, the trust, and one table.
pub fn live(page: &LivePage, style: Style) -> String {
    let mut screen = Screen::new(style);
    screen.heading(&page.title);
    for sentence in page.sentences.iter().take(ROWS_MAX) {
        screen.paragraph("", &sentence.text, sentence.tone);
    }
    if let Some(more) = page.sentences.len().checked_sub(ROWS_MAX).filter(|more| *more > 0) {
        let text =
            format!("{} more in the page and with --json.", units::plural(more as u64, "figure"));
        screen.paragraph("", &text, Tone::Dim);
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
    screen.table(&["", ">baseline", ">on/off", "verdict", ">evidence", ">after"], rows);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::tests::sample;

    #[test]
    fn text_fits_forty_lines_of_eighty_columns() {
        let mut proof = sample();
        for number in 0..30 {
            let mut figure = proof.outcome.figures[2].clone();
            figure.name = format!("a_figure_with_a_long_name_{number}");
            proof.outcome.figures.push(figure);
            proof.outcome.verdicts.push(proof.outcome.verdicts[2].clone());
        }
        for proof in [sample(), proof] {
            let text = live(&LivePage::from_proof(&proof), Style { width: 80, ..Style::default() });
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(text.lines().count() <= 40 && widest <= 100, "{text}");
        }
    }
}
