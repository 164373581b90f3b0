//! Two series of experiments against each other, as a page.

use maud::{Markup, html};
use model::RunComparison;

use super::{
    CHARTS_MAX, Shell, arms, caption, class, figure, gate_lines, heading, ratio_chart, remarks,
    section, sentences, table, text_or_dash,
};
use crate::page::{ChangeText, ComparedMetric, ComparisonPage};
use crate::screen::Tone;

/// The comparison as one self-contained HTML file; the differences between the runs come first.
pub fn comparison_page(comparison: &RunComparison) -> String {
    let page = ComparisonPage::from_comparison(comparison);
    Shell::File.page(&title(&page), &comparison_body(&page))
}

/// Content of a comparison's page, for [`Shell::page`].
pub fn comparison_body(page: &ComparisonPage) -> Markup {
    html! {
        (heading(&title(page), &format!("{} → {}", page.old.name, page.new.name)))
        (section("What differs between the runs", &differences(page)))
        (section("Answer", &answer(page)))
        (section("Values: now over before", &charts(page, false)))
        (section("Worth: each arm against its own baseline", &charts(page, true)))
        (section("Figures", &html! { @for metric in &page.metrics { (figures(metric)) } }))
        (section("What qualifies this", &remarks(&page.remarks)))
        (section("Method", &method(page)))
    }
}

fn title(page: &ComparisonPage) -> String {
    format!("Before and now: {}", page.subject)
}

fn method(page: &ComparisonPage) -> Markup {
    let unit = page.unit;
    html! {
        p {
            "The " (unit) " is the unit: runs are not interleaved, so every value includes what changed on \
             the machine between them, and runs of one day share what that day does. Each " (unit)
            " contributes one figure, the median over its runs, to each row. "
            b { "Value" }
            " is the median of the arm's trials; "
            b { "worth" }
            " is its ratio to the baselines of its own run, in which changes that move all arms of a \
             run alike cancel. The ratio is the median of all ratios between a newer and an older "
            (unit) ", its interval that of the rank-sum test. Better and worse need an interval clear of \
             1 and a p-value below 0.05 after Holm's correction for all values, or all worths; no \
             difference is shown by an interval at 5 % over the number of figures within " (page.resolve) ". Below five " (unit) "s a side there is no \
             verdict: the day cannot be told from the change."
        }
    }
}

fn difference(what: &str, old: &str, new: &str) -> Markup {
    html! { tr { th scope="row" { (what) } td.wrap { (old) } td.wrap { (new) } } }
}

fn differences(page: &ComparisonPage) -> Markup {
    let rows = html! {
        (difference("runs", &page.old.course, &page.new.course))
        @for d in &page.differences { (difference(&d.what, &d.old, &d.new)) }
    };
    html! {
        @if page.same_machine {
            p { "The machine is the same by its description." }
        } @else {
            p.notice { "The machines differ: values tell the machines apart, not the settings." }
        }
        (table(None, &html! { "Before and now" }, &["what", "before", "now"], &rows))
    }
}

fn answer(page: &ComparisonPage) -> Markup {
    let unit = &page.unit_line;
    html! {
        (sentences(&page.sentences))
        @if unit.tone == Tone::Bad {
            p.notice { "The unit is " (unit.subject) ": " (unit.text) "." }
        } @else {
            p { "The unit is " (unit.subject) ": " (unit.text) "." }
        }
        (gate_lines(&page.gate))
        ul.headlines {
            @for (label, answer) in [("Values", &page.values), ("Worth", &page.worth)] {
                li {
                    b { (label) } " "
                    span { span class=(class(answer.tone)) { (answer.subject) } ": " (answer.text) }
                }
            }
        }
        @if let Some(metric) = page.metrics.first() {
            h3 { (metric.label) }
            (arms(metric.rows.iter().map(|row| (row.tone, row.arm.as_str(), row.sentence.as_str()))))
        }
    }
}

fn charts(page: &ComparisonPage, by_worth: bool) -> Markup {
    let name = if by_worth { "worth" } else { "value" };
    html! {
        @for (i, metric) in page.metrics.iter().take(CHARTS_MAX).enumerate() {
            @if let Some(chart) = if by_worth { &metric.worth } else { &metric.values } {
                (figure(
                    &metric.label,
                    &html! { "One figure a " (page.unit) "." },
                    &ratio_chart::draw(chart, &format!("{name}{i}")),
                ))
            }
        }
    }
}

fn figures(metric: &ComparedMetric) -> Markup {
    const COLUMNS: [&str; 9] =
        ["arm", ">before", ">now", ">value", "verdict", ">p", ">worth", "verdict", ">p"];
    let rows = html! {
        @for row in &metric.rows {
            tr {
                th scope="row" { (row.arm) }
                td.n { (text_or_dash(row.old.as_deref())) }
                td.n { (text_or_dash(row.new.as_deref())) }
                (change(row.value.as_ref()))
                (change(row.worth.as_ref()))
            }
        }
    };
    table(Some("runs"), &caption(&metric.label, &metric.name), &COLUMNS, &rows)
}

fn change(change: Option<&ChangeText>) -> Markup {
    let Some(change) = change else { return html! { td.n { "–" } td { "–" } td.n { "–" } } };
    html! {
        td.n { (change.ratio) @if let Some(interval) = &change.interval { " " (interval) } }
        td class=(class(change.tone)) { (change.verdict) }
        td.n { (text_or_dash(change.p.as_deref())) }
    }
}
