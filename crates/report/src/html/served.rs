//! Pages of `serve`: the list, an experiment, a comparison, and what went wrong.

use model::{Ended, Outcome, RunComparison};

use super::{Shell, comparison_body, escape, readable_time, shell};
use crate::store::{Filter, Progress, Summary};
use crate::{units, words};

/// The script of a page that follows a run.
pub const LIVE: &str = shell::LIVE;

/// The mark in a browser's tab.
pub const ICON: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 16 16\">\
    <rect width=\"16\" height=\"16\" rx=\"3\" fill=\"#3b6fd4\"/><path d=\"M2 11h3l2-7 3 9 2-5h2\" \
    fill=\"none\" stroke=\"#fff\" stroke-width=\"1.5\"/></svg>";

/// The list of experiments, and what it was filtered by.
#[derive(Debug)]
pub struct List<'a> {
    /// Rows of this page.
    pub rows: &'a [Summary],
    /// Rows of all pages.
    pub total: u64,
    /// Rows of a whole page.
    pub per_page: u32,
    /// Which rows: `offset` says which page.
    pub filter: &'a Filter,
    /// Paths to choose from.
    pub paths: &'a [String],
    /// Machines to choose from.
    pub machines: &'a [String],
}

/// The list.
pub fn list(list: &List<'_>) -> String {
    let mut body = heading("Experiments", "What ran here, newest first.");
    body.push_str(&format!("<section>\n<h2>Filter</h2>\n{}</section>\n", filter_form(list)));
    body.push_str("<section>\n<h2>Results</h2>\n");
    body.push_str(&results(list));
    body.push_str("</section>\n");
    Shell::Served { here: "/", live: false }.page("Experiments", &body)
}

pub(super) fn heading(title: &str, below: &str) -> String {
    format!(
        "<header><p class=\"brand\">Wirepath</p><h1>{}</h1><p class=\"meta\">{}</p></header>\n",
        escape(title),
        escape(below)
    )
}

fn filter_form(list: &List<'_>) -> String {
    let choice = |name: &str, label: &str, all: &[String], chosen: &Option<String>| {
        let options: String = all
            .iter()
            .map(|value| {
                let mark = if chosen.as_ref() == Some(value) { " selected" } else { "" };
                let value = escape(value);
                format!("<option value=\"{value}\"{mark}>{value}</option>")
            })
            .collect();
        format!(
            "<label>{label}<select name=\"{name}\"><option value=\"\">any</option>{options}\
             </select></label>"
        )
    };
    let date = |name: &str, label: &str, value: &Option<String>| {
        let value = escape(value.as_deref().unwrap_or_default());
        format!("<label>{label}<input type=\"date\" name=\"{name}\" value=\"{value}\"></label>")
    };
    format!(
        "<form class=\"filter\" method=\"get\" action=\"/\">{}{}{}{}\
         <button type=\"submit\">Show</button> <a href=\"/\">All</a></form>",
        choice("path", "Path", list.paths, &list.filter.path),
        choice("machine", "Machine", list.machines, &list.filter.machine),
        date("since", "From (UTC)", &list.filter.since),
        date("until", "To (UTC)", &list.filter.until)
    )
}

fn results(list: &List<'_>) -> String {
    if list.rows.is_empty() {
        return match list.total {
            0 => "<p>No experiment fits. <code>wirepath prove probe</code> makes one.</p>".into(),
            _ => "<p>There are no more.</p>".into(),
        };
    }
    let mut out = String::from(
        "<form method=\"get\" action=\"/compare\"><div class=\"scroll\" tabindex=\"0\"><table class=\"list\">\
         <caption>Choose two to compare</caption><thead><tr><th scope=\"col\">before</th>\
         <th scope=\"col\">now</th><th scope=\"col\">began (UTC)</th><th scope=\"col\">what</th>\
         <th scope=\"col\">result</th><th scope=\"col\">ended</th>\
         <th scope=\"col\" class=\"n\">trials</th><th scope=\"col\">machine</th></tr></thead><tbody>",
    );
    for (place, row) in list.rows.iter().enumerate() {
        out.push_str(&list_row(row, place));
    }
    out.push_str("</tbody></table></div><p><button type=\"submit\">Compare</button></p></form>");
    out + &pages(list)
}

