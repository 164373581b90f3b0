//! Plans of settings that another command asked for, such as the findings of `doctor`.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::plan::{LeftOut, Plan, PlanError, SCHEMA, Step, machine_id};
use super::registry;
use super::system::System;
use super::target::Target;
use super::value::Value;
use crate::text::chain;

/// A setting that a plan can take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WantedSetting {
    /// Id of a knob.
    pub knob: String,
    pub target: Target,
    /// Value to set.
    pub value: String,
}

/// Interfaces of settings, sorted.
pub fn interfaces<'a>(wanted: impl Iterator<Item = &'a WantedSetting>) -> Vec<String> {
    let names: BTreeSet<&str> = wanted.filter_map(|setting| setting.target.interface()).collect();
    names.into_iter().map(str::to_owned).collect()
}

/// Makes a plan of settings without changing anything. Those that are set already are no steps, and those that are not
/// possible here, or act on another interface, are left out with the reason.
///
/// - `purpose`: in place of the name of a profile.
/// - `interface`: the only one that the plan may touch.
/// - `wanted`: with the reason of each.
pub fn settings_plan<'a>(
    system: &System,
    purpose: &str,
    interface: Option<&str>,
    wanted: impl Iterator<Item = (&'a WantedSetting, &'a str)>,
) -> Result<Plan, PlanError> {
    if let Some(interface) = interface {
        system.index(interface)?;
    }
    let (mut steps, mut left_out): (Vec<Step>, Vec<LeftOut>) = (Vec::new(), Vec::new());
    for (setting, reason) in wanted {
        if steps.iter().any(|step| step.knob == setting.knob && step.target == setting.target) {
            continue;
        }
        match step(system, interface, setting, reason) {
            Ok(step) => steps.extend(step),
            Err(why) => left_out.push(LeftOut { knob: setting.knob.clone(), why }),
        }
    }
    Ok(Plan {
        schema: SCHEMA,
        machine: machine_id(system),
        profile: purpose.to_owned(),
        interface: interface.map(ToOwned::to_owned),
        driver: interface.map(|interface| system.driver(interface)),
        other_interfaces: Vec::new(),
        netns: system.place().netns.clone(),
        steps,
        left_out,
    })
}

/// Returns `None` if it is set already. Errors: the reason why it is not possible.
fn step(
    system: &System,
    interface: Option<&str>,
    setting: &WantedSetting,
    reason: &str,
) -> Result<Option<Step>, String> {
    let WantedSetting { knob: id, target, value } = setting;
    let knob = registry::find(id).ok_or_else(|| "this program has no such knob".to_owned())?;
    if let Some(found) = target.interface()
        && interface != Some(found)
    {
        return Err(format!("it acts on {found}, and a plan is for one interface"));
    }
    if let Target::Irq(irq) = target
        && !interface.is_some_and(|interface| system.irqs(interface).contains(irq))
    {
        return Err(format!("interrupt {irq} is not the interface's"));
    }
    let value = Value::new(value).ok_or_else(|| "its value is not one line".to_owned())?;
    knob.check(target, &value).map_err(|error| chain(&error))?;
    let seen = knob.read(system, target).map_err(|error| chain(&error))?;
    if knob.format().agrees(value.as_str(), seen.as_str()) {
        return Ok(None);
    }
    knob.probe_value(system, target, &value).map_err(|error| chain(&error))?;
    let (knob, target, reason) = (id.clone(), target.clone(), reason.to_owned());
    Ok(Some(Step { knob, target, seen, value, reason }))
}
