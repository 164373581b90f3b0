//! The lab, kept from trial to trial, and one trial in it.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use host::cpu::CpuClock;
use lab::{End, RunCause, Triple};
use model::{Arm, ArmKind, Cost, Measurement, Throughput};
use sys::bpf::Hasher;
use sys::clock::monotonic_ns;
use sys::thread::start;

use super::accounting::{self, Counted, Losses, Stream};
use super::kernel::{KernelForwarder, KernelSpec};
use super::sink::{Intake, SILENCE_GRACE, SILENCE_TIMEOUT, Sink};
use super::source::{Flow, Sent};
use super::testpmd::Testpmd;
use super::user::{self, Front, UserSpec};
use crate::path::TunnelLoad;
use crate::switches::{self, Switch, effective, worker_count};
use crate::topology::{Encapsulation, Extra, Limit, Offloads};
use crate::traffic::{Traffic, Way};
use forward::forwarder::{PolicerSpec, Tuning, Work};
use forward::qos::TokenBucket;
use lab::{Meter, Run};
use model::{Load, PathError, Session, VERSION_MODE};

/// Interval at which the sink is polled for the rate.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(4);
/// The burst of a limit is 10 ms of its rate, the default of `tunnel run`: a worker that loses its CPU
/// for less loses no credit.
const BURSTS_PER_S: u64 = 100;
const BURST_BYTES_MIN: u64 = 18_000;

/// The lab and the state kept between trials.
pub(crate) struct TunnelSession {
    lab: Triple,
    load: Load,
    kind: TunnelLoad,
    extra: Extra,
    traffic: Traffic,
    cpus: Vec<usize>,
    clock: CpuClock,
    losses: Losses,
    /// That of the flows.
    encapsulation: Encapsulation,
    /// By direction.
    flows: Vec<Flow>,
    /// Rates of the sources, by arm and direction.
    rates_pps: HashMap<String, Vec<f64>>,
}

/// CPUs of the threads; the source has the first.
pub(super) struct Places {
    pub(super) source: Vec<usize>,
    pub(super) workers: Vec<Vec<usize>>,
    /// All that are not the source's, or its own without another.
    pub(super) others: Vec<usize>,
}

impl Places {
    fn used(&self) -> Vec<usize> {
        self.source.iter().chain(self.workers.iter().flatten()).copied().collect()
    }
}

/// How frames leave a forwarder.
#[derive(Debug, Clone, Copy)]
struct Leaving {
    /// Whose outer headers it puts in front of a frame, or takes away; `None` if it forwards frames as they are.
    encapsulation: Option<Encapsulation>,
    /// As XDP frames, not as socket buffers.
    by_xdp: bool,
}

/// One sample of the sinks.
#[derive(Debug, Clone, Copy, Default)]
struct SinkSample {
    /// CLOCK_MONOTONIC nanoseconds.
    at_ns: u64,
    frames: u64,
    payload_bytes: u64,
}

impl TunnelSession {
    pub(crate) fn open(load: &Load, kind: TunnelLoad) -> Result<Self, PathError> {
        let lab = crate::topology::build(Offloads::Off)?;
        let cpus = sys::affinity::allowed_cpus().map_err(PathError::part)?;
        let clock = CpuClock::open().map_err(PathError::part)?;
        let traffic = Traffic::of(kind);
        let losses = Losses::open(&lab, &traffic)?;
        let encapsulation = Encapsulation::Vxlan;
        let flows = flows(&lab, &traffic, load.size_bytes, encapsulation)?;
        let extra = Extra::of(kind);
        Ok(TunnelSession {
            lab,
            load: load.clone(),
            kind,
            extra,
            traffic,
            cpus,
            clock,
            losses,
            encapsulation,
            flows,
            rates_pps: HashMap::new(),
        })
    }

    fn places(&self, workers: usize) -> Places {
        thread_places(&self.cpus, workers)
    }

    fn variant(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        let arm = &effective(arm, self.kind);
        let mut m = if arm.has(Switch::Bypass) {
            self.user(arm)?
        } else {
            self.kernel(arm, &KernelSpec::new(arm))?
        };
        if arm.has(Switch::Parallel) && self.cpus.len() < 3 {
            m.mode.insert("workers".into(), "the last shares the source's CPU".into());
        }
        m.not_effective = accounting::not_effective(arm, &m);
        Ok(m)
    }

