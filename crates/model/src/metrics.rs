//! Metrics derived from a measurement.

use hdrhistogram::Histogram;

use crate::{
    Better, Delivery, Distribution, Hardware, Measurement, Metric, QUANTILES, Refusal,
    SAMPLES_BEYOND_QUANTILE, Shape, Throughput, total,
};

/// Segment whose zero is the fastest packet of the run; the share of packets close to it is a metric
/// of its own.
const CALIBRATED: &str = "match→app";

/// Points of a pooled quantile curve, enough for a smooth plot.
const CURVE_POINTS: u32 = 60;

/// Name of a segment inside a metric's name: `kernel→app` becomes `kernel_to_app`.
pub fn segment_stem(segment: &str) -> String {
    segment
        .replace('→', "_to_")
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' })
        .collect()
}

/// Stem and quantile of a metric that is a tail: `rtt_ns_p99` is (`rtt`, 0.99).
pub(crate) fn tail_of(name: &str) -> Option<(&str, f64)> {
    let (stem, suffix) = name.rsplit_once("_ns_")?;
    let (quantile, _) = QUANTILES.iter().find(|(q, known)| *q >= 0.99 && *known == suffix)?;
    Some((stem, *quantile))
}

/// True for a plain count of events. It may legitimately be zero, so it is reported, but never judged or
/// divided by the baseline's.
pub fn is_event_count(name: &str) -> bool {
    name.ends_with("_count") || name.contains("_count_")
}

/// True for a metric of CPU time or memory, the price of a result.
pub(crate) fn is_cost(name: &str) -> bool {
    name.contains("cpu") || name.contains("memory")
}

/// Units that a metric's name can state, each with the direction of improvement that it implies.
const UNITS: [(&str, Option<Better>); 13] = [
    ("ns", Some(Better::Lower)),
    ("us", Some(Better::Lower)),
    ("ms", Some(Better::Lower)),
    ("s", Some(Better::Lower)),
    ("bps", Some(Better::Higher)),
    ("pps", Some(Better::Higher)),
    ("rps", Some(Better::Higher)),
    ("qps", Some(Better::Higher)),
    ("tps", Some(Better::Higher)),
    ("share", Some(Better::Higher)),
    ("count", Some(Better::Lower)),
    ("bytes", None),
    ("percent", None),
];

/// Returns the unit that a metric's name states, with the direction of improvement that it implies, if
/// any: `us` and lower for `p99_us` and `latency_us_p99`. `None` if the name states no unit.
///
/// The unit is the last word of the name that is one; a word after `per` is a base, not a unit.
pub fn stated_unit(name: &str) -> Option<(&'static str, Option<Better>)> {
    let words: Vec<&str> = name.split('_').collect();
    let is_base = |at: usize| at > 0 && words[at - 1] == "per";
    (0..words.len())
        .rev()
        .find_map(|at| UNITS.iter().find(|(unit, _)| *unit == words[at] && !is_base(at)))
        .copied()
}

/// Returns unit and direction of improvement of a metric, from its name.
pub fn describe(name: &str) -> (&'static str, Better) {
    match stated_unit(name) {
        _ if name.starts_with("frames_per_") => ("count", Better::Higher),
        Some((unit, better)) => (unit, better.unwrap_or(Better::Lower)),
        None => ("count", Better::Lower),
    }
}

/// End of the names of the kernel's own threads among the ends.
const KERNEL: &str = "kernel";

