//! Trials at a rate, with a forwarder that stays up from one to the next.

use std::thread;
use std::time::Duration;

use host::cpu::CpuClock;
use lab::Triple;
use model::{Arm, ArmKind, Measurement, Support};
use sys::bpf::Generator;
use sys::thread::start;

use super::kernel::{KernelForwarder, KernelSpec};
use super::session::thread_places;
use super::sink::{Intake, Sink};
use super::source::{SmallFlow, batch_frames};
use super::user::{self, Front, UserSpec};
use crate::measure::Observed;
use crate::measure::search::RateTrial;
use crate::path::TunnelLoad;
use crate::switches::{Switch, tuning, worker_count};
use crate::topology::Offloads;
use lab::{Meter, RunCause, settle};
use model::PathError;

/// Maximum frames of a trial.
const FRAMES_MAX: f64 = 50_000_000.0;
/// The lab, with the forwarder chosen.
pub(crate) struct Bench {
    lab: Triple,
    arm: Arm,
    /// Forwarder of an arm without bypass.
    kernel: KernelSpec,
    cpus: Vec<usize>,
    clock: CpuClock,
}

/// Frames of one size, from a source to the sink that counts them.
struct BenchSource<'a> {
    flow: SmallFlow,
    sink: Sink,
    /// Of the source.
    cpus: &'a [usize],
    /// Of a trial.
    duration: Duration,
}

/// A trial at a rate (0 for the maximum), of single frames or small batches.
type RunTrial<'a> = dyn FnMut(f64, bool) -> Result<Observed, RunCause> + 'a;

impl Bench {
    /// Errors: the arm is not supported on this host, with its needs; the lab cannot be built.
    pub(crate) fn open(arm: &Arm) -> Result<Bench, PathError> {
        match crate::support::support(arm, TunnelLoad::Flood) {
            Support::Yes => {}
            Support::Unsupported { what, needs } => {
                return Err(PathError::Unsupported { what, needs });
            }
            Support::Refused { why } => {
                let remedy = "choose another forwarder".to_owned();
                return Err(PathError::Invalid { what: why, remedy });
            }
        }
        let kernel = match arm.kind {
            ArmKind::Peer => KernelSpec::for_peer(&arm.name).ok_or_else(|| PathError::Invalid {
                what: format!("{} is measured by prove alone", arm.name),
                remedy: "give kernel, or switches such as bypass+batch+prepend".into(),
            })?,
            _ => KernelSpec::new(arm),
        };
        let lab = crate::topology::build(Offloads::Off)?;
        let cpus = sys::affinity::allowed_cpus().map_err(PathError::part)?;
        let clock = CpuClock::open().map_err(PathError::part)?;
        Ok(Bench { lab, arm: arm.clone(), kernel, cpus, clock })
    }

    /// Sets the forwarder up, runs `body` for trials of one frame size, and removes it.
    ///
    /// - `size_bytes`: with the frame check sequence.
    pub(crate) fn with_forwarder<T: Send>(
        &self,
        size_bytes: usize,
        duration: Duration,
        body: impl FnOnce(&mut RunTrial<'_>) -> Result<T, RunCause> + Send,
    ) -> Result<T, PathError> {
        let flow = SmallFlow::new(&self.lab, size_bytes)?;
        // That of our forwarder too.
        let encapsulation = self.kernel.encapsulation;
        let seen = flow.seen_behind(encapsulation.headers_bytes());
        let sink = Sink::open(&self.lab.far, &seen, Intake::Xdp)?;
        let workers =
            if self.arm.has(Switch::Bypass) { worker_count(&self.arm, self.cpus.len()) } else { 0 };
        let places = thread_places(&self.cpus, workers);
        let source = BenchSource { flow, sink, cpus: &places.source, duration };
        if self.arm.has(Switch::Bypass) {
            let front = Front::new(&self.arm);
            let spec =
                UserSpec::new(tuning(&self.arm), encapsulation, places.workers.clone(), front);
            let ran = user::run(&self.lab, &spec, || self.with_source(&source, body));
            return ran.map(|(ran, _)| ran);
        }
        let steer_to = self.arm.has(Switch::Rps).then_some(places.others.as_slice());
        let forwarder = KernelForwarder::new(&self.lab, &self.kernel, steer_to)?;
        let ran = self.with_source(&source, body);
        drop(forwarder);
        ran
    }

    /// Runs `body` on one thread, which is the source from the first trial to the last.
    fn with_source<T: Send>(
        &self,
        source: &BenchSource<'_>,
        body: impl FnOnce(&mut RunTrial<'_>) -> Result<T, RunCause> + Send,
    ) -> Result<T, PathError> {
        let &BenchSource { ref flow, ref sink, cpus, duration } = source;
        let ran = thread::scope(|scope| {
            let source = start(scope, "source", || {
                settle(&self.lab.near, cpus)?;
                let mut generator = flow.generator(self.lab.near.ifindex)?;
                body(&mut |rate_pps, is_alone| {
                    let batch = batch_frames(rate_pps, is_alone);
                    self.trial(&mut generator, sink, rate_pps, batch, duration)
                })
            });
            source.end()
        });
        ran.map_err(|why| PathError::at("source", why))
    }

    /// On the source's thread.
    fn trial(
        &self,
        generator: &mut Generator,
        sink: &Sink,
        rate_pps: f64,
        batch: u32,
        duration: Duration,
    ) -> Result<Observed, RunCause> {
        let meter = Meter::start(&self.clock, &[])?;
        let (before, delays_before) = (sink.counts()?, sink.delays()?);
        let begun = generator.counts();
        // As many as a fast source makes; the trial ends after them, not after a time.
        let nominal_pps = if rate_pps > 0.0 { rate_pps } else { 1e6 };
        let frames = (nominal_pps * duration.as_secs_f64()).clamp(100.0, FRAMES_MAX) as u32;
        generator.set_rate(rate_pps);
        let took = generator.run(frames, batch)?;
        let made = generator.counts();
        let sent_count = made.sent - begun.sent;
        sink.drain(before.frames + sent_count)?;
        let (after, delays) = (sink.counts()?, sink.delays()?);
        let mut used = Measurement::default();
        meter.stop()?.account(&mut used);
        let received_count = after.frames - before.frames;
        let duplicated_count = after.duplicated - before.duplicated;
        // From the first frame to the last there is one gap less than there are frames.
        let spans = (sent_count.max(2) - 1) as f64;
        let machine_ns = (took.as_nanos() as f64).max(1.0) * self.cpus.len() as f64;
        Ok(Observed {
            trial: RateTrial {
                asked_pps: rate_pps,
                offered_pps: spans / took.as_secs_f64().max(1e-9),
                sent_count,
                lost_count: sent_count.saturating_sub(received_count - duplicated_count),
                disturbed_share: (used.steal_ns + used.others_cpu_ns) as f64 / machine_ns,
            },
            received_count,
            reordered_count: after.reordered - before.reordered,
            duplicated_count,
            delays: delays.since(&delays_before),
        })
    }
}
