//! Report of a replay.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;

use hdrhistogram::Histogram;
use model::{QUANTILES, SAMPLES_BEYOND_QUANTILE};
use report::screen::Screen;
use report::units::counted;
use serde::Serialize;

use super::{LINES, LineCounts, Served};
use crate::TEXT_COLUMN;
use crate::arbiter::SequenceDomain;
use crate::capture;
use crate::messages::{Digest, domain_name};

/// Result of a replay.
#[derive(Debug, Clone)]
pub struct ReplayReport {
    /// First to last datagram.
    pub elapsed_ns: u64,
    /// Datagrams of the source.
    pub datagrams: u64,
    /// Messages of the source.
    pub messages: u64,
    /// Malformed messages of the source.
    pub malformed: u64,
    /// Datagrams of the source of another protocol, sent as they are.
    pub foreign: u64,
    /// Destination and counts of each line.
    pub lines: Vec<(SocketAddrV4, LineCounts)>,
    /// Union of all lines; `None` for two lines of a capture, which may have differed already.
    pub union: Option<Union>,
    /// Actual minus intended send time; empty without a schedule.
    pub lag: Histogram<u64>,
    /// Datagrams captured earlier than their predecessor in the file; sent together with it.
    pub backwards: u64,
    /// Counts of the capture.
    pub capture: Option<capture::Counts>,
    /// First failure to send.
    pub failure: Option<String>,
    /// Seed of the faults.
    pub fault_seed: u64,
    /// The user ended the replay.
    pub was_stopped: bool,
    /// Requests for messages, if they were served.
    pub served: Option<Served>,
}

/// Union of the messages of all lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Union {
    /// Messages on at least one line.
    pub carried: u64,
    pub lost: u64,
    /// Lost messages without a later message of their domain, which a receiver cannot detect.
    pub lost_at_end: u64,
    /// Digest per domain of the messages on at least one line.
    pub digests: Vec<(SequenceDomain, Digest)>,
}

/// Document of `feed replay --json`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplayDocument<'a> {
    schema: u32,
    command: &'static str,
    elapsed_ns: u64,
    datagram_count: u64,
    message_count: u64,
    malformed_count: u64,
    foreign_datagram_count: u64,
    lines: Vec<ReplayLine>,
    union: Option<UnionDocument>,
    lag: BTreeMap<String, u64>,
    backwards_count: u64,
    fault_seed: u64,
    failure: Option<&'a str>,
    stopped: bool,
    /// Absent without `--serve`.
    served: Option<Served>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct ReplayLine {
    line: &'static str,
    to: String,
    #[serde(flatten)]
    counts: LineCounts,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct UnionDocument {
    carried_count: u64,
    lost_count: u64,
    lost_at_end_count: u64,
    digests: BTreeMap<String, String>,
}

impl ReplayReport {
    /// Quantiles of the lag with enough samples beyond them, and the maximum, nanoseconds.
    pub fn lag_ns(&self) -> Vec<(&'static str, u64)> {
        if self.lag.is_empty() {
            return Vec::new();
        }
        let count = self.lag.len() as f64;
        QUANTILES
            .iter()
            .filter(|(quantile, _)| count * (1.0 - quantile) + 1e-6 >= SAMPLES_BEYOND_QUANTILE)
            .map(|(quantile, suffix)| (*suffix, self.lag.value_at_quantile(*quantile)))
            .chain([("max", self.lag.max())])
            .collect()
    }

    /// Report as JSON.
    pub fn document(&self) -> ReplayDocument<'_> {
        ReplayDocument {
            schema: model::SCHEMA,
            command: "feed replay",
            elapsed_ns: self.elapsed_ns,
            datagram_count: self.datagrams,
            message_count: self.messages,
            malformed_count: self.malformed,
            foreign_datagram_count: self.foreign,
            lines: (self.lines.iter().zip(LINES))
                .map(|((to, counts), line)| ReplayLine {
                    line,
                    to: to.to_string(),
                    counts: *counts,
                })
                .collect(),
            union: self.union.as_ref().map(|union| UnionDocument {
                carried_count: union.carried,
                lost_count: union.lost,
                lost_at_end_count: union.lost_at_end,
                digests: (union.digests.iter())
                    .map(|(domain, digest)| (domain_name(*domain), digest.to_string()))
                    .collect(),
            }),
            lag: self.lag_ns().iter().map(|(name, ns)| (format!("{name}_ns"), *ns)).collect(),
            backwards_count: self.backwards,
            fault_seed: self.fault_seed,
            failure: self.failure.as_deref(),
            stopped: self.was_stopped,
            served: self.served,
        }
    }

    /// Report as text.
    pub fn text(&self) -> String {
        let mut screen = Screen::plain().with_column(TEXT_COLUMN);
        let seconds = self.elapsed_ns as f64 / 1e9;
        let mut source =
            format!("{} datagrams, {} messages in {seconds:.3} s", self.datagrams, self.messages);
        if seconds > 0.0 {
            source += &format!(" ({:.0} messages/s)", self.messages as f64 / seconds);
        }
        source += &counted(&[
            (self.malformed, "malformed"),
            (self.foreign, "datagrams of another protocol"),
        ]);
        screen.entry("source", source);
        for ((to, counts), name) in self.lines.iter().zip(LINES) {
            let faults = counted(&[
                (counts.dropped, "dropped"),
                (counts.dropped_at_end, "of them at the end of their domain"),
                (counts.duplicated, "duplicated"),
                (counts.reordered, "reordered"),
                (counts.unsent_datagrams, "DATAGRAMS NOT SENT"),
            ]);
            let (datagrams, messages) = (counts.datagrams, counts.messages);
            let text = format!("to {to}: {datagrams} datagrams, {messages} messages{faults}");
            screen.entry(&format!("line {name}"), text);
        }
        if let Some(union) = self.union.as_ref().filter(|union| union.lost > 0) {
            let text = format!(
                "{} messages on at least one line, {} on none ({} of them at the end of their domain); fault seed {}",
                union.carried, union.lost, union.lost_at_end, self.fault_seed
            );
            screen.entry("union", text);
        }
        screen.entry("lag", self.lag_text());
        if self.backwards > 0 {
            let count = self.backwards;
            let text =
                format!("{count} datagrams have earlier time stamps than their predecessors");
            screen.entry("note", text);
        }
        if let Some(Served { requests, messages, refused }) = self.served {
            let text = format!("{requests} requests with {messages} messages; {refused} refused");
            screen.entry("served", text);
        }
        if let Some(failure) = &self.failure {
            screen.entry("note", failure);
        }
        screen.finish()
    }

    fn lag_text(&self) -> String {
        let lag: Vec<String> = self
            .lag_ns()
            .iter()
            .map(|(suffix, ns)| {
                format!("{} {:.1} µs", suffix.replace("p999", "p99.9"), *ns as f64 / 1e3)
            })
            .collect();
        if lag.is_empty() {
            return "none (no schedule)".into();
        }
        format!("{} behind the intended time", lag.join(", "))
    }
}
