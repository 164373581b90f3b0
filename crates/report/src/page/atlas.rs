//! The worth of switches and knobs on many machines, as it is shown.

use model::Better;

use super::Remark;
use super::summary::{SummaryAnswer, SummaryPage, SummaryTable};
use crate::answer::percent;
use crate::atlas::{Atlas, AtlasCounts, AtlasGroup, AtlasMetric, AtlasSection, Row};
use crate::screen::Tone;
use crate::{units, wording};

/// Columns of a metric's table: name, and true for figures. A telephone shows the first few without scrolling.
const COLUMNS: [(&str, bool); 9] = [
    ("machines", false),
    ("ratio", true),
    ("95 % interval", false),
    ("verdict", false),
    ("number", true),
    ("next machine", false),
    ("differ by", true),
    ("p", true),
    ("runs by their own verdicts", false),
];

/// All pages of an atlas.
#[derive(Debug, Clone)]
pub struct AtlasSite {
    /// About the contributions, in one line.
    pub about: String,
    pub index: Vec<AtlasIndexRow>,
    /// Files that are not part of it, and the reason.
    pub left_out: Vec<Remark>,
    pub pages: Vec<AtlasPage>,
}

/// A line of the index: a set of switches in a metric, over all machines.
#[derive(Debug, Clone)]
pub struct AtlasIndexRow {
    /// File of the page.
    pub file: String,
    pub subject: String,
    pub arm: String,
    pub metric: String,
    pub machines: usize,
    pub ratio: String,
    pub verdict: String,
    pub tone: Tone,
}

#[derive(Debug, Clone)]
pub struct AtlasPage {
    pub file: String,
    pub page: SummaryPage,
}

impl AtlasSite {
    /// - `contributors`: number of different signers.
    /// - `left_out`: file and reason.
    pub fn new(atlas: &Atlas, contributors: usize, left_out: &[(String, String)]) -> Self {
        let runs: usize = atlas.sections.iter().map(|section| section.runs).sum();
        let contributors = units::plural(contributors, "contributor");
        let about = format!("{} of {contributors}", units::plural(runs, "run"));
        let mut index = Vec::new();
        let mut pages = Vec::new();
        for (place, section) in atlas.sections.iter().enumerate() {
            let file = file_name(place, &section.subject);
            index.extend(section.metrics.iter().filter_map(|of| index_row(&file, section, of)));
            pages.push(AtlasPage { page: page(section), file });
        }
        let left_out = left_out.iter().map(|(file, why)| Remark::new(file, why, Tone::Doubt));
        AtlasSite { about, index, left_out: left_out.collect(), pages }
    }
}

/// `1-probe-ping-64-bytes.html`: letters and digits alone, whatever a stranger's load is called.
fn file_name(place: usize, subject: &str) -> String {
    let letters = subject.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { ' ' });
    let words: String = letters.take(60).collect();
    let words = words.split_whitespace().collect::<Vec<_>>().join("-").to_lowercase();
    format!("{}-{words}.html", place + 1)
}

fn index_row(file: &str, section: &AtlasSection, of: &AtlasMetric) -> Option<AtlasIndexRow> {
    let row = of.rows.iter().find(|row| row.group == AtlasGroup::All)?;
    Some(AtlasIndexRow {
        file: file.to_owned(),
        subject: section.subject.clone(),
        arm: of.arm.clone(),
        metric: wording::metric(&of.metric),
        machines: row.machines,
        ratio: dash(ratio(row)),
        verdict: verdict_text(row).to_owned(),
        tone: wording::tone(row.answer.verdict),
    })
}

fn page(section: &AtlasSection) -> SummaryPage {
    SummaryPage {
        title: format!("Worth of each switch: {}", section.subject),
        about: format!(
            "{} on {}",
            units::plural(section.runs, "run"),
            units::plural(section.machines, "machine")
        ),
        answers: section.metrics.iter().filter_map(answer).collect(),
        bars: Vec::new(),
        tables: section.metrics.iter().map(table).collect(),
        notes: Vec::new(),
        method: method(section),
    }
}

