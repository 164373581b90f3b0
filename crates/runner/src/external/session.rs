//! Trials of a stranger's program.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use host::text::{chain, printable};
use model::{Arm, Load, Measurement, PathError, Session};
use remote::RemoteError;
use remote::path::{PathAnswer, PathCall};

use super::far::{FarTrials, add};
use super::program::PathProgram;
use super::{ANSWER_TIMEOUT, OPEN_TIMEOUT, trial_timeout, unexpected};

/// Time between two looks at the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Time that a trial may take beyond its own once it was interrupted.
const INTERRUPT_GRACE: Duration = Duration::from_secs(5);
/// Longest description of an interface, characters.
const NIC_LEN_MAX: usize = 200;

/// A program that has opened what it measures.
pub(super) struct ExternalSession {
    /// `None` once it broke the contract, or ended.
    program: Option<PathProgram>,
    far: Option<FarTrials>,
    nic: String,
    trial: Duration,
    stop: &'static AtomicBool,
    /// Reason why there are no more trials.
    failure: Option<String>,
}

impl ExternalSession {
    pub(super) fn open(
        mut program: PathProgram,
        far: Option<FarTrials>,
        load: &Load,
        stop: &'static AtomicBool,
    ) -> Result<Self, PathError> {
        let point = far.as_ref().map(|far| far.point.clone());
        let opened = program.ask(&PathCall::Open { load: load.into(), far: point }, OPEN_TIMEOUT);
        let nic = match opened.map_err(PathError::part)? {
            PathAnswer::Opened { nic } => printable(&nic, NIC_LEN_MAX),
            other => return Err(unexpected(&program, &other)),
        };
        let (program, trial) = (Some(program), load.trial);
        Ok(ExternalSession { program, far, nic, trial, stop, failure: None })
    }

    /// Runs a trial at both ends; the inner error is a program's own, and the next trial may work.
    fn run(&mut self, arm: &Arm) -> Result<Result<Measurement, PathError>, RemoteError> {
        if let Some(far) = &mut self.far
            && let Err(failed) = far.begin(arm)?
        {
            return Ok(Err(failed));
        }
        let near = self.run_near(arm)?;
        let Some(far) = &mut self.far else { return Ok(near) };
        // It ends its part in any case, so that the next trial can begin.
        let far = far.end(arm)?;
        Ok(near.and_then(|mut near| {
            add(&mut near, far?);
            Ok(near)
        }))
    }

    fn run_near(&mut self, arm: &Arm) -> Result<Result<Measurement, PathError>, RemoteError> {
        let Some(program) = self.program.as_mut() else {
            return Ok(Err(PathError::at("near", "the program has ended")));
        };
        program.call(&PathCall::Trial { arm: arm.switches.names() })?;
        let mut limit = trial_timeout(self.trial);
        let mut begun = Instant::now();
        let mut is_interrupted = false;
        let answer = loop {
            let left = limit.saturating_sub(begun.elapsed());
            if let Some(answer) = program.answer(left.min(POLL_INTERVAL))? {
                break answer;
            }
            if begun.elapsed() >= limit {
                return Err(program.silent(limit));
            }
            if self.stop.load(Ordering::Relaxed) && !is_interrupted {
                is_interrupted = true;
                program.call(&PathCall::Interrupt {})?;
                (limit, begun) = (self.trial + INTERRUPT_GRACE, Instant::now());
            }
        };
        match program.measurement(answer, "near", arm)? {
            Ok(measured) => Ok(Ok(measured)),
            Err(failed @ PathAnswer::Failed(_)) => Ok(Err(unexpected(program, &failed))),
            Err(other) => Err(program.unexpected(&other)),
        }
    }
}

impl Session for ExternalSession {
    fn trial(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        if let Some(why) = &self.failure {
            return Err(PathError::at(arm.name.as_str(), why.as_str()));
        }
        self.run(arm).unwrap_or_else(|error| {
            // Its next answer might belong to this call.
            self.failure = Some(chain(&error));
            self.program = None;
            self.far = None;
            Err(PathError::part(error))
        })
    }

    fn nic(&self) -> String {
        self.nic.clone()
    }

    fn broken(&self) -> Option<String> {
        self.failure.clone()
    }
}

