//! What a replay says at its end.

use std::fmt::Write;

use model::{QUANTILES, SAMPLES_BEYOND_QUANTILE};
use serde_json::{Value, json};

use super::super::messages::domain_name;
use super::{LINES, Report};

impl Report {
    /// Quantiles of the lag with enough samples behind them, and the maximum, nanoseconds.
    pub fn lag_ns(&self) -> Vec<(&'static str, u64)> {
        if self.lag.is_empty() {
            return Vec::new();
        }
        let count = self.lag.len() as f64;
        let enough = |quantile: f64| count * (1.0 - quantile) + 1e-6 >= SAMPLES_BEYOND_QUANTILE;
        let known = QUANTILES.iter().filter(|(quantile, _)| enough(*quantile));
        known
            .map(|(quantile, suffix)| (*suffix, self.lag.value_at_quantile(*quantile)))
            .chain([("max", self.lag.max())])
            .collect()
    }

    /// One document.
    pub fn json(&self) -> Value {
        let lines = self.lines.iter().zip(LINES).map(|((to, counts), name)| {
            json!({
                "line": name,
                "to": to.to_string(),
                "datagram_count": counts.datagrams,
                "payload_bytes": counts.payload_bytes,
                "dropped_datagram_count": counts.dropped_datagrams,
                "duplicated_datagram_count": counts.duplicated_datagrams,
                "delayed_datagram_count": counts.delayed_datagrams,
                "unsent_datagram_count": counts.unsent_datagrams,
                "message_count": counts.messages,
                "dropped_count": counts.dropped,
                "dropped_at_end_count": counts.dropped_at_end,
                "duplicated_count": counts.duplicated,
                "reordered_count": counts.reordered,
            })
        });
        let lag = self.lag_ns().into_iter().map(|(suffix, ns)| (format!("{suffix}_ns"), json!(ns)));
        json!({
            "schema": model::SCHEMA,
            "command": "feed replay",
            "elapsed_ns": self.elapsed_ns,
            "datagram_count": self.datagrams,
            "message_count": self.messages,
            "malformed_count": self.malformed,
            "lines": lines.collect::<Vec<_>>(),
            "union": self.union.as_ref().map(|union| json!({
                "carried_count": union.carried,
                "lost_count": union.lost,
                "lost_at_end_count": union.lost_at_end,
                "digests": union.digests.iter()
                    .map(|(domain, digest)| (domain_name(*domain), json!(digest.to_string())))
                    .collect::<serde_json::Map<_, _>>(),
            })),
            "lag": Value::Object(lag.collect()),
            "backwards_count": self.backwards,
            "fault_seed": self.fault_seed,
            "failure": self.failure,
            "stopped": self.was_stopped,
        })
    }

    /// A few lines.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let seconds = self.elapsed_ns as f64 / 1e9;
        let _ = write!(
            out,
            "source     {} datagrams, {} messages in {seconds:.3} s",
            self.datagrams, self.messages
        );
        if seconds > 0.0 {
            let _ = write!(out, " ({:.0} messages/s)", self.messages as f64 / seconds);
        }
        if self.malformed > 0 {
            let _ = write!(out, ", {} malformed", self.malformed);
        }
        out.push('\n');
        for ((to, counts), name) in self.lines.iter().zip(LINES) {
            let _ = write!(
                out,
                "line {name}     to {to}: {} datagrams, {} messages",
                counts.datagrams, counts.messages
            );
            for (count, what) in [
                (counts.dropped, "dropped"),
                (counts.dropped_at_end, "of them behind the last of their domain"),
                (counts.duplicated, "duplicated"),
                (counts.reordered, "reordered"),
            ] {
                if count > 0 {
                    let _ = write!(out, ", {count} {what}");
                }
            }
            if counts.unsent_datagrams > 0 {
                let _ = write!(out, ", {} DATAGRAMS NOT SENT", counts.unsent_datagrams);
            }
            out.push('\n');
        }
        if let Some(union) = self.union.as_ref().filter(|union| union.lost > 0) {
            let _ = writeln!(
                out,
                "union      {} messages on at least one line, {} on none ({} of them behind the \
                 last of their domain); fault seed {}",
                union.carried, union.lost, union.lost_at_end, self.fault_seed
            );
        }
        let lag = self.lag_ns();
        if lag.is_empty() {
            out.push_str("lag        none: without a schedule nothing is late\n");
        } else {
            let lag: Vec<String> = (lag.iter())
                .map(|(suffix, ns)| {
                    format!("{} {:.1} µs", suffix.replace("p999", "p99.9"), *ns as f64 / 1e3)
                })
                .collect();
            let _ = writeln!(out, "lag        {} behind the intended time", lag.join(", "));
        }
        if self.backwards > 0 {
            let _ = writeln!(
                out,
                "note       {} datagrams were captured before one ahead of them in the file",
                self.backwards
            );
        }
        if let Some(failure) = &self.failure {
            let _ = writeln!(out, "note       {failure}");
        }
        out
    }
}
