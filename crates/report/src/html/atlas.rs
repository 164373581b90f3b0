//! A static site of the worth of switches and knobs: an index, and a page for each path and load.

use maud::{Markup, html};

use super::{Shell, class, heading, remarks, section, summary_page, table};
use crate::page::AtlasSite;

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
    const COLUMNS: [&str; 6] =
        ["path and load", "switches", "metric", ">machines", ">ratio to the baseline", "verdict"];
    if site.index.is_empty() {
        return html! { p { "No run with switches or knobs of Wirepath." } };
    }
    let rows = html! {
        @for row in &site.index {
            tr {
                th scope="row" { a href=(row.file) { (row.subject) } }
                td { (row.arm) }
                td { (row.metric) }
                td.n { (row.machines) }
                td.n { (row.ratio) }
                td class=(class(row.tone)) { (row.verdict) }
            }
        }
    };
    let caption = html! { "By driver, kernel and machine: the page of each path and load" };
    table(Some("runs"), &caption, &COLUMNS, &rows)
}