    fn user(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        let places = self.places(worker_count(arm, self.cpus.len()));
        let tuning = Tuning { work: Work::from_ns(self.extra.work_ns), ..switches::tuning(arm) };
        let encapsulation = Encapsulation::new(arm);
        let (policer, shaper) = self.limits(encapsulation);
        let workers = places.workers.clone();
        let front = Front::new(arm);
        let leaving = Leaving { encapsulation: Some(encapsulation), by_xdp: front == Front::Xdp };
        let is_reloaded = self.extra.is_reloaded;
        let spec = UserSpec { tuning, encapsulation, policer, shaper, workers, front, is_reloaded };
        let mut m = self.measure(arm, &places, leaving, |lab, body| {
            user::run(lab, &spec, body).map(|(ran, report)| (ran, Some(report)))
        })?;
        m.traps.extend(self.extra.limit.and_then(|limit| accounting::not_half(&m, limit)));
        Ok(m)
    }

    /// Buckets of the load's limit, which pass half of the offered frames.
    fn limits(&self, encapsulation: Encapsulation) -> (Option<PolicerSpec>, Option<TokenBucket>) {
        let frame_bytes = self.frame_bytes_max();
        match self.extra.limit {
            None => (None, None),
            Some(Limit::Policer) => (Some(self.half_rate(frame_bytes)), None),
            Some(Limit::Shaper) => {
                let headers_bytes = encapsulation.headers_bytes() + usize::from(user::WIRE_BYTES);
                let outer_bytes = frame_bytes + headers_bytes;
                let PolicerSpec { rate_bits_per_s, burst_bytes } = self.half_rate(outer_bytes);
                (None, Some(TokenBucket::new(rate_bits_per_s, burst_bytes, monotonic_ns())))
            }
        }
    }

    /// Half of the offered rate, in frames of `bytes`.
    fn half_rate(&self, bytes: usize) -> PolicerSpec {
        let bytes_per_s = self.load.rate_pps / 2 * bytes as u64;
        let burst_bytes = (bytes_per_s / BURSTS_PER_S).max(BURST_BYTES_MIN);
        PolicerSpec { rate_bits_per_s: bytes_per_s * 8, burst_bytes }
    }

    fn kernel(&mut self, arm: &Arm, spec: &KernelSpec) -> Result<Measurement, PathError> {
        let mut places = self.places(0);
        // A hash has a choice only among several.
        let others = if self.traffic.has_hash { &self.cpus } else { &places.others }.clone();
        if arm.has(Switch::Rps) {
            places.workers.push(others.clone());
        }
        let steer_to = arm.has(Switch::Rps).then_some(others.as_slice());
        let before = self.clock.steering_interrupts();
        let leaving = Leaving { encapsulation: Some(spec.encapsulation), by_xdp: false };
        let mut m = self.measure(arm, &places, leaving, |lab, body| {
            let forwarder = KernelForwarder::new(lab, spec, steer_to)?;
            let ran = body()?;
            drop(forwarder);
            Ok((ran, None))
        })?;
        accounting::enter_kernel(&mut m, spec.encapsulation, before, &self.clock);
        Ok(m)
    }

    fn testpmd(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        let name = arm.name.as_str();
        let places = self.places(1);
        let cpus = places.others.clone();
        let (mut forwarding_ns, mut whole_ns, mut version) = (0, 0, None);
        // It forwards and does not tunnel.
        let leaving = Leaving { encapsulation: None, by_xdp: false };
        let mut m = self.measure(arm, &places, leaving, |lab, body| {
            let mut forwarder = Testpmd::start(name, lab, &cpus)?;
            version = forwarder.version();
            let before_ns = forwarder.cpu_ns()?;
            let ran = body();
            // First: the end of the program is the reason of all that failed after it.
            forwarding_ns = forwarder.cpu_ns()?.saturating_sub(before_ns);
            let ran = ran?;
            whole_ns = forwarder.stop()?;
            Ok((ran, None))
        })?;
        // Its start counts neither as its cost nor as that of other processes.
        let cost = Cost { user_ns: forwarding_ns, ..Cost::default() };
        m.costs.insert("worker 0".into(), cost);
        m.others_cpu_ns = m.others_cpu_ns.saturating_sub(whole_ns);
        m.mode.insert("forwarder".into(), "testpmd, no tunnel".into());
        m.mode.extend(version.map(|version| (VERSION_MODE.to_owned(), version)));
        Ok(m)
    }

