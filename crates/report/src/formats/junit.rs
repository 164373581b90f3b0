//! JUnit XML: an arm is a test case, a judged metric is a suite.

use maud::{Markup, PreEscaped, html};
use model::{GateAnswer, Verdict};

use super::{evidence, one_line};
use crate::answer::Sentence;
use crate::page::{GateLine, Page, PageMetric, Row};

/// Returns a JUnit document: a worse arm is a failure, one that is not decided or not judged is skipped with its
/// reason. With a gate, its answers decide; without one, the verdicts.
///
/// Source: the schema of Jenkins' xUnit plugin (`junit-10.xsd`).
pub fn to_junit(page: &Page) -> String {
    let suites: Vec<&PageMetric> = page.metrics.iter().filter(|m| !m.rows.is_empty()).collect();
    let document = html! {
        testsuites name=(one_line(&page.subject)) {
            @for metric in suites { (suite(page, metric)) }
            @if page.gate.iter().any(|line| line.metric.is_none()) { (trials_suite(page)) }
        }
    };
    // Markup escapes what has a meaning in XML; characters that XML does not allow are replaced here, on the only way out.
    let document = crate::text::visible(&document.into_string()).into_owned();
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{document}\n")
}

fn suite(page: &Page, metric: &PageMetric) -> Markup {
    let results: Vec<Result> =
        metric.rows.iter().map(|row| result(row, gate_line(page, metric, row))).collect();
    html! {
        testsuite
            name=(one_line(&format!("{}: {}", page.subject, metric.label)))
            tests=(metric.rows.len())
            failures=(results.iter().filter(|result| **result == Result::Failed).count())
            errors="0"
            skipped=(results.iter().filter(|result| **result == Result::Skipped).count())
        {
            properties {
                property name="id" value=(one_line(&page.id)) {}
                property name="started" value=(one_line(&page.started)) {}
                property name="version" value=(one_line(&page.version)) {}
                property name="machine" value=(one_line(&page.machine_line)) {}
            }
            @for row in &metric.rows { (case(metric, row, gate_line(page, metric, row))) }
            @for sentence in page.sentences.iter().filter(|said| is_about(said, metric)) {
                system-out { (one_line(&sentence.text)) }
            }
        }
        (PreEscaped("\n"))
    }
}

/// True for the sentence of a metric, and for one about the whole run.
fn is_about(sentence: &Sentence, metric: &PageMetric) -> bool {
    sentence.metric.as_ref().is_none_or(|name| *name == metric.name)
}

/// Answer of the gate on a row.
fn gate_line<'a>(page: &'a Page, metric: &PageMetric, row: &Row) -> Option<&'a GateLine> {
    page.gate.iter().find(|line: &&GateLine| {
        line.metric.as_deref() == Some(&metric.name) && line.arm == row.arm
    })
}

fn answer_count(lines: &[&GateLine], answer: GateAnswer) -> usize {
    lines.iter().filter(|line| line.answer == answer).count()
}

/// Answers of the gate on failed trials and on arms that did not run.
fn trials_suite(page: &Page) -> Markup {
    let lines: Vec<&GateLine> = page.gate.iter().filter(|line| line.metric.is_none()).collect();
    html! {
        testsuite
            name=(one_line(&format!("{}: trials", page.subject)))
            tests=(lines.len())
            failures=(answer_count(&lines, GateAnswer::Worse))
            errors="0"
            skipped=(answer_count(&lines, GateAnswer::NotDecided))
        {
            @for line in lines {
                testcase classname="wirepath.trials" name=(one_line(&line.arm)) {
                    (finding(answer_result(line.answer), &line.sentence))
                }
            }
        }
        (PreEscaped("\n"))
    }
}

fn case(metric: &PageMetric, row: &Row, gate: Option<&GateLine>) -> Markup {
    let parts = [evidence(row), row.why.clone().unwrap_or_default()];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    let message = match gate {
        Some(line) => line.sentence.clone(),
        None if parts.is_empty() => row.verdict.to_owned(),
        None => format!("{}: {}", row.verdict, parts.join("; ")),
    };
    html! {
        testcase classname=(one_line(&format!("wirepath.{}", metric.name))) name=(one_line(&row.arm)) {
            (finding(result(row, gate), &message))
            @if let Some(median) = &row.median { system-out { "median " (one_line(median)) } }
        }
    }
}

fn finding(result: Result, message: &str) -> Markup {
    html! {
        @match result {
            Result::Passed => {}
            Result::Failed => { failure type="worse" message=(one_line(message)) {} }
            Result::Skipped => { skipped message=(one_line(message)) {} }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Result {
    Passed,
    Failed,
    Skipped,
}

fn answer_result(answer: GateAnswer) -> Result {
    match answer {
        GateAnswer::NoWorse => Result::Passed,
        GateAnswer::Worse => Result::Failed,
        GateAnswer::NotDecided => Result::Skipped,
    }
}

fn result(row: &Row, gate: Option<&GateLine>) -> Result {
    match (gate, row.figures.verdict) {
        (Some(line), _) => answer_result(line.answer),
        (None, Some(Verdict::Worse)) => Result::Failed,
        (None, Some(Verdict::Better | Verdict::NoDifferenceShown)) => Result::Passed,
        // The reference has no verdict; any other figure without one was not judged.
        (None, None) if row.is_baseline && row.figures.median.is_some() => Result::Passed,
        _ => Result::Skipped,
    }
}