impl Drop for ExternalSession {
    fn drop(&mut self) {
        if let Some(program) = &mut self.program {
            // It ends with its standard input whatever it answers.
            let _ = program.ask(&PathCall::Close {}, ANSWER_TIMEOUT);
        }
        self.far.take().into_iter().for_each(FarTrials::close);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use model::{Path, Support};
    use tempfile::TempDir;

    use super::super::ExternalPath;
    use super::super::find::kept_texts;
    use super::*;

    const GREETING: &str = r#"{"wirepath":"1","exchange":1,"service":"path","path":{"contract":1,"name":"x","what":"w","loads":[{"name":"l","what":"","judged":["x_us"]}],"metrics":{"glitches":{"unit":"g","better":"higher"}}}}"#;

    /// A program that greets and opens, and then answers each trial as `body` says.
    struct Program {
        folder: TempDir,
    }

    impl Program {
        fn new(body: &str) -> Self {
            let folder = TempDir::new().expect("a folder");
            let program = Program { folder };
            let script = format!(
                "#!/bin/sh\necho '{GREETING}'\nread -r greeting\nwhile read -r line; do case $line in\n\
                 '{{\"open\"'*) echo '{{\"opened\":{{\"nic\":\"n\\u001b\"}}}}' ;;\n\
                 '{{\"close\"'*) echo '{{\"closed\":{{}}}}' ;;\n\
                 '{{\"trial\"'*) {body} ;;\nesac; done\n"
            );
            fs::write(program.file(), script).expect("written");
            fs::set_permissions(program.file(), PermissionsExt::from_mode(0o700)).expect("set");
            program
        }

        fn file(&self) -> std::path::PathBuf {
            self.folder.path().join("wirepath-x")
        }

        fn open(&self, stop: &'static AtomicBool) -> ExternalSession {
            let (program, _) = PathProgram::start(&self.file(), "x").expect("it greets");
            ExternalSession::open(program, None, &load(), stop).expect("it opens")
        }
    }

    fn load() -> Load {
        let (kind, trial) = ("l".to_owned(), Duration::from_millis(10));
        Load {
            kind,
            size_bytes: 0,
            rate_pps: 0,
            trial,
            ipv6: false,
            vlan_tag: None,
            wire: None,
            far: None,
        }
    }

    static RUNNING: AtomicBool = AtomicBool::new(false);
    static STOPPED: AtomicBool = AtomicBool::new(true);

    fn failure(session: &mut ExternalSession) -> String {
        chain(&session.trial(&Arm::baseline()).expect_err("it fails"))
    }

    #[test]
    fn metrics_have_the_units_of_the_greeting_and_a_failure_is_of_its_trial_alone() {
        let program = Program::new(
            "if [ -n \"$again\" ]; then echo '{\"measured\":{\"metrics\":{\"glitches\":3,\"x_us\":1}}}'; \
             else again=1; echo '{\"failed\":{\"failed\":\"no cable\"}}'; fi",
        );
        let mut session = program.open(&RUNNING);
        assert_eq!(session.nic(), "n");
        assert!(failure(&mut session).contains("no cable"));
        let measured = session.trial(&Arm::baseline()).expect("the second works");
        let metrics = measured.metrics();
        let glitches = metrics.iter().find(|metric| metric.name == "glitches").expect("it");
        assert_eq!((&*glitches.unit, glitches.better), ("g", model::Better::Higher));
        assert_eq!(session.broken(), None);
    }

    #[test]
    fn program_that_breaks_the_contract_gets_no_other_trial() {
        for (body, expected) in [
            ("echo lost >&2; kill -9 $$", "ended: lost"),
            ("echo nonsense", "unexpected line: \"nonsense\""),
            ("echo '{\"closed\":{}}'", "unexpected line"),
            ("echo '{\"recorded\":\"{}\"}'", "broke a rule"),
            ("echo '{\"measured\":{\"metrics\":{\"A\":1}}}'", "not a valid name of a metric"),
            ("exec cat /dev/zero", "a line of more than 8 MiB"),
        ] {
            let mut session = Program::new(body).open(&RUNNING);
            let said = failure(&mut session);
            assert!(said.contains(expected), "{body}: {said}");
            assert!(failure(&mut session).contains(&said), "{body}");
            assert!(session.broken().is_some(), "{body}");
        }
    }

    #[test]
    fn program_that_is_silent_after_an_interruption_is_ended() {
        let mut session = Program::new("exec sleep 1000").open(&STOPPED);
        assert!(failure(&mut session).contains("did not answer within 5 s"));
    }

    #[test]
    fn program_that_does_not_answer_makes_its_arms_unsupported_with_the_reason() {
        let program = Program::new("true");
        let (caller, description) = PathProgram::start(&program.file(), "x").expect("it greets");
        let texts = kept_texts(&program.file(), description.clone());
        let again = kept_texts(&program.file(), description);
        assert!(std::ptr::eq(texts, again), "kept once");
        drop(caller);
        let path = ExternalPath::new(program.file(), texts, None, &RUNNING);
        assert_eq!((path.name(), path.loads()[0].judged), ("x", &["x_us"][..]));
        fs::write(program.file(), "#!/bin/sh\necho gone >&2\n").expect("written");
        let support = path.support(&Arm::baseline(), &load());
        let Support::Unsupported { needs, .. } = &support else { panic!("{support:?}") };
        assert!(needs.contains("ended: gone"), "{needs}");
    }
}
