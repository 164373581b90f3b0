//! The lab, kept from trial to trial, and one trial in it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use host::cpu::CpuClock;
use lab::Triple;
use model::{Arm, ArmKind, Cost, Measurement, Throughput};
use sys::clock::monotonic_ns;

use super::accounting::{self, Counted, Losses};
use super::kernel::{KernelForwarder, KernelSpec};
use super::sink::{GRACE, GRACE_MAX, Sink};
use super::source::{Flow, Sent};
use super::testpmd::Testpmd;
use super::user::{self, UserSpec};
use crate::switches::{Switch, tuning_of, workers_of};
use crate::topology::{Extra, Limit, effective};
use forward::forwarder::{PolicerSpec, Tuning, Work};
use forward::qos::TokenBucket;
use lab::{Meter, Run};
use model::{Load, PathError, Session};

/// Outer headers of VXLAN over IPv4 with their Ethernet header.
pub(super) const VXLAN_HEADERS_BYTES: usize = 50;
/// Interval at which the sink is polled for the rate.
const LOOK: Duration = Duration::from_millis(4);
/// The burst of a limit is 10 ms of its rate, the default of `tunnel run`: a worker that loses its CPU
/// for less loses no credit.
const BURSTS_PER_S: u64 = 100;
const BURST_BYTES_MIN: u64 = 18_000;

/// The lab and the state kept between trials.
pub(crate) struct TunnelSession {
    lab: Triple,
    load: Load,
    extra: Extra,
    cpus: Vec<usize>,
    clock: CpuClock,
    losses: Losses,
    flow: Flow,
    /// Rate of the source, by arm.
    rates_pps: HashMap<String, f64>,
}

/// CPUs of the threads; the source has the first.
pub(super) struct Places {
    pub(super) source: Vec<usize>,
    pub(super) workers: Vec<Vec<usize>>,
    /// All that are not the source's, or its own when there is no other.
    pub(super) others: Vec<usize>,
}

impl Places {
    fn used(&self) -> Vec<usize> {
        self.source.iter().chain(self.workers.iter().flatten()).copied().collect()
    }
}

/// One sample of the sink: CLOCK_MONOTONIC nanoseconds, frames.
type Look = (u64, u64);

impl TunnelSession {
    pub(crate) fn open(load: &Load) -> Result<Self, PathError> {
        let lab = crate::topology::build()?;
        let cpus = sys::affinity::allowed_cpus().map_err(PathError::part)?;
        let clock = CpuClock::open().map_err(PathError::part)?;
        let losses = Losses::open(&lab)?;
        let flow = Flow::new(&lab, load.size_bytes, monotonic_ns() as u32 | 1)?;
        let extra = Extra::of(&load.kind);
        let rates_pps = HashMap::new();
        Ok(TunnelSession { lab, load: load.clone(), extra, cpus, clock, losses, flow, rates_pps })
    }

    fn places(&self, workers: usize) -> Places {
        places_of(&self.cpus, workers)
    }

    fn variant(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        let arm = &effective(arm, &self.load.kind);
        let mut m = match arm.has(Switch::Bypass) {
            true => self.user(arm)?,
            false => self.kernel(arm, &KernelSpec::of(arm))?,
        };
        if arm.has(Switch::Parallel) && self.cpus.len() < 3 {
            m.mode.insert("workers".into(), "the last shares the source's CPU".into());
        }
        m.not_effective = accounting::not_effective(arm, &m);
        Ok(m)
    }

    fn user(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        let places = self.places(workers_of(arm, self.cpus.len()));
        let tuning = Tuning { work: Work::of_ns(self.extra.work_ns), ..tuning_of(arm) };
        let (policer, shaper) = self.limits();
        let workers = places.workers.clone();
        let is_in_kernel = arm.has(Switch::InKernel);
        let spec = UserSpec { tuning, policer, shaper, workers, is_in_kernel };
        let mut m = self.measure(&arm.name, &places, VXLAN_HEADERS_BYTES, |lab, body| {
            user::run(lab, &spec, body).map(|(ran, report)| (ran, Some(report)))
        })?;
        m.traps.extend(self.extra.limit.and_then(|limit| accounting::not_half(&m, limit)));
        Ok(m)
    }

