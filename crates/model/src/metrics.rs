//! The numbers that are derived from a measurement.

use hdrhistogram::Histogram;

use crate::{
    Better, Delivery, Distribution, Measurement, Metric, QUANTILES, Refusal,
    SAMPLES_BEYOND_QUANTILE,
};

/// The segment whose zero is the fastest packet of the run: how many come close to that is a
/// figure of its own.
const CALIBRATED: &str = "match→app";

/// Points of a pooled quantile curve, enough for a smooth plot.
const CURVE_POINTS: u32 = 60;

/// Name of a segment inside a metric's name: `kernel→app` becomes `kernel_to_app`.
pub fn segment_stem(segment: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    segment.replace('→', "_to_").chars().map(plain).collect()
}

/// Whether a metric is a plain count of events, which may rightly be zero: it is
/// reported, and never divided by the baseline's or judged.
pub fn is_tally(name: &str) -> bool {
    name.ends_with("_count") || name.contains("_count_")
}

/// Unit and good direction of a metric, from its name alone.
pub fn describe(name: &str) -> (&'static str, Better) {
    if name.ends_with("_pps") {
        ("pps", Better::Higher)
    } else if name.ends_with("_bps") {
        ("bps", Better::Higher)
    } else if name.contains("_share_") {
        ("share", Better::Higher)
    } else if name.starts_with("frames_per_") {
        ("count", Better::Higher)
    } else if name.ends_with("_ns") || name.contains("_ns_") {
        ("ns", Better::Lower)
    } else {
        ("count", Better::Lower)
    }
}

/// Whether enough of `count` samples lie beyond the quantile for it to mean something.
fn enough_beyond(count: u64, quantile: f64) -> bool {
    // The small term: 10,000 samples have exactly ten beyond p99.9, whatever the rounding.
    count as f64 * (1.0 - quantile) + 1e-6 >= SAMPLES_BEYOND_QUANTILE
}

/// Suffix of a quantile's metric: `p50`, `p999`, and `max` for 1.
fn suffix(quantile: f64) -> String {
    if quantile >= 1.0 {
        return "max".into();
    }
    let digits = format!("{quantile:.6}");
    let digits = digits.trim_start_matches("0.").trim_end_matches('0');
    format!("p{digits:0<2}")
}

/// A quantile curve: [`QUANTILES`] and about 60 points, evenly spaced in the logarithm
/// of the share beyond, as far as enough samples stand behind them.
///
/// Returns `None` when the histogram is empty.
pub fn distribution(histogram: &Histogram<u64>) -> Option<Distribution> {
    let count = histogram.len();
    if count == 0 {
        return None;
    }
    let beyond_min = (SAMPLES_BEYOND_QUANTILE / count as f64).min(1.0);
    let mut quantiles: Vec<f64> = (0..CURVE_POINTS)
        .map(|point| 1.0 - beyond_min.powf(f64::from(point) / f64::from(CURVE_POINTS - 1)))
        .chain(QUANTILES.iter().map(|(quantile, _)| *quantile))
        .filter(|quantile| enough_beyond(count, *quantile))
        .collect();
    quantiles.sort_by(f64::total_cmp);
    quantiles.dedup_by(|later, kept| *later - *kept < 1e-9);
    Some(Distribution {
        count,
        min_ns: histogram.min(),
        max_ns: histogram.max(),
        quantiles: quantiles.into_iter().map(|q| (q, histogram.value_at_quantile(q))).collect(),
    })
}

impl Measurement {
    /// Every number that this measurement can give, or the reason it cannot.
    ///
    /// - Latency: quantiles and maximum per segment, `rtt_ns_p99`, `rtt_ns_max`. All
    ///   are refused when any datagram was lost, because a lost datagram's latency is
    ///   beyond every quantile; a quantile also when fewer than
    ///   [`SAMPLES_BEYOND_QUANTILE`] samples lie beyond it.
    /// - Throughput: `received_pps`, `goodput_bps` (UDP payload), `sent_pps`; loss
    ///   does not spoil these.
    /// - Cost: all ends' CPU time, context switches and system calls, over first
    ///   arrivals in all directions (a ping's reply is a packet too).
    /// - Books: `lost_count`, `duplicated_count`, `reordered_count`, and for each
    ///   direction (`lost_count_forward`) where there are several.
    /// - Figures of the path's own as they are.
    pub fn metrics(&self) -> Vec<Metric> {
        let mut metrics = Vec::new();
        self.latency_metrics(&mut metrics);
        if let Some(jitter_ns) = self.jitter_ns {
            push(&mut metrics, "jitter_ns", Ok(jitter_ns as f64));
        }
        self.throughput_metrics(&mut metrics);
        self.cost_metrics(&mut metrics);
        self.book_metrics(&mut metrics);
        for (name, value) in &self.figures {
            // What another metric says already is not said twice.
            if !metrics.iter().any(|metric| metric.name == *name) {
                push(&mut metrics, name, Ok(*value));
            }
        }
        metrics
    }

    /// Why no latency of this measurement may be shown.
    fn latency_refusal(&self) -> Option<Refusal> {
        let lost = self.lost_count();
        let sent: u64 = self.deliveries.values().map(|books| books.sent_count).sum();
        (lost > 0).then(|| {
            format!(
                "percentiles refused: {lost} of {sent} datagrams lost, \
                 and a lost datagram's latency lies beyond every percentile"
            )
        })
    }

