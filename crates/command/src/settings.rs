//! Settings of an arm, made for one trial.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;

use host::netns::Netns;
use host::tune::{
    self, JournalStore, PLAN_SCHEMA, Plan, ScopedSettings, Step, System, Target, Value,
};
use lab::TrialSettings;
use model::{NotEffective, PathError};

use crate::switches::{Act, At};
use crate::{CheckedPrograms, Switch};

/// Journals for the settings of the user's places on this host.
#[derive(Debug, Clone)]
pub struct Journals {
    /// Of the far end.
    pub far: JournalStore,
    /// Of the near end.
    pub near: JournalStore,
    /// Of the places between them, by name.
    pub places: BTreeMap<String, JournalStore>,
}

/// A namespace in which switches act.
pub(crate) struct Spot<'a> {
    pub(crate) at: At,
    pub(crate) netns: &'a Netns,
    /// Name of the namespace; `None` for a lab's and for that of the caller.
    pub(crate) name: Option<&'a str>,
    /// Interfaces of a switch that names none.
    pub(crate) interfaces: Vec<String>,
}

/// Settings of all places.
pub(crate) enum ArmSettings {
    /// Of a lab, which disappears with this process.
    Lab,
    /// Of existing namespaces, through journals.
    Journaled(BTreeMap<At, Journaled>),
}

/// Settings of one existing namespace.
pub(crate) struct Journaled {
    /// For reading values; the other one belongs to `settings`.
    system: System,
    settings: TrialSettings,
}

/// One knob of an arm: the switch, and the targets of its knob.
struct Wanted<'a> {
    switch: &'a Switch,
    knob: &'static dyn tune::Knob,
    value: &'a Value,
    targets: Vec<Target>,
}

