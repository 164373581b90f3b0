//! Result of a live proof: its document, what is printed, stored and kept.

use std::fs;
use std::path::{Path, PathBuf};

use host::tune::Plan;
use house::console;
use house::context::{Context, DOCUMENT};
use house::next::{self, CommandLine};
use house::place::StateArgs;
use live::conduct::LiveRun;
use model::Verdict;
use model::live::LiveEnd;
use remote::Failure;
use report::live::{LiveAbsent, LiveProof, LiveSetting};
use report::page::LivePage;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::super::kept;
use super::{LiveArgs, Shared};
use crate::results;

/// Subject of the proof.
pub(super) struct Described {
    pub(super) service: String,
    pub(super) settings: Vec<LiveSetting>,
    pub(super) absent: Vec<LiveAbsent>,
}

pub(super) fn document(
    run: LiveRun,
    begun: OffsetDateTime,
    shared: &Shared<'_>,
    of: Described,
    plan: &Plan,
) -> Result<LiveProof, Failure> {
    let whole = begun.replace_nanosecond(0).unwrap_or(begun);
    let started = whole.format(&Rfc3339).map_err(failed_by)?;
    Ok(LiveProof {
        document: DOCUMENT,
        id: runner::experiment_id(begun, LiveProof::MARK.trim_matches('-'))?,
        name: shared.name.clone(),
        note: shared.note.clone(),
        started,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        plan: shared.plan.1.display().to_string(),
        plan_digest: plan.digest(),
        settings: of.settings,
        service: of.service,
        baseline: run.baseline,
        outcome: run.outcome,
        periods: run.periods,
        absent: of.absent,
        stopped: run.stopped,
    })
}

/// File of a stored live proof.
pub(crate) fn stored_file(context: &Context, id: &str) -> Result<PathBuf, Failure> {
    let is_name = !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if !is_name {
        return Err(Failure::Usage(format!("{id:?} is not an id of a live proof")));
    }
    let database = results::database(context).file()?;
    Ok(database.with_file_name("live").join(format!("{id}.json")))
}

/// Prints, stores and writes the result.
pub(super) fn show(
    context: &Context,
    args: &LiveArgs,
    proof: &LiveProof,
    is_stored: bool,
) -> Result<(), Failure> {
    if context.json {
        console::json(proof)?;
    } else {
        console::text(&report::text::live(&LivePage::from_proof(proof), console::style()))?;
    }
    if let Some(file) = &args.html {
        console::write_file(file, report::html::live_page(proof))?;
    }
    if !is_stored {
        return Ok(());
    }
    let file = stored_file(context, &proof.id)?;
    let stored = file.parent().map_or(Ok(()), fs::create_dir_all);
    stored.map_err(|why| {
        Failure::failed(format!("cannot create the folder of {}: {why}", file.display()))
    })?;
    let text = serde_json::to_string(proof).map_err(failed_by)?;
    host::output_file::write(&file, text.as_bytes()).map_err(failed_by)?;
    console::say(&format!("stored as {}", proof.id));
    if args.html.is_none() {
        let line = CommandLine::new("report").value(&proof.id).words("--html live.html");
        next::say(context, &line);
    }
    Ok(())
}

/// Writes the plan if a figure is better and none worse, and says how to keep it.
pub(super) fn keep(
    context: &Context,
    state: &StateArgs,
    (plan, plan_file): (&Plan, &Path),
    proof: &LiveProof,
    file: &Path,
) -> Result<(), Failure> {
    if !is_kept(proof) {
        console::say(&format!("the plan is not shown to help: {} was not written", file.display()));
        return Ok(());
    }
    let mut text = format!(
        "# Settings of {} that help on the running service ({}), by experiment {}:\n",
        host::text::printable(&plan_file.to_string_lossy(), 200),
        host::text::printable(&proof.service, 200),
        proof.id
    );
    for sentence in report::answer::live_sentences(proof) {
        text.push_str(&format!("#   {}\n", host::text::printable(&sentence.text, 200)));
    }
    text.push('\n');
    text.push_str(&plan.to_text());
    kept::write_new(file, &text)?;
    console::say(&format!("wrote {}", file.display()));
    let line = CommandLine::as_root("tune apply").value(&file.to_string_lossy());
    next::say(context, &state.given_to(line.words("--confirm-within 2m")));
    Ok(())
}

fn failed_by(error: impl std::error::Error) -> Failure {
    Failure::from_chain(&error)
}

/// True if a figure is better, none worse, and the run can be trusted.
fn is_kept(proof: &LiveProof) -> bool {
    let has = |wanted: Verdict| proof.outcome.verdicts.iter().any(|v| v.verdict == wanted);
    let is_sound = proof.outcome.trusted && proof.stopped.is_none() && !is_harm(&proof.outcome.end);
    is_sound && has(Verdict::Better) && !has(Verdict::Worse)
}

fn is_harm(end: &LiveEnd) -> bool {
    matches!(end, LiveEnd::Tripped | LiveEnd::SoftGuard { .. })
}

/// The end of the command by what the run found.
pub(super) fn verdict(proof: &LiveProof, is_interrupted: bool) -> Result<(), Failure> {
    let outcome = &proof.outcome;
    if let Some(why) = &proof.stopped {
        return Err(Failure::failed(format!("the run ended early: {why}")));
    }
    if is_interrupted {
        return Err(Failure::Interrupted("interrupted; the result so far is above".into()));
    }
    if is_harm(&outcome.end) {
        let (why, _) = report::answer::live_end(proof);
        return Err(Failure::Threshold(why.replace("Ended: ", "worse: ")));
    }
    if !outcome.trusted {
        let (why, _) = report::answer::live_trust(outcome);
        return Err(Failure::Undecided(format!("not trusted: {why}")));
    }
    let worse = outcome.verdicts.iter().find(|verdict| verdict.verdict == Verdict::Worse);
    if let Some(worse) = worse {
        return Err(Failure::Threshold(format!("{} is worse with the plan", worse.figure)));
    }
    match outcome.verdicts.first() {
        Some(primary) if primary.verdict == Verdict::Inconclusive => {
            Err(Failure::Undecided(format!(
                "{} is not decided; give more time with --for, or a coarser --resolve",
                primary.figure
            )))
        }
        _ => Ok(()),
    }
}
