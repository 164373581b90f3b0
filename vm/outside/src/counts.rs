use std::collections::BTreeMap;

use hdrhistogram::Histogram;

/// Counts of a machine between [`OutsideWatch::begin`](crate::OutsideWatch::begin) and its end.
#[derive(Debug, Clone, Default)]
pub struct OutsideCounts {
    /// Counts that are not available, each with its reason.
    pub missing: Vec<String>,
}

impl OutsideCounts {
    /// All counts and sums by name; the name has the unit.
    pub fn figures(&self) -> BTreeMap<String, f64> {
        BTreeMap::new()
    }

    /// Stages of frames, nanoseconds.
    pub fn segments(&self) -> BTreeMap<String, Histogram<u64>> {
        BTreeMap::new()
    }

    /// The trial as a trace in JSON for <https://ui.perfetto.dev>.
    pub fn timeline(&self) -> String {
        "{\"traceEvents\":[]}".into()
    }
}
