//! `explain --diff`: an observation beside an earlier one.

use std::path::Path;

use host::explain::ExplainSummary;
use house::context::DOCUMENT;
use remote::Failure;
use report::screen::{Cell, Screen};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::text::time;

/// The compared part of a document of `explain --json`.
#[derive(Debug, Deserialize)]
pub(super) struct Observation {
    followed_ns: u64,
    stages: Vec<Stage>,
    drops: Vec<Drop>,
}

#[derive(Debug, Deserialize)]
struct Stage {
    name: String,
    from: String,
    to: String,
    count: u64,
    timed_count: u64,
    p50_ns: f64,
    p99_ns: f64,
}

#[derive(Debug, Deserialize)]
struct Drop {
    reason: String,
    function: String,
    count: u64,
}

#[derive(Deserialize)]
struct Head {
    schema: u32,
    command: String,
}

/// A figure of the earlier observation and of this one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub(super) struct Pair {
    /// `None` if the earlier one has no such figure.
    before: Option<f64>,
    /// `None` if this one has none.
    now: Option<f64>,
}

/// A stage of either observation.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub(super) struct StageChange {
    name: String,
    from: String,
    to: String,
    /// Packets per second of traced time.
    packets_per_s: Pair,
    p50_ns: Pair,
    p99_ns: Pair,
}

/// Drops of either observation.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub(super) struct DropChange {
    reason: String,
    function: String,
    /// Packets per second of traced time.
    packets_per_s: Pair,
}

/// Both observations. There are no verdicts, because the two are not interleaved.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Changes {
    stages: Vec<StageChange>,
    drops: Vec<DropChange>,
}

/// Documents have some hundred rows.
const DOCUMENT_BYTES_MAX: u64 = 16 << 20;

impl Observation {
    /// Reads a document of `explain --json`. Errors name the file.
    pub(super) fn read(file: &Path) -> Result<Self, Failure> {
        host::user_file::read_text(file, DOCUMENT_BYTES_MAX)
            .map_err(|error| error.to_string())
            .and_then(|text| Observation::parse(&text))
            .map_err(|why| Failure::Usage(format!("cannot read {}: {why}", file.display())))
    }

    fn parse(text: &str) -> Result<Self, String> {
        match serde_json::from_str::<Head>(text) {
            Ok(head) if head.command == "explain" && head.schema == DOCUMENT => {
                serde_json::from_str(text).map_err(|e| format!("not a valid document: {e}"))
            }
            Ok(Head { schema, command }) if command == "explain" => {
                Err(format!("it has version {schema}, and this Wirepath reads {DOCUMENT}"))
            }
            _ => Err("it is not a document of `explain --json`".to_owned()),
        }
    }

    fn from_summary(summary: &ExplainSummary) -> Self {
        let stages = summary.stages.iter().map(|row| Stage {
            name: row.name.to_owned(),
            from: row.from.to_owned(),
            to: row.to.to_owned(),
            count: row.count,
            timed_count: row.timed_count,
            p50_ns: row.p50_ns,
            p99_ns: row.p99_ns,
        });
        let drops = summary.drops.iter().map(|row| Drop {
            reason: row.reason.clone(),
            function: row.function.clone(),
            count: row.count,
        });
        Observation {
            followed_ns: summary.followed.as_nanos() as u64,
            stages: stages.collect(),
            drops: drops.collect(),
        }
    }

    /// Packets per second of traced time.
    fn rate(&self, count: u64) -> Option<f64> {
        (self.followed_ns > 0).then(|| count as f64 * 1e9 / self.followed_ns as f64)
    }

    fn stage(&self, like: &Stage) -> Option<&Stage> {
        // A tunnel's stages are between the points of other interfaces.
        self.stages
            .iter()
            .find(|stage| stage.name == like.name && stage.from == like.from && stage.to == like.to)
    }

    fn drop(&self, like: &Drop) -> Option<&Drop> {
        self.drops.iter().find(|drop| drop.reason == like.reason && drop.function == like.function)
    }
}

impl Stage {
    fn timed(&self, figure: impl Fn(&Stage) -> f64) -> Option<f64> {
        (self.timed_count > 0).then(|| figure(self))
    }
}

impl StageChange {
    fn between(like: &Stage, before: &Observation, now: &Observation) -> Self {
        let (old, new) = (before.stage(like), now.stage(like));
        let timed = |figure: fn(&Stage) -> f64| Pair {
            before: old.and_then(|stage| stage.timed(figure)),
            now: new.and_then(|stage| stage.timed(figure)),
        };
        StageChange {
            name: like.name.clone(),
            from: like.from.clone(),
            to: like.to.clone(),
            packets_per_s: Pair {
                before: before.rate(old.map_or(0, |stage| stage.count)),
                now: now.rate(new.map_or(0, |stage| stage.count)),
            },
            p50_ns: timed(|stage| stage.p50_ns),
            p99_ns: timed(|stage| stage.p99_ns),
        }
    }
}

