//! Trials of the user's programs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use host::cpu::CpuClock;
use lab::Placement;
use lab::program::Program;
use model::{Arm, Measurement, PathError, Session};

use crate::life::{Life, Turn};
use crate::path::{spec_of, switches_of};
use crate::place::Place;
use crate::settings::Settings;
use crate::{Spec, Switch};

pub use crate::settings::Journals;

/// An open place in which arms take turns.
pub struct CommandSession {
    spec: Spec,
    place: Place,
    cpus: Placement,
    clock: CpuClock,
    folder: PathBuf,
    settings: Settings,
    /// Running servers by arm, with `--keep`.
    kept: BTreeMap<String, Program>,
    /// Port of each arm, with `--keep`.
    ports: BTreeMap<String, u16>,
    trials: u32,
    stop: &'static AtomicBool,
}

impl CommandSession {
    /// Builds the lab or opens the namespaces; starts no program.
    ///
    /// - `journals`: for settings of the user's namespaces.
    /// - `trials`: those of the experiment that ran before, which $WIREPATH_TRIAL counts.
    /// - `stop`: ends a trial under way.
    pub fn open(
        spec: Spec,
        journals: Journals,
        trials: u32,
        stop: &'static AtomicBool,
    ) -> Result<Self, PathError> {
        let place = Place::open(&spec)?;
        let cpus = placement(&spec)?;
        let clock = CpuClock::open().map_err(PathError::part)?;
        let folder = std::env::current_dir().map_err(PathError::part)?;
        let settings = Settings::open(&spec, &place, journals, spec.limit(), stop)?;
        let (kept, ports) = (BTreeMap::new(), BTreeMap::new());
        Ok(CommandSession { spec, place, cpus, clock, folder, settings, kept, ports, trials, stop })
    }

    /// Reason why trials are no longer valid, if settings could not be rolled back.
    pub fn broken(&self) -> Option<&str> {
        self.settings.broken()
    }
}

/// The CPUs asked for; else half of the CPUs for each end, because the ends represent two hosts.
fn placement(spec: &Spec) -> Result<Placement, PathError> {
    let all = sys::affinity::allowed_cpus().map_err(PathError::part)?;
    let asked = spec.near_cpus.iter().chain(&spec.far_cpus).flatten();
    if let Some(cpu) = asked.into_iter().find(|cpu| !all.contains(cpu)) {
        let allowed: Vec<String> = all.iter().map(usize::to_string).collect();
        return Err(PathError::Invalid {
            what: format!("CPU {cpu} is not one that this process may use"),
            remedy: format!("choose of {}", allowed.join(",")),
        });
    }
    let half = match (&spec.near_cpus, &spec.far_cpus) {
        (None, None) => all.len() / 2,
        _ => 0,
    };
    let (near, far) = if half == 0 { (&[][..], &[][..]) } else { all.split_at(half) };
    Ok(Placement {
        near: spec.near_cpus.clone().unwrap_or_else(|| near.to_vec()),
        far: spec.far_cpus.clone().unwrap_or_else(|| far.to_vec()),
    })
}

impl Session for CommandSession {
    fn trial(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        if let Some(why) = self.settings.broken() {
            return Err(PathError::at("settings", why.to_owned()));
        }
        self.trials += 1;
        let CommandSession { spec, place, cpus, clock, folder, settings, kept, ports, .. } = self;
        let life = Life { spec, place, cpus, clock, folder, stop: self.stop };
        let switches = switches_of(spec, arm);
        let of_arm = spec_of(spec, arm);
        let mut env: BTreeMap<String, String> = of_arm.env.iter().cloned().collect();
        env.extend(switches.iter().filter_map(|switch| match switch {
            Switch::Env { name, value } => Some((name.clone(), value.clone())),
            Switch::Knob { .. } => None,
        }));
        let keeps = spec.keep && spec.has_server();
        let next = spec.port + ports.len() as u16;
        let port = if keeps { *ports.entry(arm.name.clone()).or_insert(next) } else { spec.port };
        let env = env.into_iter().collect();
        let ready = spec.ready(port).map_err(PathError::part)?;
        let turn = Turn { name: &arm.name, arm: of_arm, env, number: self.trials, port, ready };
        let measured = settings.around(place, &switches, || {
            if !keeps {
                return life.trial(&turn, None);
            }
            let server = match kept.remove(&arm.name) {
                Some(server) => server,
                None => life.serve(&turn)?.0,
            };
            let measured = life.trial(&turn, Some(&server));
            if server.check().is_ok() {
                kept.insert(arm.name.clone(), server);
            }
            measured
        });
        measured.map_err(one_line)
    }

    fn nic(&self) -> String {
        self.place.nic.clone()
    }
}

/// The error with its causes and the last lines of output in one line.
fn one_line(error: PathError) -> PathError {
    match error {
        invalid @ (PathError::Invalid { .. } | PathError::Unsupported { .. }) => invalid,
        error => {
            let text = host::text::chain(&error);
            let lines: Vec<&str> = text.lines().map(str::trim).collect();
            PathError::Part(lines.join(" | ").into())
        }
    }
}

impl Drop for CommandSession {
    fn drop(&mut self) {
        for server in std::mem::take(&mut self.kept).into_values() {
            // Killed after the grace time; there is no trial left to fail.
            let _stopped = server.stop(self.spec.limits.grace);
        }
    }
}
