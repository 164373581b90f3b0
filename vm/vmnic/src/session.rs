//! Trials of the virtual NIC in a lab: a guest that sends, and a host that receives.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use guest_pages::report;
use host::cpu::CpuClock;
use host::kvm::GuestRam;
use lab::End as LabEnd;
use model::{Arm, ArmKind, Measurement};

use super::host_stream::{Length, Passed, StreamDirection};
use super::ping::Ping;
use super::run_guest::{BOOT_TIMEOUT, RING_LOG2, Ran, run_guest, spec};
use super::sink::SinkError;
use super::stream::Stream;
use super::topology::{BackEnd, MAC, Topology, Wire, lost_on_wire};
use super::{accounting, image, native, qemu, sink};
use crate::path::VmnicLoad;
use crate::switches::{self, is_foreign};
use lab::{Meter, Run, Used};
use model::{Load, PathError, Session};
use vmm::{self, GuestTask, Halves, PacedSender};

/// Frames before the measured part: pages are faulted in, threads are awake.
const WARM_UP: u64 = 16;
/// Silence at the sink that ends a trial, and the time limit for it.
const SILENCE_GRACE: Duration = Duration::from_millis(25);
const SILENCE_TIMEOUT: Duration = Duration::from_secs(2);
/// Link of the load `paced`.
const LINK_BPS: u64 = 100_000_000;

/// The lab and the state that trials share.
pub(super) struct VmnicSession {
    ends: Topology,
    image: Vec<u8>,
    load: Load,
    kind: VmnicLoad,
    clock: Rc<CpuClock>,
    /// Cost of an exit on this host; `None` without KVM.
    exit_cost_ns: Option<u64>,
    /// Arms of which a stream's SHA-256 was compared at both ends.
    compared: BTreeSet<String>,
}

impl VmnicSession {
    pub(super) fn open(load: &Load, kind: VmnicLoad) -> Result<Self, PathError> {
        Ok(VmnicSession {
            ends: Topology::new()?,
            // Native loops do not need the image.
            image: image::load().unwrap_or_default(),
            load: load.clone(),
            kind,
            clock: Rc::new(CpuClock::open().map_err(PathError::part)?),
            exit_cost_ns: vmm::exit_cost_ns().ok(),
            compared: BTreeSet::new(),
        })
    }

    /// Runs `source` while the sink at `far` receives; `source` returns its result and the number of
    /// frames sent.
    fn with_sink<R: Send>(
        &self,
        far: &LabEnd,
        warm_up: u64,
        source: impl FnOnce() -> Result<(R, u64), PathError> + Send,
    ) -> Result<(R, sink::SinkReceived, Used, u64), PathError> {
        let lost_before = lost_on_wire(far)?;
        let seen = &AtomicU64::new(0);
        let size_bytes = self.load.size_bytes;
        let ends = Run {
            receiver: "sink",
            sender: "source",
            received_count: seen,
            grace: SILENCE_GRACE,
            grace_max: SILENCE_TIMEOUT,
        };
        let meter = Meter::start(&self.clock, &[])?;
        let (ran, received) = lab::run(
            &ends,
            |signals| {
                far.netns.enter().map_err(SinkError::Netns)?;
                let sink = sink::Sink::open(far).map_err(SinkError::Socket)?;
                signals.ready();
                let received = sink.receive(size_bytes, warm_up, signals.stop, seen);
                Ok(received.map_err(SinkError::Receive)?)
            },
            || Ok(source()?),
        )?;
        let used = meter.stop()?;
        let lost_count = lost_on_wire(far)?.saturating_sub(lost_before);
        Ok((ran, received, used, lost_count))
    }

    fn task(&self, far: &LabEnd) -> GuestTask {
        GuestTask {
            count: 0,
            warm_up: WARM_UP,
            duration_us: self.load.trial.as_micros() as u64,
            peer_mac: far.mac,
            tx_ring_log2: RING_LOG2,
            rx_ring_log2: RING_LOG2,
            ..GuestTask::send(self.load.size_bytes as u64, 0)
        }
    }

