//! State of a running forwarder as status line, JSON and Prometheus metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use crate::ports::{PoolBalance, XskStatistics};
use report::metrics::Metrics;
use serde_json::{Value, json};

use super::{KeepaliveLive, PathLive, keepalive, path};
use crate::forwarder::NamedCounts;
use crate::order::OrderCounters;

/// State of a running forwarder.
#[derive(Debug, Clone)]
pub struct Live {
    /// Time since the start.
    pub up: Duration,
    /// Names of the tunnels.
    pub tunnels: Vec<String>,
    /// Frames by outcome.
    pub counts: NamedCounts,
    /// Order counters: into the tunnels, out of the tunnels.
    pub books: [OrderCounters; 2],
    /// Frames of the pool by owner.
    pub pool: PoolBalance,
    /// Known addresses.
    pub address_count: usize,
    /// Frames by worker.
    pub worker_frames: Vec<u64>,
    /// Workers that have panicked.
    pub dead_workers: usize,
    /// Failed sends and waits.
    pub error_count: u64,
    /// Kernel statistics of the AF_XDP sockets: port, underlay.
    pub rings: [Option<XskStatistics>; 2],
    /// Frames received by each queue: port, underlay.
    pub queue_frames: [Vec<u64>; 2],
    /// Keepalives of the tunnels that have them, by their names.
    pub keepalives: Vec<(String, KeepaliveLive)>,
    /// Frames that the kernel dropped before or behind the forwarder, by reason.
    pub kernel_drops: NamedCounts,
    /// MTUs of the paths to the far ends.
    pub paths: PathLive,
}

const DIRECTIONS: [&str; 2] = ["into_tunnels", "out_of_tunnels"];
const PORTS: [&str; 2] = ["port", "underlay"];
/// Frames that found the ring full, or no buffer, and that the kernel refused to send: port, underlay.
const RING_REASONS: [[&str; 3]; 2] = [
    ["port_ring_full", "port_no_buffer", "port_refused"],
    ["underlay_ring_full", "underlay_no_buffer", "underlay_refused"],
];

/// Counters that are not drops; neither are those of the fast path about the way of a frame.
const SENT: [&str; 9] = [
    "into_tunnels_sent",
    "out_of_tunnels_sent",
    "flooded",
    "unlearnt",
    "evicted",
    "odd_ecn",
    "checksums_finished",
    "seam_forced",
    "mss_clamped",
];
const WAYS: [&str; 3] = ["fast_", "slow_", "too_big_"];

impl Live {
    /// Sum of all counters with this name.
    pub fn count(&self, name: &str) -> u64 {
        self.counts.iter().filter(|(known, _)| *known == name).map(|(_, count)| count).sum()
    }

