//! Pages: a self-contained file without network and script, and the same as `serve` shows it.

mod atlas;
mod compare;
mod cpu_chart;
mod curve;
mod line_chart;
mod live_proof;
mod mesh;
mod path;
mod ratio_chart;
mod rollout;
pub mod served;
mod shell;
mod summary;
mod svg;
mod watch;

use std::iter;

use maud::{Markup, html};
use model::Outcome;

use crate::answer::Sentence;
use crate::page::{self, GateLine, Page, PageMetric, Remark};
use crate::screen::Tone;

pub use atlas::{ATLAS_INDEX, atlas_site};
pub use compare::{comparison_body, comparison_page};
pub use curve::curve_page;
pub use live_proof::live_page;
pub use mesh::mesh_page;
pub use path::{LoadText, PathPage, paths};
pub use rollout::rollout_page;
pub use shell::{STYLE, Shell};
pub use summary::summary_page;
pub use watch::watch_page;

/// Judged metrics that get a chart.
const CHARTS_MAX: usize = 3;

/// An experiment as one HTML file.
///
/// It needs no network and no script, follows the reader's light or dark preference, and fits a
/// telephone and paper. Every string of the outcome is escaped.
pub fn page(outcome: &Outcome) -> String {
    let page = Page::from_outcome(outcome);
    Shell::File.page(&page.title, &body(&page))
}

/// Content of an experiment's page, for [`Shell::page`]: the answer on the first screen, all else folded.
pub fn body(page: &Page) -> Markup {
    let about = [&page.subject, &page.id, &page.started, &page.version].map(String::as_str);
    html! {
        (heading(&page.title, &about.join(" · ")))
        (section("Answer", &answer(page)))
        (section("Traffic", &traffic(page)))
        (fold("What each arm is worth", &worth(page)))
        (fold("Latency", &tails(page)))
        (fold("From the time in the packet", &calibrated(page)))
        (fold("Trial by trial", &series(page)))
        (fold("Cost by CPU", &cpus(page)))
        (fold("CPU time by function", &functions(page)))
        (fold("Figures", &tables(page)))
        (fold("Doubts", &doubts(page)))
        (fold("Not run here", &remarks(&page.not_run)))
        (fold("Warnings", &warnings(page)))
        (fold("Machine", &machine(page)))
        (fold("Method", &method(page)))
        (fold("Trials", &trials(page)))
        (fold("Run it again", &html! {
            pre { code { (page.command) } }
            p.muted { "Load: " (page.load) }
        }))
    }
}

/// Text for HTML, also inside a quoted attribute.
pub fn escape(text: &str) -> String {
    visible(&html! { (text) }.into_string())
}

/// Replaces characters that are invisible or change the direction of the text around them.
fn visible(document: &str) -> String {
    document
        .chars()
        .map(|c: char| match c {
            '\n' | ' '..='~' => c,
            '\t' => ' ',
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => '\u{fffd}',
            c => c,
        })
        .collect()
}

/// At most `chars_max` characters, for the margin of a chart.
fn shortened(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.into();
    }
    text.chars().take(chars_max - 1).chain(['…']).collect()
}

fn heading(title: &str, below: &str) -> Markup {
    html! {
        header {
            p.brand { "Wirepath" }
            h1 { (title) }
            p.meta { (below) }
        }
    }
}

/// Nothing if the body is empty.
fn section(title: &str, body: &Markup) -> Markup {
    html! {
        @if !body.0.is_empty() {
            section { h2 { (title) } (body) }
        }
    }
}

/// A section that is closed at first; nothing if the body is empty.
fn fold(title: &str, body: &Markup) -> Markup {
    html! {
        @if !body.0.is_empty() {
            section.fold { details { summary { h2 { (title) } } (body) } }
        }
    }
}

/// Class of the style sheet.
fn class(tone: Tone) -> &'static str {
    match tone {
        Tone::Good => "good",
        Tone::Bad => "bad",
        Tone::Doubt => "doubt",
        Tone::Plain | Tone::Strong | Tone::Dim => "muted",
    }
}

fn text_or_dash(text: Option<&str>) -> &str {
    text.unwrap_or("–")
}

