//! Settings of a plan as arms of an experiment.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use host::text::chain;
use host::tune::{self, Applied, Done, Options, Plan, Ready, Store, System};
use model::{Arm, Machine, Measurement, NotEffective, PathError, Session, Support, SwitchId};

use crate::Wire;

pub const WHOLE_PLAN: &str = "plan";

/// Knobs that a plan changes, in its order. The settings of one knob on several queues count once.
pub fn changed_knobs(ready: &[Ready]) -> Vec<&'static str> {
    let mut knobs = Vec::new();
    for step in ready.iter().filter(|step| !step.is_done()) {
        if !knobs.contains(&step.knob.id()) {
            knobs.push(step.knob.id());
        }
    }
    knobs
}

/// Arms that add one knob at a time; the last is the whole plan.
pub fn ladder_of_plan(knobs: &[&str]) -> Vec<(Arm, Support)> {
    plan_arms(knobs, (1..knobs.len()).map(|n| (format!("+{}", knobs[n - 1]), &knobs[..n])))
}

/// Arms of each knob alone, and of the whole plan.
pub fn each_of_plan(knobs: &[&str]) -> Vec<(Arm, Support)> {
    plan_arms(knobs, knobs.chunks(1).map(|one| (one[0].to_owned(), one)))
}

/// The whole plan as the only arm.
pub fn whole_plan(knobs: &[&str]) -> Vec<(Arm, Support)> {
    plan_arms(knobs, std::iter::empty())
}

/// The baseline and its control: no setting is touched.
pub fn without_plan() -> Vec<(Arm, Support)> {
    [Arm::baseline(), Arm::control()].map(|arm| (arm, Support::Yes)).to_vec()
}

fn plan_arms<'a>(
    knobs: &[&str],
    parts: impl Iterator<Item = (String, &'a [&'a str])>,
) -> Vec<(Arm, Support)> {
    let set = |knobs: &[&str]| knobs.iter().map(|&knob| SwitchId::named(knob)).collect();
    let mut arms = vec![Arm::baseline(), Arm::control()];
    // A single knob is the whole plan.
    if knobs.len() > 1 {
        arms.extend(parts.map(|(name, part)| Arm::variant(name, set(part))));
    }
    arms.push(Arm::variant(WHOLE_PLAN, set(knobs)));
    arms.into_iter().map(|arm| (arm, Support::Yes)).collect()
}

/// Settings of one namespace and its host that are applied through the journal for one trial, and rolled
/// back at its end.
pub struct TrialSettings {
    system: System,
    store: Store,
    /// Confirmation timeout: settings of a killed trial are rolled back after this time, if its
    /// process cannot be distinguished from one that waits.
    within: Duration,
    stop: &'static AtomicBool,
    broken: Option<String>,
}

impl TrialSettings {
    /// - `trial`: measured part of one trial.
    /// - `stop`: interrupts the application of settings.
    pub fn new(system: System, store: Store, trial: Duration, stop: &'static AtomicBool) -> Self {
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

    /// Reason why trials are no longer valid, if a rollback failed or another process interfered.
    pub fn broken(&self) -> Option<&str> {
        self.settings.broken()
    }

    /// Applies the whole plan once and rolls it back, before time is spent on its parts.
    pub fn try_once(&self) -> Result<(), PathError> {
        self.settings.apply(&self.plan).map_err(PathError::part)?;
        self.settings.roll_back().map_err(|why| PathError::Part(why.into()))
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
    fn trial(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        if let Some(why) = self.settings.broken() {
            return Err(invalid(why));
        }
        if arm.switches.is_empty() {
            return self.inner.trial(&Arm::baseline());
        }
        let part = self.part(&arm.switches);
        let inner = &mut self.inner;
        let (mut measured, steps) =
            self.settings.around(&part, || inner.trial(&Arm::baseline()))?;
        let set: BTreeSet<&str> = steps.iter().map(|step| step.knob.as_str()).collect();
        measured.counters.insert("settings_changed_count".into(), steps.len() as u64);
        for knob in arm.switches.iter().filter(|knob| !set.contains(knob.as_str())) {
            measured.not_effective.push(NotEffective::new(knob.clone(), "it was already set"));
        }
        Ok(measured)
    }

    fn nic(&self) -> String {
        self.inner.nic()
    }

    fn far_machine(&self) -> Option<Machine> {
        self.inner.far_machine()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(arms: Vec<(Arm, Support)>) -> Vec<(String, String)> {
        arms.into_iter()
            .skip(2)
            .map(|(arm, _)| (arm.name, arm.switches.names().join(" ")))
            .collect()
    }

    #[test]
    fn rungs_add_up_to_the_plan_and_one_setting_is_the_plan() {
        let row = |name: &str, switches: &str| (name.to_owned(), switches.to_owned());
        let three = ["channels", "gro", "rps-cpus"];
        assert_eq!(
            names(ladder_of_plan(&three)),
            [
                row("+channels", "channels"),
                row("+gro", "channels gro"),
                row("plan", "channels gro rps-cpus")
            ]
        );
        let alone = names(each_of_plan(&three));
        assert_eq!(alone[1], row("gro", "gro"));
        assert_eq!(alone[3], row("plan", "channels gro rps-cpus"));
        for arms in [ladder_of_plan(&three[..1]), each_of_plan(&three[..1])] {
            assert_eq!(names(arms), [row("plan", "channels")]);
        }
    }
}
