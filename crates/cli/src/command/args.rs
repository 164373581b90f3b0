//! Arguments of `wirepath prove command`.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use house::args::parse_duration;
use house::place::StateArgs;
use model::{ArmEntry, Limits, Programs, Request, Subject};
use remote::Failure;
use runner::resolve_text;

use crate::lookup;
use crate::shared_args::{ResolveArgs, SeriesArgs, TitleArgs, WatchArgs, WireArgs, parse_resolve};

/// The user's programs, and the figures that decide.
#[derive(Debug, Clone, Args)]
pub(crate) struct ProgramArgs {
    /// Command of the server of every arm that has none of its own
    #[arg(long, value_name = "COMMAND")]
    server: Option<String>,
    /// Command of the client, which is measured and runs to its end; without it, the arms are clients
    #[arg(long, value_name = "COMMAND")]
    client: Option<String>,
    /// Load in place of a client, such as '$WIREPATH feed replay …': the trial ends with the server
    #[arg(long, value_name = "COMMAND", conflicts_with = "client")]
    feed: Option<String>,
    /// Program beside each trial, at the arms' place and ended by SIGINT, such as a witness of what was sent
    #[arg(long, value_name = "COMMAND")]
    beside: Option<String>,
    /// The program beside is ready, as --ready; default: sleep:500
    #[arg(long, value_name = "SIGN")]
    beside_ready: Option<String>,
    /// Sign that the server is ready; tcp, udp, tcp:PORT, udp:PORT, line:REGEX, file:PATH or sleep:MS; default: tcp; with --feed
    /// udp
    #[arg(long, value_name = "SIGN")]
    ready: Option<String>,
    /// Figure that decides: NAME='SOURCE lower|higher' with json:/POINTER, re:REGEX, csv:COLUMN or
    /// hdr:TAG@Q, of the client's output or, as server:SOURCE, beside:SOURCE or file:PATH:SOURCE, of another; or the
    /// name of a figure that needs no parsing
    #[arg(long, value_name = "NAME=SOURCE")]
    pub(crate) metric: Vec<String>,
    /// Well-known client whose figures are used: redis-benchmark, wrk, iperf3, dnsperf, …
    #[arg(long, value_name = "PROGRAM")]
    adapter: Option<String>,
    /// Command before the server of each trial
    #[arg(long, value_name = "COMMAND")]
    setup: Option<String>,
    /// Command after the server of each trial
    #[arg(long, value_name = "COMMAND")]
    cleanup: Option<String>,
    /// Time the server's packets between driver, socket and program; costs about a microsecond a packet
    #[arg(long)]
    stages: bool,
    /// CPUs of the client: 0-3,8; default: half of all
    #[arg(long, value_name = "LIST")]
    near_cpus: Option<String>,
    /// CPUs of the server; default: the other half
    #[arg(long, value_name = "LIST")]
    far_cpus: Option<String>,
    /// $WIREPATH_PORT; default: that of --ready, or 9000; with --live, the port of the running service
    #[arg(long)]
    pub(crate) port: Option<u16>,
    /// Command before the client of each trial, or a time to wait
    #[arg(long, value_name = "COMMAND|TIME")]
    warmup: Option<String>,
    /// Time limit for a server to get ready; default: 10s
    #[arg(long, value_name = "TIME")]
    ready_within: Option<String>,
    /// Time limit for each other command; default: 60s
    #[arg(long, value_name = "TIME")]
    within: Option<String>,
    /// Time for a server to end after SIGTERM, before it is killed; default: 2s
    #[arg(long, value_name = "TIME")]
    grace: Option<String>,
}

impl ProgramArgs {
    pub(crate) fn is_given(&self) -> bool {
        self.client.is_some() || self.feed.is_some() || self.server.is_some()
    }