/// Table that scrolls by itself if it is too wide; a column whose title begins with `>` holds figures.
fn table(class: Option<&str>, caption: &Markup, columns: &[&str], rows: &Markup) -> Markup {
    html! {
        div.scroll tabindex="0" {
            table class=[class] {
                caption { (caption) }
                thead {
                    tr {
                        @for title in columns {
                            @let figures = title.strip_prefix('>');
                            th scope="col" class=[figures.map(|_| "n")] { (figures.unwrap_or(title)) }
                        }
                    }
                }
                tbody { (rows) }
            }
        }
    }
}

fn figure(title: &str, caption: &Markup, chart: &Markup) -> Markup {
    html! {
        figure {
            figcaption { @if !title.is_empty() { h3 { (title) } " " } (caption) }
            (chart)
        }
    }
}

/// Definition list; nothing without items.
fn terms<'a>(items: impl IntoIterator<Item = (&'a str, &'a str)>) -> Markup {
    let mut items = items.into_iter().peekable();
    html! {
        @if items.peek().is_some() {
            dl {
                @for (term, text) in items { div { dt { (term) } dd { (text) } } }
            }
        }
    }
}

fn remarks(remarks: &[Remark]) -> Markup {
    terms(remarks.iter().map(|r| (r.subject.as_str(), r.text.as_str())))
}

/// Coloured sentences, each with its subject.
fn arms<'a>(items: impl Iterator<Item = (Tone, &'a str, &'a str)>) -> Markup {
    html! {
        ul.arms {
            @for (tone, subject, text) in items {
                li class=(class(tone)) { b { (subject) } span { (text) } }
            }
        }
    }
}

/// Coloured sentences without a subject.
fn findings(findings: &[(Tone, String)]) -> Markup {
    html! { @for (tone, finding) in findings { p class=(class(*tone)) { (finding) } } }
}

/// Answers of a gate, one a line.
fn gate_lines<'a>(lines: impl IntoIterator<Item = &'a GateLine>) -> Markup {
    html! { @for line in lines { p class=(class(line.tone)) { (line.sentence) } } }
}

fn sentences(sentences: &[Sentence]) -> Markup {
    html! {
        ul.headlines {
            @for sentence in sentences { li class=(class(sentence.tone)) { span { (sentence.text) } } }
        }
    }
}

/// The sentences, the picture of the first metric, and how far it can be trusted.
fn answer(page: &Page) -> Markup {
    html! {
        @if let Some(note) = &page.note { p.muted { (note) } }
        (sentences(&page.sentences))
        (gate_lines(page.further_answers()))
        @if let Some((label, chart)) = page.metrics.first().and_then(|m| Some((&m.label, m.ratios.as_ref()?))) {
            (figure(label, &html! { "Each arm over the baseline; the band is the noise floor." },
                &ratio_chart::draw(chart, "ladder0")))
        }
        p.muted.trust { (page.trust) "." }
        @if !page.members.is_empty() { (remarks(&page.members)) }
    }
}

/// Pictures of rates, round trips and jitter, and their figures.
fn traffic(page: &Page) -> Markup {
    html! {
        @if let Some(traffic) = &page.traffic {
            @for (at, chart) in traffic.charts.iter().enumerate() {
                (summary::bars(&chart.title, chart, at))
            }
            (figures_table("Medians; round trips of all trials together", &traffic.labels, &traffic.rows))
        }
    }
}

fn calibrated(page: &Page) -> Markup {
    html! {
        @if let Some(calibrated) = &page.calibrated {
            (figures_table(calibrated.caption, &calibrated.labels, &calibrated.rows))
        }
    }
}

/// A sentence for each arm, and the pictures of the other metrics.
fn worth(page: &Page) -> Markup {
    html! {
        @if let Some(metric) = page.metrics.first().filter(|_| !page.answers.is_empty()) {
            h3 { "Switch by switch: " (metric.label) }
            (arms(page.answers.iter().map(|a| (a.tone, a.subject.as_str(), a.text.as_str()))))
        }
        @for (place, metric) in page.metrics.iter().enumerate().take(CHARTS_MAX).skip(1) {
            (ratios(metric, place))
        }
    }
}

