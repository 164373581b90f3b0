//! The counts so far, for Prometheus.

use std::fmt::Write;

use model::QUANTILES;

use super::{LINES, Percentiles, Report};
use crate::feed::listen::interval::LineBook;

impl Report {
    /// For Prometheus, text format 0.0.4.
    pub fn prometheus(&self) -> String {
        let mut out = Metrics(String::new());
        let counts = &self.counts;
        type Of = fn(&LineBook) -> u64;
        let per_line: [(&str, &str, Of); 9] = [
            ("datagrams", "Datagrams received.", |l| l.datagrams),
            ("payload_bytes", "Bytes of UDP payload received.", |l| l.payload_bytes),
            ("messages", "Messages received, duplicates included.", |l| l.counts.received),
            ("line_missing", "Messages that the line did not bring.", LineBook::missing),
            ("copies", "Messages that the other line had brought.", |l| l.counts.copies),
            ("repeats", "Messages that the line had brought.", |l| l.counts.repeats),
            ("reordered", "Messages below the line's highest.", |l| l.counts.reordered),
            ("malformed", "Malformed messages.", |l| l.malformed),
            ("dropped_datagrams", "Dropped by the socket.", |l| l.dropped_datagrams),
        ];
        for (name, help, of) in per_line {
            out.head(&format!("{name}_total"), "counter", help);
            for (at, line) in counts.lines.iter().enumerate() {
                out.row(&format!("{name}_total"), &[("line", LINES[at])], of(line) as f64);
            }
        }
        let totals = &counts.totals;
        for (name, help, value) in [
            ("delivered_total", "Messages delivered.", totals.delivered),
            ("gaps_total", "Gaps given up.", totals.gaps),
            ("missing_total", "Messages that no line brought.", totals.missing),
            ("restarts_total", "Sequences that began again.", totals.restarts),
        ] {
            out.head(name, "counter", help);
            out.row(name, &[], value as f64);
        }
        if let Some(recovery) = &counts.recovery {
            out.head("recovered_total", "counter", "Messages that answers to requests brought.");
            out.row("recovered_total", &[], recovery.recovered as f64);
        }
        let name = "latency_seconds";
        out.head(name, "summary", "Latency since the begin; absent for lines with loss.");
        for line in self.lines() {
            for (segment, percentiles, at) in [
                ("kernel_to_app", &line.kernel_to_app, None),
                ("match_to_app", &line.match_to_app, Some(&self.match_to_app)),
            ] {
                let place = usize::from(line.name == LINES[1]);
                let count = match at {
                    None => self.kernel_to_app[place].len(),
                    Some(excess) => excess[place].count(),
                };
                let labels = [("segment", segment), ("line", line.name)];
                out.latency(name, &labels, percentiles, count);
            }
        }
        let labels = [("segment", "match_to_app"), ("line", "delivered")];
        out.latency(name, &labels, &self.delivered_latency(), self.match_to_app[2].count());
        out.0
    }
}

/// Prometheus text.
struct Metrics(String);

impl Metrics {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP wirepath_feed_{name} {help}");
        let _ = writeln!(self.0, "# TYPE wirepath_feed_{name} {kind}");
    }

    fn row(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let labels: Vec<String> =
            labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
        let labels =
            if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "wirepath_feed_{name}{labels} {value}");
    }

    fn latency(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        percentiles: &Percentiles,
        count: u64,
    ) {
        if let Ok(percentiles) = percentiles {
            for (suffix, ns) in percentiles {
                let known = QUANTILES.iter().find(|(_, known)| known == suffix);
                let quantile = known.map_or(1.0, |(quantile, _)| *quantile).to_string();
                let labels = [labels, &[("quantile", quantile.as_str())]].concat();
                self.row(name, &labels, *ns as f64 / 1e9);
            }
        }
        self.row(&format!("{name}_count"), labels, count as f64);
    }
}
