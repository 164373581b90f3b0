//! A metric and the labels that its series must have.

use std::fmt;

use regex::Regex;

/// Name of a metric, without the suffixes of a histogram, and its labels.
#[derive(Debug, Clone)]
pub struct Selector {
    pub metric: String,
    labels: Vec<(String, Matcher)>,
}

#[derive(Debug, Clone)]
enum Matcher {
    Equal(String),
    /// Matches the whole value.
    Matches(Regex, String),
}

/// Most labels of one selector.
const LABELS_MAX: usize = 16;

impl Selector {
    /// Parses `name{label="value",other=~"5.."}`.
    ///
    /// Errors: the part that is not valid, and the remedy.
    pub fn parse(text: &str) -> Result<Selector, (String, &'static str)> {
        let (metric, labels) = match text.split_once('{') {
            Some((metric, labels)) => {
                let labels = labels
                    .strip_suffix('}')
                    .ok_or_else(|| (format!("{text:?} has no closing brace"), USE))?;
                (metric, labels)
            }
            None => (text, ""),
        };
        if !is_name(metric) {
            return Err((format!("{metric:?} is not the name of a metric"), USE));
        }
        let mut parsed = Vec::new();
        let mut rest = labels;
        while !rest.is_empty() {
            let fault = || (format!("{rest:?} is not a label"), USE);
            let (name, after) = rest.split_once('=').ok_or_else(fault)?;
            let (is_regex, after) = match after.strip_prefix('~') {
                Some(after) => (true, after),
                None => (false, after),
            };
            let (value, after) = quoted(after).ok_or_else(fault)?;
            if !is_name(name) || parsed.len() >= LABELS_MAX {
                return Err(fault());
            }
            let matcher = if is_regex {
                let regex = Regex::new(&format!("^(?:{value})$"))
                    .map_err(|_| (format!("{value:?} is not a regular expression"), USE))?;
                Matcher::Matches(regex, value)
            } else {
                Matcher::Equal(value)
            };
            parsed.push((name.to_owned(), matcher));
            rest = match after.strip_prefix(',') {
                Some(after) => after,
                None if after.is_empty() => "",
                None => return Err((format!("{after:?} follows a label"), USE)),
            };
        }
        Ok(Selector { metric: metric.to_owned(), labels: parsed })
    }

    /// True if a series with these labels is selected.
    pub(super) fn accepts(&self, labels: &[(&str, String)]) -> bool {
        self.labels.iter().all(|(name, matcher)| {
            let value = labels.iter().find(|(found, _)| found == name);
            // A label that is not there has the empty value, as in Prometheus.
            let value = value.map_or("", |(_, value)| value.as_str());
            match matcher {
                Matcher::Equal(wanted) => value == wanted,
                Matcher::Matches(regex, _) => regex.is_match(value),
            }
        })
    }
}

const USE: &str = "write METRIC or METRIC{label=\"value\",other=~\"REGEX\"}";

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':')
}

/// Value of a quoted string, and the text behind it. Source: Prometheus, text format 0.0.4: `\\`, `\"` and `\n`.
pub(super) fn quoted(text: &str) -> Option<(String, &str)> {
    let text = text.strip_prefix('"')?;
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match characters.next()?.1 {
                'n' => value.push('\n'),
                escaped @ ('\\' | '"') => value.push(escaped),
                // Kept as it is: an expression has such.
                other => value.extend(['\\', other]),
            },
            other => value.push(other),
        }
    }
    None
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.metric)?;
        for (number, (name, matcher)) in self.labels.iter().enumerate() {
            let (sign, value) = match matcher {
                Matcher::Equal(value) => ("=", value),
                Matcher::Matches(_, value) => ("=~", value),
            };
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let before = if number == 0 { "{" } else { "," };
            write!(f, "{before}{name}{sign}\"{value}\"")?;
        }
        if self.labels.is_empty() { Ok(()) } else { f.write_str("}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_select_by_value_or_by_expression() {
        let selector = Selector::parse("x{code=~\"5..\",path=\"/\"}").unwrap();
        let accepts = |code: &str, path: &str| {
            selector.accepts(&[("code", code.into()), ("path", path.into()), ("le", "1".into())])
        };
        assert!(accepts("503", "/") && !accepts("200", "/") && !accepts("5033", "/"));
        assert!(!accepts("503", "/a"));
        assert!(Selector::parse("x{path=\"\"}").unwrap().accepts(&[]));
    }

    #[test]
    fn a_selector_is_written_as_one_that_parses() {
        for text in ["x", "a:b_c{d=\"e\\\"f\\\\g\\n\"}", "x{a=~\"5.\\\\.\",b=\"\"}"] {
            let selector = Selector::parse(text).unwrap();
            assert_eq!(Selector::parse(&selector.to_string()).unwrap().to_string(), text);
        }
        for text in ["", "1x", "x{", "x{a}", "x{a=b}", "x{a=\"b}", "x{a=\"b\"c}", "x{a=~\"(\"}"] {
            assert!(Selector::parse(text).is_err(), "{text}");
        }
    }
}
