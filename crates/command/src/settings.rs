//! Knobs of an arm, set for one trial.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use host::tune::{
    self, JournalStore, PLAN_SCHEMA, Plan, ScopedSettings, Step, System, Target, Value,
};
use lab::TrialSettings;
use model::{NotEffective, PathError};

use crate::side::Side;
use crate::{CheckedPrograms, KnobEnd, Switch};

/// Folders of journals for the settings of the user's namespaces.
#[derive(Debug, Clone)]
pub struct Journals {
    /// Of the far end.
    pub far: JournalStore,
    /// Of the near end.
    pub near: JournalStore,
}

/// Settings of both ends.
pub(crate) enum ArmSettings {
    /// Of a lab, which disappears with this process.
    Lab,
    /// Of existing namespaces, through journals.
    Journaled(BTreeMap<KnobEnd, Journaled>),
}

/// Settings of one existing namespace.
pub(crate) struct Journaled {
    /// For reading values; the other one belongs to `settings`.
    system: System,
    settings: TrialSettings,
}

/// One setting of an arm: the switch, and the targets of its knob.
struct Wanted<'a> {
    switch: &'a Switch,
    knob: &'static dyn tune::Knob,
    value: &'a Value,
    targets: Vec<Target>,
}

/// Knobs of an arm at one end.
fn wanted<'a>(
    switches: &[&'a Switch],
    end: KnobEnd,
    system: &System,
    ifname: &str,
) -> Result<Vec<Wanted<'a>>, PathError> {
    let mut all = Vec::new();
    for switch in switches {
        let Switch::Knob { end: of, knob, value } = switch else { continue };
        if *of != end {
            continue;
        }
        let found =
            tune::find(knob).ok_or_else(|| PathError::Part(format!("no knob {knob}").into()))?;
        let targets = tune::targets(found, system, Some(ifname)).map_err(PathError::part)?;
        if targets.is_empty() {
            return Err(PathError::Part(format!("{knob} has no target on {ifname}").into()));
        }
        all.push(Wanted { switch, knob: found, value, targets });
    }
    Ok(all)
}

fn is_set(wanted: &Wanted<'_>, system: &System) -> Result<bool, PathError> {
    for target in &wanted.targets {
        let now = wanted.knob.read(system, target).map_err(PathError::part)?;
        if !wanted.knob.format().agrees(wanted.value.as_str(), now.as_str()) {
            return Ok(false);
        }
    }
    Ok(true)
}

impl ArmSettings {
    /// Settings of existing namespaces.
    ///
    /// - `ends`: those of this host, each with its journal.
    ///
    /// Errors: settings are applied already.
    pub(crate) fn journaled<'a>(
        spec: &CheckedPrograms,
        ends: impl IntoIterator<Item = (KnobEnd, &'a Side, JournalStore)>,
        stop: &'static AtomicBool,
    ) -> Result<Self, PathError> {
        let mut journaled = BTreeMap::new();
        for (end, side, store) in ends {
            if !spec.sets_knobs_at(end) {
                continue;
            }
            if store.read().map_err(PathError::part)?.is_some() {
                return Err(PathError::Invalid {
                    what: "settings are already applied".into(),
                    remedy: "run `wirepath tune rollback` first, so that trials can be measured \
                             without them"
                        .into(),
                });
            }
            // A plan of its own comes with each trial.
            let settings = TrialSettings::new(system(side)?, store, spec.limit(), stop);
            journaled.insert(end, Journaled { system: system(side)?, settings });
        }
        Ok(ArmSettings::Journaled(journaled))
    }

    /// Reason why trials are no longer valid, if a rollback failed or another process interfered.
    pub(crate) fn broken(&self) -> Option<&str> {
        match self {
            ArmSettings::Lab => None,
            ArmSettings::Journaled(ends) => ends.values().find_map(|end| end.settings.broken()),
        }
    }

    /// Sets the knobs of an arm, runs its trial and restores them. Returns the knobs that were set already,
    /// too.
    ///
    /// - `sides`: the ends of this host.
    pub(crate) fn around<R>(
        &mut self,
        sides: &[(KnobEnd, &Side)],
        switches: &[&Switch],
        trial: impl FnOnce() -> Result<R, PathError>,
    ) -> Result<(R, Vec<NotEffective>), PathError> {
        if !switches.iter().any(|switch| matches!(switch, Switch::Knob { .. })) {
            return Ok((trial()?, Vec::new()));
        }
        match self {
            ArmSettings::Lab => in_lab(sides, switches, trial),
            ArmSettings::Journaled(ends) => {
                let mut ends: Vec<_> = ends.iter_mut().collect();
                journaled(sides, switches, &mut ends, Box::new(trial))
            }
        }
    }
}

fn idle(ids: Vec<model::SwitchId>) -> Vec<NotEffective> {
    ids.into_iter().map(|id| NotEffective::new(id, "it was already set")).collect()
}

fn system(side: &Side) -> Result<System, PathError> {
    let netns = side.netns.try_clone().map_err(PathError::part)?;
    let place = tune::Place { netns: side.name.clone(), root: None };
    System::from_netns(netns, place).map_err(PathError::part)
}

