//! A measurement as rows: everything but the histograms as one JSON document,
//! the histograms as bytes.

use std::collections::BTreeMap;
use std::error::Error;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use model::{Cost, Delivery, Measurement, NotEffective, Throughput, Trap};
use serde::{Deserialize, Serialize};

type Fault = Box<dyn Error + Send + Sync>;

/// [`Measurement`] without its histograms. New fields need a default, so that
/// older rows stay readable.
#[derive(Serialize, Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Row {
    wall_ns: u64,
    deliveries: BTreeMap<String, Delivery>,
    throughput: Option<Throughput>,
    jitter_ns: Option<u64>,
    costs: BTreeMap<String, Cost>,
    others_cpu_ns: u64,
    steal_ns: u64,
    mode: BTreeMap<String, String>,
    counters: BTreeMap<String, u64>,
    figures: BTreeMap<String, f64>,
    not_effective: Vec<NotEffective>,
    traps: Vec<Trap>,
    reported: BTreeMap<String, Vec<(f64, f64)>>,
}

/// Everything but the histograms, as JSON: readable with SQLite's own JSON
/// functions, and open to new fields.
pub(crate) fn to_json(measurement: &Measurement) -> Result<String, Fault> {
    let m = measurement.clone();
    Ok(serde_json::to_string(&Row {
        wall_ns: m.wall_ns,
        deliveries: m.deliveries,
        throughput: m.throughput,
        jitter_ns: m.jitter_ns,
        costs: m.costs,
        others_cpu_ns: m.others_cpu_ns,
        steal_ns: m.steal_ns,
        mode: m.mode,
        counters: m.counters,
        figures: m.figures,
        not_effective: m.not_effective,
        traps: m.traps,
        reported: m.reported,
    })?)
}

/// The measurement that [`to_json`] wrote, with histograms still to be added.
pub(crate) fn from_json(json: &str) -> Result<Measurement, Fault> {
    let row: Row = serde_json::from_str(json)?;
    Ok(Measurement {
        wall_ns: row.wall_ns,
        deliveries: row.deliveries,
        segments: BTreeMap::new(),
        throughput: row.throughput,
        jitter_ns: row.jitter_ns,
        costs: row.costs,
        others_cpu_ns: row.others_cpu_ns,
        steal_ns: row.steal_ns,
        mode: row.mode,
        counters: row.counters,
        figures: row.figures,
        not_effective: row.not_effective,
        traps: row.traps,
        reported: row.reported,
    })
}

/// A histogram as HdrHistogram's "V2 compressed" bytes, which every HdrHistogram
/// library reads. See `a_histogram_on_disk_is_small` for how much deflate saves.
pub(crate) fn histogram_bytes(histogram: &Histogram<u64>) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(histogram, &mut bytes)?;
    Ok(bytes)
}

/// The histogram that [`histogram_bytes`] wrote.
pub(crate) fn histogram(bytes: &[u8]) -> Result<Histogram<u64>, Fault> {
    Ok(Deserializer::new().deserialize(&mut std::io::Cursor::new(bytes))?)
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::V2Serializer;
    use model::latency_histogram;

    use super::*;

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
            // Only deflate's own trailer may be missing without notice.
            if let Ok(read) = histogram(&bytes[..cut]) {
                assert_eq!(read, whole, "cut at {cut}");
            }
        }
        assert!(histogram(&bytes[..bytes.len() / 2]).is_err());
        assert!(histogram(b"").is_err());
    }

    #[test]
    fn a_row_of_an_older_wirepath_is_read_with_defaults() {
        let m = from_json(r#"{"wall_ns": 5}"#).unwrap();
        assert_eq!((m.wall_ns, m.counters.len()), (5, 0));
    }
}
