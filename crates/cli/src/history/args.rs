//! The command line of `wirepath history`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use house::args::parse_age;

use crate::shared_args::{FailOn, ResolveArgs, UnitName};

/// Number of experiments in a list by default.
pub(crate) const ROWS: usize = 20;

#[derive(Debug, Subcommand)]
pub(crate) enum HistoryCommand {
    /// List experiments, newest first
    #[command(after_help = "Example:\n  wirepath history list --last 5 --path probe")]
    List {
        /// Only the last N
        #[arg(long, default_value_t = ROWS)]
        last: usize,
        /// Only this path
        #[arg(long)]
        path: Option<String>,
        /// Only experiments whose name has this part
        #[arg(long, value_name = "TEXT")]
        name: Option<String>,
    },
    /// Show one experiment: its arms and trials
    #[command(after_help = "Example:\n  wirepath history show last")]
    Show {
        /// Id, unique prefix of one, or `last`
        #[arg(default_value = "last")]
        id: String,
    },
    /// Are the newer experiments different? Verdicts need at least five sessions a side
    #[command(after_help = "\
Example:
  wirepath history compare '20261121-08*' '20261122-08*' --fail-on worse
  wirepath history compare '202611*' '202612*' --unit day --resolve 2%
  wirepath history compare 20261121-0830 last --html compare.html     (ratios only)")]
    Compare(CompareArgs),
    /// When did each figure change, and for the better or the worse? Needs ten sessions
    #[command(after_help = "\
Example:
  wirepath history watch --path probe
  wirepath history watch '2026*' --resolve 2% --fail-on worse --html watch.html")]
    Watch(WatchArgs),
    /// Export experiments as CSV or JSON
    #[command(after_help = "\
Example:
  wirepath history export last --format csv --out last.csv
  wirepath history export --all --format json --out history.json
  wirepath history export --all --format otava --out history.csv
  wirepath history export last --share --out mine.json")]
    Export(ExportArgs),
    /// Store experiments of exported JSON documents: all of them, or none
    #[command(after_help = "\
Example:
  wirepath history export --all --format json --out history.json     (on the other machine)
  wirepath history import history.json
  wirepath history import sort.json     (of hyperfine --export-json sort.json)")]
    Import(ImportArgs),
    /// Remove old experiments; only lists them without --yes
    #[command(after_help = "\
Example:
  wirepath history prune --older-than 90d --keep-last 100
  wirepath history prune --older-than 90d --keep-last 100 --yes")]
    Prune(PruneArgs),
    /// Check the database: SQLite's integrity check, and every record
    #[command(after_help = "Example:\n  wirepath history check")]
    Check,
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Older experiments: ids or unique prefixes, separated by commas, 'PREFIX*', or FILE.json
    pub(crate) old: String,
    /// Newer experiments in the same form, or `last`
    #[arg(default_value = "last")]
    pub(crate) new: String,
    /// Write a self-contained HTML page
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Exit with 4 if any arm is worse, with 0 if none is, and with 5 if that is not decided; at least 5 sessions a
    /// side are needed
    #[arg(long, value_enum)]
    pub(crate) fail_on: Option<FailOn>,
    #[command(flatten)]
    pub(crate) basis: BasisArgs,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// Experiments: ids or unique prefixes, separated by commas, 'PREFIX*', or FILE.json; default: all
    #[arg(default_value = "*", value_name = "IDS")]
    pub(crate) ids: String,
    /// Only this path
    #[arg(long)]
    pub(crate) path: Option<String>,
    /// Write a self-contained HTML page
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Exit with 4 if the latest change of any figure is one for the worse by more than --resolve, with 5 if a figure
    /// has too few sessions, and with 0 otherwise; `less-worth` watches ratios to the baseline in place of values
    #[arg(long, value_enum)]
    pub(crate) fail_on: Option<FailOn>,
    #[command(flatten)]
    pub(crate) basis: BasisArgs,
}

/// Unit and resolution of a question between runs.
#[derive(Debug, Args)]
pub(crate) struct BasisArgs {
    /// Unit that gives one figure
    #[arg(long, value_enum, default_value = "session")]
    pub(crate) unit: UnitName,
    #[command(flatten)]
    pub(crate) resolve: ResolveArgs,
    /// End with 0 if --fail-on is not decided
    #[arg(long)]
    pub(crate) accept_undecided: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// One line per trial and figure
    Csv,
    /// The documents of `report --json`, in a list
    Json,
    /// CSV for Apache Otava: a row per run of one path and load, oldest first
    Otava,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Ids, unique prefixes of them, or `last`
    #[arg(required_unless_present = "all")]
    pub(crate) ids: Vec<String>,
    /// All experiments
    #[arg(long, conflicts_with = "ids")]
    pub(crate) all: bool,
    /// Format
    #[arg(long, value_enum, default_value = "csv")]
    pub(crate) format: Format,
    /// Output file; default: standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Write a signed file for `wirepath atlas`: figures and what the machine is, without names of hosts, users,
    /// addresses, paths and commands
    #[cfg(feature = "fleet")]
    #[arg(long, conflicts_with = "format")]
    pub(crate) share: bool,
    /// Keep all names and texts in the shared file
    #[cfg(feature = "fleet")]
    #[arg(long, requires = "share")]
    pub(crate) with_names: bool,
    /// Key that signs it, of `wirepath fleet keys`; default: one beside the results, made once
    #[cfg(feature = "fleet")]
    #[arg(long, value_name = "FILE", requires = "share")]
    pub(crate) key: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// JSON of `history export`, `report --json` or `prove --json`; of hyperfine's --export-json; of k6's --summary-export
    /// or handleSummary
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true))]
pub(crate) struct PruneArgs {
    /// Remove experiments older than this: 90d, 12h
    #[arg(long, value_name = "AGE", value_parser = parse_age, group = "what")]
    pub(crate) older_than: Option<std::time::Duration>,
    /// Keep the newest N whatever their age; alone: remove all but the newest N
    #[arg(long, value_name = "N", group = "what")]
    pub(crate) keep_last: Option<usize>,
    /// Only this path
    #[arg(long)]
    pub(crate) path: Option<String>,
    /// Remove them
    #[arg(long)]
    pub(crate) yes: bool,
}
