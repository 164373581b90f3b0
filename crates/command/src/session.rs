//! Trials of the user's programs.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use host::cpu::CpuClock;
use host::sampling::Sampler;
use lab::{Placement, WireTrials};
use model::{Arm, ArmKind, Machine, Measurement, PathError, Restarts, Session};

use crate::figures::add_figures_of_far;
use crate::life::Life;
use crate::middle::{self, Middles};
use crate::path::{arm_spec, arm_switches};
use crate::place::{FarPlace, Place};
use crate::remote::Remote;
use crate::serve::{Kept, LocalWatch, Serving, Watch};
use crate::settings::ArmSettings;
use crate::spec::SharedPlace;
use crate::switches::{Act, At};
use crate::turn::TrialTurn;
use crate::{CheckedPrograms, Switch};

pub use crate::settings::Journals;

/// Fewest blocks for which a kept server runs: each start costs a trial that does not count.
const KEPT_BLOCKS_MIN: u32 = 2;

/// The server's end.
enum Far {
    Here { serving: Box<Serving>, kept: Kept },
    There(Box<Remote>),
}

/// An open place in which arms take turns.
pub struct CommandSession {
    spec: CheckedPrograms,
    near: Life,
    far: Far,
    /// Places between the ends.
    middle: Middles,
    /// Wire with distance of a lab.
    wire: Option<WireTrials>,
    /// Of the places on this host.
    settings: ArmSettings,
    nic: String,
    /// Port of each arm, with `--keep-servers`.
    ports: BTreeMap<String, u16>,
    trials: u32,
    /// Of the servers, with `--keep-servers`.
    restarts: Restarts,
    /// Trial in which each arm's server was started, with `--keep-servers`.
    starts: BTreeMap<String, u32>,
    /// Arms whose server is started anew before their next trial.
    stale: BTreeSet<String>,
}

impl CommandSession {
    /// Builds the lab or opens the namespaces; starts no program.
    ///
    /// - `journals`: for settings of the user's namespaces on this host.
    /// - `trials`: those of the experiment that ran before, which $WIREPATH_TRIAL counts.
    /// - `stop`: ends a trial under way.
    pub fn open(
        spec: CheckedPrograms,
        journals: Journals,
        trials: u32,
        stop: &'static AtomicBool,
    ) -> Result<Self, PathError> {
        check_counters(&spec)?;
        let Place { near, far, middle, is_lab, wire, nic } = Place::open(&spec, stop)?;
        let cpus = placement(&spec, matches!(far, FarPlace::Here(_)))?;
        let clock = CpuClock::open().map_err(PathError::part)?;
        let folder = std::env::current_dir().map_err(PathError::part)?;
        let settings = if is_lab {
            ArmSettings::Lab
        } else {
            let mut spots = vec![(near.spot(At::Near), journals.near)];
            if let FarPlace::Here(far) = &far {
                spots.push((far.spot(At::Far), journals.far));
            }
            for place in &middle.here {
                let journal = journals.places.get(&place.name).cloned();
                spots.extend(Some(place.spot()?).zip(journal));
            }
            ArmSettings::journaled(&spec, spots, stop)?
        };
        let near_end = near.wire_end();
        let (far_end, metered_cpus) = match &far {
            FarPlace::Here(far) => (far.wire_end(), cpus.both()),
            FarPlace::There(far) => (far.wire_end(), cpus.near.clone()),
        };
        if let Some(what) = spec.url_mistake(far_end.ip) {
            let remedy = "correct --client".into();
            return Err(PathError::Invalid { what, remedy });
        }
        let sampler = Sampler::open(&lab::usable_cpus(&metered_cpus)?);
        let near = Life {
            side: near,
            far: far_end,
            cpus: cpus.near,
            metered_cpus,
            clock,
            folder: folder.clone(),
            stop,
            units_beside: RefCell::default(),
            sampler: sampler.clone(),
        };
        let far = match far {
            FarPlace::There(far) => Far::There(far),
            FarPlace::Here(side) => {
                let (spec, cpus) = (spec.clone(), cpus.far);
                let (near, units_beside) = (near_end, RefCell::default());
                let serving =
                    Serving { spec, side, near, cpus, folder, stop, units_beside, sampler };
                Far::Here { serving: Box::new(serving), kept: Kept::new() }
            }
        };
        Ok(CommandSession {
            spec,
            near,
            far,
            middle,
            wire,
            settings,
            nic,
            ports: BTreeMap::new(),
            trials,
            restarts: Restarts::new(KEPT_BLOCKS_MIN),
            starts: BTreeMap::new(),
            stale: BTreeSet::new(),
        })
    }

