//! `prove --against`: two builds of Wirepath as two arms of one experiment.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use model::{
    Arm, ArmKind, ArmOutcome, Ended, Load, Measurement, MetricOutcome, Outcome, PathError, Session,
    Support, Verdict,
};
use sys::child::{Child, Place};

use crate::exit::Failure;
use crate::trials::{EXCHANGE, Hello, Reply, TrialsArgs};

/// Limit for the start of a program: building its lab, and loading its programs.
const START: Duration = Duration::from_secs(120);

const OLD: &str = "old";
const NEW: &str = "new";

/// The arms: the old program twice, for the A/A pair, and the new one, with the same switches.
pub(crate) fn arms(arm: &Arm) -> Vec<(Arm, Support)> {
    [(OLD, ArmKind::Baseline), ("old again", ArmKind::Control), (NEW, ArmKind::Variant)]
        .map(|(name, kind)| {
            (Arm { name: name.into(), kind, switches: arm.switches.clone() }, Support::Yes)
        })
        .into()
}

/// Both programs, each with a lab of its own.
pub(crate) struct Builds {
    old: Program,
    new: Program,
}

impl Builds {
    pub(crate) fn start(old: &Path, path: &str, load: &Load, arm: &Arm) -> Result<Self, Failure> {
        let this = std::env::current_exe()?;
        let args = TrialsArgs::of(path, load, arm);
        let limit = load.trial * 10 + Duration::from_secs(60);
        let start = |file: &Path| Program::start(file, &args, limit);
        Ok(Builds { old: start(old)?, new: start(&this)? })
    }

    pub(crate) fn old_version(&self) -> &str {
        &self.old.hello.version
    }
}

impl Session for Builds {
    fn trial(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        let (program, other) = match arm.kind {
            ArmKind::Variant => (&mut self.new, &self.old),
            _ => (&mut self.old, &self.new),
        };
        if other.child.is_none() {
            // Without one of them there is nothing to compare: the run is given up.
            return Err(PathError::at(arm.name.as_str(), "the other program has ended"));
        }
        program.trial().map_err(|why| PathError::at(arm.name.as_str(), why))
    }

    fn nic(&self) -> String {
        self.new.hello.nic.clone()
    }
}

/// A build of Wirepath that runs trials on request.
struct Program {
    /// `None` once it did not answer.
    child: Option<Child>,
    requests: UnixStream,
    hello: Hello,
    limit: Duration,
}

impl Program {
    fn start(file: &Path, args: &[String], limit: Duration) -> Result<Self, Failure> {
        let (requests, stdin) = UnixStream::pair()?;
        let mut command = Command::new(file);
        command.args(args);
        let mut child = Child::spawn_on(command, &Place::default(), OwnedFd::from(stdin).into())?;
        let line = child.take_line(START).unwrap_or_default();
        match serde_json::from_slice::<Hello>(&line) {
            Ok(hello) if hello.trials == EXCHANGE => {
                Ok(Program { child: Some(child), requests, hello, limit })
            }
            _ => {
                let ended = child.wait(Duration::from_secs(1))?;
                let said = ended.map(|ended| ended.stderr).unwrap_or_default();
                let said = String::from_utf8_lossy(&said);
                Err(Failure::Usage(format!(
                    "{} cannot run trials for this Wirepath: {:?}; give a build that has \
                     `wirepath trials`, with the same path and switches",
                    file.display(),
                    said.lines().next().unwrap_or("it answered nothing")
                )))
            }
        }
    }

    fn trial(&mut self) -> Result<Measurement, String> {
        let reply = self.ask();
        if reply.is_err() {
            // Its next answer might belong to this request.
            self.child = None;
        }
        match reply? {
            Reply::Measured(line) => {
                report::store::from_line(&line).map_err(|e| format!("unreadable answer: {e}"))
            }
            Reply::Failed(why) => Err(why),
        }
    }

    fn ask(&mut self) -> Result<Reply, String> {
        let ended = || "the program has ended".to_owned();
        let child = self.child.as_ref().ok_or_else(ended)?;
        self.requests.write_all(b"\n").map_err(|_| ended())?;
        let limit = self.limit.as_secs();
        let line = child.take_line(self.limit);
        let line = line.ok_or_else(|| format!("it ended, or did not answer within {limit} s"))?;
        serde_json::from_slice(&line).map_err(|e| format!("unreadable answer: {e}"))
    }
}

/// Judges a finished run for `--fail-on`.
///
/// - `least`: smallest ratio above 1 that counts.
/// - `base`: name of the baseline in messages.
///
/// Errors: an arm is worse, or the run cannot tell.
pub(crate) fn judge(outcome: &Outcome, least: f64, base: &str) -> Result<(), Failure> {
    let undecided = |why: &str| {
        Err(Failure::Usage(format!("--fail-on cannot decide: {why}; run again on a quiet machine")))
    };
    let arms: Vec<&ArmOutcome> =
        outcome.arms.iter().filter(|arm| arm.kind == ArmKind::Variant).collect();
    if arms.is_empty() {
        return undecided("an arm is missing");
    }
    if !outcome.distrusted().is_empty() {
        return undecided(&format!("{base} differs from itself"));
    }
    let with = |verdict| {
        let of = |name: &String| {
            let of_arm =
                |arm: &&ArmOutcome| Some((arm.name.clone(), arm.metrics.get(name)?.clone()));
            let found: Vec<_> = arms.iter().filter_map(of_arm).collect();
            found.into_iter().map(|(arm, metric)| (name.clone(), arm, metric)).collect::<Vec<_>>()
        };
        let judged: Vec<(String, String, MetricOutcome)> =
            outcome.judged.iter().flat_map(of).collect();
        judged.into_iter().filter(move |(_, _, metric)| metric.verdict == Some(verdict))
    };
    // With one arm its name says nothing new.
    let named = |name: String, arm: String| match arms.len() {
        1 => name,
        _ => format!("{name} of {arm}"),
    };
    // Without a ratio most trials of the arm failed.
    let is_beyond =
        |metric: &MetricOutcome| metric.ratio.is_none_or(|r| model::is_beyond(r, least));
    let worse: Vec<String> = with(Verdict::Worse)
        .filter(|(_, _, metric)| is_beyond(metric))
        .map(|(name, arm, _)| named(name, arm))
        .collect();
    if !worse.is_empty() {
        return Err(Failure::Threshold(format!("worse than {base}: {}", worse.join(", "))));
    }
    let failing =
        arms.iter().find(|arm| arm.reliability.as_ref().is_some_and(|seen| seen.fails_more));
    if let Some(arm) = failing {
        return Err(Failure::Threshold(format!("{} fails more trials than {base}", arm.name)));
    }
    if matches!(outcome.ended, Ended::Interrupted | Ended::Unfinished) {
        return undecided("the run did not reach its planned end");
    }
    match with(Verdict::Refused).next() {
        Some((name, arm, _)) => undecided(&format!("{} has no figure", named(name, arm))),
        None => Ok(()),
    }
}
