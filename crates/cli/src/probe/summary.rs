//! Results of a `probe` command.

use std::collections::BTreeMap;
use std::fmt::Write;

use io::Role;
use model::{Cost, Delivery, Measurement, Metric, NotEffective};
use remote::Failure;
use schemars::JsonSchema;
use serde::Serialize;

use crate::console;
use crate::context::Context;

/// A number with three decimals and an SI prefix.
pub(crate) fn si(value: f64) -> String {
    let (scaled, prefix) = match value {
        v if v >= 1e9 => (v / 1e9, " G"),
        v if v >= 1e6 => (v / 1e6, " M"),
        v if v >= 1e3 => (v / 1e3, " k"),
        v => return format!("{v:.0} "),
    };
    format!("{scaled:.3}{prefix}")
}

/// Headers around the payload of a datagram.
#[derive(Clone, Copy)]
pub(crate) struct Headers {
    pub(crate) ipv6: bool,
    /// In a VLAN.
    pub(crate) is_tagged: bool,
}

impl Headers {
    /// IP and UDP header in bytes.
    fn ip_overhead(self) -> f64 {
        if self.ipv6 { 48.0 } else { 28.0 }
    }

    /// The same with all else on the wire: Ethernet header, VLAN tag, check sequence, preamble and gap.
    fn wire_overhead(self) -> f64 {
        let tag = if self.is_tagged { 4.0 } else { 0.0 };
        self.ip_overhead() + 14.0 + tag + 4.0 + 20.0
    }
}

/// Document of `probe send | ping | receive | echo --json`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Document<'a> {
    schema: u32,
    command: String,
    size_bytes: usize,
    wall_ns: u64,
    /// True if the far end reported. Otherwise arrivals there are not known: `ping` then counts
    /// `round-trip`s, `send` has no deliveries, and the `sent_count` of `receive` and `echo` is the least
    /// that the sequence numbers show. Their `lost_count` is of the numbers below it that did not arrive
    /// there: lost, or taken by another queue or XDP program.
    far_end_told: bool,
    deliveries: BTreeMap<&'a str, DeliveryDocument>,
    metrics: BTreeMap<String, MetricDocument>,
    costs: &'a BTreeMap<String, Cost>,
    mode: &'a BTreeMap<String, String>,
    counters: &'a BTreeMap<String, u64>,
    not_effective: &'a [NotEffective],
}

#[derive(Serialize, JsonSchema)]
struct DeliveryDocument {
    sent_count: u64,
    received_count: u64,
    lost_count: u64,
    /// Absent if duplicates were not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    duplicated_count: Option<u64>,
    reordered_count: u64,
}

/// A metric with either its value or the reason why there is none.
#[derive(Serialize, JsonSchema)]
struct MetricDocument {
    unit: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
}

impl<'a> Document<'a> {
    fn new(command: String, m: &'a Measurement, size_bytes: usize, far_end_told: bool) -> Self {
        let delivery = |d: &Delivery| DeliveryDocument {
            sent_count: d.sent_count,
            received_count: d.received_count,
            lost_count: d.lost_count(),
            duplicated_count: d.duplicated_count,
            reordered_count: d.reordered_count,
        };
        let metric = |metric: Metric| {
            let refused = metric.value.as_ref().err().map(ToString::to_string);
            let (unit, value) = (metric.unit.to_string(), metric.value.ok());
            (metric.name, MetricDocument { unit, value, refused })
        };
        Document {
            schema: crate::context::DOCUMENT,
            command,
            size_bytes,
            wall_ns: m.wall_ns,
            far_end_told,
            deliveries: m.deliveries.iter().map(|(name, d)| (name.as_str(), delivery(d))).collect(),
            metrics: m.metrics().into_iter().map(metric).collect(),
            costs: &m.costs,
            mode: &m.mode,
            counters: &m.counters,
            not_effective: &m.not_effective,
        }
    }
}

