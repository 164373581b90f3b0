//! A report as text.

use host::causes::{DoctorReport, Finding, Severity};
use report::screen::{Screen, Style, Tone};

use crate::console::count;

/// Column where the text of a finding begins.
const COLUMN: usize = 12;

pub(super) fn render(report: &DoctorReport, title: &str, style: Style) -> String {
    let mut screen = Screen::new(style).with_column(COLUMN);
    screen.heading(title);
    for finding in &report.findings {
        write_finding(&mut screen, finding);
    }
    if report.findings.is_empty() {
        screen.blank();
        screen.line("nothing found");
    }
    write_list(&mut screen, "measured", report.facts.iter().map(|fact| fact.text.clone()));
    let unseen = report.unseen.iter().map(|unseen| format!("{}: {}", unseen.cause, unseen.why));
    write_list(&mut screen, "incomplete checks", unseen);
    screen.blank();
    screen.line(format!(
        "{}; {} passed, {} incomplete",
        count(report.findings.len(), "finding"),
        count(report.passed.len(), "check"),
        report.unseen.len()
    ));
    screen.finish()
}

fn write_finding(screen: &mut Screen, finding: &Finding) {
    screen.blank();
    let severity = format!("{:<COLUMN$}", word(finding.severity));
    screen.paragraph(&severity, &finding.what, Tone::Strong);
    for evidence in &finding.evidence {
        screen.entry("  evidence", format!("{} = {}", evidence.source, evidence.value));
    }
    for (label, text) in
        [("  why", finding.why), ("  effect", finding.effect), ("  risk", finding.risk)]
    {
        screen.entry(label, text);
    }
    // Commands are copied, so they are never wrapped.
    screen.line(format!("  change    {}", finding.change));
    screen.line(format!("  undo      {}", finding.undo));
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
