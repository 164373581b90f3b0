//! Trials of machines: each stays for several blocks, except under load `start`.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use host::cpu::CpuClock;
use host::output_file;
use lab::Meter;
use model::{Arm, ArmKind, Load, Measurement, PathError, Restarts, Session};
use outside::OutsideWatch;

use crate::accounting::{self, Seen, add_machine};
use crate::check::{CheckedArm, CheckedVm, Monitor, Outside};
use crate::client;
use crate::echo::{Pace, Pinger};
use crate::error::failed_by;
use crate::loads::VmLoad;
use crate::machine::Machine;
use crate::start::{Started, start};

/// Fewest blocks of a machine's start.
const BLOCKS_MIN: u32 = 2;
/// Echoes before each trial: after its pause a guest's caches and its neighbour's are cold.
const WARM_UP_PACE: Pace = Pace::Every(Duration::from_millis(10));
const WARM_UP_DURATION: Duration = Duration::from_millis(45);
/// Echoes under way in a flood.
const FLOOD_WINDOW: usize = 16;
const NANOSECONDS: u64 = 1_000_000_000;

/// A running machine, paused between trials.
struct Kept {
    machine: Machine,
    /// Number of the trial in which it was started.
    start: u32,
}

pub(crate) struct VmSession {
    vm: Rc<CheckedVm>,
    load: Load,
    kind: VmLoad,
    stop: &'static AtomicBool,
    clock: CpuClock,
    /// By arm.
    kept: BTreeMap<String, Kept>,
    restarts: Restarts,
    trials: u32,
}

impl VmSession {
    pub(crate) fn open(
        vm: Rc<CheckedVm>,
        load: &Load,
        kind: VmLoad,
        stop: &'static AtomicBool,
    ) -> Result<Self, PathError> {
        Ok(VmSession {
            vm,
            load: load.clone(),
            kind,
            stop,
            clock: CpuClock::open().map_err(PathError::part)?,
            kept: BTreeMap::new(),
            restarts: Restarts::new(BLOCKS_MIN),
            trials: 0,
        })
    }

    /// Boots a machine that is ended with the trial.
    fn start_trial(&mut self, arm: &CheckedArm) -> Result<Measurement, PathError> {
        let meter = Meter::start(&self.clock, &[])?;
        let Started { machine, first_answer } =
            start(&self.vm, arm, self.load.size_bytes, self.stop)?;
        let usage = machine.usage()?;
        let console_bytes = machine.console_bytes();
        let no_cgroup = machine.why_no_cgroup();
        drop(machine);
        let mut m = accounting::started(first_answer);
        let cpu_ns = usage.cpu_ns();
        let text_bytes = arm.text_bytes;
        add_machine(&mut m, &Seen { text_bytes, usage, console_bytes, counts: None, no_cgroup });
        meter.stop()?.with_children(cpu_ns).account(&mut m);
        Ok(m)
    }

    /// A trial of a machine that was started in an earlier one, or is started now.
    fn kept_trial(&mut self, name: &str, arm: &CheckedArm) -> Result<Measurement, PathError> {
        let begun = Instant::now();
        let mut kept = match self.kept.remove(name) {
            Some(mut kept) => {
                kept.machine.resume()?;
                kept
            }
            None => {
                let mut machine = Machine::start(&self.vm, arm, false)?;
                machine.wait_ready(&self.vm, self.kind != VmLoad::Client, self.stop)?;
                self.restarts.started(begun.elapsed());
                Kept { machine, start: self.trials }
            }
        };
        let begun = Instant::now();
        // A machine that has failed is not kept.
        let m = self.measure(arm, &kept.machine)?;
        self.restarts.ran(begun.elapsed());
        kept.machine.pause()?;
        let start = Some(kept.start);
        self.kept.insert(name.to_owned(), kept);
        Ok(Measurement { start, ..m })
    }

