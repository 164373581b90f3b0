//! Values of the file: numbers in ranges, addresses, "inherit".

use std::ops::{Range, RangeInclusive};

use serde::Deserialize;
use toml::Spanned;

use super::{ConfigError, ConfigErrors, Field};

/// Value of a field that may be copied from the inner packet: a number, or `inherit`.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum NumberOrWord {
    Number(i64),
    Word(String),
}

/// A boolean or a word.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum FlagOrWord {
    Flag(bool),
    Word(String),
}

/// Collects errors with their lines.
pub(super) struct ConfigCheck<'a> {
    text: &'a str,
    errors: Vec<ConfigError>,
}

impl<'a> ConfigCheck<'a> {
    pub(super) fn new(text: &'a str) -> ConfigCheck<'a> {
        ConfigCheck { text, errors: Vec::new() }
    }

    /// Adds an error at `span`.
    pub(super) fn wrong(
        &mut self,
        span: Range<usize>,
        key: &str,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let line = line_number(self.text, span.start);
        let (key, problem, remedy) = (key.to_owned(), problem.into(), remedy.into());
        self.errors.push(ConfigError { line, key, problem, remedy });
    }

    /// Number of errors so far.
    pub(super) fn error_count(&self) -> usize {
        self.errors.len()
    }

    /// The value, unless there were errors.
    pub(super) fn finish<T>(mut self, value: Option<T>) -> Result<T, ConfigErrors> {
        match value {
            Some(value) if self.errors.is_empty() => Ok(value),
            _ => {
                self.errors.sort_by_key(|error| error.line);
                Err(ConfigErrors(self.errors))
            }
        }
    }

    /// A number in a range, or the default.
    pub(super) fn number<T: TryFrom<i64>>(
        &mut self,
        key: &str,
        found: Option<&Spanned<i64>>,
        range: RangeInclusive<i64>,
        default: T,
    ) -> T {
        let Some(found) = found else { return default };
        let number = *found.get_ref();
        let value = range.contains(&number).then(|| T::try_from(number).ok()).flatten();
        value.unwrap_or_else(|| {
            let remedy = format!("give {} to {}", range.start(), range.end());
            self.wrong(found.span(), key, format!("{number} is out of range"), remedy);
            default
        })
    }

    /// A number in a range or "inherit", or the default.
    pub(super) fn number_or_inherit(
        &mut self,
        key: &str,
        found: Option<&Spanned<NumberOrWord>>,
        range: RangeInclusive<u8>,
        default: Field<u8>,
    ) -> Field<u8> {
        let Some(found) = found else { return default };
        let (Field::Fixed(other) | Field::Inherit(other)) = default;
        let shown = match found.get_ref() {
            NumberOrWord::Number(number) => {
                if let Ok(value) = u8::try_from(*number)
                    && range.contains(&value)
                {
                    return Field::Fixed(value);
                }
                number.to_string()
            }
            NumberOrWord::Word(word) if word == "inherit" => return Field::Inherit(other),
            NumberOrWord::Word(word) => format!("{word:?}"),
        };
        let remedy = format!("give {} to {}, or \"inherit\"", range.start(), range.end());
        self.wrong(found.span(), key, format!("invalid value {shown}"), remedy);
        default
    }

    /// A boolean or "inherit", or the default.
    pub(super) fn flag_or_inherit(
        &mut self,
        key: &str,
        found: Option<&Spanned<FlagOrWord>>,
        default: bool,
    ) -> Field<bool> {
        match found.map(|found| (found, found.get_ref())) {
            None => Field::Fixed(default),
            Some((_, FlagOrWord::Flag(flag))) => Field::Fixed(*flag),
            Some((_, FlagOrWord::Word(word))) if word == "inherit" => Field::Inherit(default),
            Some((found, FlagOrWord::Word(word))) => {
                let problem = format!("invalid value {word:?}");
                self.wrong(found.span(), key, problem, "give true, false or \"inherit\"");
                Field::Fixed(default)
            }
        }
    }

    /// A unicast MAC address.
    pub(super) fn mac(&mut self, key: &str, found: &Spanned<String>) -> Option<[u8; 6]> {
        let mac = mac(found.get_ref()).filter(|mac| mac[0] & 1 == 0 && *mac != [0; 6]);
        if mac.is_none() {
            let problem = format!("{:?} is not a unicast MAC address", found.get_ref());
            self.wrong(found.span(), key, problem, "write six bytes such as \"02:00:00:00:00:0a\"");
        }
        mac
    }

    /// A value with a text form, such as an IP address.
    pub(super) fn parsed<T: std::str::FromStr>(
        &mut self,
        key: &str,
        found: &Spanned<String>,
        what: &str,
        example: &str,
    ) -> Option<T> {
        let value = found.get_ref().parse().ok();
        if value.is_none() {
            let problem = format!("{:?} is not a valid {what}", found.get_ref());
            self.wrong(found.span(), key, problem, format!("write one such as {example:?}"));
        }
        value
    }

    /// An interface name that the kernel accepts.
    pub(super) fn interface(&mut self, key: &str, found: &Spanned<String>) -> String {
        let name = found.get_ref();
        let is_fine = (1..16).contains(&name.len())
            && name != "."
            && name != ".."
            && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b':');
        if !is_fine {
            let problem = format!("{name:?} is not a valid interface name");
            self.wrong(found.span(), key, problem, "give 1 to 15 characters, as `ip link` shows");
        }
        name.clone()
    }
}

/// Line number, from 1, of a byte offset.
pub(super) fn line_number(text: &str, at: usize) -> usize {
    let before = text.as_bytes().get(..at).unwrap_or(text.as_bytes());
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

fn mac(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut mac {
        let part = parts.next().filter(|part| part.len() == 2)?;
        let is_hex = part.bytes().all(|digit| digit.is_ascii_hexdigit());
        *byte = u8::from_str_radix(part, 16).ok().filter(|_| is_hex)?;
    }
    parts.next().is_none().then_some(mac)
}