    /// Buckets of the load's limit, which pass half of the offered frames.
    fn limits(&self) -> (Option<PolicerSpec>, Option<TokenBucket>) {
        let half = |bytes: usize| {
            let bytes_per_s = self.load.rate_pps / 2 * bytes as u64;
            let burst_bytes = (bytes_per_s / BURSTS_PER_S).max(BURST_BYTES_MIN);
            PolicerSpec { rate_bits_per_s: bytes_per_s * 8, burst_bytes }
        };
        let frame_bytes = self.flow.frame_bytes();
        match self.extra.limit {
            None => (None, None),
            Some(Limit::Policer) => (Some(half(frame_bytes)), None),
            Some(Limit::Shaper) => {
                let outer_bytes = frame_bytes + VXLAN_HEADERS_BYTES + usize::from(user::WIRE_BYTES);
                let PolicerSpec { rate_bits_per_s, burst_bytes } = half(outer_bytes);
                (None, Some(TokenBucket::new(rate_bits_per_s, burst_bytes, monotonic_ns())))
            }
        }
    }

    fn kernel(&mut self, arm: &Arm, spec: &KernelSpec) -> Result<Measurement, PathError> {
        let mut places = self.places(0);
        let others = places.others.clone();
        if arm.has(Switch::Rps) {
            places.workers.push(others.clone());
        }
        let steer_to = arm.has(Switch::Rps).then_some(others.as_slice());
        let before = self.clock.steering_interrupts();
        let mut m = self.measure(&arm.name, &places, VXLAN_HEADERS_BYTES, |lab, body| {
            let forwarder = KernelForwarder::new(lab, spec, steer_to)?;
            let ran = body()?;
            drop(forwarder);
            Ok((ran, None))
        })?;
        if let (Some(before), Some(after)) = (before, self.clock.steering_interrupts()) {
            m.counters.insert(accounting::STEERED.into(), after.abs_diff(before));
        }
        m.mode.insert("forwarder".into(), "bridge and VXLAN device of the kernel".into());
        Ok(m)
    }

