//! Text for a terminal: paragraphs, labelled lines, tables and bars, in colour or plain, in Unicode or
//! ASCII.

mod table;
mod visible;

pub use table::Cell;
use visible::is_unsafe;
pub use visible::{ascii, visible, visible_colored, visible_json};

/// Capabilities of the terminal that text is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Columns of a line. Values below 40 count as 40; `usize::MAX` leaves every line whole.
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

/// Writer of terminal text. Control characters of its input never reach the output.
#[derive(Debug)]
pub struct Screen {
    style: Style,
    /// Column where the text of entries begins.
    column: usize,
    out: String,
}

impl Screen {
    pub fn new(style: Style) -> Self {
        let style = Style { width: style.width.max(WIDTH_MIN), ..style };
        Screen { style, column: 0, out: String::new() }
    }

    /// A screen for figures of a command: plain, and each line as long as its text.
    pub fn plain() -> Self {
        Screen::new(Style { width: usize::MAX, ..Style::default() })
    }

    /// The same with the column where the text of entries begins.
    pub fn with_column(self, column: usize) -> Self {
        Screen { column, ..self }
    }

    /// Returns the text; every line ends with a line break.
    pub fn finish(self) -> String {
        self.out
    }

    /// Columns of a line.
    pub fn width(&self) -> usize {
        self.style.width
    }

    /// Lines written so far.
    pub fn line_count(&self) -> usize {
        self.out.lines().count()
    }

    pub fn blank(&mut self) {
        self.out.push('\n');
    }

    pub fn heading(&mut self, text: &str) {
        for (number, line) in wrap(&self.safe(text), self.style.width - 2).into_iter().enumerate() {
            // A text of others must not begin a line.
            let indent = if number == 0 { "" } else { "  " };
            self.write(&[(indent.into(), Tone::Plain), (line, Tone::Strong)]);
        }
    }

    /// Writes a line that is neither wrapped nor cut, such as a command to be copied.
    pub fn line(&mut self, text: impl AsRef<str>) {
        self.out.push_str(self.safe(text.as_ref()).trim_end());
        self.out.push('\n');
    }

    /// Writes a label, and its text in the column of entries, wrapped to the width. A label that reaches
    /// into the column stays whole.
    pub fn entry(&mut self, label: &str, text: impl AsRef<str>) {
        let label = format!("{label:<fill$} ", fill = self.column.saturating_sub(1));
        self.paragraph(&label, text.as_ref(), Tone::Plain);
    }

    /// Writes the label once, and the text wrapped to its right.
    pub fn paragraph(&mut self, label: &str, text: &str, tone: Tone) {
        let label = self.safe(label);
        let indent = width(&label);
        for (i, line) in wrap(&self.safe(text), self.style.width - indent).into_iter().enumerate() {
            let lead = if i == 0 { label.clone() } else { " ".repeat(indent) };
            self.write(&[(lead, Tone::Dim), (line, tone)]);
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
            self.write(&[
                (lead.into(), Tone::Plain),
                (head.into(), tone),
                (tail.into(), Tone::Plain),
            ]);
        }
    }

    /// Writes one line, coloured and cut to the width.
    fn write(&mut self, pieces: &[(String, Tone)]) {
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

/// Columns that a text takes: two per wide East Asian character, else one.
pub fn width(text: &str) -> usize {
    text.chars().map(char_columns).sum()
}

fn char_columns(c: char) -> usize {
    let wide = matches!(c as u32,
        0x1100..=0x115f | 0x2e80..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f | 0xff00..=0xff60 | 0xffe0..=0xffe6 | 0x1f000..=0x1faff
        | 0x20000..=0x3fffd);
    if wide { 2 } else { 1 }
}

/// Cuts the end of a text, or the middle of a name, which others may begin with.
fn clip(text: &str, room: usize, ascii: bool) -> String {
    if width(text) <= room {
        return text.into();
    }
    let Some(room) = room.checked_sub(1) else { return String::new() };
    let tail = if text.contains(' ') { 0 } else { room / 2 };
    let end: String = fitting(text.chars().rev(), tail).chars().rev().collect();
    let dots = if ascii { '~' } else { '…' };
    format!("{}{dots}{end}", fitting(text.chars(), room - width(&end)))
}

/// Characters from the first on that fit.
fn fitting(chars: impl Iterator<Item = char>, room: usize) -> String {
    let mut used = 0;
    chars
        .take_while(|c| {
            used += char_columns(*c);
            used <= room
        })
        .collect()
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
            if width(&line) + char_columns(c) > columns {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapping_keeps_every_word_and_the_width() {
        let text = "one two three antidisestablishmentarianism four";
        let lines = wrap(text, 10);
        assert!(lines.iter().all(|line| width(line) <= 10), "{lines:?}");
        assert_eq!(lines.concat().replace(' ', ""), text.replace(' ', ""));
    }

    #[test]
    fn entries_keep_to_their_column_and_the_width() {
        let style = Style { width: 40, ..Style::default() };
        let mut screen = Screen::new(style).with_column(10);
        screen.entry("  spin", "the receiver polls again at once instead of sleeping");
        screen.entry("  a-name-that-is-long", "x");
        assert_eq!(
            screen.finish(),
            "  spin    the receiver polls again at\n          once instead of sleeping\n  \
             a-name-that-is-long x\n"
        );
    }

    #[test]
    fn plain_lines_are_as_long_as_their_text() {
        let mut screen = Screen::plain();
        let long = "word ".repeat(200);
        screen.entry("label", &long);
        screen.table(&["name", ">n"], [vec![Cell::plain(&long), "1".into()]]);
        let out = screen.finish();
        assert_eq!(out.lines().count(), 3, "{out}");
        assert!(out.lines().all(|line| line.len() > 1000 || line.ends_with('n')), "{out}");
    }

    #[test]
    fn terminal_escapes_in_names_are_replaced() {
        let mut screen = Screen::new(Style::default());
        screen.item("\x1b]0;title\x07s", "a\u{202e}b\nc", Tone::Bad);
        let out = screen.finish();
        assert_eq!(out, "  ?]0;title?s: a?b c\n");
    }
}
