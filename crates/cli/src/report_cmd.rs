//! `wirepath report`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use house::console;
use house::context::Context;
use model::Better;
use remote::Failure;
use report::formats;
use report::live::LiveProof;
use report::page::{LivePage, Page};
use report::store::{SqliteStore, Store, StoreError, Stored};
use runner::store_failure;

use crate::path_page::Known;
use crate::shared_args::DetailArgs;
use crate::tune::live::stored_file;
use crate::{lookup, results};

/// Longest document of a live proof that is read: a week of 2-second periods.
const LIVE_BYTES_MAX: u64 = 256 << 20;

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Id, unique prefix of one, or `last`
    #[arg(default_value = "last")]
    pub(crate) id: String,
    /// Write a self-contained HTML page
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Latest result per switch of a path, instead of one experiment
    #[arg(long, value_name = "PATH", value_parser = lookup::PathName, conflicts_with_all = ["id", "csv"], requires = "html")]
    pub(crate) path: Option<String>,
    /// Print another form of the result
    #[arg(long, value_enum, conflicts_with_all = ["path", "html", "csv"])]
    pub(crate) format: Option<Format>,
    /// Write CSV, one row per arm and metric
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    #[command(flatten)]
    detail: DetailArgs,
}

/// Forms for CI systems and other tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Tables for a pull request, or $GITHUB_STEP_SUMMARY
    Markdown,
    /// Annotations of GitHub Actions
    Github,
    /// XML of test results: a worse arm is a failure
    Junit,
    /// Bencher Metric Format
    Bencher,
    /// Go benchmark format, a line per trial, for benchstat
    Benchfmt,
    /// github-action-benchmark's customSmallerIsBetter
    GithubActionBenchmark,
    /// github-action-benchmark's customBiggerIsBetter
    GithubActionBenchmarkBigger,
    /// Gauges of every arm in base units
    Openmetrics,
    /// Histogram log of HdrHistogram, with a line per trial
    Hlog,
}

pub(crate) fn run(context: &Context, args: &ReportArgs) -> Result<(), Failure> {
    if let (Some(name), Some(file)) = (&args.path, &args.html) {
        return path(context, name, file);
    }
    if args.id.contains(LiveProof::MARK) {
        return live(context, args);
    }
    let store = results::database(context).open_reading()?;
    let stored = store.load(&args.id).map_err(store_failure)?;
    if let Some(format) = args.format {
        if context.json {
            return Err(Failure::Usage("--format and --json exclude each other".into()));
        }
        return console::bytes(formatted(stored, format)?.as_bytes());
    }
    let outcome = results::outcome_of(stored);
    if let Some(file) = &args.html {
        console::write_file(file, report::html::page(&outcome))?;
    }
    if let Some(file) = &args.csv {
        console::write_file(file, report::csv::to_csv(&outcome))?;
    }
    if context.json {
        return console::text(&report::json::to_json(&outcome));
    }
    if args.html.is_none() && args.csv.is_none() {
        return console::text(&report::text::ladder(
            &outcome,
            console::style(),
            args.detail.detail(),
        ));
    }
    Ok(())
}

fn formatted(stored: Stored, format: Format) -> Result<String, Failure> {
    let print = match format {
        Format::Markdown => formats::to_markdown,
        Format::Github => formats::to_github,
        Format::Junit => formats::to_junit,
        Format::Bencher => formats::to_bencher,
        Format::Openmetrics => formats::to_openmetrics,
        Format::Hlog => return hlog(&stored),
        Format::Benchfmt => return Ok(formats::to_benchfmt(&results::outcome_of(stored))),
        Format::GithubActionBenchmark => return Ok(action_benchmark(stored, Better::Lower)),
        Format::GithubActionBenchmarkBigger => return Ok(action_benchmark(stored, Better::Higher)),
    };
    Ok(print(&Page::from_outcome(&results::outcome_of(stored))))
}

/// Metrics for which one direction is the better one; says how many are in the file of the other one.
fn action_benchmark(stored: Stored, better: Better) -> String {
    let outcome = results::outcome_of(stored);
    let left_out = formats::action_benchmark_left_out(&outcome, better);
    if left_out > 0 {
        let (which, other) = match better {
            Better::Lower => ("higher", "github-action-benchmark-bigger"),
            Better::Higher => ("lower", "github-action-benchmark"),
        };
        let count = console::count(left_out, "metric");
        console::say(&format!("{count} for which {which} is better: --format {other}"));
    }
    formats::to_action_benchmark(&outcome, better)
}

fn hlog(stored: &Stored) -> Result<String, Failure> {
    let started = humantime::parse_rfc3339(&stored.header.started)
        .map_err(|e| Failure::failed(format!("cannot read the start of the experiment: {e}")))?;
    Ok(formats::to_hlog(&stored.trials, started)?)
}

/// Prints a proof on a running service, or writes its page.
fn live(context: &Context, args: &ReportArgs) -> Result<(), Failure> {
    if args.format.is_some() || args.csv.is_some() {
        return Err(Failure::Usage("a live proof has the forms text, --json and --html".into()));
    }
    let file = stored_file(context, &args.id)?;
    let text = host::user_file::read_text(&file, LIVE_BYTES_MAX);
    let text = text.map_err(|why| Failure::Usage(format!("{}: {why}", file.display())))?;
    let proof = LiveProof::from_json(&text)
        .map_err(|why| Failure::failed(format!("{} is damaged: {why}", file.display())))?;
    if let Some(page) = &args.html {
        return console::write_file(page, report::html::live_page(&proof));
    }
    if context.json {
        return console::json(&proof);
    }
    console::text(&report::text::live(&LivePage::from_proof(&proof), console::style()))
}

/// Writes the page of one path: the latest result per switch.
fn path(context: &Context, name: &str, file: &Path) -> Result<(), Failure> {
    let path = lookup::find_path(name)?;
    let store = match SqliteStore::open_reading(results::database(context).file()?) {
        Err(StoreError::Empty) => None,
        store => Some(store?),
    };
    let known = Known::read(store.as_ref(), path.name(), None)?;
    console::write_file(file, known.page(path.as_ref(), |page| page.file()))
}