fn ratios(metric: &PageMetric, place: usize) -> Markup {
    html! {
        @if let Some(chart) = &metric.ratios {
            (figure(&metric.label, &html! {
                @match &metric.floor {
                    Some(floor) => {
                        "The band is the noise floor: the baseline against itself gave " (floor) "."
                        @if let Some(checks) = &metric.checks { " Checks: " (checks) "." }
                        @if let Some(finds) = &metric.finds {
                            " Of 20 such runs 19 find a difference of " (finds) "."
                        }
                    }
                    None => {
                        "The noise floor is not known: the control gave no interval."
                    }
                }
            }, &ratio_chart::draw(chart, &format!("ladder{place}"))))
        }
    }
}

fn tails(page: &Page) -> Markup {
    html! {
        @for (i, chart) in page.tails.iter().take(CHARTS_MAX).enumerate() {
            (figure(&chart.label, &html! {
                "Complementary distribution: how many samples took longer than a latency, all trials \
                 together. The line furthest left is the fastest. At 1 % stands p99. A line ends where \
                 too few samples stand behind it."
            }, &line_chart::tail(chart, &format!("tail{i}"))))
        }
    }
}

fn series(page: &Page) -> Markup {
    html! {
        @for (i, metric) in page.metrics.iter().take(CHARTS_MAX).enumerate() {
            @if let Some(chart) = &metric.series {
                (figure(&metric.label, &html! {
                    "One point per trial, in the order of blocks. Changes that move all lines together \
                     come from the machine; ratios are taken within a block, so they cancel."
                }, &line_chart::series(chart, &format!("series{i}"))))
            }
        }
    }
}

fn cpus(page: &Page) -> Markup {
    html! {
        @if let Some(chart) = &page.cpus {
            (figure("CPU time in use", &html! {
                "Of the whole machine while the trials ran, with their set-up and other programs. A \
                 spinning receiver fills its CPU at any load."
                @if chart.is_part { " The busiest CPUs are shown." }
            }, &cpu_chart::draw(chart, "cpus")))
        }
    }
}

fn functions(page: &Page) -> Markup {
    html! {
        @if let Some(functions) = &page.functions {
            @let [old, new, difference] = functions.labels.each_ref().map(|label| format!(">{label}"));
            (table(
                None,
                &html! { (functions.caption) },
                &["function", "in", &old, &new, &difference],
                &html! {
                    @for row in &functions.rows {
                        tr {
                            th scope="row" { code { (row.function) } }
                            td { (row.place) }
                            @for figure in &row.figures { td.n { (figure) } }
                        }
                    }
                },
            ))
        }
    }
}

fn caption(metric: &str, name: &str) -> Markup {
    html! { (metric) " " code { (name) } }
}

fn tables(page: &Page) -> Markup {
    const COLUMNS: [&str; 7] =
        ["arm", ">median", ">ratio", "verdict", ">95 % interval", ">p", ">trials"];
    html! {
        @for metric in &page.metrics {
            @if let Some(better) = metric.better {
                (table(
                    None,
                    &html! { (caption(&metric.label, &metric.name)) ", " (better) },
                    &COLUMNS,
                    &arm_rows(metric),
                ))
            }
        }
        @if let Some(figures) = &page.beside { (beside(figures)) }
        @if !page.reported.labels.is_empty() { (reported(&page.reported)) }
    }
}

fn arm_rows(metric: &PageMetric) -> Markup {
    html! {
        @for row in metric.rows.iter().filter(|row| row.runs_here) {
            tr {
                th scope="row" { (row.label) }
                td.n { (text_or_dash(row.median.as_deref())) }
                td.n { (text_or_dash(row.ratio.as_deref())) }
                td class=(class(row.tone)) { (row.verdict) }
                td.n { (text_or_dash(row.interval.as_deref())) }
                td.n { (text_or_dash(row.p.as_deref())) }
                td.n { (row.trials) }
            }
        }
    }
}

/// A table of arms with a column of figures for each label.
fn arm_table(caption: &Markup, labels: &[String], rows: &Markup) -> Markup {
    let labels: Vec<String> = labels.iter().map(|label| format!(">{label}")).collect();
    let columns: Vec<&str> = iter::once("arm").chain(labels.iter().map(String::as_str)).collect();
    table(None, caption, &columns, rows)
}

fn beside(figures: &page::Beside) -> Markup {
    let rows = html! {
        @for (arm, cells) in &figures.rows {
            tr {
                th scope="row" { (arm) }
                @for (text, tone) in cells {
                    td.n { span class=(class(*tone)) { (text_or_dash(text.as_deref())) } }
                }
            }
        }
    };
    let caption = html! { "Gain beside price: " (figures.note) };
    arm_table(&caption, &figures.labels, &rows)
}

