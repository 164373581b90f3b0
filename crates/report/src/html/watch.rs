//! Changes in the history of each figure, as a page.

use maud::{Markup, html};
use model::Watch;

use super::{Shell, class, gate_lines, heading, remarks, section, table};
use crate::page::WatchPage;

/// A watched history as one self-contained HTML file.
pub fn watch_page(watch: &Watch) -> String {
    let page = WatchPage::from_watch(watch);
    let body = html! {
        (heading("Changes over time", &page.subject))
        (section("Answer", &gate_lines(&page.gate)))
        (section("Changes", &changes(&page)))
        (section("All series", &all(&page)))
        (section("What qualifies this", &remarks(&page.remarks)))
        (section("Method", &html! { @for text in &page.method { p { (text) "." } } }))
    };
    Shell::File.page("Changes over time", &body)
}

fn changes(page: &WatchPage) -> Markup {
    let changed = page.series.iter().filter(|row| !row.changes.is_empty());
    html! {
        @for row in changed {
            h3 { (row.subject) ": " (row.metric) " of " (row.arm) " on " (row.machine) }
            (remarks(&row.changes))
        }
    }
}

fn all(page: &WatchPage) -> Markup {
    const COLUMNS: [&str; 7] =
        ["path and load", "arm", "metric", "machine", ">length", ">latest", "latest change"];
    let rows = html! {
        @for row in &page.series {
            tr {
                th scope="row" { (row.subject) }
                td { (row.arm) }
                td { (row.metric) }
                td { (row.machine) }
                td.n { (row.sessions) }
                td.n { (row.latest) }
                td class=(class(row.tone)) { (row.change) }
            }
        }
    };
    table(Some("runs"), &html! { (page.subject) }, &COLUMNS, &rows)
}
