//! `prove --against`: two builds of Wirepath as two arms of one experiment.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use model::{Arm, ArmKind, Load, Measurement, PathError, Session, Support};
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

/// A process with a lab of its own for each arm.
///
/// Two starts of one program differ, by its memory layout among others. The control has a process of its own, so that
/// the A/A pair contains this difference, as the pair of old and new does.
pub(crate) struct Builds {
    old: Program,
    again: Program,
    new: Program,
}

impl Builds {
    pub(crate) fn start(old: &Path, path: &str, load: &Load, arm: &Arm) -> Result<Self, Failure> {
        let this = std::env::current_exe()?;
        let args = TrialsArgs::of(path, load, arm);
        let limit = load.trial * 10 + Duration::from_secs(60);
        let start = |file: &Path| Program::start(file, &args, limit);
        Ok(Builds { old: start(old)?, again: start(old)?, new: start(&this)? })
    }

    pub(crate) fn old_version(&self) -> &str {
        &self.old.hello.version
    }
}

impl Session for Builds {
    fn trial(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        let has_ended = |program: &Program| program.child.is_none();
        if [&self.old, &self.again, &self.new].into_iter().any(has_ended) {
            // Without one of them there is nothing to compare: the run is given up.
            return Err(PathError::at(arm.name.as_str(), "a program of this run has ended"));
        }
        let program = match arm.kind {
            ArmKind::Variant => &mut self.new,
            ArmKind::Control => &mut self.again,
            ArmKind::Baseline | ArmKind::Peer => &mut self.old,
        };
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
