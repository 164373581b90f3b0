//! Workflow commands of GitHub Actions: annotations of a run.

use std::fmt::Write;

use model::{GateAnswer, Verdict};

use super::{evidence, one_line};
use crate::page::{Failures, Page, Remark};

/// Returns one `::error` per worse arm, a `::warning` per doubt, and a `::notice` per headline. With a gate, its
/// answers decide: worse is an error, not decided a warning.
///
/// Source: GitHub's documentation of workflow commands.
pub fn to_github(page: &Page) -> String {
    let mut out = String::new();
    for metric in &page.metrics {
        for row in &metric.rows {
            // A gate says which of these matter.
            if page.gate.is_empty() && row.figures.verdict == Some(Verdict::Worse) {
                let title = format!("{} of {} is worse", metric.label, row.arm);
                command(&mut out, "error", &title, &evidence(row));
            }
        }
    }
    for line in &page.gate {
        let (kind, title) = match line.answer {
            GateAnswer::Worse => ("error", "worse"),
            GateAnswer::NotDecided => ("warning", "not decided"),
            GateAnswer::NoWorse => ("notice", "no worse"),
        };
        command(&mut out, kind, &format!("{}: {title}", page.subject), &line.sentence);
    }
    for notice in &page.notices {
        command(&mut out, "warning", &page.subject, notice);
    }
    let failures: Vec<Remark> = page.failures.iter().map(Failures::remark).collect();
    for Remark { subject, text, .. } in failures.iter().chain(&page.warnings) {
        command(&mut out, "warning", subject, text);
    }
    for metric in &page.metrics {
        command(&mut out, "notice", &page.subject, &metric.headline);
    }
    out
}

fn command(out: &mut String, kind: &str, title: &str, message: &str) {
    let message = escape(message);
    // Colons and commas end a property.
    let title = escape(title).replace(':', "%3A").replace(',', "%2C");
    let _ = writeln!(out, "::{kind} title={title}::{message}");
}

fn escape(text: &str) -> String {
    one_line(text).replace('%', "%25").replace('\r', "%0D")
}
