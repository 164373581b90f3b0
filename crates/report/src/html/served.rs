//! Pages of `serve`: the list, an experiment, a comparison, and errors.

use maud::{Markup, html};
use model::{Ended, Outcome, RunComparison};

use super::{Shell, class, comparison_body, heading, section, shell, table};
use crate::page::{ComparisonPage, Page};
use crate::store::{Filter, Progress, Summary};
use crate::{units, wording};

/// Script of a page that follows a run.
pub const LIVE: &str = shell::LIVE;

pub const ICON: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 16 16\">\
    <rect width=\"16\" height=\"16\" rx=\"3\" fill=\"#3b6fd4\"/><path d=\"M2 11h3l2-7 3 9 2-5h2\" \
    fill=\"none\" stroke=\"#fff\" stroke-width=\"1.5\"/></svg>";

/// One page of the list of experiments, and its filter.
#[derive(Debug)]
pub struct List<'a> {
    pub rows: &'a [Summary],
    /// Rows of all pages.
    pub total: u64,
    /// Rows of a full page.
    pub per_page: u32,
    /// Filter in use; its `offset` selects the page.
    pub filter: &'a Filter,
    pub paths: &'a [String],
    pub machines: &'a [String],
}

pub fn list(list: &List<'_>) -> String {
    let body = html! {
        (heading("Experiments", "What ran here, newest first."))
        (section("Filter", &filter_form(list)))
        (section("Results", &results(list)))
    };
    Shell::Served { here: "/", live: false }.page("Experiments", &body)
}

fn filter_form(list: &List<'_>) -> Markup {
    html! {
        form.filter method="get" action="/" {
            (choice("path", "Path", list.paths, list.filter.path.as_ref()))
            label { "Name" input name="name" value=(list.filter.name.as_deref().unwrap_or_default()); }
            (choice("machine", "Machine", list.machines, list.filter.machine.as_ref()))
            (date("since", "From (UTC)", list.filter.since.as_deref()))
            (date("until", "To (UTC)", list.filter.until.as_deref()))
            button type="submit" { "Show" }
            " "
            a href="/" { "All" }
        }
    }
}

fn choice(name: &str, label: &str, all: &[String], chosen: Option<&String>) -> Markup {
    html! {
        label {
            (label)
            select name=(name) {
                option value="" { "any" }
                @for value in all {
                    option value=(value) selected[chosen == Some(value)] { (value) }
                }
            }
        }
    }
}

fn date(name: &str, label: &str, value: Option<&str>) -> Markup {
    html! { label { (label) input type="date" name=(name) value=(value.unwrap_or_default()); } }
}

fn results(list: &List<'_>) -> Markup {
    const COLUMNS: [&str; 7] =
        ["before", "now", "what, began (UTC)", "result", "ended", ">trials", "machine"];
    if list.rows.is_empty() && list.total == 0 {
        return html! { p { "No experiment fits. " code { "wirepath prove probe" } " makes one." } };
    }
    if list.rows.is_empty() {
        return html! { p { "There are no more." } };
    }
    let rows = html! {
        @for (place, row) in list.rows.iter().enumerate() { (list_row(row, place)) }
    };
    html! {
        form method="get" action="/compare" {
            (table(Some("list"), &html! { "Choose two to compare" }, &COLUMNS, &rows))
            p { button type="submit" { "Compare" } }
        }
        (pages(list))
    }
}

fn list_row(row: &Summary, place: usize) -> Markup {
    // The two newest are selected at first.
    let radio = |name: &str, label: &str, at: usize| {
        html! {
            td {
                input type="radio" name=(name) value=(row.id) aria-label={ (row.id) " is " (label) }
                    checked[place == at];
            }
        }
    };
    let (ended, tone) = wording::ended_briefly(row.ended);
    html! {
        tr {
            (radio("old", "what to compare with", 1))
            (radio("new", "what to compare", 0))
            th scope="row" {
                a href=(experiment_url(&row.id)) { (row.title) }
                " "
                span.when { (wording::minute(&row.started)) }
            }
            td.wrap.doubt[!row.ended.is_complete()] {
                (super::text_or_dash(row.headline.as_deref()))
                @if let Some(note) = &row.note { " " span.muted { (note) } }
            }
            td class=(class(tone)) { (ended) }
            td.n { (row.trials) }
            td { code { (row.machine) } }
        }
    }
}

fn pages(list: &List<'_>) -> Markup {
    let per_page = u64::from(list.per_page.max(1));
    let (here, all) = (u64::from(list.filter.offset) / per_page, list.total.div_ceil(per_page));
    html! {
        p.pages {
            "Page " (here + 1) " of " (all) ", " (units::grouped(list.total as i64)) " experiments. "
            @if here > 0 { (page_link(list, here - 1, "Newer")) }
            @if here + 1 < all { " " (page_link(list, here + 1, "Older")) }
        }
    }
}

fn page_link(list: &List<'_>, page: u64, text: &str) -> Markup {
    let filter = list.filter;
    let mut query = format!("/?page={page}");
    for (name, value) in [
        ("path", &filter.path),
        ("name", &filter.name),
        ("machine", &filter.machine),
        ("since", &filter.since),
        ("until", &filter.until),
    ] {
        if let Some(value) = value {
            query.push_str(&format!("&{name}={}", url(value)));
        }
    }
    html! { a href=(query) { (text) } }
}

