//! Numbers for people: three significant digits, and always the unit.

use std::fmt::Display;
use std::time::Duration;

/// Returns three significant digits, or all digits of a whole number; no exponent from 0.0001 on.
pub fn digits(value: f64) -> String {
    if !value.is_finite() {
        return "not a number".into();
    }
    if value == 0.0 {
        return "0".into();
    }
    let exponential = format!("{value:.2e}");
    // After rounding: 0.9996 has the digits of 1.00.
    let power: i32 = exponential.split_once('e').and_then(|(_, p)| p.parse().ok()).unwrap_or(0);
    match power {
        ..=-5 => exponential,
        _ => format!("{value:.*}", (2 - power).max(0) as usize),
    }
}

/// Decimal steps of a unit, ascending; empty for a unit that is never scaled.
fn steps(base: &str) -> &'static [(f64, &'static str)] {
    match base {
        "ns" => &[(1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")],
        // Of figures that a user's program reports.
        "us" => &[(1e-3, "ns"), (1.0, "µs"), (1e3, "ms"), (1e6, "s")],
        "ms" => &[(1e-6, "ns"), (1e-3, "µs"), (1.0, "ms"), (1e3, "s")],
        "s" => &[(1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms"), (1.0, "s")],
        "bytes" => &[(1.0, "B"), (1024.0, "KiB"), (1048576.0, "MiB"), (1073741824.0, "GiB")],
        "pps" => &[(1.0, "pps"), (1e3, "kpps"), (1e6, "Mpps"), (1e9, "Gpps")],
        "bps" => &[(1.0, "bit/s"), (1e3, "kbit/s"), (1e6, "Mbit/s"), (1e9, "Gbit/s")],
        _ => &[],
    }
}

/// Returns divisor and name of the unit that suits a value: `(1000.0, "µs")` for 62,800 ns.
pub fn step(value: f64, unit: &str) -> (f64, String) {
    let (base, per) = match unit.split_once('/') {
        Some(("ns", per)) => ("ns", format!("/{per}")),
        _ => (unit, String::new()),
    };
    let steps = steps(base);
    // A rounded figure must not read `1000 µs`: step up from 999.5.
    let fits = steps.iter().rev().find(|(scale, _)| value.abs() >= scale * 0.9995);
    match fits.or(steps.first()) {
        Some((scale, name)) => (*scale, format!("{name}{per}")),
        None => (1.0, unit.into()),
    }
}

/// Formats a value with its unit, scaled: `62.8 µs`, `1.31 Mpps`, `12.3 Gbit/s`.
///
/// - `unit`: unit of a metric: `ns`, `pps`, `bps`, `count`, or any other, which is kept as it is.
pub fn value(value: f64, unit: &str) -> String {
    match unit {
        "count" if value.fract() == 0.0 && value.abs() < 1e15 => grouped(value as i64),
        "count" | "" => digits(value),
        _ => {
            let (scale, name) = step(value, unit);
            format!("{} {name}", digits(value / scale))
        }
    }
}

/// As [`grouped`], of a count of any size.
pub(crate) fn grouped_count(count: u64) -> String {
    grouped(i64::try_from(count).unwrap_or(i64::MAX))
}

/// Formats a whole number with commas: `1,234,567`.
pub fn grouped(number: i64) -> String {
    let plain = number.unsigned_abs().to_string();
    let mut out = String::new();
    for (i, digit) in plain.chars().enumerate() {
        if i > 0 && (plain.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if number < 0 { format!("-{out}") } else { out }
}

/// Formats a count with its noun: `1 setting`, `2 settings`, `0 switches`.
pub fn plural<N: Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    if count == N::from(1) {
        return format!("{count} {noun}");
    }
    match noun.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'o']) => format!("{count} {stem}ies"),
        _ if noun.ends_with(['s', 'x']) || noun.ends_with("ch") || noun.ends_with("sh") => {
            format!("{count} {noun}es")
        }
        _ => format!("{count} {noun}s"),
    }
}

/// Formats the counts above zero, each after a comma: `, 3 dropped, 1 reordered`.
pub fn counted(counts: &[(u64, &str)]) -> String {
    let known = counts.iter().filter(|(count, _)| *count > 0);
    known.map(|(count, what)| format!(", {count} {what}")).collect()
}

/// Formats a ratio: `0.0371×`.
pub fn ratio(value: f64) -> String {
    format!("{}×", digits(value))
}

/// Formats an interval of ratios: `[0.0361, 0.0378]`.
pub fn interval(low: f64, high: f64) -> String {
    format!("[{}, {}]", digits(low), digits(high))
}

/// Formats a p-value: `<0.001`, `0.032`, `0.41`.
pub fn p(value: f64) -> String {
    if !value.is_finite() {
        "–".into()
    } else if value < 0.001 {
        "<0.001".into()
    } else if value < 0.1 {
        format!("{value:.3}")
    } else {
        format!("{value:.2}")
    }
}

/// Formats a share of one as a percentage: `4.00 %`, `0.00120 %`.
pub fn percent(share: f64) -> String {
    format!("{} %", digits(share * 100.0))
}

/// Formats a length of time: `350 ms`, `61.2 s`, `3 min 5 s`.
pub fn duration(time: Duration) -> String {
    match time.as_secs() {
        ..120 => value(time.as_nanos() as f64, "ns"),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

/// [`duration`] of milliseconds.
pub(crate) fn duration_ms(ms: u64) -> String {
    duration(Duration::from_millis(ms))
}

/// Formats a number of bytes: `512 B`, `7.75 GiB`.
pub fn bytes(count: u64) -> String {
    const STEPS: [(u64, &str); 4] =
        [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match STEPS.iter().find(|(size, _)| count >= *size) {
        Some((size, name)) => format!("{} {name}", digits(count as f64 / *size as f64)),
        None => format!("{count} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_carry_the_unit_that_fits() {
        for (number, unit, text) in [
            (62_812.0, "ns", "62.8 µs"),
            (999_960.0, "ns", "1.00 ms"),
            (312.4, "ns/packet", "312 ns/packet"),
            (1_316_000.0, "pps", "1.32 Mpps"),
            (12.34e9, "bps", "12.3 Gbit/s"),
            (1_234_567.0, "count", "1,234,567"),
            (0.0, "ns", "0 ns"),
            (17.0, "bytes", "17.0 B"),
            (61.4, "us", "61.4 µs"),
            (1_520.0, "us", "1.52 ms"),
            (0.25, "s", "250 ms"),
            (0.0, "ms", "0 ns"),
            (812.0, "req/s", "812 req/s"),
        ] {
            assert_eq!(value(number, unit), text);
        }
    }

    #[test]
    fn small_ratios_keep_their_digits() {
        for (value, text) in [
            (0.0371, "0.0371×"),
            (0.001_434, "0.00143×"),
            (0.000_999_6, "0.00100×"),
            (0.000_37, "0.000370×"),
            (0.000_037, "3.70e-5×"),
            (0.0996, "0.0996×"),
            (0.099_96, "0.100×"),
            (0.999_6, "1.00×"),
            (1.0, "1.00×"),
            (9.996, "10.0×"),
            (123.4, "123×"),
            (-0.0421, "-0.0421×"),
        ] {
            assert_eq!(ratio(value), text);
        }
    }

    #[test]
    fn a_p_value_is_never_printed_as_zero() {
        assert_eq!(p(0.0), "<0.001");
        assert_eq!(p(0.0312), "0.031");
        assert_eq!(p(0.5), "0.50");
    }

    #[test]
    fn nouns_agree_with_their_count() {
        for (count, noun, text) in [
            (0, "setting", "0 settings"),
            (1, "setting", "1 setting"),
            (2, "switch", "2 switches"),
            (3, "address", "3 addresses"),
            (2, "reply", "2 replies"),
            (2, "delay", "2 delays"),
            (1, "reply", "1 reply"),
        ] {
            assert_eq!(plural(count, noun), text);
        }
        assert_eq!(plural(5_usize, "frame"), "5 frames");
        assert_eq!(counted(&[(3, "dropped"), (0, "late"), (1, "cut")]), ", 3 dropped, 1 cut");
    }

    #[test]
    fn bytes_and_durations_have_three_digits() {
        for (count, text) in
            [(17, "17 B"), (1536, "1.50 KiB"), (300 << 20, "300 MiB"), (8_321_499_136, "7.75 GiB")]
        {
            assert_eq!(bytes(count), text);
        }
        assert_eq!(duration(Duration::from_micros(62_812)), "62.8 ms");
        assert_eq!(duration(Duration::from_secs(185)), "3 min 5 s");
    }
}
