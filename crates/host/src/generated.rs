//! Text of generated files: configuration, rules, units, scripts.
//!
//! A line is made of pieces. Literals of the program are pieces; text from outside becomes one only by a type of this
//! module, whose characters have no meaning in any of the forms. No other way leads into a [`Text`], so that foreign text
//! can end neither its line, nor its quotes, nor its comment.

use std::fmt::Write;

/// Longest comment in characters: udev and systemd refuse lines, or whole files, that are too long.
const COMMENT_CHARS_MAX: usize = 100;

mod sealed {
    pub trait Sealed {}
}

/// Part of a line that cannot change the meaning of the parts around it.
pub trait Piece: sealed::Sealed {
    fn add_to(&self, line: &mut String);
}

macro_rules! pieces {
    ($($piece:ty: |$value:ident, $line:ident| $add:expr;)*) => {$(
        impl sealed::Sealed for $piece {}
        impl Piece for $piece {
            fn add_to(&self, $line: &mut String) {
                let $value = self;
                $add
            }
        }
    )*};
}

pieces! {
    // A literal: text that was read at run time has another lifetime.
    &'static str: |literal, line| line.push_str(literal);
    u32: |number, line| _ = write!(line, "{number}");
    Plain: |text, line| line.push_str(&text.0);
    Comment: |text, line| line.push_str(&text.0);
    UnitArgument: |text, line| line.push_str(&text.0);
    Line: |text, line| line.push_str(&text.0);
}

impl<P: Piece> sealed::Sealed for &P {}
impl<P: Piece> Piece for &P {
    fn add_to(&self, line: &mut String) {
        (*self).add_to(line);
    }
}

/// Characters that need no quoting in any form: letters and digits of ASCII, blanks, and `,._:=-/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plain(String);

impl Plain {
    /// Returns `None` if the text has other characters.
    pub fn new(text: &str) -> Option<Self> {
        text.chars()
            .all(|c| c.is_ascii_alphanumeric() || " \t,._:=-/".contains(c))
            .then(|| Plain(text.to_owned()))
    }

    /// Returns `None` if the text is empty or more than one word of letters, digits, and `._-`.
    pub fn word(text: &str) -> Option<Self> {
        (!text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)))
            .then(|| Plain(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Any text in a comment: one line without control characters, backslashes, which join lines, and anything that does not show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comment(String);

impl Comment {
    pub fn new(text: &str) -> Self {
        let shown = |c: char| {
            let is_shown = c.is_alphanumeric() || c == ' ' || c.is_ascii_graphic() && c != '\\';
            if is_shown { c } else { '?' }
        };
        Comment(text.chars().take(COMMENT_CHARS_MAX).map(shown).collect())
    }
}

/// One argument of a command line of a systemd unit, in quotes.
///
/// Source: systemd.service(5), "Command lines", and systemd.syntax(7), "Quoting".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitArgument(String);

impl UnitArgument {
    pub fn new(text: &str) -> Self {
        let mut quoted = String::from("\"");
        for c in text.chars() {
            match c {
                '"' | '\\' => quoted.extend(['\\', c]),
                // Specifiers and variables are replaced in quotes, too.
                '%' | '$' => quoted.extend([c, c]),
                c if c.is_control() || !c.is_ascii() => {
                    let mut bytes = [0; 4];
                    for byte in c.encode_utf8(&mut bytes).bytes() {
                        let _ = write!(quoted, "\\x{byte:02x}");
                    }
                }
                c => quoted.push(c),
            }
        }
        quoted.push('"');
        UnitArgument(quoted)
    }
}

/// One line, without its line break.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Line(String);

impl Line {
    pub fn new(pieces: &[&dyn Piece]) -> Self {
        let mut line = String::new();
        pieces.iter().for_each(|piece| piece.add_to(&mut line));
        Line(line)
    }

    pub fn joined(lines: &[Line], between: &'static str) -> Self {
        let lines: Vec<&str> = lines.iter().map(|line| line.0.as_str()).collect();
        Line(lines.join(between))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Makes a [`Line`] of pieces.
macro_rules! line {
    ($($piece:expr),* $(,)?) => {
        $crate::generated::Line::new(&[$(&$piece as &dyn $crate::generated::Piece),*])
    };
}
pub(crate) use line;

/// Lines of a generated file, each with its line break.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Text(String);

impl Text {
    /// A document of TOML, whose writer quotes all text.
    pub(crate) fn of_toml(document: &impl serde::Serialize, head: &'static str) -> Self {
        let body = toml::to_string(document).expect("a document is tables of text");
        Text(format!("{head}{body}"))
    }

    /// Adds literal lines of the program, such as comments; the last one may lack its line break.
    pub fn literal(&mut self, lines: &'static str) -> &mut Self {
        self.0.push_str(lines);
        if !lines.ends_with('\n') {
            self.0.push('\n');
        }
        self
    }

    pub fn line(&mut self, line: &Line) -> &mut Self {
        self.0.push_str(&line.0);
        self.0.push('\n');
        self
    }

    pub fn lines(&mut self, lines: &[Line]) -> &mut Self {
        for line in lines {
            self.line(line);
        }
        self
    }

    /// Adds the lines of another file, each after `indent`.
    pub fn block(&mut self, indent: &'static str, text: &Text) -> &mut Self {
        for line in text.0.lines() {
            self.0.push_str(indent);
            self.0.push_str(line);
            self.0.push('\n');
        }
        self
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "a\nb\r\u{85}\u{2028}\"'`$(x)%n\\\u{1b}[2J\u{202e}\0";

    #[test]
    fn foreign_text_is_refused_or_stays_in_its_comment_or_its_quotes() {
        assert_eq!((Plain::new(HOSTILE), Plain::word("a b")), (None, None));
        let comment = line!["# ", Comment::new(HOSTILE), "."];
        assert_eq!(comment.as_str(), "# a?b???\"'`$(x)%n??[2J??.");
        let long = Comment::new(&"x".repeat(1 << 20));
        assert_eq!(line![long].as_str().len(), COMMENT_CHARS_MAX);
        let argument = line!["ExecStart=", UnitArgument::new("/a b\"\n%h$HOME\\é")];
        assert_eq!(argument.as_str(), "ExecStart=\"/a b\\\"\\x0a%%h$$HOME\\\\\\xc3\\xa9\"");
    }

    #[test]
    fn a_block_indents_every_line() {
        let mut inner = Text::default();
        inner.literal("one\ntwo").line(&line!["cpu", 7_u32]);
        let mut text = Text::default();
        text.literal("content: |").block("  ", &inner);
        assert_eq!(text.as_str(), "content: |\n  one\n  two\n  cpu7\n");
    }
}
