//! Output of experiments that have ended.

use std::borrow::Cow;

use house::context::Context;
use house::next::{self, CommandLine};
use house::{console, signals};
use model::{Gain, Member, Outcome, RunComparison};
use remote::Failure;
use runner::Proven;
use schemars::JsonSchema;
use serde::Serialize;

use crate::shared_args::DetailArgs;

/// Document of `prove --json` and `tune prove --json`.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Document")]
pub(crate) struct ProveDocument<'a> {
    #[serde(flatten)]
    outcome: Cow<'a, Outcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    comparison: Option<&'a RunComparison>,
    /// Worth of each member of the set that `--arms best` found.
    #[serde(skip_serializing_if = "Option::is_none")]
    members: Option<Vec<Member>>,
    /// Worth of each setting on top of those before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<Vec<Gain>>,
}

/// Document of `--json` with `--runs`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SeriesDocument<'a> {
    /// Every run, oldest first, each as the document of a single run.
    pub(crate) runs: Vec<ProveDocument<'a>>,
    /// Comparison of these runs with the earlier ones of `--baseline`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) comparison: Option<&'a RunComparison>,
}

impl<'a> ProveDocument<'a> {
    pub(crate) fn new(proven: &'a Proven) -> Self {
        let outcome = report::json::finite(&proven.outcome);
        ProveDocument { outcome, comparison: None, members: None, steps: None }
    }

    pub(crate) fn compared(self, comparison: Option<&'a RunComparison>) -> Self {
        ProveDocument { comparison, ..self }
    }

    /// With the worth of each member of a set that a search found.
    pub(crate) fn searched(proven: &'a Proven) -> Self {
        ProveDocument { members: Some(proven.outcome.members()), ..Self::new(proven) }
    }

    /// With the worth of each setting of a plan.
    pub(crate) fn with_steps(self, steps: Vec<Gain>) -> Self {
        ProveDocument { steps: Some(steps), ..self }
    }
}

/// Errors: no measurement of the baseline, a run that was given up, or one that a signal ended.
pub(crate) fn verdict(proven: &Proven) -> Result<(), Failure> {
    proven.verdict(signals::stop_requested())
}

/// Errors: those of the runs; the series was interrupted between two of them.
///
/// - `runs`: that were asked for.
pub(crate) fn verdicts(proven: &[Proven], runs: u32) -> Result<(), Failure> {
    proven.iter().try_for_each(verdict)?;
    let ran = proven.len();
    if signals::stop_requested() && ran < runs as usize {
        return Err(Failure::Interrupted(format!(
            "interrupted after {ran} of {runs} runs; the result so far is above"
        )));
    }
    Ok(())
}

/// Prints the document of a run. One that was interrupted before anything is known has none.
pub(crate) fn print_document(proven: &Proven, document: &impl Serialize) -> Result<(), Failure> {
    if is_blank(proven) { Ok(()) } else { console::json(document) }
}

/// True if a run was interrupted before anything is known.
fn is_blank(proven: &Proven) -> bool {
    !proven.has_result() && !proven.gave_up
}

/// Prints the result of a run, if anything is known.
pub(crate) fn print_ladder(proven: &Proven, detail: DetailArgs) -> Result<(), Failure> {
    if !proven.has_result() {
        return Ok(());
    }
    console::text(&report::text::ladder(&proven.outcome, console::style(), detail.detail()))
}

/// Prints the id under which a run is stored.
pub(crate) fn say_where(proven: &Proven) {
    if proven.is_stored && proven.has_result() {
        console::say(&format!("stored as {}", proven.outcome.id));
    }
}

/// Prints the command that makes a page of a run, the next step if there is no better one.
pub(crate) fn say_report(context: &Context, proven: &Proven) {
    if proven.is_stored && proven.has_result() {
        let line = CommandLine::new("report").value(&proven.outcome.id);
        next::say(context, &line.words("--html report.html"));
    }
}

/// Prints the ids of a series in the form that `--baseline` takes.
pub(crate) fn say_ids(proven: &[Proven]) {
    if proven.len() > 1 && proven.iter().all(|run| run.is_stored) {
        let ids: Vec<&str> = proven.iter().map(|run| run.outcome.id.as_str()).collect();
        console::say(&format!("to compare later runs with these: --baseline {}", ids.join(",")));
    }
}

/// Prints a series, and fails if one of its runs has no verdict, or it was interrupted.
///
/// - `runs`: that were asked for.
/// - `document`: that of one run.
pub(crate) fn show_series<'a>(
    context: &Context,
    detail: DetailArgs,
    proven: &'a [Proven],
    runs: u32,
    document: impl Fn(&'a Proven) -> ProveDocument<'a>,
) -> Result<(), Failure> {
    if proven.iter().any(is_blank) {
        // The first run.
    } else if context.json {
        let runs = proven.iter().map(document).collect();
        console::json(&SeriesDocument { runs, comparison: None })?;
    } else if let Some(last) = proven.last() {
        print_ladder(last, detail)?;
        let outcomes: Vec<Outcome> = proven.iter().map(|run| run.outcome.clone()).collect();
        console::text(&report::text::repeated(&outcomes, console::style()))?;
        say_where(last);
        say_ids(proven);
        say_report(context, last);
    }
    verdicts(proven, runs)
}
