//! What a receiver saw, added up, and said as text, JSON or for Prometheus.

use std::fmt::Write;

use hdrhistogram::Histogram;
use io::multicast::Group;
use model::{QUANTILES, SAMPLES_BEYOND_QUANTILE, latency_histogram};
use serde_json::{Value, json};

use super::super::arbiter::{Domain, LineCounts};
use super::super::excess::Excess;
use super::super::messages::domain_name;
use super::interval::{Counts, Interval, LineBook};

/// Samples in an interval from which on its fastest says something about the clocks.
const WINDOW_SAMPLES: u64 = 100;
/// Resolution of a telegram's match time.
const MATCH_RESOLUTION_NS: i64 = 1_000;
const LINES: [&str; 2] = ["A", "B"];

/// Quantiles in nanoseconds with their names and the maximum, or why there are none.
pub type Percentiles = Result<Vec<(&'static str, u64)>, String>;

/// One line, ready to be shown.
#[derive(Debug, Clone)]
pub struct LineReport {
    /// `A` or `B`.
    pub name: &'static str,
    /// Its counts.
    pub book: LineBook,
    /// Kernel to application.
    pub kernel_to_app: Percentiles,
    /// Match to application, beyond the fastest message of all lines.
    pub match_to_app: Percentiles,
}

/// Everything since the begin.
#[derive(Debug)]
pub struct Report {
    groups: Vec<Group>,
    elapsed_ns: u64,
    counts: Counts,
    kernel_to_app: [Histogram<u64>; 2],
    match_to_app: [Excess; 3],
    /// Fastest match to application of any interval, and of the slowest such interval.
    fastest: Option<(i64, i64)>,
    notes: Vec<String>,
    /// The last interval: what it is beyond the one before.
    live: Live,
}

/// The last second.
#[derive(Debug, Default)]
struct Live {
    seconds: f64,
    messages: [u64; 2],
    delivered: u64,
    dropped: u64,
    kernel_to_app: [Option<Quick>; 2],
    match_to_app: Option<Quick>,
    top: Vec<super::TopRow>,
}

/// Three figures of one second.
#[derive(Debug, Clone, Copy)]
struct Quick {
    count: u64,
    p50_ns: u64,
    p99_ns: u64,
    max_ns: u64,
}

impl Report {
    /// Nothing yet.
    pub fn new(groups: &[Group]) -> Self {
        Report {
            groups: groups.to_vec(),
            elapsed_ns: 0,
            counts: Counts::default(),
            kernel_to_app: [latency_histogram(), latency_histogram()],
            match_to_app: Default::default(),
            fastest: None,
            notes: Vec::new(),
            live: Live::default(),
        }
    }

    /// Adds an interval.
    pub fn absorb(&mut self, interval: &Interval) {
        let offset = interval.match_to_app.iter().filter_map(Excess::smallest_ns).min();
        let samples = interval.match_to_app.iter().map(Excess::count).max().unwrap_or(0);
        if let Some(fastest) = offset.filter(|_| samples >= WINDOW_SAMPLES) {
            let (low, high) = self.fastest.unwrap_or((fastest, fastest));
            self.fastest = Some((low.min(fastest), high.max(fastest)));
        }
        for (sum, part) in self.kernel_to_app.iter_mut().zip(&interval.kernel_to_app) {
            // Both have the same bounds.
            let _ = sum.add(part);
        }
        for (sum, part) in self.match_to_app.iter_mut().zip(&interval.match_to_app) {
            sum.merge(part);
        }
        self.live = self.live_of(interval);
        self.notes.extend(interval.notes.iter().cloned());
        self.counts = interval.counts.clone();
        self.elapsed_ns = interval.elapsed_ns;
    }

    fn live_of(&self, interval: &Interval) -> Live {
        let (now, then) = (&interval.counts, &self.counts);
        let line = |counts: &Counts, at: usize| counts.lines.get(at).copied().unwrap_or_default();
        let received = |counts: &Counts, at: usize| line(counts, at).counts.received;
        let dropped = |counts: &Counts| counts.lines.iter().map(|l| l.dropped_datagrams).sum();
        let quick = |histogram: &Histogram<u64>| {
            (!histogram.is_empty()).then(|| Quick {
                count: histogram.len(),
                p50_ns: histogram.value_at_quantile(0.5),
                p99_ns: histogram.value_at_quantile(0.99),
                max_ns: histogram.max(),
            })
        };
        let offset = self.offset_ns();
        let delivered = &interval.match_to_app[2];
        let offset = offset.filter(|_| delivered.count() > 0).map(|offset| Quick {
            count: delivered.count(),
            p50_ns: delivered.quantile_ns(0.5, offset),
            p99_ns: delivered.quantile_ns(0.99, offset),
            max_ns: delivered.quantile_ns(1.0, offset),
        });
        let before: u64 = dropped(then);
        let after: u64 = dropped(now);
        Live {
            seconds: interval.elapsed_ns.saturating_sub(self.elapsed_ns) as f64 / 1e9,
            messages: [0, 1].map(|at| received(now, at).saturating_sub(received(then, at))),
            delivered: now.totals.delivered.saturating_sub(then.totals.delivered),
            dropped: after.saturating_sub(before),
            kernel_to_app: [0, 1].map(|at| quick(&interval.kernel_to_app[at])),
            match_to_app: offset,
            top: interval.top.clone(),
        }
    }

    /// The fastest message of all lines.
    fn offset_ns(&self) -> Option<i64> {
        self.match_to_app.iter().filter_map(Excess::smallest_ns).min()
    }

    /// How far the offset of the two clocks can have moved during the run, nanoseconds: the
    /// fastest messages of the seconds differ by so much, at most because of the clocks. `None`
    /// before there are two seconds with enough messages.
    pub fn clock_error_ns(&self) -> Option<u64> {
        self.fastest.map(|(low, high)| (high - low + MATCH_RESOLUTION_NS).max(0) as u64)
    }

    /// Delivered messages.
    pub fn delivered(&self) -> u64 {
        self.counts.totals.delivered
    }

    /// All counts.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Messages that no line brought.
    pub fn missing(&self) -> u64 {
        self.counts.totals.missing + self.counts.missing_at_end
    }

    /// Lines with their percentiles; those of a line with loss are refused.
    pub fn lines(&self) -> Vec<LineReport> {
        let line = |(at, book): (usize, &LineBook)| {
            let lost = (book.missing(), book.expected);
            LineReport {
                name: LINES[at],
                book: *book,
                kernel_to_app: percentiles(self.kernel_to_app[at].len(), lost, |q| {
                    self.kernel_to_app[at].value_at_quantile(q)
                }),
                match_to_app: self.matched(at, lost),
            }
        };
        self.counts.lines.iter().enumerate().map(line).collect()
    }

    /// Match to application of what was delivered; refused when something is missing.
    pub fn delivered_latency(&self) -> Percentiles {
        let missing = self.missing();
        self.matched(2, (missing, self.delivered() + missing))
    }

    fn matched(&self, at: usize, lost: (u64, u64)) -> Percentiles {
        let offset = self.offset_ns().unwrap_or(0);
        let excess = &self.match_to_app[at];
        percentiles(excess.count(), lost, |q| excess.quantile_ns(q, offset))
    }

    fn name(&self, domain: Domain) -> String {
        let session = self.counts.sessions.iter().find(|(known, _)| *known == domain);
        session.map_or_else(|| domain_name(domain), |(_, name)| name.clone())
    }

    /// The last second in a few lines.
    pub fn live_text(&self) -> String {
        let live = &self.live;
        let rate = |count: u64| if live.seconds > 0.0 { count as f64 / live.seconds } else { 0.0 };
        let mut out = format!("{:>5.0} s ", self.elapsed_ns as f64 / 1e9);
        for (at, line) in self.counts.lines.iter().enumerate() {
            let _ = write!(out, " {} {:.0}/s", LINES[at], rate(live.messages[at]));
            if line.missing() > 0 {
                let _ = write!(out, " (missing {})", line.missing());
            }
        }
        let _ = write!(out, "  delivered {:.0}/s", rate(live.delivered));
        let _ = write!(out, "  missing {}", self.missing());
        if live.dropped > 0 {
            let _ = write!(out, "  DROPPED {}", live.dropped);
        }
        for (at, quick) in live.kernel_to_app.iter().enumerate() {
            if let Some(quick) = quick {
                let _ = write!(out, "  kernel→app {} {}", LINES[at], quick.text());
            }
        }
        if let Some(quick) = &live.match_to_app {
            let _ = write!(out, "  match→app {}", quick.text());
        }
        for row in &live.top {
            let level = |level: Option<(wire::twse::Price, u64)>| {
                level.map_or("-".to_owned(), |(price, quantity)| format!("{price} × {quantity}"))
            };
            let _ = write!(
                out,
                "\n        {:<6} {:>9} quotes  last {}  bid {}  ask {}",
                row.symbol,
                row.quotes,
                level(Some(row.last).filter(|(_, quantity)| *quantity > 0)),
                level(row.best[0]),
                level(row.best[1]),
            );
        }
        out
    }

    /// The last second as one JSON object.
    pub fn live_json(&self) -> Value {
        let live = &self.live;
        let rate = |count: u64| if live.seconds > 0.0 { count as f64 / live.seconds } else { 0.0 };
        let lines = (self.counts.lines.iter().enumerate()).map(|(at, line)| {
            json!({
                "line": LINES[at],
                "messages_per_second": rate(live.messages[at]),
                "missing_count": line.missing(),
                "dropped_datagram_count": line.dropped_datagrams,
                "kernel_to_app": live.kernel_to_app[at].map(|quick| quick.json()),
            })
        });
        json!({
            "schema": model::SCHEMA,
            "command": "feed listen",
            "live": true,
            "elapsed_ns": self.elapsed_ns,
            "lines": lines.collect::<Vec<_>>(),
            "delivered_per_second": rate(live.delivered),
            "delivered_count": self.delivered(),
            "gap_count": self.counts.totals.gaps,
            "missing_count": self.missing(),
            "match_to_app": live.match_to_app.map(|quick| quick.json()),
            "top": live.top.iter().map(top_json).collect::<Vec<_>>(),
        })
    }

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

    /// Whether all books add up: per line brought + missing = expected, per domain delivered +
    /// missing = expected, and all that was received is accounted for.
    pub fn balances(&self) -> bool {
        self.counts.is_balanced && self.counts.lines.iter().all(LineBook::balances)
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
            let _ = writeln!(
                out,
                "clock      match→app is beyond the fastest message of all lines; error {error}"
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

impl Quick {
    fn text(&self) -> String {
        let figures = [self.p50_ns, self.p99_ns, self.max_ns].map(time);
        format!("{} / {} / {}", figures[0], figures[1], figures[2])
    }

    fn json(self) -> Value {
        json!({
            "count": self.count, "p50_ns": self.p50_ns, "p99_ns": self.p99_ns,
            "max_ns": self.max_ns,
        })
    }
}

/// Quantiles and the maximum. None with loss, for what was lost lies beyond every percentile;
/// none without enough samples behind it.
fn percentiles(count: u64, lost: (u64, u64), value: impl Fn(f64) -> u64) -> Percentiles {
    let (missing, expected) = lost;
    if missing > 0 {
        return Err(format!(
            "percentiles refused: {missing} of {expected} messages missing, and a missing \
             message's latency lies beyond every percentile"
        ));
    }
    if count == 0 {
        return Err("no sample".into());
    }
    let enough = |quantile: f64| count as f64 * (1.0 - quantile) + 1e-6 >= SAMPLES_BEYOND_QUANTILE;
    let known = QUANTILES.iter().filter(|(quantile, _)| enough(*quantile));
    let known = known.map(|(quantile, suffix)| (*suffix, value(*quantile)));
    Ok(known.chain([("max", value(1.0))]).collect())
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

fn top_json(row: &super::TopRow) -> Value {
    let level = |level: Option<(wire::twse::Price, u64)>| {
        level.map(|(price, quantity)| json!({ "price": price.to_string(), "quantity": quantity }))
    };
    json!({
        "symbol": row.symbol,
        "business": row.business,
        "quote_count": row.quotes,
        "trade_count": row.trades,
        "last": level(Some(row.last).filter(|(_, quantity)| *quantity > 0)),
        "bid": level(row.best[0]),
        "ask": level(row.best[1]),
        "cumulative_volume": row.cumulative_volume,
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

/// A time with three digits.
fn time(ns: u64) -> String {
    let ns = ns as f64;
    match ns {
        ns if ns >= 1e9 => format!("{:.2} s", ns / 1e9),
        ns if ns >= 1e6 => format!("{:.2} ms", ns / 1e6),
        ns => format!("{:.2} µs", ns / 1e3),
    }
}
