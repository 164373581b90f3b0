//! Markdown for a pull request, or `$GITHUB_STEP_SUMMARY`.

use std::fmt::Write;

use super::one_line;
use crate::page::{Failures, Page, PageMetric, Remark, Row};

/// Returns GitHub-flavoured Markdown with a table per judged metric.
///
/// Source: GitHub Flavored Markdown 0.29, section 4.10.
pub fn to_markdown(page: &Page) -> String {
    let mut out = format!("### {}\n\n", escape(&page.title));
    let about = [&page.subject, &page.id, &page.started, &page.version].map(|text| escape(text));
    let _ = writeln!(out, "{}", about.join(" · "));
    for sentence in &page.sentences {
        let _ = writeln!(out, "\n**{}**", escape(&sentence.text));
    }
    for line in page.further_answers() {
        let _ = writeln!(out, "\n{}", escape(&line.sentence));
    }
    if let Some(note) = &page.note {
        let _ = writeln!(out, "\n{}", escape(note));
    }
    page.metrics.iter().for_each(|metric| table(&mut out, metric));
    let failures: Vec<Remark> = page.failures.iter().map(Failures::remark).collect();
    for remarks in [&page.reasons, &failures, &page.not_run, &page.warnings] {
        list(&mut out, remarks);
    }
    let _ = writeln!(out, "\n{}", escape(&page.machine_line));
    let _ = writeln!(out, "\n{}", escape(&page.method));
    out
}

fn table(out: &mut String, metric: &PageMetric) {
    let Some(better) = metric.better else { return };
    let _ = writeln!(
        out,
        "\n| {} ({better}) | median | ratio | 95 % interval | p | verdict |",
        escape(&metric.label)
    );
    out.push_str("|:--|--:|--:|:--|--:|:--|\n");
    metric.rows.iter().for_each(|row| line(out, row));
    if let Some(floor) = &metric.floor {
        let _ = write!(out, "\nA/A floor {floor}: the baseline against itself");
        for part in metric.checks.as_deref().into_iter().chain(metric.distrust) {
            let _ = write!(out, "; {}", escape(part));
        }
        out.push('\n');
    }
}

fn line(out: &mut String, row: &Row) {
    let [median, ratio, interval, p] = [&row.median, &row.ratio, &row.interval, &row.p]
        .map(|text| text.as_deref().map_or("–".to_owned(), escape));
    let verdict = match row.verdict {
        verdict @ ("better" | "worse") => format!("**{verdict}**"),
        verdict => verdict.to_owned(),
    };
    let _ = writeln!(
        out,
        "| {} | {median} | {ratio} | {interval} | {p} | {verdict} |",
        escape(&row.label),
    );
}

fn list(out: &mut String, remarks: &[Remark]) {
    if remarks.is_empty() {
        return;
    }
    out.push('\n');
    for Remark { subject, text, .. } in remarks {
        let _ = writeln!(out, "- {}: {}", escape(subject), escape(text));
    }
}

/// Text in one line without a meaning in Markdown or HTML.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in one_line(text).chars() {
        if matches!(c, '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '&' | '~' | '#' | '!')
        {
            out.push('\\');
        }
        out.push(c);
    }
    out
}
