//! Settings that are restored when a guard is dropped.

use sys::netns::Netns;

use super::error::KnobError;
use super::knob::Knob;
use super::registry;
use super::system::{Place, System};
use super::target::{Scope, Target};
use super::value::Value;

/// Settings of one namespace, verified after each change; restored in reverse order on drop.
///
/// There is no journal: this is for labs, whose interfaces disappear with the process. Settings of
/// interfaces that outlive the process are changed by [`super::apply()`].
#[derive(Debug)]
#[must_use = "settings are restored when this is dropped"]
pub struct ScopedSettings {
    system: System,
    before: Vec<(&'static dyn Knob, Target, Value)>,
}

impl ScopedSettings {
    /// Opens the namespace; no setting is changed.
    pub fn new(netns: &Netns) -> Result<Self, KnobError> {
        let system = System::from_netns(netns.try_clone()?, Place::default())?;
        Ok(ScopedSettings { system, before: Vec::new() })
    }

    /// Sets a knob at one target. After an error, earlier settings stay in force until drop.
    pub fn set(&mut self, knob: &str, target: Target, value: &str) -> Result<(), KnobError> {
        let knob = find(knob, &target)?;
        let value = Value::new(value).ok_or_else(|| KnobError::Value {
            knob: knob.id().to_owned(),
            value: value.to_owned(),
            expected: knob.format().describe(),
        })?;
        knob.check(&target, &value)?;
        let before = knob.read(&self.system, &target)?;
        // Recorded first: a change that fails halfway is restored as well.
        self.before.push((knob, target.clone(), before));
        knob.set_and_verify(&self.system, &target, &value).map(drop)
    }

    /// Sets a knob at each of its targets on an interface.
    ///
    /// Errors: [`KnobError::NoTarget`] if there is none.
    pub fn set_all(&mut self, knob: &str, interface: &str, value: &str) -> Result<(), KnobError> {
        let named = Target::Interface(interface.to_owned());
        let targets = registry::targets(find(knob, &named)?, &self.system, Some(interface))?;
        if targets.is_empty() {
            return Err(KnobError::NoTarget { target: named });
        }
        targets.into_iter().try_for_each(|target| self.set(knob, target, value))
    }

    /// Restores all settings. Errors: the first setting that could not be restored.
    pub fn restore(mut self) -> Result<(), KnobError> {
        self.undo()
    }

    /// Restores as many settings as possible and returns the first error. Those of an interface that
    /// no longer exists are skipped.
    fn undo(&mut self) -> Result<(), KnobError> {
        let mut outcome = Ok(());
        while let Some((knob, target, value)) = self.before.pop() {
            match knob.set_and_verify(&self.system, &target, &value) {
                Ok(_) | Err(KnobError::NoTarget { .. }) => {}
                Err(error) if outcome.is_ok() => outcome = Err(error),
                Err(_) => {}
            }
        }
        outcome
    }
}

impl Drop for ScopedSettings {
    fn drop(&mut self) {
        // Callers that need the error call `restore`.
        let _reported_by_restore = self.undo();
    }
}

fn find(knob: &str, target: &Target) -> Result<&'static dyn Knob, KnobError> {
    registry::find(knob).ok_or_else(|| KnobError::Scope {
        knob: knob.to_owned(),
        expected: Scope::Interface,
        target: target.clone(),
    })
}
