//! Processes of this program that do the work of a host: children of this one, and ends by ssh.

use std::time::{Duration, Instant};

use fleet::book::Measured;
use host::exclusive::OF_FLEET;
use house::signals;
use remote::work::{self, Answer, Call};
use remote::{Caller, Failure, FarOptions};
use runner::Proven;
use sys::child::ChildPlace;

use super::hosts::Host;
use crate::running::Folders;

pub(super) type HostCaller = Caller<work::Host>;

/// Time between two signs of life; a host without three of them counts as silent.
const BEAT_INTERVAL: Duration = Duration::from_secs(10);
/// Time between two looks at signals: with the signs of life, an agent wakes less than once a second beside a
/// measurement. Answers are seen at once.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Time limit for a step of a roll-out.
pub(super) const STEP_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit for the start of an echo, and for the pings of one pair, which end by themselves after a minute.
pub(super) const PAIR_TIMEOUT: Duration = Duration::from_secs(80);
/// Time for an experiment to end after Ctrl-C.
const STOP_GRACE: Duration = Duration::from_secs(30);

/// Starts the process of a host, in its namespace.
///
/// - `options`: of the ssh client.
/// - `folders`: for a process of this machine.
pub(super) fn start(
    host: &Host,
    options: &FarOptions<'_>,
    folders: Folders<'_>,
) -> Result<HostCaller, Failure> {
    if let Host::Ssh(host) = host {
        return Ok(Caller::ssh(host, options)?);
    }
    let mut command = folders.program();
    command.env(OF_FLEET, "1");
    let netns = host.netns()?;
    let mut caller = Caller::command(command, &ChildPlace { netns: netns.as_ref(), cpus: &[] })?;
    caller.set_grace(STOP_GRACE);
    Ok(caller)
}

/// Time limit for the answer to a call.
pub(super) fn time_limit(call: &Call) -> Duration {
    let seconds = |count: u32| Duration::from_secs(count.into());
    match call {
        Call::RunAlone(request) => request.time_limit(),
        // Both periods, and the search for the service before them.
        Call::Cross(crossing) => STEP_TIMEOUT + 2 * Duration::from_millis(crossing.period_ms),
        Call::Echo(echo) => PAIR_TIMEOUT + seconds(echo.until.map_or(0, |until| until.wait_s)),
        Call::Ping(ping) => PAIR_TIMEOUT + seconds(ping.wait_s),
        _ => STEP_TIMEOUT,
    }
}

/// Has a host answer a call. Ctrl-C ends the wait, but not for a step: steps also roll back.
///
/// - `beat`: called every few seconds meanwhile.
///
/// Errors: the host cannot be reached or does not answer in time; or interrupted.
pub(super) fn ask(
    caller: &mut HostCaller,
    call: &Call,
    limit: Duration,
    beat: &mut dyn FnMut(),
) -> Result<Answer, Failure> {
    caller.call(call)?;
    let (begun, mut beaten) = (Instant::now(), Instant::now());
    loop {
        let left = limit.saturating_sub(begun.elapsed());
        match caller.answer(POLL_INTERVAL.min(left))? {
            // An echo has another answer at its end.
            None | Some(Answer::Ready) => {}
            Some(answer) => return Ok(answer),
        }
        if !matches!(call, Call::Step(_)) {
            signals::check_stop()?;
        }
        if beaten.elapsed() >= BEAT_INTERVAL {
            beaten = Instant::now();
            beat();
        }
        if begun.elapsed() >= limit {
            return Err(Failure::failed(format!("no end within {} s", limit.as_secs())));
        }
    }
}

/// Result of a call as text: an outcome and round trips as JSON. Errors: it failed, or has no verdict.
pub(super) fn result_text(answer: Answer) -> Result<String, Failure> {
    match answer {
        Answer::Done(text) | Answer::Drifted(text) => Ok(text),
        Answer::Pinged(cell) => Ok(serde_json::to_string(&cell)?),
        Answer::Crossed(crossed) => Ok(serde_json::to_string(&crossed)?),
        Answer::Failed(failure) => Err(failure),
        Answer::Ran(ran) => {
            let proven = Proven::from(*ran);
            proven.verdict(signals::stop_requested())?;
            Ok(serde_json::to_string(&proven.outcome)?)
        }
        Answer::Ready => Err(Failure::failed("it answered another call")),
    }
}

/// Has a host do the work of a job, to its end.
///
/// - `beat`: called every few seconds meanwhile.
pub(super) fn measure(
    host: &Host,
    options: &FarOptions<'_>,
    folders: Folders<'_>,
    call: &Call,
    beat: &mut dyn FnMut(),
) -> Measured {
    let answered = start(host, options, folders)
        .and_then(|mut caller| ask(&mut caller, call, time_limit(call), beat));
    match answered.and_then(result_text) {
        Ok(body) => Measured::Done(body),
        Err(Failure::Unsupported(why)) => Measured::Refused(why),
        Err(failure) => Measured::Failed(failure.into_text()),
    }
}
