//! `tune status | knobs`.

use host::tune::{self, Phase, Scope, Setting, Target, Value};
use house::console;
use house::context::Context;
use house::place::{PlaceArgs, StateArgs, notice};
use remote::Failure;
use report::screen::{Cell, Screen};
use schemars::JsonSchema;
use serde::Serialize;

/// Document of `tune status --json`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct StatusDocument {
    schema: u32,
    phase: &'static str,
    #[serde(flatten)]
    applied: Option<AppliedDocument>,
}

#[derive(Serialize, JsonSchema)]
struct AppliedDocument {
    profile: String,
    interface: Option<String>,
    netns: Option<String>,
    /// Name under which it was applied, such as the id of a roll-out; `None` for a user's own.
    owner: Option<String>,
    pid: u32,
    applied_unix_s: u64,
    /// Last failure of the guard that rolls back what was not confirmed.
    guard_failure: Option<String>,
    settings: Vec<Setting>,
}

/// Document of `tune knobs --json`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct KnobsDocument {
    schema: u32,
    knobs: Vec<KnobDocument>,
}

#[derive(Serialize, JsonSchema)]
struct KnobDocument {
    knob: &'static str,
    what: &'static str,
    scope: Scope,
    values: String,
    disturbs_others: bool,
    targets: Vec<TargetDocument>,
}

#[derive(Serialize, JsonSchema)]
struct TargetDocument {
    target: Target,
    value: Option<Value>,
    cannot_set: Option<String>,
}

pub(super) fn status(context: &Context, state: &StateArgs) -> Result<(), Failure> {
    let store = state.store();
    let journal = match store.read() {
        Ok(Some(journal)) => journal,
        Ok(None) => return without_journal(context, "nothing-applied", "nothing is applied"),
        Err(error) if error.is_denied() => {
            let folder = state.state.display();
            let text = format!(
                "nothing is applied that you may see: {folder} is closed to you; run as root to see more"
            );
            return without_journal(context, "not-readable", &text);
        }
        Err(error) => return Err(error.into()),
    };
    notice(state);
    let settings = tune::settings(&journal, state.root.as_deref())?;
    let guard_failure = store.read_guard_failure()?;
    let header = &journal.header;
    let (phase, words) = match journal.phase {
        Phase::Unchanged => ("unchanged", "started, nothing changed yet".to_owned()),
        Phase::Applying => ("applying", "being applied".to_owned()),
        Phase::Applied(None) => ("applied", "applied".to_owned()),
        Phase::Applied(Some(by_ms)) => {
            let left_ms = by_ms.saturating_sub(tune::boot_clock_ms());
            ("waiting", format!("applied; {} s left to confirm", left_ms.div_ceil(1000)))
        }
        Phase::Confirmed => ("confirmed", "applied and confirmed".to_owned()),
        Phase::RollingBack => ("rolling-back", "being rolled back".to_owned()),
    };
    if context.json {
        let applied = AppliedDocument {
            profile: header.profile.clone(),
            interface: header.interface.clone(),
            netns: header.netns.clone(),
            owner: header.owner.clone(),
            pid: header.pid,
            applied_unix_s: header.unix_s,
            guard_failure,
            settings,
        };
        let schema = house::context::DOCUMENT;
        return console::json(&StatusDocument { schema, phase, applied: Some(applied) });
    }
    let interface = header.interface.as_deref().unwrap_or("the machine");
    let owner = header.owner.as_ref().map_or(String::new(), |owner| format!(", by {owner}"));
    let mut screen = Screen::plain();
    screen.line(format!("{} for {interface}: {words}{owner}", header.profile));
    screen.table(&["", "", ""], settings.iter().map(setting_row));
    if let Some(failure) = guard_failure {
        screen.line(format!("the guard: {failure}"));
    }
    screen.line("`wirepath tune rollback` restores the earlier values");
    console::text(&screen.finish())
}

fn without_journal(context: &Context, phase: &'static str, text: &str) -> Result<(), Failure> {
    if context.json {
        let schema = house::context::DOCUMENT;
        return console::json(&StatusDocument { schema, phase, applied: None });
    }
    console::text(text)
}

fn setting_row(setting: &Setting) -> Vec<Cell> {
    let now = setting.now.as_ref().map_or("?", |now| now.as_str());
    let agrees = tune::find(&setting.knob)
        .is_some_and(|knob| knob.format().agrees(setting.wanted.as_str(), now));
    let note = if agrees {
        String::new()
    } else if setting.was_begun {
        format!("  (set to {}, changed since)", setting.wanted)
    } else {
        format!("  (not applied; planned {})", setting.wanted)
    };
    super::row(&setting.knob, &setting.target, format!("{} -> {now}{note}", setting.before))
}

/// Column where the text about a knob begins.
const KNOB_COLUMN: usize = 23;

pub(super) fn knobs(
    context: &Context,
    state: &StateArgs,
    place: &PlaceArgs,
) -> Result<(), Failure> {
    let system = place.open(state)?;
    let mut screen = Screen::plain().with_column(KNOB_COLUMN);
    let mut docs = Vec::new();
    for knob in tune::all() {
        screen.entry(knob.id(), knob.about().what);
        let mut rows = Vec::new();
        let targets = tune::targets(knob, &system, place.interface.as_deref()).unwrap_or_default();
        for target in targets {
            let now = knob.read(&system, &target);
            let settable = now.is_ok().then(|| knob.probe(&system, &target));
            let why = match (&now, &settable) {
                (Err(error), _) | (_, Some(Err(error))) => Some(host::text::chain(error)),
                _ => None,
            };
            let value = now.ok();
            let shown = value.as_ref().map_or("-", |value| value.as_str());
            let note = why.as_ref().map_or(String::new(), |why| format!("  ({why})"));
            screen.entry("", format!("  {target}: {shown}{note}"));
            rows.push(TargetDocument { target, value, cannot_set: why });
        }
        docs.push(KnobDocument {
            knob: knob.id(),
            what: knob.about().what,
            scope: knob.scope(),
            values: knob.format().describe(),
            disturbs_others: knob.disturbs(),
            targets: rows,
        });
    }
    if context.json {
        return console::json(&KnobsDocument { schema: house::context::DOCUMENT, knobs: docs });
    }
    console::text(&screen.finish())
}