fn answer(of: &AtlasMetric) -> Option<SummaryAnswer> {
    let row = of.rows.iter().find(|row| row.group == AtlasGroup::All)?;
    let figures = [ratio(row), interval(row)].into_iter().flatten().collect::<Vec<_>>().join(" ");
    let reason = row.reason().map_or(String::new(), |why| format!(" ({why})"));
    let text = match figures.as_str() {
        "" => format!("{}: {}{reason}", wording::metric(&of.metric), verdict_text(row)),
        figures => {
            format!("{}: {figures}, {}{reason}", wording::metric(&of.metric), verdict_text(row))
        }
    };
    Some(SummaryAnswer { subject: of.arm.clone(), text, tone: wording::tone(row.answer.verdict) })
}

fn verdict_text(row: &Row) -> &'static str {
    match row.answer.verdict {
        Some(verdict) if row.machines >= model::pool::HOSTS_MIN => wording::verdict(verdict),
        _ => "too few machines",
    }
}

fn table(of: &AtlasMetric) -> SummaryTable {
    let direction = match of.better {
        Better::Lower => "below 1 is better",
        Better::Higher => "above 1 is better",
    };
    SummaryTable {
        section: of.arm.clone(),
        caption: format!("{}: {direction}", wording::metric(&of.metric)),
        columns: COLUMNS.map(|(name, is_figure)| (name.to_owned(), is_figure)).into(),
        rows: of.rows.iter().map(line).collect(),
    }
}

fn dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "–".into())
}

fn line(row: &Row) -> Vec<String> {
    let pooled = row.answer.pooled.as_ref();
    let next = pooled.map(|of| units::interval(of.prediction.0.exp(), of.prediction.1.exp()));
    let spread = pooled.map(|of| units::ratio(of.tau.exp()));
    vec![
        group(&row.group),
        dash(ratio(row)),
        dash(interval(row)),
        verdict_text(row).to_owned(),
        row.machines.to_string(),
        dash(next),
        dash(spread),
        dash(row.answer.p_adjusted.map(units::p)),
        counts(&row.counts),
    ]
}

fn group(group: &AtlasGroup) -> String {
    match group {
        AtlasGroup::All => "all".to_owned(),
        AtlasGroup::Driver(name) => format!("driver {name}"),
        AtlasGroup::Kernel(name) => format!("kernel {name}"),
        AtlasGroup::Platform(name) => name.clone(),
    }
}

/// The pooled ratio; of too few machines the range of theirs.
fn ratio(row: &Row) -> Option<String> {
    if let Some(pooled) = &row.answer.pooled {
        return Some(units::ratio(pooled.mean.exp()));
    }
    match row.range? {
        (least, most) if least == most => Some(units::ratio(least)),
        (least, most) => Some(format!("{} to {}", units::ratio(least), units::ratio(most))),
    }
}

fn interval(row: &Row) -> Option<String> {
    let pooled = row.answer.pooled.as_ref()?;
    Some(units::interval(pooled.interval.0.exp(), pooled.interval.1.exp()))
}

fn counts(counts: &AtlasCounts) -> String {
    let AtlasCounts { better, worse, equal, undecided, not_effective, unsupported } = *counts;
    let parts = [
        (better, "better"),
        (worse, "worse"),
        (equal, "no difference shown"),
        (undecided, "not decided"),
        (not_effective, "not effective"),
        (unsupported, "unsupported"),
    ];
    let known = parts.iter().filter(|(count, _)| *count > 0);
    known.map(|(count, word)| format!("{count} {word}")).collect::<Vec<_>>().join(", ")
}

fn method(section: &AtlasSection) -> String {
    format!(
        "The machine is the unit: several runs of one give the median of their effects. The ratio is that to the baseline, the mean over machines \
         with an effect of their own each (DerSimonian and Laird; Hartung and Knapp), and \"differ by\" the standard \
         deviation of their true effects as a factor. Verdicts need {} machines, an interval clear of 1 and of that of the \
         baselines against themselves, and p below 0.05 corrected for all figures of this page (Holm), all machines and \
         parts of them apart; the resolution is {}. \"Next machine\" is where a further machine's own effect is expected. Runs \
         without effect or support are counted and not pooled. Contributors chose themselves: their machines do not stand \
         for all.",
        model::pool::HOSTS_MIN,
        percent(section.resolve - 1.0),
    )
}
