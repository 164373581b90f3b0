//! Pages: one self-contained file without network and script, and the same as `serve` shows them.

mod answer;
mod compare;
mod cpus;
mod curves;
mod ladder;
mod path;
pub mod served;
mod shell;
mod svg;
mod trials;

use model::{ArmOutcome, Outcome, Support, Verdict};

use crate::{units, words};

pub use compare::{comparison_body, comparison_page};
pub use path::{LoadText, PathPage, paths};
pub use shell::{STYLE, Shell};

/// Judged metrics that get a chart.
const CHARTS: usize = 3;

/// The whole experiment as one HTML file.
///
/// Needs no network and no script; follows the reader's light or dark preference,
/// fits a telephone and paper. Every string of the outcome is escaped.
pub fn page(outcome: &Outcome) -> String {
    Shell::File.page(&words::subject(&outcome.path, &outcome.load), &body(outcome))
}

/// What stands on the page of an experiment, for a page that has a frame of its own.
pub fn body(outcome: &Outcome) -> String {
    let subject = words::subject(&outcome.path, &outcome.load);
    let mut body = String::new();
    body.push_str(&format!(
        "<header><p class=\"brand\">Wirepath</p><h1>{}</h1><p class=\"meta\">{} · {} · {}</p></header>\n",
        escape(&subject),
        escape(&outcome.id),
        escape(&readable_time(&outcome.started)),
        escape(&format!("wirepath {}", outcome.version)),
    ));
    body.push_str(&section("Answer", &answer::answer(outcome)));
    body.push_str(&section("What each arm is worth", &ladders(outcome)));
    body.push_str(&section("Latency", &tails(outcome)));
    body.push_str(&section("Trial by trial", &series(outcome)));
    body.push_str(&section("Cost by CPU", &cpu_cost(outcome)));
    body.push_str(&section("Figures", &tables(outcome)));
    body.push_str(&section("Doubts", &doubts(outcome)));
    body.push_str(&section("Not run here", &not_run(outcome)));
    body.push_str(&section("Warnings", &warnings(outcome)));
    body.push_str(&section("Machine", &machine(outcome)));
    body.push_str(&section("Method", &method(outcome)));
    body.push_str(&section("Trials", &trials::tables(outcome)));
    body.push_str(&section("Run it again", &again(outcome)));
    body
}

/// Text that stands for itself in HTML and in a quoted attribute.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Invisible ones may turn what is read around them.
            '\n' | '\t' => out.push(' '),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('\u{fffd}'),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// At most so many characters, for a chart's margin.
