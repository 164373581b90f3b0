//! Rows of a measurement: one JSON document, and the bytes of each histogram.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Read;

use flate2::read::ZlibDecoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use model::{Measurement, SAMPLE_COUNT_MAX};
use serde::{Deserialize, Serialize};

type Fault = Box<dyn Error + Send + Sync>;

/// Returns everything but the histograms as JSON, which SQLite's JSON functions can query.
pub(crate) fn to_json(measurement: &Measurement) -> Result<String, Fault> {
    Ok(serde_json::to_string(measurement)?)
}

/// Reads the output of [`to_json`], also that of an older version; the caller adds the histograms.
pub(crate) fn from_json(json: &str) -> Result<Measurement, Fault> {
    Ok(serde_json::from_str(json)?)
}

/// A measurement with its histograms as one line of JSON.
#[derive(Serialize, Deserialize)]
struct Line {
    measurement: String,
    /// HdrHistogram's "V2 compressed" bytes, by segment.
    segments: BTreeMap<String, Vec<u8>>,
}

/// Returns a measurement as one line of JSON without a line break, for another process.
///
/// Errors: a histogram or a figure cannot be written as JSON.
pub fn to_line(measurement: &Measurement) -> Result<String, Fault> {
    let segments = measurement.segments.iter();
    let packed = segments.map(|(name, of)| Ok((name.clone(), histogram_bytes(of)?)));
    let segments = packed.collect::<Result<_, Fault>>()?;
    Ok(serde_json::to_string(&Line { measurement: to_json(measurement)?, segments })?)
}

/// Reads the output of [`to_line`]. Errors: it is not such a line.
pub fn from_line(line: &str) -> Result<Measurement, Fault> {
    let line: Line = serde_json::from_str(line)?;
    let mut measurement = from_json(&line.measurement)?;
    for (name, bytes) in line.segments {
        measurement.segments.insert(name, histogram(&bytes)?);
    }
    Ok(measurement)
}

/// Returns HdrHistogram's "V2 compressed" bytes, which every HdrHistogram library reads.
pub(crate) fn histogram_bytes(histogram: &Histogram<u64>) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(histogram, &mut bytes)?;
    Ok(bytes)
}

