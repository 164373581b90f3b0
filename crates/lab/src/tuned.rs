//! Settings of a plan as arms of an experiment.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use host::text::chain;
use host::tune::{self, Applied, Done, JournalStore, Options, Plan, System};
use model::{Arm, Machine, Measurement, NotEffective, PathError, Session, SwitchId, SwitchSet};

use crate::Wire;

/// Settings of one namespace and its host that are applied through the journal for one trial, and rolled
/// back at its end.
pub struct TrialSettings {
    system: System,
    store: JournalStore,
    /// Confirmation timeout: settings of a killed trial are rolled back after this time, if its
    /// process cannot be distinguished from one that waits.
    within: Duration,
    stop: &'static AtomicBool,
    broken: Option<String>,
}

impl TrialSettings {
    /// - `trial`: measured part of one trial.
    /// - `stop`: interrupts the application of settings.
    pub fn new(
        system: System,
        store: JournalStore,
        trial: Duration,
        stop: &'static AtomicBool,
    ) -> Self {
        let within = Duration::from_secs(60) + trial * 4;
        TrialSettings { system, store, within, stop, broken: None }
    }

    /// Reason why trials are no longer valid, if a rollback failed or another process interfered.
    pub fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// Applies a plan, runs `trial` and rolls back. Returns the settings that changed, too.
    ///
    /// Errors: the plan cannot be applied, or not be rolled back; later trials are invalid then.
    pub fn around<R>(
        &mut self,
        plan: &Plan,
        trial: impl FnOnce() -> Result<R, PathError>,
    ) -> Result<(R, Vec<Done>), PathError> {
        if let Some(why) = &self.broken {
            return Err(invalid(why));
        }
        let applied = self.apply(plan).map_err(|error| invalid(chain(&error)))?;
        let measured = trial();
        if let Err(why) = self.roll_back() {
            self.broken = Some(why.clone());
            return Err(invalid(why));
        }
        let measured = measured?;
        match applied {
            Applied::Done { steps, .. } => Ok((measured, steps)),
            _ => Err(invalid("every setting already had its value")),
        }
    }

    fn apply(&self, plan: &Plan) -> Result<Applied, tune::ApplyError> {
        let (confirm_within, watch) = (Some(self.within), &mut |_| {});
        let options = Options { stop: self.stop, confirm_within, owner: None, watch };
        tune::apply(&self.system, plan, &self.store, options)
    }

    /// Rolls back the applied settings. Errors: the reason why later trials are invalid.
    fn roll_back(&self) -> Result<(), String> {
        let root = self.system.place().root.as_deref();
        let rolled_back = self
            .store
            .lock()
            .map_err(tune::RollbackError::from)
            .and_then(|lock| tune::rollback(&self.store, &lock, root, "the trial is over"));
        let report = rolled_back.map_err(|error| {
            format!(
                "cannot roll back settings: {}; tried again when this command ends, and by \
                 `wirepath tune rollback`",
                chain(&error)
            )
        })?;
        if let Some(why) = report.failure() {
            return Err(format!("rollback is incomplete: {why}"));
        }
        match report.foreign().next() {
            None => Ok(()),
            Some(setting) => Err(format!(
                "{} on {} was changed by another process during the run; its value was kept and \
                 later trials are invalid",
                setting.knob, setting.target
            )),
        }
    }
}

/// A session whose arms are knobs of a plan: each trial applies them through the journal, and rolls
/// them back at its end.
pub struct TunedSession {
    inner: Box<dyn Session>,
    /// Joined to the plan's namespace; removed after the session.
    _wires: Vec<Wire>,
    plan: Plan,
    settings: TrialSettings,
}

impl TunedSession {
    /// A session that applies parts of `plan` around the trials of `inner`.
    ///
    /// - `wires`: kept as long as the session.
    pub fn new(
        inner: Box<dyn Session>,
        wires: Vec<Wire>,
        plan: Plan,
        settings: TrialSettings,
    ) -> Self {
        TunedSession { inner, _wires: wires, plan, settings }
    }

    /// Applies the whole plan once and rolls it back, before time is spent on its parts.
    pub fn try_once(&self) -> Result<(), PathError> {
        if self.plan.steps.is_empty() {
            return Ok(());
        }
        self.settings.apply(&self.plan).map_err(PathError::part)?;
        self.settings.roll_back().map_err(|why| PathError::Part(why.into()))
    }

    /// True for a knob of the plan; other switches are the inner session's.
    fn is_of_plan(&self, id: &SwitchId) -> bool {
        self.plan.steps.iter().any(|step| step.knob == id.as_str())
    }

    fn part(&self, knobs: &[SwitchId]) -> Plan {
        let mut part = self.plan.clone();
        part.steps.retain(|step| knobs.iter().any(|knob| knob.as_str() == step.knob));
        part.left_out.clear();
        part
    }
}

fn invalid(why: impl Into<String>) -> PathError {
    PathError::at("settings", why.into())
}

impl Session for TunedSession {
    fn broken(&self) -> Option<String> {
        self.settings.broken().map(str::to_owned).or_else(|| self.inner.broken())
    }

    fn trial(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        if let Some(why) = self.settings.broken() {
            return Err(invalid(why));
        }
        if arm.switches.is_empty() {
            return self.inner.trial(&Arm::baseline());
        }
        let part = self.part(&arm.switches);
        let (of_plan, others): (Vec<&SwitchId>, Vec<&SwitchId>) =
            arm.switches.iter().partition(|id| self.is_of_plan(id));
        let others: SwitchSet = others.into_iter().cloned().collect();
        let of_inner = if others.is_empty() {
            Arm::baseline()
        } else {
            Arm::variant(arm.name.clone(), others)
        };
        let inner = &mut self.inner;
        if part.steps.is_empty() {
            return inner.trial(&of_inner);
        }
        let (mut measured, steps) = self.settings.around(&part, || inner.trial(&of_inner))?;
        let set: BTreeSet<&str> = steps.iter().map(|step| step.knob.as_str()).collect();
        measured.counters.insert("settings_changed_count".into(), steps.len() as u64);
        for knob in of_plan.into_iter().filter(|knob| !set.contains(knob.as_str())) {
            measured.not_effective.push(NotEffective::new(knob.clone(), "it was already set"));
        }
        Ok(measured)
    }

    fn seed(&mut self, seed: u64) {
        self.inner.seed(seed);
    }

    fn begin_block(&mut self) {
        self.inner.begin_block();
    }

    fn nic(&self) -> String {
        self.inner.nic()
    }

    fn far_machine(&self) -> Option<Machine> {
        self.inner.far_machine()
    }
}
