//! Live view of the last second.

use hdrhistogram::Histogram;
use market::twse::Price;
use report::screen::{Cell, Screen};
use serde::Serialize;

use super::{LINES, ListenReport, time};
use crate::listen::TopRow;
use crate::listen::interval::{Counts, ListenInterval};

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

impl Live {
    /// Events per second.
    fn rate(&self, count: u64) -> f64 {
        if self.seconds > 0.0 { count as f64 / self.seconds } else { 0.0 }
    }
}

impl ListenReport {
    /// The difference between an interval and the one before it.
    pub(super) fn live_since_last(&self, interval: &ListenInterval) -> Live {
        let (now, then) = (&interval.counts, &self.counts);
        let dropped = |counts: &Counts| counts.lines.iter().map(|l| l.dropped_datagrams).sum();
        let (before, after): (u64, u64) = (dropped(then), dropped(now));
        let delivered = &interval.match_to_app[2];
        let offset = self.offset_ns().filter(|_| delivered.count() > 0);
        Live {
            seconds: interval.elapsed_ns.saturating_sub(self.elapsed_ns) as f64 / 1e9,
            messages: [0, 1].map(|at| received(now, at).saturating_sub(received(then, at))),
            delivered: now.totals.delivered.saturating_sub(then.totals.delivered),
            dropped: after.saturating_sub(before),
            kernel_to_app: [0, 1].map(|at| Quick::from_histogram(&interval.kernel_to_app[at])),
            match_to_app: offset.map(|offset| Quick {
                count: delivered.count(),
                p50_ns: delivered.quantile_ns(0.5, offset),
                p99_ns: delivered.quantile_ns(0.99, offset),
                max_ns: delivered.quantile_ns(1.0, offset),
            }),
            top: interval.top.clone(),
        }
    }

    /// The last second in a few lines.
    pub fn live_text(&self) -> String {
        let live = &self.live;
        let mut text = format!("{:>5.0} s ", self.elapsed_ns as f64 / 1e9);
        for ((name, line), messages) in LINES.iter().zip(&self.counts.lines).zip(live.messages) {
            text += &format!(" {name} {:.0}/s", live.rate(messages));
            if line.missing() > 0 {
                text += &format!(" (missing {})", line.missing());
            }
        }
        text += &format!("  delivered {:.0}/s", live.rate(live.delivered));
        text += &match self.known_missing() {
            Some(missing) => format!("  missing {missing}"),
            None => "  nothing arrived yet".to_owned(),
        };
        if live.dropped > 0 {
            text += &format!("  DROPPED {}", live.dropped);
        }
        for (name, quick) in LINES.iter().zip(&live.kernel_to_app) {
            text.extend(quick.iter().map(|quick| format!("  kernel→app {name} {}", quick.text())));
        }
        text.extend(live.match_to_app.iter().map(|quick| format!("  match→app {}", quick.text())));
        if live.top.is_empty() {
            return text;
        }
        let mut screen = Screen::plain();
        screen.line(text);
        screen.table(&["", ">", "", "", ""], live.top.iter().map(top_row));
        screen.finish().trim_end().to_owned()
    }

    /// The last second as JSON.
    pub fn live_document(&self) -> LiveDocument<'_> {
        let live = &self.live;
        LiveDocument {
            schema: model::SCHEMA,
            command: "feed listen",
            live: true,
            elapsed_ns: self.elapsed_ns,
            lines: (self.counts.lines.iter().enumerate())
                .map(|(at, line)| LiveLine {
                    line: LINES[at],
                    messages_per_second: live.rate(live.messages[at]),
                    missing_count: (!line.is_silent()).then(|| line.missing()),
                    dropped_datagram_count: line.dropped_datagrams,
                    kernel_to_app: live.kernel_to_app[at],
                })
                .collect(),
            delivered_per_second: live.rate(live.delivered),
            delivered_count: self.delivered(),
            gap_count: self.counts.totals.gaps,
            missing_count: self.known_missing(),
            match_to_app: live.match_to_app,
            top: live.top.iter().map(TopDocument::new).collect(),
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
    /// Absent of ITCH.
    business: Option<u8>,
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
    fn new(row: &'a TopRow) -> Self {
        TopDocument {
            symbol: &row.symbol,
            business: row.business,
            quote_count: row.quotes,
            trade_count: row.trades,
            last: last_trade(row).map(LevelDocument::from),
            bid: row.best[0].map(LevelDocument::from),
            ask: row.best[1].map(LevelDocument::from),
            cumulative_volume: row.cumulative_volume,
        }
    }
}

impl From<(Price, u64)> for LevelDocument {
    fn from((price, quantity): (Price, u64)) -> Self {
        LevelDocument { price: price.to_string(), quantity }
    }
}

fn top_row(row: &TopRow) -> Vec<Cell> {
    let [last, bid, ask] = [last_trade(row), row.best[0], row.best[1]].map(|level| {
        level.map_or("-".to_owned(), |(price, quantity)| format!("{price} × {quantity}"))
    });
    [
        format!("        {}", row.symbol),
        format!("{} quotes", row.quotes),
        format!("last {last}"),
        format!("bid {bid}"),
        format!("ask {ask}"),
    ]
    .map(Cell::plain)
    .into()
}

/// Price and quantity of the last trade; `None` before the first.
fn last_trade(row: &TopRow) -> Option<(Price, u64)> {
    Some(row.last).filter(|(_, quantity)| *quantity > 0)
}

/// Messages that a line has received.
fn received(counts: &Counts, line: usize) -> u64 {
    counts.lines.get(line).map_or(0, |line| line.counts.received)
}

impl Quick {
    /// `None` without a sample.
    fn from_histogram(histogram: &Histogram<u64>) -> Option<Self> {
        (!histogram.is_empty()).then(|| Quick {
            count: histogram.len(),
            p50_ns: histogram.value_at_quantile(0.5),
            p99_ns: histogram.value_at_quantile(0.99),
            max_ns: histogram.max(),
        })
    }

    fn text(&self) -> String {
        let [p50, p99, max] = [self.p50_ns, self.p99_ns, self.max_ns].map(time);
        format!("{p50} / {p99} / {max}")
    }
}