    fn measure(&self, arm: &CheckedArm, machine: &Machine) -> Result<Measurement, PathError> {
        let mut pinger = match self.kind {
            VmLoad::Client => None,
            _ => Some(self.warm(machine)?),
        };
        let target = machine.target().filter(|_| self.vm.outside != Outside::Nothing);
        let watch = target.as_ref().map(OutsideWatch::begin).transpose();
        let watch = watch.map_err(|error| failed_by(&arm.name, &error))?;
        let meter = Meter::start(&self.clock, &[])?;
        let (before, printed_before) = (machine.usage()?, machine.console_bytes());
        let mut m = match &mut pinger {
            Some(pinger) => self.echoes(machine, pinger)?,
            None => self.served(arm, machine)?,
        };
        let usage = machine.usage()?.since(&before);
        let used = meter.stop()?;
        let console_bytes = machine.console_bytes().saturating_sub(printed_before);
        let counts = watch.map(OutsideWatch::end).transpose();
        let mut counts = counts.map_err(|error| failed_by(&arm.name, &error))?;
        if let (Some(counts), Some(target)) = (&mut counts, &target) {
            // The same text in each trial, and not about what was not asked for.
            counts.missing.retain(|what| target.trace_log.is_some() || !what.contains("trace log"));
            for what in &mut counts.missing {
                *what = what.replace(&format!("process {}", target.pid), "its process");
            }
        }
        if let (Some(prefix), Some(counts)) = (&self.vm.timeline, &counts) {
            let file = format!("{}-{}.json", prefix.display(), arm.name);
            let written = output_file::write(Path::new(&file), counts.timeline().as_bytes());
            written.map_err(|error| failed_by(&arm.name, &error))?;
        }
        let (cpu_ns, no_cgroup) = (usage.cpu_ns(), machine.why_no_cgroup());
        let text_bytes = arm.text_bytes;
        add_machine(&mut m, &Seen { text_bytes, usage, console_bytes, counts, no_cgroup });
        used.with_children(cpu_ns).account(&mut m);
        m.mode.insert("machine".into(), describe(arm));
        Ok(m)
    }

    fn warm(&self, machine: &Machine) -> Result<Pinger, PathError> {
        let mut pinger = machine.pinger(&self.vm, self.load.size_bytes)?;
        let warm = pinger.run(WARM_UP_PACE, WARM_UP_DURATION, self.stop)?;
        if warm.answered_count == 0 {
            return Err(machine.failed("its guest does not answer pings"));
        }
        Ok(pinger)
    }

    fn echoes(&self, machine: &Machine, pinger: &mut Pinger) -> Result<Measurement, PathError> {
        let pace = match self.kind {
            VmLoad::BackToBack => Pace::Window(1),
            VmLoad::Flood => Pace::Window(FLOOD_WINDOW),
            _ => Pace::Every(Duration::from_nanos(NANOSECONDS / self.load.rate_pps.max(1))),
        };
        let echoes = pinger.run(pace, self.load.trial, self.stop)?;
        machine.check()?;
        if echoes.answered_count == 0 {
            let why = format!("its guest answered none of {} pings", echoes.sent_count);
            return Err(machine.failed(&why));
        }
        Ok(match self.kind {
            VmLoad::Flood => accounting::flooded(&echoes, self.load.size_bytes),
            _ => accounting::echoes(&echoes),
        })
    }

    fn served(&self, arm: &CheckedArm, machine: &Machine) -> Result<Measurement, PathError> {
        let Some(client) = &self.vm.client else {
            return Err(crate::error::invalid("client is missing", "add the command of the load"));
        };
        let far = self.vm.far.filter(|_| machine.far().is_some()).unwrap_or(self.vm.guest);
        let variables = [
            ("WIREPATH_NEAR", self.vm.near.to_string()),
            ("WIREPATH_FAR", far.to_string()),
            ("WIREPATH_INTERFACE", machine.near().ifname.clone()),
            ("WIREPATH_ARM", arm.name.clone()),
            ("WIREPATH_TRIAL", self.trials.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value));
        let frames_before = machine.near().frame_count().map_err(PathError::part)?;
        let served = client::run(&self.vm, client, machine, &variables, self.stop);
        // The machine's end is the cause.
        let served = machine.check().and(served)?;
        let frames = machine.near().frame_count().map_err(PathError::part)? - frames_before;
        Ok(accounting::served(&served, frames))
    }
}

/// The arm's machine in words, for the record.
fn describe(arm: &CheckedArm) -> String {
    let image = arm.image.as_ref().map(|image| image.display().to_string()).unwrap_or_default();
    let append = arm.append.as_deref().unwrap_or_default();
    let monitor = match &arm.monitor {
        Monitor::Qemu(qemu) => format!("{} {}", qemu.emulator, qemu.options),
        Monitor::Other(command) => command.clone(),
    };
    format!("{} {image} {append}", monitor.trim()).trim().to_owned()
}

/// The file's arm that an arm of the experiment runs.
pub(crate) fn file_arm<'a>(vm: &'a CheckedVm, arm: &Arm) -> &'a CheckedArm {
    let named = vm.arms.iter().find(|of| of.name == arm.name && arm.kind != ArmKind::Control);
    named.unwrap_or(&vm.arms[0])
}

impl Session for VmSession {
    fn trial(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        self.trials += 1;
        let vm = Rc::clone(&self.vm);
        let checked = file_arm(&vm, arm);
        match self.kind {
            VmLoad::Start => self.start_trial(checked),
            _ => self.kept_trial(&arm.name, checked),
        }
    }

    fn begin_block(&mut self) {
        if self.restarts.is_due() {
            self.kept.clear();
        }
    }

    fn nic(&self) -> String {
        let cards = self.vm.arms[0].macs.len();
        let cards = if cards == 2 { "two cards" } else { "one card" };
        format!("{cards} of a virtual machine; wire: TAP")
    }
}
