//! `--runs`: a series of runs, and the earlier ones that it is compared with.

use std::ffi::{OsStr, OsString};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;
use model::{Arm, ArmKind, By, Ended, Outcome, RunComparison, Support, Unit};
use remote::Failure;
use schemars::JsonSchema;
use serde::Serialize;
use sys::child::{Child, Place};

use crate::context::Context;
use crate::experiment::{Document, Proof, Proven};
use crate::shared_args::{BaselineArgs, LimitArgs, parse_duration};
use crate::{console, machine, results, signals};

/// Repetition of a whole experiment.
#[derive(Debug, Clone, Args)]
pub(crate) struct SeriesArgs {
    /// Repeat the whole experiment, each time in a new process and lab; a comparison between runs needs at
    /// least 5 sessions
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) runs: u32,
    /// Time from the start of one run to the start of the next; default: one after the other
    #[arg(long, value_name = "TIME", requires = "runs", value_parser = parse_duration)]
    every: Option<Duration>,
}

impl SeriesArgs {
    /// Fewest units that the runs of this series will be.
    fn unit_count(&self, unit: Unit, proof: &Proof<'_>) -> usize {
        const DAY: Duration = Duration::from_secs(86_400);
        const SESSION_GAP: Duration = Duration::from_millis(model::SESSION_GAP_MS as u64);
        let every = self.every.unwrap_or_default();
        let runs = self.runs as usize;
        let run_ms = proof.load.get("time_ms").and_then(|text| text.parse().ok()).unwrap_or(0);
        match unit {
            Unit::Run => runs,
            Unit::Session if every >= SESSION_GAP + Duration::from_millis(run_ms) => runs,
            Unit::Session => 1,
            Unit::Day => {
                let span = every * self.runs.saturating_sub(1);
                runs.min((span.as_secs() / DAY.as_secs()) as usize + 1)
            }
        }
    }
}

/// Document of `--json` with `--runs`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SeriesDocument<'a> {
    /// Every run, oldest first, each as the document of a single run.
    pub(crate) runs: Vec<Document<'a>>,
    /// Comparison of these runs with the earlier ones of `--baseline`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) comparison: Option<&'a RunComparison>,
}

/// Options that belong to a whole series, with a value each.
const OF_SERIES: [&str; 5] = ["--runs", "--every", "--seed", "--baseline", "--unit"];
/// Options of a gate between series, with a value each; its resolution is also that of each run. A gate within each run belongs to that run.
const OF_BASELINE: [&str; 1] = ["--fail-on"];
/// Options that belong to a whole series, without a value.
const FLAGS_OF_SERIES: [&str; 4] = ["--json", "--any-machine", "--live", "--accept-undecided"];

/// Runs the experiment of this command line as often as asked, until it is interrupted.
///
/// - `is_gated`: each run has a gate of its own.
///
/// Each run has a process of its own: its memory layout moves figures by some per cent, and runs of one
/// process would share it.
pub(crate) fn repeat(
    series: &SeriesArgs,
    limits: &LimitArgs,
    is_gated: bool,
) -> Result<Vec<Proven>, Failure> {
    let begun = Instant::now();
    let mut proven = Vec::new();
    for at in 0..series.runs {
        let due = series.every.map_or(Duration::ZERO, |every| every * at);
        while begun.elapsed() < due && !signals::stop_requested() {
            std::thread::sleep(Duration::from_millis(50));
        }
        if signals::stop_requested() {
            break;
        }
        console::say(&format!("run {} of {}", at + 1, series.runs));
        let mut arguments = of_one_run(std::env::args_os().skip(1), is_gated);
        if let Some(seed) = limits.seed {
            let seed = seed.wrapping_add(u64::from(at)).to_string();
            arguments.extend(["--seed".into(), OsString::from(seed)]);
        }
        let outcome = in_own_process(&arguments)?;
        let is_last = outcome.ended == Ended::Interrupted;
        proven.push(Proven { outcome, is_stored: !limits.no_history, gave_up: false });
        if is_last {
            break;
        }
    }
    match proven.is_empty() {
        true => Err(Failure::Interrupted("interrupted before the first run".into())),
        false => Ok(proven),
    }
}

/// Arguments of one run of the series that these order.
fn of_one_run(all: impl IntoIterator<Item = OsString>, is_gated: bool) -> Vec<OsString> {
    let is_of_series =
        |name: &str| OF_SERIES.contains(&name) || (!is_gated && OF_BASELINE.contains(&name));
    let mut kept = Vec::new();
    let mut all = all.into_iter();
    while let Some(word) = all.next() {
        let text = word.to_string_lossy();
        if is_of_series(&text) {
            all.next();
            continue;
        }
        let name = text.split_once('=').map_or(&*text, |(name, _)| name);
        if !is_of_series(name) && !FLAGS_OF_SERIES.contains(&&*text) {
            kept.push(word);
        }
    }
    kept.push(OsStr::new("--json").to_owned());
    kept
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
        // The answer of its gate, or its interruption, is that of the document.
        Some(4 | 5 | signals::INTERRUPTED_EXIT_CODE) if !ended.stdout.is_empty() => {
            Ok(serde_json::from_slice(&ended.stdout)?)
        }
        Some(signals::INTERRUPTED_EXIT_CODE) => Err(Failure::Interrupted(why.to_owned())),
        Some(2) => Err(Failure::Usage(why.to_owned())),
        Some(3) => Err(Failure::Unsupported(why.to_owned())),
        _ => Err(Failure::failed(why)),
    }
}

