//! Trials of the virtual NIC in a lab: a guest that sends, and a host that receives.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use host::cpu::CpuClock;
use host::lab::End as LabEnd;
use io::thread::start;
use model::{Arm, ArmKind, Measurement};
use wire::nettest::report;

use super::ends::{BackEnd, Ends, MAC, Wire, lost_on_wire};
use super::guest::{PATIENCE, RAM_BYTES, RING_LOG2, run_guest};
use super::stream::{Direction, Length};
use super::streams::Stream;
use super::vmm::{self, PacedSender, Spec, Task};
use super::{books, image, native, qemu, sink, switches};
use crate::lab::{Meter, Used, drain};
use crate::path::{Load, PathError, Session};

/// Frames before the measured part: pages are faulted in, threads are awake.
const WARM_UP: u64 = 16;
/// Silence at the sink after which a trial is over, and the longest wait for it.
const GRACE: Duration = Duration::from_millis(25);
const GRACE_MAX: Duration = Duration::from_secs(2);
/// Link of the load `paced`.
const LINK_BPS: u64 = 100_000_000;

/// The lab and what is kept from trial to trial.
pub(super) struct VmnicSession {
    ends: Ends,
    image: Vec<u8>,
    load: Load,
    clock: Rc<CpuClock>,
    /// What leaving the guest costs here; `None` where no guest runs.
    exit_cost_ns: Option<u64>,
}

impl VmnicSession {
    pub(super) fn open(load: &Load) -> Result<Self, PathError> {
        Ok(VmnicSession {
            ends: Ends::new()?,
            // Native loops need none.
            image: image::load().unwrap_or_default(),
            load: load.clone(),
            clock: Rc::new(CpuClock::open().map_err(PathError::part)?),
            exit_cost_ns: vmm::exit_cost_ns().ok(),
        })
    }

