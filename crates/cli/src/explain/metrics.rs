//! `explain --listen`: the observation so far, for Prometheus.

use host::explain::ExplainSummary;
use report::metrics::Metrics;

const NS_PER_S: f64 = 1e9;

/// The metrics that are served, replaced after each period.
pub(super) fn metrics(summary: &ExplainSummary) -> Metrics {
    let mut metrics = Metrics::new("wirepath_explain");
    let seconds = summary.followed.as_secs_f64();
    metrics
        .counter(
            "traced_seconds_total",
            "Time in which packets were traced; counts are of this time.",
        )
        .sample(&[], seconds);
    metrics
        .counter("packets_total", "Packets whose trace began.")
        .sample(&[], summary.packets_count);
    let mut packets = metrics.counter("stage_packets_total", "Packets that passed a stage.");
    for row in &summary.stages {
        packets.sample(&labels(row), row.count);
    }
    let mut times = metrics
        .histogram("stage_seconds", "Time of the timed packets of a stage; not all are timed.");
    for row in &summary.stages {
        let buckets = row.at_most.iter().map(|(ns, count)| (*ns as f64 / NS_PER_S, *count));
        times.buckets(&labels(row), buckets, row.sum_ns as f64 / NS_PER_S, row.timed_count);
    }
    let mut drops = metrics.counter("drops_total", "Packets dropped, by the kernel's reason.");
    for row in &summary.drops {
        drops.sample(&[("reason", row.reason.as_str()), ("function", &row.function)], row.count);
    }
    metrics
        .gauge("unread_datagrams", "Datagrams put into sockets and not read while traced.")
        .sample(&[], summary.unread_count);
    metrics
        .counter("untraced_packets_total", "Packets whose end was not seen.")
        .sample(&[], summary.evicted_count);
    metrics
        .counter("cost_seconds_total", "CPU time of the trace while the kernel counted it.")
        .sample(&[], summary.cost.ns as f64 / NS_PER_S);
    metrics
        .counter("cost_packets_total", "Packets whose trace began in that time.")
        .sample(&[], summary.cost.packets_count);
    metrics
}

fn labels(row: &host::explain::StageRow) -> [(&'static str, &str); 3] {
    [("stage", row.name), ("from", row.from), ("to", row.to)]
}