    /// Reason why trials are no longer valid: settings could not be rolled back, or the far end is gone.
    fn broken_by(&self) -> Option<&str> {
        let of_far = match &self.far {
            Far::Here { .. } => None,
            Far::There(far) => far.broken(),
        };
        self.settings.broken().or(of_far).or(self.middle.broken())
    }
}

/// Runs one trial of the baseline, to see whether its client works there.
///
/// Errors: those of the trial.
pub fn rehearse(
    spec: &CheckedPrograms,
    journals: Journals,
    stop: &'static AtomicBool,
) -> Result<(), PathError> {
    let baseline = crate::path::arms(spec).map_err(PathError::part)?.into_iter().next();
    let Some((arm, _)) = baseline else { return Ok(()) };
    CommandSession::open(spec.clone(), journals, 0, stop)?.trial(&arm).map(drop)
}

/// Variables that switches set at a place.
fn variables_at(switches: &[&Switch], at: &At) -> Vec<(String, String)> {
    let here = switches.iter().filter(|switch| switch.at == *at);
    here.filter_map(|switch| match &switch.act {
        Act::Env { name, value } => Some((name.clone(), value.clone())),
        _ => None,
    })
    .collect()
}

/// The CPUs asked for; else half of the CPUs for each end, because the ends represent two hosts. A program of this
/// host has all of them.
///
/// - `is_here`: both ends are on this host.
fn placement(spec: &CheckedPrograms, is_here: bool) -> Result<Placement, PathError> {
    let near = spec.near_cpus.clone().unwrap_or_default();
    if !is_here {
        check_cpus(&near)?;
        return Ok(Placement { near, far: Vec::new() });
    }
    let far = spec.far_cpus.clone().unwrap_or_default();
    check_cpus(&[&near[..], &far].concat())?;
    let is_alone = matches!(spec.place, Some(SharedPlace::Here | SharedPlace::Existing { .. }));
    if is_alone || !near.is_empty() || !far.is_empty() {
        return Ok(Placement { near, far });
    }
    let all = sys::affinity::allowed_cpus().map_err(PathError::part)?;
    let (near, far) = match all.len() / 2 {
        0 => (&[][..], &[][..]),
        half => all.split_at(half),
    };
    Ok(Placement { near: near.to_vec(), far: far.to_vec() })
}

/// Errors: this process may not use one of the CPUs.
pub(crate) fn check_cpus(cpus: &[usize]) -> Result<(), PathError> {
    let all = sys::affinity::allowed_cpus().map_err(PathError::part)?;
    let Some(cpu) = cpus.iter().find(|cpu| !all.contains(cpu)) else { return Ok(()) };
    let allowed: Vec<String> = all.iter().map(usize::to_string).collect();
    Err(PathError::Invalid {
        what: format!("CPU {cpu} is not one that this process may use"),
        remedy: format!("choose of {}", allowed.join(",")),
    })
}

impl CommandSession {
    fn keeps(&self) -> bool {
        self.spec.keep && self.spec.has_server()
    }

    fn turn(&mut self, arm: &Arm) -> TrialTurn {
        let keeps = self.keeps();
        let CommandSession { spec, ports, trials, .. } = self;
        let switches = arm_switches(spec, arm);
        let of_arm = arm_spec(spec, arm);
        let mut env: BTreeMap<String, String> = of_arm.env.iter().cloned().collect();
        env.extend(variables_at(&switches, &At::Far));
        let near_env = variables_at(&switches, &At::Near);
        if !spec.has_server() {
            // The arms are the clients.
            env.extend(near_env.iter().cloned());
        }
        let next = spec.port + ports.len() as u16;
        TrialTurn {
            name: arm.name.clone(),
            variable: match arm.kind {
                ArmKind::Control => of_arm.name.clone(),
                _ => arm.name.clone(),
            },
            command: of_arm.command.clone(),
            env: env.into_iter().collect(),
            near_env,
            switches: switches.iter().map(ToString::to_string).collect(),
            number: *trials,
            port: if keeps { *ports.entry(arm.name.clone()).or_insert(next) } else { spec.port },
            is_fresh: false,
        }
    }