    /// A back end, behind a link of the load's rate.
    fn backend(&self, back_end: BackEnd) -> Result<Wire<'_>, PathError> {
        let wire = self.ends.open(back_end)?;
        if self.load.kind != "paced" {
            return Ok(wire);
        }
        let sender = Box::new(PacedSender::new(wire.sender, LINK_BPS));
        Ok(Wire { sender, ..wire })
    }

    /// Runs `source` while the sink at `far` takes frames; `source` says how many it sent in all.
    fn with_sink<R>(
        &self,
        far: &LabEnd,
        warm_up: u64,
        source: impl FnOnce() -> Result<(R, u64), PathError>,
    ) -> Result<(R, sink::Received, Used, u64), PathError> {
        let lost_before = lost_on_wire(far)?;
        let (stop, seen) = (AtomicBool::new(false), AtomicU64::new(0));
        let (ready, is_ready) = mpsc::sync_channel::<()>(1);
        let size_bytes = self.load.size_bytes;
        let meter = Meter::start(&self.clock)?;
        let (ran, received) = thread::scope(|scope| {
            let (stop, seen) = (&stop, &seen);
            let receiver = start(scope, "sink", move || -> Result<sink::Received, String> {
                far.netns.enter().map_err(|e| format!("entering the lab: {e}"))?;
                let sink = sink::Sink::open(far).map_err(|e| format!("a packet socket: {e}"))?;
                let _ = ready.send(());
                drop(ready);
                sink.receive(size_bytes, warm_up, stop, seen).map_err(|e| e.to_string())
            });
            let ran = is_ready.recv().is_ok().then(source);
            if let Some(Ok((_, sent_count))) = &ran {
                drain(seen, *sent_count, GRACE, GRACE_MAX);
            }
            stop.store(true, Ordering::Release);
            let received = receiver.end();
            (ran, received)
        });
        let used = meter.stop()?;
        let received = received.map_err(|why| PathError::End { end: "sink".into(), why })?;
        let Some(ran) = ran else {
            let why = "it was not ready".to_owned();
            return Err(PathError::End { end: "sink".into(), why });
        };
        let lost_count = lost_on_wire(far)?.saturating_sub(lost_before);
        Ok((ran?.0, received, used, lost_count))
    }

    fn task(&self, far: &LabEnd) -> Task {
        Task {
            count: 0,
            warm_up: WARM_UP,
            duration_us: self.load.trial.as_micros() as u64,
            peer_mac: far.mac,
            tx_ring_log2: RING_LOG2,
            rx_ring_log2: RING_LOG2,
            ..Task::send(self.load.size_bytes as u64, 0)
        }
    }

    fn variant(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        let switches = switches::of_arm(arm);
        let wire = self.backend(BackEnd::of(&switches))?;
        let task = self.task(wire.far);
        let spec = Spec { image: &self.image, ram_bytes: RAM_BYTES, mac: MAC, task, switches };
        let (sender, receiver) = (wire.sender, wire.receiver);
        let (measured, received, used, lost_count) = self.with_sink(wire.far, WARM_UP, || {
            let measured = run_guest(&spec, sender, receiver, self.load.trial + PATIENCE)?;
            let sent_count = WARM_UP + measured.report[report::TX_FRAMES];
            Ok((measured, sent_count))
        })?;
        let mut m =
            books::of_guest(&measured, &received, self.load.size_bytes, WARM_UP, lost_count);
        used.account(&mut m);
        m.mode.insert("back end".into(), wire.mode.into());
        m.not_effective = books::not_effective(&switches, &measured);
        Ok(m)
    }

    /// A TCP stream between the guest's stack and a Linux socket.
    fn stream(&self, arm: &Arm, direction: Direction) -> Result<Measurement, PathError> {
        let length = Length::For(self.load.trial);
        let meter = Meter::start(&self.clock)?;
        let run = Stream { direction, size_bytes: self.load.size_bytes, length };
        let (measured, passed, mode) = run.through(&self.ends, &self.image, arm)?;
        let used = meter.stop()?;
        let mut m = books::of_stream(&measured, &passed);
        used.account(&mut m);
        m.mode.insert("back end".into(), mode.into());
        m.not_effective = books::not_effective(&switches::of_arm(arm), &measured);
        Ok(m)
    }

    /// The guest on QEMU's device, frames to the same TAP.
    fn qemu(&self, card: qemu::Card) -> Result<Measurement, PathError> {
        let (tap, _) = self.ends.tap();
        let far = self.ends.far(BackEnd::Tap);
        let task = self.task(far);
        let (ran, received, used, lost_count) = self.with_sink(far, WARM_UP, || {
            let ran = qemu::run(card, &self.image, &task, tap, self.load.trial + PATIENCE)?;
            let sent_count = WARM_UP + ran.report[report::TX_FRAMES];
            Ok((ran, sent_count))
        })?;
        let size_bytes = self.load.size_bytes;
        let mut m = books::of_qemu(&ran, &received, size_bytes, WARM_UP, lost_count);
        used.with_children(ran.total_ns).account(&mut m);
        Ok(m)
    }

    fn qemu_stream(
        &self,
        card: qemu::Card,
        direction: Direction,
    ) -> Result<Measurement, PathError> {
        let length = Length::For(self.load.trial);
        let meter = Meter::start(&self.clock)?;
        let run = Stream { direction, size_bytes: self.load.size_bytes, length };
        let (ran, passed) = run.through_qemu(card, &self.ends, &self.image)?;
        let used = meter.stop()?;
        let mut m = books::of_qemu_stream(&ran, &passed);
        used.with_children(ran.total_ns).account(&mut m);
        Ok(m)
    }

    fn native(&self, name: &str) -> Result<Measurement, PathError> {
        let back_end = match name {
            "native-tap" => BackEnd::Tap,
            "native-xdp" => BackEnd::XdpRing,
            _ => BackEnd::PacketRing,
        };
        let Wire { mut sender, receiver, far, mode, .. } = self.backend(back_end)?;
        // Nobody listens: what a native program does not ask for, it does not pay for.
        drop(receiver);
        let (size_bytes, trial) = (self.load.size_bytes, self.load.trial);
        let (ran, received, used, lost_count) = self.with_sink(far, 0, || {
            let ran = native::run(sender.as_mut(), far.mac, MAC, size_bytes, trial);
            let sent_count = ran.sent_count;
            Ok((ran, sent_count))
        })?;
        let refused_count = sender.refused_count();
        let mut m = books::of_native(&ran, &received, size_bytes, lost_count, refused_count);
        used.account(&mut m);
        m.mode.insert("back end".into(), mode.into());
        Ok(m)
    }
}

impl Session for VmnicSession {
    fn trial(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        let direction = match self.load.kind.as_str() {
            "tcp" => Some(Direction::ToHost),
            "tcp-receive" => Some(Direction::ToGuest),
            _ => None,
        };
        match (arm.kind, qemu::Card::of_arm(&arm.name), direction) {
            (ArmKind::Peer, Some(card), None) => self.qemu(card),
            (ArmKind::Peer, Some(card), Some(direction)) => self.qemu_stream(card, direction),
            (ArmKind::Peer, None, _) => self.native(&arm.name),
            (_, _, None) => self.variant(arm),
            (_, _, Some(direction)) => self.stream(arm, direction),
        }
    }

    fn nic(&self) -> String {
        let exit = match self.exit_cost_ns {
            Some(ns) => format!("leaving the guest costs {:.1} µs", ns as f64 / 1000.0),
            None => "no KVM".into(),
        };
        format!("Lance over a TAP or a veth, MTU 1500; {exit}")
    }
}
