//! JUnit XML: an arm is a test case, a judged metric is a suite.

use maud::{Markup, PreEscaped, html};
use model::Verdict;

use super::{evidence, one_line};
use crate::page::{Metric, Page, Row};

/// Returns a JUnit document: a worse arm is a failure, one without a verdict is skipped.
///
/// Source: the schema of Jenkins' xUnit plugin (`junit-10.xsd`).
pub fn to_junit(page: &Page) -> String {
    let suites: Vec<&Metric> = page.metrics.iter().filter(|m| !m.rows.is_empty()).collect();
    let document = html! {
        testsuites name=(one_line(&page.subject)) {
            @for metric in suites { (suite(page, metric)) }
        }
    };
    // Markup escapes what has a meaning in XML; characters that XML does not allow are replaced here, on the only way out.
    let document = crate::text::visible(&document.into_string()).into_owned();
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{document}\n")
}

fn suite(page: &Page, metric: &Metric) -> Markup {
    let count = |wanted: Result| metric.rows.iter().filter(|row| result(row) == wanted).count();
    html! {
        testsuite
            name=(one_line(&format!("{}: {}", page.subject, metric.label)))
            tests=(metric.rows.len())
            failures=(count(Result::Failed))
            errors="0"
            skipped=(count(Result::Skipped))
        {
            properties {
                property name="id" value=(one_line(&page.id)) {}
                property name="started" value=(one_line(&page.started)) {}
                property name="version" value=(one_line(&page.version)) {}
                property name="machine" value=(one_line(&page.machine_line)) {}
            }
            @for row in &metric.rows { (case(metric, row)) }
            system-out { (one_line(&metric.headline)) }
            @if !page.notices.is_empty() {
                system-err { (one_line(&page.notices.join(" "))) }
            }
        }
        (PreEscaped("\n"))
    }
}

fn case(metric: &Metric, row: &Row) -> Markup {
    let message = match evidence(row) {
        evidence if evidence.is_empty() => row.verdict.to_owned(),
        evidence => format!("{}: {evidence} of the baseline", row.verdict),
    };
    html! {
        testcase classname=(one_line(&format!("wirepath.{}", metric.name))) name=(one_line(&row.arm)) {
            @match result(row) {
                Result::Passed => {}
                Result::Failed => { failure type="worse" message=(one_line(&message)) {} }
                Result::Skipped => { skipped message=(one_line(&message)) {} }
            }
            @if let Some(median) = &row.median { system-out { "median " (one_line(median)) } }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Result {
    Passed,
    Failed,
    Skipped,
}

fn result(row: &Row) -> Result {
    match row.figures.verdict {
        Some(Verdict::Worse) => Result::Failed,
        Some(Verdict::Better | Verdict::NoDifferenceShown) => Result::Passed,
        // The baseline, which is the reference.
        None if row.figures.median.is_some() => Result::Passed,
        _ => Result::Skipped,
    }
}