    fn run(&mut self, arm: &Arm, turn: &TrialTurn) -> Result<Measurement, PathError> {
        let CommandSession { spec, near, far, middle, wire, settings, .. } = self;
        let spec = &*spec;
        let switches = arm_switches(spec, arm);
        let Middles { here, there } = middle;
        let mut spots = vec![near.side.spot(At::Near)];
        for place in here.iter() {
            spots.push(place.spot()?);
        }
        let wire = wire.as_ref();
        let mut trial: Box<middle::Trial<'_>> = match far {
            Far::Here { serving, kept } => {
                let serving = &**serving;
                spots.push(serving.side.spot(At::Far));
                let measure = |watch: &mut LocalWatch<'_>| near.measure(spec, turn, wire, watch);
                let mut trial = move || {
                    let (mut m, values) = serving.trial(turn, kept, measure)?;
                    add_figures_of_far(spec, &values, &mut m)?;
                    Ok((m, Vec::new()))
                };
                match wire {
                    None => Box::new(trial),
                    Some(wire) => {
                        let (near, far) = (&near.side, &serving.side);
                        let ends = [(&near.netns, near.ip), (&far.netns, far.ip)];
                        Box::new(move || wire.around(ends, &mut trial, |(m, _)| m))
                    }
                }
            }
            Far::There(far) => Box::new(|| {
                let ((mut m, values), idle) =
                    far.trial(turn, |watch: &mut dyn Watch| near.measure(spec, turn, None, watch))?;
                add_figures_of_far(spec, &values, &mut m)?;
                Ok((m, idle))
            }),
        };
        let mut trial = || middle::on_hosts(there, turn, &switches, &mut *trial);
        let around =
            settings.around(&spots, &switches, || middle::watched(here, &switches, &mut trial));
        let measured = around.map(|((m, idle), here_idle)| (m, [here_idle, idle].concat()));
        match measured {
            Ok((mut m, idle)) => {
                m.not_effective.extend(idle);
                Ok(m)
            }
            Err(invalid @ (PathError::Invalid { .. } | PathError::Unsupported { .. })) => {
                Err(invalid)
            }
            Err(error) => Err(PathError::Part(host::text::one_line(&error).into())),
        }
    }

    /// A trial of a server that was started in an earlier trial, or is started anew now.
    fn run_kept(&mut self, arm: &Arm, turn: &TrialTurn) -> Result<Measurement, PathError> {
        let begun = Instant::now();
        if self.stale.remove(&arm.name) {
            // The first trial of a start does not count: its server is cold. If it fails, so does the next one.
            let _cold = self.run(arm, &TrialTurn { is_fresh: true, ..turn.clone() });
            self.restarts.started(begun.elapsed());
            self.starts.insert(arm.name.clone(), turn.number);
        }
        let is_first = !self.starts.contains_key(&arm.name);
        let start = *self.starts.entry(arm.name.clone()).or_insert(turn.number);
        let begun = Instant::now();
        let measured = self.run(arm, turn);
        if is_first {
            // It includes the start of the server, as a restart with its first trial does.
            self.restarts.started(begun.elapsed());
        } else {
            self.restarts.ran(begun.elapsed());
        }
        if measured.is_err() {
            // Its server may have ended; the next trial then has another one.
            self.starts.remove(&arm.name);
        }
        Ok(Measurement { start: Some(start), ..measured? })
    }
}

impl Session for CommandSession {
    fn broken(&self) -> Option<String> {
        self.broken_by().map(str::to_owned)
    }

    fn trial(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        if let Some(why) = self.broken_by() {
            return Err(PathError::at("settings", why.to_owned()));
        }
        self.trials += 1;
        let turn = self.turn(arm);
        if self.keeps() { self.run_kept(arm, &turn) } else { self.run(arm, &turn) }
    }

    fn seed(&mut self, seed: u64) {
        self.wire.iter_mut().for_each(|wire| wire.seed(seed));
    }

    fn begin_block(&mut self) {
        self.wire.iter_mut().for_each(WireTrials::begin_block);
        if self.keeps() && self.restarts.is_due() {
            self.stale = self.starts.keys().cloned().collect();
        }
    }

    fn nic(&self) -> String {
        self.nic.clone()
    }

    fn far_machine(&self) -> Option<Machine> {
        match &self.far {
            Far::Here { .. } => None,
            Far::There(far) => far.machine(),
        }
    }
}

impl Drop for CommandSession {
    fn drop(&mut self) {
        if let Far::Here { serving, kept } = &mut self.far {
            serving.end(kept);
        }
    }
}

/// Errors: a figure of the processor's counters decides, and this kernel gives none.
fn check_counters(spec: &CheckedPrograms) -> Result<(), PathError> {
    let refused = spec.processor_figure().zip(sys::counters::why_unsupported());
    refused.map_or(Ok(()), |(name, needs)| {
        Err(PathError::Unsupported { what: format!("to count {name}"), needs })
    })
}
