//! Trials of the guest: a machine booted for each, and a Linux machine that is kept.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use host::cpu::CpuClock;
use model::{Arm, ArmKind, Measurement};

use super::books::{self, Told};
use super::echo::Kind;
use super::error::GuestError;
use super::link::{Link, Station};
use super::ping::Until;
use super::qemu::{self, Boot, Machine, Placement};
use super::switches::{FIFO_PRIORITY, word_of};
use super::tap::{INTERVAL, LOAD as TAP_LOAD, TapMachine};
use super::{LINUX, REFERENCE, files, flood, ping};
use crate::lab::Meter;
use crate::path::{Load, PathError, Session};

/// Echoes before the first that counts: what is translated, resolved and cached by then is so in
/// every later one.
const WARM_UP: Duration = Duration::from_millis(40);
const TAP_WARM_UP_COUNT: u64 = 3;

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Traffic {
    Echo(Kind),
    Flood,
    Tap,
}

/// A machine with one of the two wires.
enum Booted {
    Dgram(Machine, Link),
    Tap(TapMachine),
}

impl Booted {
    fn machine(&mut self) -> &mut Machine {
        match self {
            Booted::Dgram(machine, _) => machine,
            Booted::Tap(tap) => &mut tap.machine,
        }
    }
}

/// What is kept from trial to trial.
pub(super) struct GuestSession {
    load: Load,
    traffic: Traffic,
    image: PathBuf,
    cpus: Vec<usize>,
    clock: Rc<CpuClock>,
    /// Booted for its first trial, and stopped between trials: it takes seconds to boot.
    linux: Option<Booted>,
}

impl GuestSession {
    pub(super) fn open(load: &Load) -> Result<Self, PathError> {
        let traffic = match load.kind.as_str() {
            "udp-ping" => Traffic::Echo(Kind::Udp),
            "flood" => Traffic::Flood,
            TAP_LOAD => Traffic::Tap,
            _ => Traffic::Echo(Kind::Icmp),
        };
        Ok(GuestSession {
            load: load.clone(),
            traffic,
            image: files::image()?,
            cpus: io::affinity::allowed_cpus().map_err(PathError::part)?,
            clock: Rc::new(CpuClock::open().map_err(PathError::part)?),
            linux: None,
        })
    }

    fn boot(&self, boot: &Boot) -> Result<Booted, GuestError> {
        match self.traffic {
            Traffic::Tap => TapMachine::boot(boot).map(Booted::Tap),
            _ => Machine::boot(boot).map(|(machine, link)| Booted::Dgram(machine, link)),
        }
    }

    fn firmware(&self, arm: &Arm) -> Boot {
        let boot = Boot::firmware(&self.image, word_of(arm));
        match self.load.kind.as_str() {
            "ping-uart-115200" => boot.with_words("wirepath.uart=115200"),
            _ => boot,
        }
    }

    fn placement(&self, arm: &Arm) -> Placement {
        let split = arm.has("vcpu-split") && self.cpus.len() > 1;
        let only = |cpu: Option<&usize>| cpu.filter(|_| split).copied().into_iter().collect();
        Placement {
            main: only(self.cpus.first()),
            vcpu: only(self.cpus.last()),
            vcpu_fifo: arm.has("vcpu-fifo").then_some(FIFO_PRIORITY),
        }
    }

    fn variant(&self, arm: &Arm) -> Result<(Measurement, u64), GuestError> {
        let mut booted = self.boot(&self.firmware(arm))?;
        booted.machine().place(&self.placement(arm))?;
        let mut m = self.measure(&mut booted, Some(arm))?;
        let ready_ns = booted.machine().ready_after.as_nanos() as f64;
        m.figures.insert("ready_ns".into(), ready_ns);
        m.mode.insert("guest".into(), "firmware".into());
        Ok((m, booted.machine().cpu_ns()))
    }

    fn reference(&self) -> Result<(Measurement, u64), GuestError> {
        let mut booted = self.boot(&Boot::reference(files::reference()?))?;
        let mut m = self.measure(&mut booted, None)?;
        let ready_ns = booted.machine().ready_after.as_nanos() as f64;
        m.figures.insert("ready_ns".into(), ready_ns);
        m.mode.insert("guest".into(), "virtio-drivers and smoltcp".into());
        Ok((m, booted.machine().cpu_ns()))
    }

