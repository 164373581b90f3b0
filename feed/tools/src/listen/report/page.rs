//! A run on one page.

use std::time::Duration;

use hdrhistogram::Histogram;
use model::{QUANTILES, quantile_of_arrived};
use report::page::{Bar, BarChart, Remark, SummaryAnswer, SummaryPage, SummaryTable};
use report::screen::Tone;
use report::units;

use super::cells::{count, table};
use super::{LINES, LineReport, ListenReport, Percentiles, Refused};
use crate::late::LateReport;
use crate::listen::interval::LineStats;
use crate::quality::{Latency, Quality, WINDOWS_NS};

/// Upper ends of the bars of a lead, nanoseconds; the last bar is open.
const LEAD_STEPS_NS: [u64; 9] =
    [1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 1_000_000, 10_000_000];
/// Rows of the table of instruments.
const INSTRUMENTS_SHOWN: usize = 20;
/// Fewest messages of an instrument in that table.
const INSTRUMENT_MESSAGES_MIN: u64 = 10;

const METHOD: &str = "Each message counts once per line, by its sequence number. A missing message is infinitely \
    late (∞): percentiles below the share that arrived are exact. match→app counts from the fastest message of \
    all lines, because the exchange has another clock: lines and instruments stay comparable, and all figures \
    are too low by the latency of that message. The lead of a line is the time by which its copy of a message \
    arrived before the other line's, both by their time stamps. Windows are aligned to whole multiples of \
    their length; those without a message are not counted.";

impl ListenReport {
    /// The page of a run.
    ///
    /// - `about`: its time and origin.
    /// - `None` if the run did not measure its quality.
    pub fn page(&self, title: &str, about: &str) -> Option<SummaryPage> {
        let quality = self.quality.as_deref()?;
        let lines = self.lines();
        let about = format!("{about} · {}", units::duration(Duration::from_nanos(self.elapsed_ns)));
        let mut bars = Vec::new();
        bars.extend((quality.lead.pair_count() > 0).then(|| lead_bars(quality)));
        bars.extend((0..WINDOWS_NS.len()).map(|window| burst_bars(quality, window, lines.len())));
        let mut tables = vec![self.line_table(&lines), self.percentile_table(&lines)];
        tables.push(burst_table(quality, lines.len()));
        tables.extend(self.late.as_ref().map(LateReport::page_table));
        tables.push(self.instrument_table(quality));
        Some(SummaryPage {
            title: title.into(),
            about,
            answers: self.answers(&lines, quality),
            bars,
            tables: tables.into_iter().filter(|table| !table.rows.is_empty()).collect(),
            notes: self.notes.iter().map(|note| remark(note)).collect(),
            method: METHOD.into(),
        })
    }

    fn answers(&self, lines: &[LineReport], quality: &Quality) -> Vec<SummaryAnswer> {
        let mut answers = vec![answer(
            "Delivered",
            format!("{}; {}", messages(self.delivered()), missing(self.missing(), self.expected())),
            self.missing(),
        )];
        for line in lines {
            let text = if line.book.is_silent() {
                "nothing arrived".to_owned()
            } else {
                format!(
                    "{}; {} dropped by the receiver",
                    missing(line.book.missing(), line.book.expected),
                    count(line.book.dropped_datagrams)
                )
            };
            answers.push(answer(&format!("Line {}", line.name), text, line.book.missing()));
        }
        if quality.lead.pair_count() > 0 {
            answers.push(answer("First", lead_text(quality), 0));
        }
        answers
    }

    /// Messages expected by sequence, and those that were announced at the end.
    fn expected(&self) -> u64 {
        self.delivered() + self.missing()
    }

