//! Two experiments against each other, as a page.

use model::{RunComparison, Verdict};

use super::{Shell, escape, ladder, section, terms};
use crate::{compared, units, words};

/// The comparison as one self-contained HTML file: what differs between the runs first.
pub fn comparison_page(comparison: &RunComparison) -> String {
    let title = title(comparison);
    Shell::File.page(&title, &comparison_body(comparison))
}

/// What stands on the page of a comparison, for a page that has a frame of its own.
pub fn comparison_body(comparison: &RunComparison) -> String {
    let mut body = format!(
        "<header><p class=\"brand\">Wirepath</p><h1>{}</h1><p class=\"meta\">{} → {}</p></header>\n",
        escape(&title(comparison)),
        escape(&comparison.old.id),
        escape(&comparison.new.id)
    );
    body.push_str(&section("What differs between the runs", &differences(comparison)));
    body.push_str(&section("Answer", &answer(comparison)));
    body.push_str(&section("Values: now over before", &charts(comparison, false)));
    body.push_str(&section("Worth: each arm against its own baseline", &charts(comparison, true)));
    body.push_str(&section("Figures", &tables(comparison)));
    body.push_str(&section("What qualifies this", &remarks(comparison)));
    body.push_str(&section("Method", METHOD));
    body
}

/// Heading of a comparison's page.
fn title(comparison: &RunComparison) -> String {
    format!("Before and now: {}", words::subject(&comparison.path, &comparison.load))
}

const METHOD: &str = "<p>Two runs are never interleaved: what happened to the machine between them is \
in every value. <b>Value</b> is the newer run's trials over the older run's: the median of all \
differences of logarithms between a trial of one and a trial of the other, with the interval of the \
rank-sum test. It counts only where the interval is clear of 1, beyond the A/A floors of both runs, \
and beyond what the baseline drifted from the first to the second half of either run. <b>Worth</b> \
compares each arm's ratio to the baseline of its own block: what moves all arms of a run alike \
cancels. It counts only beyond the A/A floors of both runs.</p>";

fn differences(comparison: &RunComparison) -> String {
    let mut out = match comparison.same_machine {
        true => "<p>The machine is the same by its description.</p>".to_owned(),
        false => {
            "<p class=\"notice\">The machines differ: values tell the machines apart, not the \
                  settings.</p>"
                .to_owned()
        }
    };
    out.push_str(
        "<div class=\"scroll\" tabindex=\"0\"><table><caption>Before and now</caption><thead><tr>\
         <th scope=\"col\">what</th><th scope=\"col\">before</th><th scope=\"col\">now</th></tr>\
         </thead><tbody>",
    );
    let run = |run: &model::Run| {
        format!(
            "{}, {}, {}",
            super::readable_time(&run.started),
            words::counted(run.blocks, "block"),
            words::ended(run.ended)
        )
    };
    let mut rows = vec![("run".to_owned(), run(&comparison.old), run(&comparison.new))];
    rows.extend(
        comparison.differences.iter().map(|d| (d.what.clone(), d.old.clone(), d.new.clone())),
    );
    for (what, old, new) in rows {
        out.push_str(&format!(
            "<tr><th scope=\"row\">{}</th><td class=\"wrap\">{}</td><td class=\"wrap\">{}</td></tr>",
            escape(&what),
            escape(&old),
            escape(&new)
        ));
    }
    out + "</tbody></table></div>"
}

