//! `prove --against`: two builds of Wirepath as two arms of one experiment.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use model::{Arm, ArmKind, Load, Measurement, PathError, Restarts, Session};
use remote::Failure;
use sys::child::{Child, Place};

use crate::trials::{EXCHANGE, Hello, Reply, TrialsArgs};

/// Limit for the start of a program: building its lab, and loading its programs.
const START: Duration = Duration::from_secs(120);

/// A process with a lab of its own for each arm, all started anew every few blocks.
///
/// Two starts of one program differ, by its memory layout among others. The control has a process of its own, so that
/// the A/A pair contains this difference, as the pair of old and new does; and new starts turn it into noise.
pub(crate) struct Builds {
    files: [PathBuf; 3],
    args: Vec<String>,
    limit: Duration,
    /// Empty once they could not be started anew.
    programs: Vec<Program>,
    restarts: Restarts,
    /// Number of the present start, from 1.
    start: u32,
    /// Reason why they could not be started anew.
    failure: Option<String>,
}

impl Builds {
    pub(crate) fn start(old: &Path, path: &str, load: &Load, arm: &Arm) -> Result<Self, Failure> {
        let this = std::env::current_exe()?;
        let mut builds = Builds {
            files: [old.to_owned(), old.to_owned(), this],
            args: TrialsArgs::of(path, load, arm),
            limit: load.trial * 10 + Duration::from_secs(60),
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
        let starting: Vec<Starting> = (self.files.iter())
            .map(|file| Starting::spawn(file, &self.args))
            .collect::<Result<_, _>>()?;
        for (starting, file) in starting.into_iter().zip(&self.files) {
            self.programs.push(starting.finish(file, self.limit)?);
        }
        self.restarts.started(begun.elapsed() / self.files.len() as u32);
        self.start += 1;
        Ok(())
    }

    pub(crate) fn old_version(&self) -> &str {
        self.programs.first().map_or("", |old| &old.hello.version)
    }
}

impl Session for Builds {
    fn trial(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        let has_ended = |program: &Program| program.child.is_none();
        // Without one of them there is nothing to compare: the run is given up.
        if self.failure.is_some() || self.programs.iter().any(has_ended) {
            let why = self.failure.as_deref().unwrap_or("a program of this run has ended");
            return Err(PathError::at(arm.name.as_str(), why));
        }
        let place = match arm.kind {
            ArmKind::Baseline | ArmKind::Peer => 0,
            ArmKind::Control => 1,
            ArmKind::Variant => 2,
        };
        let begun = Instant::now();
        let measured = self.programs[place].trial();
        self.restarts.ran(begun.elapsed());
        let measured = measured.map_err(|why| PathError::at(arm.name.as_str(), why))?;
        Ok(Measurement { start: Some(self.start), ..measured })
    }

    fn begin_block(&mut self) {
        let has_ended = |program: &Program| program.child.is_none();
        if self.failure.is_some() || self.programs.iter().any(has_ended) || !self.restarts.is_due()
        {
            return;
        }
        self.failure =
            self.start_all().err().map(|why| format!("not started anew: {}", why.text()));
    }

    fn nic(&self) -> String {
        self.programs.last().map_or_else(String::new, |new| new.hello.nic.clone())
    }
}

/// A program that builds its lab.
struct Starting {
    child: Child,
    requests: UnixStream,
}

impl Starting {
    fn spawn(file: &Path, args: &[String]) -> Result<Self, Failure> {
        let (requests, stdin) = UnixStream::pair()?;
        let mut command = Command::new(file);
        command.args(args);
        let child = Child::spawn_on(command, &Place::default(), OwnedFd::from(stdin).into())?;
        Ok(Starting { child, requests })
    }

    /// Waits until the program can run trials.
    fn finish(self, file: &Path, limit: Duration) -> Result<Program, Failure> {
        let Starting { mut child, requests } = self;
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
