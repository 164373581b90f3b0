//! `wirepath tune prove`: the worth of a plan and of each of its settings, under a load.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use host::tune::Plan;
use house::console::count;
use house::context::Context;
use house::next::{self, CommandLine};
use house::place::StateArgs;
use house::{console, signals};
use model::{Direction, Gain, PlanArms, PlanLoad, PlanRequest, Programs, Request, Subject};
use remote::Failure;
use report::screen::{Cell, Screen};
use runner::{Proven, WHOLE_PLAN, find_load};

use super::apply;
use super::kept::{self, Kept, Worth};
use super::live::{self, LiveArgs};
use crate::command::{PlaceSwitchArgs, ProgramArgs};
use crate::far_args::FarEndArgs;
use crate::lookup;
use crate::proven::{
    ProveDocument, print_document, print_ladder, say_report, say_where, show_series, verdict,
};
use crate::running::{Terminal, run_in_child, runner};
use crate::shared_args::{LimitArgs, LoadArgs, SeriesArgs, WatchArgs};

/// Load under which a plan is proved.
#[derive(Debug, Args)]
pub(crate) struct PlanLoadArgs {
    /// Path whose load is used
    #[arg(long, default_value = "probe", value_parser = lookup::PathName)]
    path: String,
    /// Network namespace at the other end of the wire of the plan's interface: the load is sent
    /// from there into the plan's namespace
    #[arg(long, value_name = "NAME|PID|FILE", conflicts_with = "host")]
    from: Option<String>,
    /// Route the load through the plan's namespace to a temporary sink
    #[arg(long, conflicts_with = "host")]
    forward: bool,
    /// Place of the client; with --far as the other end, if the plan's namespace is between both. --load is then ping,
    /// tcp or udp:SIZE@RATE
    #[arg(long, value_name = "netns:NAME", requires = "host", conflicts_with_all = ["from", "forward"])]
    near: Option<String>,
    #[command(flatten)]
    places: PlaceSwitchArgs,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    far: FarEndArgs,
    #[command(
        flatten,
        next_help_heading = "Your own program in the plan's namespace, in place of --load"
    )]
    program: ProgramArgs,
}

impl PlanLoadArgs {
    /// Port, figures and resolution of a proof on the running service. Errors: a load is given, which that brings itself.
    pub(crate) fn live(&self) -> Result<(Option<u16>, &[String], f64), Failure> {
        if self.program.is_given()
            || self.load.load.is_some()
            || self.from.is_some()
            || self.forward
        {
            return Err(Failure::Usage(
                "--live takes the traffic of the running service: leave out the load; --port, --metric and --resolve remain"
                    .into(),
            ));
        }
        Ok((self.program.port, &self.program.metric, self.limits.resolve.ratio()))
    }

    /// Request that proves a plan under this load.
    ///
    /// - `file`: name of the plan, for the record.
    pub(crate) fn request(
        &self,
        plan: &Plan,
        file: &Path,
        arms: PlanArms,
        rebase: bool,
    ) -> Result<Request, Failure> {
        let load = if self.program.is_given() || self.near.is_some() {
            PlanLoad::Programs(Box::new(self.programs()?))
        } else if self.places.is_given() {
            return Err(Failure::Usage(
                "--at and --switch need both ends of the path: add --near netns:NAME and --far netns:NAME".into(),
            ));
        } else {
            self.path_load()?
        };
        let subject = PlanRequest {
            plan: plan.to_text(),
            file: file.display().to_string(),
            rebase,
            arms,
            from: self.from.clone(),
            forward: self.forward,
            load,
        };
        let mut request = Request::new(Subject::Plan(Box::new(subject)), self.limits.limits()?);
        request.is_stored = !self.limits.no_history;
        self.limits.title.add_to(&mut request);
        Ok(request)
    }

    /// Programs as the load, or a built-in one between two ends.
    fn programs(&self) -> Result<Programs, Failure> {
        let mut programs = Programs::default();
        self.program.add_to(&mut programs);
        self.places.add_to(&mut programs)?;
        programs.near.clone_from(&self.near);
        // A place of the user's has its own wire, which the check of the programs says.
        programs.wire.clone_from(&self.load.wire.wire);
        if self.near.is_some() {
            programs.far = self.far.far.as_ref().map(ToString::to_string);
            programs.ssh_options.clone_from(&self.far.ssh_option);
            programs.far_address = self.far.far_address.map(|ip| ip.to_string());
        }
        if programs.client.is_none() {
            programs.load.clone_from(&self.load.load);
            programs.load.get_or_insert_with(|| "ping".to_owned());
        }
        Ok(programs)
    }