    fn testpmd(&mut self, name: &str) -> Result<Measurement, PathError> {
        let places = self.places(1);
        let cpus = places.others.clone();
        let (mut forwarding_ns, mut whole_ns) = (0, 0);
        // It forwards and does not tunnel.
        let mut m = self.measure(name, &places, 0, |lab, body| {
            let mut forwarder = Testpmd::start(name, lab, &cpus)?;
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
        Ok(m)
    }

    /// One trial with a forwarder.
    ///
    /// - `headers_bytes`: bytes that the forwarder puts in front of a frame.
    /// - `forward`: sets the forwarder up, calls its argument, and removes the forwarder.
    fn measure(
        &mut self,
        arm: &str,
        places: &Places,
        headers_bytes: usize,
        forward: impl FnOnce(
            &Triple,
            &mut dyn FnMut() -> Result<Ran, PathError>,
        ) -> Result<(Ran, Option<user::UserReport>), PathError>,
    ) -> Result<Measurement, PathError> {
        let sequence_at = headers_bytes + self.flow.sequence_at;
        let sink = Sink::open(&self.lab.far, sequence_at, self.flow.session)?;
        let hint = self.rates_pps.get(arm).copied();
        let meter = Meter::start(&self.clock, &places.used())?;
        let (ran, user) = forward(&self.lab, &mut || self.send(&sink, &places.source, hint))?;
        let used = meter.stop()?;
        let arrived = sink.counts()?;
        let Ran { sent, looks, lost } = ran;
        self.rates_pps.insert(arm.to_owned(), sent.rate_pps);
        let mut m = Measurement { wall_ns: sent.sending_ns.max(1), ..Measurement::default() };
        m.throughput = Some(throughput(&looks, &sent, self.load.size_bytes));
        accounting::enter(&mut m, Counted { sent, arrived, lost, user });
        used.account(&mut m);
        if arrived.frames == 0 {
            return Err(PathError::at("sink", "not one frame arrived"));
        }
        Ok(m)
    }

    /// Sends once, with the sink's count sampled until everything sent has arrived.
    fn send(&self, sink: &Sink, cpus: &[usize], hint: Option<f64>) -> Result<Ran, PathError> {
        let before = self.losses.now(&self.lab);
        let (flow, near, load) = (&self.flow, &self.lab.near, &self.load);
        let received_count = &AtomicU64::new(0);
        let (grace, grace_max) = (GRACE, GRACE_MAX);
        let (sent, looks) = lab::run(
            &Run { receiver: "sink", sender: "source", received_count, grace, grace_max },
            |signals| {
                let mut looks = Vec::with_capacity(1024);
                signals.ready();
                while !signals.is_stopped() {
                    let frames = sink.counts()?.frames;
                    looks.push((monotonic_ns(), frames));
                    received_count.store(frames, Ordering::Relaxed);
                    thread::sleep(LOOK);
                }
                Ok(looks)
            },
            || {
                let sent = flow.send(near, cpus, load.trial, load.rate_pps as f64, hint)?;
                Ok((sent, sent.sent_count))
            },
        )?;
        let lost = accounting::since(&before, &self.losses.now(&self.lab));
        Ok(Ran { sent, looks, lost })
    }
}

/// The source represents another host: it has its own CPU if there is more than one.
pub(super) fn places_of(cpus: &[usize], workers: usize) -> Places {
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
struct Ran {
    sent: Sent,
    looks: Vec<Look>,
    lost: accounting::Lost,
}

/// Arrivals and their interval while the source was sending: from the first sample after a tenth of
/// its longest run to the last before its end.
fn throughput(looks: &[Look], sent: &Sent, payload_bytes: usize) -> Throughput {
    let (from_ns, to_ns) = sent.run_ns;
    let begin_ns = from_ns + (to_ns - from_ns) / 10;
    let mut within = looks.iter().filter(|(at_ns, _)| (begin_ns..=to_ns).contains(at_ns));
    let first = within.next().copied().unwrap_or_default();
    let last = within.next_back().copied().unwrap_or(first);
    let received_count = last.1 - first.1;
    Throughput {
        interval_ns: last.0 - first.0,
        received_count,
        payload_bytes: received_count * payload_bytes as u64,
    }
}

impl Session for TunnelSession {
    fn trial(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        if arm.kind != ArmKind::Peer {
            return self.variant(arm);
        }
        match arm.name.as_str() {
            "kernel" => self.kernel(arm, &KernelSpec::BEST),
            name => self.testpmd(name),
        }
    }

    fn nic(&self) -> String {
        format!(
            "two veth pairs, 1 queue, MTU {}; frames of {} bytes",
            crate::topology::UNDERLAY_MTU,
            self.flow.frame_bytes()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_taken_while_the_source_sends_and_no_longer() {
        let sent = Sent { run_ns: (1_000, 2_000), ..Sent::default() };
        let looks = [(500, 0), (1_050, 10), (1_200, 100), (1_600, 500), (2_000, 900), (9_000, 999)];
        let seen = throughput(&looks, &sent, 64);
        assert_eq!((seen.interval_ns, seen.received_count), (800, 800));
        assert_eq!(seen.payload_bytes, 51_200);
        assert_eq!(throughput(&[], &sent, 64).interval_ns, 0);
        assert_eq!(throughput(&looks[..3], &sent, 64).interval_ns, 0);
    }
}
