//! Knobs of an arm, set for one trial.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use host::tune::{self, PLAN_SCHEMA, Plan, ScopedSettings, Step, Store, System, Target, Value};
use lab::TrialSettings;
use model::{Measurement, NotEffective, PathError};

use crate::place::{Place, Side};
use crate::{End, Spec, Switch};

/// Folders of journals for the settings of the user's namespaces.
#[derive(Debug, Clone)]
pub struct Journals {
    /// Of the far end.
    pub far: Store,
    /// Of the near end.
    pub near: Store,
}

/// Settings of both ends.
pub(crate) enum Settings {
    /// Of a lab, which disappears with this process.
    Lab,
    /// Of existing namespaces, through journals.
    Journaled(BTreeMap<End, Journaled>),
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
    end: End,
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

impl Settings {
    /// - `trial`: expected length of a trial.
    ///
    /// Errors: settings are applied already, or a knob of the host would change from within a lab.
    pub(crate) fn open(
        spec: &Spec,
        place: &Place,
        journals: Journals,
        trial: Duration,
        stop: &'static AtomicBool,
    ) -> Result<Self, PathError> {
        if place.is_lab {
            return Ok(Settings::Lab);
        }
        let mut ends = BTreeMap::new();
        let sides = [(End::Near, &place.near, journals.near), (End::Far, &place.far, journals.far)];
        for (end, side, store) in sides {
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
            let open = || system(side);
            // A plan of its own comes with each trial.
            let settings = TrialSettings::new(open()?, store, trial, stop);
            ends.insert(end, Journaled { system: open()?, settings });
        }
        Ok(Settings::Journaled(ends))
    }

    /// Reason why trials are no longer valid, if a rollback failed or another process interfered.
    pub(crate) fn broken(&self) -> Option<&str> {
        match self {
            Settings::Lab => None,
            Settings::Journaled(ends) => ends.values().find_map(|end| end.settings.broken()),
        }
    }

    /// Sets the knobs of an arm, runs its trial and restores them.
    pub(crate) fn around(
        &mut self,
        place: &Place,
        switches: &[&Switch],
        trial: impl FnOnce() -> Result<Measurement, PathError>,
    ) -> Result<Measurement, PathError> {
        if !switches.iter().any(|switch| matches!(switch, Switch::Knob { .. })) {
            return trial();
        }
        match self {
            Settings::Lab => in_lab(place, switches, trial),
            Settings::Journaled(ends) => {
                let mut ends: Vec<_> = ends.iter_mut().collect();
                journaled(place, switches, &mut ends, Box::new(trial))
            }
        }
    }
}

fn system(side: &Side) -> Result<System, PathError> {
    let netns = side.netns.try_clone().map_err(PathError::part)?;
    let place = tune::Place { netns: side.name.clone(), root: None };
    System::from_netns(netns, place).map_err(PathError::part)
}

fn in_lab(
    place: &Place,
    switches: &[&Switch],
    trial: impl FnOnce() -> Result<Measurement, PathError>,
) -> Result<Measurement, PathError> {
    let mut idle = Vec::new();
    let mut applied = Vec::new();
    for (end, side) in [(End::Near, &place.near), (End::Far, &place.far)] {
        let system = system(side)?;
        let wanted = wanted(switches, end, &system, &side.ifname)?;
        let mut scoped = ScopedSettings::new(&side.netns).map_err(PathError::part)?;
        // Those that reset others come first.
        let mut ordered: Vec<&Wanted> = wanted.iter().collect();
        ordered.sort_by_key(|wanted| !wanted.knob.disturbs());
        for wanted in ordered {
            for target in &wanted.targets {
                refuse_host(place, wanted, target)?;
            }
            if is_set(wanted, &system)? {
                idle.push(wanted.switch.id());
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
    let mut m = measured?;
    m.not_effective.extend(idle.into_iter().map(|id| NotEffective::new(id, "it was already set")));
    Ok(m)
}

type Trial<'a> = Box<dyn FnOnce() -> Result<Measurement, PathError> + 'a>;

/// Applies the knobs of the last end, and those of the others around it.
fn journaled(
    place: &Place,
    switches: &[&Switch],
    ends: &mut [(&End, &mut Journaled)],
    trial: Trial<'_>,
) -> Result<Measurement, PathError> {
    let Some(((end, journaled_end), others)) = ends.split_first_mut() else { return trial() };
    let side = if **end == End::Near { &place.near } else { &place.far };
    let wanted = wanted(switches, **end, &journaled_end.system, &side.ifname)?;
    let mut idle = Vec::new();
    let mut steps = Vec::new();
    for wanted in &wanted {
        if is_set(wanted, &journaled_end.system)? {
            idle.push(wanted.switch.id());
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
    let inner = || journaled(place, switches, others, trial);
    let mut m = if idle.len() == wanted.len() {
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
    m.not_effective.extend(idle.into_iter().map(|id| NotEffective::new(id, "it was already set")));
    Ok(m)
}

/// Switches of the experiment whose knob cannot be set here, each with the reason.
pub(crate) fn unusable_knobs(spec: &Spec, place: &Place) -> Vec<(String, String)> {
    let of_arms = spec.arms.iter().flat_map(|arm| &arm.switches);
    let all: Vec<&Switch> = spec.switches.iter().chain(of_arms).collect();
    let mut unusable = Vec::new();
    for (end, side) in [(End::Near, &place.near), (End::Far, &place.far)] {
        for switch in &all {
            let is_here = matches!(switch, Switch::Knob { end: of, .. } if *of == end);
            let tried = || {
                let system = system(side)?;
                for wanted in wanted(&[switch], end, &system, &side.ifname)? {
                    for target in &wanted.targets {
                        refuse_host(place, &wanted, target)?;
                        wanted.knob.read(&system, target).map_err(PathError::part)?;
                        wanted.knob.probe(&system, target).map_err(PathError::part)?;
                    }
                }
                Ok::<_, PathError>(())
            };
            if is_here && let Err(error) = tried() {
                unusable.push((switch.to_string(), host::text::chain(&error)));
            }
        }
    }
    unusable
}

/// Errors: a lab's arm would change the host.
fn refuse_host(place: &Place, wanted: &Wanted<'_>, target: &Target) -> Result<(), PathError> {
    if !place.is_lab || target.is_in_netns() {
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