/// Text as a part of a URL's path or query.
pub(super) fn url(text: &str) -> String {
    text.bytes()
        .map(|byte: u8| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                char::from(byte).to_string()
            }
            byte => format!("%{byte:02X}"),
        })
        .collect()
}

pub(super) fn experiment_url(id: &str) -> String {
    format!("/experiment/{}", url(id))
}

/// One experiment: downloads, progress while it runs, and its report.
///
/// - `quiet_ms`: time since the last sign of life of a run that has not finished.
pub fn experiment(outcome: &Outcome, progress: &Progress, quiet_ms: u64) -> String {
    let live = progress.ended == Ended::Unfinished;
    let at = experiment_url(&outcome.id);
    let page = Page::from_outcome(outcome);
    let body = html! {
        ul.actions aria-label="downloads" {
            li { a href={ (at) "/outcome.json" } download { "JSON" } }
            li { a href={ (at) "/outcome.csv" } download { "CSV of verdicts" } }
            li { a href={ (at) "/trials.csv" } download { "CSV of trials" } }
            li { a href={ "/path/" (url(&outcome.path)) } { "Path " (outcome.path) } }
        }
        @if live { (progress_section(progress, quiet_ms)) }
        div #report { (super::body(&page)) }
    };
    Shell::Served { here: "", live }.page(&page.title, &body)
}

fn progress_section(progress: &Progress, quiet_ms: u64) -> Markup {
    let budget = progress.budget_ms.filter(|budget| *budget > 0);
    let value = budget.map(|budget| progress.elapsed_ms.min(budget));
    let source = format!("{}/progress.json", experiment_url(&progress.id));
    html! {
        section #live data-progress=(source) data-trials=(progress.trials) {
            h2 { "Under way" }
            progress #bar aria-label="time used" max=[budget] value=[value] {}
            p #said role="status" { (progress_words(progress, quiet_ms)) }
            noscript { p { "Load the page again to see more." } }
        }
    }
}

pub fn progress_words(progress: &Progress, quiet_ms: u64) -> String {
    if progress.ended != Ended::Unfinished {
        return format!("Finished: {}.", wording::ended(progress.ended));
    }
    let trials = units::plural(progress.trials, "trial");
    // A trial with its set-up takes seconds at most, unless all of them take long.
    let per_trial_ms = progress.elapsed_ms / u64::from(progress.trials.max(1));
    if quiet_ms > (10 * per_trial_ms).max(60_000) {
        let quiet = units::duration_ms(quiet_ms);
        return format!("No trial for {quiet}: the run was probably killed. {trials} were saved.");
    }
    let mut text = match progress.block {
        0 => format!("Warm-up, {trials}"),
        block => format!("Block {block}, {trials}"),
    };
    if progress.failed > 0 {
        text.push_str(&format!(", {} failed", progress.failed));
    }
    if let Some(arm) = &progress.arm {
        text.push_str(&format!(", the last of {arm}"));
    }
    text.push_str(&format!(", {}", units::duration_ms(progress.elapsed_ms)));
    if let Some(budget) = progress.budget_ms {
        text.push_str(&format!(" of {} at most", units::duration_ms(budget)));
    }
    text + "."
}

/// Two series of experiments against each other.
pub fn comparison(comparison: &RunComparison) -> String {
    let page = ComparisonPage::from_comparison(comparison);
    let (old, new) = (&page.old.ids.join(","), &page.new.ids.join(","));
    let body = html! {
        ul.actions aria-label="runs and downloads" {
            @for (ids, label) in [(&page.old.ids, "Before"), (&page.new.ids, "Now")] {
                @for (place, id) in ids.iter().enumerate() {
                    li {
                        a href=(experiment_url(id)) {
                            (label) @if ids.len() > 1 { " " (place + 1) }
                        }
                    }
                }
            }
            li { a href={ "/compare?" (compared(new, old)) } { "The other way round" } }
            li { a href={ "/compare.json?" (compared(old, new)) } download { "JSON" } }
        }
        (comparison_body(&page))
    };
    Shell::Served { here: "/compare", live: false }.page("Before and now", &body)
}

/// Query that names two series.
fn compared(old: &str, new: &str) -> String {
    format!("old={}&new={}", url(old), url(new))
}

/// Form for choosing two experiments.
pub fn comparison_form(rows: &[Summary]) -> String {
    let body = html! {
        (heading("Compare", "Are the newer runs different? Verdicts need five a side."))
        (section("Two experiments", &html! {
            form.filter method="get" action="/compare" {
                (experiment_choice(rows, "Before", "old", 1))
                (experiment_choice(rows, "Now", "new", 0))
                button type="submit" { "Compare" }
            }
        }))
    };
    Shell::Served { here: "/compare", live: false }.page("Compare", &body)
}

fn experiment_choice(rows: &[Summary], label: &str, name: &str, chosen: usize) -> Markup {
    html! {
        label {
            (label)
            select name=(name) {
                @for (place, row) in rows.iter().enumerate() {
                    option value=(row.id) selected[place == chosen] {
                        (row.id) " · " (wording::subject(&row.path, &row.load))
                    }
                }
            }
        }
    }
}

pub fn failure(title: &str, text: &str) -> String {
    let body = html! {
        (heading(title, ""))
        (section("Why", &html! { p { (text) } p { a href="/" { "All experiments" } } }))
    };
    Shell::Served { here: "", live: false }.page(title, &body)
}
