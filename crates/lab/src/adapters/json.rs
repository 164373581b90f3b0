//! Figures from JSON. Nothing of a document is kept but the value at the pointer.

use std::fmt;

use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Deserializer;

use super::error::{Reason, quoted, tail};

/// Members of an object that an error lists.
const LISTED: usize = 8;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Scalar {
    Number(f64),
    Text(String),
}

/// Splits a pointer (RFC 6901) into its tokens. `None` if it is none, or if it points to a whole document.
pub(super) fn tokens(pointer: &str) -> Option<Vec<String>> {
    pointer.strip_prefix('/')?.split('/').map(unescaped).collect()
}

fn unescaped(token: &str) -> Option<String> {
    let is_valid = token.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
    is_valid.then(|| token.replace("~1", "/").replace("~0", "~"))
}

/// Returns the value at a pointer in the document of an output.
pub(crate) fn scalar(output: &[u8], pointer: &str) -> Result<Scalar, Reason> {
    let document = document(output)?;
    let tokens = tokens(pointer).unwrap_or_default();
    let mut walk = Walk { tokens: &tokens, outcome: Ok(None) };
    // Read once already, so that it is valid.
    let read = (&mut walk).deserialize(&mut Deserializer::from_slice(document));
    match (walk.outcome, read) {
        (Err(missed), _) => Err(missed.into_reason(pointer, &tokens)),
        (Ok(Some(value)), Ok(())) => Ok(value),
        (Ok(_), Err(why)) => Err(Reason::BrokenDocument { line: 1, why: why.to_string() }),
        (Ok(None), Ok(())) => Err(Reason::NotScalar { kind: "nothing" }),
    }
}

/// Returns a number at a pointer in the document of an output.
pub(crate) fn number(output: &[u8], pointer: &str) -> Result<f64, Reason> {
    match scalar(output, pointer)? {
        Scalar::Number(number) => Ok(number),
        Scalar::Text(_) => Err(Reason::NotScalar { kind: "a string" }),
    }
}

/// Returns the one document of an output, or the last of several that take one line each.
fn document(output: &[u8]) -> Result<&[u8], Reason> {
    let mut found: Option<&[u8]> = None;
    let (mut count, mut all_in_lines) = (0, true);
    let (mut rest, mut line) = (output, 1);
    while !rest.is_empty() {
        let line_len = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |at| at + 1);
        let indent = rest[..line_len].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        let mut len = line_len;
        if let Some(opening @ (b'{' | b'[')) = rest[..line_len].get(indent) {
            match document_in(&rest[indent..]) {
                Document::Whole(document) => {
                    count += 1;
                    all_in_lines &= indent + document.len() <= line_len;
                    found = Some(document);
                    len = line_len.max(indent + document.len());
                }
                // A line such as `[  5] local 10.0.0.1` or `[info] ready`.
                Document::None { line: 1, is_cut: false, .. } if *opening == b'[' => {}
                Document::None { why, .. } => return Err(Reason::BrokenDocument { line, why }),
            }
        }
        line += rest[..len].iter().filter(|byte| **byte == b'\n').count();
        rest = &rest[len..];
    }
    match found {
        Some(document) if count == 1 || all_in_lines => Ok(document),
        Some(_) => Err(Reason::SeveralDocuments { count }),
        None => Err(Reason::NoDocument { tail: tail(output) }),
    }
}

/// A text that starts like a document.
enum Document<'a> {
    Whole(&'a [u8]),
    None {
        /// Line of the fault, counted from 1.
        line: usize,
        /// True if the document would go on beyond the end of the text.
        is_cut: bool,
        why: String,
    },
}

/// Returns the document at the start of a text, if nothing but blanks follows it on its last line.
fn document_in(text: &[u8]) -> Document<'_> {
    let mut stream = Deserializer::from_slice(text).into_iter::<IgnoredAny>();
    if let Some(Err(why)) = stream.next() {
        return Document::None { line: why.line(), is_cut: why.is_eof(), why: why.to_string() };
    }
    let (document, after) = text.split_at(stream.byte_offset());
    let after = after.split(|byte| *byte == b'\n').next().unwrap_or_default();
    if after.trim_ascii().is_empty() {
        return Document::Whole(document);
    }
    let line = 1 + document.iter().filter(|byte| **byte == b'\n').count();
    Document::None { line, is_cut: false, why: format!("{:?} follows it", quoted(after)) }
}

