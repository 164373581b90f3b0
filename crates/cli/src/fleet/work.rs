//! Steps of a roll-out that a host does: `wirepath tune` as a child.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use clap::Parser;
use host::exclusive::OF_FLEET;
use remote::Failure;
use remote::{FarJob, FarOptions};
use serde::{Deserialize, Serialize};
use sys::child::{Child, Place, this_program};

use super::experiment::Running;
use super::hosts::Host;
use crate::args::Cli;

/// Options of `tune prove` that the roll-out or the host sets.
const NOT_OF_A_LOAD: [&str; 7] =
    ["--state", "--root", "--data-dir", "--json", "--rebase", "--arms", "--runs"];

/// Beginning of every roll-out's id, under which hosts keep its settings.
pub(super) const OWNER: &str = "rollout-";

/// One step on one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "work", rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Work {
    /// Measures with and without the plan in turn, or only without it.
    Measure {
        plan: String,
        has_plan: bool,
        /// Of `tune prove`.
        arguments: Vec<String>,
    },
    /// Applies the plan, and runs until it is confirmed or rolled back.
    Apply {
        plan: String,
        within_ms: u64,
        /// Id of the roll-out: settings that were not applied for it are left alone.
        owner: String,
    },
    /// Postpones the rollback.
    Extend {
        within_ms: u64,
        owner: String,
    },
    /// Compares the settings with the plan.
    Verify {
        plan: String,
    },
    Confirm {
        owner: String,
    },
    /// Confirms, and ends the journal.
    Keep {
        owner: String,
    },
    RollBack {
        owner: String,
    },
}

impl Work {
    /// Errors: arguments that are no load of `tune prove`.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let Work::Measure { arguments, .. } = self else { return Ok(()) };
        let name =
            |word: &String| word.split_once('=').map_or(word.clone(), |(name, _)| name.into());
        if let Some(word) = arguments.iter().map(name).find(|word| NOT_OF_A_LOAD.contains(&&**word))
        {
            return Err(Failure::Usage(format!(
                "{word} cannot be given behind `--` of `fleet rollout`: only the load of `tune prove` and its limits \
                 belong there"
            )));
        }
        let words = ["wirepath".to_owned()].into_iter().chain(self.arguments(None));
        Cli::try_parse_from(words).map(drop).map_err(|error| {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            Failure::Usage(line.trim_start_matches("error: ").to_owned())
        })
    }

    /// True if nothing else may be measured on the machine meanwhile.
    pub(super) fn measures(&self) -> bool {
        matches!(self, Work::Measure { .. })
    }

    /// Name for the log of an agent.
    #[cfg(feature = "fleet")]
    pub(super) fn name(&self) -> &'static str {
        match self {
            Work::Measure { has_plan: true, .. } => "measures with and without the plan",
            Work::Measure { .. } => "measures without the plan",
            Work::Apply { .. } => "applies the plan, unconfirmed",
            Work::Extend { .. } => "postpones the rollback",
            Work::Verify { .. } => "compares with the plan",
            Work::Confirm { .. } => "confirms the plan",
            Work::Keep { .. } => "keeps the plan",
            Work::RollBack { .. } => "rolls back",
        }
    }

    /// The step that postpones the rollback of this one; `None` unless it applies a plan.
    pub(super) fn extension(&self) -> Option<Work> {
        match self {
            Work::Apply { within_ms, owner, .. } => {
                Some(Work::Extend { within_ms: *within_ms, owner: owner.clone() })
            }
            _ => None,
        }
    }

    pub(super) fn plan(&self) -> Option<&str> {
        match self {
            Work::Measure { plan, .. } | Work::Apply { plan, .. } | Work::Verify { plan } => {
                Some(plan)
            }
            _ => None,
        }
    }

    pub(super) fn owner(&self) -> Option<&str> {
        match self {
            Work::Apply { owner, .. }
            | Work::Extend { owner, .. }
            | Work::Confirm { owner }
            | Work::Keep { owner }
            | Work::RollBack { owner } => Some(owner),
            Work::Measure { .. } | Work::Verify { .. } => None,
        }
    }

    /// Arguments of this program.
    fn arguments(&self, state: Option<&Path>) -> Vec<String> {
        let within = |ms: &u64| format!("{ms}ms");
        let own: Vec<String> = match self {
            Work::Measure { has_plan, arguments, .. } => {
                let arms = if *has_plan { "plan" } else { "none" };
                let prove = ["prove", "-", "--rebase", "--json", "--arms", arms];
                prove.into_iter().map(str::to_owned).chain(arguments.iter().cloned()).collect()
            }
            Work::Apply { within_ms, .. } => {
                vec![
                    "apply".into(),
                    "-".into(),
                    "--rebase".into(),
                    "--confirm-within".into(),
                    within(within_ms),
                ]
            }
            Work::Extend { within_ms, .. } => {
                vec!["confirm".into(), "--extend".into(), within(within_ms)]
            }
            Work::Verify { .. } => vec!["verify".into(), "-".into(), "--rebase".into()],
            Work::Confirm { .. } => vec!["confirm".into()],
            Work::Keep { .. } => vec!["confirm".into(), "--forget".into()],
            Work::RollBack { .. } => vec!["rollback".into(), "--if-applied".into()],
        };
        let mut all = vec!["tune".to_owned()];
        if let Some(state) = state {
            all.extend(["--state".into(), state.to_string_lossy().into_owned()]);
        }
        all.extend(own);
        if let Some(owner) = self.owner() {
            all.extend(["--owner".into(), owner.to_owned()]);
        }
        all
    }

    /// Starts it on this machine.
    ///
    /// - `state`: folder of the journal; `None` for that of the machine.
    /// - `data`: folder of the results; `None` for that of the user.
    pub(super) fn spawn(
        &self,
        state: Option<&Path>,
        data: Option<&Path>,
    ) -> Result<Child, Failure> {
        let mut command = this_program();
        command.args(self.arguments(state)).env(OF_FLEET, "1");
        if let Some(data) = data {
            command.arg("--data-dir").arg(data);
        }
        let Some(plan) = self.plan() else {
            return Ok(Child::spawn_on(command, &Place::default(), Stdio::null())?);
        };
        let (stdin, mut writer) = std::io::pipe()?;
        let child = Child::spawn_on(command, &Place::default(), stdin.into())?;
        // A child that ended already says why.
        let _ = writer.write_all(plan.as_bytes());
        Ok(child)
    }

    /// Starts it on a host.
    pub(super) fn start(
        &self,
        host: &Host,
        ssh_options: &[String],
        state: Option<&Path>,
        data: Option<&Path>,
    ) -> Result<Running, Failure> {
        let Host::Ssh(far) = host else {
            return Ok(Running::Child(self.spawn(state, data)?));
        };
        let line = serde_json::to_string(self)?;
        let options = FarOptions { ssh_options, ..FarOptions::default() };
        Ok(Running::Far(FarJob::start(far, &options, &line)?))
    }
}