    /// A column for each line: a row for each would be wider than the page.
    fn line_table(&self, lines: &[LineReport]) -> SummaryTable {
        type Figure = fn(&LineStats) -> u64;
        let figures: [(&str, Figure); 9] = [
            ("messages", |book| book.counts.received),
            ("missing", LineStats::missing),
            ("first", |book| book.counts.first),
            ("copies", |book| book.counts.copies),
            ("repeats", |book| book.counts.repeats),
            ("reordered", |book| book.counts.reordered),
            ("late", |book| book.counts.late),
            ("dropped", |book| book.dropped_datagrams),
            ("malformed", |book| book.malformed),
        ];
        let groups = self.groups.iter().take(lines.len()).map(|group| group.address.to_string());
        let mut rows: Vec<Vec<String>> = vec![["group".into()].into_iter().chain(groups).collect()];
        rows.extend(figures.iter().map(|(name, figure)| {
            let counts = lines.iter().map(|line| count(figure(&line.book)));
            [(*name).to_owned()].into_iter().chain(counts).collect()
        }));
        let names: Vec<String> = lines.iter().map(|line| format!("line {}", line.name)).collect();
        let columns: Vec<&str> = [""].into_iter().chain(names.iter().map(String::as_str)).collect();
        let caption = format!(
            "Messages by line; {} missing on every line, in {}",
            count(self.missing()),
            units::plural(self.counts.totals.gaps, "gap")
        );
        table("Lines", &caption, &columns, 1, rows)
    }

    fn percentile_table(&self, lines: &[LineReport]) -> SummaryTable {
        let mut rows = Vec::new();
        for line in lines {
            let lost = (line.book.missing(), line.book.expected);
            for (segment, percentiles) in
                [("kernel→app", &line.kernel_to_app), ("match→app", &line.match_to_app)]
            {
                let name = format!("{segment}, line {}", line.name);
                rows.extend(percentile_row(name, percentiles, lost));
            }
        }
        let all = self.delivered_latency();
        rows.extend(percentile_row(
            "match→app, delivered".into(),
            &all,
            (self.missing(), self.expected()),
        ));
        let names = QUANTILES.iter().map(|(_, name)| *name).chain(["max"]);
        let columns: Vec<String> = ["segment"]
            .into_iter()
            .chain(names)
            .map(|name| name.replace("p999", "p99.9"))
            .collect();
        let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
        let caption = match self.clock_error_ns() {
            Some(ns) => format!("Missing messages are ∞; drift of the clocks at most {}", time(ns)),
            None => "Missing messages are ∞".into(),
        };
        table("Latency", &caption, &columns, 1, rows)
    }

    fn instrument_table(&self, quality: &Quality) -> SummaryTable {
        let offset_ns = self.offset_ns().unwrap_or(0);
        let all = quality.instruments.iter();
        let mut known: Vec<(u32, &str, &Latency)> =
            all.filter(|(.., latency)| latency.count >= INSTRUMENT_MESSAGES_MIN).collect();
        let found = known.len();
        known.sort_by_key(|(number, _, latency)| {
            (std::cmp::Reverse(latency.mean_ns(offset_ns)), *number)
        });
        known.truncate(INSTRUMENTS_SHOWN);
        let rows = known.iter().map(|(number, name, latency)| {
            let name =
                if name.is_empty() { format!("number {number}") } else { (*name).to_owned() };
            let times = [
                latency.smallest_ns(offset_ns),
                latency.mean_ns(offset_ns),
                latency.largest_ns(offset_ns),
            ];
            [name, count(latency.count)].into_iter().chain(times.map(time)).collect()
        });
        let caption = format!(
            "match→app of delivered messages: the slowest {} of {} with {INSTRUMENT_MESSAGES_MIN} messages \
             or more, by their mean",
            known.len(),
            units::plural(found as u64, "instrument"),
        );
        let columns = ["instrument", "messages", "fastest", "mean", "slowest"];
        table("Instruments", &caption, &columns, 1, rows.collect())
    }
}

fn answer(subject: &str, text: String, lost: u64) -> SummaryAnswer {
    let tone = if lost > 0 { Tone::Bad } else { Tone::Good };
    SummaryAnswer { subject: subject.into(), text, tone }
}

fn remark(note: &str) -> Remark {
    Remark { subject: "note".into(), text: note.into(), tone: Tone::Doubt }
}

fn messages(number: u64) -> String {
    let noun = if number == 1 { "message" } else { "messages" };
    format!("{} {noun}", count(number))
}

fn time(ns: u64) -> String {
    units::value(ns as f64, "ns")
}

