//! `wirepath tune`: settings of the host by plan, with a journal.

pub(crate) mod apply;
pub(crate) mod export;
mod findings;
pub(crate) mod kept;
pub(crate) mod live;
pub(crate) mod prove;
pub(crate) mod show;
pub(crate) mod steps;
pub(crate) mod verify;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use host::tune::{self, Target};
use house::console;
use house::context::Context;
use house::next::{self, CommandLine};
use house::place::{PlaceArgs, StateArgs, notice};
use remote::Failure;
use report::screen::Cell;

use crate::guard;

#[derive(Debug, Args)]
pub(crate) struct TuneArgs {
    #[command(flatten)]
    pub(crate) state: StateArgs,
    #[command(subcommand)]
    command: TuneCommand,
}

#[derive(Debug, Subcommand)]
enum TuneCommand {
    /// Print a plan: the settings of a profile for this host, or those that `doctor` found, with reasons
    #[command(after_help = "\
Example:
  wirepath doctor eth1 --json | wirepath tune plan --from - > plan.toml
  wirepath tune plan --profile latency --interface eth1 --app-cpu 3 > plan.toml
  wirepath tune plan --profile forwarding --interface eth0 --netns blue
  wirepath tune plan --profile service --netns blue")]
    Plan(PlanArgs),
    /// Apply a plan: all of it, or nothing
    #[command(after_help = "\
Example:
  wirepath tune apply plan.toml --dry-run
  wirepath tune apply plan.toml --confirm-within 60s")]
    Apply(apply::ApplyArgs),
    /// Measure the effect of a plan, and of each of its settings, under a load
    #[command(after_help = "\
Example:
  wirepath tune prove plan.toml --from red --load ping
  wirepath tune prove plan.toml --far ssh:db2 --load flood
  wirepath tune prove plan.toml --live --port 443 --for 30m --keep kept.toml")]
    Prove(Box<prove::TuneProveArgs>),
    /// Keep settings applied with --confirm-within
    #[command(after_help = "\
Example:
  wirepath tune confirm
  wirepath tune confirm --extend 10m")]
    Confirm(apply::ConfirmArgs),
    /// Restore the values from before the plan, also after a killed process
    #[command(after_help = "\
Example:
  wirepath tune rollback
  wirepath tune rollback --forget 3")]
    Rollback(apply::RollbackArgs),
    /// Write a plan as files of the program that keeps this host's settings across reboots
    #[command(after_help = "\
Example:
  wirepath tune export plan.toml --to systemd --out out && sudo cp -r out/etc /
  wirepath tune export plan.toml --to ansible --out playbooks")]
    Export(export::ExportArgs),
    /// Compare the host with a plan; exit code 4 if a setting differs
    #[command(after_help = "\
Example:
  wirepath tune verify plan.toml
  wirepath tune verify plan.toml --json")]
    Verify(verify::VerifyArgs),
    /// Show applied settings, and which have changed since
    #[command(after_help = "Example:\n  wirepath tune status --json")]
    Status,
    /// List every knob with its current values
    #[command(after_help = "Example:\n  wirepath tune knobs --interface eth1")]
    Knobs(PlaceArgs),
    /// Roll back what process PID leaves unconfirmed; started by `apply --confirm-within`
    #[command(hide = true, after_help = "Example:\n  wirepath tune guard 712")]
    Guard {
        /// The process
        pid: u32,
    },
}

#[derive(Debug, Args)]
struct PlanArgs {
    /// Purpose of the settings
    #[arg(long, value_enum, required_unless_present = "from")]
    profile: Option<tune::Profile>,
    /// Document of `doctor --json`: the settings that its findings name are planned; `-` for standard input
    #[arg(long, value_name = "FILE|-", conflicts_with_all = ["profile", "app_cpu"])]
    from: Option<PathBuf>,
    #[command(flatten)]
    place: PlaceArgs,
    /// CPU of the application that receives the packets
    #[arg(long, value_name = "CPU")]
    app_cpu: Option<usize>,
}

pub(crate) fn run(context: &Context, args: &TuneArgs) -> Result<(), Failure> {
    let state = &args.state;
    match &args.command {
        TuneCommand::Plan(plan) => make_plan(context, state, plan),
        TuneCommand::Apply(how) => apply::apply(context, state, how),
        TuneCommand::Prove(how) => prove::run(context, state, how),
        TuneCommand::Export(how) => export::run(context, state, how),
        TuneCommand::Verify(how) => verify::run(context, state, how),
        TuneCommand::Confirm(how) => apply::confirm(context, state, how),
        TuneCommand::Rollback(how) => apply::rollback(context, state, how),
        TuneCommand::Status => show::status(context, state),
        TuneCommand::Guard { pid } => guard::run(state, *pid),
        TuneCommand::Knobs(place) => show::knobs(context, state, place),
    }
}

/// Row of a list of settings.
fn row(knob: &str, target: &Target, text: impl Into<String>) -> Vec<Cell> {
    vec![format!("  {knob}").into(), target.to_string().into(), Cell::plain(text)]
}

fn make_plan(context: &Context, state: &StateArgs, args: &PlanArgs) -> Result<(), Failure> {
    notice(state);
    let plan = match (&args.from, args.profile) {
        (Some(file), _) => findings::plan(state, &args.place, file)?,
        (None, Some(tune::Profile::Service)) => {
            findings::service_plan(state, &args.place, args.app_cpu)?
        }
        (None, Some(profile)) => {
            let (system, interface) = (args.place.open(state)?, args.place.interface.as_deref());
            tune::plan(&system, tune::Wanted { profile, interface, app_cpu: args.app_cpu })?
        }
        (None, None) => return Err(Failure::Usage("give --profile, or --from".into())),
    };
    if plan.interface.is_none() {
        console::say("without --interface, only machine-wide settings are planned");
    }
    if context.json {
        return console::json(&plan);
    }
    console::text(&plan.to_text())?;
    if !plan.steps.is_empty() {
        next::say(context, &proving(state, &plan));
    }
    Ok(())
}

/// The command that proves a plan, up to the source of its load where only the user knows that.
fn proving(state: &StateArgs, plan: &tune::Plan) -> CommandLine {
    let line = state.given_to(CommandLine::new("tune prove plan.toml"));
    let source = match (&plan.interface, &plan.netns) {
        (Some(_), Some(_)) => "--from NETNS --keep kept.toml",
        (Some(_), None) => "--far ssh:HOST --keep kept.toml",
        (None, _) => "--keep kept.toml",
    };
    line.words(source)
}
