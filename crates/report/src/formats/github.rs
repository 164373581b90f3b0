//! Workflow commands of GitHub Actions: annotations of a run.

use std::fmt::Write;

use model::Verdict;

use super::{evidence, one_line};
use crate::page::{Failures, Page, PageMetric, Remark};
use crate::screen::Tone;

/// Returns an annotation for each sentence of a run, by its tone `::error`, `::warning` or `::notice`, one for each
/// further answer of a gate, an `::error` for each worse arm that no sentence is an error about, and a `::warning` per failure and warning.
///
/// Source: GitHub's documentation of workflow commands.
pub fn to_github(page: &Page) -> String {
    let mut out = String::new();
    for sentence in &page.sentences {
        command(&mut out, kind(sentence.tone), &page.subject, &sentence.text);
    }
    for metric in page.metrics.iter().filter(|metric| !is_error(page, metric)) {
        for row in &metric.rows {
            if row.figures.verdict == Some(Verdict::Worse) {
                let title = format!("{} of {} is worse", metric.label, row.arm);
                command(&mut out, "error", &title, &evidence(row));
            }
        }
    }
    for line in page.further_answers() {
        command(&mut out, kind(line.tone), &page.subject, &line.sentence);
    }
    let failures: Vec<Remark> = page.failures.iter().map(Failures::remark).collect();
    for Remark { subject, text, .. } in failures.iter().chain(&page.warnings) {
        command(&mut out, "warning", subject, text);
    }
    out
}

/// True if the sentence of a metric is an error already, or a gate says which worse arms matter.
fn is_error(page: &Page, metric: &PageMetric) -> bool {
    let mut sentences = page.sentences.iter();
    let sentence = sentences.find(|said| said.metric.as_ref() == Some(&metric.name));
    !page.gate.is_empty() || sentence.is_some_and(|said| said.tone == Tone::Bad)
}

fn kind(tone: Tone) -> &'static str {
    match tone {
        Tone::Bad => "error",
        Tone::Doubt => "warning",
        Tone::Plain | Tone::Strong | Tone::Dim | Tone::Good => "notice",
    }
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
