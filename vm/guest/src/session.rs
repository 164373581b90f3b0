//! Trials of the guest: a new machine for each, and one Linux machine for all.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use host::cpu::CpuClock;
use model::{Arm, ArmKind, Measurement};

use super::accounting::{self, FirmwareCounts};
use super::echo::EchoKind;
use super::error::GuestError;
use super::link::{Endpoint, GuestLink};
use super::loads::{GuestLoad, LINUX, REFERENCE, SMOLTCP};
use super::ping::Until;
use super::qemu::{self, Boot, GuestMachine, Placement};
use super::switches::{FIFO_PRIORITY, Switch, firmware_switches};
use super::tap::{ECHO_INTERVAL, TapMachine};
use super::{files, flood, ping, start};
use lab::Meter;
use model::{Load, PathError, Session};
use telemetry::Snapshot;

/// Duration of the echoes before the measured part, so that code is translated, addresses are
/// resolved and caches are warm.
const WARM_UP_DURATION: Duration = Duration::from_millis(40);
const TAP_WARM_UP_COUNT: u64 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Traffic {
    Echo(EchoKind),
    Flood,
    Tap,
    Start,
}

/// A machine with one of the two kinds of wire.
enum Booted {
    Dgram(GuestMachine, GuestLink),
    Tap(TapMachine),
}

impl Booted {
    fn machine(&mut self) -> &mut GuestMachine {
        match self {
            Booted::Dgram(machine, _) => machine,
            Booted::Tap(tap) => &mut tap.machine,
        }
    }
}

pub(super) struct GuestSession {
    load: Load,
    kind: GuestLoad,
    traffic: Traffic,
    image: PathBuf,
    cpus: Vec<usize>,
    clock: Rc<CpuClock>,
    /// Booted for its first trial, and paused between trials, because it takes seconds to boot.
    linux: Option<Booted>,
}

impl GuestSession {
    pub(super) fn open(load: &Load, kind: GuestLoad) -> Result<Self, PathError> {
        let traffic = match kind {
            GuestLoad::UdpPing => Traffic::Echo(EchoKind::Udp),
            GuestLoad::Flood => Traffic::Flood,
            GuestLoad::TapPing => Traffic::Tap,
            GuestLoad::Start => Traffic::Start,
            GuestLoad::Ping | GuestLoad::PingUart115200 => Traffic::Echo(EchoKind::Icmp),
        };
        Ok(GuestSession {
            load: load.clone(),
            kind,
            traffic,
            image: files::image()?,
            cpus: sys::affinity::allowed_cpus().map_err(PathError::part)?,
            clock: Rc::new(CpuClock::open().map_err(PathError::part)?),
            linux: None,
        })
    }

    fn boot(&self, boot: &Boot) -> Result<Booted, GuestError> {
        match self.traffic {
            Traffic::Tap => TapMachine::boot(boot).map(Booted::Tap),
            _ => GuestMachine::boot(boot).map(|(machine, link)| Booted::Dgram(machine, link)),
        }
    }

    fn firmware(&self, arm: &Arm) -> Boot {
        let boot = Boot::firmware(&self.image, firmware_switches(arm));
        if self.kind == GuestLoad::PingUart115200 {
            return boot.with_words("wirepath.uart=115200");
        }
        boot
    }

    fn placement(&self, arm: &Arm) -> Placement {
        let split = arm.has(Switch::VcpuSplit) && self.cpus.len() > 1;
        let [main, vcpu] = [self.cpus.first(), self.cpus.last()]
            .map(|cpu| cpu.filter(|_| split).copied().into_iter().collect());
        Placement { main, vcpu, vcpu_fifo: arm.has(Switch::VcpuFifo).then_some(FIFO_PRIORITY) }
    }

    fn variant(&self, arm: &Arm) -> Result<(Measurement, u64), GuestError> {
        if self.traffic == Traffic::Start {
            return self.starts(&self.firmware(arm), Some(arm));
        }
        let mut booted = self.boot(&self.firmware(arm))?;
        booted.machine().place(&self.placement(arm))?;
        let mut m = self.measure(&mut booted, Some(arm))?;
        let placed = booted.machine().placement_in_effect()?;
        let console = booted.machine().said();
        m.not_effective.extend(accounting::placement_and_console(arm, &placed, &console));
        let ready_ns = booted.machine().ready_after.as_nanos() as f64;
        m.figures.insert("ready_ns".into(), ready_ns);
        m.mode.insert("guest".into(), "firmware".into());
        Ok((m, booted.machine().cpu_ns()))
    }

    /// Firmware without switches.
    fn reference(&self, image: PathBuf, guest: &str) -> Result<(Measurement, u64), GuestError> {
        let boot = Boot::reference(image);
        if self.traffic == Traffic::Start {
            return self.starts(&boot, None);
        }
        let mut booted = self.boot(&boot)?;
        let mut m = self.measure(&mut booted, None)?;
        let ready_ns = booted.machine().ready_after.as_nanos() as f64;
        m.figures.insert("ready_ns".into(), ready_ns);
        m.mode.insert("guest".into(), guest.into());
        Ok((m, booted.machine().cpu_ns()))
    }

