//! Text for a terminal: paragraphs, tables and bars of a bounded width, in colour or plain, in
//! Unicode or ASCII.

use std::borrow::Cow;
use std::fmt::Write;

/// Capabilities of the terminal that text is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Columns; no line is longer. Values below 40 count as 40.
    pub width: usize,
    pub color: bool,
    pub ascii: bool,
}

impl Default for Style {
    fn default() -> Self {
        Style { width: 80, color: false, ascii: false }
    }
}

/// Fewest columns that a table needs.
const WIDTH_MIN: usize = 40;

/// Widest bar, in columns.
const BAR_MAX: usize = 24;

/// Narrowest bar, in columns.
const BAR_MIN: usize = 4;

/// Meaning of a piece of text, shown as its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Strong,
    Dim,
    Good,
    Bad,
    Doubt,
}

impl Tone {
    /// SGR parameter of the colour; empty for none.
    fn code(self) -> &'static str {
        match self {
            Tone::Plain => "",
            Tone::Strong => "1",
            Tone::Dim => "2",
            Tone::Good => "32",
            Tone::Bad => "31",
            Tone::Doubt => "33",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Align {
    Left,
    Right,
    Bar,
}

struct Column<'a> {
    title: &'a str,
    align: Align,
    keep: bool,
}

impl<'a> Column<'a> {
    /// Reads the notation of [`Screen::table`].
    fn of(text: &'a str) -> Self {
        let (title, keep) = text.strip_suffix('?').map_or((text, true), |title| (title, false));
        let (title, align) = match (title.strip_prefix('>'), title.strip_prefix('|')) {
            (Some(title), _) => (title, Align::Right),
            (_, Some(title)) => (title, Align::Bar),
            _ => (title, Align::Left),
        };
        Column { title, align, keep }
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

    pub fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Cell { text: text.into(), bar: 0.0, tone }
    }

    /// A bar; `share` is 0 to 1.
    pub fn bar(share: f64, tone: Tone) -> Self {
        Cell { text: String::new(), bar: share.clamp(0.0, 1.0), tone }
    }
}

/// Writer of terminal text. Control characters of its input never reach the output.
#[derive(Debug)]
pub struct Screen {
    style: Style,
    out: String,
}

impl Screen {
    pub fn new(style: Style) -> Self {
        Screen { style: Style { width: style.width.max(WIDTH_MIN), ..style }, out: String::new() }
    }

    /// Returns the text; every line ends with a line break.
    pub fn finish(self) -> String {
        self.out
    }

    /// Columns of a line.
    pub fn width(&self) -> usize {
        self.style.width
    }

    pub fn blank(&mut self) {
        self.out.push('\n');
    }

    pub fn heading(&mut self, text: &str) {
        for line in wrap(&self.safe(text), self.style.width) {
            self.line(&[(line, Tone::Strong)]);
        }
    }

    /// Writes the label once, and the text wrapped to its right.
    pub fn paragraph(&mut self, label: &str, text: &str, tone: Tone) {
        let label = self.safe(label);
        let indent = width(&label);
        for (i, line) in wrap(&self.safe(text), self.style.width - indent).into_iter().enumerate() {
            let lead = if i == 0 { label.clone() } else { " ".repeat(indent) };
            self.line(&[(lead, Tone::Dim), (line, tone)]);
        }
    }

    /// Writes `subject: text`, indented by two, with the subject in the tone's colour.
    pub fn item(&mut self, subject: &str, text: &str, tone: Tone) {
        let subject = self.safe(subject);
        let joint = if subject.is_empty() || subject.ends_with(' ') {
            subject
        } else if subject.ends_with(['.', '!', '?']) {
            format!("{subject} ")
        } else {
            format!("{subject}: ")
        };
        let whole = format!("{joint}{}", self.safe(text));
        let lines = wrap(&whole, self.style.width - 4);
        let mut coloured = joint.chars().filter(|c| !c.is_whitespace()).count();
        for (i, line) in lines.into_iter().enumerate() {
            // Wrapping moved the spaces, so count letters to know where to switch.
            let mut cut = line.len();
            for (at, c) in line.char_indices() {
                if coloured == 0 {
                    cut = at;
                    break;
                }
                coloured -= usize::from(!c.is_whitespace());
            }
            let (head, tail) = line.split_at(cut);
            let lead = if i == 0 { "  " } else { "    " };
            self.line(&[
                (lead.into(), Tone::Plain),
                (head.into(), tone),
                (tail.into(), Tone::Plain),
            ]);
        }
    }

