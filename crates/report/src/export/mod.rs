//! Experiments for other programs: CSV with one line per trial and metric, a JSON list of outcomes, or CSV with one row
//! per run.

mod otava;

use std::io::{self, Write};

use model::{Better, Outcome};

use crate::{csv, json, wording};

pub use otava::{MixedSeries, OtavaFile, OtavaRows};

/// Export file of any number of experiments.
pub trait Table {
    fn add(&mut self, outcome: &Outcome) -> io::Result<()>;

    fn finish(self: Box<Self>) -> io::Result<()>;
}

struct Line {
    texts: [String; TEXTS.len()],
    /// From 1; the warm-up block is left out.
    block: u32,
    /// `None` if the trial failed or the figure was refused.
    value: Option<f64>,
}

/// Columns of text, in order; `block` and `value` follow.
const TEXTS: [&str; 14] = [
    "experiment",
    "started",
    "path",
    "load",
    "size_bytes",
    "rate_pps",
    "machine",
    "version",
    "arm",
    "kind",
    "switches",
    "metric",
    "unit",
    "better",
];

fn lines(outcome: &Outcome) -> Vec<Line> {
    let mut lines = Vec::new();
    for arm in &outcome.arms {
        for (name, metric) in &arm.metrics {
            let better = match metric.better {
                Better::Lower => "lower",
                Better::Higher => "higher",
            };
            for (place, value) in metric.trials.iter().enumerate() {
                lines.push(Line {
                    texts: [
                        outcome.id.clone(),
                        outcome.started.clone(),
                        outcome.path.clone(),
                        load_parameter(outcome, "kind"),
                        load_parameter(outcome, "size_bytes"),
                        load_parameter(outcome, "rate_pps"),
                        outcome.machine.id.clone(),
                        outcome.version.clone(),
                        arm.name.clone(),
                        wording::kind(arm.kind).into(),
                        arm.switches.join("+"),
                        name.clone(),
                        metric.unit.clone(),
                        better.into(),
                    ],
                    block: place as u32 + 1,
                    // A refused figure would be as misleading here as in a report.
                    value: value.filter(|_| metric.median.is_some()).filter(|v| v.is_finite()),
                });
            }
        }
    }
    lines
}

fn load_parameter(outcome: &Outcome, name: &str) -> String {
    outcome.load.get(name).cloned().unwrap_or_default()
}

/// CSV (RFC 4180) with a header line; an empty cell stands for a missing value.
pub struct TrialsCsv<W>(W);

impl<W: Write> TrialsCsv<W> {
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(csv::row(&[&TEXTS[..], &["block", "value"]].concat()).as_bytes())?;
        Ok(TrialsCsv(out))
    }
}

impl<W: Write> Table for TrialsCsv<W> {
    fn add(&mut self, outcome: &Outcome) -> io::Result<()> {
        for line in lines(outcome) {
            let mut cells: Vec<&str> = line.texts.iter().map(String::as_str).collect();
            let (block, value) = (line.block.to_string(), line.value.map(|v| v.to_string()));
            cells.extend([block.as_str(), value.as_deref().unwrap_or_default()]);
            self.0.write_all(csv::row(&cells).as_bytes())?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.0.flush()
    }
}

/// JSON list of documents as in `docs/reference/results.md`.
pub struct TrialsJson<W> {
    out: W,
    empty: bool,
}

impl<W: Write> TrialsJson<W> {
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(b"[")?;
        Ok(TrialsJson { out, empty: true })
    }
}

impl<W: Write> Table for TrialsJson<W> {
    fn add(&mut self, outcome: &Outcome) -> io::Result<()> {
        self.out.write_all(if self.empty { b"\n" } else { b",\n" })?;
        self.empty = false;
        self.out.write_all(json::to_json(outcome).as_bytes())
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.out.write_all(b"\n]\n")?;
        self.out.flush()
    }
}
