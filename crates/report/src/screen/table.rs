//! Tables: columns of text, figures and bars.

use super::{Screen, Tone, pad, width};

/// Widest bar, in columns.
const BAR_MAX: usize = 24;

/// Narrowest bar, in columns.
const BAR_MIN: usize = 4;

/// Columns of a name that is shortened before a column is left out: the longest names of knobs fit.
const NAME_MIN: usize = 22;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Align {
    Left,
    Right,
    Bar,
}

struct Column<'a> {
    title: &'a str,
    align: Align,
    /// Shown even where room is short.
    is_kept: bool,
}

impl<'a> Column<'a> {
    /// Reads the notation of [`Screen::table`].
    fn parse(text: &'a str) -> Self {
        let (title, is_kept) = text.strip_suffix('?').map_or((text, true), |title| (title, false));
        let (title, align) = match (title.strip_prefix('>'), title.strip_prefix('|')) {
            (Some(title), _) => (title, Align::Right),
            (_, Some(title)) => (title, Align::Bar),
            _ => (title, Align::Left),
        };
        Column { title, align, is_kept }
    }
}

/// Text of a cell, or the length of a bar as a share of one.
#[derive(Debug, Clone)]
pub struct Cell {
    text: String,
    bar: f64,
    tone: Tone,
}

impl Cell {
    pub fn plain(text: impl Into<String>) -> Self {
        Cell::toned(text, Tone::Plain)
    }

    /// The text, or a dash for none.
    pub fn or_dash(text: Option<&str>) -> Self {
        Cell::plain(text.unwrap_or("–"))
    }

    pub fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Cell { text: text.into(), bar: 0.0, tone }
    }

    /// A bar; `share` is 0 to 1.
    pub fn bar(share: f64, tone: Tone) -> Self {
        Cell { text: String::new(), bar: share.clamp(0.0, 1.0), tone }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Cell::plain(text)
    }
}

impl Screen {
    /// Writes a table. A row has one cell per column, or a single one that spans them all.
    ///
    /// Columns are titles: `>title` holds figures, `|title` bars of [`Cell::bar`] in the width that the
    /// others leave (the last column only). One that does not fit is left out if its title ends in `?`,
    /// from the right; then the first column is shortened. A table without any title has no head.
    pub fn table(
        &mut self,
        columns: &[impl AsRef<str>],
        rows: impl IntoIterator<Item = Vec<Cell>>,
    ) {
        // Names of metrics come from documents.
        let titles: Vec<String> = columns.iter().map(|text| self.safe(text.as_ref())).collect();
        let columns: Vec<Column<'_>> = titles.iter().map(|text| Column::parse(text)).collect();
        let rows: Vec<Vec<Cell>> = rows.into_iter().map(|row| self.safe_row(row)).collect();
        let (shown, widths) = fitting(&columns, &rows, self.style.width);
        let ascii = self.style.ascii;
        if columns.iter().any(|column| !column.title.is_empty()) {
            let titles = shown.iter().map(|&i| {
                let is_right = columns[i].align == Align::Right;
                (pad(columns[i].title, widths[i], is_right, ascii), Tone::Dim)
            });
            self.write(&join(titles.collect()));
        }
        for row in &rows {
            if let ([cell], true) = (row.as_slice(), columns.len() > 1) {
                self.write(&[(cell.text.clone(), cell.tone)]);
                continue;
            }
            let cells = shown.iter().map(|&i| {
                let cell = &row[i];
                let text = match columns[i].align {
                    Align::Bar => bar(cell.bar, widths[i], ascii),
                    align => pad(&cell.text, widths[i], align == Align::Right, ascii),
                };
                (text, cell.tone)
            });
            self.write(&join(cells.collect()));
        }
    }

    fn safe_row(&self, row: Vec<Cell>) -> Vec<Cell> {
        row.into_iter().map(|cell| Cell { text: self.safe(&cell.text), ..cell }).collect()
    }
}

/// Indexes of the columns that are shown in `room`, and the width of each column.
fn fitting(columns: &[Column<'_>], rows: &[Vec<Cell>], room: usize) -> (Vec<usize>, Vec<usize>) {
    let mut widths: Vec<usize> = columns
        .iter()
        .enumerate()
        .map(|(i, column)| match column.align {
            Align::Bar => BAR_MIN.max(width(column.title)),
            _ => {
                let whole = rows.iter().filter(|row| row.len() == columns.len());
                whole.map(|row| width(&row[i].text)).fold(width(column.title), usize::max)
            }
        })
        .collect();
    let mut shown: Vec<usize> = (0..columns.len()).collect();
    // A name of a peer with its options may be long: shorten before dropping.
    let over = needed(&shown, &widths).saturating_sub(room);
    widths[0] = (widths[0] - over.min(widths[0])).max(widths[0].min(NAME_MIN));
    while needed(&shown, &widths) > room {
        let Some(at) = shown.iter().rposition(|&i| !columns[i].is_kept) else { break };
        shown.remove(at);
    }
    let over = needed(&shown, &widths).saturating_sub(room);
    widths[0] = widths[0].saturating_sub(over).max(1);
    if let Some(&last) = shown.last()
        && columns[last].align == Align::Bar
    {
        let free = room - needed(&shown, &widths);
        widths[last] = widths[last].saturating_add(free).min(BAR_MAX);
    }
    (shown, widths)
}

/// Columns of a line of a table.
fn needed(shown: &[usize], widths: &[usize]) -> usize {
    shown.iter().map(|&i| widths[i]).sum::<usize>() + 2 * (shown.len() - 1)
}

fn join(cells: Vec<(String, Tone)>) -> Vec<(String, Tone)> {
    let mut line = Vec::with_capacity(cells.len() * 2);
    for (i, cell) in cells.into_iter().enumerate() {
        if i > 0 {
            line.push(("  ".to_string(), Tone::Plain));
        }
        line.push(cell);
    }
    line
}

/// Draws a bar in eighths of a column, or in whole `#`; any share above zero is visible.
fn bar(share: f64, cells: usize, ascii: bool) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let steps = if ascii { cells } else { cells * 8 };
    let mut filled = (share * steps as f64).round() as usize;
    if share > 0.0 {
        filled = filled.max(1);
    }
    let text =
        if ascii { "#".repeat(filled) } else { "█".repeat(filled / 8) + EIGHTHS[filled % 8] };
    pad(&text, cells, false, ascii)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_of_one_cell_spans_the_columns_and_a_table_without_titles_has_no_head() {
        let mut screen = Screen::plain();
        let rows = [vec!["a metric".into()], vec!["  arm".into(), "1.5".into()]];
        screen.table(&["", ">"], rows);
        assert_eq!(screen.finish(), "a metric\n  arm  1.5\n");
    }

    #[test]
    fn bars_grow_by_eighths_and_stay_visible() {
        assert_eq!(bar(1.0, 4, false), "████");
        assert_eq!(bar(0.5, 4, false), "██  ");
        assert_eq!(bar(0.53, 4, false), "██▏ ");
        assert_eq!(bar(0.0001, 4, false), "▏   ");
        assert_eq!(bar(0.0, 4, false), "    ");
        assert_eq!(bar(0.5, 4, true), "##  ");
    }
}
