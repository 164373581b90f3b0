//! `wirepath prove`: one experiment from its arms to its verdicts.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use marketdata::sequence_field::SequenceField;
use model::{Arm, ArmPlan, Load, LoadKind, Outcome, Path, Session, Support};
use remote::Failure;

use crate::against::{self, Builds};
use crate::best::{self, BEST, Record, Space};
use crate::context::Context;
use crate::experiment::{Proof, Proven, conduct, load_of, lock, parameters};
use crate::lookup::{self, OWN_PROGRAMS, find_load, find_path};
use crate::series::{SeriesArgs, SeriesDocument};
use crate::shared_args::{BaselineArgs, RunArgs};
use crate::trials::one_arm;
use crate::{console, gate, results, series};

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

#[derive(Debug, Args)]
pub(crate) struct ProveArgs {
    #[command(subcommand)]
    command: Option<ProveCommand>,
    /// Path to measure
    #[arg(default_value = "probe", value_parser = lookup::PATH)]
    pub(crate) path: String,
    /// Programs in the form of other tools, which are refused with the right form.
    #[arg(hide = true)]
    more: Vec<String>,
    /// Arms: ladder (of the switches that can act here), all (a ladder of every switch), spin+ladder (with spin in each
    /// rung), alone, leave-one-out, a list such as spin,spin+batch, or best: search for the smallest set that does most;
    /// default: ladder, with --against the baseline
    #[arg(long, value_parser = lookup::ARMS, hide_possible_values = true)]
    pub(crate) arms: Option<String>,
    /// Other programs to run as arms, e.g. iperf3,sockperf
    #[arg(long, value_delimiter = ',', value_parser = lookup::PEER)]
    pub(crate) peers: Vec<String>,
    /// Load of path feed: the begin of a capture with its own timing, as long as --trial; with --sequence
    #[arg(long, value_name = "FILE", requires = "sequence")]
    pub(crate) replay: Option<PathBuf>,
    /// Sequence number in each payload of --replay: byte order, bits, offset in bytes
    #[arg(long, value_name = "be32@4", requires = "replay")]
    pub(crate) sequence: Option<SequenceField>,
    #[command(flatten)]
    pub(crate) run: RunArgs,
    #[command(flatten)]
    pub(crate) series: SeriesArgs,
    /// Compare this program with another build of it, both in one run: the arm `old` against `new`, with
    /// the switches of --arms on in both
    #[arg(long, value_name = "PROGRAM", group = "earlier", conflicts_with_all = ["peers", "host", "baseline"])]
    pub(crate) against: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) baseline: BaselineArgs,
}

impl ProveArgs {
    fn arms(&self) -> &str {
        let default = if self.against.is_some() { "baseline" } else { "ladder" };
        self.arms.as_deref().unwrap_or(default)
    }
}

pub(crate) fn run(context: &Context, args: &ProveArgs) -> Result<(), Failure> {
    if let Some(more) = args.more.first() {
        return Err(Failure::Usage(format!(
            "{more:?} is one argument too many: `prove` measures one path. Programs of your own: {OWN_PROGRAMS}"
        )));
    }
    if let Some(ProveCommand::Command(args)) = &args.command {
        return crate::command::run(context, args);
    }
    args.run.limits.check()?;
    let path = path_of(args)?;
    let kind = find_load(path.as_ref(), args.run.load.as_deref())?;
    let load = load_of(kind, &args.run)?;
    for (option, is_given) in [("--ip", load.ipv6), ("--vlan", load.vlan_tag.is_some())] {
        if is_given && path.name() != "probe" {
            let name = path.name();
            let why = format!("{option} is of path probe; leave it out of path {name}");
            return Err(Failure::Usage(why));
        }
    }
    if args.arms() == BEST && args.against.is_none() {
        let proven = search(context, args, path.as_ref(), kind, &load)?;
        if context.json {
            console::json(&proven.searched(true))?;
        } else {
            console::text(&report::text::ladder(&proven.outcome, console::style()))?;
            proven.say_where();
        }
        return proven.verdict();
    }
    let switches = model::ids(path.switches());
    let plan = ArmPlan::parse(args.arms(), &switches).map_err(Failure::usage)?;
    let arms = match &args.against {
        Some(_) => against::arms(&one_arm(&plan)?),
        None => {
            let rungs = path.ladder(&load);
            let listed = plan.switches(&switches, &rungs);
            model::arms(&plan, listed, &args.peers, &mut |arm| path.support(arm, &load))
        }
    };
    if let Some((_, Support::Unsupported { what, needs })) = arms.first() {
        return Err(Failure::Unsupported(format!("{what} is not possible here: {needs}")));
    }
    check_peers(path.as_ref(), &args.peers)?;
    let mut proof = Proof::new(path.name(), kind, &load, arms, &args.run.limits);
    proof.load.insert("arms".to_owned(), args.arms().to_owned());
    proof.load.extend(replayed(args));
    let is_gated = args.against.is_some() && args.baseline.fail_on.is_some();
    proof.gate = is_gated;
    let earlier = series::earlier(context, &args.baseline, &args.series, &proof)?;
    let proven = match args.series.runs {
        1 => vec![once(context, args, path.as_ref(), &load, proof)?],
        _ => series::repeat(&args.series, &args.run.limits, is_gated)?,
    };
    let Some(last) = proven.last() else { return Err(Failure::failed("no run")) };
    // An outcome without a baseline cannot be compared; its verdict reports that failure.
    let measured = |run: &&Proven| run.outcome.arms.first().is_some_and(|a| !a.metrics.is_empty());
    let news: Vec<Outcome> = proven.iter().filter(measured).map(|r| r.outcome.clone()).collect();
    let mut compared = match earlier.filter(|_| !news.is_empty()) {
        Some(olds) => {
            let (unit, resolve) = (args.baseline.unit.unit(), args.run.limits.resolve.ratio());
            Some(results::compare(&olds, &news, unit, resolve)?)
        }
        None => None,
    };
    if let Some((compared, on)) = compared.as_mut().zip(args.baseline.fail_on) {
        compared.gate = Some(compared.decide(results::by(on), args.run.limits.resolve.ratio()));
    }
    if context.json && args.series.runs > 1 {
        let runs = proven.iter().map(|run| run.document(None)).collect();
        console::json(&SeriesDocument { runs, comparison: compared.as_ref() })?;
    } else if context.json {
        console::json(&last.compared(compared.as_ref()))?;
    } else {
        console::text(&report::text::ladder(&last.outcome, console::style()))?;
        if args.series.runs > 1 {
            console::text(&report::text::repeated(&news, console::style()))?;
        }
        if let Some(compared) = &compared {
            console::text("")?;
            console::text(&report::text::compare(compared, console::style()))?;
        }
        last.say_where();
        series::say(&proven);
    }
    proven.iter().try_for_each(Proven::verdict)?;
    if is_gated {
        return gate::judge(&proven, args.baseline.accept_undecided);
    }
    let between = compared.and_then(|compared| compared.gate);
    between.map_or(Ok(()), |between| gate::end(&between, args.baseline.accept_undecided))
}

