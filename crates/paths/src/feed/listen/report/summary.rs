//! The whole run, as text and as JSON.

use std::fmt::Write;

use io::multicast::Group;
use serde_json::{Value, json};

use super::{LineReport, Percentiles, Report, time};
use crate::feed::arbiter::LineCounts;

impl Report {
    /// The whole run.
    pub fn summary_json(&self) -> Value {
        let counts = &self.counts;
        let lines = self.lines().into_iter().zip(&self.groups).map(|(line, group)| {
            let (least, most) = line.book.dropped_messages();
            json!({
                "line": line.name,
                "group": group.address.to_string(),
                "interface": group.ifname,
                "source": group.source.map(|ip| ip.to_string()),
                "datagram_count": line.book.datagrams,
                "payload_bytes": line.book.payload_bytes,
                "unstamped_count": line.book.unstamped,
                "malformed_count": line.book.malformed,
                "expected_count": line.book.expected,
                "brought_count": line.book.brought,
                "missing_count": line.book.missing(),
                "dropped_datagram_count": line.book.dropped_datagrams,
                "dropped_message_count": { "least": least, "most": most },
                "counts": line_json(&line.book.counts),
                "receive_buffer_bytes": line.book.receive_buffer_bytes,
                "syscall_count": line.book.syscalls,
                "kernel_to_app": percentiles_json(&line.kernel_to_app),
                "match_to_app": percentiles_json(&line.match_to_app),
            })
        });
        let totals = &counts.totals;
        json!({
            "schema": model::SCHEMA,
            "command": "feed listen",
            "elapsed_ns": self.elapsed_ns,
            "lines": lines.collect::<Vec<_>>(),
            "delivered_count": totals.delivered,
            "gap_count": totals.gaps,
            "missing_count": totals.missing,
            "missing_at_end_count": counts.missing_at_end,
            "held_count": totals.held,
            "held_count_max": totals.held_max,
            "hold_overflow_count": totals.overflows,
            "restart_count": totals.restarts,
            "match_to_app": percentiles_json(&self.delivered_latency()),
            "clock": {
                "method": "excess over the fastest message of all lines",
                "error_bound_ns": self.clock_error_ns(),
                "host_error_ns": io::clock::host_error_ns(),
            },
            "domains": counts.domains.iter().map(|book| json!({
                "domain": self.name(book.domain),
                "first": book.first,
                "highest": book.highest,
                "expected_count": book.span,
                "delivered_count": book.delivered,
                "missing_count": book.missing,
                "restart_count": book.restarts,
            })).collect::<Vec<_>>(),
            "kinds": counts.kinds.iter().map(|(kind, count)| (kind.clone(), json!(count)))
                .collect::<serde_json::Map<_, _>>(),
            "undecoded_count": counts.undecoded,
            "book_count": counts.books,
            "book_refused_count": counts.books_refused,
            "recovery": counts.recovery.map(|recovery| json!({
                "wanted_count": recovery.wanted,
                "recovered_count": recovery.recovered,
                "filled_by_a_line_count": recovery.filled,
                "given_up_count": recovery.given_up,
                "refused_count": recovery.refused,
                "stray_count": recovery.strays,
                "request_count": recovery.requests,
                "retry_count": recovery.retries,
                "reply_count": recovery.replies,
                "foreign_count": recovery.foreign,
                "counts": line_json(&counts.recovery_line),
            })),
            "digests": counts.digests.iter()
                .map(|(domain, digest)| (self.name(*domain), json!(digest)))
                .collect::<serde_json::Map<_, _>>(),
            "sessions_ended_count": counts.sessions_ended,
            "feed_ended": counts.has_ended,
            "balanced": self.balances(),
            "notes": self.notes,
        })
    }