/// Reads a value along the tokens of a pointer, and skips all others.
struct Walk<'t> {
    tokens: &'t [String],
    /// The value, once it has been read; or the place at which the pointer leaves the document.
    outcome: Result<Option<Scalar>, Missed>,
}

enum Missed {
    /// Tokens left where there is no such member, and the members there are.
    Member {
        left: usize,
        members: Vec<String>,
    },
    Kind(&'static str),
    Twice(String),
}

impl Missed {
    fn into_reason(self, pointer: &str, tokens: &[String]) -> Reason {
        match self {
            Missed::Kind(kind) => Reason::NotScalar { kind },
            Missed::Twice(key) => Reason::TwiceInDocument { key },
            Missed::Member { left, members } => {
                let depth = tokens.len().saturating_sub(left);
                let found: String = pointer.split_inclusive('/').take(depth + 1).collect();
                let members =
                    if members.is_empty() { "nothing".into() } else { members.join(", ") };
                Reason::NoMember { pointer: pointer.into(), found, members }
            }
        }
    }
}

impl<'de> DeserializeSeed<'de> for &mut Walk<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Walk<'_> {
    fn scalar(&mut self, value: Scalar) {
        self.outcome = match self.tokens.len() {
            0 => Ok(Some(value)),
            left => Err(Missed::Member { left, members: Vec::new() }),
        };
    }

    fn kind(&mut self, kind: &'static str) {
        self.outcome = Err(Missed::Kind(kind));
    }

    /// Reads the value of a member on the way, unless there was one of the same name.
    fn step<E: Error>(
        &mut self,
        seen: bool,
        read: impl FnOnce(&mut Walk<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some((token, left)) = self.tokens.split_first() else { return Ok(()) };
        let mut inner = Walk { tokens: left, outcome: Ok(None) };
        read(&mut inner)?;
        self.outcome = if seen { Err(Missed::Twice(token.clone())) } else { inner.outcome };
        Ok(())
    }
}

impl<'de> Visitor<'de> for &mut Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        if self.tokens.is_empty() {
            self.kind("an object");
        }
        let mut members = Vec::new();
        let mut seen = false;
        while let Some(key) = map.next_key::<String>()? {
            if self.tokens.first() == Some(&key) {
                self.step(seen, |inner| map.next_value_seed(inner))?;
                seen = true;
                continue;
            }
            map.next_value::<IgnoredAny>()?;
            if members.len() < LISTED {
                members.push(key);
            } else if members.len() == LISTED {
                members.push("…".into());
            }
        }
        if !seen && !self.tokens.is_empty() {
            self.outcome = Err(Missed::Member { left: self.tokens.len(), members });
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        if self.tokens.is_empty() {
            self.kind("an array");
        }
        // No leading zero (RFC 6901 section 4), and no sign.
        let index: Option<usize> = self.tokens.first().and_then(|token| {
            let plain = token.bytes().all(|byte| byte.is_ascii_digit());
            (plain && (token == "0" || !token.starts_with('0'))).then(|| token.parse().ok())?
        });
        let mut len = 0;
        loop {
            if index == Some(len) {
                let mut more = false;
                self.step(false, |inner| {
                    more = seq.next_element_seed(inner)?.is_some();
                    Ok(())
                })?;
                if !more {
                    break;
                }
            } else if seq.next_element::<IgnoredAny>()?.is_none() {
                break;
            }
            len += 1;
        }
        if !self.tokens.is_empty() && index.is_none_or(|index| index >= len) {
            let members = vec![format!("{len} elements")];
            self.outcome = Err(Missed::Member { left: self.tokens.len(), members });
        }
        Ok(())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.scalar(Scalar::Number(value));
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.visit_f64(value as f64)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.visit_f64(value as f64)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.scalar(Scalar::Text(value.into()));
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.kind("a truth value");
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.kind("null");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, pointer: &str) -> Result<Scalar, Reason> {
        scalar(text.as_bytes(), pointer)
    }

    fn at(text: &str, pointer: &str) -> f64 {
        number(text.as_bytes(), pointer).unwrap_or_else(|why| panic!("{text} {pointer}: {why}"))
    }

