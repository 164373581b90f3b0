//! `tune apply | confirm | rollback`.

use std::fmt::Write;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use host::tune::{
    self, Applied, Confirmation, Done, JournalStore, Options, Phase, Place, Plan, PlanError,
    PlanFileError, RestoreOutcome, RestoredSetting, RollbackError, RollbackReport, System, Target,
    Value,
};
use house::args::parse_duration;
use house::console::count;
use house::context::Context;
use house::next::{self, CommandLine};
use house::place::{StateArgs, notice};
use house::{console, signals};
use remote::Failure;
use report::screen::{Cell, Screen};
use schemars::JsonSchema;
use serde::Serialize;

use crate::guard::Guard;

#[derive(Debug, Args)]
pub(super) struct ApplyArgs {
    /// The plan; `-` for standard input
    #[arg(value_name = "PLAN|-")]
    plan: PathBuf,
    /// Roll back unless `wirepath tune confirm` is run within this time
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    confirm_within: Option<Duration>,
    #[command(flatten)]
    owner: OwnerArgs,
    /// Check every setting, and change nothing
    #[arg(long, conflicts_with = "confirm_within")]
    dry_run: bool,
    #[command(flatten)]
    rebase: RebaseArgs,
}

/// Program on whose behalf settings are applied.
#[derive(Debug, Args)]
pub(super) struct OwnerArgs {
    /// Name in the journal, for programs that apply plans: with it, `confirm` and `rollback` leave settings alone that
    /// were not applied under the same name
    #[arg(long, value_name = "NAME", value_parser = parse_owner)]
    owner: Option<String>,
}

impl OwnerArgs {
    fn name(&self) -> Option<&str> {
        self.owner.as_deref()
    }
}

fn parse_owner(text: &str) -> Result<String, String> {
    if (1..=64).contains(&text.len())
        && text.chars().all(|c: char| c.is_ascii_alphanumeric() || "-._:@".contains(c))
    {
        Ok(text.to_owned())
    } else {
        Err("a name has 1 to 64 letters, digits and -._:@".into())
    }
}

/// How a plan that was made for another host is read.
#[derive(Debug, Args)]
pub(super) struct RebaseArgs {
    /// Take a plan that was made for another host, or for earlier values: its settings with the values that this
    /// host has now
    #[arg(long)]
    rebase: bool,
}

impl RebaseArgs {
    pub(super) fn is_given(&self) -> bool {
        self.rebase
    }

    /// A plan that was made for another host.
    pub(super) const FOR_ANY_HOST: RebaseArgs = RebaseArgs { rebase: true };

    /// The plan for this host.
    pub(super) fn plan(
        &self,
        plan: Plan,
        system: &System,
        store: &JournalStore,
    ) -> Result<Plan, Failure> {
        if !self.rebase {
            return Ok(plan);
        }
        Ok(plan.rebased(system, store.read()?.as_ref(), signals::stop_flag())?)
    }
}

#[derive(Debug, Args)]
pub(super) struct ConfirmArgs {
    /// Postpone the decision: the settings are rolled back this time from now unless they are confirmed
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "forget")]
    extend: Option<Duration>,
    /// Forget the earlier values, too: `tune rollback` can no longer restore them, and another plan can be applied
    #[arg(long)]
    forget: bool,
    #[command(flatten)]
    owner: OwnerArgs,
}

#[derive(Debug, Args)]
pub(super) struct RollbackArgs {
    /// Give up entries that cannot be restored, by their numbers in the report; the journal records it
    #[arg(long, value_name = "ENTRY", value_delimiter = ',')]
    forget: Vec<usize>,
    /// Succeed if no settings are applied
    #[arg(long, conflicts_with = "forget")]
    if_applied: bool,
    #[command(flatten)]
    owner: OwnerArgs,
}

pub(super) fn read(path: &Path) -> Result<Plan, PlanError> {
    if path == Path::new("-") { Plan::parse(&read_stdin()?) } else { tune::read_plan(path) }
}

/// A document of at most 2 MiB.
pub(super) fn read_stdin() -> Result<String, PlanFileError> {
    let mut text = String::new();
    std::io::stdin()
        .take(2 << 20)
        .read_to_string(&mut text)
        .map_err(|source| PlanFileError::Read { path: "standard input".into(), source })?;
    Ok(text)
}

