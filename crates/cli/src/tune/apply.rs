//! Applying, confirming, giving back.

use std::fmt::Write;
use std::io::Read;
use std::path::Path;

use host::tune::{
    self, Applied, Confirmation, Fate, Options, Phase, Place, Plan, PlanError, Report, System,
};
use serde_json::{Value, json};

use super::guard::Guard;
use super::{ApplyArgs, StateArgs, notice};
use crate::args::Cli;
use crate::end::Failure;
use crate::{console, stop};

pub(super) fn read(path: &Path) -> Result<Plan, PlanError> {
    if path != Path::new("-") {
        return tune::read_plan(path);
    }
    let mut text = String::new();
    std::io::stdin()
        .take(2 << 20)
        .read_to_string(&mut text)
        .map_err(|error| PlanError::Syntax { why: format!("standard input: {error}") })?;
    Plan::parse(&text)
}

fn answer(cli: &Cli, outcome: &str, detail: Value, text: &str) -> Result<(), Failure> {
    if !cli.json {
        return console::text(text);
    }
    let mut doc = json!({ "schema": model::SCHEMA, "outcome": outcome });
    if let (Some(doc), Value::Object(detail)) = (doc.as_object_mut(), detail) {
        doc.extend(detail);
    }
    console::text(&format!("{doc:#}"))
}

pub(super) fn apply(cli: &Cli, state: &StateArgs, args: &ApplyArgs) -> Result<(), Failure> {
    let plan = read(&args.plan)?;
    let system = System::open(&Place { netns: plan.netns.clone(), root: state.root.clone() })?;
    if args.dry_run {
        return dry_run(cli, state, &system, &plan);
    }
    stop::on_hangup()?;
    let store = state.store();
    let _guard = args.confirm_within.map(|_| Guard::start(state)).transpose()?;
    let options =
        Options { stop: stop::flag_ref(), confirm_within: args.confirm_within, watch: &mut |_| {} };
    let applied = match tune::apply(&system, &plan, &store, options) {
        Err(tune::ApplyError::RolledBack { why, report }) => {
            return Err(rolled_back(&why, &report));
        }
        applied => applied?,
    };
    let (steps, confirm_by_ms) = match applied {
        Applied::Nothing => {
            return answer(cli, "nothing-to-do", json!({}), "nothing to do: all is so already");
        }
        Applied::Already(drift) => return already(cli, &drift),
        Applied::Done { steps, confirm_by_ms } => (steps, confirm_by_ms),
    };
    let mut text = format!("{} settings changed, each read back\n", steps.len());
    for step in &steps {
        let _ = writeln!(
            text,
            "  {:<22} {:<24} {} -> {}",
            step.knob,
            step.target.to_string(),
            step.before,
            step.now
        );
        if let Some(note) = &step.note {
            let _ = writeln!(text, "  {:<22} {note}", "");
        }
    }
    let detail = json!({ "steps": &steps });
    let Some(by_ms) = confirm_by_ms else {
        text.push_str("`wirepath tune rollback` gives them back");
        return answer(cli, "applied", detail, &text);
    };
    let within = by_ms.saturating_sub(tune::boot_clock_ms()).div_ceil(1000);
    console::say(&format!(
        "{}given back in {within} s unless `wirepath tune confirm` comes from another terminal; \
         Ctrl-C gives back now",
        text
    ));
    let root = state.root.as_deref();
    match tune::await_confirmation(&store, root, by_ms, stop::flag_ref(), &mut |_| {})? {
        Confirmation::Confirmed => {
            let text = "confirmed: `wirepath tune rollback` still gives them back";
            answer(cli, "confirmed", detail, text)
        }
        Confirmation::Undone => Err(Failure::failed("somebody else gave the settings back")),
        Confirmation::RolledBack { why, report } => Err(rolled_back(&why, &report)),
    }
}