    /// Writes a table; each row has one cell per column.
    ///
    /// Columns are titles: `>title` holds figures, `|title` bars of [`Cell::bar`] in the width that the
    /// others leave (the last column only). One that does not fit is left out if its title ends in `?`,
    /// from the right; then the first column is shortened.
    pub fn table(&mut self, columns: &[impl AsRef<str>], rows: Vec<Vec<Cell>>) {
        let columns: Vec<Column<'_>> =
            columns.iter().map(|text| Column::of(text.as_ref())).collect();
        let rows: Vec<Vec<Cell>> = rows
            .into_iter()
            .map(|row| row.into_iter().map(|c| Cell { text: self.safe(&c.text), ..c }).collect())
            .collect();
        let mut widths: Vec<usize> = columns
            .iter()
            .enumerate()
            .map(|(i, column)| {
                let cells = rows.iter().map(|row| width(&row[i].text)).max().unwrap_or(0);
                match column.align {
                    Align::Bar => BAR_MIN.max(width(column.title)),
                    _ => cells.max(width(column.title)),
                }
            })
            .collect();
        let mut shown: Vec<usize> = (0..columns.len()).collect();
        let need = |shown: &[usize], widths: &[usize]| {
            shown.iter().map(|&i| widths[i]).sum::<usize>() + 2 * (shown.len() - 1)
        };
        // A name of a peer with its options may be long: shorten before dropping.
        let over = need(&shown, &widths).saturating_sub(self.style.width);
        widths[0] = (widths[0] - over.min(widths[0])).max(widths[0].min(16));
        while need(&shown, &widths) > self.style.width {
            let Some(at) = shown.iter().rposition(|&i| !columns[i].keep) else { break };
            shown.remove(at);
        }
        let over = need(&shown, &widths).saturating_sub(self.style.width);
        widths[0] = widths[0].saturating_sub(over).max(1);
        if let Some(&last) = shown.last()
            && matches!(columns[last].align, Align::Bar)
        {
            let free = self.style.width - need(&shown, &widths);
            widths[last] = (widths[last] + free).min(BAR_MAX);
        }

        let ascii = self.style.ascii;
        let titles = shown.iter().map(|&i| {
            let right = matches!(columns[i].align, Align::Right);
            (pad(columns[i].title, widths[i], right, ascii), Tone::Dim)
        });
        self.line(&join(titles.collect()));
        for row in &rows {
            let cells = shown.iter().map(|&i| {
                let cell = &row[i];
                let text = match columns[i].align {
                    Align::Bar => bar(cell.bar, widths[i], ascii),
                    Align::Right => pad(&cell.text, widths[i], true, ascii),
                    Align::Left => pad(&cell.text, widths[i], false, ascii),
                };
                (text, cell.tone)
            });
            self.line(&join(cells.collect()));
        }
    }

    /// Writes one line, coloured and cut to the width.
    fn line(&mut self, pieces: &[(String, Tone)]) {
        let mut room = self.style.width;
        let last = pieces.iter().rposition(|(text, _)| !text.trim_end().is_empty());
        for (i, (text, tone)) in pieces.iter().enumerate() {
            if last.is_none_or(|last| i > last) {
                break;
            }
            let text = if Some(i) == last { text.trim_end() } else { text };
            let text = clip(text, room, self.style.ascii);
            room -= width(&text);
            let code = tone.code();
            if self.style.color && !code.is_empty() && !text.trim().is_empty() {
                self.out.push_str(&format!("\x1b[{code}m{text}\x1b[0m"));
            } else {
                self.out.push_str(&text);
            }
        }
        self.out.push('\n');
    }

