//! Steps of roll-outs on this host.

use std::time::Duration;

use host::tune::Plan;
use house::place::StateArgs;
use remote::Failure;
use remote::work::RolloutStep;

use super::apply::{self, Application, ApplicationResult, NOTHING_TO_DO, RebaseArgs, Unconfirmed};
use super::verify;

/// A step that was done, with its text.
pub(crate) enum StepDone {
    Done(String),
    /// The settings differ from the plan.
    Drifted(String),
    /// The settings are changed, and not confirmed.
    Applied(String, Unconfirmed),
}

/// Does a step. A plan of another host is taken with the values of this one.
pub(crate) fn perform(state: &StateArgs, step: &RolloutStep) -> Result<StepDone, Failure> {
    let rebase = &RebaseArgs::FOR_ANY_HOST;
    Ok(StepDone::Done(match step {
        RolloutStep::Apply { plan, within_ms, owner } => {
            let confirm_within = Some(Duration::from_millis(*within_ms));
            let (plan, owner) = (Plan::parse(plan)?, Some(owner.as_str()));
            return applied(state, Application { plan, rebase, confirm_within, owner });
        }
        RolloutStep::Extend { within_ms, owner } => {
            apply::postpone(state, Some(owner), Duration::from_millis(*within_ms))?.1
        }
        RolloutStep::Verify { plan } => {
            let document = verify::compare(state, Plan::parse(plan)?, rebase)?;
            let text = one_line(&document.text());
            if !document.is_as_planned() {
                return Ok(StepDone::Drifted(text));
            }
            text
        }
        RolloutStep::Confirm { owner } => {
            apply::keep_settings(state, Some(owner), false)?.to_owned()
        }
        RolloutStep::Keep { owner } => apply::keep_settings(state, Some(owner), true)?.to_owned(),
        RolloutStep::RollBack { owner } => {
            let tried = apply::roll_back(state, Some(owner), &[], true)?;
            tried.verdict()?;
            one_line(&tried.text)
        }
    }))
}

fn applied(state: &StateArgs, wanted: Application<'_>) -> Result<StepDone, Failure> {
    let did_not_wait =
        |text: &str| Err(Failure::failed(format!("did not wait: {}", one_line(text))));
    match apply::apply_plan(state, wanted)? {
        ApplicationResult::Nothing => did_not_wait(NOTHING_TO_DO),
        ApplicationResult::Already(drift) => did_not_wait(&apply::already(&drift)),
        ApplicationResult::Changed { text, waiting: None, .. } => did_not_wait(&text),
        ApplicationResult::Changed { text, waiting: Some(waiting), .. } => {
            Ok(StepDone::Applied(one_line(&text), waiting))
        }
    }
}

/// The lines of a text in one.
fn one_line(text: &str) -> String {
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}
