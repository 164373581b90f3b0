//! A report as text.

use std::fmt::Write as _;

use host::causes::{Confidence, DoctorReport, Finding, FindingWorth, Severity};
use report::screen::{Screen, Style, Tone};

use crate::console::count;

/// Column where the text of a finding begins.
const COLUMN: usize = 12;

/// - `is_brief`: each finding with its first evidence and its remedy, and those below `low` only counted.
pub(super) fn render(report: &DoctorReport, title: &str, is_brief: bool, style: Style) -> String {
    let mut screen = Screen::new(style).with_column(COLUMN);
    screen.heading(title);
    let shown = if is_brief { brief(&report.findings) } else { report.findings.iter().collect() };
    for finding in &shown {
        write_finding(&mut screen, finding, is_brief);
    }
    if shown.is_empty() {
        screen.blank();
        screen.line("nothing found");
    }
    let unseen = report.unseen.iter().map(|unseen| format!("{}: {}", unseen.cause, unseen.why));
    if is_brief {
        if let Some(observed) = &report.observed {
            let unseen = observed.unseen.iter().map(|what| format!("not seen here: {what}"));
            let lines: Vec<String> = observed.lines().into_iter().chain(unseen).collect();
            write_list(&mut screen, "observed", lines.into_iter());
        }
        screen.blank();
    } else {
        write_list(&mut screen, "measured", report.facts.iter().map(|fact| fact.text.clone()));
        write_list(&mut screen, "not seen, or not completely", unseen);
        screen.blank();
    }
    screen.line(closing_line(report, shown.len(), is_brief));
    screen.finish()
}

/// Most findings of one cause in a brief text.
const ALIKE_MAX: usize = 3;

/// Findings from `low` on, and the first [`ALIKE_MAX`] of each cause.
fn brief(findings: &[Finding]) -> Vec<&Finding> {
    let mut shown: Vec<&Finding> = Vec::new();
    for finding in findings.iter().filter(|finding| finding.severity >= Severity::Low) {
        if shown.iter().filter(|other| other.cause == finding.cause).count() < ALIKE_MAX {
            shown.push(finding);
        }
    }
    shown
}

/// Numbers of findings, and of causes that were excluded and not seen.
fn closing_line(report: &DoctorReport, shown_count: usize, is_brief: bool) -> String {
    let mut line = format!(
        "{}; {} excluded",
        count(report.findings.len(), "finding"),
        count(report.passed.len(), "cause")
    );
    if !report.unseen.is_empty() {
        let _ = write!(line, ", {} not seen completely", report.unseen.len());
    }
    let more = report.findings.len() - shown_count + report.facts.len() + report.unseen.len();
    if is_brief && more > 0 {
        line.push_str(" (-v: evidence, reasons, facts)");
    }
    line
}

fn write_finding(screen: &mut Screen, finding: &Finding, is_brief: bool) {
    screen.blank();
    let severity = format!("{:<COLUMN$}", word(finding.severity));
    screen.paragraph(&severity, &finding.what, Tone::Strong);
    let evidence_count = if is_brief { 1 } else { finding.evidence.len() };
    for evidence in finding.evidence.iter().take(evidence_count) {
        screen.entry("  seen", format!("{} = {}", evidence.source, evidence.value));
    }
    if let Some(cost) = &finding.cost {
        screen.entry("  cost", cost);
    }
    if !is_brief {
        screen.entry("  cause", format!("{}, {}", finding.cause, known(finding.confidence)));
        for (label, text) in
            [("  why", finding.why), ("  effect", finding.effect), ("  risk", finding.risk)]
        {
            screen.entry(label, text);
        }
    }
    for worth in &finding.worth {
        screen.entry("  worth", worth_text(worth));
    }
    // Commands are copied, so they are never wrapped.
    screen.line(format!("  do        {}", finding.change));
    screen.line(format!("  undo      {}", finding.undo));
}

/// `gro-flush-timeout: rtt_ns_p50 0.431x [0.406, 0.457], better`.
pub(super) fn worth_text(worth: &FindingWorth) -> String {
    let FindingWorth { knob, metric, ratio, low, high, verdict } = worth;
    let ends =
        low.zip(*high).map_or(String::new(), |(low, high)| format!(" [{low:.3}, {high:.3}]"));
    format!("{knob}: {metric} {ratio:.3}x{ends}, {verdict}")
}

/// How a cause is known, in words.
pub(super) fn known(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Now => "seen happening now",
        Confidence::Before => "counted before now",
        Confidence::SetUp => "set up to happen",
        Confidence::Possible => "possible",
    }
}

fn write_list(screen: &mut Screen, title: &str, rows: impl ExactSizeIterator<Item = String>) {
    if rows.len() > 0 {
        screen.blank();
        screen.heading(title);
        rows.for_each(|row| screen.entry("", row));
    }
}

pub(super) fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Low => "low",
        Severity::Medium => "medium",
        Severity::High => "high",
    }
}