    /// Frames dropped by reason since the start, all reasons, by name: those of the workers and of the programs
    /// in the kernel, and what the kernel itself dropped.
    pub fn drop_counts(&self) -> BTreeMap<&'static str, u64> {
        let mut sums = BTreeMap::new();
        let mut add = |name, count| *sums.entry(name).or_default() += count;
        let workers = self.counts.iter().filter(|(name, _)| {
            !SENT.contains(name) && !WAYS.iter().any(|way| name.starts_with(way))
        });
        workers.chain(&self.kernel_drops).for_each(|(name, count)| add(*name, *count));
        for (reasons, ring) in RING_REASONS.iter().zip(&self.rings) {
            let Some(ring) = ring else { continue };
            let counts =
                [ring.rx_ring_full_count, ring.rx_dropped_count, ring.tx_invalid_descriptor_count];
            reasons.iter().zip(counts).for_each(|(name, count)| add(*name, count));
        }
        for books in &self.books {
            add("late", books.late_frames);
            add("undelivered", books.undelivered_frames);
        }
        add("oversized", self.pool.oversized_count);
        add("misnamed", self.pool.violation_count);
        sums
    }

    /// The same without zeros.
    pub fn drops(&self) -> Vec<(&'static str, u64)> {
        self.drop_counts().into_iter().filter(|(_, count)| *count > 0).collect()
    }

    /// Status line: rates since `before`, drops since the start.
    pub fn text(&self, before: Option<&Live>) -> String {
        let elapsed = before.map_or(self.up, |before| self.up.saturating_sub(before.up));
        let seconds = elapsed.as_secs_f64().max(1e-3);
        let [into, out_of] = ["into_tunnels_sent", "out_of_tunnels_sent"].map(|name| {
            let was = before.map_or(0, |before| before.count(name));
            self.count(name).saturating_sub(was) as f64 / seconds
        });
        let mut out = format!(
            "{:>6.0} s  into tunnels {into:>9.0}/s  out {out_of:>9.0}/s  {} addresses",
            self.up.as_secs_f64(),
            self.address_count
        );
        for (name, count) in self.drops() {
            let _ = write!(out, "  {name} {count}");
        }
        if self.dead_workers > 0 {
            let _ = write!(out, "  {} workers dead", self.dead_workers);
        }
        out.push_str(&keepalive::text(&self.keepalives));
        out
    }

    /// One JSON object.
    pub fn json(&self) -> Value {
        let mut counts = serde_json::Map::new();
        for (name, _) in &self.counts {
            counts.insert((*name).to_owned(), self.count(name).into());
        }
        json!({
            "up_s": self.up.as_secs_f64(),
            "tunnels": self.tunnels,
            "frames": counts,
            "drops": self.drops().into_iter().collect::<BTreeMap<_, _>>(),
            "into_tunnels": order_json(&self.books[0]),
            "out_of_tunnels": order_json(&self.books[1]),
            "addresses": self.address_count,
            "workers": self.worker_frames,
            "queues": { "port": self.queue_frames[0], "underlay": self.queue_frames[1] },
            "dead_workers": self.dead_workers,
            "errors": self.error_count,
            "pool": {
                "frames": self.pool.frame_count,
                "free": self.pool.free_count,
                "misnamed": self.pool.violation_count,
                "oversized": self.pool.oversized_count,
            },
            "keepalive": keepalive::json(&self.keepalives),
            "path": path::json(&self.paths),
            "rings": {
                "port": self.rings[0].map(ring_json),
                "underlay": self.rings[1].map(ring_json),
            },
        })
    }

    /// Metrics for Prometheus.
    pub fn metrics(&self) -> Metrics {
        let mut metrics = Metrics::new("wirepath_tunnel");
        let names: BTreeSet<&str> = self.counts.iter().map(|(name, _)| *name).collect();
        let mut frames = metrics.counter("frames_total", "Frames by outcome.");
        for name in names {
            frames.sample(&[("fate", name)], self.count(name));
        }
        let mut drops = metrics.counter("drops_total", "Frames dropped by reason.");
        for (reason, count) in self.drop_counts() {
            drops.sample(&[("reason", reason)], count);
        }
        type Count = fn(&OrderCounters) -> u64;
        let per_direction: [(&str, &str, Count); 5] = [
            ("admitted_frames_total", "Frames admitted.", |b| b.admitted_frames),
            ("forwarded_frames_total", "Frames forwarded in order.", |b| b.forwarded_frames),
            ("holes_total", "Tickets with nothing to send.", |b| b.hole_count),
            ("passed_total", "Tickets that timed out.", |b| b.timed_out_count),
            ("window_full_total", "Admissions that found the window full.", |b| b.refused_count),
        ];
        for (name, help, count) in per_direction {
            let mut family = metrics.counter(name, help);
            for (direction, books) in DIRECTIONS.iter().zip(&self.books) {
                family.sample(&[("direction", direction)], count(books));
            }
        }
        let mut workers = metrics.counter("worker_frames_total", "Frames by worker.");
        for (n, count) in self.worker_frames.iter().enumerate() {
            workers.sample(&[("worker", &n.to_string())], *count);
        }
        let mut queues = metrics.counter("queue_frames_total", "Frames by receive queue.");
        for (port, counts) in PORTS.iter().zip(&self.queue_frames) {
            for (n, count) in counts.iter().enumerate() {
                queues.sample(&[("port", port), ("queue", &n.to_string())], *count);
            }
        }
        keepalive::add_metrics(&mut metrics, &self.keepalives);
        path::add_metrics(&mut metrics, &self.paths);
        let mut full = metrics.counter("ring_full_total", "Frames that found the ring full.");
        for (port, ring) in PORTS.iter().zip(&self.rings) {
            if let Some(ring) = ring {
                full.sample(&[("port", port)], ring.rx_ring_full_count + ring.rx_dropped_count);
            }
        }
        metrics.gauge("addresses", "Known addresses.").sample(&[], self.address_count);
        metrics.gauge("dead_workers", "Workers that have panicked.").sample(&[], self.dead_workers);
        metrics.counter("errors_total", "Failed sends and waits.").sample(&[], self.error_count);
        metrics
            .counter("oversized_total", "Packets too large for a frame.")
            .sample(&[], self.pool.oversized_count);
        metrics
            .gauge("pool_free_frames", "Unused frames of the pool.")
            .sample(&[], self.pool.free_count);
        metrics
    }
}