    /// One trial with a forwarder.
    ///
    /// - `forward`: sets the forwarder up, calls its argument, and removes the forwarder.
    fn measure(
        &mut self,
        arm: &Arm,
        places: &Places,
        leaving: Leaving,
        forward: impl FnOnce(
            &Triple,
            &mut dyn FnMut() -> Result<SentRun, PathError>,
        ) -> Result<(SentRun, Option<user::UserReport>), PathError>,
    ) -> Result<Measurement, PathError> {
        let Leaving { encapsulation, by_xdp } = leaving;
        self.encapsulate(encapsulation.unwrap_or(Encapsulation::Vxlan))?;
        let intake =
            if self.traffic.ends_in_skbs { Intake::Skb { polls: by_xdp } } else { Intake::Xdp };
        let sinks = self.sinks(encapsulation, intake)?;
        let _hasher = self.traffic.has_hash.then(|| self.hasher(arm)).transpose()?;
        let hints = self.rates_pps.get(&arm.name).cloned().unwrap_or_default();
        let meter = Meter::start(&self.clock, &places.used())?;
        let (ran, user) =
            forward(&self.lab, &mut || self.send(&sinks, encapsulation, &places.source, &hints))?;
        let used = meter.stop()?;
        let SentRun { sent, looks, lost } = ran;
        self.rates_pps.insert(arm.name.clone(), sent.iter().map(|sent| sent.rate_pps).collect());
        let wall_ns = sent.iter().map(|sent| sent.sending_ns).max().unwrap_or(0).max(1);
        let mut m = Measurement { wall_ns, ..Measurement::default() };
        m.throughput = Some(throughput(&looks, &sent));
        m.mode.insert("sink".into(), intake.name().into());
        m.mode.extend(encapsulation.map(|it| ("tunnel".to_owned(), it.name().to_owned())));
        let mut streams = Vec::with_capacity(sent.len());
        for ((flow, sink), sent) in self.flows.iter().zip(&sinks).zip(sent) {
            let arrived = sink.counts()?;
            if arrived.frames == 0 {
                let what = format!("not one frame arrived ({})", flow.way.name());
                return Err(PathError::at("sink", what));
            }
            if arrived.malformed > 0 {
                let (torn, all) = (arrived.malformed, arrived.frames);
                let what = format!("{torn} of {all} frames have an outer header of no version");
                return Err(PathError::at("sink", what));
            }
            streams.push(Stream { way: flow.way, sent, arrived });
        }
        accounting::enter(&mut m, Counted { streams, lost, user });
        if self.traffic.has_hash {
            for sink in &sinks {
                accounting::enter_cpus(&mut m, &sink.frames_by_cpu()?);
            }
        }
        used.account(&mut m);
        Ok(m)
    }

    /// Makes the flows those of an encapsulation.
    fn encapsulate(&mut self, encapsulation: Encapsulation) -> Result<(), PathError> {
        if self.encapsulation != encapsulation {
            self.flows = flows(&self.lab, &self.traffic, self.load.size_bytes, encapsulation)?;
            self.encapsulation = encapsulation;
        }
        Ok(())
    }

    /// Sends the frames of loopback to the forwarder, with the hash that an arm has them have.
    fn hasher(&self, arm: &Arm) -> Result<Hasher, PathError> {
        const LOOPBACK: u32 = 1;
        let near = &self.lab.near;
        let is_constant = arm.kind != ArmKind::Peer && !arm.has(Switch::FlowHash);
        let constant = is_constant.then_some(NonZeroU32::MIN);
        let attached = near.run(|| Hasher::attach(LOOPBACK, near.ifindex, constant));
        attached.map_err(PathError::part)?.map_err(PathError::part)
    }

