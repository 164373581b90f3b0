//! A mesh of hosts, in a terminal.

use super::Style;
use crate::page::{MeshCell, MeshPage};
use crate::screen::{Cell, Screen, Tone};

/// Formats a mesh: what stands out, then the matrix.
pub fn mesh(page: &MeshPage, style: Style) -> String {
    let mut screen = Screen::new(style);
    screen.heading(&page.subject);
    for (tone, finding) in &page.findings {
        screen.paragraph("", finding, *tone);
    }
    screen.blank();
    screen.paragraph("", &page.caption, Tone::Dim);
    let mut columns = vec![">".to_owned(), "host".to_owned()];
    columns.extend((1..=page.hosts.len()).map(|at| format!(">{at}")));
    columns.push(">part".to_owned());
    screen.table(
        &columns,
        (0..page.hosts.len()).map(|at: usize| {
            let cells = page.cells[at].iter().map(|cell| shown(cell.as_ref()));
            [Cell::plain((at + 1).to_string()), Cell::plain(&page.hosts[at])]
                .into_iter()
                .chain(cells)
                .chain([Cell::plain(&page.parts[at])])
                .collect()
        }),
    );
    for remark in &page.remarks {
        screen.paragraph("", remark, Tone::Dim);
    }
    screen.finish()
}

fn shown(cell: Option<&MeshCell>) -> Cell {
    cell.map_or_else(|| Cell::plain("·"), |cell| Cell::toned(&cell.text, cell.tone))
}
