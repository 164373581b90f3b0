//! The page of a curve of latency against load.

use maud::{Markup, html};
use model::LoadCurve;

use super::{Shell, arms, figure, heading, line_chart, remarks, section, table, terms};
use crate::page::{CurveArm, CurvePage};

pub fn curve_page(curve: &LoadCurve) -> String {
    let page = CurvePage::from_curve(curve);
    Shell::File.page(&page.subject, &body(&page))
}

fn body(page: &CurvePage) -> Markup {
    html! {
        (heading(&page.subject, &page.below))
        (section("The knee of each arm", &arms(
            page.knees.iter().map(|knee| (knee.tone, knee.subject.as_str(), knee.text.as_str()))
        )))
        (section("Round trips", &html! {
            @for (i, chart) in page.charts.iter().enumerate() {
                (figure(&chart.chart.label, &html! {
                    "From the moment a datagram is due to its answer; all trials of a rate together. The \
                     dot on a line is the lower bound of its knee. A line ends where the figure lies among datagrams that \
                     were lost or could not be sent."
                }, &line_chart::curve(chart, &format!("curve{i}"))))
            }
        }))
        (section("Figures", &html! { @for arm in &page.arms { (figures(arm)) } }))
        (section("Doubts", &remarks(&page.doubts)))
        (section("Machine", &terms(page.machine.iter().map(|(term, text)| (term.as_str(), text.as_str())))))
        (section("Method", &html! { p { (page.method) "." } }))
    }
}

fn figures(arm: &CurveArm) -> Markup {
    const COLUMNS: [&str; 10] = [
        ">offered",
        ">sent",
        ">received",
        ">lost",
        ">unsent",
        ">p50",
        ">p99",
        ">max",
        ">CPU per packet",
        "",
    ];
    let rows = html! {
        @for row in &arm.rows {
            tr {
                th.n scope="row" { (row.offered) }
                @for count in &row.counts { td.n { (count) } }
                @for figure in &row.figures { td.n { (super::text_or_dash(figure.as_deref())) } }
                td.good { @if row.is_knee { "knee" } }
            }
        }
    };
    table(None, &html! { (arm.name) }, &COLUMNS, &rows)
}