/// `none missing`, or how many and which share.
fn missing(missing: u64, expected: u64) -> String {
    match missing {
        0 => "none missing".into(),
        _ => {
            let share = missing as f64 / expected.max(1) as f64 * 100.0;
            let (missing, expected) = (count(missing), count(expected));
            format!("{missing} of {expected} missing ({} %)", units::digits(share))
        }
    }
}

/// `None` without a sample.
///
/// - `lost`: missing messages and those expected.
fn percentile_row(
    name: String,
    percentiles: &Percentiles,
    lost: (u64, u64),
) -> Option<Vec<String>> {
    let known = match percentiles {
        Err(Refused::NoSample) => return None,
        Err(Refused::Loss { .. }) => &[][..],
        Ok(known) => known,
    };
    let lost_share = lost.0 as f64 / lost.1.max(1) as f64;
    let figures =
        QUANTILES.iter().chain([&(1.0, "max")]).map(|(quantile, suffix): &(f64, &str)| {
            let found = known.iter().find(|(known, _)| known == suffix);
            match (found, quantile_of_arrived(*quantile, lost_share)) {
                (Some((_, ns)), _) => time(*ns),
                (None, None) => "∞".into(),
                // Too few samples beyond it.
                (None, Some(_)) => "–".into(),
            }
        });
    Some([name].into_iter().chain(figures).collect())
}

fn lead_text(quality: &Quality) -> String {
    let pairs = quality.lead.pair_count();
    let [a, b] = [0, 1].map(|line| {
        let (name, ahead) = (LINES[line], quality.lead.ahead(line));
        if ahead.is_empty() {
            return format!("{name} never");
        }
        let share = units::digits(ahead.len() as f64 / pairs as f64 * 100.0);
        format!("{name} in {share} %, by {} in the median", time(ahead.value_at_quantile(0.5)))
    });
    format!("of {} on both lines: {a}; {b}", messages(pairs))
}

/// Samples above `above` and up to `most`.
fn between(histogram: &Histogram<u64>, above: Option<u64>, most: u64) -> u64 {
    let low = above.map_or(0, |above| above.saturating_add(1));
    let recorded = histogram.iter_recorded();
    let within = recorded.filter(|step| (low..=most).contains(&step.value_iterated_to()));
    within.map(|step| step.count_at_value()).sum()
}

/// From the largest lead of A to the largest of B.
fn lead_bars(quality: &Quality) -> BarChart {
    let pairs = quality.lead.pair_count();
    let steps = 0..=LEAD_STEPS_NS.len();
    let places = steps.clone().rev().map(|step| (0, step)).chain(steps.map(|step| (1, step)));
    let bars = places.map(|(line, step)| lead_bar(quality, line, step)).collect();
    let unpaired = match quality.lead.unpaired_count() {
        0 => String::new(),
        late => format!(" {} came too late for a comparison.", messages(late)),
    };
    BarChart {
        title: "Lead of a line over the other".into(),
        caption: format!(
            "{} on both lines, by the line that was first.{unpaired}",
            messages(pairs)
        ),
        description: lead_text(quality),
        bars: trimmed(bars),
    }
}

fn lead_bar(quality: &Quality, line: usize, step: usize) -> Bar {
    let above = step.checked_sub(1).map(|below| LEAD_STEPS_NS[below]);
    let most = LEAD_STEPS_NS.get(step).copied();
    let value = between(quality.lead.ahead(line), above, most.unwrap_or(u64::MAX));
    let range = match (above, most) {
        (None, Some(most)) => format!("up to {}", time(most)),
        (Some(above), Some(most)) => format!("{} to {}", time(above), time(most)),
        (above, None) => format!("over {}", time(above.unwrap_or(0))),
    };
    let share = units::digits(value as f64 / quality.lead.pair_count() as f64 * 100.0);
    let text = if value == 0 { "0".into() } else { format!("{} ({share} %)", count(value)) };
    Bar { label: format!("{} by {range}", LINES[line]), value, text, line }
}

/// Without empty bars at both ends.
fn trimmed(bars: Vec<Bar>) -> Vec<Bar> {
    let Some(first) = bars.iter().position(|bar| bar.value > 0) else { return Vec::new() };
    let last = bars.iter().rposition(|bar| bar.value > 0).unwrap_or(first);
    bars.into_iter().take(last + 1).skip(first).collect()
}