    /// Replaces control characters, which could drive the terminal, and in ASCII mode all that is
    /// not ASCII. The number of characters stays the same.
    fn safe(&self, text: &str) -> String {
        text.chars()
            .map(|c| match c {
                '\t' | '\n' | '\r' => ' ',
                c if is_unsafe(c) => '?',
                c if self.style.ascii => ascii(c),
                c => c,
            })
            .collect()
    }
}

/// Formats a name and, in a column that begins at `at`, its description, wrapped to the width.
pub fn entry(name: &str, text: &str, at: usize, style: Style) -> String {
    let mut screen = Screen::new(style);
    // A name that reaches into the column stays whole.
    let label = format!("{name:<fill$} ", fill = at.saturating_sub(1));
    screen.paragraph(&label, text, Tone::Plain);
    screen.finish()
}

pub fn ascii(c: char) -> char {
    match c {
        c if c.is_ascii() => c,
        'µ' => 'u',
        '×' => 'x',
        '–' | '−' | '—' | '·' => '-',
        '→' => '>',
        '…' => '~',
        _ => '?',
    }
}

/// Replaces characters that drive a terminal, change the direction of text or are invisible by their code:
/// `\u{1b}`. Line breaks and tabs stay.
pub fn visible(text: &str) -> Cow<'_, str> {
    replaced(text, |c, out| {
        let _ = write!(out, "{}", c.escape_unicode());
    })
}

/// The same for a JSON document, which keeps its meaning: such characters are in strings only.
pub fn visible_json(text: &str) -> Cow<'_, str> {
    replaced(text, |c, out| {
        // All of them are in the basic plane.
        let _ = write!(out, "\\u{:04x}", u32::from(c));
    })
}

fn replaced(text: &str, replace: impl Fn(char, &mut String)) -> Cow<'_, str> {
    let is_replaced = |c: char| is_invisible(c) && !matches!(c, '\n' | '\t');
    if !text.contains(is_replaced) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_replaced(c) {
            true => replace(c, &mut out),
            false => out.push(c),
        }
    }
    out.into()
}

/// [`visible`] for text of [`crate::text`], whose own colors stay; it replaces those of names.
pub fn visible_colored(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\x1b[") {
        out.push_str(&visible(before));
        let code = after.split_once('m').map(|(code, _)| code);
        let is_own = |code: &&str| ["0", "1", "2", "31", "32", "33"].contains(code);
        match code.filter(is_own) {
            Some(code) => {
                let _ = write!(out, "\x1b[{code}m");
                rest = &after[code.len() + 1..];
            }
            None => {
                out.push_str("\\u{1b}[");
                rest = after;
            }
        }
    }
    out.push_str(&visible(rest));
    out
}

/// True for control characters, for those that change the direction of text or have no width, and for those that XML
/// does not allow.
fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}')
}

/// The same, and accents that stack on the character before them.
fn is_unsafe(c: char) -> bool {
    is_invisible(c) || matches!(c, '\u{0300}'..='\u{036f}')
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

/// Columns that a text takes: two per wide East Asian character, else one.
pub fn width(text: &str) -> usize {
    text.chars().map(columns_of).sum()
}

fn columns_of(c: char) -> usize {
    let wide = matches!(c as u32,
        0x1100..=0x115f | 0x2e80..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f | 0xff00..=0xff60 | 0xffe0..=0xffe6 | 0x1f000..=0x1faff
        | 0x20000..=0x3fffd);
    if wide { 2 } else { 1 }
}

fn clip(text: &str, room: usize, ascii: bool) -> String {
    if width(text) <= room {
        return text.into();
    }
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        if used + columns_of(c) + 1 > room {
            break;
        }
        used += columns_of(c);
        out.push(c);
    }
    if room > 0 {
        out.push(if ascii { '~' } else { '…' });
    }
    out
}

fn pad(text: &str, columns: usize, right: bool, ascii: bool) -> String {
    let text = clip(text, columns, ascii);
    let space = " ".repeat(columns - width(&text));
    if right { space + &text } else { text + &space }
}

/// Wraps text at spaces; a word longer than a line is broken.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(2);
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.is_empty() && width(&line) + 1 + width(word) > columns {
            lines.push(std::mem::take(&mut line));
        } else if !line.is_empty() {
            line.push(' ');
        }
        for c in word.chars() {
            if width(&line) + columns_of(c) > columns {
                lines.push(std::mem::take(&mut line));
            }
            line.push(c);
        }
    }
    if !line.is_empty() || lines.is_empty() {
        lines.push(line);
    }
    lines
}

