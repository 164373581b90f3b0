//! How people speak of a figure: words for more and less, amounts, values and times.

use model::Better;

use crate::units;

/// Ratio, or its inverse, from which on a change is spoken as a multiple.
const MULTIPLE: f64 = 2.0;

/// Words for the change of a figure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Words {
    pub(crate) verb: &'static str,
    pub(crate) worse: &'static str,
    pub(crate) better: &'static str,
    /// True if the figure's name stands in the sentence: `takes 12 % less CPU per packet`.
    pub(crate) names_figure: bool,
}

impl Words {
    /// - `is_count`: judged by differences.
    pub(crate) fn new(name: &str, unit: &str, better: Better, is_count: bool) -> Self {
        let is_time = matches!(unit, "ns" | "us" | "ms" | "s");
        let is_rate = matches!(unit, "bps" | "pps" | "rps" | "qps" | "tps");
        let is_use = name.contains("cpu") || unit == "bytes";
        let (verb, worse, better) = match better {
            Better::Lower if is_count => ("has", "more", "fewer"),
            Better::Higher if is_count => ("has", "fewer", "more"),
            Better::Lower if is_use => ("takes", "more", "less"),
            Better::Lower if is_time => ("is", "slower", "faster"),
            Better::Lower => ("is", "higher", "lower"),
            Better::Higher if is_rate => ("is", "slower", "faster"),
            Better::Higher => ("is", "lower", "higher"),
        };
        Words { verb, worse, better, names_figure: verb == "takes" }
    }

    /// Words for the worth of an arm: its figure over that of its own run's baseline.
    pub(crate) fn worth() -> Self {
        Words { verb: "is worth", worse: "less", better: "more", names_figure: false }
    }

    /// A change without its direction; less of something is never said in multiples.
    pub(super) fn amount(&self, ratio: f64) -> String {
        if self.names_figure && ratio < 1.0 { percent(1.0 - ratio) } else { amount(ratio) }
    }

    /// The word of a ratio's side.
    fn side(&self, ratio: f64, better: Better) -> &'static str {
        if is_worse(ratio, better) { self.worse } else { self.better }
    }
}

/// True if a ratio other than 1 is on the bad side.
pub(crate) fn is_worse(ratio: f64, better: Better) -> bool {
    (ratio > 1.0) == (better == Better::Lower)
}

/// Digits as people say them: `20`, `1.4`, `5.3`, without zeros at the end.
pub(crate) fn figure(value: f64) -> String {
    let digits = units::digits(value);
    if digits.contains('.') && !digits.contains('e') {
        digits.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        digits
    }
}

/// `20 %`, `1.4 %`.
pub(crate) fn percent(share: f64) -> String {
    format!("{} %", figure(share * 100.0))
}

/// A change without its direction: `20 %`, or `5.3 times` of a large one; 0.8 of a rate is 20 % less.
pub(crate) fn amount(ratio: f64) -> String {
    if (1.0 / MULTIPLE..MULTIPLE).contains(&ratio) {
        percent((1.0 - ratio).abs())
    } else {
        format!("{} times", figure(ratio.max(1.0 / ratio)))
    }
}

/// A ratio, or an end of its interval, with its word: `9 % slower`, `equal`.
pub(crate) fn end(ratio: f64, better: Better, words: &Words) -> String {
    if ratio == 1.0 {
        return "equal".to_owned();
    }
    format!("{} {}", words.amount(ratio), words.side(ratio, better))
}

/// An interval of ratios: `17 to 23 % slower`, `between 12 % faster and 9 % slower`, `at least 2 times slower`.
///
/// - `high`: `None` if it is infinite.
pub(crate) fn range(low: f64, high: Option<f64>, better: Better, words: &Words) -> String {
    let Some(high) = high else {
        return if low < 1.0 {
            format!("between {} and any amount {}", end(low, better, words), words.worse)
        } else {
            format!("at least {}", end(low, better, words))
        };
    };
    if (low < 1.0) != (high < 1.0) || low == 1.0 || high == 1.0 {
        // The good end first.
        let (good, bad) = if better == Better::Lower { (low, high) } else { (high, low) };
        return format!("between {} and {}", end(good, better, words), end(bad, better, words));
    }
    let (near, far) = if low < 1.0 { (high, low) } else { (low, high) };
    let (near, far) = (words.amount(near), words.amount(far));
    let side = words.side(low, better);
    if near == far {
        return format!("{near} {side}");
    }
    for unit in [" %", " times"] {
        if let (Some(near), Some(_)) = (near.strip_suffix(unit), far.strip_suffix(unit)) {
            return format!("{near} to {far} {side}");
        }
    }
    format!("{near} to {far} {side}")
}

/// A value with its unit as people say it: `1,240 requests/s`, `1.31 million packets/s`, `1.9 µs`.
pub(crate) fn value(value: f64, unit: &str) -> String {
    let (number, unit) = parts(value, unit);
    if unit.is_empty() { number } else { format!("{number} {unit}") }
}

