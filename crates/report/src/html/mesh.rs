//! A mesh of hosts, as a page.

use maud::{Markup, html};

use super::{Shell, class, heading, section, table};
use crate::page::{MeshCell, MeshPage};

/// The mesh as one self-contained HTML file.
pub fn mesh_page(page: &MeshPage) -> String {
    let body = html! {
        (heading(&page.subject, &page.caption))
        (section("Answer", &answer(page)))
        (section("Pairs", &matrix(page)))
        (section("What qualifies this", &html! { @for remark in &page.remarks { p { (remark) } } }))
    };
    Shell::File.page(&page.subject, &body)
}

fn answer(page: &MeshPage) -> Markup {
    html! {
        @for (tone, finding) in &page.findings { p class=(class(*tone)) { (finding) } }
    }
}

fn matrix(page: &MeshPage) -> Markup {
    let numbers: Vec<String> = (1..=page.hosts.len()).map(|at| at.to_string()).collect();
    let columns: Vec<(&str, bool)> = [("host", false)]
        .into_iter()
        .chain(numbers.iter().map(|number| (number.as_str(), true)))
        .chain([("part", true)])
        .collect();
    let rows = html! {
        @for (at, host) in page.hosts.iter().enumerate() {
            tr {
                th scope="row" { (numbers[at]) " " (host) }
                @for cell in &page.cells[at] { (shown(cell.as_ref())) }
                td.n { (page.parts[at]) }
            }
        }
    };
    table(None, &html! { (page.caption) }, &columns, &rows)
}

fn shown(cell: Option<&MeshCell>) -> Markup {
    html! {
        @match cell {
            None => { td.n { "·" } }
            Some(cell) => { td.n { span class=(class(cell.tone)) { (cell.text) } } }
        }
    }
}