    fn latency_metrics(&self, metrics: &mut Vec<Metric>) {
        let refusal = self.latency_refusal();
        for (segment, histogram) in &self.segments {
            let stem = segment_stem(segment);
            let count = histogram.len();
            let quantiles = QUANTILES.iter().map(|(quantile, _)| *quantile).chain([1.0]);
            for quantile in quantiles {
                let value = latency(refusal.as_ref(), Some(count), quantile, || match quantile {
                    1.0 => histogram.max() as f64,
                    _ => histogram.value_at_quantile(quantile) as f64,
                });
                push(metrics, &format!("{stem}_ns_{}", suffix(quantile)), value);
            }
            if segment == CALIBRATED && count > 0 {
                let within = histogram.count_between(0, 999) as f64 / count as f64;
                let share = refusal.clone().map_or(Ok(within), Err);
                push(metrics, &format!("{stem}_share_within_1us"), share);
            }
        }
        // Another program counts no samples for us: the books of its worst direction do.
        let arrivals = self.deliveries.values().map(first_arrivals).min();
        for (segment, percentiles) in &self.reported {
            if self.segments.contains_key(segment) {
                continue;
            }
            let stem = segment_stem(segment);
            for (quantile, value_ns) in percentiles {
                let value = latency(refusal.as_ref(), arrivals, *quantile, || *value_ns);
                push(metrics, &format!("{stem}_ns_{}", suffix(*quantile)), value);
            }
        }
    }

    fn throughput_metrics(&self, metrics: &mut Vec<Metric>) {
        let Some(throughput) = &self.throughput else { return };
        let rate = |amount: f64, interval_ns: u64| match interval_ns {
            0 => Err("no rate: fewer than two datagrams arrived".to_owned()),
            _ => Ok(amount * 1e9 / interval_ns as f64),
        };
        let interval_ns = throughput.interval_ns;
        push(metrics, "received_pps", rate(throughput.received_count as f64, interval_ns));
        push(metrics, "goodput_bps", rate(throughput.payload_bytes as f64 * 8.0, interval_ns));
        let sent = self.deliveries.get("forward").or_else(|| self.deliveries.values().next());
        if let Some(sent) = sent.filter(|books| books.sent_count > 0 && self.wall_ns > 0) {
            push(metrics, "sent_pps", rate(sent.sent_count as f64, self.wall_ns));
        }
    }

    fn cost_metrics(&self, metrics: &mut Vec<Metric>) {
        if self.costs.is_empty() {
            return;
        }
        let packets = match self.deliveries.is_empty() {
            true => self.throughput.map_or(0, |throughput| throughput.received_count),
            false => self.deliveries.values().map(first_arrivals).sum(),
        };
        let share = |amount: u64| match packets {
            0 => Err("no cost per packet: no datagram arrived".to_owned()),
            _ => Ok(amount as f64 / packets as f64),
        };
        push(metrics, "cpu_ns_per_packet", share(self.cpu_ns()));
        let switches = self.costs.values().map(|cost| cost.context_switch_count).sum();
        push(metrics, "context_switches_per_packet", share(switches));
        if self.costs.values().any(|cost| cost.syscall_count.is_some()) {
            let uncounted = self.costs.iter().find(|(_, cost)| cost.syscall_count.is_none());
            let value = match uncounted {
                Some((end, _)) => Err(format!("system calls were not counted at the {end} end")),
                None => share(self.costs.values().filter_map(|cost| cost.syscall_count).sum()),
            };
            push(metrics, "syscalls_per_packet", value);
        }
    }

    fn book_metrics(&self, metrics: &mut Vec<Metric>) {
        if self.deliveries.is_empty() {
            return;
        }
        type Count = fn(&Delivery) -> u64;
        let counts: [(&str, Count); 3] = [
            ("lost_count", Delivery::lost_count),
            ("duplicated_count", |books| books.duplicated_count),
            ("reordered_count", |books| books.reordered_count),
        ];
        for (name, count) in counts {
            let all: u64 = self.deliveries.values().map(count).sum();
            push(metrics, name, Ok(all as f64));
            if self.deliveries.len() > 1 {
                for (direction, books) in &self.deliveries {
                    let name = format!("{name}_{}", segment_stem(direction));
                    push(metrics, &name, Ok(count(books) as f64));
                }
            }
        }
    }
}

fn first_arrivals(books: &Delivery) -> u64 {
    books.received_count.saturating_sub(books.duplicated_count)
}

/// A latency, or why there is none; `count` is `None` where nobody counted samples.
fn latency(
    refusal: Option<&Refusal>,
    count: Option<u64>,
    quantile: f64,
    value: impl FnOnce() -> f64,
) -> Result<f64, Refusal> {
    if let Some(refusal) = refusal {
        return Err(refusal.clone());
    }
    match count {
        Some(0) => Err("no sample".into()),
        Some(count) if quantile < 1.0 && !enough_beyond(count, quantile) => Err(format!(
            "{} refused: {count} samples leave {:.0} beyond it, {SAMPLES_BEYOND_QUANTILE} are needed",
            suffix(quantile),
            (count as f64 * (1.0 - quantile)).floor(),
        )),
        _ => Ok(value()),
    }
}

fn push(metrics: &mut Vec<Metric>, name: &str, value: Result<f64, Refusal>) {
    let (unit, better) = describe(name);
    metrics.push(Metric { name: name.into(), unit, better, value });
}
