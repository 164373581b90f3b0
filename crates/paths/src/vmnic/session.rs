//! Trials of the virtual NIC in a lab: a guest that sends, and a host that receives.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use host::cpu::CpuClock;
use host::lab::{self, Pair, PairSpec, TapEnd};
use model::{Arm, ArmKind, Measurement};

use super::vmm::{
    self, End, Outcome, PacedSender, Receiver, Sender, Snapshot, Spec, Switches, Task,
    ring_backend, tap_backend,
};
use super::{books, image, native, sink, switches};
use crate::lab::{Meter, Used, drain};
use crate::path::{Load, PathError, Session};
use crate::text::chain;

/// Address of the guest's device.
const MAC: [u8; 6] = [0x02, b'w', b'p', 0, 0, 9];
const RAM_BYTES: usize = 32 << 20;
/// Frames before the measured part: pages are faulted in, threads are awake.
const WARM_UP: u64 = 16;
/// Beyond the trial, for a guest that boots and drains: a guard.
const PATIENCE: Duration = Duration::from_secs(20);
/// Silence at the sink after which a trial is over, and the longest wait for it.
const GRACE: Duration = Duration::from_millis(25);
const GRACE_MAX: Duration = Duration::from_secs(2);
/// Link of the load `paced`.
const LINK_BPS: u64 = 100_000_000;

/// The lab and what is kept from trial to trial.
pub(super) struct VmnicSession {
    tap: TapEnd,
    wire: Pair,
    image: Vec<u8>,
    load: Load,
    clock: Rc<CpuClock>,
    exit_cost_ns: u64,
}

/// One of the two back ends, ready.
struct Wire<'a> {
    sender: Box<dyn Sender>,
    receiver: Box<dyn Receiver>,
    /// Where its frames arrive.
    far: &'a lab::End,
    mode: &'static str,
}

impl VmnicSession {
    pub(super) fn open(load: &Load) -> Result<Self, PathError> {
        let exit_cost_ns = vmm::exit_cost_ns().unwrap_or(0);
        // Native loops need neither.
        let image = image::load().unwrap_or_default();
        Ok(VmnicSession {
            tap: TapEnd::new().map_err(PathError::part)?,
            wire: Pair::new(&PairSpec::default()).map_err(PathError::part)?,
            image,
            load: load.clone(),
            clock: Rc::new(CpuClock::open().map_err(PathError::part)?),
            exit_cost_ns,
        })
    }

    fn backend(&self, shared_ring: bool) -> Result<Wire<'_>, PathError> {
        let wire: Wire<'_> = if shared_ring {
            let near = &self.wire.near;
            let opened = near.run(|| ring_backend(near.ifindex)).map_err(PathError::part)?;
            let (sender, receiver) = opened.map_err(PathError::part)?;
            Wire {
                sender: Box::new(sender),
                receiver: Box::new(receiver),
                far: &self.wire.far,
                mode: "TPACKET_V3 rings on a veth",
            }
        } else {
            let (sender, receiver) = tap_backend(&self.tap.tap).map_err(PathError::part)?;
            Wire {
                sender: Box::new(sender),
                receiver: Box::new(receiver),
                far: &self.tap.host,
                mode: "TAP",
            }
        };
        if self.load.kind == "paced" {
            let sender = PacedSender::new(wire.sender, LINK_BPS);
            return Ok(Wire { sender: Box::new(sender), ..wire });
        }
        Ok(wire)
    }

    /// Runs `source` while the sink at `far` takes frames; `source` says how many it sent in all.
    fn with_sink<R>(
        &self,
        far: &lab::End,
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
            let receiver = scope.spawn(move || -> Result<sink::Received, String> {
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
            let received = receiver.join().unwrap_or_else(|_| Err("panicked".into()));
            (ran, received)
        });
        let used = meter.stop()?;
        let received =
            received.map_err(|why| PathError::End { end: "sink".into(), why })?;
        let Some(ran) = ran else {
            let why = "it was not ready".to_owned();
            return Err(PathError::End { end: "sink".into(), why });
        };
        let lost_count = lost_on_wire(far)?.saturating_sub(lost_before);
        Ok((ran?.0, received, used, lost_count))
    }

    fn task(&self, far: &lab::End) -> Task {
        Task {
            count: 0,
            warm_up: WARM_UP,
            duration_us: self.load.trial.as_micros() as u64,
            peer_mac: far.mac,
            ..Task::send(self.load.size_bytes as u64, 0)
        }
    }

    fn variant(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        let switches = switches::of_arm(arm);
        let wire = self.backend(switches.shared_ring)?;
        let task = self.task(wire.far);
        let spec = Spec { image: &self.image, ram_bytes: RAM_BYTES, mac: MAC, task, switches };
        let (sender, receiver) = (wire.sender, wire.receiver);
        let (measured, received, used, lost_count) = self.with_sink(wire.far, WARM_UP, || {
            let measured = self.run_guest(&spec, sender, receiver)?;
            let sent_count = WARM_UP + measured.report[wire::nettest::report::TX_FRAMES];
            Ok((measured, sent_count))
        })?;
        let mut m = books::of_guest(&measured, &received, self.load.size_bytes, WARM_UP, lost_count);
        used.account(&mut m);
        m.mode.insert("back end".into(), wire.mode.into());
        m.not_effective = books::not_effective(&switches, &measured);
        Ok(m)
    }

    /// Runs the guest until it is done; what its measured part showed.
    fn run_guest(
        &self,
        spec: &Spec<'_>,
        sender: Box<dyn Sender>,
        receiver: Box<dyn Receiver>,
    ) -> Result<Snapshot, PathError> {
        let failed = |why: String| PathError::End { end: "guest".into(), why };
        let running = vmm::start(spec, sender, receiver).map_err(PathError::part)?;
        let done = running.wait(self.load.trial + PATIENCE);
        let Outcome { end, measured, .. } = running.stop().map_err(|e| failed(chain(&e)))?;
        match (end, measured) {
            (End::Done, Some(measured)) => Ok(measured),
            (End::Done, None) => Err(failed("it measured nothing".into())),
            (_, _) if !done => Err(failed("it did not come to its end in time".into())),
            (end, _) => Err(failed(format!("it ended by {end:?}"))),
        }
    }

    fn native(&self, name: &str) -> Result<Measurement, PathError> {
        let Wire { mut sender, receiver, far, mode } = self.backend(name == "native")?;
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

/// Frames that the wire of an end lost so far, before any socket had them.
fn lost_on_wire(far: &lab::End) -> Result<u64, PathError> {
    let sysfs = far.sysfs().map_err(PathError::part)?;
    let mut lost = 0;
    for name in ["rx_dropped", "rx_errors"] {
        let path = format!("class/net/{}/statistics/{name}", far.ifname);
        let text = sysfs.read(path).map_err(PathError::part)?;
        lost += text.trim().parse::<u64>().unwrap_or(0);
    }
    Ok(lost)
}

impl Session for VmnicSession {
    fn trial(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        match arm.kind {
            ArmKind::Peer => self.native(&arm.name),
            _ => self.variant(arm),
        }
    }

    fn nic(&self) -> String {
        let exit_us = self.exit_cost_ns as f64 / 1000.0;
        format!("Lance over a TAP or a veth, MTU 1500; leaving the guest costs {exit_us:.1} µs")
    }
}
