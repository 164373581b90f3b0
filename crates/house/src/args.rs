//! Values of arguments.

use std::time::Duration;

use bytesize::ByteSize;

/// A duration such as `60s`, `1m30s`, `500ms`, `100us` or `1.5m`; a bare number is seconds.
/// Errors: not a duration, 0, or longer than 7 days.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    match read_duration(text) {
        Some(time) if time > Duration::ZERO && time <= 7 * DAY => Ok(time),
        Some(_) => Err("give more than 0 and at most 7 days".into()),
        None => Err(format!("{text:?} is not a duration; use ms, s, m or h, as in 60s or 1m30s")),
    }
}

/// An age such as `90d`, `12h` or `30m`. Errors: not a duration, 0, or longer than 100 years.
pub fn parse_age(text: &str) -> Result<Duration, String> {
    match read_duration(text) {
        Some(age) if age > Duration::ZERO && age <= 36_500 * DAY => Ok(age),
        Some(_) => Err("give more than 0 and at most 36500 days".into()),
        None => Err(format!("{text:?} is not an age; use d, h or m, as in 90d or 12h")),
    }
}

const DAY: Duration = Duration::from_secs(86_400);

/// A number with one unit may have a fraction, which humantime does not read.
fn read_duration(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(char::is_alphabetic).unwrap_or(text.len()));
    let scale = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return humantime::parse_duration(text).ok(),
    };
    match number.trim().parse::<f64>() {
        Ok(number) => Duration::try_from_secs_f64(number * scale).ok(),
        Err(_) => humantime::parse_duration(text).ok(),
    }
}

/// A number of bytes such as `1460`, `4KiB` or `1.5MB`.
pub fn parse_bytes(text: &str) -> Result<usize, String> {
    let size: ByteSize = text
        .parse()
        .map_err(|_| format!("{text:?} is not a size; use bytes, KiB or MB, as in 1460 or 4KiB"))?;
    size.as_u64().try_into().map_err(|_| format!("{text:?} is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_nonsense_is_refused() {
        let ms = |t: &str| parse_duration(t).map(|d| d.as_millis());
        assert_eq!(ms("60s"), Ok(60_000));
        assert_eq!(ms("250ms"), Ok(250));
        assert_eq!(ms("1.5m"), Ok(90_000));
        assert_eq!(ms("3"), Ok(3000));
        assert_eq!(ms("1m30s"), Ok(90_000));
        assert_eq!(ms("1.5min"), Ok(90_000));
        assert_eq!(ms("0.5h"), Ok(1_800_000));
        assert_eq!(parse_duration("100us"), Ok(Duration::from_micros(100)));
        for bad in ["", "s", "-1s", "0s", "5 parsecs", "nan", "1e99h", "8d", "inf"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ages_are_read_in_days_and_less() {
        let seconds = |text: &str| parse_age(text).map(|age| age.as_secs());
        assert_eq!(seconds("90d"), Ok(7_776_000));
        assert_eq!(seconds("12h"), Ok(43_200));
        assert_eq!(seconds("1.5d"), Ok(129_600));
        for bad in ["d", "-1d", "nand", "1e9d", "5 moons"] {
            assert!(parse_age(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_read_in_bytes_and_their_multiples() {
        assert_eq!(parse_bytes("1460"), Ok(1460));
        assert_eq!(parse_bytes("4KiB"), Ok(4096));
        assert_eq!(parse_bytes("1.5MB"), Ok(1_500_000));
        for bad in ["", "-1", "many", "4 parsecs"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }
}
