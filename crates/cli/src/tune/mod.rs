//! `wirepath tune`: settings of the host by plan, with a journal.

mod apply;
mod guard;
mod prove;
mod show;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use host::tune::{
    self, ApplyError, KnobError, Phase, Place, PlanError, Profile, RollbackError, Store, System,
};

use crate::args::{Cli, parse_duration};
use crate::console;
use crate::end::Failure;

#[derive(Debug, Args)]
pub(crate) struct TuneArgs {
    #[command(flatten)]
    pub(crate) state: StateArgs,
    #[command(subcommand)]
    command: TuneCommand,
}

/// Where journals lie; and, for tests, what stands for `/`.
#[derive(Debug, Args)]
pub(crate) struct StateArgs {
    /// Folder of the journal
    #[arg(long, global = true, value_name = "DIR", env = "WIREPATH_STATE",
          default_value = tune::DEFAULT_FOLDER)]
    state: PathBuf,
    /// Folder that stands for / in what belongs to the machine
    #[arg(long, global = true, value_name = "DIR", hide = true)]
    pub(crate) root: Option<PathBuf>,
}

impl StateArgs {
    pub(crate) fn store(&self) -> Store {
        Store::new(&self.state)
    }
}

#[derive(Debug, Subcommand)]
enum TuneCommand {
    /// Print a plan: what a profile would set here, and why
    #[command(after_help = "\
Example:
  wirepath tune plan --profile latency --interface eth1 --app-cpu 3 > plan.toml
  wirepath tune plan --profile forwarding --interface eth0 --netns blue")]
    Plan(PlanArgs),
    /// Set what a plan says: all of it, or nothing
    #[command(after_help = "\
Example:
  wirepath tune apply plan.toml --dry-run
  wirepath tune apply plan.toml --confirm-within 60s")]
    Apply(ApplyArgs),
    /// Prove what a plan and each of its settings is worth, under a load
    #[command(after_help = "\
Example:
  wirepath tune prove plan.toml --from red --load ping
  wirepath tune prove plan.toml --from red --forward --time 120s
  wirepath tune prove plan.toml --peer 192.0.2.7          (wirepath peer runs there)")]
    Prove(prove::TuneProveArgs),
    /// Keep what was applied with --confirm-within
    #[command(after_help = "Example:\n  wirepath tune confirm")]
    Confirm,
    /// Give back what was applied, also by a process that was killed
    #[command(after_help = "Example:\n  wirepath tune rollback")]
    Rollback,
    /// What is applied, and what has changed since
    #[command(after_help = "Example:\n  wirepath tune status --json")]
    Status,
    /// Every knob, with its value where it can be read
    #[command(after_help = "Example:\n  wirepath tune knobs --interface eth1")]
    Knobs(PlaceArgs),
    /// Give back what process PID leaves unconfirmed; `apply --confirm-within` starts it
    #[command(hide = true, after_help = "Example:\n  wirepath tune guard 712")]
    Guard {
        /// The process
        pid: u32,
    },
}

/// What is looked at.
#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    /// Interface
    #[arg(short = 'i', long, value_name = "IF")]
    pub(crate) interface: Option<String>,
    /// Network namespace: a name of /run/netns, the number of a process in it, or a file
    #[arg(long, value_name = "NAME|PID|FILE")]
    pub(crate) netns: Option<String>,
}

impl PlaceArgs {
    /// What is looked at, in words.
    pub(crate) fn title(&self) -> String {
        let what = self.interface.as_deref().unwrap_or("all interfaces");
        let of = self.netns.as_ref().map_or(String::new(), |name| format!(" of namespace {name}"));
        format!("{what}{of}")
    }

    pub(crate) fn open(&self, state: &StateArgs) -> Result<System, Failure> {
        let place = Place { netns: self.netns.clone(), root: state.root.clone() };
        let system = System::open(&place)?;
        if let Some(interface) = &self.interface {
            system.index(interface)?;
        }
        Ok(system)
    }
}