    /// Sinks of the flows.
    fn sinks(
        &self,
        encapsulation: Option<Encapsulation>,
        intake: Intake,
    ) -> Result<Vec<Sink>, PathError> {
        let opened = self.flows.iter().map(|flow| {
            let mut spec = flow.seen_behind(encapsulation);
            if self.extra.is_reloaded {
                spec.heads = Some(user::heads(&self.lab, self.encapsulation, flow.frame())?);
            }
            Sink::open(self.ends(flow.way).1, &spec, intake)
        });
        opened.collect()
    }

    /// Ends of the source and of the sink.
    fn ends(&self, way: Way) -> (&End, &End) {
        match way {
            Way::Into => (&self.lab.near, &self.lab.far),
            Way::OutOf => (&self.lab.far, &self.lab.near),
        }
    }

    /// Bytes of the longest inner frame.
    fn frame_bytes_max(&self) -> usize {
        self.flows.iter().map(Flow::frame_bytes).max().unwrap_or(0)
    }

    /// Sends in every direction at once, each on a thread of its own. They begin when all are ready: the kernel
    /// may take longer to load a program than a short trial lasts.
    fn send_all(&self, cpus: &[usize], hints: &[f64]) -> Result<Vec<Sent>, RunCause> {
        let load = &self.load;
        // Nothing is sent: a dropped sender is the signal, whatever becomes of its thread.
        let (ready, all_ready) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let (begins, threads): (Vec<_>, Vec<_>) = self
                .flows
                .iter()
                .enumerate()
                .map(|(n, flow)| {
                    let (end, hint) = (self.ends(flow.way).0, hints.get(n).copied());
                    let (ready, (begin, begun)) = (ready.clone(), mpsc::channel::<()>());
                    let thread = start(scope, "source", move || {
                        let source = flow.source(end, cpus)?;
                        drop(ready);
                        let _ = begun.recv();
                        source.send(load.trial, load.rate_pps as f64, hint)
                    });
                    (begin, thread)
                })
                .unzip();
            drop(ready);
            let _ = all_ready.recv();
            drop(begins);
            threads.into_iter().map(|thread| thread.end()).collect()
        })
    }

    /// Sends once, with the sinks' counts sampled until everything sent has arrived.
    fn send(
        &self,
        sinks: &[Sink],
        encapsulation: Option<Encapsulation>,
        cpus: &[usize],
        hints: &[f64],
    ) -> Result<SentRun, PathError> {
        let before = self.losses.now(&self.lab);
        let received_count = &AtomicU64::new(0);
        let (grace, grace_max) = (SILENCE_GRACE, SILENCE_TIMEOUT);
        let (sent, looks) = lab::run(
            &Run { receiver: "sink", sender: "source", received_count, grace, grace_max },
            |signals| {
                let mut looks = Vec::with_capacity(1024);
                signals.ready();
                while !signals.is_stopped() {
                    let mut look = SinkSample::default();
                    for (flow, sink) in self.flows.iter().zip(sinks) {
                        let arrived = sink.counts()?;
                        look.frames += arrived.frames;
                        look.payload_bytes += flow.payload_bytes_sum(&arrived, encapsulation);
                    }
                    looks.push(SinkSample { at_ns: monotonic_ns(), ..look });
                    received_count.store(look.frames, Ordering::Relaxed);
                    thread::sleep(SAMPLE_INTERVAL);
                }
                Ok(looks)
            },
            || {
                let sent = self.send_all(cpus, hints)?;
                let sent_count = sent.iter().map(|sent| sent.sent_count).sum();
                Ok((sent, sent_count))
            },
        )?;
        let lost = accounting::since(&before, &self.losses.now(&self.lab));
        Ok(SentRun { sent, looks, lost })
    }
}

/// The flows of a load.
fn flows(
    lab: &Triple,
    traffic: &Traffic,
    size_bytes: usize,
    encapsulation: Encapsulation,
) -> Result<Vec<Flow>, PathError> {
    let ways = traffic.ways.iter();
    ways.map(|way| Flow::new(lab, *way, traffic, size_bytes, encapsulation)).collect()
}