impl Spot<'_> {
    fn system(&self) -> Result<System, PathError> {
        let netns = self.netns.try_clone().map_err(PathError::part)?;
        let place = tune::Place { netns: self.name.map(str::to_owned), root: None };
        System::from_netns(netns, place).map_err(PathError::part)
    }

    /// Knobs of an arm at this place.
    fn wanted<'s>(
        &self,
        switches: &[&'s Switch],
        system: &System,
    ) -> Result<Vec<Wanted<'s>>, PathError> {
        let mut all = Vec::new();
        for switch in switches.iter().filter(|switch| switch.at == self.at) {
            let Act::Knob { interface, knob, value } = &switch.act else { continue };
            let found = tune::find(knob)
                .ok_or_else(|| PathError::Part(format!("no knob {knob}").into()))?;
            let targets = match interface {
                Some(name) => tune::targets(found, system, Some(name)).map_err(PathError::part)?,
                None => self.targets(found, system)?,
            };
            if targets.is_empty() {
                let interfaces = interface.iter().chain(&self.interfaces).map(String::as_str);
                let interfaces = interfaces.collect::<Vec<_>>().join(", ");
                return Err(PathError::Part(
                    format!("{knob} has no target on {interfaces}").into(),
                ));
            }
            all.push(Wanted { switch, knob: found, value, targets });
        }
        Ok(all)
    }

    /// Targets of a knob on the interfaces of the place. Of several interfaces, those that do not offer it are left out.
    fn targets(&self, knob: &dyn tune::Knob, system: &System) -> Result<Vec<Target>, PathError> {
        let mut targets: Vec<Target> = Vec::new();
        let mut refused = None;
        for interface in &self.interfaces {
            let mut found =
                tune::targets(knob, system, Some(interface)).map_err(PathError::part)?;
            if self.interfaces.len() > 1
                && let Err(error) = found.iter().try_for_each(|target| knob.probe(system, target))
            {
                refused = Some(error);
                continue;
            }
            // The host and the namespace are the same of every interface.
            found.retain(|target| !targets.contains(target));
            targets.append(&mut found);
        }
        match refused {
            Some(error) if targets.is_empty() => Err(PathError::part(error)),
            _ => Ok(targets),
        }
    }
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
        ends: impl IntoIterator<Item = (Spot<'a>, JournalStore)>,
        stop: &'static AtomicBool,
    ) -> Result<Self, PathError> {
        let mut journaled = BTreeMap::new();
        for (spot, store) in ends {
            if !spec.has_settings_at(&spot.at) {
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
            let settings = TrialSettings::new(spot.system()?, store, spec.limit(), stop);
            journaled.insert(spot.at.clone(), Journaled { system: spot.system()?, settings });
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

    /// Makes the settings of an arm, runs its trial and restores them. Returns the knobs that were set already,
    /// too.
    ///
    /// - `spots`: the places on this host.
    pub(crate) fn around<R>(
        &mut self,
        spots: &[Spot<'_>],
        switches: &[&Switch],
        trial: impl FnOnce() -> Result<R, PathError>,
    ) -> Result<(R, Vec<NotEffective>), PathError> {
        if !switches.iter().any(|switch| switch.is_setting()) {
            return Ok((trial()?, Vec::new()));
        }
        match self {
            ArmSettings::Lab => in_lab(spots, switches, trial),
            ArmSettings::Journaled(ends) => {
                let mut ends: Vec<_> = ends.iter_mut().collect();
                journaled(spots, switches, &mut ends, Box::new(trial))
            }
        }
    }
}

fn idle(ids: Vec<model::SwitchId>) -> Vec<NotEffective> {
    ids.into_iter().map(|id| NotEffective::new(id, "it was already set")).collect()
}

fn in_lab<R>(
    spots: &[Spot<'_>],
    switches: &[&Switch],
    trial: impl FnOnce() -> Result<R, PathError>,
) -> Result<(R, Vec<NotEffective>), PathError> {
    let mut already_set = Vec::new();
    let mut applied = Vec::new();
    for spot in spots {
        let system = spot.system()?;
        let wanted = spot.wanted(switches, &system)?;
        let mut scoped = ScopedSettings::new(spot.netns).map_err(PathError::part)?;
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

/// Makes the settings of the last place, and those of the others around it.
fn journaled<R>(
    spots: &[Spot<'_>],
    switches: &[&Switch],
    ends: &mut [(&At, &mut Journaled)],
    trial: Trial<'_, R>,
) -> Result<(R, Vec<NotEffective>), PathError> {
    let Some(((at, place), others)) = ends.split_first_mut() else {
        return Ok((trial()?, Vec::new()));
    };
    let Some(spot) = spots.iter().find(|spot| spot.at == **at) else {
        return journaled(spots, switches, others, trial);
    };
    let mut already_set = Vec::new();
    let mut steps = command_steps(switches, at)?;
    let mut interfaces = BTreeSet::new();
    for wanted in spot.wanted(switches, &place.system)? {
        if is_set(&wanted, &place.system)? {
            already_set.push(wanted.switch.id());
            continue;
        }
        for target in wanted.targets {
            let seen = wanted.knob.read(&place.system, &target).map_err(PathError::part)?;
            interfaces.extend(target.interface().map(str::to_owned));
            steps.push(Step {
                knob: wanted.knob.id().to_owned(),
                target,
                seen,
                value: wanted.value.clone(),
                reason: REASON.to_owned(),
            });
        }
    }
    // Interrupts belong to an interface that their target does not name.
    if steps.iter().any(|step| matches!(step.target, Target::Irq(_))) {
        interfaces.extend(spot.interfaces.iter().cloned());
    }
    let inner = || journaled(spots, switches, others, trial);
    let (measured, mut not_effective) = if steps.is_empty() {
        inner()?
    } else {
        let mut interfaces = interfaces.into_iter();
        let interface = interfaces.next();
        let plan = Plan {
            schema: PLAN_SCHEMA,
            machine: tune::machine_id(&place.system),
            profile: "command".to_owned(),
            driver: interface.as_ref().map(|name| place.system.driver(name)),
            interface,
            other_interfaces: interfaces.collect(),
            netns: spot.name.map(str::to_owned),
            steps,
            left_out: Vec::new(),
        };
        place.settings.around(&plan, Box::new(inner))?.0
    };
    not_effective.extend(idle(already_set));
    Ok((measured, not_effective))
}

/// Reason of a step, for the journal.
const REASON: &str = "an arm of wirepath prove command";

/// Steps of the pairs of commands of an arm at a place.
fn command_steps(switches: &[&Switch], at: &At) -> Result<Vec<Step>, PathError> {
    let folder = std::env::current_dir().map_err(PathError::part)?;
    let folder = quoted(&folder.to_string_lossy());
    let here = switches.iter().filter(|switch| switch.at == *at);
    let pairs = here.filter_map(|switch| match &switch.act {
        Act::Commands { name, on, off } => Some((name, on, off)),
        _ => None,
    });
    pairs
        .map(|(name, on, off)| {
            Ok(Step {
                knob: "command".to_owned(),
                target: Target::Command(name.clone()),
                seen: line_in(&folder, off)?,
                value: line_in(&folder, on)?,
                reason: REASON.to_owned(),
            })
        })
        .collect()
}

/// A line for a shell that runs a command in a folder.
fn line_in(folder: &str, command: &str) -> Result<Value, PathError> {
    Value::new(format!("cd {folder} || exit; {command}")).ok_or_else(|| PathError::Invalid {
        what: "a command of a switch has more than 4096 bytes with its folder".to_owned(),
        remedy: "put it into a script".to_owned(),
    })
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Switches of the experiment that cannot act at a place, each with the reason.
pub(crate) fn unusable_switches(
    spec: &CheckedPrograms,
    spot: &Spot<'_>,
    is_lab: bool,
) -> Vec<(String, String)> {
    let mut unusable = Vec::new();
    for switch in spec.all_switches().filter(|switch| switch.at == spot.at) {
        if let Err(error) = probe(switch, spot, is_lab) {
            unusable.push((switch.to_string(), host::text::chain(&error)));
        }
    }
    unusable
}

/// Tries the knob of a switch. Errors: it cannot be set.
fn probe(switch: &Switch, spot: &Spot<'_>, is_lab: bool) -> Result<(), PathError> {
    let system = spot.system()?;
    for wanted in spot.wanted(&[switch], &system)? {
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