fn reported(reported: &page::Reported) -> Markup {
    figures_table("Also measured, not judged: medians", &reported.labels, &reported.rows)
}

fn figures_table(
    caption: &str,
    labels: &[String],
    rows: &[(String, Vec<Option<String>>)],
) -> Markup {
    let rows = html! {
        @for (arm, medians) in rows {
            tr {
                th scope="row" { (arm) }
                @for median in medians { td.n { (text_or_dash(median.as_deref())) } }
            }
        }
    };
    arm_table(&html! { (caption) }, labels, &rows)
}

fn doubts(page: &Page) -> Markup {
    let mut items: Vec<(&str, String)> = Vec::new();
    items.extend(page.reasons.iter().map(|r| (r.subject.as_str(), r.text.clone())));
    let delivery = page.delivery.iter();
    items.extend(delivery.map(|r| (r.subject.as_str(), format!("Delivery: {}", r.text))));
    for failed in &page.failures {
        let errors = failed.errors.iter().map(|error| format!("A trial failed: {error}"));
        items.extend(errors.map(|text| (failed.arm.as_str(), text)));
    }
    terms(items.iter().map(|(term, text)| (*term, text.as_str())))
}

fn warnings(page: &Page) -> Markup {
    html! { @if !page.warnings.is_empty() { div.long { (remarks(&page.warnings)) } } }
}

fn machine(page: &Page) -> Markup {
    let modes = page.modes.iter().map(|mode| (mode.subject.as_str(), mode.text.as_str()));
    terms(page.machine.iter().map(|(term, text)| (term.as_str(), text.as_str())).chain(modes))
}

fn method(page: &Page) -> Markup {
    html! {
        p {
            (page.method) "."
            @if let Some(note) = &page.smallest_p { " " (note) "." }
        }
        p {
            "Each block runs every arm once, in an order drawn from the seed; the first block is \
             warm-up and does not count. The unit of repetition is the trial, and none is dropped as \
             an outlier; a failed trial counts as the worst of its block. A ratio is the median over \
             blocks of the arm's value divided by the mean of the two baseline values of the same \
             block; its 95 % interval is that of the median by order statistics, p comes from \
             two-sided permutation tests and is corrected for the number of verdicts (Holm). The two \
             baselines against each other are the noise floor. “Better” and “worse” need an interval \
             clear of 1 and a corrected p below 0.05; “no difference shown” needs an interval within \
             the run's resolution; else the verdict is “inconclusive”, or “exploratory” if the run was broken \
             off. The interval of the best of several arms holds for all of them at once. A p99 is better only if that of all trials together is. A step from rung to rung is \
             judged by the same rule, from the ratios between the two arms in the same blocks. Lost \
             packets count as infinitely late, and percentiles are refused where they lie among them \
             or too few samples are beyond them."
        }
    }
}

fn trials(page: &Page) -> Markup {
    let tables = page.metrics.iter().filter_map(|m| Some((m, m.trials.as_ref()?)));
    let mut tables = tables.peekable();
    html! {
        @if tables.peek().is_some() {
            p.muted {
                "Every value, in the order of blocks; – for a trial that failed or gave no figure. "
                code { "wirepath history export " (page::quoted(&page.id)) " --out trials.csv" }
                " writes all metrics of all trials."
            }
            @for (metric, trials) in tables {
                table {
                    caption { (caption(&metric.label, &metric.name)) " (" (trials.unit) ")" }
                    thead { tr { th scope="col" { "arm" } th scope="col" { "value of each block" } } }
                    tbody {
                        @for (arm, values) in &trials.rows {
                            tr { th scope="row" { (arm) } td.values { (values) } }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_control_character_and_no_markup_of_a_name_reaches_the_page() {
        let controls = ('\0'..='\x1f').chain('\x7f'..='\u{9f}').collect::<String>();
        let shown = escape(&format!("\x1b]0;owned\x07{controls}\u{202e}<script>\"'&"));
        assert!(!shown.contains(|c: char| c.is_control() && c != '\n'), "{shown:?}");
        assert!(!shown.contains(['<', '"', '\u{202e}']), "{shown}");
        assert!(shown.contains("&lt;script&gt;"), "{shown}");
    }
}