fn rolled_back(why: &str, report: &Report) -> Failure {
    let mut text = format!("{why}; what was changed was given back");
    for given in report.foreign() {
        let Fate::Foreign { found } = &given.fate else { continue };
        let _ = write!(
            text,
            "\n  but {} of {} was changed to {found} by somebody else, and left",
            given.knob, given.target
        );
    }
    Failure::Failed(text)
}

fn already(
    cli: &Cli,
    drift: &[(String, tune::Target, tune::Value, String)],
) -> Result<(), Failure> {
    let mut text = "nothing to do: this plan is applied".to_owned();
    for (knob, target, wanted, found) in drift {
        let _ = write!(text, "\n  but {knob} of {target} is {found} by now, not {wanted}");
    }
    let rows: Vec<_> = drift
        .iter()
        .map(|(knob, target, wanted, found)| {
            json!({ "knob": knob, "target": target, "wanted": wanted, "now": found })
        })
        .collect();
    answer(cli, "already-applied", json!({ "changed_since": rows }), &text)
}

fn dry_run(cli: &Cli, state: &StateArgs, system: &System, plan: &Plan) -> Result<(), Failure> {
    notice(state);
    let ready = plan.check(system)?;
    let mut text = String::new();
    let mut rows = Vec::new();
    for step in &ready {
        let (knob, target) = (step.knob.id(), step.target.to_string());
        let what = match step.is_done() {
            true => "is so already".to_owned(),
            false => format!("{} -> {}", step.before, step.value),
        };
        let _ = writeln!(text, "{knob:<22} {target:<24} {what}");
        rows.push(json!({
            "knob": knob, "target": target, "now": step.before, "value": step.value,
            "changes": !step.is_done(),
        }));
    }
    let change_count = ready.iter().filter(|step| !step.is_done()).count();
    let _ = write!(text, "{change_count} settings would be changed; nothing was");
    answer(cli, "dry-run", json!({ "steps": rows }), &text)
}

pub(super) fn confirm(cli: &Cli, state: &StateArgs) -> Result<(), Failure> {
    let journal = tune::confirm(&state.store())?;
    let text = match journal.phase {
        Phase::Confirmed => "confirmed: the settings stay until `wirepath tune rollback`",
        _ => "nobody waits for a confirmation: the settings stay until `wirepath tune rollback`",
    };
    answer(cli, "confirmed", json!({}), text)
}

pub(super) fn rollback(cli: &Cli, state: &StateArgs) -> Result<(), Failure> {
    let store = state.store();
    let lock = store.lock()?;
    let report = tune::rollback(&store, &lock, state.root.as_deref(), "the user asked")?;
    let mut text = match (report.is_stale, report.settings.len()) {
        (true, _) => "the machine was started anew since: nothing is left to give back".to_owned(),
        (false, 0) => "nothing had been changed".to_owned(),
        (false, count) => format!("{count} settings looked at"),
    };
    for given in &report.settings {
        let fate = match &given.fate {
            Fate::Unchanged => format!("was {} all along", given.before),
            Fate::Restored => format!("is {} again", given.before),
            Fate::Foreign { found } => {
                format!(
                    "LEFT: somebody else has made it {found}; before us it was {}",
                    given.before
                )
            }
            Fate::Gone => "is gone, with its setting".to_owned(),
            Fate::Failed { why } => format!("FAILED, and was {}: {why}", given.before),
        };
        let _ = write!(text, "\n  {:<22} {:<24} {fate}", given.knob, given.target.to_string());
    }
    let detail = json!({ "restarted_since": report.is_stale, "settings": &report.settings });
    let outcome = if report.failure().is_some() { "incomplete" } else { "rolled-back" };
    answer(cli, outcome, detail, &text)?;
    match report.failure() {
        None => Ok(()),
        Some(failure) => Err(Failure::Failed(format!(
            "not all could be given back: {failure}; the journal stays, try again"
        ))),
    }
}