/// Document of `tune apply | confirm | rollback --json`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ApplyDocument {
    schema: u32,
    #[serde(flatten)]
    answer: ApplyAnswer,
}

#[derive(Serialize, JsonSchema)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
enum ApplyAnswer {
    NothingToDo,
    Applied { steps: Vec<Done> },
    Confirmed,
    Postponed,
    AlreadyApplied { changed_since: Vec<Drift> },
    DryRun { steps: Vec<DryStep> },
    RolledBack(RollbackDocument),
    Incomplete(RollbackDocument),
}

/// A setting that was changed since the plan was applied.
#[derive(Serialize, JsonSchema)]
struct Drift {
    knob: String,
    target: Target,
    wanted: Value,
    now: String,
}

#[derive(Serialize, JsonSchema)]
struct DryStep {
    knob: &'static str,
    target: String,
    now: Value,
    value: Value,
    changes: bool,
}

#[derive(Serialize, JsonSchema)]
struct RollbackDocument {
    restarted_since: bool,
    settings: Vec<RestoredSetting>,
}

fn print(context: &Context, answer: ApplyAnswer, text: &str) -> Result<(), Failure> {
    if context.json {
        console::json(&ApplyDocument { schema: model::SCHEMA, answer })
    } else {
        console::text(text)
    }
}

/// Plan to apply, and on which terms.
pub(super) struct Application<'a> {
    pub(super) plan: Plan,
    pub(super) rebase: &'a RebaseArgs,
    /// Time for the confirmation; `None` if none is needed.
    pub(super) confirm_within: Option<Duration>,
    pub(super) owner: Option<&'a str>,
}

pub(super) enum ApplicationResult {
    Nothing,
    /// Settings that were changed since.
    Already(Vec<(String, Target, Value, String)>),
    Changed {
        steps: Vec<Done>,
        /// The settings, a line each.
        text: String,
        waiting: Option<Unconfirmed>,
    },
}

/// Settings that are rolled back unless they are confirmed. **Dropped without [`end`](Self::end), its guard rolls them
/// back once this process has ended.**
pub(crate) struct Unconfirmed {
    store: JournalStore,
    root: Option<PathBuf>,
    by_ms: u64,
    _guard: Option<Guard>,
}

impl Unconfirmed {
    /// Waits for the confirmation. Errors: the settings were rolled back.
    pub(crate) fn end(self) -> Result<(), Failure> {
        let (root, stop) = (self.root.as_deref(), signals::stop_flag());
        match tune::await_confirmation(&self.store, root, self.by_ms, stop, &mut |_| {})? {
            Confirmation::Confirmed => Ok(()),
            Confirmation::Undone => {
                Err(Failure::failed("another process rolled the settings back"))
            }
            Confirmation::RolledBack { cause, report } => Err(rolled_back(&cause, &report)),
        }
    }
}

/// Applies a plan.
pub(super) fn apply_plan(
    state: &StateArgs,
    wanted: Application<'_>,
) -> Result<ApplicationResult, Failure> {
    let place = Place { netns: wanted.plan.netns.clone(), root: state.root.clone() };
    let (system, store) = (System::open(&place)?, state.store());
    let plan = wanted.rebase.plan(wanted.plan, &system, &store)?;
    signals::stop_on_hangup()?;
    let guard = wanted.confirm_within.map(|_| Guard::start(&state.journal())).transpose()?;
    let options = Options {
        stop: signals::stop_flag(),
        confirm_within: wanted.confirm_within,
        owner: wanted.owner,
        watch: &mut |_| {},
    };
    let applied = match tune::apply(&system, &plan, &store, options) {
        Err(tune::ApplyError::RolledBack { cause, report }) => {
            return Err(rolled_back(cause.as_ref(), &report));
        }
        applied => applied?,
    };
    let (steps, confirm_by_ms) = match applied {
        Applied::Nothing => return Ok(ApplicationResult::Nothing),
        Applied::Already(drift) => return Ok(ApplicationResult::Already(drift)),
        Applied::Done { steps, confirm_by_ms } => (steps, confirm_by_ms),
    };
    let mut screen = Screen::plain();
    screen.line(format!("{} changed and verified", count(steps.len(), "setting")));
    screen.table(&["", "", ""], steps.iter().flat_map(done_rows));
    let text = screen.finish();
    let waiting = confirm_by_ms.map(|by_ms| Unconfirmed {
        store,
        root: state.root.clone(),
        by_ms,
        _guard: guard,
    });
    Ok(ApplicationResult::Changed { steps, text, waiting })
}

