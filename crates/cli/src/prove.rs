//! `wirepath prove`: one experiment from its arms to its verdicts.

use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args, Subcommand};
use house::console;
use house::context::Context;
use model::{
    LoadRequest, Outcome, PathFile, PathRequest, Programs, ReplayRequest, Request, RunComparison,
    Subject, TwoHosts,
};
use remote::Failure;
use runner::{Earlier, JournalFolder, Planned, Proven};

use crate::far_args::FarEndArgs;
use crate::lookup;
use crate::proven::{
    ProveDocument, SeriesDocument, print_document, print_ladder, say_ids, say_report, say_where,
    verdict, verdicts,
};
use crate::running::{Terminal, run_in_child, runner};
use crate::shared_args::{BaselineArgs, LimitArgs, LoadArgs, SeriesArgs, WatchArgs};
use crate::{gate, results};

#[derive(Debug, Subcommand)]
pub(crate) enum ProveCommand {
    /// Prove which of your own programs or settings is better: any command as an arm
    ///
    /// Every command has the variables $WIREPATH_NEAR and $WIREPATH_FAR (addresses of client and server),
    /// $WIREPATH_PORT, $WIREPATH_ARM and $WIREPATH_TRIAL. Quote commands with ' so that your shell does not expand them.
    #[command(after_help = "\
Example:
  wirepath prove command --against ./main --server ./pr --client ./bench --metric 'p99=re:p99 (.+)'
  wirepath prove command --server ./s --switch tso=off --client ./bench --metric 'rps=json:/rps'
  wirepath prove command experiment.toml --check
  wirepath prove command --resume 20261123-104821")]
    Command(Box<crate::command::CommandArgs>),
}

/// Switches of a path as arms under one of its loads.
#[derive(Debug, Args)]
pub(crate) struct PathArgs {
    /// Path to measure
    #[arg(default_value = "probe", value_parser = lookup::PathName)]
    pub(crate) path: String,
    /// Arms, such as ladder, best or spin,spin+batch: ladder (of the switches that can act under the load on this host, by
    /// the path's own rules), all (a ladder of every switch), spin+ladder (with spin in each rung), alone, leave-one-out, a
    /// list, or best: search for the smallest set that does most; default: ladder, with --against the baseline
    #[arg(long)]
    arms: Option<String>,
    /// Other programs to run as arms, e.g. iperf3,sockperf; `wirepath paths PATH` lists those of a path
    #[arg(long, value_delimiter = ',')]
    peers: Vec<String>,
    /// Capture as the load of a path that replays them: its beginning with its own timing, as long as --trial; with
    /// --sequence
    #[arg(long, value_name = "FILE", requires = "sequence")]
    replay: Option<PathBuf>,
    /// Sequence number in each payload of --replay: byte order, bits, offset in bytes
    #[arg(long, value_name = "be32@4", requires = "replay")]
    sequence: Option<String>,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    limits: LimitArgs,
}

impl PathArgs {
    /// - `far`: far end on another host.
    /// - `against`: another build of the program.
    pub(crate) fn request(
        &self,
        far: Option<TwoHosts>,
        against: Option<PathBuf>,
    ) -> Result<Request, Failure> {
        let replay = self.replay.clone().zip(self.sequence.clone());
        let replay = replay.map(|(file, sequence)| ReplayRequest { file, sequence });
        let load = LoadRequest { replay, ..self.load.request(far) };
        let default = if against.is_some() { "baseline" } else { "ladder" };
        let arms = self.arms.clone().unwrap_or_else(|| default.to_owned());
        let (path, peers) = (self.path.clone(), self.peers.clone());
        let subject = PathRequest { path, load, arms, peers, against, file: None };
        let mut request = Request::new(Subject::Path(Box::new(subject)), self.limits.limits()?);
        request.is_stored = !self.limits.no_history;
        self.limits.title.add_to(&mut request);
        Ok(request)
    }
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("gated").args(["against", "baseline", "file"]).multiple(true))]
pub(crate) struct ProveArgs {
    #[command(subcommand)]
    command: Option<ProveCommand>,
    #[command(flatten)]
    path: PathArgs,
    /// File that describes the arms, for a path that has it: `vm`
    #[arg(conflicts_with_all = ["arms", "peers", "against", "replay"])]
    file: Option<PathBuf>,
    #[command(flatten)]
    series: SeriesArgs,
    #[command(flatten)]
    watch: WatchArgs,
    /// Compare this program with another build of it, both in one run: the arm `old` against `new`, with
    /// the switches of --arms on in both
    #[arg(long, value_name = "PROGRAM", group = "earlier", conflicts_with_all = ["peers", "host", "baseline"])]
    against: Option<PathBuf>,
    #[command(flatten)]
    baseline: BaselineArgs,
    // Last: it ends with a heading of its own.
    #[command(flatten)]
    far: FarEndArgs,
}

impl ProveArgs {
    /// True if its trials run in namespaces that it makes. A program of another path may need the host's.
    pub(crate) fn makes_lab(&self) -> bool {
        match &self.command {
            Some(ProveCommand::Command(args)) => args.makes_lab(),
            None => {
                let is_own = lookup::all().iter().any(|path| path.name() == self.path.path);
                is_own && self.far.end().is_none()
            }
        }
    }