fn list_row(row: &Summary, place: usize) -> String {
    let id = escape(&row.id);
    // The two newest, unless chosen otherwise.
    let radio = |name: &str, label: &str, at: usize| {
        format!(
            "<td><input type=\"radio\" name=\"{name}\" value=\"{id}\" aria-label=\"{id} is {label}\"\
             {}></td>",
            if place == at { " checked" } else { "" }
        )
    };
    let (ended, class) = match row.ended {
        Ended::Settled => ("settled", "good"),
        Ended::TimeUp => ("time up", "muted"),
        Ended::BlockLimit => ("block limit", "muted"),
        Ended::Interrupted => ("interrupted", "doubt"),
        Ended::Unfinished => ("not finished", "doubt"),
    };
    let began = readable_time(&row.started);
    format!(
        "<tr>{}{}<td>{}</td><th scope=\"row\"><a href=\"{}\">{}</a></th><td class=\"wrap\">{}</td>\
         <td class=\"{class}\">{ended}</td><td class=\"n\">{}</td><td><code>{}</code></td></tr>\n",
        radio("old", "what to compare with", 1),
        radio("new", "what to compare", 0),
        escape(began.get(..16).unwrap_or(&began)),
        experiment_url(&row.id),
        escape(&words::subject(&row.path, &row.load)),
        escape(row.headline.as_deref().unwrap_or("–")),
        row.trials,
        escape(&row.machine)
    )
}

fn pages(list: &List<'_>) -> String {
    let per_page = u64::from(list.per_page.max(1));
    let (here, all) = (u64::from(list.filter.offset) / per_page, list.total.div_ceil(per_page));
    let link = |page: u64, text: &str| {
        let mut query = vec![format!("page={page}")];
        let filter = list.filter;
        for (name, value) in [
            ("path", &filter.path),
            ("machine", &filter.machine),
            ("since", &filter.since),
            ("until", &filter.until),
        ] {
            query.extend(value.as_ref().map(|value| format!("{name}={}", url(value))));
        }
        format!("<a href=\"/?{}\">{text}</a>", escape(&query.join("&")))
    };
    let mut out = format!(
        "<p class=\"pages\">Page {} of {all}, {} experiments. ",
        here + 1,
        units::grouped(list.total as i64)
    );
    if here > 0 {
        out.push_str(&link(here - 1, "Newer"));
    }
    if here + 1 < all {
        out.push_str(&format!(" {}", link(here + 1, "Older")));
    }
    out + "</p>"
}

/// Text as a part of a URL's path or query.
pub(super) fn url(text: &str) -> String {
    let escaped = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
            char::from(byte).to_string()
        }
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(escaped).collect()
}

/// Where an experiment's page is.
pub(super) fn experiment_url(id: &str) -> String {
    format!("/experiment/{}", url(id))
}

/// One experiment: its report, what can be had of it, and how far it is if it still runs.
///
/// `quiet_ms` says for how long nothing has been heard of a run that is not finished.
pub fn experiment(outcome: &Outcome, progress: &Progress, quiet_ms: u64) -> String {
    let live = progress.ended == Ended::Unfinished;
    let at = experiment_url(&outcome.id);
    let mut body = format!(
        "<ul class=\"actions\" aria-label=\"downloads\"><li><a href=\"{at}/outcome.json\" download>JSON</a></li>\
         <li><a href=\"{at}/outcome.csv\" download>CSV of verdicts</a></li>\
         <li><a href=\"{at}/trials.csv\" download>CSV of trials</a></li>\
         <li><a href=\"/path/{}\">Path {}</a></li></ul>\n",
        url(&outcome.path),
        escape(&outcome.path)
    );
    if live {
        body.push_str(&progress_section(progress, quiet_ms));
    }
    body.push_str(&format!("<div id=\"report\">{}</div>\n", super::body(outcome)));
    let title = words::subject(&outcome.path, &outcome.load);
    Shell::Served { here: "", live }.page(&title, &body)
}