/// Text of a plan whose settings the host has.
pub(super) const NOTHING_TO_DO: &str = "nothing to do: every setting has its planned value";

pub(super) fn apply(context: &Context, state: &StateArgs, args: &ApplyArgs) -> Result<(), Failure> {
    let plan = read(&args.plan)?;
    if args.dry_run {
        return dry_run(context, state, plan, &args.rebase);
    }
    let is_of_namespace = plan.netns.is_some();
    let (rebase, owner) = (&args.rebase, args.owner.name());
    let wanted = Application { plan, rebase, confirm_within: args.confirm_within, owner };
    let (steps, mut text, waiting) = match apply_plan(state, wanted)? {
        ApplicationResult::Nothing => {
            return print(context, ApplyAnswer::NothingToDo, NOTHING_TO_DO);
        }
        ApplicationResult::Already(drift) => {
            let text = already(&drift);
            let changed_since = drift
                .into_iter()
                .map(|(knob, target, wanted, now)| Drift { knob, target, wanted, now })
                .collect();
            return print(context, ApplyAnswer::AlreadyApplied { changed_since }, &text);
        }
        ApplicationResult::Changed { steps, text, waiting } => (steps, text, waiting),
    };
    let Some(waiting) = waiting else {
        text.push_str("`wirepath tune rollback` restores the earlier values");
        print(context, ApplyAnswer::Applied { steps }, &text)?;
        say_next(context, state, &args.plan, is_of_namespace);
        return Ok(());
    };
    let within = waiting.by_ms.saturating_sub(tune::boot_clock_ms()).div_ceil(1000);
    console::say(&format!(
        "{text}rolled back in {within} s unless `wirepath tune confirm` is run from another \
         terminal; Ctrl-C rolls back now"
    ));
    // To be typed in the other terminal: this one waits.
    next::say(context, &state.given_to(CommandLine::as_root("tune confirm")));
    waiting.end()?;
    print(
        context,
        ApplyAnswer::Confirmed,
        "confirmed: `wirepath tune rollback` still restores the earlier values",
    )?;
    say_next(context, state, &args.plan, is_of_namespace);
    Ok(())
}

/// Says how to check the settings, to keep them across reboots and to undo them.
fn say_next(context: &Context, state: &StateArgs, plan: &Path, is_of_namespace: bool) {
    if plan == Path::new("-") {
        return next::say_undo(context, &state.given_to(CommandLine::as_root("tune rollback")));
    }
    let plan = plan.to_string_lossy();
    next::say(context, &state.given_to(CommandLine::new("tune verify").value(&plan)));
    // Other programs set what is of the host; a namespace is made anew at each start.
    let form = if is_of_namespace { "--to unit --out out" } else { "--to systemd --out out" };
    next::say_or(context, &CommandLine::new("tune export").value(&plan).words(form));
    next::say_undo(context, &state.given_to(CommandLine::as_root("tune rollback")));
}

/// A setting that was changed, and the note on it below.
fn done_rows(step: &Done) -> impl Iterator<Item = Vec<Cell>> {
    let row = super::row(&step.knob, &step.target, format!("{} -> {}", step.before, step.now));
    let note = step.note.as_ref().map(|note| vec!["".into(), "".into(), Cell::plain(note)]);
    [row].into_iter().chain(note)
}

fn rolled_back(cause: &dyn std::error::Error, report: &RollbackReport) -> Failure {
    let mut text = format!("{}; all changes were rolled back", host::text::chain(cause));
    for setting in report.foreign() {
        let RestoreOutcome::Foreign { found } = &setting.outcome else { continue };
        let _ = write!(
            text,
            "\n  except {} of {}: another process changed it to {found}, which was kept",
            setting.knob, setting.target
        );
    }
    Failure::Failed(text)
}