impl DropChange {
    fn between(like: &Drop, before: &Observation, now: &Observation) -> Self {
        DropChange {
            reason: like.reason.clone(),
            function: like.function.clone(),
            packets_per_s: Pair {
                before: before.rate(before.drop(like).map_or(0, |drop| drop.count)),
                now: now.rate(now.drop(like).map_or(0, |drop| drop.count)),
            },
        }
    }
}

impl Changes {
    pub(super) fn since(before: &Observation, summary: &ExplainSummary) -> Self {
        Changes::between(before, &Observation::from_summary(summary))
    }

    /// Rows of `now` in their order, then those of `before` alone.
    fn between(before: &Observation, now: &Observation) -> Self {
        let gone_stages = before.stages.iter().filter(|stage| now.stage(stage).is_none());
        let gone_drops = before.drops.iter().filter(|drop| now.drop(drop).is_none());
        Changes {
            stages: now
                .stages
                .iter()
                .chain(gone_stages)
                .map(|like| StageChange::between(like, before, now))
                .collect(),
            drops: now
                .drops
                .iter()
                .chain(gone_drops)
                .map(|like| DropChange::between(like, before, now))
                .collect(),
        }
    }

    pub(super) fn text(&self) -> String {
        let mut screen = Screen::plain();
        let columns = ["before → now", ">packets/s", ">p50", ">p99"];
        let stages = self.stages.iter().map(|stage| {
            vec![
                Cell::plain(&stage.name),
                stage.packets_per_s.cell(rate),
                stage.p50_ns.cell(time),
                stage.p99_ns.cell(time),
            ]
        });
        screen.table(&columns, stages);
        screen.blank();
        let drops = self.drops.iter().map(|drop| {
            let rate = drop.packets_per_s.cell(rate);
            vec![Cell::plain(&drop.reason), Cell::plain(&drop.function), rate]
        });
        screen.table(&["drop reason", "by", ">packets/s"], drops);
        screen.blank();
        screen.line(
            "The two observations are not interleaved: anything else that changed between them is in the difference.",
        );
        screen.blank();
        screen.finish()
    }
}

impl Pair {
    fn cell(self, form: fn(f64) -> String) -> Cell {
        let [before, now] =
            [self.before, self.now].map(|figure| figure.map_or("-".to_owned(), form));
        Cell::plain(format!("{before} → {now}"))
    }
}

fn rate(per_s: f64) -> String {
    format!("{per_s:.0}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(to: &str, count: u64, p50_ns: f64) -> Stage {
        let [name, from, to] = ["a stage", "netif_rx", to].map(str::to_owned);
        Stage { name, from, to, count, timed_count: count.min(1), p50_ns, p99_ns: p50_ns }
    }

    #[test]
    fn stages_and_drops_of_either_side_are_compared_per_second() {
        let drop =
            |reason: &str, count| Drop { reason: reason.into(), function: "f".into(), count };
        let before = Observation {
            followed_ns: 2_000_000_000,
            stages: vec![stage("a", 10, 100.0), stage("b", 4, 5.0)],
            drops: vec![drop("OLD", 6)],
        };
        let now = Observation {
            followed_ns: 1_000_000_000,
            stages: vec![stage("c", 0, 0.0), stage("a", 7, 300.0)],
            drops: vec![drop("NEW", 2)],
        };
        let changes = Changes::between(&before, &now);
        let change = |to: &str| changes.stages.iter().find(|stage| stage.to == to).expect("a row");
        let pair = |before, now| Pair { before, now };
        assert_eq!(change("a").packets_per_s, pair(Some(5.0), Some(7.0)));
        assert_eq!(change("a").p50_ns, pair(Some(100.0), Some(300.0)));
        assert_eq!(change("b").packets_per_s, pair(Some(2.0), Some(0.0)));
        assert_eq!(change("b").p50_ns, pair(Some(5.0), None));
        assert_eq!(change("c").p50_ns, pair(None, None), "nothing was timed");
        let reasons: Vec<&str> = changes.drops.iter().map(|drop| drop.reason.as_str()).collect();
        assert_eq!(reasons, ["NEW", "OLD"]);
        assert_eq!(changes.drops[1].packets_per_s, pair(Some(3.0), Some(0.0)));
        assert!(changes.text().contains("100 ns → 300 ns"), "{}", changes.text());
    }

    #[test]
    fn documents_of_others_are_refused_with_the_reason() {
        let refused = |text: &str| Observation::parse(text).unwrap_err();
        assert!(refused(r#"{"schema": 9, "command": "explain"}"#).contains("version 9"));
        assert!(refused(r#"{"schema": 1, "command": "doctor"}"#).contains("explain --json"));
        assert!(refused("[]").contains("explain --json"));
        assert!(refused(r#"{"schema": 1, "command": "explain"}"#).contains("followed_ns"));
    }
}
