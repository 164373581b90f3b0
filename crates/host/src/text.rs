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

/// Text of a stranger in one line that is safe for a terminal: without control characters.
///
/// - `len_max`: longest result, characters.
pub fn printable(text: &str, len_max: usize) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(len_max).collect()
}