fn order_json(counters: &OrderCounters) -> Value {
    json!({
        "admitted": counters.admitted_frames,
        "forwarded": counters.forwarded_frames,
        "dropped": counters.dropped_frames,
        "late": counters.late_frames,
        "undelivered": counters.undelivered_frames,
        "in_flight": counters.in_flight_frames(),
        "tickets": counters.ticket_count,
        "holes": counters.hole_count,
        "passed": counters.timed_out_count,
        "window_full": counters.refused_count,
    })
}

fn ring_json(ring: XskStatistics) -> Value {
    json!({
        "rx_dropped": ring.rx_dropped_count,
        "rx_ring_full": ring.rx_ring_full_count,
        "fill_ring_empty": ring.fill_ring_empty_count,
        "rx_invalid": ring.rx_invalid_descriptor_count,
        "tx_invalid": ring.tx_invalid_descriptor_count,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(up_s: u64, sent: u64) -> Live {
        Live {
            up: Duration::from_secs(up_s),
            tunnels: vec!["b".into()],
            counts: vec![("into_tunnels_sent", sent), ("looped", 2), ("looped", 3), ("runt", 0)],
            books: Default::default(),
            pool: PoolBalance::default(),
            address_count: 1,
            worker_frames: vec![7],
            dead_workers: 0,
            error_count: 0,
            rings: [Some(XskStatistics { rx_ring_full_count: 4, ..Default::default() }), None],
            queue_frames: [vec![7, 5], vec![6]],
            keepalives: Vec::new(),
            kernel_drops: vec![("underlay_tx_dropped", 6)],
            paths: PathLive::default(),
        }
    }

    #[test]
    fn status_line_shows_the_last_rate_and_all_drops() {
        let text = live(11, 5_000).text(Some(&live(10, 3_000)));
        assert!(text.contains("2000/s"), "{text}");
        assert!(text.contains("looped 5") && text.contains("underlay_tx_dropped 6"), "{text}");
        assert!(text.contains("port_ring_full 4") && !text.contains("runt"), "{text}");
    }

    #[test]
    fn drops_have_one_list_in_every_form() {
        let live = live(1, 10);
        let expected = [("looped", 5), ("port_ring_full", 4), ("underlay_tx_dropped", 6)];
        assert_eq!(live.drops(), expected);
        let (json, metrics, text) = (live.json(), live.metrics().text(), live.text(None));
        for (reason, count) in expected {
            assert_eq!(json["drops"][reason], count, "{json}");
            let metric = format!("wirepath_tunnel_drops_total{{reason=\"{reason}\"}} {count}\n");
            assert!(metrics.contains(&metric), "{metrics}");
            assert!(text.contains(&format!("  {reason} {count}")), "{text}");
        }
        assert!(
            metrics.contains("reason=\"late\"} 0\n"),
            "a reason is there before its first drop"
        );
        assert!(!metrics.contains("reason=\"into_tunnels_sent\""), "{metrics}");
    }

    #[test]
    fn counters_with_one_name_become_one_metric() {
        let text = live(1, 10).metrics().text();
        assert_eq!(text.matches("fate=\"looped\"").count(), 1, "{text}");
        assert!(text.contains("wirepath_tunnel_frames_total{fate=\"looped\"} 5\n"), "{text}");
        assert!(text.contains("wirepath_tunnel_worker_frames_total{worker=\"0\"} 7\n"), "{text}");
        assert_eq!(live(1, 10).json()["frames"]["looped"], 5);
    }
}
