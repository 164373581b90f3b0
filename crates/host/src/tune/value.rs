//! Values of knobs, as text.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::rules::{rules, rules_text};
use crate::text::is_hidden;

/// Value of a knob: one line of text in the kernel's own notation.
///
/// A value that was read is kept byte for byte and restored unchanged, without a conversion that
/// could alter it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
#[cfg_attr(feature = "schema", schemars(with = "String"))]
pub struct Value(String);

/// Longest value in bytes: masks of 8192 CPUs fit.
const BYTES_MAX: usize = 4096;

impl Value {
    /// Returns `None` if the text is longer than 4096 bytes or has hidden characters other than the
    /// tabs that some settings contain.
    pub fn new(text: impl Into<String>) -> Option<Self> {
        let text = text.into();
        let is_plain = text.chars().all(|c| c == '\t' || !is_hidden(c));
        (text.len() <= BYTES_MAX && is_plain).then_some(Value(text))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[derive(Debug, Error)]
#[error("invalid value: expected one line of at most {BYTES_MAX} bytes")]
pub struct InvalidValue;

impl TryFrom<String> for Value {
    type Error = InvalidValue;

    fn try_from(text: String) -> Result<Self, InvalidValue> {
        Value::new(text).ok_or(InvalidValue)
    }
}

impl From<Value> for String {
    fn from(value: Value) -> String {
        value.0
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueFormat {
    Number {
        min: i64,
        max: i64,
    },
    /// Whole numbers separated by white space, such as `tcp_rmem`.
    Numbers {
        count: usize,
    },
    /// First and last number of a range, separated by white space, such as `ip_local_port_range`.
    Range {
        min: i64,
        max: i64,
    },
    /// CPUs or queues as the kernel's mask: hexadecimal words of 32 bits, highest first.
    Mask,
    /// `on` or `off`.
    Switch,
    /// One of these words; any word when the list is empty.
    Word(&'static [&'static str]),
    /// Name of a part of the kernel: at most 15 letters, digits, `-` and `_`.
    Name,
    /// `name=value` pairs of these names, separated by blanks; names left out are not changed.
    Pairs(&'static [&'static str]),
    /// Receive queues in the order of a table that repeats them: `0,1`, or `0x64,1x64` for 64 of each.
    Queues,
    /// A command for a shell.
    Command,
    /// Steering rules: `7:udp4,dst-port=4789,queue=1`, separated by blanks, or `none`.
    Rules,
}

impl ValueFormat {
    /// Returns the canonical spelling: two values have the same one exactly if they are the same
    /// setting. `None` if the value is invalid.
    pub fn canonical(self, text: &str) -> Option<String> {
        let text = text.trim();
        match self {
            ValueFormat::Number { min, max } => {
                let number = text.parse().ok().filter(|number| (min..=max).contains(number))?;
                Some(number.to_string())
            }
            ValueFormat::Numbers { count } => {
                let numbers: Option<Vec<i64>> =
                    text.split_whitespace().map(|word| word.parse().ok()).collect();
                let numbers = numbers.filter(|numbers| numbers.len() == count)?;
                Some(numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(" "))
            }
            ValueFormat::Range { min, max } => {
                let (first, last) = text.split_once(char::is_whitespace)?;
                let (first, last): (i64, i64) = (first.parse().ok()?, last.trim().parse().ok()?);
                (min <= first && first <= last && last <= max).then(|| format!("{first} {last}"))
            }
            ValueFormat::Mask => mask_words(text).map(|words| {
                let words: Vec<_> = words.iter().map(|word| format!("{word:08x}")).collect();
                words.join(",")
            }),
            ValueFormat::Switch => matches!(text, "on" | "off").then(|| text.to_owned()),
            ValueFormat::Command => (!text.is_empty()).then(|| text.to_owned()),
            ValueFormat::Word(words) => {
                let is_one = !text.is_empty() && !text.contains(char::is_whitespace);
                (is_one && (words.is_empty() || words.contains(&text))).then(|| text.to_owned())
            }
            ValueFormat::Name => is_kernel_name(text).then(|| text.to_owned()),
            ValueFormat::Rules => rules_text(&rules(text)?).ok(),
            ValueFormat::Queues => queues(text).map(|pattern| queues_text(&pattern)),
            ValueFormat::Pairs(names) => {
                let mut found = pairs(text)?;
                let is_known = found.iter().all(|(name, _)| names.contains(name));
                found.sort();
                let is_unique = found.windows(2).all(|two| two[0].0 != two[1].0);
                (is_known && is_unique && !found.is_empty()).then(|| {
                    let words: Vec<_> = found.iter().map(|(n, v)| format!("{n}={v}")).collect();
                    words.join(" ")
                })
            }
        }
    }

    /// True if `found` satisfies `wanted`. Pairs that `wanted` does not name are ignored.
    pub fn agrees(self, wanted: &str, found: &str) -> bool {
        match self {
            ValueFormat::Pairs(_) => match (pairs(wanted), pairs(found)) {
                (Some(wanted), Some(found)) => wanted.iter().all(|pair| found.contains(pair)),
                _ => false,
            },
            _ => match (self.canonical(wanted), self.canonical(found)) {
                (Some(wanted), Some(found)) => wanted == found,
                _ => wanted == found,
            },
        }
    }

    pub fn describe(self) -> String {
        match self {
            ValueFormat::Number { min, max } => format!("a number from {min} to {max}"),
            ValueFormat::Numbers { count } => format!("{count} numbers"),
            ValueFormat::Range { min, max } => {
                format!("two numbers from {min} to {max}, the smaller one first")
            }
            ValueFormat::Mask => "a mask of CPUs in hexadecimal, such as 3 for CPUs 0 and 1".to_owned(),
            ValueFormat::Switch => "on or off".to_owned(),
            ValueFormat::Command => "a command for a shell".to_owned(),
            ValueFormat::Name => "a name of at most 15 letters, digits, '-' and '_'".to_owned(),
            ValueFormat::Word([]) => "a word".to_owned(),
            ValueFormat::Word(words) => format!("one of {}", words.join(", ")),
            ValueFormat::Pairs(names) => format!("name=value of {}", names.join(", ")),
            ValueFormat::Rules => {
                "rules such as 7:udp4,dst-port=4789,queue=1 or 8:ether,ether-type=0x88f7,queue=drop, or none".to_owned()
            }
            ValueFormat::Queues => "queues, such as 0,1,2 or 0x64,1x64".to_owned(),
        }
    }
}

/// Source: net/tcp.h, TCP_CA_NAME_MAX of 16 bytes with the zero at its end.
fn is_kernel_name(text: &str) -> bool {
    (1..16).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// Splits `a=1 b=2`; `None` if a word is no pair.
pub(super) fn pairs(text: &str) -> Option<Vec<(&str, &str)>> {
    text.split_whitespace()
        .map(|word| {
            word.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty())
        })
        .collect()
}

fn number(text: &str) -> Option<u32> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse::<u32>().ok().filter(|_| is_plain)
}

/// Queues of a pattern, one an entry; `None` if it is empty, longer than any table, or invalid.
pub(super) fn queues(text: &str) -> Option<Vec<u32>> {
    const ENTRIES_MAX: usize = 1 << 16;
    let mut pattern = Vec::new();
    for part in text.split(',') {
        let (queue, count) = part.split_once('x').unwrap_or((part, "1"));
        let (queue, count) = (number(queue)?, number(count)? as usize);
        if count == 0 || pattern.len() + count > ENTRIES_MAX {
            return None;
        }
        pattern.extend(std::iter::repeat_n(queue, count));
    }
    // The shortest one that repeats to the same table.
    let divides = |len: &usize| pattern.len() % len == 0;
    pattern.truncate((1..).filter(divides).find(|len| repeats(&pattern, *len))?);
    Some(pattern)
}

/// The shortest pattern whose repetition is the table, as text.
pub(super) fn queues_text(table: &[u32]) -> String {
    let len = (1..=table.len()).find(|len| repeats(table, *len)).unwrap_or(0);
    let runs = table[..len].chunk_by(|a, b| a == b).map(|run| match run.len() {
        1 => run[0].to_string(),
        count => format!("{}x{count}", run[0]),
    });
    runs.collect::<Vec<_>>().join(",")
}

/// True if the table is its first `len` entries, over and over.
fn repeats(table: &[u32], len: usize) -> bool {
    table[len..].iter().zip(table).all(|(later, earlier)| later == earlier)
}

/// Words of a mask, highest first, without leading zeros (at least one word).
fn mask_words(text: &str) -> Option<Vec<u32>> {
    let words: Option<Vec<u32>> = text
        .split(',')
        .map(|word| {
            let is_hex = word.len() <= 8 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
            u32::from_str_radix(word, 16).ok().filter(|_| is_hex)
        })
        .collect();
    let words = words?;
    let first = words.iter().position(|word| *word != 0).unwrap_or(words.len() - 1);
    Some(words[first..].to_vec())
}

/// Returns the CPUs of a mask, ascending; `None` if it is invalid.
pub fn mask_to_cpus(text: &str) -> Option<Vec<usize>> {
    let words = mask_words(text.trim())?;
    let bits = words.iter().rev().enumerate().flat_map(|(number, word)| {
        (0..32).filter(move |bit| word >> bit & 1 == 1).map(move |bit| number * 32 + bit)
    });
    Some(bits.collect())
}

/// Formats CPUs as a mask.
pub fn cpus_to_mask(cpus: &[usize]) -> String {
    let words = cpus.iter().max().map_or(1, |last| last / 32 + 1);
    let word = |number: usize| {
        let own = cpus.iter().filter(|&&cpu| cpu / 32 == number);
        own.fold(0_u32, |word, cpu| word | 1 << (cpu % 32))
    };
    let mut text = format!("{:x}", word(words - 1));
    for number in (0..words - 1).rev() {
        text.push_str(&format!(",{:08x}", word(number)));
    }
    text
}

/// Returns the CPUs of a list such as `0-3,8`, ascending; `None` if it is invalid. An empty text is an
/// empty list.
pub fn list_to_cpus(text: &str) -> Option<Vec<usize>> {
    const CPUS_MAX: usize = 1 << 16;
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= CPUS_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_masks_have_one_canonical_spelling() {
        for same in ["3", "03", "00000003", "00000000,00000003", "00000000,00000000,3"] {
            assert_eq!(ValueFormat::Mask.canonical(same).as_deref(), Some("00000003"), "{same}");
        }
        assert_eq!(ValueFormat::Mask.canonical("0").as_deref(), Some("00000000"));
        for bad in ["", "g", "3,", "+3", "123456789", "-1", "0x3"] {
            assert_eq!(ValueFormat::Mask.canonical(bad), None, "{bad}");
        }
    }

    #[test]
    fn cpus_convert_to_masks_and_back() {
        for cpus in [vec![], vec![0], vec![0, 1, 31], vec![4, 33, 95]] {
            assert_eq!(mask_to_cpus(&cpus_to_mask(&cpus)), Some(cpus));
        }
        assert_eq!(cpus_to_mask(&[32]), "1,00000000");
        assert_eq!(list_to_cpus("0-2,8"), Some(vec![0, 1, 2, 8]));
        assert_eq!(list_to_cpus(""), Some(vec![]));
        for bad in ["2-1", "a", "0-99999999", "1-2-3"] {
            assert_eq!(list_to_cpus(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_table_of_queues_is_its_shortest_pattern() {
        let spread: Vec<u32> = (0..128).map(|entry| entry % 3).collect();
        assert_eq!(queues_text(&spread), "0,1,2");
        let halves = [vec![0; 64], vec![1; 64]].concat();
        assert_eq!(queues_text(&halves), "0x64,1x64");
        assert_eq!(queues("0x64,1x64"), Some(halves));
        assert_eq!((queues_text(&[5; 40]), queues_text(&[])), ("5".to_owned(), String::new()));
        let format = ValueFormat::Queues;
        for (text, canonical) in [("0,1,0,1", "0,1"), ("3x4", "3"), ("0,0,1", "0x2,1")] {
            assert_eq!(format.canonical(text).as_deref(), Some(canonical), "{text}");
        }
        for bad in ["", ",", "0,", "0x0", "x1", "0x99999", "-1", "+1", "0x1x1", "a"] {
            assert_eq!(format.canonical(bad), None, "{bad}");
        }
    }

    #[test]
    fn pairs_that_are_not_named_are_ignored() {
        let format = ValueFormat::Pairs(&["rx", "tx"]);
        assert!(format.agrees("rx=1", "tx=2 rx=1"));
        assert!(!format.agrees("rx=1", "rx=11 tx=2"));
        assert_eq!(format.canonical("tx=2  rx=1").as_deref(), Some("rx=1 tx=2"));
        for bad in ["", "rx", "rx=", "=1", "combined=1", "rx=1 rx=1"] {
            assert_eq!(format.canonical(bad), None, "{bad}");
        }
    }

    #[test]
    fn names_have_no_character_that_a_shell_or_a_file_would_read() {
        for good in ["bbr", "dctcp-v1", "x_2", "123456789012345"] {
            assert_eq!(ValueFormat::Name.canonical(good).as_deref(), Some(good));
        }
        for bad in ["", "1234567890123456", "a b", "a;b", "../x", "a.b", "\u{e9}", "a\"", "$(x)"] {
            assert_eq!(ValueFormat::Name.canonical(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn numbers_are_range_checked_and_values_are_one_line() {
        let percent = ValueFormat::Number { min: 0, max: 100 };
        assert_eq!(percent.canonical(" 007 ").as_deref(), Some("7"));
        assert!(["-1", "101", "1.0", "", "1e1"].iter().all(|t| percent.canonical(t).is_none()));
        assert!(ValueFormat::Numbers { count: 3 }.agrees("1 2 3", "1\t2\t3"));
        let ports = ValueFormat::Range { min: 1, max: 65_535 };
        assert!(ports.agrees("1024 65535", "1024\t65535"));
        for bad in ["", "1024", "0 9", "9 8", "1 65536", "1 2 3", "1,2", "a 2"] {
            assert_eq!(ports.canonical(bad), None, "{bad:?}");
        }
        assert!(Value::new("4096\t131072\t6291456").is_some());
        assert!(Value::new("1\n2").is_none() && Value::new("x".repeat(5000)).is_none());
    }
}
