//! `tune verify`.

use std::path::PathBuf;

use clap::Args;
use host::tune::{Drift, Place, System};
use remote::Failure;
use report::screen::Screen;
use schemars::JsonSchema;
use serde::Serialize;

use super::apply;
use super::state::StateArgs;
use crate::console::{self, count};
use crate::context::Context;
use crate::signals;

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
    let plan = apply::read(&args.plan)?;
    let system = System::open(&Place { netns: plan.netns.clone(), root: state.root.clone() })?;
    let plan = args.rebase.plan(plan, &system, &state.store())?;
    let differing = plan.verify(&system, signals::stop_flag())?;
    let settings_count = plan.steps.len();
    let (differing_count, all) = (differing.len(), count(settings_count, "setting"));
    let summary = match differing_count {
        0 => format!("{all}: as planned"),
        differing => format!("{differing} of {all} not as planned"),
    };
    if context.json {
        let schema = crate::context::DOCUMENT;
        console::json(&VerifyDocument { schema, plan: plan.digest(), settings_count, differing })?;
    } else {
        let mut screen = Screen::plain();
        let rows = differing.iter().map(|Drift { knob, target, wanted, now, unreadable }| {
            let text = match (now, unreadable) {
                (Some(now), _) => format!("{now}, planned {wanted}"),
                (None, why) => format!("planned {wanted}: {}", why.as_deref().unwrap_or_default()),
            };
            super::row(knob, target, text)
        });
        screen.table(&["", "", ""], rows);
        screen.line(&summary);
        console::text(&screen.finish())?;
    }
    match differing_count {
        0 => Ok(()),
        _ => Err(Failure::Threshold(summary)),
    }
}
