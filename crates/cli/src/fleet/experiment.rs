//! One experiment on one host: a child with `prove --json`.

use std::time::{Duration, Instant};

use fleet::book::Measured;
use host::exclusive::OF_FLEET;
use model::Outcome;
use remote::Failure;
use remote::{FarJob, FarOptions};
use sys::child::{Child, Finished, Place, this_program};

use super::hosts::Host;
use crate::shared_args::parse_duration;
use crate::signals;

/// Time between two signs of life; a host without three of them counts as silent.
pub(super) const BEAT: Duration = Duration::from_secs(10);
/// Time between two looks at signals: with the signs of life, the agent wakes less than once a second beside a
/// measurement. Its end is seen at once.
pub(super) const LOOK: Duration = Duration::from_secs(2);
/// Default of `--time`.
const TIME: Duration = Duration::from_secs(60);
/// Time for what a measurement does beside its trials.
const SPARE: Duration = Duration::from_secs(600);

/// A program that runs on a host.
#[derive(Debug)]
pub(super) enum Running {
    /// On this machine.
    Child(Child),
    /// By ssh; it ends with its standard input.
    Far(FarJob),
}

impl Running {
    /// Waits at most `timeout` for its end.
    pub(super) fn wait(&mut self, timeout: Duration) -> Result<Option<Finished>, Failure> {
        Ok(match self {
            Running::Child(child) => child.wait(timeout)?,
            Running::Far(job) => job.wait(timeout)?,
        })
    }
}

/// Runs `prove` with these arguments on a host, to its end.
///
/// - `ssh_options`: of the ssh client, each as for its `-o`.
/// - `beat`: called every few seconds meanwhile.
pub(super) fn measure(
    host: &Host,
    ssh_options: &[String],
    arguments: &[String],
    beat: &mut dyn FnMut(),
) -> Measured {
    let limit = limit(arguments);
    let ended =
        start(host, ssh_options, arguments).and_then(|running| finish(running, limit, beat));
    match ended {
        Ok(finished) => measured(&finished),
        Err(failure) => Measured::Failed(failure.text().to_owned()),
    }
}

fn start(host: &Host, ssh_options: &[String], arguments: &[String]) -> Result<Running, Failure> {
    if let Host::Ssh(far) = host {
        let line = serde_json::to_string(arguments)?;
        return Ok(Running::Far(FarJob::start(
            far,
            &FarOptions { ssh_options, ..FarOptions::default() },
            &line,
        )?));
    }
    let netns = host.netns()?;
    Ok(Running::Child(spawn(arguments, &Place { netns: netns.as_ref(), cpus: &[] })?))
}

/// Starts this program with `prove` and these arguments.
pub(super) fn spawn(arguments: &[String], place: &Place<'_>) -> Result<Child, Failure> {
    let mut command = this_program();
    command.arg("prove").args(arguments).env(OF_FLEET, "1");
    Ok(Child::spawn(command, place)?)
}

/// Limit for a measurement with these arguments: `--time` limits its trials, and labs on a busy machine take more.
/// A series (`--runs`) has none.
pub(super) fn limit(arguments: &[String]) -> Duration {
    if arguments.iter().any(|word| word == "--runs" || word.starts_with("--runs=")) {
        return Duration::MAX;
    }
    let mut words = arguments.iter();
    let given = words.by_ref().find_map(|word| match word.strip_prefix("--time") {
        Some("") => Some(None),
        Some(rest) => rest.strip_prefix('=').map(Some),
        None => None,
    });
    let text = given.and_then(|text| text.or_else(|| words.next().map(String::as_str)));
    let time = text.and_then(|text| parse_duration(text).ok()).unwrap_or(TIME);
    time.saturating_mul(2).saturating_add(SPARE)
}

fn finish(
    mut running: Running,
    limit: Duration,
    beat: &mut dyn FnMut(),
) -> Result<Finished, Failure> {
    let (begun, mut beaten) = (Instant::now(), Instant::now());
    let mut is_told = false;
    loop {
        if let Some(ended) = running.wait(LOOK)? {
            return Ok(ended);
        }
        if signals::stop_requested() && !is_told {
            is_told = true;
            match &mut running {
                Running::Child(child) => child.interrupt(),
                // Its experiment ends with its standard input.
                Running::Far(_) => return Err(Failure::Interrupted("interrupted".into())),
            }
        }
        if beaten.elapsed() >= BEAT {
            beaten = Instant::now();
            beat();
        }
        if begun.elapsed() >= limit {
            return Err(Failure::failed(format!("no end within {} s", limit.as_secs())));
        }
    }
}

/// Reason of a program's failure, by its last words.
pub(super) fn reason(finished: &Finished) -> String {
    let said = String::from_utf8_lossy(&finished.stderr);
    let why = said.lines().find_map(|line| line.strip_prefix("error: ")).unwrap_or(said.trim());
    if why.is_empty() { "ended without a message".to_owned() } else { why.to_owned() }
}

fn measured(finished: &Finished) -> Measured {
    let why = reason(finished);
    match finished.status.code() {
        Some(0) => document(&finished.stdout),
        Some(3) => Measured::Refused(why),
        _ => Measured::Failed(why),
    }
}

fn document(stdout: &[u8]) -> Measured {
    match outcome(stdout) {
        Ok((body, _)) => Measured::Done(body),
        Err(why) => Measured::Failed(why),
    }
}

/// Output of `prove --json` as text and as read. Lines before it are those of a login shell.
pub(super) fn outcome(stdout: &[u8]) -> Result<(String, Outcome), String> {
    let text = String::from_utf8_lossy(stdout);
    let begin = text.lines().take_while(|line| *line != "{").map(|line| line.len() + 1).sum();
    let body = text.get(begin..).unwrap_or_default();
    let outcome = serde_json::from_str::<Outcome>(body);
    let outcome = outcome.map_err(|error| format!("its document cannot be read: {error}"))?;
    Ok((body.to_owned(), outcome))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use sys::child::ChildUsage;

    use super::*;

    fn ended(code: i32, stdout: &str, stderr: &str) -> Finished {
        Finished {
            status: ExitStatus::from_raw(code << 8),
            stdout: stdout.into(),
            stderr: stderr.into(),
            usage: ChildUsage::default(),
        }
    }

    #[test]
    fn limit_of_a_measurement_follows_its_time() {
        let of = |text: &str| limit(&text.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(of("probe --load ping").as_secs(), 720);
        assert_eq!(of("probe --time 5m --json").as_secs(), 1200);
        assert_eq!(of("--time=10s").as_secs(), 620);
        assert_eq!(of("probe --time").as_secs(), 720);
        assert_eq!(of("probe --runs 6 --time 10s"), Duration::MAX);
    }

    #[test]
    fn end_of_an_experiment_is_told_by_code_and_document() {
        let refused = measured(&ended(3, "", "note\nerror: no XDP here: needs root\n"));
        assert_eq!(refused, Measured::Refused("no XDP here: needs root".into()));
        let failed = measured(&ended(1, "", ""));
        assert_eq!(failed, Measured::Failed("ended without a message".into()));
        let Measured::Failed(why) = measured(&ended(0, "welcome\n{\n}\n", "")) else {
            panic!("no outcome")
        };
        assert!(why.contains("missing field"), "{why}");
    }
}
