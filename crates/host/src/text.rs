//! Errors as text, and text from outside.

/// An error with its causes, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// An error with its causes, and the lines of output in it, in one line.
pub fn one_line(error: &dyn std::error::Error) -> String {
    chain(error).lines().map(str::trim).collect::<Vec<_>>().join(" | ")
}

/// True for control characters and for those that turn or hide the text around them.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}')
}

/// Text of a stranger in one line that is safe for a terminal: without control and hidden characters.
///
/// - `len_max`: longest result, characters.
pub fn printable(text: &str, len_max: usize) -> String {
    text.chars().filter(|letter| !is_hidden(*letter)).take(len_max).collect()
}