/// Parameters of a capture that are stored with the result.
fn replayed(args: &ProveArgs) -> Vec<(String, String)> {
    let given = [
        ("replay", args.replay.as_ref().map(|file| file.display().to_string())),
        ("sequence", args.sequence.map(|field| field.to_string())),
    ];
    given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// The path, with a capture as its load if one is given.
fn path_of(args: &ProveArgs) -> Result<Box<dyn Path>, Failure> {
    let path = find_path(&args.path)?;
    match args.replay.clone().zip(args.sequence) {
        None => Ok(path),
        Some(_) if path.name() != "feed" => {
            Err(Failure::Usage(format!("--replay is a load of path feed, not of {}", path.name())))
        }
        Some((file, sequence)) => Ok(Box::new(feed::ReplayedFeed { file, sequence })),
    }
}

/// Finds and measures the best set of a path's switches; see [`best::find`].
fn search(
    context: &Context,
    args: &ProveArgs,
    path: &dyn Path,
    kind: &LoadKind,
    load: &Load,
) -> Result<Proven, Failure> {
    if args.series.runs > 1 || args.baseline.baseline.is_some() || !args.peers.is_empty() {
        return Err(Failure::Usage(
            "--arms best cannot be combined with --runs, --baseline or --peers; prove the set that it \
             finds with them"
                .into(),
        ));
    }
    let _lock = lock()?;
    let mut session = path.open(load)?;
    let proof = Proof {
        path: path.name(),
        judged: kind.judged.iter().map(|&name| name.to_owned()).collect(),
        load: parameters(load, &args.run.limits),
        arms: Vec::new(),
        search: None,
        trial: Some(load.trial),
        gate: false,
    };
    let mut space = Space {
        switches: &model::ids(path.switches()),
        support: &mut |arm: &Arm| path.support(arm, load),
        trial: Some(load.trial),
    };
    best::find(context, &args.run.limits, &proof, &mut space, session.as_mut(), Record::Nothing)
}

/// Runs the experiment once, in this process.
fn once(
    context: &Context,
    args: &ProveArgs,
    path: &dyn Path,
    load: &Load,
    mut proof: Proof<'_>,
) -> Result<Proven, Failure> {
    let _lock = lock()?;
    let mut session: Box<dyn Session> = match &args.against {
        None => path.open(load)?,
        Some(old) => {
            let builds = Builds::start(old, proof.path, load, &proof.arms[0].0)?;
            let which = format!("{} ({})", old.display(), builds.old_version());
            proof.load.insert("against".to_owned(), which);
            Box::new(builds)
        }
    };
    conduct(context, &args.run.limits, proof, session.as_mut(), None)
}

/// Refuses peers that no load of the path supports. A peer that only another load supports becomes
/// an unsupported arm.
fn check_peers(path: &dyn Path, peers: &[String]) -> Result<(), Failure> {
    let known: BTreeSet<&str> = path.loads().iter().flat_map(|l| l.peers).copied().collect();
    let Some(unknown) = peers.iter().find(|p| !known.contains(p.as_str())) else { return Ok(()) };
    let known = known.into_iter().collect::<Vec<_>>().join(", ");
    Err(Failure::Usage(format!("no peer named {unknown}; peers: {known}")))
}
