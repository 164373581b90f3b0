//! A running program of a path.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use host::text::printable;
use model::{Arm, Load, Measurement, Shape, Support};
use remote::path::{PathAnswer, PathCall, PathDescription, PathService, path_program};
use remote::{Caller, Failure, RemoteError};

/// Time to end once its standard input has ended.
const END_GRACE: Duration = Duration::from_secs(5);

/// Longest reason of a program, characters.
const TEXT_LEN_MAX: usize = 400;

/// A program that answers calls of a path.
#[derive(Debug)]
pub(crate) struct PathProgram {
    caller: Caller<PathService>,
    /// Units and directions of its metrics.
    shapes: BTreeMap<String, Shape>,
}

impl PathProgram {
    pub(crate) fn start(file: &Path, name: &str) -> Result<(Self, PathDescription), RemoteError> {
        let (caller, description) = path_program(file, name)?;
        Ok((PathProgram::new(caller, description.metrics.clone()), description))
    }

    pub(crate) fn new(mut caller: Caller<PathService>, shapes: BTreeMap<String, Shape>) -> Self {
        caller.set_grace(END_GRACE);
        PathProgram { caller, shapes }
    }

    /// Its name in errors.
    pub(crate) fn name(&self) -> &str {
        self.caller.name()
    }

    /// Version of the program.
    pub(crate) fn version(&self) -> &str {
        &self.caller.greeting().wirepath
    }

    pub(crate) fn call(&mut self, call: &PathCall) -> Result<(), RemoteError> {
        self.caller.call(call)
    }

    /// Waits at most `limit` for the next answer. Errors: there is none by then, or it ended.
    pub(crate) fn expect_answer(&mut self, limit: Duration) -> Result<PathAnswer, RemoteError> {
        self.caller.expect_answer(limit)
    }

    /// Waits at most `within` for the next answer; `None` if there is none yet.
    pub(crate) fn answer(&mut self, within: Duration) -> Result<Option<PathAnswer>, RemoteError> {
        self.caller.answer(within)
    }

    /// Has a call answered.
    pub(crate) fn ask(
        &mut self,
        call: &PathCall,
        limit: Duration,
    ) -> Result<PathAnswer, RemoteError> {
        self.call(call)?;
        self.expect_answer(limit)
    }

    /// Support for an arm; the inner error is its own.
    pub(crate) fn support(
        &mut self,
        arm: &Arm,
        load: &Load,
        limit: Duration,
    ) -> Result<Result<Support, Failure>, RemoteError> {
        let call = PathCall::Support { arm: arm.switches.names(), load: load.into() };
        match self.ask(&call, limit)? {
            PathAnswer::Support(support) => Ok(Ok(printable_support(support))),
            PathAnswer::Failed(failure) => Ok(Err(failure)),
            other => Err(self.unexpected(&other)),
        }
    }

    pub(crate) fn unexpected(&self, answer: &PathAnswer) -> RemoteError {
        self.caller.unexpected(answer)
    }

    pub(crate) fn silent(&self, limit: Duration) -> RemoteError {
        self.caller.silent(limit)
    }

    pub(crate) fn broke_rule(&self, why: impl Into<String>) -> RemoteError {
        self.caller.broke_rule(why)
    }

    /// The measurement of an answer; `None` if it is not one.
    ///
    /// - `end`: `near` or `far`.
    ///
    /// Errors: it breaks a rule of the contract.
    pub(crate) fn measurement(
        &self,
        answer: PathAnswer,
        end: &str,
        arm: &Arm,
    ) -> Result<Result<Measurement, PathAnswer>, RemoteError> {
        let read = match answer {
            PathAnswer::Measured(report) => {
                report.measurement(end, &arm.switches.names()).map_err(|error| error.to_string())
            }
            PathAnswer::Recorded(line) => {
                report::store::from_line(&line).map_err(|error| error.to_string())
            }
            other => return Ok(Err(other)),
        };
        let mut measurement = read.map_err(|why| self.broke_rule(why))?;
        let figures = &measurement.figures;
        let named = self.shapes.iter().filter(|(name, _)| figures.contains_key(*name));
        let named: Vec<_> = named.map(|(name, shape)| (name.clone(), shape.clone())).collect();
        measurement.shapes.extend(named);
        Ok(Ok(measurement))
    }
}

/// The answer with texts that are safe to print.
fn printable_support(support: Support) -> Support {
    match support {
        Support::Yes => Support::Yes,
        Support::Unsupported { what, needs } => Support::Unsupported {
            what: printable(&what, TEXT_LEN_MAX),
            needs: printable(&needs, TEXT_LEN_MAX),
        },
        Support::Refused { why } => Support::Refused { why: printable(&why, TEXT_LEN_MAX) },
    }
}