fn in_lab<R>(
    sides: &[(KnobEnd, &Side)],
    switches: &[&Switch],
    trial: impl FnOnce() -> Result<R, PathError>,
) -> Result<(R, Vec<NotEffective>), PathError> {
    let mut already_set = Vec::new();
    let mut applied = Vec::new();
    for (end, side) in sides {
        let system = system(side)?;
        let wanted = wanted(switches, *end, &system, &side.ifname)?;
        let mut scoped = ScopedSettings::new(&side.netns).map_err(PathError::part)?;
        // Those that reset others come first.
        let mut ordered: Vec<&Wanted> = wanted.iter().collect();
        ordered.sort_by_key(|wanted| !wanted.knob.disturbs());
        for wanted in ordered {
            for target in &wanted.targets {
                refuse_host(wanted, target)?;
            }
            if is_set(wanted, &system)? {
                already_set.push(wanted.switch.id());
                continue;
            }
            for target in &wanted.targets {
                let value = wanted.value.as_str();
                scoped.set(wanted.knob.id(), target.clone(), value).map_err(PathError::part)?;
            }
        }
        applied.push(scoped);
    }
    let measured = trial();
    while let Some(scoped) = applied.pop() {
        scoped.restore().map_err(PathError::part)?;
    }
    Ok((measured?, idle(already_set)))
}

type Trial<'a, R> = Box<dyn FnOnce() -> Result<R, PathError> + 'a>;

/// Applies the knobs of the last end, and those of the others around it.
fn journaled<R>(
    sides: &[(KnobEnd, &Side)],
    switches: &[&Switch],
    ends: &mut [(&KnobEnd, &mut Journaled)],
    trial: Trial<'_, R>,
) -> Result<(R, Vec<NotEffective>), PathError> {
    let Some(((end, journaled_end), others)) = ends.split_first_mut() else {
        return Ok((trial()?, Vec::new()));
    };
    let Some((_, side)) = sides.iter().find(|(of, _)| of == *end) else {
        return journaled(sides, switches, others, trial);
    };
    let wanted = wanted(switches, **end, &journaled_end.system, &side.ifname)?;
    let mut already_set = Vec::new();
    let mut steps = Vec::new();
    for wanted in &wanted {
        if is_set(wanted, &journaled_end.system)? {
            already_set.push(wanted.switch.id());
        }
        for target in &wanted.targets {
            let seen = wanted.knob.read(&journaled_end.system, target).map_err(PathError::part)?;
            steps.push(Step {
                knob: wanted.knob.id().to_owned(),
                target: target.clone(),
                seen,
                value: wanted.value.clone(),
                reason: "an arm of wirepath prove command".to_owned(),
            });
        }
    }
    let inner = || journaled(sides, switches, others, trial);
    let (measured, mut not_effective) = if already_set.len() == wanted.len() {
        inner()?
    } else {
        let plan = Plan {
            schema: PLAN_SCHEMA,
            machine: tune::machine_id(&journaled_end.system),
            profile: "command".to_owned(),
            interface: Some(side.ifname.clone()),
            driver: Some(journaled_end.system.driver(&side.ifname)),
            netns: side.name.clone(),
            steps,
            left_out: Vec::new(),
        };
        journaled_end.settings.around(&plan, Box::new(inner))?.0
    };
    not_effective.extend(idle(already_set));
    Ok((measured, not_effective))
}

/// Switches of the experiment whose knob cannot be set at an end, each with the reason.
pub(crate) fn unusable_knobs(
    spec: &CheckedPrograms,
    end: KnobEnd,
    side: &Side,
    is_lab: bool,
) -> Vec<(String, String)> {
    let of_arms = spec.arms.iter().flat_map(|arm| &arm.switches);
    let mut unusable = Vec::new();
    for switch in spec.switches.iter().chain(of_arms) {
        let is_here = matches!(switch, Switch::Knob { end: of, .. } if *of == end);
        if is_here && let Err(error) = probe(switch, end, side, is_lab) {
            unusable.push((switch.to_string(), host::text::chain(&error)));
        }
    }
    unusable
}

/// Tries the knob of a switch. Errors: it cannot be set.
fn probe(switch: &Switch, end: KnobEnd, side: &Side, is_lab: bool) -> Result<(), PathError> {
    let system = system(side)?;
    for wanted in wanted(&[switch], end, &system, &side.ifname)? {
        for target in &wanted.targets {
            if is_lab {
                refuse_host(&wanted, target)?;
            }
            wanted.knob.read(&system, target).map_err(PathError::part)?;
            wanted.knob.probe(&system, target).map_err(PathError::part)?;
        }
    }
    Ok(())
}

/// Errors: a lab's arm would change the host.
fn refuse_host(wanted: &Wanted<'_>, target: &Target) -> Result<(), PathError> {
    if target.is_in_netns() {
        return Ok(());
    }
    Err(PathError::Invalid {
        what: format!("{} acts on {target}, not on the lab", wanted.switch),
        remedy:
            "name existing namespaces with --near and --far: their settings are changed through \
                 the journal of `tune`"
                .into(),
    })
}