/// Reads the output of [`histogram_bytes`], which another user or a far end may have made up.
///
/// Errors: it is none, takes more memory than any histogram of a measurement, or counts more than
/// [`SAMPLE_COUNT_MAX`].
pub(crate) fn histogram(bytes: &[u8]) -> Result<Histogram<u64>, Fault> {
    /// Counts of 64 bits at [`DIGITS_MAX`], each in nine bytes, do not take more.
    const PAYLOAD_BYTES_MAX: u32 = 1 << 20;
    /// Cookie, length of the payload, offset, digits, lowest and highest value, ratio.
    const HEAD_BYTES: usize = 40;
    /// Digits of [`model::latency_histogram`]; each more takes ten times the memory.
    const DIGITS_MAX: u32 = 3;
    /// Cookie and length of the deflated bytes.
    const OUTER_BYTES: usize = 8;
    /// Cookies, of a deflated histogram and of a plain one.
    const DEFLATED: [u8; 4] = 0x1c84_9314_u32.to_be_bytes();
    const PLAIN: u32 = 0x1c84_9313;
    /// A count of -2^63, which the library cannot negate.
    const LEAST_COUNT: [u8; 9] = [0xff; 9];
    let inner = bytes.strip_prefix(&DEFLATED).and_then(|rest| rest.get(OUTER_BYTES - 4..));
    let inner = inner.ok_or("a histogram without its head")?;
    let mut plain = Vec::new();
    let most = u64::from(PAYLOAD_BYTES_MAX) + HEAD_BYTES as u64;
    ZlibDecoder::new(inner).take(most).read_to_end(&mut plain)?;
    let head = plain.first_chunk::<16>().ok_or("a histogram without its head")?;
    // Cookie, length of the payload, normalizing offset, digits.
    let [cookie, payload_bytes, _, digits] = [0, 4, 8, 12]
        .map(|at| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
    if cookie != PLAIN {
        return Err(format!("a histogram with the cookie {cookie:#x}").into());
    }
    if payload_bytes > PAYLOAD_BYTES_MAX || digits > DIGITS_MAX {
        let text = format!(
            "a histogram of {payload_bytes} bytes and {digits} digits, of which {PAYLOAD_BYTES_MAX} and \
             {DIGITS_MAX} are the maximum"
        );
        return Err(text.into());
    }
    let counts = plain.get(HEAD_BYTES..).unwrap_or_default();
    if counts.windows(LEAST_COUNT.len()).any(|window| window == LEAST_COUNT) {
        return Err("a histogram with a count of -2^63".into());
    }
    let histogram: Histogram<u64> = Deserializer::new().deserialize(&mut &plain[..])?;
    if histogram.len() > SAMPLE_COUNT_MAX {
        return Err(format!("a histogram of more than {SAMPLE_COUNT_MAX} samples").into());
    }
    Ok(histogram)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use hdrhistogram::serialization::V2Serializer;
    use model::latency_histogram;

    use super::*;

    #[test]
    fn a_line_holds_the_whole_measurement_and_anything_else_is_an_error() {
        let mut rtt = latency_histogram();
        rtt.record_n(2_700, 40).unwrap();
        let measurement = Measurement {
            wall_ns: 7,
            segments: [("rtt".to_owned(), rtt)].into(),
            figures: [("x_ns".to_owned(), 1.5)].into(),
            ..Measurement::default()
        };
        let line = to_line(&measurement).unwrap();
        assert!(!line.contains('\n'));
        let read = from_line(&line).unwrap();
        assert_eq!((read.wall_ns, &read.figures), (7, &measurement.figures));
        assert_eq!(read.segments, measurement.segments);
        for bad in ["", "{}", "[]", &line[..line.len() - 1], &line.replace("[28", "[29")] {
            assert!(from_line(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_histogram_on_disk_is_small() {
        // 10,000 round trips between 60 and 120 µs with a tail to 2 ms.
        let mut h = latency_histogram();
        for i in 0..10_000_u64 {
            h.record(60_000 + (i * 7_919) % 60_000 + if i % 100 == 0 { i * 190 } else { 0 })
                .unwrap();
        }
        let deflated = histogram_bytes(&h).unwrap();
        let mut plain = Vec::new();
        V2Serializer::new().serialize(&h, &mut plain).unwrap();
        assert!(deflated.len() * 2 < plain.len(), "{} against {}", deflated.len(), plain.len());
        assert_eq!(histogram(&deflated).unwrap(), h);
    }

    #[test]
    fn damaged_histogram_bytes_are_never_another_histogram_and_no_panic() {
        let mut whole = latency_histogram();
        (1..5_000).for_each(|i| whole.record(i * 37).unwrap());
        let bytes = histogram_bytes(&whole).unwrap();
        for cut in 0..bytes.len() {
            // Only a missing deflate trailer goes undetected.
            if let Ok(read) = histogram(&bytes[..cut]) {
                assert_eq!(read, whole, "cut at {cut}");
            }
        }
        assert!(histogram(&bytes[..bytes.len() / 2]).is_err());
        assert!(histogram(b"").is_err());
    }

    #[test]
    fn histogram_that_would_take_too_much_memory_is_refused() {
        let wide = Histogram::<u64>::new_with_bounds(1, u64::MAX, 5).unwrap();
        let bytes = histogram_bytes(&wide).unwrap();
        assert!(bytes.len() < 100, "{} bytes that take 50 MB", bytes.len());
        let error = histogram(&bytes).unwrap_err().to_string();
        assert!(error.contains("5 digits"), "{error}");
        // A payload of 4 GiB, in a head that is all there is.
        let mut plain = Vec::new();
        V2Serializer::new().serialize(&latency_histogram(), &mut plain).unwrap();
        plain[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
        let mut deflated =
            flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        deflated.write_all(&plain).unwrap();
        let deflated = deflated.finish().unwrap();
        let mut bytes = histogram_bytes(&latency_histogram()).unwrap()[..4].to_vec();
        bytes.extend((deflated.len() as u32).to_be_bytes());
        bytes.extend(deflated);
        let error = histogram(&bytes).unwrap_err().to_string();
        assert!(error.contains("4294967295 bytes"), "{error}");
    }

    #[test]
    fn histogram_whose_total_overflows_is_refused() {
        let mut most = latency_histogram();
        most.record_n(1, SAMPLE_COUNT_MAX).unwrap();
        assert_eq!(histogram(&histogram_bytes(&most).unwrap()).unwrap(), most);
        for counts in [vec![SAMPLE_COUNT_MAX, 1], vec![i64::MAX as u64; 3]] {
            let mut large = latency_histogram();
            (1..).zip(counts).for_each(|(value, count)| large.record_n(value, count).unwrap());
            let error = histogram(&histogram_bytes(&large).unwrap()).unwrap_err().to_string();
            assert_eq!(error, "a histogram of more than 9007199254740992 samples");
        }
    }

    #[test]
    fn a_row_of_an_older_wirepath_is_read_with_defaults() {
        let m = from_json(r#"{"wall_ns": 5}"#).unwrap();
        assert_eq!((m.wall_ns, m.cores_ns, m.counters.len()), (5, 0, 0));
    }
}