/// True if at least [`SAMPLES_BEYOND_QUANTILE`] of `count` samples lie beyond the quantile.
fn enough_beyond(count: f64, quantile: f64) -> bool {
    // The small term absorbs rounding: 10,000 samples have exactly ten beyond p99.9.
    count * (1.0 - quantile) + 1e-6 >= SAMPLES_BEYOND_QUANTILE
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

/// Returns a quantile curve: [`QUANTILES`] and about 60 points, evenly spaced in the logarithm of the
/// share beyond, as far as there are enough samples. `None` if the histogram is empty.
///
/// - `lost`: datagrams that never arrived beside those in the histogram; they count as infinitely late.
pub fn distribution(histogram: &Histogram<u64>, lost: f64) -> Option<Distribution> {
    let count = histogram.len();
    if count == 0 {
        return None;
    }
    let all = count as f64 + lost.max(0.0);
    let beyond_min = (SAMPLES_BEYOND_QUANTILE / all).min(1.0);
    let mut quantiles: Vec<f64> = (0..CURVE_POINTS)
        .map(|point| 1.0 - beyond_min.powf(f64::from(point) / f64::from(CURVE_POINTS - 1)))
        .chain(QUANTILES.iter().map(|(quantile, _)| *quantile))
        .filter(|quantile| enough_beyond(all, *quantile))
        .collect();
    quantiles.sort_by(f64::total_cmp);
    quantiles.dedup_by(|later, kept| *later - *kept < 1e-9);
    Some(Distribution {
        count,
        min_ns: histogram.min(),
        mean_ns: Some(histogram.mean().round() as u64),
        max_ns: histogram.max(),
        quantiles: quantiles
            .into_iter()
            .filter_map(|quantile| Some((quantile, value_at(histogram, quantile, lost / all)?)))
            .collect(),
    })
}

/// Quantile of all datagrams of which a share was lost; `None` if it lies among the lost ones.
fn value_at(histogram: &Histogram<u64>, quantile: f64, lost_share: f64) -> Option<u64> {
    quantile_of_arrived(quantile, lost_share).map(|quantile| histogram.value_at_quantile(quantile))
}

/// Quantile of the arrived datagrams that is `quantile` of all, if the lost ones are infinitely late; `None`
/// if it lies among those.
///
/// - `lost_share`: of all datagrams, 0 to 1.
pub fn quantile_of_arrived(quantile: f64, lost_share: f64) -> Option<f64> {
    let of_arrived = quantile / (1.0 - lost_share);
    // The small term absorbs rounding.
    (of_arrived <= 1.0 + 1e-12).then(|| of_arrived.min(1.0))
}

fn count_value(count: Option<u64>) -> Result<f64, String> {
    match count {
        Some(count) => Ok(count as f64),
        None => Err("duplicates were not counted".to_owned()),
    }
}

fn rate(amount: f64, interval_ns: u64) -> Result<f64, String> {
    match interval_ns {
        0 => Err("no rate: fewer than two datagrams arrived".to_owned()),
        _ => Ok(amount * 1e9 / interval_ns as f64),
    }
}

impl Measurement {
    /// Returns all metrics, each with its value or the reason for its absence.
    ///
    /// - Latency: quantiles, minimum, mean and maximum per segment, `rtt_ns_p99`, `rtt_ns_max`. A lost
    ///   datagram counts as infinitely late, so a quantile is refused if it lies among the lost ones, and
    ///   the mean and the maximum if any was lost; a quantile is also refused if fewer than
    ///   [`SAMPLES_BEYOND_QUANTILE`] samples lie beyond it.
    /// - Throughput: `received_pps`, `goodput_bps` (UDP payload), `sent_pps`; loss does not affect
    ///   these.
    /// - Cost: all ends' CPU time, context switches and system calls, over first
    ///   arrivals in all directions (a ping's reply is a packet too).
    /// - Delivery: `lost_count`, `duplicated_count`, `reordered_count`, also by direction
    ///   (`lost_count_forward`) if there are several.
    /// - Metrics specific to the path or named by the user, unchanged; those that nothing counted, refused.
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
            // Skip figures that another metric already reports.
            if metrics.iter().any(|metric| metric.name == *name) {
                continue;
            }
            match self.shapes.get(name) {
                None => push(&mut metrics, name, Ok(*value)),
                Some(Shape { unit, better }) => metrics.push(Metric {
                    name: name.clone(),
                    unit: unit.clone().into(),
                    better: *better,
                    value: Ok(*value),
                }),
            }
        }
        for (name, why) in &self.refused {
            push(&mut metrics, name, Err(why.clone()));
        }
        metrics
    }

    /// Share of the datagrams that did not make it through all directions, 0 to 1.
    pub fn lost_share(&self) -> f64 {
        1.0 - self
            .deliveries
            .values()
            .map(|books| 1.0 - books.loss().unwrap_or(0.0))
            .product::<f64>()
    }

    /// Datagrams lost beside `arrived` that were timed, in proportion if only some were timed.
    pub(crate) fn lost_beside(&self, arrived: u64) -> f64 {
        let share = self.lost_share();
        if share < 1.0 { arrived as f64 * share / (1.0 - share) } else { 0.0 }
    }

    fn lost_in_words(&self) -> Option<String> {
        let lost = self.lost_count();
        let sent = self.deliveries.values().map(|books| books.sent_count).max()?;
        (lost > 0).then(|| format!("{lost} of {sent} datagrams were lost"))
    }

    /// Enters the rates of the arrivals of one direction of several, as figures.
    ///
    /// - `arrived`: counts of nothing if there is no rate.
    pub fn enter_rates(&mut self, direction: &str, arrived: Throughput) {
        let bits = arrived.payload_bytes.saturating_mul(8);
        for (name, amount) in [("received_pps", arrived.received_count), ("goodput_bps", bits)] {
            // As the rate of the measurement, so that both are equal.
            if let Ok(rate) = rate(amount as f64, arrived.interval_ns) {
                self.figures.insert(format!("{name}_{direction}"), rate);
            }
        }
    }

    fn latency_metrics(&self, metrics: &mut Vec<Metric>) {
        let lost_share = self.lost_share();
        let lost = self.lost_in_words();
        let lost = lost.as_deref();
        for (segment, histogram) in &self.segments {
            let stem = segment_stem(segment);
            let arrived = histogram.len() as f64;
            let all = Some(arrived / (1.0 - lost_share)).filter(|all| all.is_finite());
            let quantiles = QUANTILES.iter().map(|(quantile, _)| *quantile).chain([1.0]);
            for quantile in quantiles {
                let value = latency(all.or(Some(0.0)), quantile, lost, || match quantile {
                    1.0 => Some(histogram.max() as f64),
                    _ => value_at(histogram, quantile, lost_share).map(|value| value as f64),
                });
                push(metrics, &format!("{stem}_ns_{}", suffix(quantile)), value);
            }
            let sampled = || (arrived > 0.0).then_some(histogram).ok_or("no sample".to_owned());
            push(metrics, &format!("{stem}_ns_min"), sampled().map(|h| h.min() as f64));
            let mean = sampled().and_then(|h| match lost {
                None => Ok(h.mean()),
                Some(lost) => Err(late("mean", lost)),
            });
            push(metrics, &format!("{stem}_ns_mean"), mean);
            if segment == CALIBRATED && arrived > 0.0 {
                let within = histogram.count_between(0, 999) as f64 / arrived;
                let share = within * (1.0 - lost_share);
                push(metrics, &format!("{stem}_share_within_1us"), Ok(share));
            }
        }
        // Another program reports no sample count; that of its worst direction stands in.
        let arrivals = self.deliveries.values().map(Delivery::first_arrival_count).min();
        for (segment, percentiles) in &self.reported {
            if self.segments.contains_key(segment) {
                continue;
            }
            let stem = segment_stem(segment);
            for (quantile, value_ns) in percentiles {
                // Its percentiles are of the arrivals alone, and cannot be corrected for the lost.
                let value = latency(arrivals.map(|n| n as f64), *quantile, lost, || {
                    (lost_share == 0.0).then_some(*value_ns)
                });
                push(metrics, &format!("{stem}_ns_{}", suffix(*quantile)), value);
            }
        }
    }

    fn throughput_metrics(&self, metrics: &mut Vec<Metric>) {
        let Some(throughput) = &self.throughput else { return };
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
        let packets = if self.packet_count.is_some() {
            self.packet_count
        } else if self.deliveries.is_empty() {
            self.throughput.map(|throughput| throughput.received_count)
        } else {
            Some(total(self.deliveries.values().map(Delivery::first_arrival_count)))
        };
        let share = |amount: u64| match packets {
            None => Err("no cost per packet: arrivals are not known".to_owned()),
            Some(0) => Err("no cost per packet: no datagram arrived".to_owned()),
            Some(packets) => Ok(amount as f64 / packets as f64),
        };
        push(metrics, "cpu_ns_per_packet", share(self.cpu_ns()));
        let switches = total(self.costs.values().map(|cost| cost.context_switch_count));
        push(metrics, "context_switches_per_packet", share(switches));
        if self.costs.values().any(|cost| cost.syscall_count.is_some()) {
            let uncounted = self.costs.iter().find(|(_, cost)| cost.syscall_count.is_none());
            let value = match uncounted {
                Some((end, _)) => Err(format!("system calls were not counted at the {end} end")),
                None => share(total(self.costs.values().filter_map(|cost| cost.syscall_count))),
            };
            push(metrics, "syscalls_per_packet", value);
        }
        self.hardware_metrics(metrics, share);
    }

    /// Counts of the processor by packet, if any end has them.
    fn hardware_metrics(
        &self,
        metrics: &mut Vec<Metric>,
        share: impl Fn(u64) -> Result<f64, Refusal>,
    ) {
        // Threads of the kernel are counted in none.
        let ends = self.costs.iter().filter(|(end, _)| !end.ends_with(KERNEL));
        let ends: Vec<(&String, Option<&Hardware>)> =
            ends.map(|(end, cost)| (end, cost.hardware.as_ref())).collect();
        type Count = fn(&Hardware) -> Option<u64>;
        let counts: [(&str, Count); 4] = [
            ("instructions", |of| Some(of.instruction_count)),
            ("cycles", |of| Some(of.cycle_count)),
            ("llc_misses", |of| of.llc_miss_count),
            ("tlb_misses", |of| of.tlb_miss_count),
        ];
        for (name, count) in counts {
            let found: Vec<_> = ends.iter().map(|(end, of)| (end, of.and_then(count))).collect();
            if found.iter().all(|(_, of)| of.is_none()) {
                continue;
            }
            let value = match found.iter().find(|(_, of)| of.is_none()) {
                Some((end, _)) => Err(format!("{name} were not counted at the {end} end")),
                None => share(total(found.iter().filter_map(|(_, of)| *of))),
            };
            push(metrics, &format!("{name}_per_packet"), value);
        }
    }

    fn book_metrics(&self, metrics: &mut Vec<Metric>) {
        if self.deliveries.is_empty() {
            return;
        }
        type Count = fn(&Delivery) -> Option<u64>;
        let counts: [(&str, Count); 3] = [
            ("lost_count", |books| Some(books.lost_count())),
            ("duplicated_count", |books| books.duplicated_count),
            ("reordered_count", |books| Some(books.reordered_count)),
        ];
        for (name, count) in counts {
            let counts: Option<Vec<u64>> = self.deliveries.values().map(count).collect();
            push(metrics, name, count_value(counts.map(total)));
            if self.deliveries.len() > 1 {
                for (direction, books) in &self.deliveries {
                    let name = format!("{name}_{}", segment_stem(direction));
                    push(metrics, &name, count_value(count(books)));
                }
            }
        }
    }
}

