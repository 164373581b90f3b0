//! Figures from HdrHistogram interval logs.
//!
//! Source of the format: HdrHistogram 2.1, `HistogramLogWriter` and `AbstractHistogram`:
//! `[Tag=TAG,]START,LENGTH,MAX,BASE64`.

use std::io::Read;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use model::SAMPLE_COUNT_MAX;

use super::TIME_MAX;
use super::error::{Reason, quoted};

/// The first three bytes of the cookie of every version of a histogram, `1c 84 93`, in base64.
const COOKIE: &[u8] = b"HIST";
const COOKIE_V2: u32 = 0x1c84_9313;
const COOKIE_V2_COMPRESSED: u32 = 0x1c84_9314;
/// Cookie, length of the counts, offset, digits, lowest and highest value, ratio.
const HEADER_LEN: usize = 40;
/// Longest histogram that is decoded, bytes: one of 5 digits over the whole range has fewer counts.
const HISTOGRAM_BYTES_MAX: u64 = 32 << 20;
/// Encoded count of `i64::MIN`, which no histogram has; the crate would overflow as it negates it.
const LEAST_COUNT: [u8; 9] = [0xff; 9];
/// Tags that an error lists.
const LISTED: usize = 8;

/// Returns a quantile over all intervals with a tag.
///
/// - `tag`: `None` for the intervals without one.
/// - `quantile`: 0 to 1.
pub(super) fn quantile(output: &[u8], tag: Option<&str>, quantile: f64) -> Result<f64, Reason> {
    let mut all: Option<Histogram<u64>> = None;
    let mut found: Vec<String> = Vec::new();
    let begun = Instant::now();
    for (index, line) in output.split(|byte| *byte == b'\n').enumerate() {
        let Some((tag_here, encoded)) = interval(line.trim_ascii()) else { continue };
        if tag_here != tag.map(str::as_bytes) {
            let name = tag_here.map_or("(no tag)".into(), quoted);
            if found.len() < LISTED && !found.contains(&name) {
                found.push(name);
            }
            continue;
        }
        // A short line can hold a histogram of millions of counts.
        if begun.elapsed() > TIME_MAX {
            return Err(Reason::TooSlow);
        }
        let damaged = |why: String| Reason::DamagedHistogram { line: index + 1, why };
        let histogram = decode(encoded).map_err(damaged)?;
        match &mut all {
            None => all = Some(histogram),
            Some(all) => all.add(&histogram).map_err(|why| damaged(why.to_string()))?,
        }
        if let Some(all) = &mut all {
            bounded(all).map_err(damaged)?;
            // Intervals may differ in their highest value.
            all.auto(true);
        }
    }
    match all {
        Some(all) if all.is_empty() => Err(Reason::NoSample),
        Some(all) => Ok(all.value_at_quantile(quantile) as f64),
        None => {
            let wanted = tag.map_or("no tag".into(), |tag| format!("the tag {tag:?}"));
            let found = if found.is_empty() { "none".into() } else { found.join(", ") };
            Err(Reason::NoInterval { wanted, found })
        }
    }
}

/// Returns tag and encoded histogram of a line of a log; `None` for comments, the legend, and all other
/// lines.
fn interval(line: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let mut fields = line.rsplitn(4, |byte| *byte == b',');
    let encoded = fields.next().filter(|encoded| encoded.starts_with(COOKIE))?;
    let [_max, _length, start] = [fields.next()?, fields.next()?, fields.next()?];
    let tag = start.strip_prefix(b"Tag=");
    let tag = tag.and_then(|tag| tag.split(|byte| *byte == b',').next());
    Some((tag, encoded))
}

/// Refuses a total that the library cannot count through.
fn bounded(histogram: &Histogram<u64>) -> Result<(), String> {
    match histogram.len() {
        0..=SAMPLE_COUNT_MAX => Ok(()),
        _ => Err(format!("it counts more than {SAMPLE_COUNT_MAX} samples")),
    }
}

