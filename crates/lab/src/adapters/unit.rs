//! Numbers with units, converted into the unit that a figure's name states.

use std::ops::Range;

use model::stated_unit;

use super::error::{Reason, quoted};

/// Longest text that is taken for a number with its unit, bytes.
const NUMBER_BYTES_MAX: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct FigureUnit {
    dimension: Dimension,
    /// Base units in one of this unit.
    scale: f64,
    name: &'static str,
}

/// Kinds of units that convert into each other, with their base unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dimension {
    /// Nanoseconds.
    Time,
    /// Bits a second.
    BitRate,
    /// Events a second.
    Rate,
    Bytes,
    /// Percent.
    Percent,
    /// The name states no unit, or a count.
    Plain,
}

const DIMENSIONS: [Dimension; 6] = [
    Dimension::Time,
    Dimension::BitRate,
    Dimension::Rate,
    Dimension::Bytes,
    Dimension::Percent,
    Dimension::Plain,
];
const TIMES: &[(&[&str], f64)] = &[
    (&["ns", "nsec", "nsecs", "nanoseconds"], 1.0),
    (&["us", "µs", "μs", "usec", "usecs", "microseconds"], 1e3),
    (&["ms", "msec", "msecs", "milliseconds"], 1e6),
    (&["s", "sec", "secs", "second", "seconds"], 1e9),
    (&["m", "min"], 6e10),
    (&["h"], 3.6e12),
];
const BITS: &[&str] = &["", "bps", "b/s", "bit/s", "bits/s", "bit/sec", "bits/sec"];
const BYTE_RATES: &[&str] =
    &["B/s", "B/sec", "byte/s", "bytes/s", "bytes/sec", "Bytes/s", "Bytes/sec"];
const EVENTS: &[&str] = &[
    "",
    "/s",
    "/sec",
    "pps",
    "rps",
    "qps",
    "tps",
    "req/s",
    "req/sec",
    "reqs/s",
    "requests/s",
    "requests/sec",
    "ops/s",
    "ops/sec",
    "msg/s",
    "msg/sec",
    "msgs/s",
    "msgs/sec",
    "packets/s",
    "packets/sec",
    "queries/s",
    "queries/sec",
    "Trans/s",
    "transactions/s",
];
const BYTES: &[&str] = &["", "B", "byte", "bytes", "Bytes"];
const PREFIXES: &[(&str, f64)] = &[
    ("Ki", 1024.0),
    ("Mi", 1_048_576.0),
    ("Gi", 1_073_741_824.0),
    ("Ti", 1_099_511_627_776.0),
    ("k", 1e3),
    ("K", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
    ("", 1.0),
];

impl FigureUnit {
    pub(super) fn stated_in(name: &str) -> FigureUnit {
        let name = stated_unit(name).map_or("", |(unit, _)| unit);
        let (dimension, scale) = match name {
            "ns" => (Dimension::Time, 1.0),
            "us" => (Dimension::Time, 1e3),
            "ms" => (Dimension::Time, 1e6),
            "s" => (Dimension::Time, 1e9),
            "bps" => (Dimension::BitRate, 1.0),
            "pps" | "rps" | "qps" | "tps" => (Dimension::Rate, 1.0),
            "bytes" => (Dimension::Bytes, 1.0),
            "percent" => (Dimension::Percent, 1.0),
            "share" => (Dimension::Percent, 100.0),
            _ => (Dimension::Plain, 1.0),
        };
        FigureUnit { dimension, scale, name }
    }

    /// Converts a number with or without a unit.
    pub(super) fn parse(self, text: &str) -> Result<f64, Reason> {
        let text = text.trim();
        if text.len() > NUMBER_BYTES_MAX {
            return Err(not_a_number(text));
        }
        let (digits, suffix) = text.split_at(number_len(text));
        let number: f64 = without_separators(digits)
            .ok_or_else(|| Reason::Comma { text: text.into() })?
            .parse()
            .map_err(|_| not_a_number(text))?;
        let suffix = suffix.trim_start();
        if suffix.is_empty() {
            return Ok(number);
        }
        if !suffix.starts_with(|c: char| c.is_alphabetic() || matches!(c, '/' | '%')) {
            return Err(not_a_number(text));
        }
        match self.base_units_in(suffix) {
            Some(units) => Ok(number * (units / self.scale)),
            None if self.name.is_empty() => Err(Reason::NoUnit { text: text.into() }),
            None => Err(Reason::OtherUnit { text: text.into(), unit: self.name }),
        }
    }

    /// Unit that follows a bare number in an output, if the figure's name states none.
    ///
    /// - `number`: place of the captured number.
    ///
    /// Errors: the unit is another than that of the name, or the number goes on behind a decimal comma.
    pub(super) fn beside(
        self,
        output: &[u8],
        number: Range<usize>,
    ) -> Result<Option<String>, Reason> {
        let captured = String::from_utf8_lossy(&output[number.clone()]);
        if captured.trim_end().ends_with(|c: char| !c.is_ascii_digit() && c != '.') {
            return Ok(None);
        }
        let after = &output[number.end..];
        let after = &after[..after.len().min(NUMBER_BYTES_MAX)];
        let after = String::from_utf8_lossy(after);
        let after = after.lines().next().unwrap_or_default();
        // The group may have taken a part of the number.
        let rest_len = after
            .find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | ','))
            .unwrap_or(after.len());
        let (rest, after) = after.split_at(rest_len);
        let word = after.strip_prefix(' ').unwrap_or(after);
        let word_len = word
            .find(|c: char| !c.is_alphabetic() && !matches!(c, '/' | '%'))
            .unwrap_or(word.len());
        let (word, next) = word.split_at(word_len);
        if word.is_empty() || next.starts_with(|c: char| c.is_ascii_digit() || c == '_') {
            return Ok(None);
        }
        let text = || quoted(format!("{}{rest} {word}", captured.trim()).as_bytes());
        if self.name.is_empty() {
            let is_unit = DIMENSIONS.iter().any(|dimension| {
                FigureUnit { dimension: *dimension, ..self }.base_units_in(word).is_some()
            });
            return Ok(is_unit.then(|| word.to_owned()));
        }
        match self.base_units_in(word) {
            None => Ok(None),
            Some(_) if rest.contains(',') => Err(Reason::Comma { text: text() }),
            Some(units) if units != self.scale => {
                Err(Reason::OtherUnitBeside { text: text(), unit: self.name })
            }
            Some(_) => Ok(None),
        }
    }

    /// Returns a value that can be that of a measurement.
    ///
    /// A time of zero is below the program's resolution.
    ///
    /// Errors: not finite, negative, or a rate of zero.
    pub(super) fn checked(self, value: f64) -> Result<f64, Reason> {
        let may_be_zero = !matches!(self.dimension, Dimension::BitRate | Dimension::Rate);
        // A plain number may be a temperature, or a score below zero.
        let may_be_negative = self.name.is_empty();
        let in_range =
            value.is_finite() && (value != 0.0 || may_be_zero) && (value >= 0.0 || may_be_negative);
        if in_range { Ok(value) } else { Err(Reason::OutOfRange { value }) }
    }

    /// Base units in one of the unit that a number in the output has.
    fn base_units_in(self, suffix: &str) -> Option<f64> {
        match self.dimension {
            Dimension::Time => {
                TIMES.iter().find(|(names, _)| names.contains(&suffix)).map(|(_, ns)| *ns)
            }
            Dimension::BitRate => prefixed(suffix, BITS)
                .or_else(|| prefixed(suffix, BYTE_RATES).map(|bytes| 8.0 * bytes)),
            Dimension::Rate => prefixed(suffix, EVENTS),
            Dimension::Bytes => prefixed(suffix, BYTES),
            Dimension::Percent => (suffix == "%").then_some(1.0),
            Dimension::Plain => prefixed(suffix, &[""]),
        }
    }
}