    /// Boots under traffic until the trial's time has passed, at least once. Switches are judged by the
    /// counters of the last boot, from its start.
    fn starts(&self, boot: &Boot, arm: Option<&Arm>) -> Result<(Measurement, u64), GuestError> {
        let (begun, mut used_ns) = (Instant::now(), 0);
        let mut times = model::latency_histogram();
        loop {
            let mut started = start::boot(boot, self.load.size_bytes)?;
            times.saturating_record(started.first_answer_after.as_nanos() as u64);
            used_ns += started.machine.cpu_ns();
            if begun.elapsed() < self.load.trial {
                continue;
            }
            let mut m = accounting::starts(&times, begun.elapsed());
            let Some(arm) = arm else { return Ok((m, used_ns)) };
            let after = started.link.counters(&started.peer, 1)?;
            let before = Snapshot([0; telemetry::COUNTERS]);
            self.check_switches(&mut m, &FirmwareCounts { before, after }, arm)?;
            let placed = started.machine.placement_in_effect()?;
            let console = started.machine.said();
            m.not_effective.extend(accounting::placement_and_console(arm, &placed, &console));
            return Ok((m, used_ns));
        }
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

    /// Warms up, then measures. The firmware's counters are read if `arm` is given.
    fn measure(&self, booted: &mut Booted, arm: Option<&Arm>) -> Result<Measurement, GuestError> {
        match booted {
            Booted::Dgram(machine, link) => {
                let peer = link.resolve(super::link::GUEST_IP)?;
                self.on_sockets(machine, link, &peer, arm)
            }
            Booted::Tap(tap) => {
                tap.ping(TAP_WARM_UP_COUNT, self.load.size_bytes)?;
                let count = self.load.trial.as_nanos() / ECHO_INTERVAL.as_nanos();
                let before = arm.map(|_| tap.counters(1)).transpose()?;
                let times = tap.machine.times()?;
                let report = tap.ping((count as u64).max(1), self.load.size_bytes)?;
                let times = tap.machine.times()?.since(&times);
                let after = arm.map(|_| tap.counters(2)).transpose()?;
                let mut m = accounting::tap_echoes(&report);
                accounting::add_qemu(&mut m, &times);
                let counts = FirmwareCounts::between(before, after);
                self.with_counts(m, counts.as_ref(), arm)
            }
        }
    }

    fn on_sockets(
        &self,
        machine: &GuestMachine,
        link: &GuestLink,
        peer: &Endpoint,
        arm: Option<&Arm>,
    ) -> Result<Measurement, GuestError> {
        let (bytes, until) = (self.load.size_bytes, Until::Time(self.load.trial));
        let kind = match self.traffic {
            Traffic::Echo(kind) => kind,
            _ => EchoKind::Udp,
        };
        ping::run(link, peer, kind, bytes, Until::Time(WARM_UP_DURATION))?;
        if self.traffic == Traffic::Flood {
            let times = machine.times()?;
            let flood = flood::run(link, peer, bytes, until)?;
            let times = machine.times()?.since(&times);
            let counts = FirmwareCounts { before: flood.before, after: flood.after };
            let mut m = accounting::flooded(&flood, bytes);
            accounting::add_qemu(&mut m, &times);
            return self.with_counts(m, Some(&counts), arm);
        }
        let before = arm.map(|_| link.counters(peer, 1)).transpose()?;
        let times = machine.times()?;
        let pinged = ping::run(link, peer, kind, bytes, until)?;
        let times = machine.times()?.since(&times);
        let after = arm.map(|_| link.counters(peer, 2)).transpose()?;
        let counts = FirmwareCounts::between(before, after);
        let mut m = accounting::echoes(&pinged, kind, counts.as_ref());
        accounting::add_qemu(&mut m, &times);
        self.with_counts(m, counts.as_ref(), arm)
    }

    fn with_counts(
        &self,
        mut m: Measurement,
        counts: Option<&FirmwareCounts>,
        arm: Option<&Arm>,
    ) -> Result<Measurement, GuestError> {
        let Some(counts) = counts else { return Ok(m) };
        counts.add_to(&mut m);
        let Some(arm) = arm else { return Ok(m) };
        self.check_switches(&mut m, counts, arm)?;
        Ok(m)
    }

    /// Adds the switches without effect. Errors: the firmware ran with others than the arm's.
    fn check_switches(
        &self,
        m: &mut Measurement,
        counts: &FirmwareCounts,
        arm: &Arm,
    ) -> Result<(), GuestError> {
        // One image serves all arms: check that the requested arm ran.
        let asked = firmware_switches(arm).split(',').filter(|id| !id.is_empty()).count();
        if counts.switch_count() as usize != asked {
            let wanted = format!("switch word with {asked} switches on");
            return Err(GuestError::Print { program: "the firmware", wanted });
        }
        m.not_effective = counts.not_effective(arm, self.kind);
        Ok(())
    }
}

impl Session for GuestSession {
    fn trial(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        let clock = Rc::clone(&self.clock);
        let meter = Meter::start(&clock, &[])?;
        let (mut m, qemu_ns) = match arm.kind {
            ArmKind::Peer if arm.name == LINUX => self.linux()?,
            ArmKind::Peer if arm.name == REFERENCE => {
                self.reference(files::reference()?, "virtio-drivers and smoltcp")?
            }
            ArmKind::Peer if arm.name == SMOLTCP => {
                self.reference(files::smoltcp()?, "smoltcp on this driver")?
            }
            ArmKind::Peer => {
                let what = format!("no peer named {}", arm.name);
                return Err(PathError::Invalid {
                    what,
                    remedy: format!("use {LINUX}, {REFERENCE} or {SMOLTCP}"),
                });
            }
            _ => self.variant(arm)?,
        };
        // The firmware's machine is already killed, so its CPU time is passed to the meter.
        meter.stop()?.with_children(qemu_ns).account(&mut m);
        Ok(m)
    }

    fn nic(&self) -> String {
        let version = qemu::version().unwrap_or("of unknown version");
        let wire = if self.traffic == Traffic::Tap { "TAP" } else { "UNIX datagram sockets" };
        format!("virtio-net (MMIO) of QEMU {version}, TCG, cortex-a57, 1 vCPU; wire: {wire}")
    }
}