    fn request(&self) -> Result<Request, Failure> {
        let far = self.far.of_load(&self.path.path, self.path.load.load.as_deref())?;
        let mut request = self.path.request(far, self.against.clone())?;
        if let (Some(file), Subject::Path(subject)) = (&self.file, &mut request.subject) {
            refuse_program(file)?;
            subject.file = Some(read_file(file)?);
        }
        let has_own_baseline = self.against.is_some() || self.file.is_some();
        request.gate =
            has_own_baseline && self.baseline.baseline.is_none() && self.baseline.fail_on.is_some();
        request.series = self.series.series();
        Ok(request)
    }
}

/// Errors: a program in place of a file, as other tools have them.
fn refuse_program(file: &Path) -> Result<(), Failure> {
    let text = file.display().to_string();
    if lookup::is_program(&text) && file.extension().is_none() {
        let hint = lookup::compare_hint(std::slice::from_ref(&text));
        return Err(Failure::Usage(format!("{text:?} is not a file of a path; {hint}")));
    }
    Ok(())
}

/// Errors: it cannot be read, or is longer than 1 MiB.
fn read_file(file: &Path) -> Result<PathFile, Failure> {
    let text = host::user_file::read_text(file, Programs::BYTES_MAX as u64);
    let text = text.map_err(|why| Failure::Usage(format!("{}: {why}", file.display())))?;
    Ok(PathFile { name: std::path::absolute(file)?, text })
}

pub(crate) fn run(context: &Context, args: &ProveArgs) -> Result<(), Failure> {
    if let Some(ProveCommand::Command(args)) = &args.command {
        return crate::command::run(context, args);
    }
    let request = args.request()?;
    let terminal = Terminal::open(context, args.watch.watch)?;
    let runner = runner(context, JournalFolder::default(), &terminal);
    let Planned::Path(plan) = runner.plan(&request)? else {
        return Err(Failure::failed("the request is not of a path"));
    };
    if plan.is_search() {
        if args.series.runs > 1 || args.baseline.baseline.is_some() || !args.path.peers.is_empty() {
            return Err(Failure::Usage(
                "--arms best cannot be combined with --runs, --baseline or --peers; prove the set that it \
                 finds with them"
                    .into(),
            ));
        }
        let proven = runner.run_planned(&request, Planned::Path(plan), None)?;
        if context.json {
            print_document(&proven, &ProveDocument::searched(&proven))?;
        } else {
            print_ladder(&proven, args.watch.detail)?;
            say_where(&proven);
            say_report(context, &proven);
        }
        return verdict(&proven);
    }
    let olds = match &args.baseline.baseline {
        Some(wanted) => {
            let gate = args.baseline.fail_on.map(results::by);
            let (unit, any_machine) = (args.baseline.unit.unit(), args.baseline.any_machine);
            let earlier = Earlier { wanted, gate, unit, any_machine };
            Some(runner.earlier(&request, &plan, &earlier)?)
        }
        None => None,
    };
    let proven = if args.series.runs > 1 {
        runner.run_series(&request, &|request| run_in_child(&runner, request))?
    } else {
        vec![runner.run_planned(&request, Planned::Path(plan), None)?]
    };
    // An outcome without a baseline cannot be compared; its verdict reports that failure.
    let is_measured =
        |run: &&Proven| run.outcome.arms.first().is_some_and(|arm| !arm.metrics.is_empty());
    let news: Vec<Outcome> =
        proven.iter().filter(is_measured).map(|run| run.outcome.clone()).collect();
    let compared = olds.filter(|_| !news.is_empty());
    let compared = compared.map(|olds| compare(args, &request, &olds, &news)).transpose()?;
    show(context, args, &request, &proven, &news, compared.as_ref())?;
    verdicts(&proven, args.series.runs)?;
    if request.gate {
        return gate::judge(&proven, args.baseline.accept_undecided);
    }
    let between = compared.and_then(|compared| compared.gate);
    between.map_or(Ok(()), |between| gate::end(&between, args.baseline.accept_undecided))
}

fn compare(
    args: &ProveArgs,
    request: &Request,
    olds: &[Outcome],
    news: &[Outcome],
) -> Result<RunComparison, Failure> {
    let resolve = request.limits.resolve;
    let mut compared = runner::compare(olds, news, args.baseline.unit.unit(), resolve)?;
    compared.gate = args.baseline.fail_on.map(|on| compared.decide(results::by(on), resolve));
    Ok(compared)
}

/// Prints the runs.
///
/// - `news`: outcomes that can be compared.
/// - `compared`: with earlier runs.
fn show(
    context: &Context,
    args: &ProveArgs,
    request: &Request,
    proven: &[Proven],
    news: &[Outcome],
    compared: Option<&RunComparison>,
) -> Result<(), Failure> {
    let Some(last) = proven.last() else { return Err(Failure::failed("no run")) };
    let is_series = request.series.runs > 1;
    if context.json && is_series {
        let runs = proven.iter().map(ProveDocument::new).collect();
        return print_document(last, &SeriesDocument { runs, comparison: compared });
    }
    if context.json {
        return print_document(last, &ProveDocument::new(last).compared(compared));
    }
    print_ladder(last, args.watch.detail)?;
    if is_series && last.has_result() {
        console::text(&report::text::repeated(news, console::style()))?;
    }
    if let Some(compared) = compared {
        console::text("")?;
        console::text(&report::text::compare(compared, console::style()))?;
    }
    say_where(last);
    say_ids(proven);
    say_report(context, last);
    Ok(())
}