    #[test]
    fn pointers_lead_through_objects_and_arrays() {
        let text =
            r#"{"a/b": {"m~n": [10, {"": -2.5}]}, "ALL STATS": {"p99.00": 3e2}, "e": {"é": 7}}"#;
        assert_eq!(at(text, "/a~1b/m~0n/0"), 10.0);
        assert_eq!(at(text, "/a~1b/m~0n/1/"), -2.5);
        assert_eq!(at(text, "/ALL STATS/p99.00"), 300.0);
        assert_eq!(at(text, "/e/é"), 7.0);
        assert_eq!(at("[[1, 2], [3, 4]]", "/1/0"), 3.0);
        assert_eq!(read(r#"{"p99": "4.73ms"}"#, "/p99"), Ok(Scalar::Text("4.73ms".into())));
        for pointer in ["/a~1b/m~0n/00", "/a~1b/m~0n/2", "/a~1b/m~0n/-", "/a~1b/m~0n/0/x", "/e"] {
            assert!(read(text, pointer).is_err(), "{pointer}");
        }
        assert_eq!(tokens(""), None);
        assert_eq!(tokens("a"), None);
        assert_eq!(tokens("/a~2"), None);
        assert_eq!(tokens("/a~"), None);
    }

    #[test]
    fn a_missing_value_is_an_error_that_says_how_far_the_pointer_led() {
        let text = r#"{"end": {"sum": {"packets": null, "seconds": 1.0}, "ok": true}}"#;
        let error = |pointer| read(text, pointer).unwrap_err().to_string();
        let missing = error("/end/sum/lost");
        assert!(
            missing.contains("/end/sum/lost") && missing.contains("packets, seconds"),
            "{missing}"
        );
        assert!(missing.contains("\"/end/sum/\""), "{missing}");
        assert!(error("/end/sum/packets").contains("null"));
        assert!(error("/end/sum").contains("an object"));
        assert!(error("/end/ok").contains("truth value"));
        let wide: String = (0..99).map(|n| format!("\"k{n}\":1,")).collect();
        let why = read(&format!("{{{wide}\"z\":1}}"), "/x").unwrap_err().to_string();
        assert!(why.contains("k7, …") && !why.contains("k8"), "{why}");
        let twice = read(r#"{"a": 1, "b": 2, "a": 3}"#, "/a").unwrap_err();
        assert_eq!(twice, Reason::TwiceInDocument { key: "a".into() });
    }

    #[test]
    fn lines_around_the_document_are_skipped() {
        let pretty = "{\n  \"a\": [\n    1,\n    2\n  ]\n}\n";
        assert_eq!(
            at(&format!("started\n[info] port 1\n[  5] local\n{pretty}done\n"), "/a/1"),
            2.0
        );
        assert_eq!(at(&format!("  {}", pretty.replace('\n', "\r\n")), "/a/0"), 1.0);
        let invalid = [b"\xff\xfe\n".as_slice(), pretty.as_bytes(), b"\xff"].concat();
        assert_eq!(number(&invalid, "/a/0"), Ok(1.0));
    }

    #[test]
    fn of_documents_in_lines_the_last_one_counts() {
        assert_eq!(at("{\"a\": 1}\n{\"a\": 2}\nbye\n{\"a\": 3}\n\n", "/a"), 3.0);
        assert!(read("{\"a\": 1}\n{\"b\": 2}\n", "/a").is_err());
        let two = read("{\n\"a\": 1}\n{\"a\": 2}\n", "/a").unwrap_err();
        assert_eq!(two, Reason::SeveralDocuments { count: 2 });
    }

    #[test]
    fn a_broken_document_is_an_error_with_its_line() {
        for (text, in_line) in [
            ("a\n{\"a\": 1", 2),
            ("{\"a\": NaN}\n", 1),
            ("{\"a\": 1}\n{\"a\": NaN}\n", 2),
            ("[\n  {\"a\": 1}\n", 1),
            ("[\n  NaN,\n  {\"a\": 1}\n]\n", 1),
            ("{\"a\": 1e999}", 1),
            ("{\"a\": 1,}\n", 1),
        ] {
            let why = read(text, "/a").unwrap_err();
            assert!(
                matches!(why, Reason::BrokenDocument { line, .. } if line == in_line),
                "{text} {why}"
            );
        }
        assert!(
            matches!(read("no JSON\n", "/a"), Err(Reason::NoDocument { tail }) if tail == "no JSON")
        );
        let followed = read("{\"a\": 1} trailing", "/a").unwrap_err().to_string();
        assert!(followed.contains("trailing"), "{followed}");
        let deep = "[".repeat(100_000);
        assert!(read(&deep, "/a").is_err());
    }
}
