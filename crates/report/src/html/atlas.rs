//! A static site of the worth of switches and knobs: an index, and a page for each path and load.

use maud::{Markup, html};

use super::{Shell, class, heading, remarks, section, summary_page, table};
use crate::page::{AtlasIndexRow, AtlasSite};

/// Name of the first page.
pub const ATLAS_INDEX: &str = "index.html";

/// Returns the files of the site, by name. Every string is escaped, and no page has a script: a reader searches with the
/// browser.
pub fn atlas_site(site: &AtlasSite) -> Vec<(String, String)> {
    let pages = site.pages.iter().map(|of| (of.file.clone(), summary_page(&of.page)));
    std::iter::once((ATLAS_INDEX.to_owned(), index_page(site))).chain(pages).collect()
}

fn index_page(site: &AtlasSite) -> String {
    const TITLE: &str = "What each switch is worth, on many machines";
    let body = html! {
        (heading(TITLE, &site.about))
        (section("All machines", &index(site)))
        (section("Left out", &remarks(&site.left_out)))
    };
    Shell::File.page(TITLE, &body)
}

fn index(site: &AtlasSite) -> Markup {
    if site.index.is_empty() {
        return html! { p { "No run with switches or knobs of Wirepath." } };
    }
    html! {
        p { "By driver, kernel and machine: the page of each path and load." }
        @for rows in site.index.chunk_by(|a, b| a.file == b.file) { (index_part(rows)) }
    }
}

/// - `rows`: of one path and load.
fn index_part(rows: &[AtlasIndexRow]) -> Markup {
    const COLUMNS: [&str; 5] =
        ["switches", "metric", ">ratio to the baseline", "verdict", ">machines"];
    let caption =
        html! { @if let Some(first) = rows.first() { a href=(first.file) { (first.subject) } } };
    let lines = html! {
        @for row in rows {
            tr {
                th scope="row" { (row.arm) }
                td { (row.metric) }
                td.n { (row.ratio) }
                td class=(class(row.tone)) { (row.verdict) }
                td.n { (row.machines) }
            }
        }
    };
    table(Some("runs"), &caption, &COLUMNS, &lines)
}
