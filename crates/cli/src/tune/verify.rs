//! `tune verify`.

use std::path::PathBuf;

use clap::Args;
use host::tune::{Drift, Place, Plan, System};
use house::console::count;
use house::context::Context;
use house::place::StateArgs;
use house::{console, signals};
use remote::Failure;
use report::screen::Screen;
use schemars::JsonSchema;
use serde::Serialize;

use super::apply;

#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    /// The plan; `-` for standard input
    #[arg(value_name = "PLAN|-")]
    plan: PathBuf,
    #[command(flatten)]
    rebase: apply::RebaseArgs,
}

/// Document of `tune verify --json`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct VerifyDocument {
    schema: u32,
    /// Digest of the plan.
    plan: String,
    settings_count: usize,
    /// Settings whose value is not that of the plan.
    differing: Vec<Drift>,
}

pub(super) fn run(context: &Context, state: &StateArgs, args: &VerifyArgs) -> Result<(), Failure> {
    let document = compare(state, apply::read(&args.plan)?, &args.rebase)?;
    if context.json {
        console::json(&document)?;
    } else {
        console::text(&document.text())?;
    }
    if document.is_as_planned() { Ok(()) } else { Err(Failure::Threshold(document.summary())) }
}

/// Compares the host with a plan.
pub(super) fn compare(
    state: &StateArgs,
    plan: Plan,
    rebase: &apply::RebaseArgs,
) -> Result<VerifyDocument, Failure> {
    let system = System::open(&Place { netns: plan.netns.clone(), root: state.root.clone() })?;
    let plan = rebase.plan(plan, &system, &state.store())?;
    Ok(VerifyDocument {
        schema: house::context::DOCUMENT,
        plan: plan.digest(),
        settings_count: plan.steps.len(),
        differing: plan.verify(&system, signals::stop_flag())?,
    })
}

impl VerifyDocument {
    pub(super) fn is_as_planned(&self) -> bool {
        self.differing.is_empty()
    }

    fn summary(&self) -> String {
        let all = count(self.settings_count, "setting");
        match self.differing.len() {
            0 => format!("{all}: as planned"),
            differing => format!("{differing} of {all} not as planned"),
        }
    }

    pub(super) fn text(&self) -> String {
        let mut screen = Screen::plain();
        let rows = self.differing.iter().map(|Drift { knob, target, wanted, now, unreadable }| {
            let text = match (now, unreadable) {
                (Some(now), _) => format!("{now}, planned {wanted}"),
                (None, why) => format!("planned {wanted}: {}", why.as_deref().unwrap_or_default()),
            };
            super::row(knob, target, text)
        });
        screen.table(&["", "", ""], rows);
        screen.line(self.summary());
        screen.finish()
    }
}