pub(super) fn already(drift: &[(String, Target, Value, String)]) -> String {
    let mut text = "nothing to do: this plan is applied".to_owned();
    for (knob, target, wanted, found) in drift {
        let _ = write!(text, "\n  but {knob} of {target} is now {found}, not {wanted}");
    }
    text
}

fn dry_run(
    context: &Context,
    state: &StateArgs,
    plan: Plan,
    rebase: &RebaseArgs,
) -> Result<(), Failure> {
    let system = System::open(&Place { netns: plan.netns.clone(), root: state.root.clone() })?;
    let plan = rebase.plan(plan, &system, &state.store())?;
    notice(state);
    let ready = plan.check(&system, signals::stop_flag())?;
    let steps: Vec<DryStep> = ready
        .iter()
        .map(|step| DryStep {
            knob: step.knob.id(),
            target: step.target.to_string(),
            now: step.before.clone(),
            value: step.value.clone(),
            changes: !step.is_done(),
        })
        .collect();
    let mut screen = Screen::plain();
    let rows = steps.iter().map(|DryStep { knob, target, now, value, changes }| {
        let text = if *changes { format!("{now} -> {value}") } else { "already set".to_owned() };
        vec![Cell::plain(*knob), Cell::plain(target), text.into()]
    });
    screen.table(&["", "", ""], rows);
    let changes = steps.iter().filter(|step| step.changes).count();
    screen.line(format!("{} would be changed; dry run", count(changes, "setting")));
    print(context, ApplyAnswer::DryRun { steps }, &screen.finish())
}

/// Postpones the rollback of settings that are not confirmed. Returns true if a confirmation is pending, and a text.
pub(super) fn postpone(
    state: &StateArgs,
    owner: Option<&str>,
    within: Duration,
) -> Result<(bool, String), Failure> {
    let journal = tune::postpone(&state.store(), owner, within)?;
    Ok(match journal.phase {
        Phase::Applied(Some(_)) => {
            let within = humantime::format_duration(within);
            (true, format!("postponed: rolled back in {within} unless confirmed"))
        }
        _ => (false, "no confirmation is pending: the settings stay".to_owned()),
    })
}

/// Confirms the settings that are applied. Returns a text.
///
/// - `forget`: their earlier values are forgotten.
pub(super) fn keep_settings(
    state: &StateArgs,
    owner: Option<&str>,
    forget: bool,
) -> Result<&'static str, Failure> {
    let store = state.store();
    let journal = tune::confirm(&store, owner)?;
    if forget {
        forget_all(state, &store)?;
        return Ok("confirmed: the settings stay, and their earlier values are forgotten");
    }
    Ok(match journal.phase {
        Phase::Confirmed => "confirmed: the settings stay until `wirepath tune rollback`",
        _ => "no confirmation is pending: the settings stay until `wirepath tune rollback`",
    })
}

pub(super) fn confirm(
    context: &Context,
    state: &StateArgs,
    args: &ConfirmArgs,
) -> Result<(), Failure> {
    let owner = args.owner.name();
    let Some(within) = args.extend else {
        let text = keep_settings(state, owner, args.forget)?;
        return print(context, ApplyAnswer::Confirmed, text);
    };
    let (is_pending, text) = postpone(state, owner, within)?;
    let answer = if is_pending { ApplyAnswer::Postponed } else { ApplyAnswer::Confirmed };
    print(context, answer, &text)
}

/// Ends the journal without restoring anything.
fn forget_all(state: &StateArgs, store: &JournalStore) -> Result<(), Failure> {
    let lock = store.lock()?;
    let entries = store.read()?.map_or(0, |journal| journal.entries.len());
    tune::forget(store, &lock, &(0..entries).collect::<Vec<_>>())?;
    let report =
        tune::rollback(store, &lock, state.root.as_deref(), "the user keeps the settings")?;
    report.failure().map_or(Ok(()), |why| Err(Failure::failed(why)))
}

