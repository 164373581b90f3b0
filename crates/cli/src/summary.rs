//! What a `probe` command prints at its end.

use std::fmt::Write;

use io::Role;
use model::Measurement;

use crate::args::Cli;
use crate::console;
use crate::end::Failure;

/// A count with three digits and a prefix.
pub(crate) fn si(value: f64) -> String {
    let (scaled, prefix) = match value {
        v if v >= 1e9 => (v / 1e9, " G"),
        v if v >= 1e6 => (v / 1e6, " M"),
        v if v >= 1e3 => (v / 1e3, " k"),
        v => return format!("{v:.0} "),
    };
    format!("{scaled:.3}{prefix}")
}

/// Bytes that a UDP payload takes on top: IPv4 and UDP header; and on an Ethernet wire with
/// preamble, header, check sequence and gap.
const IP_OVERHEAD: f64 = 28.0;
const WIRE_OVERHEAD: f64 = 28.0 + 14.0 + 4.0 + 20.0;

/// Prints the books, rates, latencies and costs of one run. `told`: the far end's books are in it.
pub(crate) fn summary(
    cli: &Cli,
    role: Role,
    m: &Measurement,
    size: usize,
    told: bool,
) -> Result<(), Failure> {
    let metrics = m.metrics();
    let sent = m.deliveries.get("forward").map_or(0, |d| d.sent_count);
    let seconds = m.wall_ns as f64 / 1e9;
    if cli.json {
        let doc = serde_json::json!({
            "schema": model::SCHEMA,
            "command": format!("probe {role:?}").to_lowercase(),
            "size_bytes": size,
            "wall_ns": m.wall_ns,
            "far_end_told": told,
            "deliveries": m.deliveries.iter().map(|(direction, d)| (direction.clone(), serde_json::json!({
                "sent_count": d.sent_count,
                "received_count": d.received_count,
                "lost_count": d.lost_count(),
                "duplicated_count": d.duplicated_count,
                "reordered_count": d.reordered_count,
            }))).collect::<serde_json::Map<_, _>>(),
            "metrics": metrics.iter().map(|x| (x.name.clone(), match &x.value {
                Ok(value) => serde_json::json!({ "unit": x.unit, "value": value }),
                Err(why) => serde_json::json!({ "unit": x.unit, "refused": why }),
            })).collect::<serde_json::Map<_, _>>(),
            "costs": m.costs,
            "mode": m.mode,
            "counters": m.counters,
            "not_effective": m.not_effective,
        });
        return console::text(&format!("{doc:#}"));
    }
    let mut out = String::new();
    for (direction, d) in &m.deliveries {
        let arrived = told || role != Role::Send;
        let _ = write!(out, "{direction:<8} sent {}", d.sent_count);
        if arrived {
            let loss = d.loss().map(|l| format!(" ({:.4} %)", l * 100.0)).unwrap_or_default();
            let _ = write!(
                out,
                ", received {}, lost {}{loss}, duplicated {}, reordered {}",
                d.received_count,
                d.lost_count(),
                d.duplicated_count,
                d.reordered_count
            );
        }
        out.push('\n');
    }
    if let Some(t) = m.throughput.filter(|t| t.interval_ns > 0) {
        let pps = t.received_count as f64 * 1e9 / t.interval_ns as f64;
        let mean_bytes = t.payload_bytes as f64 / t.received_count.max(1) as f64;
        rates(&mut out, "received", pps, mean_bytes);
    } else if role == Role::Send && seconds > 0.0 {
        rates(&mut out, "sent", sent as f64 / seconds, size as f64);
    }
    for (segment, histogram) in &m.segments {
        let _ = write!(out, "{segment:<8} {} samples", histogram.len());
        let stem = model::segment_stem(segment);
        for suffix in ["p50", "p90", "p99", "p999", "max"] {
            let name = format!("{stem}_ns_{suffix}");
            let Some(metric) = metrics.iter().find(|x| x.name == name) else { continue };
            match &metric.value {
                Ok(ns) => {
                    let _ =
                        write!(out, ", {} {:.2} µs", suffix.replace("p999", "p99.9"), ns / 1000.0);
                }
                Err(why) => {
                    let _ = write!(out, "\n         {why}");
                    break;
                }
            }
        }
        out.push('\n');
    }
    if let Some(jitter_ns) = m.jitter_ns {
        let _ = writeln!(out, "jitter   {:.3} µs (RFC 3550)", jitter_ns as f64 / 1000.0);
    }
    for (end, cost) in &m.costs {
        let packets = m.deliveries.values().map(|d| d.received_count.max(d.sent_count)).max();
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
    // What was sent is in the first lines already.
    let told = |name: &str| name.starts_with("forward_") || name.starts_with("return_");
    for (name, value) in m.counters.iter().filter(|(n, v)| **v > 0 && !told(n)) {
        let _ = writeln!(out, "count    {name}: {value}");
    }
    for n in &m.not_effective {
        let _ = writeln!(out, "note     {} had no effect: {}", n.switch, n.why);
    }
    console::text(&out)
}

fn rates(out: &mut String, what: &str, pps: f64, payload_bytes: f64) {
    let bits = |overhead: f64| pps * (payload_bytes + overhead) * 8.0;
    let _ = writeln!(
        out,
        "{what:<8} {}pps, {}bit/s of payload, {}bit/s of IP, {}bit/s on an Ethernet wire",
        si(pps),
        si(bits(0.0)),
        si(bits(IP_OVERHEAD)),
        si(bits(WIRE_OVERHEAD)),
    );
}
