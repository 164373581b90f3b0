//! `prove --runs`: a series of runs, and the earlier ones that it is compared with.

use std::ffi::OsString;
use std::process::Command;
use std::time::{Duration, Instant};

use model::{Arm, ArmKind, By, Ended, Outcome, Support};
use sys::child::{Child, Place};

use crate::context::Context;
use crate::exit::Failure;
use crate::prove::{Proof, ProveArgs, Proven};
use crate::{console, machine, results, signals};

/// Runs the experiment as often as asked, until it is interrupted.
///
/// Each run has a process of its own: its memory layout moves figures by some per cent, and runs of one
/// process would share it.
pub(crate) fn repeat(context: &Context, args: &ProveArgs) -> Result<Vec<Proven>, Failure> {
    let begun = Instant::now();
    let mut proven = Vec::new();
    for at in 0..args.runs {
        let due = args.every.map_or(Duration::ZERO, |every| every * at);
        while begun.elapsed() < due && !signals::stop_requested() {
            std::thread::sleep(Duration::from_millis(50));
        }
        if signals::stop_requested() {
            break;
        }
        console::say(&format!("run {} of {}", at + 1, args.runs));
        let outcome = in_own_process(&arguments(context, args, at))?;
        let is_last = outcome.ended == Ended::Interrupted;
        proven.push(Proven { outcome, is_stored: !args.run.limits.no_history, gave_up: false });
        if is_last {
            break;
        }
    }
    Ok(proven)
}

/// Runs this program with `prove --json`, and passes an interruption on.
fn in_own_process(arguments: &[OsString]) -> Result<Outcome, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments);
    let mut child = Child::spawn(command, &Place::default())?;
    let mut is_told = false;
    let ended = loop {
        if let Some(ended) = child.wait(Duration::from_millis(100))? {
            break ended;
        }
        if signals::stop_requested() && !is_told {
            child.interrupt();
            is_told = true;
        }
    };
    let said = String::from_utf8_lossy(&ended.stderr);
    let why = said.lines().find_map(|line| line.strip_prefix("error: ")).unwrap_or(said.trim());
    match ended.status.code() {
        Some(0) => Ok(serde_json::from_slice(&ended.stdout)?),
        Some(2) => Err(Failure::Usage(why.to_owned())),
        Some(3) => Err(Failure::Unsupported(why.to_owned())),
        _ => Err(Failure::failed(why)),
    }
}

/// Arguments of one run of a series.
fn arguments(context: &Context, args: &ProveArgs, at: u32) -> Vec<OsString> {
    let mut all: Vec<OsString> = vec!["prove".into(), args.path.clone().into(), "--json".into()];
    let mut add = |name: &str, value: Option<OsString>| {
        all.extend(value.into_iter().flat_map(|value| [name.into(), value]));
    };
    let run = &args.run;
    let text = |value: String| Some(OsString::from(value));
    let duration = |time: Duration| OsString::from(format!("{}us", time.as_micros()));
    add("--arms", args.arms.clone().map(Into::into));
    add("--peers", (!args.peers.is_empty()).then(|| args.peers.join(",").into()));
    add("--against", args.against.clone().map(Into::into));
    add("--load", run.load.clone().map(Into::into));
    add("--time", Some(duration(run.limits.time)));
    add("--size", run.size.and_then(|size| text(size.to_string())));
    add("--rate", run.rate.and_then(|rate| text(rate.to_string())));
    add("--trial", run.trial.map(duration));
    add("--seed", run.limits.seed.and_then(|seed| text((seed + u64::from(at)).to_string())));
    add("--min-blocks", run.limits.min_blocks.and_then(|blocks| text(blocks.to_string())));
    add("--max-blocks", run.limits.max_blocks.and_then(|blocks| text(blocks.to_string())));
    for (name, value) in run.far.words() {
        add(name, value);
    }
    add("--data-dir", context.data_dir.clone().map(Into::into));
    if run.limits.no_history {
        all.push("--no-history".into());
    }
    all
}

/// Prints the ids of a series in the form that `--baseline` takes.
pub(crate) fn say(proven: &[Proven]) {
    if proven.len() > 1 && proven.iter().all(|run| run.is_stored) {
        let ids: Vec<&str> = proven.iter().map(|run| run.outcome.id.as_str()).collect();
        console::say(&format!("to compare later runs with these: --baseline {}", ids.join(",")));
    }
}

/// Loads the experiments to compare with. Errors: they are not comparable, or `--fail-on` has too few
/// runs for a verdict; both are refused before anything is measured.
pub(crate) fn earlier(
    context: &Context,
    args: &ProveArgs,
    proof: &Proof<'_>,
) -> Result<Option<Vec<Outcome>>, Failure> {
    let Some(wanted) = &args.baseline.baseline else { return Ok(None) };
    let olds = results::series(&results::open_reading(context)?, wanted)?;
    for old in &olds {
        model::comparable(old, "this run", proof.path, &proof.load)
            .map_err(|e| Failure::Usage(e.to_string()))?;
    }
    let here = machine::here();
    check_machine(&olds, &here.id, args.baseline.any_machine)?;
    let Some(by) = args.baseline.fail_on.map(results::by) else { return Ok(Some(olds)) };
    let counts = |arm: &Arm| match arm.kind {
        ArmKind::Control => false,
        ArmKind::Baseline => by == By::Value,
        _ => true,
    };
    let arms = proof.arms.iter().filter(|(arm, can)| counts(arm) && *can == Support::Yes).count();
    let needed = model::runs_needed(arms * proof.judged.len());
    if olds.len().min(args.runs as usize) < needed {
        return Err(Failure::Usage(format!(
            "--fail-on needs at least {needed} runs a side for a verdict on {arms} arms by {} figures; \
             here are {} earlier and {} new runs: give --runs {needed}, a baseline of {needed} runs \
             (ID,ID,… or 'PREFIX*'), or fewer arms",
            proof.judged.len(),
            olds.len(),
            args.runs
        )));
    }
    Ok(Some(olds))
}

/// Errors: an earlier run is of another machine.
fn check_machine(earlier: &[Outcome], here: &str, any_machine: bool) -> Result<(), Failure> {
    match earlier.iter().find(|old| old.machine.id != here) {
        Some(old) if !any_machine => Err(Failure::Usage(format!(
            "{} ran on another machine, or on this one before its kernel, CPUs, memory or governor \
             changed; run the baseline again here, or compare anyway with --any-machine \
             (and --fail-on less-worth)",
            old.id
        ))),
        _ => Ok(()),
    }
}
