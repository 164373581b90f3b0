//! Summary of a run as text and JSON.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use io::multicast::Group;
use report::screen::Screen;
use report::units::counted;
use serde::Serialize;

use super::{LINES, LineReport, ListenReport, Percentiles, Refused, time};
use crate::TEXT_COLUMN;
use crate::arbiter::{DomainStats, LineCounts};
use crate::books::{BooksDocument, BooksReport};
use crate::late::{LateDocument, LateReport};
use crate::quality::Quality;
use crate::recovery;

/// Document of `feed listen --json`: its last line.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ListenDocument<'a> {
    schema: u32,
    command: &'static str,
    elapsed_ns: u64,
    lines: Vec<LineDocument<'a>>,
    delivered_count: u64,
    gap_count: u64,
    /// Absent if nothing arrived.
    missing_count: Option<u64>,
    missing_at_end_count: u64,
    held_count: u64,
    held_count_max: u64,
    hold_overflow_count: u64,
    restart_count: u64,
    match_to_app: PercentilesDocument,
    clock: ClockDocument,
    domains: Vec<DomainDocument>,
    /// Missing messages by their place: the first 1,024 gaps.
    gaps: Vec<GapDocument>,
    gap_beyond_count: u64,
    /// Domains that lost their place to others, having proved nothing; their messages are in the counts.
    displaced_domain_count: u64,
    kinds: BTreeMap<&'a str, u64>,
    undecoded_count: u64,
    book_count: u64,
    book_refused_count: u64,
    recovery: Option<RecoveryDocument>,
    digests: BTreeMap<String, &'a str>,
    sessions_ended_count: u64,
    feed_ended: bool,
    balanced: bool,
    notes: &'a [String],
    /// Absent without --books.
    books: Option<BooksDocument<'a>>,
    /// Absent if the run did not measure it.
    quality: Option<QualityDocument>,
    /// Absent without --late, and of a recording without it.
    late: Option<LateDocument>,
}

/// Leads and bursts of a run with a report.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct QualityDocument {
    /// Messages that both lines carried.
    pair_count: u64,
    /// Copies that came too late for a comparison.
    unpaired_count: u64,
    lines: Vec<LineQuality>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct LineQuality {
    line: &'static str,
    /// Pairs in which this line was first.
    ahead_count: u64,
    /// Absent if it never was.
    ahead_ns_p50: Option<u64>,
    ahead_ns_max: Option<u64>,
    /// Most messages in windows of 100 µs and of 1 ms.
    burst_100us_count_max: u64,
    burst_1ms_count_max: u64,
}