    /// Load of a path. Between two hosts it loads the tuned end: this one receives.
    fn path_load(&self) -> Result<PlanLoad, Failure> {
        // A load that a namespace forwards goes one way.
        let name = self.load.load.as_deref().or(self.forward.then_some("flood"));
        let kind = find_load(lookup::find_path(&self.path)?.as_ref(), name)?;
        let mut far = self.far.of_load(&self.path, name)?;
        if let Some(two) = &mut far
            && self.far.direction.is_none()
            && kind.name == "flood"
        {
            two.direction = Direction::Receive;
        }
        let mut load = self.load.request(far);
        load.kind = name.map(str::to_owned);
        Ok(PlanLoad::Path { path: self.path.clone(), load: Box::new(load) })
    }
}

#[derive(Debug, Args)]
pub(super) struct TuneProveArgs {
    /// The plan; `-` for standard input
    #[arg(value_name = "PLAN|-")]
    plan: PathBuf,
    #[command(flatten)]
    proof: ProofArgs,
    // Last: it has a heading of its own.
    #[command(flatten)]
    live: LiveArgs,
}

/// How a plan is proved.
#[derive(Debug, Args)]
pub(crate) struct ProofArgs {
    /// Arms: settings added one by one, or each alone; the last is the whole plan
    #[arg(long, value_enum, default_value = "ladder")]
    arms: PlanArmsName,
    #[command(flatten)]
    rebase: apply::RebaseArgs,
    /// Write the settings that help as a plan, which must be a new file: those shown to be better by a figure that
    /// decides, and by none worse
    #[arg(long, value_name = "FILE", conflicts_with = "runs")]
    keep: Option<PathBuf>,
    #[command(flatten)]
    watch: WatchArgs,
    #[command(flatten)]
    series: SeriesArgs,
    // Last: it ends with headings of its own.
    #[command(flatten)]
    load: PlanLoadArgs,
}

/// Parts of a plan that become arms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PlanArmsName {
    /// Each adds a setting to those before it; the last is the plan
    Ladder,
    /// The plan, and each setting by itself
    Alone,
    /// The plan only
    Plan,
}

impl PlanArmsName {
    fn arms(self) -> PlanArms {
        match self {
            PlanArmsName::Ladder => PlanArms::Ladder,
            PlanArmsName::Alone => PlanArms::Alone,
            PlanArmsName::Plan => PlanArms::Plan,
        }
    }
}

pub(super) fn run(
    context: &Context,
    state: &StateArgs,
    args: &TuneProveArgs,
) -> Result<(), Failure> {
    signals::stop_on_hangup()?;
    let (plan, proof) = (apply::read(&args.plan)?, &args.proof);
    if args.live.live {
        return live::run(context, state, &args.live, &shared(proof, &plan, &args.plan));
    }
    if proof.series.runs > 1 {
        return run_series(context, state, proof, &plan, &args.plan);
    }
    let proven = prove(context, state, proof, &plan, &args.plan)?;
    let steps = steps(&proven, proof.arms == PlanArmsName::Ladder);
    if context.json {
        print_document(&proven, &ProveDocument::new(&proven).with_steps(steps))?;
    } else {
        print_ladder(&proven, proof.watch.detail)?;
        console::text(&table(&steps))?;
        say_where(&proven);
    }
    verdict(&proven)?;
    keep_or_report(context, state, proof, (&plan, &args.plan), &proven)
}

/// Options that a live proof takes as others do.
fn shared<'a>(proof: &'a ProofArgs, plan: &'a Plan, file: &'a Path) -> live::Shared<'a> {
    let limits = &proof.load.limits;
    live::Shared {
        plan: (plan, file),
        rebase: &proof.rebase,
        port: proof.load.program.port,
        metrics: &proof.load.program.metric,
        resolve: limits.resolve.ratio(),
        seed: limits.seed,
        keep: proof.keep.as_deref(),
        is_stored: !limits.no_history,
        name: limits.title.name.clone(),
        note: limits.title.note.clone(),
    }
}