/// Draws a bar in eighths of a column, or in whole `#`; any share above zero is visible.
fn bar(share: f64, cells: usize, ascii: bool) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let steps = if ascii { cells } else { cells * 8 };
    let mut filled = (share * steps as f64).round() as usize;
    if share > 0.0 {
        filled = filled.max(1);
    }
    let text = match ascii {
        true => "#".repeat(filled),
        false => "█".repeat(filled / 8) + EIGHTHS[filled % 8],
    };
    pad(&text, cells, false, ascii)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_grow_by_eighths_and_stay_visible() {
        assert_eq!(bar(1.0, 4, false), "████");
        assert_eq!(bar(0.5, 4, false), "██  ");
        assert_eq!(bar(0.53, 4, false), "██▏ ");
        assert_eq!(bar(0.0001, 4, false), "▏   ");
        assert_eq!(bar(0.0, 4, false), "    ");
        assert_eq!(bar(0.5, 4, true), "##  ");
    }

    #[test]
    fn wrapping_keeps_every_word_and_the_width() {
        let text = "one two three antidisestablishmentarianism four";
        let lines = wrap(text, 10);
        assert!(lines.iter().all(|line| width(line) <= 10), "{lines:?}");
        let letters = |s: &str| s.chars().filter(|c| *c != ' ').collect::<String>();
        assert_eq!(letters(&lines.concat()), letters(text));
    }

    #[test]
    fn entries_keep_to_their_column_and_the_width() {
        let style = Style { width: 40, ..Style::default() };
        let out =
            entry("  spin", "the receiver polls again at once instead of sleeping", 10, style);
        assert_eq!(
            out,
            "  spin    the receiver polls again at\n          once instead of sleeping\n"
        );
        assert!(
            entry("  a-name-that-is-long", "x", 10, style).starts_with("  a-name-that-is-long x")
        );
    }

    /// Every C0 and C1 control character, DEL, and characters that turn or hide text.
    fn hostile() -> String {
        let controls = ('\0'..='\x1f').chain('\x7f'..='\u{9f}');
        let others = ['\u{200b}', '\u{200f}', '\u{202e}', '\u{2066}', '\u{2028}', '\u{feff}'];
        controls.chain(others).flat_map(|c| ['<', c, '>']).collect()
    }

    #[test]
    fn every_control_character_is_shown_by_its_code() {
        let (text, json) =
            (visible(&hostile()).into_owned(), visible_json(&hostile()).into_owned());
        for shown in [&text, &json, &visible_colored(&hostile())] {
            let left: Vec<char> = shown.chars().filter(|c| is_invisible(*c)).collect();
            assert_eq!(left, ['\t', '\n'], "{shown}");
        }
        assert!(text.contains(r"<\u{1b}><\u{1c}>") && text.contains(r"<\u{9b}>"), "{text}");
        assert!(json.contains(r"<\u001b>") && json.contains(r"<\u009b><\u009c>"), "{json}");
        let kept = "µ × – → … ñ 中 \t\n";
        assert!(matches!(visible(kept), Cow::Borrowed(same) if same == kept));
        // A document keeps its meaning.
        let document = serde_json::json!({"name": hostile()}).to_string();
        let read: serde_json::Value = serde_json::from_str(&visible_json(&document)).unwrap();
        assert_eq!(read["name"], hostile());
    }

    #[test]
    fn only_own_colors_reach_the_terminal() {
        let own = "\x1b[32mfast\x1b[0m\n";
        assert_eq!(visible_colored(own), own);
        for bad in ["\x1b[8m", "\x1b[2J", "\x1b[", "\x1b[0;8m", "\x1b]0;x\x07", "\u{9b}2J", "\x1b"]
        {
            let shown = visible_colored(&format!("{own}{bad}"));
            assert!(shown.starts_with(own), "{shown}");
            assert!(!shown[own.len()..].contains(char::is_control), "{shown}");
        }
    }

    #[test]
    fn terminal_escapes_in_names_are_replaced() {
        let mut screen = Screen::new(Style::default());
        screen.item("\x1b]0;title\x07s", "a\u{202e}b\nc", Tone::Bad);
        let out = screen.finish();
        assert_eq!(out, "  ?]0;title?s: a?b c\n");
    }
}