fn not_a_number(text: &str) -> Reason {
    Reason::NotANumber { text: quoted(text.as_bytes()) }
}

/// Factor of the prefix in front of one of the units; `None` if the suffix is none of them.
fn prefixed(suffix: &str, units: &[&str]) -> Option<f64> {
    PREFIXES.iter().find_map(|(prefix, factor)| {
        let unit = suffix.strip_prefix(prefix)?;
        units.contains(&unit).then_some(*factor)
    })
}

/// Length of the number at the start of a text, with separators and exponent, bytes.
fn number_len(text: &str) -> usize {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let after = unsigned.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | ','));
    let mantissa_len = text.len() - after.len();
    let Some(exponent) = after.strip_prefix(['e', 'E']) else { return mantissa_len };
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    let end = digits.trim_start_matches(|c: char| c.is_ascii_digit());
    if end.len() < digits.len() { text.len() - end.len() } else { mantissa_len }
}

/// Removes commas between groups of three digits; `None` if there is another comma, or a single one that may as well
/// be a decimal sign: `12,564` is 12564 in one language and 12.564 in another.
fn without_separators(number: &str) -> Option<String> {
    if !number.contains(',') {
        return Some(number.into());
    }
    let (whole, rest) = match number.find(['.', 'e', 'E']) {
        Some(at) => number.split_at(at),
        None => (number, ""),
    };
    let mut groups = whole.trim_start_matches(['+', '-']).split(',');
    let first = groups.next()?;
    let grouped = (1..=3).contains(&first.len()) && groups.clone().all(|group| group.len() == 3);
    let is_ambiguous = groups.count() == 1 && !rest.starts_with('.');
    (grouped && !is_ambiguous && !rest.contains(',')).then(|| number.replace(',', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(name: &str, text: &str) -> Result<f64, Reason> {
        FigureUnit::stated_in(name).parse(text)
    }

    #[test]
    fn numbers_are_converted_into_the_unit_of_the_name() {
        for (name, text, value) in [
            ("p99_us", "4.73ms", 4730.0),
            ("p99_us", "247.00us", 247.0),
            ("p99_us", "116µs", 116.0),
            ("p99_us", "832ns", 0.832),
            ("p99_us", "12", 12.0),
            ("p99_ns", "5.833 us", 5833.0),
            ("rtt_ms_mean", "1.5 s", 1500.0),
            ("wall_s", "1.5m", 90.0),
            ("rps", "30.25k", 30_250.0),
            ("rps", "107,009.10 req/s", 107_009.10),
            ("rps", "1,234,567", 1_234_567.0),
            ("goodput_bps", "1.2 Gbits/sec", 1.2e9),
            ("goodput_bps", "3.22 GB/sec", 25.76e9),
            ("goodput_bps", "100", 100.0),
            ("goodput_bps", "1KiB/s", 8192.0),
            ("memory_bytes_max", "2MiB", 2_097_152.0),
            ("memory_bytes", "2 MB", 2e6),
            ("idle_percent", "12.5%", 12.5),
            ("idle_share", "12.5%", 0.125),
            ("idle_share", "0.25", 0.25),
            ("lost_count", "12k", 12_000.0),
            ("score", "-1.5e3", -1500.0),
            ("received_pps", "1.5E6", 1.5e6),
        ] {
            let read = parsed(name, text).unwrap_or_else(|why| panic!("{name} {text}: {why}"));
            assert!((read / value - 1.0).abs() < 1e-12, "{name} {text}: {read}");
        }
    }

    #[test]
    fn texts_that_are_no_number_of_that_unit_are_errors() {
        let long = "1".repeat(65);
        for text in [
            "", "nan", "inf", "-inf", "NaN", "Infinity", "ms", "1.2.3", "0x12", "--1", "1..", &long,
        ] {
            assert!(parsed("p99_us", text).is_err(), "{text}");
        }
        assert!(matches!(parsed("p99_us", "12 3"), Err(Reason::NotANumber { .. })));
        assert!(matches!(parsed("p99_us", "12k"), Err(Reason::OtherUnit { unit: "us", .. })));
        assert!(matches!(parsed("rps", "12ms"), Err(Reason::OtherUnit { unit: "rps", .. })));
        assert!(matches!(parsed("score", "12ms"), Err(Reason::NoUnit { .. })));
        for text in [
            "1,5",
            "12,564",
            "0,564",
            "1,234e3",
            "1,2345",
            "1,234,5",
            "12.5,000",
            "1234,567",
            ",123",
            "1,234.5,678",
        ] {
            assert!(matches!(parsed("rps", text), Err(Reason::Comma { .. })), "{text}");
        }
    }

    fn unit_beside(name: &str, number: &str, after: &str) -> Result<Option<String>, Reason> {
        let output = format!("99% {number}{after}\nms");
        FigureUnit::stated_in(name).beside(output.as_bytes(), 4..4 + number.len())
    }

    #[test]
    fn a_unit_beside_a_bare_number_is_that_of_the_name_or_refused() {
        for (name, number, after) in [
            ("p99_us", "980.00", "us"),
            ("p99_us", "980", ".00us"),
            ("p99_us", "980", " µs, 3 lost"),
            ("p99_us", "1.02ms", " ms"),
            ("p99_us", "980", ""),
            ("p99_us", "980", " requests"),
            ("p99_us", "980", "ms_total"),
            ("rps", "12", " req/s"),
            ("loss_percent", "1", "%"),
            ("a_us", "12", ",13,14"),
        ] {
            assert_eq!(unit_beside(name, number, after), Ok(None), "{name} {number}{after}");
        }
        for (name, number, after) in [
            ("p99_us", "1.02", "ms"),
            ("rps", "1.2", "k"),
            ("loss_share", "1", " %"),
            ("p99_us", "1", ".02 s"),
        ] {
            let refused = unit_beside(name, number, after);
            assert!(matches!(refused, Err(Reason::OtherUnitBeside { .. })), "{number}{after}");
        }
        assert!(matches!(unit_beside("p99_ms", "12", ",564 ms"), Err(Reason::Comma { .. })));
        assert_eq!(unit_beside("p99", "980", "us"), Ok(Some("us".into())));
        assert_eq!(unit_beside("p99", "980", " points"), Ok(None));
    }

    #[test]
    fn zero_is_a_value_of_all_but_rates() {
        for (name, value, is_value) in [
            ("p99_us", 0.0, true),
            ("rps", 0.0, false),
            ("lost_count", 0.0, true),
            ("loss_percent", 0.0, true),
            ("score", 0.0, true),
            ("score", -1.0, true),
            ("lost_count", -1.0, false),
            ("p99_us", -1.0, false),
            ("score", f64::NAN, false),
            ("score", f64::INFINITY, false),
        ] {
            assert_eq!(
                FigureUnit::stated_in(name).checked(value).is_ok(),
                is_value,
                "{name} {value}"
            );
        }
    }
}