fn shortened(text: &str, most: usize) -> String {
    // The backend escapes markup only.
    let safe =
        |c: char| if c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c) { '?' } else { c };
    let text: String = text.chars().map(safe).collect();
    if text.chars().count() <= most {
        return text;
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

fn section(title: &str, body: &str) -> String {
    match body.is_empty() {
        true => String::new(),
        false => format!("<section>\n<h2>{title}</h2>\n{body}\n</section>\n"),
    }
}

/// `2026-11-21T08:30:00.123456789Z` → `2026-11-21 08:30:00 UTC`.
fn readable_time(started: &str) -> String {
    match started.strip_suffix('Z') {
        Some(time) => {
            let whole = time.split_once('.').map_or(time, |(whole, _)| whole);
            format!("{} UTC", whole.replace('T', " "))
        }
        None => started.into(),
    }
}

fn ladders(outcome: &Outcome) -> String {
    let mut out = String::new();
    for (i, name) in outcome.judged.iter().take(CHARTS).enumerate() {
        if let Some(chart) = ladder::chart(outcome, name, &format!("ladder{i}")) {
            out.push_str(&format!(
                "<figure><figcaption><h3>{}</h3> {}</figcaption>{chart}</figure>",
                escape(&words::metric(name)),
                escape(&floor_words(outcome, name)),
            ));
        }
    }
    out
}

fn floor_words(outcome: &Outcome, name: &str) -> String {
    match outcome.floor.get(name) {
        Some(floor) => format!(
            "The band is the noise floor: the baseline against itself gave {} to {}. A difference \
             counts only beyond it.",
            units::ratio(floor.low),
            units::ratio(floor.high)
        ),
        None => "The noise floor is not known: take no verdict for more than its interval.".into(),
    }
}

fn tails(outcome: &Outcome) -> String {
    let mut out = String::new();
    for (i, segment) in curves::segments(outcome).iter().take(CHARTS).enumerate() {
        if let Some(chart) = curves::tail(outcome, segment, &format!("tail{i}")) {
            out.push_str(&format!(
                "<figure><figcaption><h3>{}</h3> Complementary distribution: how many samples took longer than a latency, all \
                 trials together. The line furthest left is the fastest. At 1 % stands p99. A line \
                 ends where too few samples stand behind it.</figcaption>{chart}</figure>",
                escape(segment)
            ));
        }
    }
    out
}

fn series(outcome: &Outcome) -> String {
    let mut out = String::new();
    for (i, name) in outcome.judged.iter().take(CHARTS).enumerate() {
        if let Some(chart) = curves::series(outcome, name, &format!("series{i}")) {
            out.push_str(&format!(
                "<figure><figcaption><h3>{}</h3> One point a trial, in the order of blocks. What \
                 moves all lines together is the machine; ratios are taken within a block, so that \
                 it cancels.</figcaption>{chart}</figure>",
                escape(&words::metric(name))
            ));
        }
    }
    out
}

fn cpu_cost(outcome: &Outcome) -> String {
    let Some((chart, is_part)) = cpus::chart(outcome, "cpus") else { return String::new() };
    let most = if is_part { " The busiest are shown." } else { "" };
    format!(
        "<figure><figcaption><h3>CPU time in use</h3> Of the whole machine while the trials ran, \
         with their set-up and whatever else ran. A spinning receiver fills its CPU whatever \
         arrives.{most}</figcaption>{chart}</figure>"
    )
}

fn tables(outcome: &Outcome) -> String {
    let mut names: Vec<&String> = outcome.judged.iter().collect();
    for arm in &outcome.arms {
        for name in arm.metrics.keys() {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    let judged = outcome.judged.len();
    let mut out: String = names[..judged].iter().map(|name| table(outcome, name)).collect();
    if names.len() > judged {
        out.push_str(&others(outcome, &names[judged..]));
    }
    out
}

fn table(outcome: &Outcome, name: &str) -> String {
    let Some(shape) = words::shape(outcome, name) else { return String::new() };
    let mut out = format!(
        "<div class=\"scroll\" tabindex=\"0\"><table><caption>{} <code>{}</code>, {}</caption>\
         <thead><tr><th scope=\"col\">arm</th><th scope=\"col\" class=\"n\">median</th>\
         <th scope=\"col\" class=\"n\">ratio</th><th scope=\"col\">verdict</th>\
         <th scope=\"col\" class=\"n\">95 % interval</th><th scope=\"col\" class=\"n\">p</th>\
         <th scope=\"col\" class=\"n\">trials</th></tr></thead><tbody>",
        escape(&words::metric(name)),
        escape(name),
        words::better(shape.better),
    );
    for arm in &outcome.arms {
        out.push_str(&table_row(arm, name));
    }
    out + "</tbody></table></div>"
}

/// Class of the style sheet that a verdict is shown in.
fn verdict_class(verdict: Option<Verdict>) -> &'static str {
    match verdict {
        Some(Verdict::Better) => "good",
        Some(Verdict::Worse) => "bad",
        Some(Verdict::Inconclusive | Verdict::NotEffective | Verdict::Refused) => "doubt",
        _ => "muted",
    }
}

fn table_row(arm: &ArmOutcome, name: &str) -> String {
    let metric = arm.metrics.get(name);
    let cell = |text: Option<String>| {
        format!("<td class=\"n\">{}</td>", text.map_or("–".into(), |t| escape(&t)))
    };
    let verdict = match (&arm.support, metric) {
        (Support::Unsupported { .. }, _) => "unsupported",
        (Support::Refused { .. }, _) => "not run",
        (_, Some(metric)) => metric.verdict.map_or(words::kind(arm.kind), words::verdict),
        (_, None) => "no figure",
    };
    let class = verdict_class(metric.and_then(|m| m.verdict));
    let median = metric.and_then(|m| Some(units::value(m.median?, &m.unit)));
    format!(
        "<tr><th scope=\"row\">{}</th>{}{}<td class=\"{class}\">{verdict}</td>{}{}\
         <td class=\"n\">{}</td></tr>",
        escape(&arm.name),
        cell(median),
        cell(metric.and_then(|m| m.ratio).map(units::ratio)),
        cell(metric.and_then(words::interval)),
        cell(metric.and_then(|m| m.p).map(units::p)),
        arm.trials
    )
}

/// Medians of what is reported and not judged, arms down and metrics across.
fn others(outcome: &Outcome, names: &[&String]) -> String {
    let mut out = String::from(
        "<div class=\"scroll\" tabindex=\"0\"><table><caption>Also measured, not judged: medians\
         </caption><thead><tr><th scope=\"col\">arm</th>",
    );
    for name in names {
        let label = escape(&words::metric(name));
        out.push_str(&format!("<th scope=\"col\" class=\"n\">{label}</th>"));
    }
    out.push_str("</tr></thead><tbody>");
    for arm in outcome.arms.iter().filter(|arm| !arm.metrics.is_empty()) {
        out.push_str(&format!("<tr><th scope=\"row\">{}</th>", escape(&arm.name)));
        for name in names {
            let metric = arm.metrics.get(*name);
            let text = metric.and_then(|m| Some(units::value(m.median?, &m.unit)));
            let text = text.map_or("–".into(), |t| escape(&t));
            out.push_str(&format!("<td class=\"n\">{text}</td>"));
        }
        out.push_str("</tr>");
    }
    out + "</tbody></table></div>"
}

/// `<dl>` of (term, text), empty when there is none; both are escaped here.
fn terms(items: &[(String, String)]) -> String {
    if items.is_empty() {
        return String::new();
    }
    let rows = items.iter().map(|(term, text)| {
        format!("<div><dt>{}</dt><dd>{}</dd></div>", escape(term), escape(text))
    });
    format!("<dl>{}</dl>", rows.collect::<String>())
}

fn doubts(outcome: &Outcome) -> String {
    let mut items = Vec::new();
    for arm in outcome.arms.iter().filter(|arm| arm.support.is_yes()) {
        for (why, metrics) in words::reasons(arm, &outcome.judged) {
            items.push((arm.name.clone(), format!("{why} ({})", metrics.join(", "))));
        }
        if let Some(books) = words::Books::of(arm).words() {
            items.push((arm.name.clone(), format!("Delivery: {books}")));
        }
        for failure in &arm.failures {
            items.push((arm.name.clone(), format!("A trial failed: {failure}")));
        }
    }
    terms(&items)
}

fn not_run(outcome: &Outcome) -> String {
    let items: Vec<_> = outcome
        .arms
        .iter()
        .filter_map(|arm| match &arm.support {
            Support::Yes => None,
            Support::Unsupported { what, needs } => {
                Some((arm.name.clone(), format!("{what}. To run it: {needs}")))
            }
            Support::Refused { why } => {
                Some((arm.name.clone(), format!("Not run on purpose: {why}")))
            }
        })
        .collect();
    terms(&items)
}

fn warnings(outcome: &Outcome) -> String {
    if outcome.warnings.is_empty() {
        return String::new();
    }
    let items = outcome.warnings.iter().map(|w| (w.what.clone(), w.advice.clone()));
    format!("<div class=\"long\">{}</div>", terms(&items.collect::<Vec<_>>()))
}

fn machine(outcome: &Outcome) -> String {
    let m = &outcome.machine;
    let mut items = vec![
        ("Kernel".to_string(), m.kernel.clone()),
        ("CPU".into(), m.cpu.clone()),
        ("CPUs used".into(), m.cpus.to_string()),
        ("Memory".into(), units::memory(m.memory_bytes)),
        ("Interface".into(), m.nic.clone()),
        ("Hypervisor".into(), m.hypervisor.clone().unwrap_or_else(|| "none seen".into())),
        ("Governor".into(), m.governor.clone().unwrap_or_else(|| "none".into())),
        (
            "Load at the start".into(),
            format!("{}.{:02} over one minute", m.load_x100 / 100, m.load_x100 % 100),
        ),
        ("Machine id".into(), m.id.clone()),
    ];
    items.extend(m.notes.clone());
    for (name, mode, arms) in words::modes(outcome) {
        items.push((format!("{name} in use"), format!("{mode}: {}", arms.join(", "))));
    }
    terms(&items)
}

fn method(outcome: &Outcome) -> String {
    format!(
        "<p>{}.</p><p>Each block runs every arm once, in an order drawn from the seed; the first \
         block is warm-up and does not count. The unit of repetition is the trial, and none is \
         dropped as an outlier. A ratio is the median over blocks of the arm's value divided by \
         the baseline's in the same block; its 95 % interval is that of the median by order statistics, p comes \
         from a two-sided permutation test. The baseline runs twice in each block: the ratio of \
         the two is the noise floor. “Better” and “worse” need an interval clear of 1 and beyond \
         the floor; “no difference shown” needs one narrow enough to say so; else the verdict is \
         “inconclusive”. A step from rung to rung is judged by the same rule, from the ratios \
         between the two arms in the same blocks. Percentiles are refused where packets were lost or too few samples stand behind \
         them.</p>",
        escape(&words::method(outcome))
    )
}

fn again(outcome: &Outcome) -> String {
    let mut out = format!("<pre><code>{}</code></pre>", escape(&words::command(outcome)));
    let load: Vec<_> = outcome.load.iter().map(|(k, v)| format!("{k} = {v}")).collect();
    out.push_str(&format!("<p class=\"muted\">Load: {}</p>", escape(&load.join(", "))));
    out
}