/// Prints a series, and fails if one of its runs has no verdict.
///
/// - `document`: that of one run.
pub(crate) fn show<'a>(
    context: &Context,
    proven: &'a [Proven],
    document: impl Fn(&'a Proven) -> Document<'a>,
) -> Result<(), Failure> {
    if context.json {
        let runs = proven.iter().map(document).collect();
        console::json(&SeriesDocument { runs, comparison: None })?;
    } else if let Some(last) = proven.last() {
        console::text(&report::text::ladder(&last.outcome, console::style()))?;
        let outcomes: Vec<Outcome> = proven.iter().map(|run| run.outcome.clone()).collect();
        console::text(&report::text::repeated(&outcomes, console::style()))?;
        last.say_where();
        say(proven);
    }
    proven.iter().try_for_each(Proven::verdict)
}

/// Prints the ids of a series in the form that `--baseline` takes.
pub(crate) fn say(proven: &[Proven]) {
    if proven.len() > 1 && proven.iter().all(|run| run.is_stored) {
        let ids: Vec<&str> = proven.iter().map(|run| run.outcome.id.as_str()).collect();
        console::say(&format!("to compare later runs with these: --baseline {}", ids.join(",")));
    }
}

/// Loads the experiments to compare with. Errors: they are not comparable, or `--fail-on` has too few
/// sessions for a verdict; both are refused before anything is measured.
pub(crate) fn earlier(
    context: &Context,
    args: &BaselineArgs,
    series: &SeriesArgs,
    proof: &Proof<'_>,
) -> Result<Option<Vec<Outcome>>, Failure> {
    let Some(wanted) = &args.baseline else { return Ok(None) };
    let olds = results::named(context, wanted)?;
    for old in &olds {
        model::comparable(old, "this run", proof.path, &proof.load)
            .map_err(|e| Failure::Usage(e.to_string()))?;
    }
    let here = machine::here();
    check_machine(&olds, &here.id, args.any_machine)?;
    let Some(by) = args.fail_on.map(results::by) else { return Ok(Some(olds)) };
    let counts = |arm: &Arm| match arm.kind {
        ArmKind::Control => false,
        ArmKind::Baseline => by == By::Value,
        _ => true,
    };
    let arms = proof.arms.iter().filter(|(arm, can)| counts(arm) && *can == Support::Yes).count();
    let needed = model::runs_needed(arms * proof.judged.len());
    let unit = args.unit.unit();
    let (old, new) = (model::sessions(&olds, unit).len(), series.unit_count(unit, proof));
    if old.min(new) < needed {
        let remedy = match unit {
            Unit::Run => format!("give --runs {needed}"),
            Unit::Session => format!(
                "the day cannot be told from the change; runs less than an hour apart are one session: give --runs \
                 {needed} --every 2h, run both states in one run with --against"
            ),
            Unit::Day => format!(
                "the day cannot be told from the change: give --runs {needed} --every 24h, run both states in one \
                 run with --against"
            ),
        };
        return Err(Failure::Usage(format!(
            "--fail-on needs at least {needed} {0}s a side for a verdict on {arms} arms by {1} figures; here are \
             {old} earlier and {new} new {0}s: {remedy}, a baseline of {needed} {0}s (ID,ID,… or 'PREFIX*'), or \
             fewer arms",
            unit.name(),
            proof.judged.len(),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn one_run(text: &str) -> String {
        let is_gated = text.contains("--against");
        let words = of_one_run(text.split(' ').map(OsString::from), is_gated);
        words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_run_of_a_series_has_its_arguments_but_those_of_the_series() {
        assert_eq!(
            one_run(
                "prove probe --runs 5 --arms spin --every=10m --seed 7 --json --fail-on worse --resolve 2%"
            ),
            "prove probe --arms spin --resolve 2% --json"
        );
        assert_eq!(
            one_run("--data-dir d prove command --arm a=x --seed=3 --any-machine --baseline a,b"),
            "--data-dir d prove command --arm a=x --json"
        );
        assert_eq!(
            one_run(
                "prove probe --runs 5 --against old --fail-on worse --resolve=2% --accept-undecided"
            ),
            "prove probe --against old --fail-on worse --resolve=2% --json"
        );
    }
}
