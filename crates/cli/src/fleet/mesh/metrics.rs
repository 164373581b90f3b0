//! `fleet mesh --listen`: the latest repeats of a watched mesh, for Prometheus.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use fleet::mesh::{MeshTable, Sign};
use report::metrics::Metrics;

use super::document::{MeshDocument, PairDocument};

const NS_PER_S: f64 = 1e9;

/// Counts since the watch began.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) repeats: u64,
    /// Repeats that were left out: another experiment ran, or a server of the fleet did not answer.
    pub(super) skipped: u64,
    /// Time of the end of the latest repeat, seconds since 1970.
    ended_s: u64,
    pairs: BTreeMap<(usize, usize), PairTotals>,
}

#[derive(Debug, Default)]
struct PairTotals {
    sent: u64,
    lost: u64,
    failed: u64,
}

impl Totals {
    pub(super) fn add(&mut self, table: &MeshTable) {
        self.repeats = self.repeats.saturating_add(1);
        self.ended_s =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        for (pair, cell) in &table.cells {
            let of = self.pairs.entry(*pair).or_default();
            of.sent = of.sent.saturating_add(cell.sent);
            of.lost = of.lost.saturating_add(cell.lost);
            of.failed = of.failed.saturating_add(cell.why.is_some().into());
        }
    }
}

pub(super) fn metrics(document: &MeshDocument, totals: &Totals) -> Metrics {
    let mut metrics = Metrics::new("wirepath_mesh");
    metrics
        .counter("repeats_total", "Times that all pairs were measured.")
        .sample(&[], totals.repeats);
    let skipped =
        "Repeats left out: another experiment ran, or a server of the fleet did not answer.";
    metrics.counter("skipped_repeats_total", skipped).sample(&[], totals.skipped);
    metrics
        .gauge("last_repeat_timestamp_seconds", "End of the latest repeat, seconds since 1970.")
        .sample(&[], totals.ended_s);
    let mut times =
        metrics.gauge("rtt_seconds", "Median round trip of a pair in its latest measurement.");
    for pair in &document.pairs {
        if let Some(Some(ns)) = pair.rtt_ns.last() {
            times.sample(&ends(pair), ns / NS_PER_S);
        }
    }
    counts(&mut metrics, document, totals);
    let mut ratios =
        metrics.gauge("host_ratio", "Round trips of a host's pairs over the typical one.");
    for of in document.hosts.iter().filter(|_| !document.pairs.is_empty()) {
        ratios.sample(&[("host", of.host.as_str())], of.ratio);
    }
    let mut named =
        metrics.gauge("named", "1 for a host, or a link to another one, that stands out now.");
    for of in document.suspects.iter().filter(|of| of.named) {
        let sign = match of.sign {
            Sign::Slow(_) => "slow",
            Sign::Loses(_) => "loses",
        };
        let other = of.other.as_deref().unwrap_or_default();
        named.sample(&[("host", of.host.as_str()), ("other", other), ("sign", sign)], 1);
    }
    metrics
}

fn counts(metrics: &mut Metrics, document: &MeshDocument, totals: &Totals) {
    type Count = fn(&PairTotals) -> u64;
    let families: [(&str, &str, Count); 3] = [
        ("sent_datagrams_total", "Datagrams sent by a pair.", |of| of.sent),
        ("lost_datagrams_total", "Datagrams without an answer.", |of| of.lost),
        ("failures_total", "Measurements of a pair that failed.", |of| of.failed),
    ];
    for (family, help, count) in families {
        let mut samples = metrics.counter(family, help);
        for (&(one, other), of) in &totals.pairs {
            let [one, other] = [one, other].map(|at| document.hosts[at].host.as_str());
            samples.sample(&[("one", one), ("other", other)], count(of));
        }
    }
}

fn ends(pair: &PairDocument) -> [(&'static str, &str); 2] {
    [("one", &pair.one), ("other", &pair.other)]
}
