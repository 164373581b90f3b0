//! The command line of `wirepath history`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// Experiments that a list shows unless told.
pub(crate) const ROWS: usize = 20;

#[derive(Debug, Subcommand)]
pub(crate) enum HistoryCommand {
    /// List experiments, newest first
    #[command(after_help = "Example:\n  wirepath history list --last 5 --path probe")]
    List {
        /// Only the last N
        #[arg(long, default_value_t = ROWS)]
        last: usize,
        /// Only of this path
        #[arg(long)]
        path: Option<String>,
    },
    /// Show one experiment: its arms and trials
    #[command(after_help = "Example:\n  wirepath history show last")]
    Show {
        /// Id, unique beginning of one, or `last`
        #[arg(default_value = "last")]
        id: String,
    },
    /// Is the newer experiment different, beyond the noise of both?
    #[command(after_help = "\
Example:
  wirepath history compare 20261121-0830 last
  wirepath history compare 20261121-0830 last --html compare.html --fail-on worse")]
    Compare(CompareArgs),
    /// Write experiments as CSV, JSON or Parquet
    #[command(after_help = "\
Example:
  wirepath history export last --format csv -o last.csv
  wirepath history export --all --format json -o history.json")]
    Export(ExportArgs),
    /// Remove old experiments; says which, and does nothing without --yes
    #[command(after_help = "\
Example:
  wirepath history prune --older-than 90d --keep 100
  wirepath history prune --older-than 90d --keep 100 --yes")]
    Prune(PruneArgs),
    /// Check that the database is whole: SQLite's own check, and every record of ours
    #[command(after_help = "Example:\n  wirepath history check")]
    Check,
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// What to compare with: id, or unique beginning of one
    pub(crate) old: String,
    /// What to compare: id, unique beginning of one, or `last`
    #[arg(default_value = "last")]
    pub(crate) new: String,
    /// Write a self-contained HTML page
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// End with exit code 4 if any arm is worse
    #[arg(long, value_enum)]
    pub(crate) fail_on: Option<FailOn>,
}

/// What makes a comparison end with exit code 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    /// A judged value of any arm is worse, be it by the machine or by what changed
    Worse,
    /// Any arm is worth less against its own baseline: the machine cancels
    LessWorth,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// One line a trial and figure
    Csv,
    /// The documents of `report --json`, in a list
    Json,
    /// The lines of CSV as Apache Parquet, for pandas, DuckDB and the like
    Parquet,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Ids, unique beginnings of them, or `last`
    #[arg(required_unless_present = "all")]
    pub(crate) ids: Vec<String>,
    /// All experiments
    #[arg(long, conflicts_with = "ids")]
    pub(crate) all: bool,
    /// Form
    #[arg(long, value_enum, default_value = "csv")]
    pub(crate) format: Format,
    /// File to write; standard output unless given
    #[arg(short = 'o', long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true))]
pub(crate) struct PruneArgs {
    /// Remove what is older than this: 90d, 12h
    #[arg(long, value_name = "AGE", value_parser = parse_age, group = "what")]
    pub(crate) older_than: Option<std::time::Duration>,
    /// Keep the newest N whatever their age; alone: remove all but the newest N
    #[arg(long, value_name = "N", group = "what")]
    pub(crate) keep: Option<usize>,
    /// Only of this path
    #[arg(long)]
    pub(crate) path: Option<String>,
    /// Do it
    #[arg(long)]
    pub(crate) yes: bool,
}

/// `90d`, `12h`, `30m`.
fn parse_age(text: &str) -> Result<std::time::Duration, String> {
    let days = text.strip_suffix('d').map(|days| days.trim().parse::<f64>());
    match days {
        Some(Ok(days)) if days > 0.0 && days <= 36_500.0 => {
            Ok(std::time::Duration::from_secs_f64(days * 86_400.0))
        }
        Some(_) => Err(format!("{text:?} is no age; try 90d or 12h")),
        None => crate::args::parse_duration(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_read_in_days_and_less() {
        let seconds = |text: &str| parse_age(text).map(|age| age.as_secs());
        assert_eq!(seconds("90d"), Ok(7_776_000));
        assert_eq!(seconds("12h"), Ok(43_200));
        for bad in ["d", "-1d", "nand", "1e9d", "5 moons"] {
            assert!(parse_age(bad).is_err(), "{bad}");
        }
    }
}