/// `1,240 requests/s in place of 1,550`: a unit that both have is said once.
pub(crate) fn both_values(new: f64, old: f64, unit: &str) -> String {
    let ((new, new_unit), (old, old_unit)) = (parts(new, unit), parts(old, unit));
    if new_unit.is_empty() {
        return format!("{new} in place of {old}");
    }
    if new_unit == old_unit {
        return format!("{new} {new_unit} in place of {old}");
    }
    format!("{new} {new_unit} in place of {old} {old_unit}")
}

/// Number and unit.
fn parts(value: f64, unit: &str) -> (String, String) {
    let things = match unit {
        "rps" => "requests/s",
        "qps" => "queries/s",
        "tps" => "transactions/s",
        "pps" => "packets/s",
        "count" | "" if value.fract() == 0.0 => {
            return (units::value(value, "count"), String::new());
        }
        "count" | "" => return (figure(value), String::new()),
        _ => {
            let (scale, name) = units::step(value, unit);
            return (figure(value / scale), name);
        }
    };
    let steps = [(1e9, "billion"), (1e6, "million")];
    let number = match steps.iter().find(|(scale, _)| value.abs() >= scale * 0.9995) {
        Some((scale, word)) => format!("{} {word}", figure(value / scale)),
        None => rounded(value),
    };
    (number, things.to_owned())
}

/// Three digits that count, with commas: `593,000`; all digits below 10,000.
fn rounded(value: f64) -> String {
    if value.abs() < 1000.0 {
        return figure(value);
    }
    let unit = match value.abs() {
        ..10_000.0 => 1.0,
        ..100_000.0 => 100.0,
        _ => 1000.0,
    };
    units::grouped(((value / unit).round() * unit) as i64)
}

/// A length of time in round figures: `4 minutes`, `1 hour`.
pub(crate) fn about(ms: u64) -> String {
    match ms {
        ..100_000 => units::plural(ms.div_ceil(1000), "second"),
        100_000..6_000_000 => units::plural(ms.div_ceil(60_000), "minute"),
        _ => units::plural(ms.div_ceil(3_600_000), "hour"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time() -> Words {
        Words::new("p99_ms", "ms", Better::Lower, false)
    }

    fn time_range(low: f64, high: f64) -> String {
        range(low, Some(high), Better::Lower, &time())
    }

    #[test]
    fn values_have_units_of_people() {
        for (number, unit, text) in [
            (1240.0, "rps", "1,240 requests/s"),
            (593_412.0, "pps", "593,000 packets/s"),
            (12_345.0, "qps", "12,300 queries/s"),
            (1_310_000.0, "pps", "1.31 million packets/s"),
            (12.3e9, "bps", "12.3 Gbit/s"),
            (1900.0, "ns", "1.9 µs"),
            (45.0, "count", "45"),
            (45.0, "", "45"),
            (1.5, "", "1.5"),
            (0.0, "rps", "0 requests/s"),
        ] {
            assert_eq!(value(number, unit), text);
        }
        assert_eq!(both_values(1900.0, 10_400.0, "ns"), "1.9 µs in place of 10.4");
        assert_eq!(both_values(1.79e6, 600e3, "pps"), "1.79 million packets/s in place of 600,000");
        assert_eq!(both_values(850.0, 10_400.0, "ns"), "850 ns in place of 10.4 µs");
    }

    #[test]
    fn ranges_name_their_unit_and_side_once() {
        assert_eq!(time_range(1.17, 1.23), "17 to 23 % slower");
        assert_eq!(time_range(0.36, 0.37), "2.7 to 2.78 times faster");
        assert_eq!(time_range(1.8, 2.4), "80 % to 2.4 times slower");
        assert_eq!(time_range(0.88, 1.09), "between 12 % faster and 9 % slower");
        assert_eq!(time_range(1.2, 1.2), "20 % slower");
        assert_eq!(time_range(1.0, 1.02), "between equal and 2 % slower");
        assert_eq!(range(2.0, None, Better::Lower, &time()), "at least 2 times slower");
        let cpu = Words::new("cpu_ns", "ns", Better::Lower, false);
        assert_eq!(range(0.3, Some(0.31), Better::Lower, &cpu), "69 to 70 % less");
        let rate = Words::new("rps", "rps", Better::Higher, false);
        assert_eq!(range(0.77, Some(0.83), Better::Higher, &rate), "17 to 23 % slower");
        let open = range(0.91, Some(1.12), Better::Higher, &rate);
        assert_eq!(open, "between 12 % faster and 9 % slower");
    }

    #[test]
    fn times_are_round() {
        assert_eq!(about(40_100), "41 seconds");
        assert_eq!(about(240_000), "4 minutes");
        assert_eq!(about(36_000_000), "10 hours");
    }
}
