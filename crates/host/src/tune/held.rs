//! Settings that last as long as a value.

use sys::netns::Netns;

use super::error::KnobError;
use super::knob::{self, Knob};
use super::system::{Place, System};
use super::target::{Scope, Target};
use super::value::Value;
use crate::net::ethtool;

/// Settings of one namespace, set and read back; given back last first when this is dropped.
///
/// Without a journal: for labs, whose interfaces go with the process however it ends. For what
/// outlives us there is [`super::apply()`].
#[derive(Debug)]
#[must_use = "settings are as before when this is dropped"]
pub struct Held {
    system: System,
    before: Vec<(&'static dyn Knob, Target, Value)>,
}

impl Held {
    /// Nothing yet.
    pub fn new(netns: &Netns) -> Result<Self, KnobError> {
        let system = System::of(netns.try_clone()?, Place::default())?;
        Ok(Held { system, before: Vec::new() })
    }

    /// Sets a knob at one target. On an error, what was set before stays held.
    pub fn set(&mut self, knob: &str, target: Target, value: &str) -> Result<(), KnobError> {
        let knob = find(knob, &target)?;
        let value = Value::new(value).ok_or_else(|| KnobError::Value {
            knob: knob.id().to_owned(),
            value: value.to_owned(),
            expected: knob.format().describe(),
        })?;
        knob.check(&target, &value)?;
        let before = knob.read(&self.system, &target)?;
        // Half a change is undone as a whole one is.
        self.before.push((knob, target.clone(), before));
        knob.set_and_verify(&self.system, &target, &value).map(drop)
    }

    /// Sets a knob at each of its targets on an interface.
    ///
    /// Errors: [`KnobError::NoTarget`] where there is none.
    pub fn set_all(&mut self, knob: &str, interface: &str, value: &str) -> Result<(), KnobError> {
        let named = Target::Interface(interface.to_owned());
        let targets = knob::targets(find(knob, &named)?, &self.system, Some(interface))?;
        if targets.is_empty() {
            return Err(KnobError::NoTarget { target: named });
        }
        targets.into_iter().try_for_each(|target| self.set(knob, target, value))
    }

    /// Has an interface interrupt for every packet that it receives.
    ///
    /// Errors: [`KnobError::NotOffered`] where the driver has no such setting.
    pub fn no_coalescing(&mut self, interface: &str) -> Result<(), KnobError> {
        let target = Target::Interface(interface.to_owned());
        let now = find("coalescing", &target)?.read(&self.system, &target)?;
        match super::profile::at_once(now.as_str()) {
            Some(at_once) => self.set("coalescing", target, &at_once),
            None => Ok(()),
        }
    }

    /// Gives the receive rings `descriptors`, or as many as the device can have; never fewer than
    /// now.
    ///
    /// Errors: [`KnobError::NotOffered`] where the driver has no such setting.
    pub fn large_ring(&mut self, interface: &str, descriptors: u32) -> Result<(), KnobError> {
        let target = Target::Interface(interface.to_owned());
        // Says it best when there are none.
        find("rings", &target)?.read(&self.system, &target)?;
        let index = self.system.index(interface)?;
        let now = self.system.within(|| ethtool::rings(index))?;
        let wanted = descriptors.min(now.rx_max).max(now.rx);
        self.set("rings", target, &format!("rx={wanted}"))
    }

    /// Gives back what was there, and says so if that fails.
    pub fn restore(mut self) -> Result<(), KnobError> {
        self.undo()
    }

    /// Undoes all it can and returns the first error. An interface that is gone took its
    /// settings along.
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

impl Drop for Held {
    fn drop(&mut self) {
        // Who wants to know calls `restore`.
        let _reported_by_restore = self.undo();
    }
}

fn find(knob: &str, target: &Target) -> Result<&'static dyn Knob, KnobError> {
    knob::find(knob).ok_or_else(|| KnobError::Scope {
        knob: knob.to_owned(),
        expected: Scope::Interface,
        target: target.clone(),
    })
}
