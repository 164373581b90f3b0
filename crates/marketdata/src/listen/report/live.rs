//! Live view of the last second.

use std::fmt::Write;

use hdrhistogram::Histogram;
use market::twse::Price;
use serde::Serialize;

use super::{LINES, Report, time};
use crate::listen::TopRow;
use crate::listen::interval::{Counts, Interval, LineStats};

/// Figures of the last second.
#[derive(Debug, Default)]
pub(super) struct Live {
    seconds: f64,
    messages: [u64; 2],
    delivered: u64,
    dropped: u64,
    kernel_to_app: [Option<Quick>; 2],
    match_to_app: Option<Quick>,
    top: Vec<TopRow>,
}

/// Three figures of one second.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Quick {
    count: u64,
    p50_ns: u64,
    p99_ns: u64,
    max_ns: u64,
}

impl Report {
    pub(super) fn live_of(&self, interval: &Interval) -> Live {
        let (now, then) = (&interval.counts, &self.counts);
        let line = |counts: &Counts, at: usize| counts.lines.get(at).copied().unwrap_or_default();
        let received = |counts: &Counts, at: usize| line(counts, at).counts.received;
        let dropped = |counts: &Counts| counts.lines.iter().map(|l| l.dropped_datagrams).sum();
        let quick = |histogram: &Histogram<u64>| {
            (!histogram.is_empty()).then(|| Quick {
                count: histogram.len(),
                p50_ns: histogram.value_at_quantile(0.5),
                p99_ns: histogram.value_at_quantile(0.99),
                max_ns: histogram.max(),
            })
        };
        let offset = self.offset_ns();
        let delivered = &interval.match_to_app[2];
        let offset = offset.filter(|_| delivered.count() > 0).map(|offset| Quick {
            count: delivered.count(),
            p50_ns: delivered.quantile_ns(0.5, offset),
            p99_ns: delivered.quantile_ns(0.99, offset),
            max_ns: delivered.quantile_ns(1.0, offset),
        });
        let before: u64 = dropped(then);
        let after: u64 = dropped(now);
        Live {
            seconds: interval.elapsed_ns.saturating_sub(self.elapsed_ns) as f64 / 1e9,
            messages: [0, 1].map(|at| received(now, at).saturating_sub(received(then, at))),
            delivered: now.totals.delivered.saturating_sub(then.totals.delivered),
            dropped: after.saturating_sub(before),
            kernel_to_app: [0, 1].map(|at| quick(&interval.kernel_to_app[at])),
            match_to_app: offset,
            top: interval.top.clone(),
        }
    }

    /// The last second in a few lines.
    pub fn live_text(&self) -> String {
        let live = &self.live;
        let rate = |count: u64| if live.seconds > 0.0 { count as f64 / live.seconds } else { 0.0 };
        let mut out = format!("{:>5.0} s ", self.elapsed_ns as f64 / 1e9);
        for (at, line) in self.counts.lines.iter().enumerate() {
            let _ = write!(out, " {} {:.0}/s", LINES[at], rate(live.messages[at]));
            if line.missing() > 0 {
                let _ = write!(out, " (missing {})", line.missing());
            }
        }
        let _ = write!(out, "  delivered {:.0}/s", rate(live.delivered));
        let _ = match self.known_missing() {
            Some(missing) => write!(out, "  missing {missing}"),
            None => write!(out, "  nothing arrived yet"),
        };
        if live.dropped > 0 {
            let _ = write!(out, "  DROPPED {}", live.dropped);
        }
        for (at, quick) in live.kernel_to_app.iter().enumerate() {
            if let Some(quick) = quick {
                let _ = write!(out, "  kernel→app {} {}", LINES[at], quick.text());
            }
        }
        if let Some(quick) = &live.match_to_app {
            let _ = write!(out, "  match→app {}", quick.text());
        }
        for row in &live.top {
            let level = |level: Option<(Price, u64)>| {
                level.map_or("-".to_owned(), |(price, quantity)| format!("{price} × {quantity}"))
            };
            let _ = write!(
                out,
                "\n        {:<6} {:>9} quotes  last {}  bid {}  ask {}",
                row.symbol,
                row.quotes,
                level(Some(row.last).filter(|(_, quantity)| *quantity > 0)),
                level(row.best[0]),
                level(row.best[1]),
            );
        }
        out
    }

    /// The last second as JSON.
    pub fn live_document(&self) -> LiveDocument<'_> {
        let live = &self.live;
        let rate = |count: u64| if live.seconds > 0.0 { count as f64 / live.seconds } else { 0.0 };
        let line = |(at, line): (usize, &LineStats)| LiveLine {
            line: LINES[at],
            messages_per_second: rate(live.messages[at]),
            missing_count: (!line.is_silent()).then(|| line.missing()),
            dropped_datagram_count: line.dropped_datagrams,
            kernel_to_app: live.kernel_to_app[at],
        };
        LiveDocument {
            schema: model::SCHEMA,
            command: "feed listen",
            live: true,
            elapsed_ns: self.elapsed_ns,
            lines: self.counts.lines.iter().enumerate().map(line).collect(),
            delivered_per_second: rate(live.delivered),
            delivered_count: self.delivered(),
            gap_count: self.counts.totals.gaps,
            missing_count: self.known_missing(),
            match_to_app: live.match_to_app,
            top: live.top.iter().map(TopDocument::of).collect(),
        }
    }
}

/// Document of a second of `feed listen --json`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LiveDocument<'a> {
    schema: u32,
    command: &'static str,
    live: bool,
    elapsed_ns: u64,
    lines: Vec<LiveLine>,
    delivered_per_second: f64,
    delivered_count: u64,
    gap_count: u64,
    /// Absent if nothing arrived yet.
    missing_count: Option<u64>,
    match_to_app: Option<Quick>,
    top: Vec<TopDocument<'a>>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct LiveLine {
    line: &'static str,
    messages_per_second: f64,
    /// Absent if nothing arrived on the line yet.
    missing_count: Option<u64>,
    dropped_datagram_count: u64,
    kernel_to_app: Option<Quick>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct TopDocument<'a> {
    symbol: &'a str,
    business: u8,
    quote_count: u64,
    trade_count: u64,
    last: Option<LevelDocument>,
    bid: Option<LevelDocument>,
    ask: Option<LevelDocument>,
    cumulative_volume: u64,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct LevelDocument {
    price: String,
    quantity: u64,
}

impl<'a> TopDocument<'a> {
    fn of(row: &'a TopRow) -> Self {
        let level = |level: Option<(Price, u64)>| {
            level.map(|(price, quantity)| LevelDocument { price: price.to_string(), quantity })
        };
        TopDocument {
            symbol: &row.symbol,
            business: row.business,
            quote_count: row.quotes,
            trade_count: row.trades,
            last: level(Some(row.last).filter(|(_, quantity)| *quantity > 0)),
            bid: level(row.best[0]),
            ask: level(row.best[1]),
            cumulative_volume: row.cumulative_volume,
        }
    }
}

impl Quick {
    fn text(&self) -> String {
        let figures = [self.p50_ns, self.p99_ns, self.max_ns].map(time);
        format!("{} / {} / {}", figures[0], figures[1], figures[2])
    }
}
