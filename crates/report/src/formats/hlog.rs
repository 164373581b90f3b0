//! Histogram log of HdrHistogram (`.hlog`), with the whole distribution of every trial.

use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use model::TrialRecord;

/// Nanoseconds to milliseconds, the unit in which such logs give the largest value of a line.
const MAX_VALUE_DIVISOR: f64 = 1e6;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HlogError {
    #[error(
        "no histograms are stored of this experiment: it measured no latencies, or it was imported; \
         a document holds quantiles only"
    )]
    NoHistogram,
    #[error("cannot encode the histogram of {tag}")]
    Encoding {
        tag: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Returns a log with a line for each trial and segment, tagged `ARM/SEGMENT`; values are nanoseconds.
///
/// - `started`: start of the experiment. The warm-up and failed trials are left out.
///
/// Source: `HistogramLogWriter` of HdrHistogram, format 1.3 with compressed V2 histograms.
pub fn to_hlog(trials: &[TrialRecord], started: SystemTime) -> Result<String, HlogError> {
    let mut out = Vec::new();
    let mut encoder = V2DeflateSerializer::new();
    let mut builder = IntervalLogWriterBuilder::new();
    builder.with_start_time(started).with_base_time(started);
    builder.with_max_value_divisor(MAX_VALUE_DIVISOR);
    let mut log = builder
        .begin_log_with(&mut out, &mut encoder)
        .map_err(|source| encoding_error("the head", source.into()))?;
    let mut is_empty = true;
    for trial in trials.iter().filter(|trial| !trial.warmup) {
        let Ok(measured) = &trial.result else { continue };
        let start = Duration::from_millis(trial.started_ms);
        let length = Duration::from_nanos(trial.wall_ns);
        for (segment, histogram) in &measured.segments {
            let tag = tag_text(&trial.arm, segment);
            log.write_histogram(histogram, start, length, Tag::new(&tag))
                .map_err(|source| encoding_error(&tag, format!("{source:?}").into()))?;
            is_empty = false;
        }
    }
    if is_empty {
        Err(HlogError::NoHistogram)
    } else {
        Ok(String::from_utf8(out).expect("base64, numbers and tags"))
    }
}

fn encoding_error(tag: &str, source: Box<dyn std::error::Error + Send + Sync>) -> HlogError {
    HlogError::Encoding { tag: tag.to_owned(), source }
}

/// Tags end at a comma or white space; such characters are replaced as in a URL.
fn tag_text(arm: &str, segment: &str) -> String {
    let mut tag = String::new();
    for c in format!("{arm}/{segment}").chars() {
        if c.is_whitespace() || c.is_control() || matches!(c, ',' | '%') {
            let mut bytes = [0; 4];
            c.encode_utf8(&mut bytes).bytes().for_each(|byte| tag += &format!("%{byte:02X}"));
        } else {
            tag.push(c)
        }
    }
    crate::text::visible(&tag).into_owned()
}
