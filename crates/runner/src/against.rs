//! Two builds of one program as two arms of an experiment: of Wirepath, or of a stranger's path.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use host::text::chain;
use model::{Arm, ArmKind, Load, Measurement, PathError, Restarts, Session, Support};
use remote::path::{PathAnswer, PathCall, RequestedLoad};
use remote::{Failure, RemoteError};

use crate::external::{OPEN_TIMEOUT, PathProgram, trial_timeout};
use crate::load::check_support;

/// A process with a lab of its own for each arm, all started anew every few blocks.
///
/// Two starts of one program differ, by its memory layout among others. The control has a process of its own, so that
/// the A/A pair contains this difference, as the pair of old and new does; and new starts turn it into noise.
pub(crate) struct Builds {
    files: [PathBuf; 3],
    path: &'static str,
    load: RequestedLoad,
    /// Switches that are on in each.
    arm: Vec<String>,
    limit: Duration,
    /// Empty once they could not be started anew.
    programs: Vec<RunningBuild>,
    restarts: Restarts,
    /// Number of the present start, from 1.
    start: u32,
    /// Reason why they could not be started anew.
    failure: Option<String>,
}

impl Builds {
    pub(crate) fn start(
        old: &Path,
        path: &dyn model::Path,
        load: &Load,
        arm: &Arm,
    ) -> Result<Self, Failure> {
        if !old.exists() && old.components().count() > 1 {
            let old = old.display();
            return Err(Failure::Usage(format!("there is no program {old} for --against")));
        }
        let new = match path.program() {
            Some(program) => program.to_owned(),
            None => std::env::current_exe()?,
        };
        let mut builds = Builds {
            files: [old.to_owned(), old.to_owned(), new],
            path: path.name(),
            load: load.into(),
            arm: arm.switches.names(),
            limit: trial_timeout(load.trial),
            programs: Vec::new(),
            restarts: Restarts::new(1),
            start: 0,
            failure: None,
        };
        builds.start_all()?;
        Ok(builds)
    }

    /// Ends the programs, and starts all of them at once: a block then has starts of the same age.
    fn start_all(&mut self) -> Result<(), Failure> {
        let begun = Instant::now();
        self.programs.clear();
        let support = PathCall::Support { arm: self.arm.clone(), load: self.load.clone() };
        let open = PathCall::Open { load: self.load.clone(), far: None };
        let mut starting = Vec::new();
        for file in &self.files {
            let started = PathProgram::start(file, self.path).map_err(|error| match error {
                RemoteError::Child(_) => error.into(),
                other => self.cannot_run(file, &chain(&other)),
            });
            let (mut program, _) = started?;
            program.call(&support)?;
            program.call(&open)?;
            starting.push((program, file));
        }
        for (mut program, file) in starting {
            match self.opening_answer(&mut program, file)? {
                PathAnswer::Support(Support::Refused { why }) => {
                    return Err(self.cannot_run(file, &why));
                }
                PathAnswer::Support(support) => check_support(&support)?,
                other => return Err(program.unexpected(&other).into()),
            }
            let nic = match self.opening_answer(&mut program, file)? {
                PathAnswer::Opened { nic } => nic,
                other => return Err(program.unexpected(&other).into()),
            };
            self.programs.push(RunningBuild { program: Some(program), nic, limit: self.limit });
        }
        self.restarts.started(begun.elapsed() / self.files.len() as u32);
        self.start += 1;
        Ok(())
    }

    /// The next answer of a program that starts. Errors: there is none, or the program failed.
    fn opening_answer(
        &self,
        program: &mut PathProgram,
        file: &Path,
    ) -> Result<PathAnswer, Failure> {
        match program.expect_answer(OPEN_TIMEOUT) {
            Ok(PathAnswer::Failed(failure)) => Err(self.cannot_run(file, failure.text())),
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.cannot_run(file, &chain(&error))),
        }
    }

    /// Error of a program that does not run trials of this path.
    fn cannot_run(&self, file: &Path, why: &str) -> Failure {
        let path = self.path;
        Failure::Usage(format!(
            "{} cannot run trials for this Wirepath: {why}; give a build that has `answer path {path}`, with the same \
             switches",
            file.display()
        ))
    }

    /// Version of the old program.
    pub(crate) fn old_version(&self) -> &str {
        let old = self.programs.first().and_then(|old| old.program.as_ref());
        old.map_or("", PathProgram::version)
    }

    /// True if one of the programs did not answer.
    fn has_ended(&self) -> bool {
        self.programs.iter().any(|program| program.program.is_none())
    }
}

impl Session for Builds {
    fn trial(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        // Without one of them there is nothing to compare: the run is given up.
        if self.failure.is_some() || self.has_ended() {
            let why = self.failure.as_deref().unwrap_or("a program of this run has ended");
            return Err(PathError::at(arm.name.as_str(), why));
        }
        let place = match arm.kind {
            ArmKind::Baseline | ArmKind::Peer => 0,
            ArmKind::Control => 1,
            ArmKind::Variant => 2,
        };
        let begun = Instant::now();
        let measured = self.programs[place].trial(arm);
        self.restarts.ran(begun.elapsed());
        let measured = measured.map_err(|why| PathError::at(arm.name.as_str(), why))?;
        Ok(Measurement { start: Some(self.start), ..measured })
    }

    fn begin_block(&mut self) {
        if self.failure.is_some() || self.has_ended() || !self.restarts.is_due() {
            return;
        }
        self.failure =
            self.start_all().err().map(|why| format!("not started anew: {}", why.text()));
    }

    fn nic(&self) -> String {
        self.programs.last().map_or_else(String::new, |new| new.nic.clone())
    }
}

/// A build that runs trials.
struct RunningBuild {
    /// `None` once it did not answer.
    program: Option<PathProgram>,
    /// The interface under test.
    nic: String,
    limit: Duration,
}

impl RunningBuild {
    fn trial(&mut self, arm: &Arm) -> Result<Measurement, String> {
        let program = self.program.as_mut().ok_or("the program has ended")?;
        let answer = program.ask(&PathCall::Trial { arm: arm.switches.names() }, self.limit);
        match answer.and_then(|answer| program.measurement(answer, "near", arm)) {
            Ok(Ok(measured)) => Ok(measured),
            Ok(Err(PathAnswer::Failed(failure))) => Err(failure.into_text()),
            Ok(Err(other)) => Err(chain(&program.unexpected(&other))),
            Err(error) => {
                // Its next answer might belong to this call.
                self.program = None;
                Err(chain(&error))
            }
        }
    }
}