    fn variant(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        let back_end = BackEnd::new(arm);
        let wire = self.ends.wire(back_end);
        let spec = spec(&self.image, arm, self.task(wire.far));
        let (ends, kind, trial) = (&self.ends, self.kind, self.load.trial);
        let (ran, received, used, lost_count) = self.with_sink(wire.far, WARM_UP, || {
            let ran = run_guest(
                &spec,
                |ram| open(ends, kind, back_end, Some(ram)),
                trial + BOOT_TIMEOUT,
            )?;
            let sent_count = ran.measured.report[report::TX_FRAMES].saturating_add(WARM_UP);
            Ok((ran, sent_count))
        })?;
        let (measured, size_bytes) = (&ran.measured, self.load.size_bytes);
        let mut m = accounting::guest_frames(measured, &received, size_bytes, WARM_UP, lost_count);
        finish(&mut m, arm, &ran, used, wire.mode);
        Ok(m)
    }

    /// A TCP stream between the guest's stack and a Linux socket.
    fn stream(&mut self, arm: &Arm, direction: StreamDirection) -> Result<Measurement, PathError> {
        let compared_bytes = self.compare_digests(&arm.name, direction, |session, stream| {
            Ok(stream.through(&session.ends, &session.image, arm)?.1)
        })?;
        let meter = Meter::start(&self.clock, &[])?;
        let stream = self.new_stream(direction, false);
        let (ran, passed, mode) = stream.through(&self.ends, &self.image, arm)?;
        let used = meter.stop()?;
        let mut m = accounting::guest_stream(&ran.measured, &passed);
        finish(&mut m, arm, &ran, used, mode);
        m.counters.insert("digest_compared_bytes".into(), compared_bytes);
        Ok(m)
    }

    fn ping(&self) -> Ping {
        Ping { size_bytes: self.load.size_bytes, trial: self.load.trial }
    }

    /// Echoes between a Linux socket and the guest.
    fn echoes(&self, arm: &Arm) -> Result<Measurement, PathError> {
        let meter = Meter::start(&self.clock, &[])?;
        let (ran, pinged, mode) = self.ping().through(&self.ends, &self.image, arm)?;
        let used = meter.stop()?;
        let mut m = accounting::guest_echoes(&ran.measured, &pinged);
        finish(&mut m, arm, &ran, used, mode);
        Ok(m)
    }

    fn qemu_echoes(&self, card: qemu::QemuCard) -> Result<Measurement, PathError> {
        let meter = Meter::start(&self.clock, &[])?;
        let (ran, pinged) = self.ping().through_qemu(card, &self.ends, &self.image)?;
        let used = meter.stop()?;
        let mut m = accounting::qemu_echoes(&ran, &pinged);
        used.with_children(ran.total_ns).account(&mut m);
        Ok(m)
    }

    fn new_stream(&self, direction: StreamDirection, is_digested: bool) -> Stream {
        let length = Length::For(self.load.trial);
        Stream { direction, size_bytes: self.load.size_bytes, length, is_digested }
    }

    /// Before an arm's first trial: a stream by `run`, not measured, whose SHA-256 is compared at both
    /// ends. Returns its bytes; 0 if it was done before. Errors: the ends differ.
    fn compare_digests(
        &mut self,
        arm: &str,
        direction: StreamDirection,
        run: impl FnOnce(&Self, &Stream) -> Result<Passed, PathError>,
    ) -> Result<u64, PathError> {
        if self.compared.contains(arm) {
            return Ok(0);
        }
        let passed = run(self, &self.new_stream(direction, true))?;
        self.compared.insert(arm.to_owned());
        Ok(passed.bytes)
    }

    /// The guest on QEMU's device, frames to the same TAP.
    fn qemu(&self, card: qemu::QemuCard) -> Result<Measurement, PathError> {
        let (tap, _) = self.ends.tap();
        let far = self.ends.far(BackEnd::Tap);
        let task = self.task(far);
        let (image, patience) = (&self.image, self.load.trial + BOOT_TIMEOUT);
        let (ran, received, used, lost_count) = self.with_sink(far, WARM_UP, || {
            let ran = qemu::run(card, image, &task, tap, patience)?;
            let sent_count = ran.report[report::TX_FRAMES].saturating_add(WARM_UP);
            Ok((ran, sent_count))
        })?;
        let size_bytes = self.load.size_bytes;
        let mut m = accounting::qemu_frames(&ran, &received, size_bytes, WARM_UP, lost_count);
        used.with_children(ran.total_ns).account(&mut m);
        Ok(m)
    }