/// Prints deliveries, rates, latencies and costs of one run.
///
/// - `size`, `headers`: payload in bytes, and the headers around it.
/// - `has_far_end`: the far end's counters are included.
pub(crate) fn summary(
    context: &Context,
    role: Role,
    m: &Measurement,
    (size, headers): (usize, Headers),
    has_far_end: bool,
) -> Result<(), Failure> {
    let metrics = m.metrics();
    let sent = m.counters.get("forward_sent_count").copied().unwrap_or(0);
    let seconds = m.wall_ns as f64 / 1e9;
    if context.json {
        let command = format!("probe {role:?}").to_lowercase();
        return console::json(&Document::new(command, m, size, has_far_end));
    }
    let mut out = String::new();
    if m.deliveries.is_empty() {
        let _ =
            writeln!(out, "forward  sent {sent}, arrivals not known: the far end did not report");
    }
    for (direction, d) in &m.deliveries {
        // A receiver alone knows the sequence numbers only: what follows the last arrival is unseen.
        // It also misses datagrams that another queue or XDP program took, which are not lost.
        let (least, lost) = match has_far_end || role == Role::Ping {
            true => ("", "lost"),
            false => ("at least ", "not seen here"),
        };
        let loss = d.loss().map(|l| format!(" ({:.4} %)", l * 100.0)).unwrap_or_default();
        let _ = writeln!(
            out,
            "{direction:<8} sent {least}{}, received {}, {lost} {}{loss}, duplicated {}, \
             reordered {}",
            d.sent_count,
            d.received_count,
            d.lost_count(),
            d.duplicated_count.map_or("not counted".to_owned(), |count| count.to_string()),
            d.reordered_count
        );
    }
    if let Some(t) = m.throughput.filter(|t| t.interval_ns > 0) {
        let pps = t.received_count as f64 * 1e9 / t.interval_ns as f64;
        let mean_bytes = t.payload_bytes as f64 / t.received_count.max(1) as f64;
        rates(&mut out, "received", pps, mean_bytes, headers);
    } else if role == Role::Send && seconds > 0.0 {
        rates(&mut out, "sent", sent as f64 / seconds, size as f64, headers);
    }
    for (segment, histogram) in &m.segments {
        let _ = write!(out, "{segment:<8} {} samples", histogram.len());
        let stem = format!("{}_ns_", model::segment_stem(segment));
        let mut refused: Vec<&str> = Vec::new();
        for suffix in ["min", "mean", "p50", "p90", "p99", "p999", "max"] {
            let named = |metric: &&Metric| metric.name.strip_prefix(&stem) == Some(suffix);
            match metrics.iter().find(named).map(|metric| &metric.value) {
                Some(Ok(ns)) => {
                    let _ =
                        write!(out, ", {} {:.2} µs", suffix.replace("p999", "p99.9"), ns / 1000.0);
                }
                Some(Err(why)) => refused.push(why),
                None => {}
            }
        }
        if let Some(why) = refused.first() {
            let _ = write!(out, "\n         {why}");
        }
        out.push('\n');
    }
    if let Some(jitter_ns) = m.jitter_ns {
        let _ = writeln!(out, "jitter   {:.3} µs (RFC 3550)", jitter_ns as f64 / 1000.0);
    }
    for (end, cost) in &m.costs {
        let packets = m.deliveries.values().map(|d| d.received_count.max(d.sent_count)).max();
        let packets = packets.or(Some(sent));
        let per = packets.filter(|n| *n > 0).map(|n| cost.cpu_ns() as f64 / n as f64);
        let _ = write!(out, "cost     {end}: {:.3} s CPU", cost.cpu_ns() as f64 / 1e9);
        if let Some(per) = per {
            let _ = write!(out, ", {per:.0} ns a datagram");
        }
        let _ = writeln!(out, ", {} context switches", cost.context_switch_count);
    }
    for (name, value) in &m.mode {
        let _ = writeln!(out, "mode     {name}: {value}");
    }
    // Sent counts are in the first lines already.
    let is_sent = |name: &str| name.starts_with("forward_") || name.starts_with("return_");
    for (name, value) in m.counters.iter().filter(|(n, v)| **v > 0 && !is_sent(n)) {
        let _ = writeln!(out, "count    {name}: {value}");
    }
    for n in &m.not_effective {
        let _ = writeln!(out, "note     {} had no effect: {}", n.switch, n.why);
    }
    console::text(&out)
}

fn rates(out: &mut String, what: &str, pps: f64, payload_bytes: f64, headers: Headers) {
    let bits = |overhead: f64| pps * (payload_bytes + overhead) * 8.0;
    let _ = writeln!(
        out,
        "{what:<8} {}pps, {}bit/s of payload, {}bit/s of IP, {}bit/s on an Ethernet wire",
        si(pps),
        si(bits(0.0)),
        si(bits(headers.ip_overhead())),
        si(bits(headers.wire_overhead())),
    );
}
