//! Reasons why a figure cannot be taken from an output, each with its remedy.

use super::{OUTPUT_BYTES_MAX, TIME_MAX};

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("figure {figure} ({from}): {reason}")]
pub struct FigureError {
    pub figure: String,
    /// Source, as on the command line.
    pub from: String,
    pub reason: Reason,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("figure {text:?}: {part}; {remedy}")]
pub struct FigureSyntaxError {
    pub text: String,
    /// The part that is wrong, and why.
    pub part: String,
    pub remedy: String,
}

/// Why a figure cannot be taken from an output.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Reason {
    #[error("the output is empty; run the command by hand to see why")]
    Empty,
    #[error(
        "the output has {len_bytes} bytes, more than {OUTPUT_BYTES_MAX}; make the program print its \
         summary only"
    )]
    TooLong { len_bytes: usize },
    #[error("the program reports {text:?}; its figures would be those of failures")]
    Refused { text: String },
    #[error("no match; the output ends with {tail:?}")]
    NoMatch { tail: String },
    #[error(
        "not found within {TIME_MAX:?}; make the program print less, or use a simpler expression"
    )]
    TooSlow,
    #[error("{text:?} is not a number")]
    NotANumber { text: String },
    #[error(
        "{text:?} has a comma that may be a decimal sign; make the program print plain digits, for example by \
         LC_ALL=C before its command"
    )]
    Comma { text: String },
    #[error(
        "{text:?} is not in {unit}, the unit of the figure's name; use a name of its unit, such as p99_us"
    )]
    OtherUnit { text: String, unit: &'static str },
    #[error(
        "the number is part of {text:?}, which is not in {unit}, the unit of the figure's name; let the group take \
         the unit too, as in ([0-9.]+ *[a-zµ]+)"
    )]
    OtherUnitBeside { text: String, unit: &'static str },
    #[error(
        "the number is followed by {now:?}, and in an earlier trial by {before:?}; let the group take the unit too, \
         and end the figure's name in a unit, such as p99_us"
    )]
    UnitChanged { now: String, before: String },
    #[error(
        "{text:?} has a unit, but the figure's name has none; end the name in its unit, such as p99_us"
    )]
    NoUnit { text: String },
    #[error("the value {value} is out of range; the program measured nothing")]
    OutOfRange { value: f64 },
    #[error("no JSON document; the output ends with {tail:?}")]
    NoDocument { tail: String },
    #[error("the JSON document that starts in line {line} is broken: {why}")]
    BrokenDocument { line: usize, why: String },
    #[error(
        "{count} JSON documents; print a single one, or one a line, of which the last one counts"
    )]
    SeveralDocuments { count: usize },
    #[error("the JSON document has no {pointer}; it ends at {found:?}, which has {members}")]
    NoMember { pointer: String, found: String, members: String },
    #[error("{kind} where the JSON document should have a number")]
    NotScalar { kind: &'static str },
    #[error("the JSON document has {key:?} twice")]
    TwiceInDocument { key: String },
    #[error("no line has a column {column:?}; the first line has {first:?}")]
    NoColumn { column: String, first: String },
    #[error("the header has the column {column:?} twice")]
    ColumnTwice { column: String },
    #[error("no row follows the header")]
    NoRow,
    #[error("the last row has {found} fields and the header {header}; is it cut off?")]
    FieldCount { found: usize, header: usize },
    #[error("no interval of an HdrHistogram log has {wanted}; tags found: {found}")]
    NoInterval { wanted: String, found: String },
    #[error("the histogram in line {line} is damaged: {why}")]
    DamagedHistogram { line: usize, why: String },
    #[error("the histogram has no sample")]
    NoSample,
}

/// Characters of an output that an error quotes.
const QUOTED_CHARS: usize = 80;

/// Returns a text short enough for an error.
pub(super) fn quoted(bytes: &[u8]) -> String {
    // Four bytes a character at most.
    let head = &bytes[..bytes.len().min(4 * QUOTED_CHARS + 4)];
    let text = String::from_utf8_lossy(head);
    let mut short: String = text.trim().chars().take(QUOTED_CHARS).collect();
    if short.len() < text.trim().len() || head.len() < bytes.len() {
        short.push('…');
    }
    short
}

/// Returns the last line that is not blank, short enough for an error.
pub(super) fn tail(output: &[u8]) -> String {
    let output = output.trim_ascii_end();
    let start = output.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    quoted(&output[start..])
}
