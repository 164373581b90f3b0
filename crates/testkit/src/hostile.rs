//! Texts of a stranger, and readers that say if a generated document is still of its form.

use serde_json::Value;

/// Begins each line that a hostile text tries to add to a document.
pub const MARK: &str = "INJECTED-LINE";

/// A text without any meaning in a form, of which the same document has the structure that it must have.
pub const HARMLESS: &str = "harmless";

/// Texts that have a meaning in some form, each with its name.
pub fn texts() -> Vec<(&'static str, String)> {
    [
        ("line breaks", "a\nMARK touch x\r\nMARK b\rMARK c\n\nMARK d\n#"),
        ("breaks of Unicode", "a\u{85}MARK b\u{2028}MARK c\u{2029}MARK d\u{b}MARK e\u{c}MARK f"),
        (
            "quotes",
            "a\" 'b' \"\"\" ''' ]]> --> ?> </testcase> <script>alert(1)</script> & &amp; &#10;",
        ),
        ("backslashes", "a\\nb\\\" \\u001b \\x41 \\"),
        (
            "escape sequences",
            "\u{1b}[2J\u{1b}]0;title\u{7}\u{9b}31m\u{9d}x\u{9c}\u{7f}\u{8}\u{8}x\u{1b}[8m",
        ),
        (
            "workflow commands",
            "::error title=a,b::c\n::stop-commands::x\n%0A::warning::y ##[error]z",
        ),
        ("the shell", "$(touch x) `touch x` ${HOME} ; touch x & | > /x < /y # \"$(z)\" '$(z)'"),
        ("NUL", "a\0b\0"),
        ("directions", "\u{202e}gnp.exe\u{2066}x\u{2069}\u{200b}\u{200f}\u{61c}\u{feff}\u{fff9}"),
        ("noncharacters", "a\u{fffe}\u{ffff}\u{e000}\u{10ffff}\u{1f600}z\u{300}\u{301}"),
        ("formulas", "=cmd|' /C calc'!A0,\"x\";+1\t@SUM(1)"),
        ("YAML and TOML", "a: b # {c: [d]} - e: !!x &y *z %YAML --- | > [[step]] = \"\"\" f"),
        (
            "Markdown",
            "| a | b |\n|--|--|\n# h\n[c](javascript:d) **e** `f` <b>g</b> ~~~ ![h](i) \n> j",
        ),
        ("specifiers", "%n %h %s %% %d {} {0} {name} $name $$ %{x} \\$"),
    ]
    .map(|(name, text)| (name, text.replace("MARK", MARK)))
    .into()
}

/// Longest text, of 1 MiB, with words.
pub fn long() -> String {
    "wide load ".repeat((1 << 20) / 10)
}

/// Distinct texts of a document, keys of its tables among them: its fields. The same text in several places, such as
/// the name of a metric, is one field.
pub fn fields(document: &Value) -> Vec<String> {
    fn collect(value: &Value, fields: &mut Vec<String>) {
        match value {
            Value::String(text) => fields.push(text.clone()),
            Value::Array(all) => all.iter().for_each(|value| collect(value, fields)),
            Value::Object(all) => all.iter().for_each(|(key, value)| {
                fields.push(key.clone());
                collect(value, fields);
            }),
            _ => {}
        }
    }
    let mut fields = Vec::new();
    collect(document, &mut fields);
    fields.sort();
    fields.dedup();
    fields
}

/// The document with another text in one field.
pub fn replaced(document: &Value, field: &str, text: &str) -> Value {
    let other = |found: &str| if found == field { text.to_owned() } else { found.to_owned() };
    match document {
        Value::String(found) => Value::String(other(found)),
        Value::Array(all) => all.iter().map(|value| replaced(value, field, text)).collect(),
        Value::Object(all) => Value::Object(
            all.iter().map(|(key, value)| (other(key), replaced(value, field, text))).collect(),
        ),
        value => value.clone(),
    }
}

/// Panics if a text drives a terminal: it has control characters other than line breaks, tabs, and `allowed` ones.
#[track_caller]
pub fn assert_shows(text: &str, allowed: &[char], about: &str) {
    if let Some(found) = text.chars().find(|c| {
        let is_turning = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        (c.is_control() || is_turning) && !matches!(c, '\n' | '\t') && !allowed.contains(c)
    }) {
        panic!("{about}: {found:?} in the text");
    }
}

/// Panics if a line of a document begins with [`MARK`], after blanks.
#[track_caller]
pub fn assert_no_line(text: &str, about: &str) {
    let breaks = ['\n', '\r', '\u{85}', '\u{b}', '\u{c}', '\u{2028}', '\u{2029}'];
    let line = text.split(breaks).find(|line| line.trim_start().starts_with(MARK));
    assert!(line.is_none(), "{about}: the line {line:?}");
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-:".contains(c))
}