/// The source represents another host: it has its own CPU if there is more than one.
pub(super) fn thread_places(cpus: &[usize], workers: usize) -> Places {
    let (source, others) = match cpus {
        [first, others @ ..] if !others.is_empty() => (vec![*first], others.to_vec()),
        cpus => (cpus.to_vec(), cpus.to_vec()),
    };
    // With too few, the last worker shares the source's.
    let places = others.iter().chain(source.iter()).copied().cycle();
    let workers = places.take(workers).map(|cpu| vec![cpu]).collect();
    Places { source, workers, others }
}

/// Counts between set-up and removal.
struct SentRun {
    /// By direction.
    sent: Vec<Sent>,
    looks: Vec<SinkSample>,
    lost: accounting::Lost,
}

/// The longest time in which every source was in a run, as CLOCK_MONOTONIC nanoseconds.
fn common_run_ns(sent: &[Sent]) -> (u64, u64) {
    let mut common = vec![(0, u64::MAX)];
    for Sent { runs_ns, .. } in sent {
        let overlaps =
            common.iter().flat_map(|a| runs_ns.iter().map(move |b| (a.0.max(b.0), a.1.min(b.1))));
        common = overlaps.filter(|(from_ns, to_ns)| from_ns < to_ns).collect();
    }
    common.into_iter().max_by_key(|(from_ns, to_ns)| to_ns - from_ns).unwrap_or_default()
}

/// Arrivals and their interval while all sources were sending, between the first and the last sample in that time. Its
/// first tenth is left out.
fn throughput(looks: &[SinkSample], sent: &[Sent]) -> Throughput {
    let (from_ns, to_ns) = common_run_ns(sent);
    let begin_ns = from_ns + (to_ns - from_ns) / 10;
    let mut within = looks.iter().filter(|look| (begin_ns..=to_ns).contains(&look.at_ns));
    let first = within.next().copied().unwrap_or_default();
    let last = within.next_back().copied().unwrap_or(first);
    Throughput {
        interval_ns: last.at_ns - first.at_ns,
        received_count: last.frames - first.frames,
        payload_bytes: last.payload_bytes - first.payload_bytes,
    }
}

impl Session for TunnelSession {
    fn trial(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        let mut m = match arm.kind {
            ArmKind::Peer => match KernelSpec::for_peer(&arm.name) {
                Some(spec) => self.kernel(arm, &spec),
                None => self.testpmd(arm),
            },
            _ => self.variant(arm),
        }?;
        accounting::enter_per_cpu(&mut m);
        Ok(m)
    }

    fn nic(&self) -> String {
        let up_to = if self.load.size_bytes == 0 { "up to " } else { "" };
        let sink = if self.traffic.ends_in_skbs {
            "tcx, of every frame a socket buffer, GRO on behind in-kernel alone"
        } else {
            "native XDP, which builds no socket buffers"
        };
        format!(
            "two veth pairs, 1 queue, MTU {}; frames of {up_to}{} bytes; sink: {sink}",
            crate::topology::UNDERLAY_MTU,
            self.frame_bytes_max()
        )
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;

    fn sent(runs_ns: &[(u64, u64)]) -> Sent {
        Sent { runs_ns: runs_ns.to_vec(), ..Sent::default() }
    }

    #[test]
    fn rate_is_taken_while_the_source_sends_and_no_longer() {
        let looks = [(500, 0), (1_050, 10), (1_200, 100), (1_600, 500), (2_000, 900), (9_000, 999)];
        let looks =
            looks.map(|(at_ns, frames)| SinkSample { at_ns, frames, payload_bytes: frames * 64 });
        let one = sent(&[(100, 300), (1_000, 2_000)]);
        let whole = throughput(&looks, slice::from_ref(&one));
        assert_eq!((whole.interval_ns, whole.received_count), (800, 800));
        assert_eq!(whole.payload_bytes, 51_200);
        assert_eq!(throughput(&[], slice::from_ref(&one)).interval_ns, 0);
        assert_eq!(throughput(&looks[..3], slice::from_ref(&one)).interval_ns, 0);
        // Of two sources, only while both were sending, in whichever of their runs.
        let later = sent(&[(1_500, 2_500), (2_600, 4_000)]);
        let both = throughput(&looks, &[one.clone(), later]);
        assert_eq!((both.interval_ns, both.received_count), (400, 400));
        assert_eq!(throughput(&looks, &[one, sent(&[(3_000, 4_000)])]).interval_ns, 0);
    }
}
