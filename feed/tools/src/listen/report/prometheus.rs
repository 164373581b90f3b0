//! Counts so far as Prometheus metrics.

use model::QUANTILES;
use report::metrics::{Family, Metrics};

use super::{LINES, ListenReport, Percentiles};
use crate::listen::interval::LineStats;

impl ListenReport {
    /// Metrics for Prometheus.
    pub fn metrics(&self) -> Metrics {
        let mut out = Metrics::new("wirepath_feed");
        let counts = &self.counts;
        type Count = fn(&LineStats) -> u64;
        let per_line: [(&'static str, &'static str, Count); 9] = [
            ("datagrams_total", "Datagrams received.", |l| l.datagrams),
            ("payload_bytes_total", "Bytes of UDP payload received.", |l| l.payload_bytes),
            ("messages_total", "Messages received, duplicates included.", |l| l.counts.received),
            (
                "line_missing_total",
                "Expected messages that the line did not carry.",
                LineStats::missing,
            ),
            ("copies_total", "Duplicates of the other line.", |l| l.counts.copies),
            ("repeats_total", "Duplicates of the same line.", |l| l.counts.repeats),
            ("reordered_total", "Messages below the line's highest.", |l| l.counts.reordered),
            ("malformed_total", "Malformed messages.", |l| l.malformed),
            ("dropped_datagrams_total", "Dropped by the socket.", |l| l.dropped_datagrams),
        ];
        for (name, help, count) in per_line {
            let mut family = out.counter(name, help);
            let lines = counts.lines.iter().zip(LINES);
            let known = lines.filter(|(line, _)| name != "line_missing_total" || !line.is_silent());
            for (line, name) in known {
                family.sample(&[("line", name)], count(line));
            }
        }
        let totals = &counts.totals;
        for (name, help, value) in [
            ("delivered_total", "Messages delivered.", totals.delivered),
            ("gaps_total", "Gaps that timed out.", totals.gaps),
            ("missing_total", "Messages that no line carried.", totals.missing),
            ("restarts_total", "Sequence restarts.", totals.restarts),
        ] {
            let mut family = out.counter(name, help);
            if name != "missing_total" || !self.is_silent() {
                family.sample(&[], value);
            }
        }
        if let Some(recovery) = &counts.recovery {
            let mut family = out.counter("recovered_total", "Retransmitted messages.");
            family.sample(&[], recovery.recovered);
        }
        let help = "Latency since the start; a missing message is infinitely late.";
        let mut family = out.summary("latency_seconds", help);
        for (at, line) in self.lines().iter().enumerate() {
            let count = self.kernel_to_app[at].len();
            latency(&mut family, "kernel_to_app", line.name, &line.kernel_to_app, count);
            let count = self.match_to_app[at].count();
            latency(&mut family, "match_to_app", line.name, &line.match_to_app, count);
        }
        let count = self.match_to_app[2].count();
        latency(&mut family, "match_to_app", "delivered", &self.delivered_latency(), count);
        out
    }
}

fn latency(
    family: &mut Family<'_>,
    segment: &str,
    line: &str,
    percentiles: &Percentiles,
    count: u64,
) {
    let known = percentiles.iter().flatten();
    let values = known.map(|(name, ns)| {
        let quantile = QUANTILES.iter().find(|(_, known)| known == name);
        (quantile.map_or(1.0, |(quantile, _)| *quantile), *ns as f64 / 1e9)
    });
    family.quantiles(&[("segment", segment), ("line", line)], values, count);
}
