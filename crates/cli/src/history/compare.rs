//! `wirepath history compare`, and the baseline of `wirepath prove`.

use std::path::Path;

use model::{Outcome, RunComparison};
use report::store::Store;

use super::args::{CompareArgs, FailOn};
use crate::args::Cli;
use crate::console;
use crate::end::Failure;

pub(crate) fn run(cli: &Cli, args: &CompareArgs) -> Result<(), Failure> {
    let store = super::open_reading(cli)?;
    let old = super::outcome_of(store.load(&args.old)?);
    let new = super::outcome_of(store.load(&args.new)?);
    let comparison = compare(&old, &new)?;
    if let Some(file) = &args.html {
        write_page(file, &comparison)?;
    }
    if cli.json {
        console::text(&report::json::comparison_to_json(&comparison))?;
    } else if args.html.is_none() {
        console::text(&report::text::compare(&comparison, console::style()))?;
    }
    judge(&comparison, args.fail_on)
}

/// The two compared; that they cannot be is a mistake of whoever asked.
pub(crate) fn compare(old: &Outcome, new: &Outcome) -> Result<RunComparison, Failure> {
    model::compare(old, new).map_err(|e| Failure::Usage(e.to_string()))
}

pub(crate) fn write_page(file: &Path, comparison: &RunComparison) -> Result<(), Failure> {
    crate::report_cmd::write(file, report::html::comparison_page(comparison))
}

/// Fails when the newer run is worse in what was asked for.
pub(crate) fn judge(comparison: &RunComparison, on: Option<FailOn>) -> Result<(), Failure> {
    let Some(on) = on else { return Ok(()) };
    let by_worth = on == FailOn::LessWorth;
    let worse = comparison.worse(by_worth);
    if worse.is_empty() {
        return Ok(());
    }
    let of: Vec<String> = worse.iter().map(|(arm, metric)| format!("{metric} of {arm}")).collect();
    let what = if by_worth { "worth less than in" } else { "worse than in" };
    Err(Failure::Threshold(format!("{what} {}: {}", comparison.old.id, of.join(", "))))
}
