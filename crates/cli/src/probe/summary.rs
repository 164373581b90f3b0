//! Results of a `probe` command.

use std::collections::BTreeMap;

use house::console;
use house::context::Context;
use io::Role;
use model::{Cost, Delivery, Measurement, Metric, NotEffective};
use remote::Failure;
use report::screen::Screen;
use schemars::JsonSchema;
use serde::Serialize;

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
pub(crate) struct ProbeDocument<'a> {
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

impl From<&Delivery> for DeliveryDocument {
    fn from(d: &Delivery) -> Self {
        DeliveryDocument {
            sent_count: d.sent_count,
            received_count: d.received_count,
            lost_count: d.lost_count(),
            duplicated_count: d.duplicated_count,
            reordered_count: d.reordered_count,
        }
    }
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

impl MetricDocument {
    fn named(metric: Metric) -> (String, Self) {
        let refused = metric.value.as_ref().err().map(ToString::to_string);
        let (unit, value) = (metric.unit.to_string(), metric.value.ok());
        (metric.name, MetricDocument { unit, value, refused })
    }
}

impl<'a> ProbeDocument<'a> {
    fn new(command: String, m: &'a Measurement, size_bytes: usize, far_end_told: bool) -> Self {
        ProbeDocument {
            schema: house::context::DOCUMENT,
            command,
            size_bytes,
            wall_ns: m.wall_ns,
            far_end_told,
            deliveries: m.deliveries.iter().map(|(name, d)| (name.as_str(), d.into())).collect(),
            metrics: m.metrics().into_iter().map(MetricDocument::named).collect(),
            costs: &m.costs,
            mode: &m.mode,
            counters: &m.counters,
            not_effective: &m.not_effective,
        }
    }
}

/// Column where the figures begin.
const COLUMN: usize = 9;

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
        return console::json(&ProbeDocument::new(command, m, size, has_far_end));
    }
    let mut screen = Screen::plain().with_column(COLUMN);
    if m.deliveries.is_empty() {
        let text = format!("sent {sent}, arrivals not known: the far end did not report");
        screen.entry("forward", text);
    }
    // A receiver alone knows the sequence numbers only: what follows the last arrival is unseen. It also
    // misses datagrams that another queue or XDP program took, which are not lost.
    let knows_sent = has_far_end || role == Role::Ping;
    for (direction, delivery) in &m.deliveries {
        screen.entry(direction, delivery_text(delivery, knows_sent));
    }
    if let Some(t) = m.throughput.filter(|t| t.interval_ns > 0) {
        let pps = t.received_count as f64 * 1e9 / t.interval_ns as f64;
        let mean_bytes = t.payload_bytes as f64 / t.received_count.max(1) as f64;
        screen.entry("received", rates(pps, mean_bytes, headers));
    } else if role == Role::Send && seconds > 0.0 {
        screen.entry("sent", rates(sent as f64 / seconds, size as f64, headers));
    }
    for (segment, histogram) in &m.segments {
        let (times, refused) = segment_times(segment, &metrics);
        screen.entry(segment, format!("{} samples{times}", histogram.len()));
        if let Some(why) = refused {
            screen.entry("", why);
        }
    }
    if let Some(jitter_ns) = m.jitter_ns {
        screen.entry("jitter", format!("{:.3} µs (RFC 3550)", jitter_ns as f64 / 1000.0));
    }
    let packets = m.deliveries.values().map(|d| d.received_count.max(d.sent_count)).max();
    for (end, cost) in &m.costs {
        screen.entry("cost", cost_text(end, cost, packets.unwrap_or(sent)));
    }
    for (name, value) in &m.mode {
        screen.entry("mode", format!("{name}: {value}"));
    }
    // Sent counts are in the first lines already.
    let other = m.counters.iter().filter(|(name, count)| {
        **count > 0 && !name.starts_with("forward_") && !name.starts_with("return_")
    });
    for (name, count) in other {
        screen.entry("count", format!("{name}: {count}"));
    }
    for idle in &m.not_effective {
        screen.entry("note", format!("{} had no effect: {}", idle.switch, idle.why));
    }
    console::text(&screen.finish())
}

/// - `knows_sent`: the number of datagrams sent is known, not only the sequence numbers that arrived.
fn delivery_text(delivery: &Delivery, knows_sent: bool) -> String {
    let (least, lost) = if knows_sent { ("", "lost") } else { ("at least ", "not seen here") };
    let loss = delivery.loss().map(|loss| format!(" ({:.4} %)", loss * 100.0));
    let duplicated = delivery.duplicated_count.map(|count| count.to_string());
    format!(
        "sent {least}{}, received {}, {lost} {}{}, duplicated {}, reordered {}",
        delivery.sent_count,
        delivery.received_count,
        delivery.lost_count(),
        loss.unwrap_or_default(),
        duplicated.as_deref().unwrap_or("not counted"),
        delivery.reordered_count
    )
}

/// Times of a segment, and the first reason why one is refused.
fn segment_times<'a>(segment: &str, metrics: &'a [Metric]) -> (String, Option<&'a str>) {
    let stem = format!("{}_ns_", model::segment_stem(segment));
    let (mut times, mut refused) = (String::new(), None);
    for suffix in ["min", "mean", "p50", "p90", "p99", "p999", "max"] {
        let found = metrics.iter().find(|m| m.name.strip_prefix(&stem) == Some(suffix));
        match found.map(|metric| &metric.value) {
            Some(Ok(ns)) => {
                times += &format!(", {} {:.2} µs", suffix.replace("p999", "p99.9"), ns / 1000.0);
            }
            Some(Err(why)) => refused = refused.or(Some(&**why)),
            None => {}
        }
    }
    (times, refused)
}

fn cost_text(end: &str, cost: &Cost, packets: u64) -> String {
    let cpu_ns = cost.cpu_ns() as f64;
    let per_packet = if packets > 0 {
        format!(", {:.0} ns a datagram", cpu_ns / packets as f64)
    } else {
        String::new()
    };
    let switches = cost.context_switch_count;
    format!("{end}: {:.3} s CPU{per_packet}, {switches} context switches", cpu_ns / 1e9)
}

fn rates(pps: f64, payload_bytes: f64, headers: Headers) -> String {
    let [payload, ip, wire] = [0.0, headers.ip_overhead(), headers.wire_overhead()]
        .map(|overhead| si(pps * (payload_bytes + overhead) * 8.0));
    format!(
        "{}pps, {payload}bit/s of payload, {ip}bit/s of IP, {wire}bit/s on an Ethernet wire",
        si(pps)
    )
}