fn decode(encoded: &[u8]) -> Result<Histogram<u64>, String> {
    let bytes = STANDARD.decode(encoded).map_err(|why| why.to_string())?;
    let cookie = bytes.first_chunk().map(|cookie| u32::from_be_bytes(*cookie));
    let plain = match cookie {
        Some(COOKIE_V2) => bytes,
        Some(COOKIE_V2_COMPRESSED) => {
            let mut plain = Vec::new();
            // A length follows the cookie.
            let packed = bytes.get(8..).unwrap_or_default();
            ZlibDecoder::new(packed)
                .take(HISTOGRAM_BYTES_MAX)
                .read_to_end(&mut plain)
                .map_err(|why| why.to_string())?;
            plain
        }
        Some(cookie) => return Err(format!("cookie {cookie:#x} is not of version 2")),
        None => return Err("it is cut off".into()),
    };
    let counts = plain.get(HEADER_LEN..).ok_or("it is cut off")?;
    let claimed = plain[4..].first_chunk().map(|len| u32::from_be_bytes(*len) as usize);
    // The crate allocates as many bytes as the header claims.
    if claimed.is_none_or(|claimed| claimed > counts.len()) {
        return Err("it is cut off".into());
    }
    if counts.windows(LEAST_COUNT.len()).any(|window| window == LEAST_COUNT) {
        return Err("it has a count below -2^62".into());
    }
    Deserializer::new().deserialize(&mut &plain[..]).map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
    use hdrhistogram::serialization::{Serializer, V2DeflateSerializer, V2Serializer};

    use super::*;

    fn histogram(values: impl IntoIterator<Item = u64>) -> Histogram<u64> {
        let mut histogram = Histogram::new(3).unwrap();
        values.into_iter().for_each(|value| histogram.record(value).unwrap());
        histogram
    }

    /// Three intervals: two without a tag, one tagged `GET`.
    fn log() -> String {
        let mut log = Vec::new();
        let mut serializer = V2DeflateSerializer::new();
        let mut writer = IntervalLogWriterBuilder::new()
            .add_comment("a comment, with a comma")
            .with_start_time(UNIX_EPOCH)
            .begin_log_with(&mut log, &mut serializer)
            .unwrap();
        let second = Duration::from_secs(1);
        for (values, tag) in [(1..=50, None), (1_000_051..=1_000_100, None), (7..=7, Some("GET"))] {
            let tag = tag.map(|tag| Tag::new(tag).unwrap());
            writer.write_histogram(&histogram(values), second, second, tag).unwrap();
        }
        format!("ready\n{}done\n", String::from_utf8(log).unwrap())
    }

    fn quantile_in(log: &str, tag: Option<&str>, share: f64) -> f64 {
        quantile(log.as_bytes(), tag, share).unwrap()
    }

    #[test]
    fn intervals_of_a_tag_are_added() {
        let log = log();
        assert_eq!(quantile_in(&log, None, 0.5), 50.0);
        assert_eq!(quantile_in(&log, None, 0.25), 25.0);
        assert!((quantile_in(&log, None, 0.99) / 1_000_099.0 - 1.0).abs() < 0.001);
        assert_eq!(quantile_in(&log, Some("GET"), 0.99), 7.0);
    }

    #[test]
    fn a_log_of_another_implementation_is_read() {
        // An interval of jHiccup, as in the tests of HdrHistogramJS (`HistogramLogReader.spec.ts`).
        let line = "0.127,1.007,2.769,HISTFAAAAEV42pNpmSzMwMCgyAABTBDKT4GBgdnNYMcCBvsPEBEJIS\
                    EuATEZMQ4uASkhIR4nrxg9v2lMaxhvMekILGZkKmcCAEf2CsI=";
        let max = quantile(line.as_bytes(), None, 1.0).unwrap();
        assert!((max / 2_769_920.0 - 1.0).abs() < 0.001, "{max}");
    }

    #[test]
    fn counts_that_the_library_cannot_add_up_are_refused() {
        let line = |counts: &[u64]| {
            let mut histogram = Histogram::<u64>::new(3).unwrap();
            let values = (1..).zip(counts);
            values.for_each(|(value, &count)| histogram.record_n(value, count).unwrap());
            let mut plain = Vec::new();
            V2Serializer::new().serialize(&histogram, &mut plain).unwrap();
            format!("0,1,2,{}\n", STANDARD.encode(plain))
        };
        let most = i64::MAX as u64;
        let half = line(&[SAMPLE_COUNT_MAX / 2 + 1]);
        for log in [line(&[most, most, 2]), line(&[most]), half.repeat(2)] {
            let error = quantile(log.as_bytes(), None, 0.5).unwrap_err().to_string();
            assert!(error.contains("it counts more than 9007199254740992 samples"), "{error}");
        }
        assert_eq!(quantile(half.as_bytes(), None, 0.5), Ok(1.0));
    }

    fn error(log: &str, tag: Option<&str>) -> Reason {
        quantile(log.as_bytes(), tag, 0.5).unwrap_err()
    }

    fn log_line(bytes: &[u8]) -> String {
        format!("0,1,2,{}", STANDARD.encode(bytes))
    }

    #[test]
    fn a_damaged_or_empty_log_is_an_error() {
        let log = log();
        let missing = error(&log, Some("SET")).to_string();
        assert!(missing.contains("\"SET\"") && missing.contains("(no tag), GET"), "{missing}");
        assert!(matches!(error("no log\n", None), Reason::NoInterval { .. }));
        let cut = &log[..log.find("Tag=").unwrap() - 20];
        assert!(matches!(error(cut, None), Reason::DamagedHistogram { line: 5, .. }), "{cut}");
        let mut plain = Vec::new();
        V2Serializer::new().serialize(&histogram([]), &mut plain).unwrap();
        assert_eq!(error(&log_line(&plain), None), Reason::NoSample);
        // A length of 4 GiB, and a count that overflows as it is negated.
        let claims = [&plain[..4], &[0xff; 4], &plain[8..]].concat();
        let overflows = [&plain[..4], &[0, 0, 0, 9], &plain[8..40], &[0xff; 9]].concat();
        for damaged in [claims, overflows, plain[..30].to_vec(), b"\x1c\x84\x93\x01".to_vec()] {
            assert!(matches!(error(&log_line(&damaged), None), Reason::DamagedHistogram { .. }));
        }
    }
}