impl QualityDocument {
    fn new(quality: &Quality, line_count: usize) -> Self {
        QualityDocument {
            pair_count: quality.lead.pair_count(),
            unpaired_count: quality.lead.unpaired_count(),
            lines: (0..line_count)
                .map(|at: usize| {
                    let (ahead, bursts) = (quality.lead.ahead(at), &quality.bursts[at]);
                    LineQuality {
                        line: LINES[at],
                        ahead_count: ahead.len(),
                        ahead_ns_p50: (!ahead.is_empty()).then(|| ahead.value_at_quantile(0.5)),
                        ahead_ns_max: (!ahead.is_empty()).then(|| ahead.max()),
                        burst_100us_count_max: bursts.counts(0).max(),
                        burst_1ms_count_max: bursts.counts(1).max(),
                    }
                })
                .collect(),
        }
    }
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct LineDocument<'a> {
    line: &'static str,
    group: String,
    interface: &'a str,
    source: Option<Ipv4Addr>,
    datagram_count: u64,
    payload_bytes: u64,
    unstamped_count: u64,
    malformed_count: u64,
    /// Absent, as the missing, if nothing arrived on the line.
    expected_count: Option<u64>,
    brought_count: u64,
    missing_count: Option<u64>,
    dropped_datagram_count: u64,
    dropped_message_count: Bounds,
    counts: LineCounts,
    receive_buffer_bytes: usize,
    syscall_count: u64,
    kernel_to_app: PercentilesDocument,
    match_to_app: PercentilesDocument,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Bounds {
    least: u64,
    most: u64,
}

/// `{"refused": "…"}`, or quantiles such as `{"p50_ns": 1000, "max_ns": 2000}`. A quantile that lies among
/// missing messages, which are infinitely late, is absent.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
enum PercentilesDocument {
    Refused { refused: String },
    Known(BTreeMap<String, u64>),
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct ClockDocument {
    method: &'static str,
    error_bound_ns: Option<u64>,
    host_error_ns: Option<u64>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct DomainDocument {
    domain: String,
    first: Option<u64>,
    highest: Option<u64>,
    expected_count: u64,
    delivered_count: u64,
    missing_count: u64,
    restart_count: u32,
}

/// Messages of one domain that no line brought, beginning with this sequence.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct GapDocument {
    domain: String,
    first: u64,
    missing_count: u64,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct RecoveryDocument {
    #[serde(flatten)]
    requests: recovery::Counts,
    counts: LineCounts,
}

impl ListenReport {
    /// Summary as JSON.
    pub fn summary_document(&self) -> ListenDocument<'_> {
        let counts = &self.counts;
        let lines = self.lines().into_iter().zip(&self.groups).map(|(line, group)| {
            let (least, most) = line.book.dropped_messages();
            let heard = !line.book.is_silent();
            LineDocument {
                line: line.name,
                group: group.address.to_string(),
                interface: &group.ifname,
                source: group.source,
                datagram_count: line.book.datagrams,
                payload_bytes: line.book.payload_bytes,
                unstamped_count: line.book.unstamped,
                malformed_count: line.book.malformed,
                expected_count: heard.then_some(line.book.expected),
                brought_count: line.book.brought,
                missing_count: heard.then(|| line.book.missing()),
                dropped_datagram_count: line.book.dropped_datagrams,
                dropped_message_count: Bounds { least, most },
                counts: line.book.counts,
                receive_buffer_bytes: line.book.receive_buffer_bytes,
                syscall_count: line.book.syscalls,
                kernel_to_app: line.kernel_to_app.into(),
                match_to_app: line.match_to_app.into(),
            }
        });
        let domain = |book: &DomainStats| DomainDocument {
            domain: self.name(book.domain),
            first: book.first,
            highest: book.highest,
            expected_count: book.span,
            delivered_count: book.delivered,
            missing_count: book.missing,
            restart_count: book.restarts,
        };
        let totals = &counts.totals;
        ListenDocument {
            schema: model::SCHEMA,
            command: self.command,
            elapsed_ns: self.elapsed_ns,
            lines: lines.collect(),
            delivered_count: totals.delivered,
            gap_count: totals.gaps,
            missing_count: (!self.is_silent()).then_some(totals.missing),
            missing_at_end_count: counts.missing_at_end,
            held_count: totals.held,
            held_count_max: totals.held_max,
            hold_overflow_count: totals.overflows,
            restart_count: totals.restarts,
            match_to_app: self.delivered_latency().into(),
            clock: ClockDocument {
                method: "excess over the fastest message of all lines",
                error_bound_ns: self.clock_error_ns(),
                host_error_ns: self.host_error_ns(),
            },
            domains: counts.domains.iter().map(domain).collect(),
            gaps: (counts.gaps.gaps.iter())
                .map(|gap| GapDocument {
                    domain: self.name(gap.domain),
                    first: gap.first,
                    missing_count: gap.count,
                })
                .collect(),
            gap_beyond_count: counts.gaps.beyond_count,
            displaced_domain_count: totals.removed_domains,
            kinds: counts.kinds.iter().map(|(kind, count)| (kind.as_str(), *count)).collect(),
            undecoded_count: counts.undecoded,
            book_count: counts.books,
            book_refused_count: counts.books_refused,
            recovery: (counts.recovery)
                .map(|requests| RecoveryDocument { requests, counts: counts.recovery_line }),
            digests: (counts.digests.iter())
                .map(|(domain, digest)| (self.name(*domain), digest.as_str()))
                .collect(),
            sessions_ended_count: counts.sessions_ended,
            feed_ended: counts.has_ended,
            balanced: self.balances(),
            notes: &self.notes,
            books: self.books.as_deref().map(BooksReport::document),
            quality: (self.quality.as_deref())
                .map(|quality| QualityDocument::new(quality, counts.lines.len())),
            late: self.late.as_ref().map(LateReport::document),
        }
    }

    /// Summary as text.
    pub fn summary_text(&self) -> String {
        let counts = &self.counts;
        let mut screen = Screen::plain().with_column(TEXT_COLUMN);
        for (line, group) in self.lines().iter().zip(&self.groups) {
            write_line(&mut screen, line, group);
        }
        if self.is_silent() {
            screen.entry("delivered", "nothing");
            return screen.finish();
        }
        screen.entry("delivered", self.delivered_text());
        write_latency(&mut screen, "match→app", &self.delivered_latency(), self.missing());
        if let Some(late) = &self.late {
            screen.entry("late", late.text());
        }
        if self.offset_ns().is_some() {
            screen.entry("clock", self.clock_text());
        }
        if let Some(recovery) = &counts.recovery {
            let text = format!(
                "{} missing: {} recovered, {} arrived late, {} abandoned; {} requests, {} of them retries",
                recovery.wanted,
                recovery.recovered,
                recovery.filled,
                recovery.given_up + recovery.refused,
                recovery.requests,
                recovery.retries,
            );
            screen.entry("recovery", text);
        }
        for book in &counts.domains {
            let text = format!(
                "{}: {} to {}, {} delivered, {} missing",
                self.name(book.domain),
                book.first.unwrap_or(0),
                book.highest.unwrap_or(0),
                book.delivered,
                book.missing,
            );
            screen.entry("domain", text);
        }
        for (domain, digest) in &counts.digests {
            screen.entry("digest", format!("{}: {digest}", self.name(*domain)));
        }
        for (label, count, what) in [
            ("books", counts.books, "instruments"),
            (
                "books",
                counts.books_refused,
                "messages of further instruments were not kept (raise --symbols)",
            ),
            ("undecoded", counts.undecoded, "delivered messages"),
        ] {
            if count > 0 {
                screen.entry(label, format!("{count} {what}"));
            }
        }
        if let Some(books) = &self.books {
            books.write(&mut screen);
        }
        if !self.balances() {
            screen.entry("counts", "DO NOT ADD UP; this is a bug in wirepath");
        }
        screen.finish()
    }

    fn delivered_text(&self) -> String {
        let totals = &self.counts.totals;
        let mut text = format!(
            "{} + missing {} = {} expected by sequence; {} gaps, at most {} held{}",
            totals.delivered,
            totals.missing,
            totals.delivered + totals.missing,
            totals.gaps,
            totals.held_max,
            counted(&[(totals.restarts, "restarts")]),
        );
        if self.counts.missing_at_end > 0 {
            let count = self.counts.missing_at_end;
            text += &format!("; {count} more were announced and never arrived");
        }
        text
    }

    fn clock_text(&self) -> String {
        let error = match self.clock_error_ns() {
            Some(bound) => format!("at most ± {}", time(bound)),
            None => "unknown (the run was too short)".to_owned(),
        };
        let host = match self.host_error_ns() {
            _ if self.is_recording => String::new(),
            Some(ns) => {
                format!("; the host clock is synchronised within {} of true time", time(ns))
            }
            None => "; the host clock is not synchronised (no NTP or PTP)".into(),
        };
        format!("match→app is relative to the fastest message of all lines; error {error}{host}")
    }
}

impl From<Percentiles> for PercentilesDocument {
    fn from(percentiles: Percentiles) -> Self {
        match percentiles {
            Err(why) => PercentilesDocument::Refused { refused: why.to_string() },
            Ok(known) => PercentilesDocument::Known(
                known.iter().map(|(name, ns)| (format!("{name}_ns"), *ns)).collect(),
            ),
        }
    }
}

fn write_line(screen: &mut Screen, line: &LineReport, group: &Group) {
    let (book, counts) = (&line.book, &line.book.counts);
    let label = format!("line {}", line.name);
    let origin = format!("{} on {}", group.address, group.ifname);
    let dropped = book.dropped_datagrams;
    if book.is_silent() {
        screen.entry(&label, format!("{origin}: nothing arrived; messages missing are not known"));
        if dropped > 0 {
            screen.entry("", format!("the socket dropped {dropped} datagrams"));
        }
        return;
    }
    let text = format!("{origin}: {} datagrams, {} messages", book.datagrams, counts.received);
    screen.entry(&label, text);
    let missing = book.missing();
    let dropped = match book.dropped_messages() {
        _ if dropped == 0 => "none dropped by the socket".to_owned(),
        (least, most) if least == most => format!(
            "the socket dropped {dropped} datagrams with {least} messages, {} were lost before it",
            missing.saturating_sub(least),
        ),
        (least, most) => {
            format!("the socket dropped {dropped} datagrams with {least} to {most} messages")
        }
    };
    let (brought, expected) = (book.brought, book.expected);
    let text = format!(
        "brought {brought} + missing {missing} = {expected} expected by sequence; {dropped}"
    );
    screen.entry("", text);
    let others = counted(&[
        (counts.late, "too late"),
        (counts.forgotten, "too far back"),
        (counts.refused, "of too many domains"),
        (book.malformed, "malformed"),
    ]);
    let text = format!(
        "{} of them first, {} had come before, {} came twice, {} reordered{others}",
        counts.first, counts.copies, counts.repeats, counts.reordered
    );
    screen.entry("", text);
    write_latency(screen, "kernel→app", &line.kernel_to_app, missing);
    write_latency(screen, "match→app", &line.match_to_app, missing);
}

fn write_latency(screen: &mut Screen, segment: &str, percentiles: &Percentiles, missing: u64) {
    let text = match percentiles {
        Err(Refused::NoSample) => return,
        Err(why) => why.to_string(),
        Ok(known) => {
            let known: Vec<String> = (known.iter())
                .map(|(suffix, ns)| format!("{} {}", suffix.replace("p999", "p99.9"), time(*ns)))
                .collect();
            let lost = match missing {
                0 => String::new(),
                missing => format!("; beyond, the {missing} missing, infinitely late"),
            };
            format!("{}{lost}", known.join(", "))
        }
    };
    screen.entry(segment, text);
}
