//! Characters that drive a terminal, hide or turn text, replaced by visible ones.

use std::borrow::Cow;
use std::fmt::Write;

/// Replaces a character that is not ASCII by one that looks alike.
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

fn is_replaced(c: char) -> bool {
    is_invisible(c) && !matches!(c, '\n' | '\t')
}

fn replaced(text: &str, replace: impl Fn(char, &mut String)) -> Cow<'_, str> {
    if !text.contains(is_replaced) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_replaced(c) {
            replace(c, &mut out);
        } else {
            out.push(c);
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
        match code.filter(|code: &&str| ["0", "1", "2", "31", "32", "33"].contains(code)) {
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
pub(super) fn is_unsafe(c: char) -> bool {
    is_invisible(c) || matches!(c, '\u{0300}'..='\u{036f}')
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