/// Elements of an XML or HTML document in order, each with the names of its attributes.
///
/// - `void`: elements without an end.
///
/// # Panics
/// If it is not well-formed.
#[track_caller]
pub fn elements(document: &str, void: &[&str], about: &str) -> Vec<String> {
    let bad = document.chars().find(
        |c| !matches!(*c, '\t' | '\n' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..),
    );
    assert!(bad.is_none(), "{about}: {bad:?} is not a character of XML");
    let (mut open, mut all, mut rest) = (Vec::new(), Vec::new(), document);
    while let Some(start) = rest.find('<') {
        assert_text(&rest[..start], about);
        rest = &rest[start + 1..];
        if rest.starts_with(['!', '?']) {
            rest = &rest[rest.find('>').expect("an end") + 1..];
            continue;
        }
        if let Some(closing) = rest.strip_prefix('/') {
            let (name, after) = closing.split_once('>').expect("an end");
            assert_eq!(open.pop().as_deref(), Some(name), "{about}: it closes what is not open");
            rest = after;
            continue;
        }
        let end_of_name = rest.find(|c: char| " />\n".contains(c)).expect("an end");
        let name = rest[..end_of_name].to_owned();
        assert!(is_name(&name), "{about}: an element {name:?}");
        let mut element = name.clone();
        rest = &rest[end_of_name..];
        let is_empty = loop {
            rest = rest.trim_start_matches([' ', '\n']);
            if let Some(after) = rest.strip_prefix("/>") {
                rest = after;
                break true;
            }
            if let Some(after) = rest.strip_prefix('>') {
                rest = after;
                break false;
            }
            let end = rest.find(['=', ' ', '>', '/']).expect("an end");
            let attribute = &rest[..end];
            assert!(is_name(attribute), "{about}: an attribute {attribute:?} of {name}");
            element.push(' ');
            element.push_str(attribute);
            rest = &rest[end..];
            if let Some(after) = rest.strip_prefix("=\"") {
                let end = after.find('"').expect("an end of a value");
                assert!(!after[..end].contains('<'), "{about}: a tag in {attribute} of {name}");
                assert_text(&after[..end], about);
                rest = &after[end + 1..];
            }
        };
        all.push(element);
        if name == "style" || name == "script" {
            let end = rest.find("</").expect("an end");
            rest = &rest[end..];
        }
        if !is_empty && !void.contains(&name.as_str()) {
            open.push(name);
        }
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "{about}: left open: {open:?}, {rest:?}");
    all
}

/// Panics if `&` begins anything but an entity.
#[track_caller]
fn assert_text(text: &str, about: &str) {
    for (at, _) in text.match_indices('&') {
        let entity = text[at..].split(';').next().unwrap_or_default();
        let known = ["&amp", "&lt", "&gt", "&quot", "&#39", "&apos"].contains(&entity);
        assert!(known, "{about}: an entity {entity:?}");
    }
}

/// Cells of CSV (RFC 4180) by row.
///
/// # Panics
/// If it is not well-formed, or a row has another number of cells than the first one.
#[track_caller]
pub fn csv(document: &str, about: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut cell) = (Vec::new(), Vec::new(), String::new());
    let mut characters = document.chars().peekable();
    let mut is_quoted = false;
    while let Some(c) = characters.next() {
        match c {
            '"' if is_quoted && characters.peek() == Some(&'"') => {
                characters.next();
                cell.push('"');
            }
            '"' if is_quoted => {
                is_quoted = false;
                let next = characters.peek();
                assert!(matches!(next, Some(',' | '\r')), "{about}: {next:?} after a quote");
            }
            c if is_quoted => cell.push(c),
            '"' => {
                assert!(cell.is_empty(), "{about}: a quote in the middle of {cell:?}");
                is_quoted = true;
            }
            ',' => row.push(std::mem::take(&mut cell)),
            '\r' if characters.peek() == Some(&'\n') => {
                characters.next();
                row.push(std::mem::take(&mut cell));
                rows.push(std::mem::take(&mut row));
            }
            c => {
                assert!(!matches!(c, '\r' | '\n'), "{about}: a bare line break");
                cell.push(c);
            }
        }
    }
    assert!(!is_quoted && row.is_empty() && cell.is_empty(), "{about}: it ends in a row");
    assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{about}: rows of other lengths");
    rows
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use serde_json::json;

    use super::*;

    #[test]
    fn each_field_is_replaced_in_all_its_places() {
        let document = json!({"a": [{"b": "x"}, "x"], "x": 1});
        assert_eq!(fields(&document), ["a", "b", "x"]);
        assert_eq!(replaced(&document, "x", "y"), json!({"a": [{"b": "y"}, "y"], "y": 1}));
    }

    #[test]
    fn readers_find_what_is_not_well_formed() {
        let xml = "<?xml version=\"1.0\"?>\n<a b=\"&quot;\"><c/>x &amp; y</a>\n";
        assert_eq!(elements(xml, &[], "xml"), ["a b", "c"]);
        for bad in [
            "<a>",
            "<a></b>",
            "<a>&x</a>",
            "<a b=\"<\"></a>",
            "<a>\u{1b}</a>",
            "<a>\u{ffff}</a>",
            "<a b=\"x\"c></a><a",
        ] {
            assert!(catch_unwind(|| elements(bad, &[], "bad")).is_err(), "{bad}");
        }
        assert_eq!(csv("a,b\r\n\"x\"\"\n\",\r\n", "csv"), [["a", "b"], ["x\"\n", ""]]);
        for bad in ["a,b\r\nc\r\n", "a\n", "a\"b\r\n", "\"a\r\n", "\"a\"b\r\n"] {
            assert!(catch_unwind(|| csv(bad, "bad")).is_err(), "{bad}");
        }
        assert!(catch_unwind(|| assert_shows("a\u{1b}", &[], "t")).is_err());
        assert!(catch_unwind(|| assert_shows("a\u{202e}", &[], "t")).is_err());
        assert!(catch_unwind(|| assert_no_line(&texts()[0].1, "t")).is_err());
        assert!(catch_unwind(|| assert_no_line(&texts()[1].1, "t")).is_err());
    }
}