    pub(crate) fn add_to(&self, experiment: &mut Programs) {
        experiment.metrics.extend(self.metric.iter().cloned());
        experiment.stages |= self.stages;
        experiment.port = self.port.or(experiment.port);
        let texts = [
            (&mut experiment.server, &self.server),
            (&mut experiment.client, &self.client),
            (&mut experiment.feed, &self.feed),
            (&mut experiment.beside, &self.beside),
            (&mut experiment.beside_ready, &self.beside_ready),
            (&mut experiment.ready, &self.ready),
            (&mut experiment.adapter, &self.adapter),
            (&mut experiment.setup, &self.setup),
            (&mut experiment.cleanup, &self.cleanup),
            (&mut experiment.warmup, &self.warmup),
            (&mut experiment.near_cpus, &self.near_cpus),
            (&mut experiment.far_cpus, &self.far_cpus),
            (&mut experiment.ready_within, &self.ready_within),
            (&mut experiment.within, &self.within),
            (&mut experiment.grace, &self.grace),
        ];
        take_given(texts);
    }
}

/// Replaces texts by those that are given.
fn take_given<const N: usize>(texts: [(&mut Option<String>, &Option<String>); N]) {
    for (into, given) in texts {
        if given.is_some() {
            into.clone_from(given);
        }
    }
}

/// Places between both ends, and switches at any place.
#[derive(Debug, Clone, Args)]
pub(crate) struct PlaceSwitchArgs {
    /// Place between both ends, such as a forwarder: netns:NAME, ssh:HOST, ssh:USER@HOST or this
    #[arg(long, value_name = "NAME=PLACE")]
    at: Vec<String>,
    /// Switch at a place; KNOB=VALUE of `tune`, KNOB='VALUE|VALUE', env:NAME=VALUE or NAME='on:COMMAND|off:COMMAND'.
    /// Without near: or the name of a place in front, at the server's end
    #[arg(long, value_name = "[PLACE:]SWITCH")]
    switch: Vec<String>,
}

impl PlaceSwitchArgs {
    pub(crate) fn is_given(&self) -> bool {
        !self.at.is_empty() || !self.switch.is_empty()
    }

    /// Errors: a place without a name, or two of one name.
    pub(crate) fn add_to(&self, experiment: &mut Programs) -> Result<(), Failure> {
        for text in &self.at {
            let (name, place) = text.split_once('=').ok_or_else(|| {
                Failure::Usage(format!("--at {text}: write NAME=PLACE, such as ap=netns:ap"))
            })?;
            if experiment.at.insert(name.to_owned(), place.to_owned()).is_some() {
                return Err(Failure::Usage(format!("--at {name}: two places have this name")));
            }
        }
        experiment.switches.extend(self.switch.iter().cloned());
        Ok(())
    }
}

