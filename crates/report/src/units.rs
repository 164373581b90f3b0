//! Numbers as a person reads them, always with their unit.

/// Three significant digits, all of them of a whole number; without an exponent from 0.0001 on.
pub(crate) fn digits(value: f64) -> String {
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

/// Decimal steps of the units that have them, ascending.
fn steps(base: &str) -> &'static [(f64, &'static str)] {
    match base {
        "ns" => &[(1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")],
        "pps" => &[(1.0, "pps"), (1e3, "kpps"), (1e6, "Mpps"), (1e9, "Gpps")],
        "bps" => &[(1.0, "bit/s"), (1e3, "kbit/s"), (1e6, "Mbit/s"), (1e9, "Gbit/s")],
        _ => &[],
    }
}

/// The divisor and name of the unit in which values of about this size are read:
/// `(1000.0, "µs")` for 62,800 ns.
pub(crate) fn step(value: f64, unit: &str) -> (f64, String) {
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

/// A value of a metric with its unit, scaled: `62.8 µs`, `1.31 Mpps`, `12.3 Gbit/s`.
pub(crate) fn value(value: f64, unit: &str) -> String {
    match unit {
        "count" if value.fract() == 0.0 && value.abs() < 1e15 => grouped(value as i64),
        "count" | "" => digits(value),
        _ => {
            let (scale, name) = step(value, unit);
            format!("{} {name}", digits(value / scale))
        }
    }
}

/// A whole number with commas: `1,234,567`.
pub(crate) fn grouped(number: i64) -> String {
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

/// A ratio with its sign: `0.0371×`.
pub(crate) fn ratio(value: f64) -> String {
    format!("{}×", digits(value))
}

/// A p-value: `<0.001`, `0.032`, `0.41`.
pub(crate) fn p(value: f64) -> String {
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

/// A share of one as a percentage: `4.00 %`, `0.00120 %`.
pub(crate) fn percent(share: f64) -> String {
    format!("{} %", digits(share * 100.0))
}

/// A length of time: `350 ms`, `61.2 s`, `3 min 5 s`.
pub(crate) fn duration_ms(ms: u64) -> String {
    if ms < 120_000 {
        value(ms as f64 * 1e6, "ns")
    } else {
        format!("{} min {} s", ms / 60_000, ms / 1000 % 60)
    }
}

/// Bytes of memory: `7.8 GiB`.
pub(crate) fn memory(bytes: u64) -> String {
    let gib = bytes as f64 / (1u64 << 30) as f64;
    if gib >= 1.0 {
        format!("{gib:.1} GiB")
    } else {
        format!("{:.0} MiB", bytes as f64 / (1u64 << 20) as f64)
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
            (17.0, "bytes", "17.0 bytes"),
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
}