#[derive(Debug, Args)]
struct PlanArgs {
    /// What settings are to be good for
    #[arg(long, value_enum)]
    profile: ProfileName,
    #[command(flatten)]
    place: PlaceArgs,
    /// CPU of the application that the packets are for
    #[arg(long, value_name = "CPU")]
    app_cpu: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProfileName {
    /// Each packet soon
    Latency,
    /// Many packets to programs of this machine
    Throughput,
    /// Many packets through this machine
    Forwarding,
}

impl From<ProfileName> for Profile {
    fn from(name: ProfileName) -> Profile {
        match name {
            ProfileName::Latency => Profile::Latency,
            ProfileName::Throughput => Profile::Throughput,
            ProfileName::Forwarding => Profile::Forwarding,
        }
    }
}

#[derive(Debug, Args)]
struct ApplyArgs {
    /// The plan; `-` for standard input
    #[arg(value_name = "PLAN|-")]
    plan: PathBuf,
    /// Give everything back unless `wirepath tune confirm` comes within this time
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    confirm_within: Option<Duration>,
    /// Look at everything, and change nothing
    #[arg(long, conflicts_with = "confirm_within")]
    dry_run: bool,
}

pub(crate) fn run(cli: &Cli, args: &TuneArgs) -> Result<(), Failure> {
    let state = &args.state;
    match &args.command {
        TuneCommand::Plan(plan) => make_plan(cli, state, plan),
        TuneCommand::Apply(how) => apply::apply(cli, state, how),
        TuneCommand::Prove(how) => prove::run(cli, state, how),
        TuneCommand::Confirm => apply::confirm(cli, state),
        TuneCommand::Rollback => apply::rollback(cli, state),
        TuneCommand::Status => show::status(cli, state),
        TuneCommand::Guard { pid } => guard::run(state, *pid),
        TuneCommand::Knobs(place) => show::knobs(cli, state, place),
    }
}

fn make_plan(cli: &Cli, state: &StateArgs, args: &PlanArgs) -> Result<(), Failure> {
    notice(state);
    let system = args.place.open(state)?;
    let wanted = tune::Wanted {
        profile: args.profile.into(),
        interface: args.place.interface.as_deref(),
        app_cpu: args.app_cpu,
    };
    let plan = tune::plan(&system, wanted)?;
    if plan.interface.is_none() {
        console::say("without --interface, only settings of the machine are planned");
    }
    if cli.json {
        let plan = serde_json::to_value(&plan).map_err(|error| Failure::of(&error))?;
        return console::text(&format!("{plan:#}"));
    }
    console::text(&plan.to_text())
}

/// Says so when a process was killed while it changed settings.
pub(crate) fn notice(state: &StateArgs) {
    let store = state.store();
    match store.read() {
        Ok(Some(journal)) => {
            let is_midway =
                matches!(journal.phase, Phase::Unchanged | Phase::Applying | Phase::RollingBack);
            // Nobody is left to wait for the confirmation.
            let is_alone = !Path::new(&format!("/proc/{}", journal.header.pid)).exists();
            let is_late = matches!(
                journal.phase,
                Phase::Applied(Some(by_ms)) if is_alone || by_ms < tune::boot_clock_ms()
            );
            // Whoever is still at it has the lock.
            if (is_midway || is_late) && store.lock().is_ok() {
                console::say(&format!(
                    "note: process {} was ended while its changes of settings were not confirmed; \
                     `wirepath tune rollback` gives them back",
                    journal.header.pid
                ));
            }
        }
        Ok(None) => {}
        Err(error) => console::say(&format!("note: {}", host::text::chain(&error))),
    }
}

impl From<KnobError> for Failure {
    fn from(error: KnobError) -> Self {
        let text = host::text::chain(&error);
        match error {
            KnobError::NotOffered { .. } | KnobError::HostOnly { .. } => Failure::Unsupported(text),
            KnobError::Value { .. } | KnobError::Scope { .. } => Failure::Usage(text),
            _ => Failure::Failed(text),
        }
    }
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::Syntax { .. } => Failure::Usage(host::text::chain(&error)),
            PlanError::Knob(error) => error.into(),
            error => Failure::Failed(host::text::chain(&error)),
        }
    }
}

impl From<ApplyError> for Failure {
    fn from(error: ApplyError) -> Self {
        Failure::Failed(host::text::chain(&error))
    }
}

impl From<RollbackError> for Failure {
    fn from(error: RollbackError) -> Self {
        Failure::Failed(host::text::chain(&error))
    }
}

impl From<tune::StoreError> for Failure {
    fn from(error: tune::StoreError) -> Self {
        Failure::Failed(host::text::chain(&error))
    }
}