/// Runs the experiment of a plan once.
///
/// - `file`: name of the plan, for the record.
pub(crate) fn prove(
    context: &Context,
    state: &StateArgs,
    args: &ProofArgs,
    plan: &Plan,
    file: &Path,
) -> Result<Proven, Failure> {
    args.keep.as_deref().map_or(Ok(()), kept::check_free)?;
    let terminal = Terminal::open(context, args.watch.watch)?;
    runner(context, state.journal(), &terminal).run(&request(args, plan, file)?)
}

fn request(args: &ProofArgs, plan: &Plan, file: &Path) -> Result<Request, Failure> {
    let mut request = args.load.request(plan, file, args.arms.arms(), args.rebase.is_given())?;
    request.series = args.series.series();
    Ok(request)
}

fn run_series(
    context: &Context,
    state: &StateArgs,
    args: &ProofArgs,
    plan: &Plan,
    file: &Path,
) -> Result<(), Failure> {
    let request = request(args, plan, file)?;
    let terminal = Terminal::open(context, args.watch.watch)?;
    let runner = runner(context, state.journal(), &terminal);
    let is_ladder = args.arms == PlanArmsName::Ladder;
    let proven = runner.run_series(&request, &|request| run_in_child(&runner, request))?;
    show_series(context, args.watch.detail, &proven, args.series.runs, |run| {
        ProveDocument::new(run).with_steps(steps(run, is_ladder))
    })
}

/// Writes the settings that help if a file for them is named, else says how to see the report.
pub(crate) fn keep_or_report(
    context: &Context,
    state: &StateArgs,
    args: &ProofArgs,
    plan: (&Plan, &Path),
    proven: &Proven,
) -> Result<(), Failure> {
    match &args.keep {
        Some(file) => keep(context, state, args, plan, proven, file),
        None => {
            say_report(context, proven);
            Ok(())
        }
    }
}

/// Worth of each setting of a plan under a proof.
pub(crate) fn worth_of_settings(args: &ProofArgs, plan: &Plan, proven: &Proven) -> Vec<Worth> {
    kept::worths(plan, &proven.outcome, args.arms.arms())
}

/// Writes the settings that help, and says how to apply them.
fn keep(
    context: &Context,
    state: &StateArgs,
    args: &ProofArgs,
    (plan, plan_file): (&Plan, &Path),
    proven: &Proven,
    file: &Path,
) -> Result<(), Failure> {
    let Some(kept) = Kept::from_outcome(plan, &proven.outcome, args.arms.arms()) else {
        console::say(&format!("no setting is shown to help: {} was not written", file.display()));
        return Ok(());
    };
    kept.write(file, (plan_file, &proven.outcome.id))?;
    let of = count(plan.steps.len(), "setting");
    console::say(&format!("wrote {}: {} of {of} help", file.display(), kept.settings_count()));
    let line = CommandLine::as_root("tune apply").value(&file.to_string_lossy());
    let line = if args.rebase.is_given() { line.words("--rebase") } else { line };
    next::say(context, &state.given_to(line.words("--confirm-within 2m")));
    Ok(())
}

/// Worth of each setting on top of those before it; none but for a ladder.
fn steps(proven: &Proven, is_ladder: bool) -> Vec<Gain> {
    if is_ladder { proven.outcome.gains(WHOLE_PLAN) } else { Vec::new() }
}

fn table(gains: &[Gain]) -> String {
    let mut screen = Screen::plain();
    if gains.is_empty() {
        return screen.finish();
    }
    screen.blank();
    screen.heading("Each setting on top of those before it");
    let rows = gains.chunk_by(|a, b| a.metric == b.metric).flat_map(|gains| {
        let metric = vec![Cell::plain(format!("  {}", gains[0].metric))];
        [metric].into_iter().chain(gains.iter().map(gain_row))
    });
    screen.table(&["", ">", "", ""], rows);
    screen.finish()
}

fn gain_row(gain: &Gain) -> Vec<Cell> {
    let interval = match (gain.low, gain.high) {
        (Some(low), Some(high)) => format!("[{low:.3}, {high:.3}]"),
        _ => "–".to_owned(),
    };
    let verdict = serde_json::to_value(gain.verdict).unwrap_or_default();
    let verdict = verdict.as_str().unwrap_or_default().replace(['-', '_'], " ");
    let ratio = format!("{:.3}", gain.ratio);
    [format!("    {}", gain.arm), ratio, interval, verdict].map(Cell::plain).into()
}