    /// The whole run as text.
    pub fn summary_text(&self) -> String {
        let counts = &self.counts;
        let mut out = String::new();
        for (line, group) in self.lines().iter().zip(&self.groups) {
            line_text(&mut out, line, group);
        }
        let totals = &counts.totals;
        let _ = write!(
            out,
            "delivered  {} + missing {} = {} expected by sequence; {} gaps, at most {} held",
            totals.delivered,
            totals.missing,
            totals.delivered + totals.missing,
            totals.gaps,
            totals.held_max,
        );
        if totals.restarts > 0 {
            let _ = write!(out, ", {} restarts", totals.restarts);
        }
        if counts.missing_at_end > 0 {
            let _ = write!(out, "; {} more were told of and never came", counts.missing_at_end);
        }
        out.push('\n');
        latency_text(&mut out, "match→app", &self.delivered_latency());
        if self.offset_ns().is_some() {
            let error = self
                .clock_error_ns()
                .map_or("unknown: the run was too short".to_owned(), |bound| {
                    format!("at most ± {}", time(bound))
                });
            let host = match io::clock::host_error_ns() {
                Some(ns) => format!("is kept within {} of true time", time(ns)),
                None => "is kept by nobody (NTP, PTP)".into(),
            };
            let _ = writeln!(
                out,
                "clock      match→app is beyond the fastest message of all lines; error {error}; \
                 the host's clock {host}"
            );
        }
        if let Some(recovery) = &counts.recovery {
            let _ = writeln!(
                out,
                "recovery   {} wanted: {} recovered, {} came after all, {} given up; {} requests, \
                 {} of them again",
                recovery.wanted,
                recovery.recovered,
                recovery.filled,
                recovery.given_up + recovery.refused,
                recovery.requests,
                recovery.retries,
            );
        }
        for book in &counts.domains {
            let _ = writeln!(
                out,
                "domain     {}: {} to {}, {} delivered, {} missing",
                self.name(book.domain),
                book.first.unwrap_or(0),
                book.highest.unwrap_or(0),
                book.delivered,
                book.missing,
            );
        }
        for (domain, digest) in &counts.digests {
            let _ = writeln!(out, "digest     {}: {digest}", self.name(*domain));
        }
        if counts.books > 0 {
            let _ = writeln!(out, "books      {} instruments", counts.books);
        }
        if counts.books_refused > 0 {
            let _ = writeln!(
                out,
                "books      {} messages of further instruments found no room (--symbols)",
                counts.books_refused
            );
        }
        if counts.undecoded > 0 {
            let _ = writeln!(out, "undecoded  {} delivered messages", counts.undecoded);
        }
        if !self.balances() {
            out.push_str("books      DO NOT BALANCE; this is a fault of wirepath\n");
        }
        out
    }
}

fn percentiles_json(percentiles: &Percentiles) -> Value {
    match percentiles {
        Err(why) => json!({ "refused": why }),
        Ok(known) => {
            let pairs = known.iter().map(|(suffix, ns)| (format!("{suffix}_ns"), json!(ns)));
            Value::Object(pairs.collect())
        }
    }
}

fn line_json(counts: &LineCounts) -> Value {
    json!({
        "received_count": counts.received,
        "first_count": counts.first,
        "copy_count": counts.copies,
        "repeat_count": counts.repeats,
        "late_count": counts.late,
        "forgotten_count": counts.forgotten,
        "refused_count": counts.refused,
        "reordered_count": counts.reordered,
    })
}

fn line_text(out: &mut String, line: &LineReport, group: &Group) {
    let book = &line.book;
    let _ = writeln!(
        out,
        "line {}     {} on {}: {} datagrams, {} messages",
        line.name, group.address, group.ifname, book.datagrams, book.counts.received,
    );
    let _ = write!(
        out,
        "           brought {} + missing {} = {} expected by sequence",
        book.brought,
        book.missing(),
        book.expected
    );
    let _ = match book.dropped_messages() {
        _ if book.dropped_datagrams == 0 => writeln!(out, "; none dropped by the socket"),
        (least, most) if least == most => writeln!(
            out,
            "; the socket dropped {} datagrams with {least} messages, {} were lost before it",
            book.dropped_datagrams,
            book.missing().saturating_sub(least),
        ),
        (least, most) => writeln!(
            out,
            "; the socket dropped {} datagrams with {least} to {most} messages",
            book.dropped_datagrams,
        ),
    };
    let counts = &book.counts;
    let _ = write!(
        out,
        "           {} of them first, {} had come before, {} came twice, {} reordered",
        counts.first, counts.copies, counts.repeats, counts.reordered
    );
    for (count, what) in [
        (counts.late, "too late"),
        (counts.forgotten, "too far back"),
        (counts.refused, "of too many domains"),
        (book.malformed, "malformed"),
    ] {
        if count > 0 {
            let _ = write!(out, ", {count} {what}");
        }
    }
    out.push('\n');
    latency_text(out, "kernel→app", &line.kernel_to_app);
    latency_text(out, "match→app", &line.match_to_app);
}

fn latency_text(out: &mut String, segment: &str, percentiles: &Percentiles) {
    let _ = match percentiles {
        Err(why) if why == "no sample" => return,
        Err(why) => writeln!(out, "{segment:<10} {why}"),
        Ok(known) => {
            let known: Vec<String> = (known.iter())
                .map(|(suffix, ns)| format!("{} {}", suffix.replace("p999", "p99.9"), time(*ns)))
                .collect();
            writeln!(out, "{segment:<10} {}", known.join(", "))
        }
    };
}