    fn qemu_stream(
        &mut self,
        arm: &str,
        card: qemu::QemuCard,
        direction: StreamDirection,
    ) -> Result<Measurement, PathError> {
        let compared_bytes = self.compare_digests(arm, direction, |session, stream| {
            Ok(stream.through_qemu(card, &session.ends, &session.image)?.1)
        })?;
        let meter = Meter::start(&self.clock, &[])?;
        let stream = self.new_stream(direction, false);
        let (ran, passed) = stream.through_qemu(card, &self.ends, &self.image)?;
        let used = meter.stop()?;
        let mut m = accounting::qemu_stream(&ran, &passed);
        used.with_children(ran.total_ns).account(&mut m);
        m.counters.insert("digest_compared_bytes".into(), compared_bytes);
        Ok(m)
    }

    fn native(&self, name: &str) -> Result<Measurement, PathError> {
        let back_end = match name {
            "native-tap" => BackEnd::Tap,
            "native-xdp" => BackEnd::XdpRing,
            _ => BackEnd::PacketRing,
        };
        let Wire { far, mode, .. } = self.ends.wire(back_end);
        let (mut sender, receiver) = open(&self.ends, self.kind, back_end, None)?;
        // A native loop does not receive.
        drop(receiver);
        let (size_bytes, trial) = (self.load.size_bytes, self.load.trial);
        let (ran, received, used, lost_count) = self.with_sink(far, 0, || {
            let ran = native::run(sender.as_mut(), far.mac, MAC, size_bytes, trial);
            let sent_count = ran.sent_count;
            Ok((ran, sent_count))
        })?;
        let refused_count = sender.refused_count();
        let mut m =
            accounting::native_frames(&ran, &received, size_bytes, lost_count, refused_count);
        used.account(&mut m);
        m.mode.insert("back end".into(), mode.into());
        Ok(m)
    }
}

/// Adds to a measurement of an arm of the monitor what all loads have.
fn finish(m: &mut Measurement, arm: &Arm, ran: &Ran, used: Used, back_end: &str) {
    used.with_children(ran.total_ns).account(m);
    let device = if switches::monitor_switches(arm).virtio_net { "virtio-net" } else { "Lance" };
    let driver = if is_foreign(arm) { switches::FOREIGN } else { "wirepath" };
    m.mode.insert("device".into(), device.into());
    m.mode.insert("driver".into(), driver.into());
    m.mode.insert("back end".into(), back_end.into());
    let sampled = ran.sampled.iter().map(|(name, share)| ((*name).to_owned(), *share));
    m.figures.extend(sampled);
    m.not_effective = accounting::not_effective(arm, &ran.measured);
}

/// Opens a back end, behind a link of the load's rate.
fn open(
    ends: &Topology,
    kind: VmnicLoad,
    back_end: BackEnd,
    ram: Option<&GuestRam>,
) -> Result<Halves, PathError> {
    let (sender, receiver) = ends.open(back_end, ram)?;
    if kind != VmnicLoad::Paced {
        return Ok((sender, receiver));
    }
    Ok((Box::new(PacedSender::new(sender, LINK_BPS)), receiver))
}

impl Session for VmnicSession {
    fn trial(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        let direction = match self.kind {
            VmnicLoad::Tcp => Some(StreamDirection::ToHost),
            VmnicLoad::TcpReceive => Some(StreamDirection::ToGuest),
            _ => None,
        };
        let card = qemu::QemuCard::named(&arm.name).filter(|_| arm.kind == ArmKind::Peer);
        if self.kind == VmnicLoad::Ping {
            return card.map_or_else(|| self.echoes(arm), |card| self.qemu_echoes(card));
        }
        match (arm.kind, card, direction) {
            (ArmKind::Peer, Some(card), None) => self.qemu(card),
            (ArmKind::Peer, Some(card), Some(direction)) => {
                self.qemu_stream(&arm.name, card, direction)
            }
            (ArmKind::Peer, None, _) if !is_foreign(arm) => self.native(&arm.name),
            (_, _, None) => self.variant(arm),
            (_, _, Some(direction)) => self.stream(arm, direction),
        }
    }

    fn nic(&self) -> String {
        let exit = match self.exit_cost_ns {
            Some(ns) => format!("an exit costs {:.1} µs", ns as f64 / 1000.0),
            None => "no KVM".into(),
        };
        format!("Lance or virtio-net over a TAP or a veth, MTU 1500; {exit}")
    }
}