    fn linux(&mut self) -> Result<(Measurement, u64), GuestError> {
        let mut before_ns = 0;
        let mut booted = match self.linux.take() {
            Some(mut booted) => {
                before_ns = booted.machine().cpu_ns();
                booted.machine().resume()?;
                booted
            }
            None => self.boot(&Boot::linux(files::linux()?))?,
        };
        let mut m = self.measure(&mut booted, None)?;
        booted.machine().pause()?;
        m.mode.insert("guest".into(), "Linux".into());
        let used_ns = booted.machine().cpu_ns() - before_ns;
        self.linux = Some(booted);
        Ok((m, used_ns))
    }

    /// Warms up, then measures; the firmware's counters are read for an `arm` of its own.
    fn measure(&self, booted: &mut Booted, arm: Option<&Arm>) -> Result<Measurement, GuestError> {
        match booted {
            Booted::Dgram(machine, link) => {
                let station = link.resolve(super::link::GUEST_IP)?;
                self.on_sockets(machine, link, &station, arm)
            }
            Booted::Tap(tap) => {
                tap.ping(TAP_WARM_UP_COUNT, self.load.size_bytes)?;
                let count = self.load.trial.as_nanos() / INTERVAL.as_nanos();
                let before = tap.machine.times()?;
                let report = tap.ping((count as u64).max(1), self.load.size_bytes)?;
                let times = tap.machine.times()?.since(&before);
                let mut m = books::of_report(&report);
                books::enter_qemu(&mut m, &times);
                Ok(m)
            }
        }
    }

    fn on_sockets(
        &self,
        machine: &Machine,
        link: &Link,
        station: &Station,
        arm: Option<&Arm>,
    ) -> Result<Measurement, GuestError> {
        let (bytes, until) = (self.load.size_bytes, Until::Time(self.load.trial));
        let kind = match self.traffic {
            Traffic::Echo(kind) => kind,
            _ => Kind::Udp,
        };
        ping::run(link, station, kind, bytes, Until::Time(WARM_UP))?;
        if self.traffic == Traffic::Flood {
            let times = machine.times()?;
            let flood = flood::run(link, station, bytes, until)?;
            let times = machine.times()?.since(&times);
            let told = Told { before: flood.before, after: flood.after };
            let mut m = books::of_flood(&flood, bytes);
            books::enter_qemu(&mut m, &times);
            return self.with_told(m, &told, arm);
        }
        let snapshot = |token| arm.map(|_| link.counters(station, token)).transpose();
        let before = snapshot(1)?;
        let times = machine.times()?;
        let pinged = ping::run(link, station, kind, bytes, until)?;
        let times = machine.times()?.since(&times);
        let told = before.zip(snapshot(2)?).map(|(before, after)| Told { before, after });
        let mut m = books::of_ping(&pinged, kind, told.as_ref());
        books::enter_qemu(&mut m, &times);
        match told {
            Some(told) => self.with_told(m, &told, arm),
            None => Ok(m),
        }
    }

    fn with_told(
        &self,
        mut m: Measurement,
        told: &Told,
        arm: Option<&Arm>,
    ) -> Result<Measurement, GuestError> {
        told.enter(&mut m);
        let Some(arm) = arm else { return Ok(m) };
        // One image for all arms: a trial of another arm than asked for would be a lie.
        let asked = word_of(arm).split(',').filter(|id| !id.is_empty()).count();
        if told.switch_count() as usize != asked {
            let wanted = format!("switch word with {asked} switches on");
            return Err(GuestError::Print { program: "the firmware", wanted });
        }
        m.not_effective = told.not_effective(arm, &self.load.kind);
        Ok(m)
    }
}

impl Session for GuestSession {
    fn trial(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        let clock = Rc::clone(&self.clock);
        let meter = Meter::start(&clock)?;
        let (mut m, qemu_ns) = match arm.kind {
            ArmKind::Peer if arm.name == LINUX => self.linux()?,
            ArmKind::Peer if arm.name == REFERENCE => self.reference()?,
            ArmKind::Peer => {
                let what = format!("no peer named {}", arm.name);
                return Err(PathError::Invalid {
                    what,
                    remedy: format!("there are {LINUX} and {REFERENCE}"),
                });
            }
            _ => self.variant(arm)?,
        };
        // The machine of the firmware was killed by now: the meter hears of what it used from us.
        meter.stop()?.with_children(qemu_ns).account(&mut m);
        Ok(m)
    }

    fn nic(&self) -> String {
        let version = qemu::version().unwrap_or("of unknown version");
        let wire = if self.traffic == Traffic::Tap { "TAP" } else { "UNIX datagram sockets" };
        format!("virtio-net (MMIO) of QEMU {version}, TCG, cortex-a57, 1 vCPU; wire: {wire}")
    }
}
