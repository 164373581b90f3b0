//! Two builds of Wirepath as two arms of one experiment.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use host::text::chain;
use model::{
    Arm, ArmKind, ArmPlan, Load, LoadRequest, Measurement, PathError, PathRequest, Restarts,
    Session,
};
use remote::work::{Answer, Call, Host};
use remote::{Caller, Failure, RemoteError};

use crate::load::{check_support, find_load, requested_load};

/// Time limit for the start of a program: building its lab, and loading its programs.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// A process with a lab of its own for each arm, all started anew every few blocks.
///
/// Two starts of one program differ, by its memory layout among others. The control has a process of its own, so that
/// the A/A pair contains this difference, as the pair of old and new does; and new starts turn it into noise.
pub(crate) struct Builds {
    files: [PathBuf; 3],
    /// Opens the lab of each.
    open: Call,
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
    pub(crate) fn start(old: &Path, path: &str, load: &Load, arm: &Arm) -> Result<Self, Failure> {
        let this = std::env::current_exe()?;
        let mut builds = Builds {
            files: [old.to_owned(), old.to_owned(), this],
            open: Call::Open(Box::new(one_arm_request(path, load, arm))),
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
        let mut starting = Vec::new();
        for file in &self.files {
            let mut caller = Caller::program(file).map_err(|error| match error {
                RemoteError::Child(_) => error.into(),
                other => not_of_this_exchange(file, &chain(&other)),
            })?;
            caller.call(&self.open)?;
            starting.push((caller, file));
        }
        for (mut caller, file) in starting {
            let nic = match caller.expect_answer(START_TIMEOUT) {
                Ok(Answer::Opened { nic }) => nic,
                Ok(Answer::Failed(failure)) => {
                    return Err(not_of_this_exchange(file, failure.text()));
                }
                Ok(other) => return Err(caller.unexpected(&other).into()),
                Err(error) => return Err(not_of_this_exchange(file, &chain(&error))),
            };
            self.programs.push(RunningBuild { caller: Some(caller), nic, limit: self.limit });
        }
        self.restarts.started(begun.elapsed() / self.files.len() as u32);
        self.start += 1;
        Ok(())
    }

    /// Version of the old program.
    pub(crate) fn old_version(&self) -> &str {
        let old = self.programs.first().and_then(|old| old.caller.as_ref());
        old.map_or("", |old| &old.greeting().wirepath)
    }

    /// True if one of the programs did not answer.
    fn has_ended(&self) -> bool {
        self.programs.iter().any(|program| program.caller.is_none())
    }
}

fn not_of_this_exchange(file: &Path, why: &str) -> Failure {
    Failure::Usage(format!(
        "{} cannot run trials for this Wirepath: {why}; give a build that has `wirepath answer host`, with the same \
         path and switches",
        file.display()
    ))
}

/// The request for trials of one arm.
fn one_arm_request(path: &str, load: &Load, arm: &Arm) -> PathRequest {
    let Load { kind, size_bytes, rate_pps, trial, ipv6, vlan_tag, far } = load.clone();
    let arms = if arm.switches.is_empty() { "baseline".into() } else { arm.switches.joined() };
    // A load whose messages have sizes of their own takes none, and one without a schedule no rate.
    let (size_bytes, rate_pps) =
        ((size_bytes > 0).then_some(size_bytes), (rate_pps > 0).then_some(rate_pps));
    let (kind, trial) = (Some(kind), Some(trial));
    let load = LoadRequest { kind, size_bytes, rate_pps, trial, ipv6, vlan_tag, far, replay: None };
    PathRequest { path: path.to_owned(), load, arms, ..PathRequest::default() }
}

/// Opens the lab of a path in one of the builds, for trials of the only arm of the request.
pub fn open_arm(
    path: &dyn model::Path,
    request: &PathRequest,
) -> Result<(Box<dyn Session>, Arm), Failure> {
    let kind = find_load(path, request.load.kind.as_deref())?;
    let load = requested_load(path, kind, &request.load)?;
    let arm = ArmPlan::parse_one(&request.arms, &model::ids(path.switches()));
    let arm = arm.map_err(Failure::usage)?;
    check_support(&path.support(&arm, &load))?;
    Ok((path.open(&load)?, arm))
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
        let measured = self.programs[place].trial();
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

/// A build of Wirepath that runs trials.
struct RunningBuild {
    /// `None` once it did not answer.
    caller: Option<Caller<Host>>,
    /// The interface under test.
    nic: String,
    limit: Duration,
}

impl RunningBuild {
    fn trial(&mut self) -> Result<Measurement, String> {
        let caller = self.caller.as_mut().ok_or("the program has ended")?;
        let asked = caller.call(&Call::Trial);
        match asked.and_then(|()| caller.expect_answer(self.limit)) {
            Ok(Answer::Measured(line)) => {
                report::store::from_line(&line).map_err(|e| format!("unreadable answer: {e}"))
            }
            Ok(Answer::Failed(failure)) => Err(failure.into_text()),
            Ok(other) => Err(chain(&caller.unexpected(&other))),
            Err(error) => {
                // Its next answer might belong to this call.
                self.caller = None;
                Err(chain(&error))
            }
        }
    }
}
