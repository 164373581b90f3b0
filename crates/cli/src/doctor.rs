//! `wirepath doctor`: causes that cost packets or time, with the remedy.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use host::causes::{self, Evidence, Sample};
use host::exclusive::{Activity, ExclusiveLock};
use host::netns::Netns;
use host::observer::{FlameStacks, Observation, SAMPLES_PER_SECOND};
use host::program::{ProgramWatch, process_of_unit};
use host::tune::{Place, Profile};
use house::args::parse_duration;
use house::context::Context;
use house::findings::{Examined, OutputArgs, show};
use house::next::CommandLine;
use house::place::{ExamineArgs, StateArgs, notice};
use house::{console, signals};
use remote::Failure;

use crate::{doctor_prove, process};

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    place: ExamineArgs,
    #[command(flatten)]
    program: ProgramArgs,
    /// Purpose of the packets; without it, settings that help one purpose and harm another pass
    #[arg(long, value_enum)]
    profile: Option<Profile>,
    /// CPU of the application that receives the packets
    #[arg(long, value_name = "CPU")]
    app_cpu: Option<usize>,
    /// Also count for TIME what frames suffer: copies and clones by caller, flows and hashes, softirqs, hooks
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    observe: Option<Duration>,
    /// Write the call stacks of that time as a flame graph to FILE.svg, and as folded text to FILE.folded
    #[arg(long, value_name = "FILE.svg", requires = "observe")]
    flame: Option<PathBuf>,
    /// Measure what the change of each finding is worth, one by one, and order the findings by it
    #[arg(long)]
    prove: bool,
    /// Load and limits of --prove: options of `tune prove`
    #[arg(last = true, value_name = "OPTIONS", requires = "prove")]
    proof: Vec<OsString>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    state: StateArgs,
}

/// One program, which is examined too.
#[derive(Debug, Args)]
#[group(multiple = false)]
struct ProgramArgs {
    /// Also examine this process: CPUs, scheduling, memory, system calls a datagram; in its network namespace
    #[arg(long, help_heading = "What", value_name = "PID")]
    pid: Option<u32>,
    /// As --pid, for the process that receives at this UDP or TCP port
    #[arg(long, help_heading = "What", value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// As --pid, for the main process of this unit of systemd
    #[arg(long, help_heading = "What", value_name = "NAME")]
    unit: Option<String>,
}

impl ProgramArgs {
    /// Process to examine.
    ///
    /// - `netns`: where the port is, as it was named.
    fn process(&self, netns: Option<&str>, root: &Path) -> Result<Option<u32>, Failure> {
        if let Some(port) = self.port {
            let named = netns.map(|name| Place { netns: Some(name.to_owned()), root: None });
            let netns = named.map(|place| Netns::open(place.netns_file())).transpose()?;
            return process::of_port(netns.as_ref(), port).map(Some);
        }
        match &self.unit {
            Some(unit) => process_of_unit(root, unit).map(Some).map_err(process::failure),
            None => Ok(self.pid),
        }
    }
}

/// Network namespace of a process, by its id; `None` if it is that of the command.
fn namespace_of(pid: u32) -> Option<String> {
    let own = fs::read_link("/proc/self/ns/net").ok();
    match fs::read_link(format!("/proc/{pid}/ns/net")) {
        Ok(other) if Some(&other) != own.as_ref() => Some(pid.to_string()),
        Ok(_) => None,
        Err(_) => {
            console::say(&format!(
                "note: the network namespace of process {pid} may not be seen; this one is examined"
            ));
            None
        }
    }
}

pub(crate) fn run(context: &Context, args: &DoctorArgs) -> Result<(), Failure> {
    notice(&args.state);
    let mut place = args.place.place();
    let root = args.state.root.as_deref().unwrap_or(Path::new("/"));
    let pid = args.program.process(place.netns.as_deref(), root)?;
    // First, as its error is the clearest one.
    let watch = pid.map(ProgramWatch::begin).transpose().map_err(process::failure)?;
    place.netns = place.netns.or(pid.and_then(namespace_of));
    let system = place.open(&args.state)?;
    let profile = args.profile;
    let mut view = Evidence::new(system, place.interface.as_deref(), profile, args.app_cpu)?;
    if let Some(time) = args.observe {
        view = observed(view, args, time, &place.title())?;
    }
    if let Some(watch) = watch {
        view = view.with_program(watch).map_err(process::failure)?;
    }
    let mut report = causes::examine(&view);
    if args.prove {
        doctor_prove::prove(context, &args.state, (&place, &view), &mut report, &args.proof)?;
    }
    let purpose = profile.map_or(String::new(), |profile| format!(", for {}", profile.name()));
    let examined = Examined { place: &place, purpose: &purpose, command: command(args) };
    show(context, &report, &examined, &args.output)
}

/// Evidence with the counts of an observation, and with the kernel's counters before and after it.
fn observed(
    evidence: Evidence,
    args: &DoctorArgs,
    time: Duration,
    title: &str,
) -> Result<Evidence, Failure> {
    let _lock = ExclusiveLock::acquire(Activity::Tracing)
        .map_err(|conflict| Failure::failed(conflict.to_string()))?;
    let samples = if args.flame.is_some() { SAMPLES_PER_SECOND } else { 0 };
    let before = Sample::take(evidence.system());
    let mut observation =
        Observation::start(Some(evidence.system().netns().try_clone()?), samples)?;
    console::say(&format!("observing frames for {:.1} s", time.as_secs_f64()));
    observation.wait(time, signals::stop_requested)?;
    let (observed, stacks) = observation.finish()?;
    let after = Sample::take(evidence.system());
    if let Some(file) = &args.flame {
        write_flame(file, &stacks, title)?;
    }
    // Causes that need what could not be read report it.
    let evidence = match (before, after) {
        (Ok(before), Ok(after)) => evidence.watched(before, after),
        _ => evidence,
    };
    Ok(evidence.observed(observed))
}

/// Writes a flame graph, and its folded text beside it.
pub(crate) fn write_flame(file: &Path, stacks: &FlameStacks, title: &str) -> Result<(), Failure> {
    console::replace_file(file, stacks.svg(title))?;
    let folded = file.with_extension("folded");
    console::replace_file(&folded, stacks.folded())?;
    console::say(&format!("call stacks: {} and {}", file.display(), folded.display()));
    Ok(())
}

/// This command with its options but those of the place and of the output.
fn command(args: &DoctorArgs) -> CommandLine {
    let cpu = args.app_cpu.map(|cpu| cpu.to_string());
    let line = CommandLine::new("doctor").option("--profile", args.profile.map(Profile::name));
    let pid = args.program.pid.map(|pid| pid.to_string());
    let port = args.program.port.map(|port| port.to_string());
    let line = line.option("--app-cpu", cpu.as_deref()).option("--pid", pid.as_deref());
    line.option("--port", port.as_deref()).option("--unit", args.program.unit.as_deref())
}