fn progress_section(progress: &Progress, quiet_ms: u64) -> String {
    let budget = progress.budget_ms.unwrap_or(0);
    let bar = match budget {
        0 => "<progress id=\"bar\" aria-label=\"time used\"></progress>".to_owned(),
        _ => format!(
            "<progress id=\"bar\" aria-label=\"time used\" max=\"{budget}\" value=\"{}\"></progress>",
            progress.elapsed_ms.min(budget)
        ),
    };
    format!(
        "<section id=\"live\" data-progress=\"{}/progress.json\" data-trials=\"{}\">\n<h2>Under way</h2>\n{bar}\n\
         <p id=\"said\" role=\"status\">{}</p>\n<noscript><p>Load the page again to see more.</p>\
         </noscript>\n</section>\n",
        experiment_url(&progress.id),
        progress.trials,
        escape(&progress_words(progress, quiet_ms))
    )
}

/// How far a run is, in one sentence.
pub fn progress_words(progress: &Progress, quiet_ms: u64) -> String {
    if progress.ended != Ended::Unfinished {
        return format!("Finished: {}.", words::ended(progress.ended));
    }
    // A trial with its set-up takes seconds at most, unless all are that long.
    let per_trial = progress.elapsed_ms / u64::from(progress.trials.max(1));
    if quiet_ms > (10 * per_trial).max(60_000) {
        return format!(
            "Nothing heard for {}: it was killed, most likely. {} were saved.",
            units::duration_ms(quiet_ms),
            words::counted(progress.trials, "trial")
        );
    }
    let mut text = match progress.block {
        0 => format!("Warm-up, {}", words::counted(progress.trials, "trial")),
        block => format!("Block {block}, {}", words::counted(progress.trials, "trial")),
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

/// Two experiments against each other.
pub fn comparison(comparison: &RunComparison) -> String {
    let (old, new) = (&comparison.old.id, &comparison.new.id);
    let query = |old: &str, new: &str| format!("old={}&amp;new={}", url(old), url(new));
    let body = format!(
        "<ul class=\"actions\" aria-label=\"runs and downloads\"><li><a href=\"{}\">Before</a></li>\
         <li><a href=\"{}\">Now</a></li><li><a href=\"/compare?{}\">The other way round</a></li>\
         <li><a href=\"/compare.json?{}\" download>JSON</a></li></ul>\n{}",
        experiment_url(old),
        experiment_url(new),
        query(new, old),
        query(old, new),
        comparison_body(comparison),
    );
    Shell::Served { here: "/compare", live: false }.page("Before and now", &body)
}

/// Asks for two experiments.
pub fn comparison_form(rows: &[Summary]) -> String {
    let options = |chosen: usize| -> String {
        let option = |(place, row): (usize, &Summary)| {
            let mark = if place == chosen { " selected" } else { "" };
            format!(
                "<option value=\"{0}\"{mark}>{0} · {1}</option>",
                escape(&row.id),
                escape(&words::subject(&row.path, &row.load))
            )
        };
        rows.iter().enumerate().map(option).collect()
    };
    let mut body = heading("Compare", "Is the newer run different, beyond the noise of both?");
    body.push_str(&format!(
        "<section>\n<h2>Two experiments</h2>\n<form class=\"filter\" method=\"get\" action=\"/compare\">\
         <label>Before<select name=\"old\">{}</select></label><label>Now<select name=\"new\">{}\
         </select></label><button type=\"submit\">Compare</button></form>\n</section>\n",
        options(1),
        options(0)
    ));
    Shell::Served { here: "/compare", live: false }.page("Compare", &body)
}

/// Says what went wrong.
pub fn failure(title: &str, text: &str) -> String {
    let mut body = heading(title, "");
    body.push_str(&format!(
        "<section>\n<h2>Why</h2>\n<p>{}</p>\n<p><a href=\"/\">All experiments</a></p>\n</section>\n",
        escape(text)
    ));
    Shell::Served { here: "", live: false }.page(title, &body)
}
