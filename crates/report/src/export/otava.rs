//! CSV of a history for Apache Otava, which looks for change points: a row per run, a column per figure.

use std::collections::{BTreeMap, BTreeSet};

use model::{ArmKind, Outcome};

use crate::{csv, wording};

/// Columns beside the figures: the time, and attributes.
const COLUMNS: [&str; 7] = ["time", "run", "version", "kernel", "machine", "path", "load"];

/// Runs that cannot be in one file.
#[derive(Debug, thiserror::Error)]
#[error("{} series: {}; a file holds one path with one load: name the ids of one of them", .0.len(), .0.join("; "))]
pub struct MixedSeries(Vec<String>);

struct Row {
    started: String,
    cells: [String; COLUMNS.len()],
    figures: BTreeMap<String, f64>,
}

/// A file for Otava, and the figures that are not in it.
#[derive(Debug)]
pub struct OtavaFile {
    pub text: String,
    /// Columns that some run has no figure for: Otava reads none with a gap.
    pub left_out: Vec<String>,
}

/// Collects the runs of one series.
#[derive(Default)]
pub struct OtavaRows {
    rows: Vec<Row>,
    subjects: BTreeSet<String>,
}

impl OtavaRows {
    pub fn add(&mut self, outcome: &Outcome) {
        self.subjects.insert(wording::subject(&outcome.path, &outcome.load));
        self.rows.push(Row {
            started: outcome.started.clone(),
            cells: [
                outcome.started.clone(),
                outcome.id.clone(),
                outcome.version.clone(),
                outcome.machine.kernel.clone(),
                outcome.machine.id.clone(),
                outcome.path.clone(),
                wording::load(&outcome.load),
            ],
            figures: figures(outcome),
        });
    }

    /// Returns CSV (RFC 4180) with a header line, oldest run first.
    ///
    /// Errors: the runs are of several paths or loads.
    pub fn finish(mut self) -> Result<OtavaFile, MixedSeries> {
        if self.subjects.len() > 1 {
            return Err(MixedSeries(self.subjects.into_iter().collect()));
        }
        self.rows.sort_by(|a, b| a.started.cmp(&b.started));
        let all: BTreeSet<&String> = self.rows.iter().flat_map(|row| row.figures.keys()).collect();
        let (columns, left_out): (Vec<&String>, Vec<&String>) = all
            .into_iter()
            .partition(|column| self.rows.iter().all(|row| row.figures.contains_key(*column)));
        let header = COLUMNS.iter().copied().chain(columns.iter().map(|name| name.as_str()));
        let mut text = csv::row(&header.collect::<Vec<_>>());
        for row in &self.rows {
            let figures = columns.iter().map(|column| row.figures[*column].to_string());
            let cells: Vec<String> = row.cells.iter().cloned().chain(figures).collect();
            text += &csv::row(&cells.iter().map(String::as_str).collect::<Vec<_>>());
        }
        Ok(OtavaFile { text, left_out: left_out.into_iter().cloned().collect() })
    }
}

/// Medians of the judged metrics of each arm, and ratios to the baseline: `+spin:rtt_ns_p50`, `+spin:rtt_ns_p50:ratio`.
fn figures(outcome: &Outcome) -> BTreeMap<String, f64> {
    let mut figures = BTreeMap::new();
    for arm in outcome.arms.iter().filter(|arm| arm.kind != ArmKind::Control) {
        for name in &outcome.judged {
            let Some(metric) = arm.metrics.get(name) else { continue };
            let column = format!("{}:{name}", arm.name);
            figures.extend(metric.ratio.map(|ratio| (format!("{column}:ratio"), ratio)));
            figures.extend(metric.median.map(|median| (column, median)));
        }
    }
    figures.retain(|_, value| value.is_finite());
    figures
}