fn answer(comparison: &RunComparison) -> String {
    let mut out = String::from("<ul class=\"headlines\">");
    for (label, by_worth) in [("Values", false), ("Worth", true)] {
        let (word, verdict) = compared::verdict(comparison, by_worth);
        out.push_str(&format!(
            "<li><b>{label}</b><span><span class=\"{}\">{}</span>: {}</span></li>",
            super::verdict_class(Some(verdict)),
            word,
            escape(&compared::sentence(comparison, by_worth))
        ));
    }
    out.push_str("</ul>");
    let Some(name) = comparison.judged.first() else { return out };
    out.push_str(&format!("<h3>{}</h3><ul class=\"arms\">", escape(&words::metric(name))));
    for arm in &comparison.arms {
        let Some(metric) = arm.metrics.get(name) else { continue };
        let verdict = metric.value.as_ref().map_or(Verdict::Refused, |change| change.verdict);
        out.push_str(&format!(
            "<li class=\"{}\"><b>{}</b><span>{}</span></li>",
            super::verdict_class(Some(verdict)),
            escape(&arm.name),
            escape(&compared::of_metric(arm, metric))
        ));
    }
    out + "</ul>"
}

fn charts(comparison: &RunComparison, by_worth: bool) -> String {
    let mut out = String::new();
    for (i, name) in comparison.judged.iter().take(super::CHARTS).enumerate() {
        let id = format!("{}{i}", if by_worth { "worth" } else { "value" });
        if let Some(chart) = ladder::of_runs(comparison, name, by_worth, &id) {
            out.push_str(&format!(
                "<figure><figcaption><h3>{}</h3> {}. The band is what counts for nothing.\
                 </figcaption>{chart}</figure>",
                escape(&words::metric(name)),
                escape(&compared::noise(comparison, name))
            ));
        }
    }
    out
}

fn tables(comparison: &RunComparison) -> String {
    comparison.judged.iter().map(|name| table(comparison, name)).collect()
}

fn table(comparison: &RunComparison, name: &str) -> String {
    let mut out = format!(
        "<div class=\"scroll\" tabindex=\"0\"><table class=\"runs\"><caption>{} <code>{}</code></caption><thead><tr>\
         <th scope=\"col\">arm</th><th scope=\"col\" class=\"n\">before</th>\
         <th scope=\"col\" class=\"n\">now</th><th scope=\"col\" class=\"n\">value</th>\
         <th scope=\"col\">verdict</th><th scope=\"col\" class=\"n\">p</th>\
         <th scope=\"col\" class=\"n\">worth</th><th scope=\"col\">verdict</th>\
         <th scope=\"col\" class=\"n\">p</th></tr></thead><tbody>",
        escape(&words::metric(name)),
        escape(name)
    );
    for arm in &comparison.arms {
        let Some(metric) = arm.metrics.get(name) else { continue };
        let figure = |value: Option<f64>| {
            let text = value.map_or("–".into(), |value| units::value(value, &metric.unit));
            format!("<td class=\"n\">{}</td>", escape(&text))
        };
        let change = |change: &Option<model::Change>| {
            let Some(change) = change else {
                return "<td class=\"n\">–</td><td>–</td><td class=\"n\">–</td>".to_owned();
            };
            let interval = change.low.zip(change.high).map_or(String::new(), |(low, high)| {
                format!(" [{}, {}]", units::digits(low), units::digits(high))
            });
            format!(
                "<td class=\"n\">{}{interval}</td><td class=\"{}\">{}</td><td class=\"n\">{}</td>",
                units::ratio(change.ratio),
                super::verdict_class(Some(change.verdict)),
                words::verdict(change.verdict),
                escape(&units::p(change.p))
            )
        };
        out.push_str(&format!(
            "<tr><th scope=\"row\">{}</th>{}{}{}{}</tr>",
            escape(&arm.name),
            figure(metric.old),
            figure(metric.new),
            change(&metric.value),
            change(&metric.worth)
        ));
    }
    out + "</tbody></table></div>"
}

fn remarks(comparison: &RunComparison) -> String {
    let mut items: Vec<(String, String)> =
        comparison.warnings.iter().map(|w| (w.what.clone(), w.advice.clone())).collect();
    for (arms, when) in [(&comparison.only_old, "before"), (&comparison.only_new, "now")] {
        if !arms.is_empty() {
            items.push((format!("Arms only {when}"), arms.join(", ")));
        }
    }
    terms(&items)
}
