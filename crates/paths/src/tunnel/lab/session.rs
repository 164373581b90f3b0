//! The lab, kept from trial to trial, and one trial in it.

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use host::cpu::CpuClock;
use host::lab::Triple;
use io::clock::monotonic_ns;
use io::thread::start;
use model::{Arm, ArmKind, Cost, Measurement, Throughput};

use super::books::{self, Counted, Losses};
use super::kernel::{KernelForwarder, KernelSpec};
use super::sink::Sink;
use super::source::{Flow, Sent};
use super::testpmd::Testpmd;
use super::user::{self, UserSpec};
use super::{Extra, effective};
use crate::lab::Meter;
use crate::path::{Load, PathError, Session};
use crate::tunnel::forward::{Tuning, Work};
use crate::tunnel::switches::{tuning_of, workers_of};

/// Outer headers of VXLAN over IPv4 with their Ethernet header.
pub(super) const VXLAN_HEADERS_BYTES: usize = 50;
/// How often the sink is looked at for the rate.
const LOOK: Duration = Duration::from_millis(4);
/// Silence at the sink after which a trial is over, and the longest wait for it.
const GRACE: Duration = Duration::from_millis(20);
const GRACE_MAX: Duration = Duration::from_secs(3);

/// The lab and what is kept from trial to trial.
pub(in crate::tunnel) struct TunnelSession {
    lab: Triple,
    load: Load,
    extra: Extra,
    cpus: Vec<usize>,
    clock: CpuClock,
    losses: Losses,
    flow: Flow,
    /// What the source reached, by arm.
    rates_pps: HashMap<String, f64>,
}

/// Who runs where; the source has the first CPU.
pub(super) struct Places {
    pub(super) source: Vec<usize>,
    pub(super) workers: Vec<Vec<usize>>,
    /// All that are not the source's, or its own when there is no other.
    pub(super) others: Vec<usize>,
}

/// One look at the sink: CLOCK_MONOTONIC nanoseconds, frames.
type Look = (u64, u64);

impl TunnelSession {
    pub(in crate::tunnel) fn open(load: &Load) -> Result<Self, PathError> {
        let lab = super::build()?;
        let cpus = io::affinity::allowed_cpus().map_err(PathError::part)?;
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
        let mut m = match arm.has("bypass") {
            true => self.user(arm)?,
            false => self.kernel(arm, &KernelSpec::of(arm, self.cpus.len()))?,
        };
        if arm.has("parallel") && self.cpus.len() < 3 {
            m.mode.insert("workers".into(), "the last shares the source's CPU".into());
        }
        Ok(m)
    }

    fn user(&mut self, arm: &Arm) -> Result<Measurement, PathError> {
        let places = self.places(workers_of(arm, self.cpus.len()));
        let tuning = Tuning {
            work: Work::of_ns(self.extra.work_ns),
            police_percent: self.extra.police_percent,
            ..tuning_of(arm)
        };
        let spec = UserSpec { tuning, has_qos: arm.has("qos"), workers: places.workers.clone() };
        self.measure(&arm.name, &places, VXLAN_HEADERS_BYTES, |lab, body| {
            user::run(lab, &spec, body).map(|(ran, report)| (ran, Some(report)))
        })
    }

    fn kernel(&mut self, arm: &Arm, spec: &KernelSpec) -> Result<Measurement, PathError> {
        let places = self.places(0);
        let others = places.others.clone();
        let steer_to = arm.has("rps").then_some(others.as_slice());
        let mut m = self.measure(&arm.name, &places, VXLAN_HEADERS_BYTES, |lab, body| {
            let forwarder = KernelForwarder::new(lab, spec, steer_to)?;
            let ran = body()?;
            drop(forwarder);
            Ok((ran, None))
        })?;
        m.mode.insert("forwarder".into(), "bridge and VXLAN device of the kernel".into());
        Ok(m)
    }

