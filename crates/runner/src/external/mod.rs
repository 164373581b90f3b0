//! Paths of strangers: programs named `wirepath-NAME` in PATH, which run their own trials.

mod far;
mod find;
mod program;
mod session;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use host::text::{chain, printable};
use lab::FarEnd;
use model::{
    Arm, Load, LoadKind, PathError, Session, Support, SwitchId, SwitchSpec, TwoHosts, ids,
};
use remote::path::{PathAnswer, far_path};
use remote::{Failure, FarOptions};

use self::far::FarTrials;
pub use self::find::{external_names, external_program};
pub(crate) use self::program::PathProgram;
use self::session::ExternalSession;

/// Time limit for the start of a program: building its lab, and loading its programs.
pub(crate) const OPEN_TIMEOUT: Duration = Duration::from_secs(120);
/// Time for an answer that takes no trial.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest text of a failure, characters.
const FAILURE_LEN_MAX: usize = 1000;

/// A path whose trials a stranger's program runs.
#[derive(Debug)]
pub struct ExternalPath {
    file: PathBuf,
    texts: &'static find::PathTexts,
    /// Answers if arms are possible: `None` while it is not needed, and the reason once it no longer answers.
    asked: RefCell<Result<Option<PathProgram>, String>>,
    stop: &'static AtomicBool,
}

impl ExternalPath {
    /// Starts the program `wirepath-NAME` of PATH, and reads its description of the path. `None` if there is none.
    ///
    /// - `stop`: ends a trial under way early.
    ///
    /// Errors: the program breaks a rule of the contract.
    pub fn find(name: &str, stop: &'static AtomicBool) -> Result<Option<Self>, Failure> {
        let Some(file) = external_program(name) else { return Ok(None) };
        let (program, description) = PathProgram::start(&file, name)?;
        let texts = find::kept_texts(&file, description);
        Ok(Some(ExternalPath::new(file, texts, Some(program), stop)))
    }

    fn new(
        file: PathBuf,
        texts: &'static find::PathTexts,
        program: Option<PathProgram>,
        stop: &'static AtomicBool,
    ) -> Self {
        ExternalPath { file, texts, asked: RefCell::new(Ok(program)), stop }
    }

    fn ask(&self, arm: &Arm, load: &Load) -> Result<Support, String> {
        let mut asked = self.asked.borrow_mut();
        let running = asked.as_mut().map_err(|why| why.clone())?;
        let answered = match running {
            Some(program) => program.support(arm, load, ANSWER_TIMEOUT),
            None => PathProgram::start(&self.file, self.texts.name).and_then(|(program, _)| {
                running.insert(program).support(arm, load, ANSWER_TIMEOUT)
            }),
        };
        match answered {
            Ok(answered) => answered.map_err(|failure| printable(failure.text(), FAILURE_LEN_MAX)),
            Err(error) => {
                let why = chain(&error);
                *asked = Err(why.clone());
                Err(why)
            }
        }
    }

    fn open_far(&self, load: &Load, two: &TwoHosts) -> Result<FarTrials, PathError> {
        let name = self.texts.name;
        if !self.texts.has_far_end {
            return Err(PathError::Invalid {
                what: format!("path {name} runs on one host"),
                remedy: "leave out the far end".into(),
            });
        }
        let end: FarEnd = two.end.parse().map_err(PathError::part)?;
        let options = FarOptions {
            address: two.address,
            ipv6: load.ipv6,
            ifname: two.ifname.as_deref(),
            secret: None,
            ssh_options: &two.ssh_options,
        };
        let started = far_path(&end, &options, &self.file, name);
        let (caller, address) = started.map_err(PathError::part)?;
        FarTrials::open(PathProgram::new(caller, self.texts.shapes.clone()), load, address)
    }
}

impl model::Path for ExternalPath {
    fn name(&self) -> &'static str {
        self.texts.name
    }

    fn what(&self) -> &'static str {
        self.texts.what
    }

    fn switches(&self) -> &'static [SwitchSpec] {
        self.texts.switches
    }

    fn ladder(&self, _load: &Load) -> Vec<SwitchId> {
        ids(self.texts.switches)
    }

    fn loads(&self) -> &'static [LoadKind] {
        self.texts.loads
    }

    fn support(&self, arm: &Arm, load: &Load) -> Support {
        match self.ask(arm, load) {
            Ok(support) => support,
            Err(why) => Support::unsupported(format!("path {}", self.texts.name), why),
        }
    }

    fn open(&self, load: &Load) -> Result<Box<dyn Session>, PathError> {
        // Beside a measurement runs nothing that is not needed.
        if let Ok(running) = self.asked.borrow_mut().as_mut() {
            *running = None;
        }
        let (program, _) =
            PathProgram::start(&self.file, self.texts.name).map_err(PathError::part)?;
        let far = load.far.as_ref().map(|two| self.open_far(load, two)).transpose()?;
        Ok(Box::new(ExternalSession::open(program, far, load, self.stop)?))
    }

    fn program(&self) -> Option<&Path> {
        Some(&self.file)
    }
}

/// Time limit for a trial, of which the load has a given length.
pub(crate) fn trial_timeout(trial: Duration) -> Duration {
    trial.saturating_mul(10).saturating_add(Duration::from_secs(60))
}

/// Answer of another call, as an error of the program that sent it.
fn unexpected(program: &PathProgram, answer: &PathAnswer) -> PathError {
    match answer {
        PathAnswer::Failed(failure) => {
            PathError::at(program.name(), printable(failure.text(), FAILURE_LEN_MAX))
        }
        other => PathError::part(program.unexpected(other)),
    }
}
