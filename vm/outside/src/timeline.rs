//! One trial as a trace that <https://ui.perfetto.dev> reads.
//!
//! Source: the Trace Event Format of Chromium, which Perfetto reads as JSON.

use serde_json::{Value, json};
use sys::bpf::kvm::KvmSpan;

use crate::kvm::reason;

/// Row of the timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Track {
    Doorbells,
    FromGuest,
    ToGuest,
    Interrupts,
    Pin,
}

impl Track {
    const ALL: [Track; 5] =
        [Track::Doorbells, Track::FromGuest, Track::ToGuest, Track::Interrupts, Track::Pin];

    fn name(self) -> &'static str {
        match self {
            Track::Doorbells => "doorbells",
            Track::FromGuest => "frames from the guest",
            Track::ToGuest => "frames to the guest",
            Track::Interrupts => "interrupts",
            Track::Pin => "pin",
        }
    }
}

/// An interval, or a moment if begin and end are one. CLOCK_REALTIME.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) track: Track,
    pub(crate) name: &'static str,
    pub(crate) begin_ns: u64,
    pub(crate) end_ns: u64,
}

/// The trace in JSON; its times are CLOCK_MONOTONIC, microseconds.
///
/// - `realtime_ahead_ns`: CLOCK_REALTIME less CLOCK_MONOTONIC.
pub(crate) fn trace(marks: &[Mark], spans: &[KvmSpan], realtime_ahead_ns: u64) -> String {
    let mut events: Vec<Value> = Vec::new();
    for track in Track::ALL.iter().filter(|track| marks.iter().any(|mark| mark.track == **track)) {
        events.push(row(*track as u64 + 1, track.name()));
    }
    for mark in marks {
        let begin_ns = mark.begin_ns.saturating_sub(realtime_ahead_ns);
        let ns = mark.end_ns.saturating_sub(mark.begin_ns);
        events.push(interval(mark.track as u64 + 1, mark.name, begin_ns, ns));
    }
    let mut threads: Vec<u32> = spans.iter().map(|span| span.thread).collect();
    threads.sort_unstable();
    threads.dedup();
    for (at, thread) in threads.iter().enumerate() {
        events.push(row(u64::from(*thread), &format!("exits of vCPU {at}")));
    }
    for span in spans {
        let ns = span.end_ns - span.begin_ns;
        events.push(interval(u64::from(span.thread), &reason(span.reason), span.begin_ns, ns));
    }
    json!({ "displayTimeUnit": "ns", "traceEvents": events }).to_string()
}

fn row(thread: u64, name: &str) -> Value {
    json!({ "ph": "M", "name": "thread_name", "pid": 1, "tid": thread, "args": { "name": name } })
}

fn interval(thread: u64, name: &str, begin_ns: u64, ns: u64) -> Value {
    let at_us = begin_ns as f64 / 1000.0;
    match ns {
        0 => json!({ "ph": "i", "s": "t", "name": name, "pid": 1, "tid": thread, "ts": at_us }),
        _ => {
            let us = ns as f64 / 1000.0;
            json!({ "ph": "X", "name": name, "pid": 1, "tid": thread, "ts": at_us, "dur": us })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first<'a>(events: &'a [Value], phase: &str) -> &'a Value {
        events.iter().find(|event| event["ph"] == phase).unwrap()
    }

    #[test]
    fn both_clocks_meet_on_one_axis() {
        let mark =
            Mark { track: Track::Doorbells, name: "doorbell", begin_ns: 5_000, end_ns: 5_000 };
        let exit = KvmSpan { begin_ns: 3_000, end_ns: 3_500, reason: 30 | 1 << 32, thread: 77 };
        let trace: Value = serde_json::from_str(&trace(&[mark], &[exit], 2_000)).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        assert_eq!(first(events, "i")["ts"], 3.0);
        assert_eq!(
            (&first(events, "X")["ts"], &first(events, "X")["dur"]),
            (&json!(3.0), &json!(0.5))
        );
        assert_eq!(first(events, "X")["name"], "io");
        let rows: Vec<_> = events.iter().filter(|event| event["ph"] == "M").collect();
        assert_eq!(rows[1]["args"]["name"], "exits of vCPU 0");
        assert_eq!(rows.len(), 2);
    }
}