/// An experiment with the user's own programs, by a file or by options.
#[derive(Debug, Args)]
pub(crate) struct ExperimentArgs {
    /// Experiment file (TOML); the options below are added to it
    file: Option<PathBuf>,
    /// Arm: NAME='COMMAND' of a server, or NAME:VAR=VALUE for another environment of --server; the first
    /// is the baseline unless --against is given
    #[arg(long, value_name = "NAME=COMMAND", value_parser = ArmEntry::parse)]
    arm: Vec<ArmEntry>,
    /// Command of the old server, which becomes the baseline, as the arm `old`; --server is then the arm
    /// `new`, unless there is an --arm
    #[arg(long, value_name = "COMMAND")]
    against: Option<String>,
    /// Built-in load in place of --server and --client: udp:SIZE@RATE or udp:SIZE@RATE/FLOWS, tcp or
    /// tcp:FLOWS, ping or ping:SIZE
    #[arg(long, value_name = "LOAD", conflicts_with_all = ["server", "client"])]
    load: Option<String>,
    #[command(flatten)]
    program: ProgramArgs,
    #[command(flatten)]
    places: PlaceSwitchArgs,
    /// Arms of the switches: ladder, alone, leave-one-out, a list such as A,B+C, or best; default: ladder
    #[arg(long)]
    arms: Option<String>,
    /// Keep one server for each arm over all trials, on ports of their own ($WIREPATH_PORT)
    #[arg(long)]
    keep_servers: bool,
    /// Place of the client: netns:NAME; default: a lab of two namespaces
    #[arg(long, value_name = "netns:NAME")]
    near: Option<String>,
    /// Place of both ends that exists, for arms that are programs: this or netns:NAME, and its interface where
    /// there are several: netns:NAME@INTERFACE
    #[arg(long, value_name = "PLACE", conflicts_with = "near")]
    place: Option<String>,
    /// Queues of each interface of the lab
    #[arg(long, value_name = "N")]
    queues: Option<u32>,
    #[command(flatten)]
    wire: WireArgs,
    /// Time to spend; default: 60s
    #[arg(long)]
    time: Option<String>,
    /// Seed of the order of trials; default: random
    #[arg(long)]
    seed: Option<u64>,
    /// Minimum number of blocks before a verdict, at least 6; default: 8, or as many as the number of
    /// verdicts needs
    #[arg(long)]
    min_blocks: Option<u32>,
    /// Maximum number of blocks, at least 6
    #[arg(long)]
    max_blocks: Option<u32>,
    /// Run each arm uncounted before each of its trials, so that no trial follows another program's; takes twice
    /// the time
    #[arg(long)]
    settle: bool,
    #[command(flatten)]
    resolve: ResolveArgs,
    /// Do not store the result
    #[arg(long)]
    no_history: bool,
    #[command(flatten)]
    title: TitleArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CommandArgs {
    #[command(flatten)]
    pub(super) experiment: ExperimentArgs,
    /// Place of the server: `netns:NAME`, or `ssh:[USER@]HOST[:PORT]`; default: a lab of two namespaces
    #[arg(long, value_name = "KIND:HOST")]
    far: Option<String>,
    /// Address of a server on another host; default: that of the ssh connection
    #[arg(long, value_name = "IP")]
    far_address: Option<String>,
    /// Option of the ssh client as in its configuration file, e.g. IdentityFile=FILE; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    ssh_option: Vec<String>,
    #[command(flatten)]
    pub(super) series: SeriesArgs,
    /// Exit with 4 if an arm is worse than the baseline by more than --resolve, with 0 if all figures of all arms
    /// are shown to be no worse, and with 5 if that is not decided when the time is up
    #[arg(long, value_enum)]
    pub(super) fail_on: Option<FailOnWorse>,
    /// End with 0 if --fail-on is not decided
    #[arg(long)]
    pub(super) accept_undecided: bool,
    /// Check commands, places, ports and knobs, and run nothing
    #[arg(long, conflicts_with = "resume")]
    pub(super) check: bool,
    /// Continue this stored experiment after its last trial, with its seed
    #[arg(long, value_name = "ID", conflicts_with_all = ["seed", "no_history", "runs"])]
    pub(super) resume: Option<String>,
    #[command(flatten)]
    pub(super) watch: WatchArgs,
    #[command(flatten)]
    pub(super) state: StateArgs,
}

/// Question of a gate: exit code 4 if the answer is yes, 0 if it is no, 5 if it is not decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum FailOnWorse {
    /// A figure that decides is worse in any arm, or an arm fails more often
    Worse,
}

/// True for an executable file, but not for an experiment on a file system where all files are.
fn is_program(file: &Path) -> bool {
    let is_executable = std::fs::metadata(file)
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
    is_executable && file.extension().is_none_or(|extension| extension != "toml")
}

impl ExperimentArgs {
    /// The request; the file is read here, not where the request is run.
    pub(crate) fn request(&self) -> Result<Request, Failure> {
        self.request_for(self.programs()?)
    }

    /// A file that cannot be read is reported by the run.
    fn file_names_a_place(&self) -> bool {
        // A pipe can be read once.
        let file = self.file.as_deref().filter(|file| file.is_file());
        let programs = file.and_then(|file| command::read(file).ok());
        programs.is_some_and(|programs| {
            let is_there = programs.place.is_some_and(|place| place != "loopback");
            is_there || programs.near.is_some() || programs.far.is_some() || !programs.at.is_empty()
        })
    }

    /// Request for these programs, with this command line's seed and choice of storage.
    pub(super) fn request_for(&self, programs: Programs) -> Result<Request, Failure> {
        programs_request(programs, self.seed, !self.no_history)
    }

