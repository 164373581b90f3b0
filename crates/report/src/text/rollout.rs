//! A staged roll-out, in a terminal.

use super::Style;
use crate::page::{LiveRow, RolloutHost, RolloutPage, RolloutStage};
use crate::screen::{Cell, Screen, Tone};

/// Formats a roll-out: its end, its stages, its hosts and every transition.
pub fn rollout(page: &RolloutPage, style: Style) -> String {
    let mut screen = Screen::new(style);
    screen.heading(&page.subject);
    for (tone, finding) in &page.findings {
        screen.paragraph("", finding, *tone);
    }
    screen.paragraph("", &page.caption, Tone::Dim);
    screen.blank();
    let stages = [">stage", ">hosts", ">ratio", "proof", "control?", "now"];
    screen.table(&stages, page.stages.iter().map(stage));
    screen.blank();
    if !page.figures.is_empty() {
        let figures = [">stage", "figure", ">ratio", "verdict", ">evidence", ">decided after"];
        screen.table(&figures, page.figures.iter().map(figure));
        screen.blank();
    }
    let hosts = ["host", ">stage", ">ratio", "verdict"];
    screen.table(&hosts, page.hosts.iter().map(host));
    screen.blank();
    for (state, why) in &page.steps {
        screen.paragraph("", &format!("{state}: {why}"), Tone::Dim);
    }
    screen.blank();
    for remark in &page.remarks {
        screen.paragraph("", remark, Tone::Dim);
    }
    screen.finish()
}

fn stage(stage: &RolloutStage) -> Vec<Cell> {
    vec![
        Cell::plain(&stage.name),
        Cell::plain(&stage.hosts),
        Cell::plain(&stage.ratio),
        Cell::toned(&stage.verdict, stage.tone),
        Cell::plain(&stage.control),
        Cell::plain(&stage.now),
    ]
}

fn figure((stage, row): &(String, LiveRow)) -> Vec<Cell> {
    vec![
        Cell::plain(stage),
        Cell::plain(&row.figure),
        Cell::plain(&row.ratio),
        Cell::toned(&row.verdict, row.tone),
        Cell::plain(&row.evidence),
        Cell::plain(&row.decided),
    ]
}

fn host(host: &RolloutHost) -> Vec<Cell> {
    let (text, tone) = host.outcome();
    vec![
        Cell::plain(&host.host),
        Cell::plain(&host.stage),
        Cell::plain(host.ratio()),
        Cell::toned(text, tone),
    ]
}
