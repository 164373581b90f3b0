//! A staged roll-out, as a page.

use maud::{Markup, html};

use super::{Shell, class, findings as answer, heading, section, table};
use crate::page::RolloutPage;

/// The roll-out as one self-contained HTML file.
pub fn rollout_page(page: &RolloutPage) -> String {
    let body = html! {
        (heading(&page.subject, &page.caption))
        (section("Answer", &answer(&page.findings)))
        (section("Stages", &stages(page)))
        @if !page.figures.is_empty() { (section("Figures of the running services", &figures(page))) }
        (section("Hosts", &hosts(page)))
        (section("Every transition", &steps(page)))
        (section("What qualifies this", &html! { @for remark in &page.remarks { p { (remark) } } }))
    };
    Shell::File.page(&page.subject, &body)
}

fn stages(page: &RolloutPage) -> Markup {
    let columns = [">stage", ">hosts", ">ratio", "proof", ">control group", "now"];
    let rows = html! {
        @for stage in &page.stages {
            tr {
                td.n { (stage.name) }
                td.n { (stage.hosts) }
                td.n { (stage.ratio) }
                td { span class=(class(stage.tone)) { (stage.verdict) } }
                td.n { (stage.control) }
                td { (stage.now) }
            }
        }
    };
    let caption = html! { "Ratio: with the plan over without it; control group: hosts, drift since the baseline" };
    table(None, &caption, &columns, &rows)
}

fn figures(page: &RolloutPage) -> Markup {
    let columns = [">stage", "figure", ">ratio", "verdict", ">evidence", ">decided after"];
    let rows = html! {
        @for (stage, row) in &page.figures {
            tr {
                td.n { (stage) }
                th scope="row" { (row.figure) }
                td.n { (row.ratio) }
                td { span class=(class(row.tone)) { (row.verdict) } }
                td.n { (row.evidence) }
                td.n { (row.decided) }
            }
        }
    };
    table(
        None,
        &html! { "Ratio: with the plan over without it, over pairs of hosts and rounds" },
        &columns,
        &rows,
    )
}

fn hosts(page: &RolloutPage) -> Markup {
    let columns = ["host", ">stage", ">ratio", "verdict"];
    let rows = html! {
        @for host in &page.hosts {
            @let (text, tone) = host.outcome();
            tr {
                th scope="row" { (host.host) }
                td.n { (host.stage) }
                td.n { (host.ratio()) }
                td { span class=(class(tone)) { (text) } }
            }
        }
    };
    table(None, &html! { "Each host by its own trials" }, &columns, &rows)
}

fn steps(page: &RolloutPage) -> Markup {
    let rows = html! {
        @for (state, why) in &page.steps { tr { th scope="row" { (state) } td { (why) } } }
    };
    let caption = html! { "Each was on record before anything of it was done" };
    table(None, &caption, &["state", "reason"], &rows)
}