    /// The file with the options added to it.
    pub(super) fn programs(&self) -> Result<Programs, Failure> {
        let program = self.file.as_deref().filter(|file| is_program(file));
        let program = program.map(|file| file.display().to_string());
        if let Some(program) = program {
            return Err(Failure::Usage(format!(
                "{program:?} is not an experiment file; {}",
                lookup::compare_hint(std::slice::from_ref(&program))
            )));
        }
        let mut experiment = match &self.file {
            Some(file) => command::read(file).map_err(Failure::usage)?,
            None => Programs::default(),
        };
        for arm in &self.arm {
            match experiment.arm.iter_mut().find(|known| known.name == arm.name) {
                Some(known) => known.join(arm.clone()).map_err(Failure::usage)?,
                None => experiment.arm.push(arm.clone()),
            }
        }
        self.program.add_to(&mut experiment);
        self.places.add_to(&mut experiment)?;
        experiment.keep |= self.keep_servers;
        experiment.settle |= self.settle;
        take_given([
            (&mut experiment.against, &self.against),
            (&mut experiment.arms, &self.arms),
            (&mut experiment.load, &self.load),
            (&mut experiment.near, &self.near),
            (&mut experiment.place, &self.place),
            (&mut experiment.time, &self.time),
            (&mut experiment.name, &self.title.name),
            (&mut experiment.note, &self.title.note),
        ]);
        if let Some(ratio) = self.resolve.given() {
            experiment.resolve = Some(resolve_text(ratio));
        }
        if self.wire.wire.is_some() {
            experiment.wire.clone_from(&self.wire.wire);
        }
        experiment.queues = self.queues.or(experiment.queues);
        experiment.min_blocks = self.min_blocks.or(experiment.min_blocks);
        experiment.max_blocks = self.max_blocks.or(experiment.max_blocks);
        Ok(experiment)
    }
}

impl CommandArgs {
    /// True if its trials run in namespaces that it makes, as far as is known before the run. At other places a user
    /// namespace grants nothing, and the process keeps the host's network.
    pub(crate) fn makes_lab(&self) -> bool {
        let experiment = &self.experiment;
        let has_place =
            self.far.is_some() || experiment.near.is_some() || experiment.place.is_some();
        !has_place && !self.experiment.file_names_a_place()
    }

    /// The experiment, with the place of its server.
    pub(super) fn programs(&self) -> Result<Programs, Failure> {
        let mut experiment = self.experiment.programs()?;
        experiment.ssh_options.extend(self.ssh_option.iter().cloned());
        take_given([
            (&mut experiment.far, &self.far),
            (&mut experiment.far_address, &self.far_address),
        ]);
        Ok(experiment)
    }

    /// Request for these programs.
    pub(super) fn request(&self, programs: Programs) -> Result<Request, Failure> {
        let mut request = self.experiment.request_for(programs)?;
        request.gate = matches!(self.fail_on, Some(FailOnWorse::Worse));
        request.series = self.series.series();
        Ok(request)
    }
}

/// Request for programs, which have their own limits, name and note.
pub(crate) fn programs_request(
    programs: Programs,
    seed: Option<u64>,
    is_stored: bool,
) -> Result<Request, Failure> {
    let limits = Limits { seed, ..limits_of_file(&programs)? };
    let (name, note) = (programs.name.clone(), programs.note.clone());
    let mut request = Request::new(Subject::Programs(Box::new(programs)), limits);
    request.is_stored = is_stored;
    (request.name, request.note) = (name, note);
    request.words = Some(own_words());
    Ok(request)
}

/// Limits as an experiment has them.
fn limits_of_file(experiment: &Programs) -> Result<Limits, Failure> {
    let default = Limits::default();
    let time = experiment.time.as_deref().map(parse_duration).transpose();
    let resolve = experiment.resolve.as_deref().map(parse_resolve).transpose();
    let limits = Limits {
        time: time.map_err(|why| Failure::Usage(format!("--time: {why}")))?.unwrap_or(default.time),
        resolve: resolve
            .map_err(|why| Failure::Usage(format!("--resolve: {why}")))?
            .unwrap_or(default.resolve),
        seed: None,
        min_blocks: experiment.min_blocks,
        max_blocks: experiment.max_blocks,
        settle: experiment.settle,
    };
    limits.check().map_err(Failure::usage)?;
    Ok(limits)
}

/// Arguments of this process, quoted for a shell, without the options of its output.
fn own_words() -> String {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let words: Vec<String> = words.filter(|word| word != "--json").collect();
    words.iter().map(|word| report::quoted(word)).collect::<Vec<_>>().join(" ")
}