/// Windows by their messages, in steps of a factor of two.
fn burst_bars(quality: &Quality, window: usize, line_count: usize) -> BarChart {
    let len = time(WINDOWS_NS[window]);
    let counts = |line: usize| quality.bursts[line].counts(window);
    let most = (0..line_count).map(|line| counts(line).max()).max().unwrap_or(0);
    let steps = 0..=most.max(1).ilog2();
    let bars =
        steps.flat_map(|step| (0..line_count).map(move |line| (step, line))).map(|(step, line)| {
            let (low, high) = (1_u64 << step, (2_u64 << step) - 1);
            let value = between(counts(line), Some(low - 1), high);
            let range = if low == high { low.to_string() } else { format!("{low} to {high}") };
            Bar { label: format!("{} {range}", LINES[line]), value, text: count(value), line }
        });
    let densest: Vec<String> = (0..line_count)
        .map(|line| format!("{} at most {}", LINES[line], messages(counts(line).max())))
        .collect();
    let densest = densest.join(", ");
    BarChart {
        title: format!("Bursts: messages in {len}"),
        caption: format!("Windows of {len} by the number of messages in them: {densest}."),
        description: densest,
        bars: trimmed(bars.collect()),
    }
}

fn burst_table(quality: &Quality, line_count: usize) -> SummaryTable {
    let mut rows = Vec::new();
    for (window, len_ns) in WINDOWS_NS.iter().enumerate() {
        for (bursts, line) in quality.bursts.iter().zip(LINES).take(line_count) {
            for burst in bursts.densest(window) {
                let rate = burst.message_count as f64 * 1e9 / *len_ns as f64;
                rows.push(vec![
                    time(*len_ns),
                    line.into(),
                    count(burst.message_count),
                    format!("{}/s", units::value(rate, "count")),
                    time_of_day(burst.begin_ns),
                ]);
            }
        }
    }
    let columns = ["window", "line", "messages", "rate", "begin (UTC)"];
    table("Densest windows", "Of each line and length", &columns, 2, rows)
}

/// `09:00:01.2345` of nanoseconds since 1970.
fn time_of_day(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let (hour, minute) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{hour:02}:{minute:02}:{:02}.{:04}", seconds % 60, ns % 1_000_000_000 / 100_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_among_missing_messages_are_infinite_and_those_of_few_samples_unknown() {
        let known = Ok(vec![("p50", 1_000), ("p90", 2_000)]);
        let row = |lost| percentile_row("x".into(), &known, lost).expect("a row");
        assert_eq!(row((0, 200)), ["x", "1.00 µs", "2.00 µs", "–", "–", "–"]);
        assert_eq!(row((10, 200)), ["x", "1.00 µs", "2.00 µs", "∞", "∞", "∞"]);
        assert_eq!(percentile_row("x".into(), &Err(Refused::NoSample), (0, 0)), None);
    }

    #[test]
    fn every_sample_is_in_one_bar() {
        let mut quality = Quality::new(1);
        use crate::arbiter::{FeedLine, MessageArrival, SequenceDomain};
        let domain = SequenceDomain::twse(1, 6);
        for n in 1..=2000_u64 {
            let at_ns = n * 7_919_000;
            quality.arrived(FeedLine::A, domain, n, MessageArrival::Delivered, at_ns);
            let lag_ns = n * n * 31 % 40_000_000;
            quality.arrived(FeedLine::B, domain, n, MessageArrival::Copy, at_ns + lag_ns);
        }
        quality.finish();
        let sum = |chart: BarChart| chart.bars.iter().map(|bar| bar.value).sum::<u64>();
        assert_eq!(sum(lead_bars(&quality)), 2000);
        let windows = quality.bursts.iter().map(|bursts| bursts.counts(1).len()).sum::<u64>();
        assert_eq!(sum(burst_bars(&quality, 1, 2)), windows);
        assert_eq!(time_of_day(86_400_000_000_000 + 3_723_456_700_000), "01:02:03.4567");
    }
}