/// A latency, or the reason why there is none.
///
/// - `count`: samples, lost datagrams included; `None` if they were not counted.
/// - `lost`: lost datagrams in words; `None` if none was lost.
/// - `value`: `None` if the quantile lies among the lost datagrams.
fn latency(
    count: Option<f64>,
    quantile: f64,
    lost: Option<&str>,
    value: impl FnOnce() -> Option<f64>,
) -> Result<f64, Refusal> {
    let name = suffix(quantile);
    match count {
        Some(0.0) => Err("no sample".into()),
        Some(count) if quantile < 1.0 && !enough_beyond(count, quantile) => Err(format!(
            "{name} refused: {count:.0} samples leave {:.0} beyond it, {SAMPLES_BEYOND_QUANTILE} are \
             needed",
            (count * (1.0 - quantile)).floor(),
        )),
        _ => (quantile < 1.0 || lost.is_none())
            .then(value)
            .flatten()
            .ok_or_else(|| late(&name, lost.unwrap_or("some datagrams were lost"))),
    }
}

/// Refusal of a latency because of lost datagrams.
fn late(name: &str, lost: &str) -> Refusal {
    format!("{name} refused: {lost}, and a lost datagram counts as infinitely late")
}

fn push(metrics: &mut Vec<Metric>, name: &str, value: Result<f64, Refusal>) {
    let (unit, better) = describe(name);
    metrics.push(Metric { name: name.into(), unit: unit.into(), better, value });
}