/// Text about settings that were applied under another name than `owner`; `None` if there are none.
fn other_owner(store: &JournalStore, owner: Option<&str>) -> Option<String> {
    let owner = owner?;
    // A journal that cannot be read is an error of the rollback.
    let journal = store.read().ok().flatten().filter(|journal| !journal.is_of(Some(owner)))?;
    Some(format!("the settings that are applied are of {}, not of {owner}", journal.owner()))
}

/// A rollback that was tried.
pub(super) struct RolledBack {
    document: RollbackDocument,
    pub(super) text: String,
    /// Reason why it is incomplete.
    failure: Option<String>,
}

impl RolledBack {
    /// Errors: it is incomplete.
    pub(super) fn verdict(&self) -> Result<(), Failure> {
        match &self.failure {
            None => Ok(()),
            Some(failure) => Err(Failure::Failed(format!(
                "rollback is incomplete: {failure}; the journal is kept: try again, or give up an entry \
                 with `wirepath tune rollback --forget ENTRY`"
            ))),
        }
    }
}

pub(super) fn rollback(
    context: &Context,
    state: &StateArgs,
    args: &RollbackArgs,
) -> Result<(), Failure> {
    let tried = roll_back(state, args.owner.name(), &args.forget, args.if_applied)?;
    let verdict = tried.verdict();
    let answer = if verdict.is_err() {
        ApplyAnswer::Incomplete(tried.document)
    } else {
        ApplyAnswer::RolledBack(tried.document)
    };
    print(context, answer, &tried.text)?;
    verdict
}

/// Restores the values from before the plan.
///
/// - `forget`: entries of the journal that are given up.
/// - `if_applied`: settings of another owner, and none at all, are no error.
pub(super) fn roll_back(
    state: &StateArgs,
    owner: Option<&str>,
    forget: &[usize],
    if_applied: bool,
) -> Result<RolledBack, Failure> {
    let store = state.store();
    let lock = store.lock()?;
    if let Some(found) = other_owner(&store, owner) {
        if !if_applied {
            return Err(Failure::Failed(format!("{found}; nothing was restored")));
        }
        let document = RollbackDocument { restarted_since: false, settings: Vec::new() };
        return Ok(RolledBack { document, text: format!("{found}; left alone"), failure: None });
    }
    if !forget.is_empty() {
        tune::forget(&store, &lock, forget)?;
    }
    let report = match tune::rollback(&store, &lock, state.root.as_deref(), "the user asked") {
        Err(RollbackError::Nothing { .. }) if if_applied => {
            RollbackReport { settings: Vec::new(), is_stale: false }
        }
        report => report?,
    };
    let mut screen = Screen::plain();
    screen.line(match report.settings.len() {
        _ if report.is_stale => {
            "the machine was rebooted since: nothing is left to restore".to_owned()
        }
        0 => "no setting had been changed".to_owned(),
        n => format!("{} checked", count(n, "setting")),
    });
    screen.table(&["", "", ""], report.settings.iter().map(restored_row));
    let failure = report.failure();
    let (restarted_since, settings) = (report.is_stale, report.settings);
    let document = RollbackDocument { restarted_since, settings };
    Ok(RolledBack { document, text: screen.finish(), failure })
}

fn restored_row(setting: &RestoredSetting) -> Vec<Cell> {
    let before = &setting.before;
    let outcome = match &setting.outcome {
        RestoreOutcome::Unchanged => format!("unchanged at {before}"),
        RestoreOutcome::Restored => format!("restored to {before}"),
        RestoreOutcome::Foreign { found } => {
            format!("KEPT at {found}, set by another process; before the plan it was {before}")
        }
        RestoreOutcome::Gone => "no longer exists".to_owned(),
        RestoreOutcome::Replaced { by } => {
            format!("no longer exists: its name or number belongs to {by}, which was left alone")
        }
        RestoreOutcome::Forgotten => format!("given up; before the plan it was {before}"),
        RestoreOutcome::Failed { why } => {
            format!("FAILED to restore {before} (entry {}): {why}", setting.entry)
        }
    };
    let target = match &setting.now_at {
        Some(now) => format!("{}, now {now}", setting.target),
        None => setting.target.to_string(),
    };
    vec![format!("  {}", setting.knob).into(), target.into(), outcome.into()]
}
