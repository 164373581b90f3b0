//! A mesh of hosts, as a page.

use maud::{Markup, html};

use super::{Shell, class, findings, heading, section, table};
use crate::page::{MeshCell, MeshPage};

pub fn mesh_page(page: &MeshPage) -> String {
    let body = html! {
        (heading(&page.subject, &page.caption))
        (section("Answer", &findings(&page.findings)))
        (section("Pairs", &matrix(page)))
        (section("What qualifies this", &html! { @for remark in &page.remarks { p { (remark) } } }))
    };
    Shell::File.page(&page.subject, &body)
}

fn matrix(page: &MeshPage) -> Markup {
    let numbers: Vec<String> = (1..=page.hosts.len()).map(|at| format!(">{at}")).collect();
    let numbers = numbers.iter().map(String::as_str);
    let columns: Vec<&str> = ["host"].into_iter().chain(numbers).chain([">part"]).collect();
    let rows = html! {
        @for (at, host) in page.hosts.iter().enumerate() {
            tr {
                th scope="row" { (at + 1) " " (host) }
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