    fn testpmd(&mut self, name: &str) -> Result<Measurement, PathError> {
        let places = self.places(1);
        let cpus = places.others.clone();
        let (mut forwarding_ns, mut whole_ns) = (0, 0);
        // It forwards and does not tunnel.
        let mut m = self.measure(name, &places, 0, |lab, body| {
            let forwarder = Testpmd::start(name, lab, &cpus)?;
            let before_ns = forwarder.cpu_ns();
            let ran = body()?;
            forwarding_ns = forwarder.cpu_ns().saturating_sub(before_ns);
            whole_ns = forwarder.stop()?;
            Ok((ran, None))
        })?;
        // Its start is no part of what it costs, and none of others' doing either.
        let cost = Cost { user_ns: forwarding_ns, ..Cost::default() };
        m.costs.insert("worker 0".into(), cost);
        m.others_cpu_ns = m.others_cpu_ns.saturating_sub(whole_ns);
        m.mode.insert("forwarder".into(), "testpmd, no tunnel".into());
        Ok(m)
    }

    /// One trial with whatever forwards.
    ///
    /// - `headers_bytes`: what the forwarder puts in front of a frame.
    /// - `forward`: sets the forwarder up, calls what it is given, and takes it down.
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
        let meter = Meter::start(&self.clock)?;
        let (ran, user) = forward(&self.lab, &mut || self.flood(&sink, &places.source, hint))?;
        let used = meter.stop()?;
        let arrived = sink.counts()?;
        let Ran { sent, looks, lost } = ran;
        self.rates_pps.insert(arm.to_owned(), sent.rate_pps);
        let mut m = Measurement { wall_ns: sent.sending_ns.max(1), ..Measurement::default() };
        m.throughput = Some(throughput(&looks, &sent, self.load.size_bytes));
        books::enter(&mut m, Counted { sent, arrived, lost, user });
        used.account(&mut m);
        if arrived.frames == 0 {
            let (end, why) = ("sink".to_owned(), "not one frame arrived".to_owned());
            return Err(PathError::End { end, why });
        }
        Ok(m)
    }

    /// The source sends, the sink is looked at, and what is on its way arrives.
    fn flood(&self, sink: &Sink, cpus: &[usize], hint: Option<f64>) -> Result<Ran, PathError> {
        let before = self.losses.now(&self.lab);
        let mut looks = Vec::with_capacity(1024);
        let (flow, near, trial) = (&self.flow, &self.lab.near, self.load.trial);
        let sent = thread::scope(|scope| {
            let source = start(scope, "source", || flow.flood(near, cpus, trial, hint));
            while !source.is_finished() {
                looks.push((monotonic_ns(), sink.counts()?.frames));
                thread::sleep(LOOK);
            }
            let sent = source.end();
            sent.map_err(|why| PathError::End { end: "source".into(), why })
        })?;
        drain(sink, sent.sent_count)?;
        let lost = books::since(&before, &self.losses.now(&self.lab));
        Ok(Ran { sent, looks, lost })
    }
}

/// The source stands for another host: its CPU is its own for as long as there are others.
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

/// What happened between set-up and taking down.
struct Ran {
    sent: Sent,
    looks: Vec<Look>,
    lost: books::Lost,
}

/// Waits until nothing arrives at the sink any more.
pub(super) fn drain(sink: &Sink, whole: u64) -> Result<(), PathError> {
    let begun = Instant::now();
    let mut last = (sink.counts()?.frames, begun);
    while begun.elapsed() < GRACE_MAX && last.0 < whole && last.1.elapsed() < GRACE {
        thread::sleep(Duration::from_millis(1));
        let frames = sink.counts()?.frames;
        if frames != last.0 {
            last = (frames, Instant::now());
        }
    }
    Ok(())
}

/// What arrived in how long, while the source was sending: from the first look after a tenth of
/// its longest run to the last before the end of it.
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
            "kernel" => self.kernel(arm, &KernelSpec::best(self.cpus.len())),
            name => self.testpmd(name),
        }
    }

    fn nic(&self) -> String {
        format!(
            "two veth pairs, 1 queue, MTU {}; frames of {} bytes",
            super::UNDERLAY_MTU,
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
