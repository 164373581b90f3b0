//! A report as text.

use std::fmt::Write;

use host::doctor::{Finding, Report, Severity};

use crate::console::count;

/// Column where the text of a finding begins.
const INDENT: usize = 12;

pub(super) fn render(report: &Report, title: &str, width: usize) -> String {
    let mut out = format!("{}\n", one_line(title));
    for finding in &report.findings {
        write_finding(&mut out, finding, width);
    }
    if report.findings.is_empty() {
        out.push_str("\nnothing found\n");
    }
    if !report.facts.is_empty() {
        out.push_str("\nmeasured\n");
        for fact in &report.facts {
            line(&mut out, "", &fact.text, width);
        }
    }
    if !report.unseen.is_empty() {
        out.push_str("\nincomplete checks\n");
        for unseen in &report.unseen {
            line(&mut out, "", &format!("{}: {}", unseen.check, unseen.why), width);
        }
    }
    let _ = writeln!(
        out,
        "\n{}; {} passed, {} incomplete",
        count(report.findings.len(), "finding"),
        count(report.passed.len(), "check"),
        report.unseen.len()
    );
    out
}

fn write_finding(out: &mut String, finding: &Finding, width: usize) {
    let _ = writeln!(out, "\n{:<INDENT$}{}", word(finding.severity), one_line(&finding.what));
    for evidence in &finding.evidence {
        line(out, "evidence", &format!("{} = {}", evidence.source, evidence.value), width);
    }
    for (label, text) in [("why", finding.why), ("effect", finding.effect), ("risk", finding.risk)]
    {
        line(out, label, text, width);
    }
    // Commands are copied, so they are never wrapped.
    line(out, "change", &finding.change, usize::MAX);
    line(out, "undo", &finding.undo, usize::MAX);
}

/// A label and a text wrapped between words.
fn line(out: &mut String, label: &str, text: &str, width: usize) {
    let mut row = format!("  {label:<10}");
    let mut is_first = true;
    for word in one_line(text).split(' ') {
        if !is_first && row.chars().count() + 1 + word.chars().count() > width {
            let _ = writeln!(out, "{}", row.trim_end());
            row = " ".repeat(INDENT);
            is_first = true;
        }
        if !is_first {
            row.push(' ');
        }
        row.push_str(word);
        is_first = false;
    }
    let _ = writeln!(out, "{}", row.trim_end());
}

/// Names of processes may have line breaks.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r', '\t', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}'], " ")
}

pub(super) fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Low => "low",
        Severity::Medium => "medium",
        Severity::High => "high",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_broken_between_words() {
        let mut out = String::new();
        line(&mut out, "why", &"word ".repeat(30), 60);
        assert!(out.lines().count() > 1);
        assert!(out.lines().all(|row| row.len() <= 60), "{out}");
        assert!(out.lines().skip(1).all(|row| row.starts_with("            word")), "{out}");
        let mut out = String::new();
        line(&mut out, "change", &"x".repeat(100), 60);
        assert_eq!(out.lines().count(), 1, "a word is never cut");
    }
}
