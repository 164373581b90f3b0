//! Figures of a running service: from outside, by the kernel, and from the service itself.
//!
//! A [`Reading`] holds cumulative counts, so any two of them give the figures of the time between ([`Reading::since`]).
//! docs/reference/live-sources.md has the unit, the limits and the cost of each source.

mod bins;
mod command;
mod cpu;
mod error;
mod log;
mod metric;
mod metric_state;
mod network;
mod prometheus;
mod reach;
mod reading;
mod target;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use model::Better;
use model::live::{GuardSample, LiveFigure, LiveScale};
use sys::bpf::{BpfError, RunTime, ServiceProbe, ServiceSpan, ServiceTotals, ServiceWaiting};
use sys::clock::monotonic_ns as clock_ns;

pub use error::{LiveError, MetricSyntaxError};
pub use metric::{MetricSource, MetricSpec, Statistic};
#[doc(hidden)]
pub use prometheus::fuzzing;
pub use prometheus::{Selector, Url};
pub use reach::{Connections, Reach, Wanted};
pub use reading::{Beside, Reading, Seen};
pub use target::Service;

use cpu::CpuTime;
use metric_state::{Metric, MetricState};
use network::{Counters, Queues};
use reading::{Kind, ServiceReading};
use target::Target;

/// Time for the lines of a log at a reading, and at a sample of the guard.
const LOG_TIME_MAX: Duration = Duration::from_secs(1);
const LOG_SAMPLE_TIME_MAX: Duration = Duration::from_millis(10);
/// One connection in this many may wait without an alarm: clients on the internet disappear without a word.
const LATE_SHARE: u32 = 50;

/// Places of the figures.
#[derive(Debug, Clone, Default)]
pub struct SourceSpec {
    /// `None` for figures of the service's own alone.
    pub service: Option<Service>,
    /// File of the network namespace of [`Service::Port`]; `None` for that of the caller.
    pub netns: Option<PathBuf>,
    pub metrics: Vec<MetricSpec>,
}

/// Sources of the figures of a service, until dropped.
#[derive(Debug)]
pub struct Sources {
    figures: Vec<LiveFigure>,
    kinds: Arc<[Kind]>,
    absent: Vec<(String, String)>,
    target: Option<Target>,
    probe: Option<ServiceProbe>,
    cpu: Option<CpuTime>,
    counters: Option<Counters>,
    metrics: Vec<Metric>,
    /// Of the last sample of the guard.
    sampled: ServiceTotals,
    /// Connections that were there before the switch, where BPF does not tell.
    first_connections: BTreeSet<(SocketAddr, SocketAddr)>,
}

impl Sources {
    /// Finds the service, attaches the programs, and reads each metric once.
    ///
    /// Errors: the service does not run, a metric cannot be read, or there is nothing to judge. A figure that this host
    /// cannot give is in [`Sources::absent`] instead.
    pub fn open(spec: &SourceSpec) -> Result<Sources, LiveError> {
        let target = match &spec.service {
            Some(service) => Some(Target::find(service, spec.netns.as_deref())?),
            None => None,
        };
        let mut absent = Vec::new();
        let probe = match &target {
            Some(target) => match ServiceProbe::attach(target.netns_inode, &target.ports) {
                Ok(mut probe) => {
                    if let Err(why) = target.netns.run(|| probe.waiting())? {
                        absent.push(("waiting".to_owned(), with_causes(&why)));
                    }
                    Some(probe)
                }
                Err(why) => {
                    let why = with_causes(&why);
                    for name in ["p50", "p99", "errors"] {
                        absent.push((name.to_owned(), why.clone()));
                    }
                    None
                }
            },
            None => None,
        };
        let (mut cpu, mut counters) = (None, None);
        if let Some(target) = &target {
            counters = Some(Counters::open(&target.netns)?);
            if target.roots.is_empty() {
                let why = "the processes of the service may not be inspected; run as root";
                absent.push(("cpu_per_request".to_owned(), why.to_owned()));
            } else {
                cpu = Some(CpuTime::new(target.cgroup.clone(), &target.roots));
            }
        }
        let mut metrics = Vec::new();
        for spec in &spec.metrics {
            metrics.push(Metric::open(spec)?);
        }
        let mut sources = Sources {
            figures: Vec::new(),
            kinds: Arc::from([]),
            absent,
            target,
            probe,
            cpu,
            counters,
            metrics,
            sampled: ServiceTotals::default(),
            first_connections: BTreeSet::new(),
        };
        sources.choose_figures()?;
        Ok(sources)
    }

    fn choose_figures(&mut self) -> Result<(), LiveError> {
        let mut chosen = Vec::new();
        let counts_requests = self.metrics.iter().any(Metric::counts_requests);
        if self.cpu.is_some() && (self.probe.is_some() || counts_requests) {
            chosen.push((
                lower_figure("cpu_per_request", "us", LiveScale::Ratio),
                Kind::CpuPerRequest,
            ));
        } else if self.cpu.is_some() {
            let why = self.absent.first().map_or("", |(_, why)| why);
            let why = format!(
                "requests are not counted ({why}); add --metric 'prom:…' with a histogram of requests"
            );
            self.absent.push(("cpu_per_request".into(), why));
        }
        if self.probe.is_some() {
            chosen.push((lower_figure("p50", "us", LiveScale::Ratio), Kind::Latency(0.5)));
            chosen.push((lower_figure("p99", "us", LiveScale::Ratio), Kind::Latency(0.99)));
            chosen.push((lower_figure("errors", "per request", LiveScale::Count), Kind::Errors));
        }
        for (number, metric) in self.metrics.iter().enumerate() {
            let figure = LiveFigure {
                name: metric.spec.name.clone(),
                unit: metric.spec.unit(),
                better: metric.spec.better,
                scale: LiveScale::Ratio,
            };
            chosen.push((figure, Kind::Metric(number)));
        }
        if chosen.is_empty() {
            let why = self.absent.iter().map(|(name, why)| format!("{name}: {why}"));
            let why = why.collect::<Vec<_>>().join("; ");
            return Err(LiveError::NoFigure { why });
        }
        let names: Vec<&String> = chosen.iter().map(|(figure, _)| &figure.name).collect();
        if let Some(name) = names
            .iter()
            .enumerate()
            .find_map(|(at, name)| names[..at].contains(name).then_some(*name))
        {
            return Err(LiveError::SameName { name: name.clone() });
        }
        let kinds: Vec<Kind> = chosen.iter().map(|(_, kind)| *kind).collect();
        self.kinds = kinds.into();
        self.figures = chosen.into_iter().map(|(figure, _)| figure).collect();
        Ok(())
    }

    /// Judged figures, the primary one first.
    pub fn figures(&self) -> &[LiveFigure] {
        &self.figures
    }

    /// Figures that this host cannot give, each with the reason.
    pub fn absent(&self) -> &[(String, String)] {
        &self.absent
    }

    /// Metrics that the last reading does not have, each with the reason.
    pub fn problems(&self) -> impl Iterator<Item = &LiveError> {
        self.metrics.iter().filter_map(|metric| metric.problem.as_ref())
    }

    /// Local ports of the service; empty if none was named.
    pub fn ports(&self) -> &[u16] {
        self.target.as_ref().map_or(&[], |target| &target.ports)
    }

    /// Reads all sources: first what the kernel counts, then the metrics, each within 2 s.
    ///
    /// Errors: the programs' counts cannot be read. A metric that cannot be read has no value, see
    /// [`Sources::problems`].
    pub fn read(&mut self) -> Result<Reading, LiveError> {
        let at_ns = clock_ns();
        let service = match &self.probe {
            Some(probe) => Some(ServiceReading {
                totals: probe.totals()?,
                first_send: probe.times(ServiceSpan::FirstSend)?,
                last_acknowledgement: probe.times(ServiceSpan::LastAcknowledgement)?,
            }),
            None => None,
        };
        let cpu_ns = self.cpu_ns();
        let counters = self.counters.as_mut().and_then(|counters| counters.read().ok());
        let queues = self.target.as_ref().and_then(|target| {
            Some(Queues::sum(&network::connections(&target.netns, &target.ports).ok()?))
        });
        Ok(Reading {
            at_ns,
            kinds: self.kinds.clone(),
            statistics: self.metrics.iter().map(|metric| metric.spec.statistic).collect(),
            service,
            cpu_ns,
            interrupt_ticks: cpu::interrupt_ticks(),
            counters: counters.unwrap_or_default(),
            queues,
            metrics: self.metrics.iter_mut().map(Metric::read).collect(),
            request_metric: self.metrics.iter().position(Metric::counts_requests),
        })
    }

    fn cpu_ns(&mut self) -> Option<u64> {
        let cpu = self.cpu.as_mut()?;
        let mut cpu_ns = cpu.read_ns();
        // A service that was started anew, by something else than its own processes.
        if cpu.is_ended()
            && let Some(target) = self.target.as_ref().filter(|target| target.cgroup.is_none())
            && let Ok(now) = Target::listening(&target.netns, &target.ports)
        {
            cpu.add_roots(&now);
            cpu_ns = cpu.read_ns();
        }
        cpu_ns
    }

    /// Counts since the sample before, and the longest wait; for each 100 ms.
    ///
    /// - `slow_limit_ns`: requests slower than this count as slow from now on.
    ///
    /// Errors: the programs' counts cannot be read.
    pub fn guard_sample(&mut self, slow_limit_ns: Option<u64>) -> Result<GuardSample, LiveError> {
        for metric in &mut self.metrics {
            if let MetricState::Log(log) = &mut metric.source {
                // The next reading reports it.
                let _ = log.poll(LOG_SAMPLE_TIME_MAX);
            }
        }
        let Some(probe) = &mut self.probe else {
            return Ok(GuardSample { now_ns: clock_ns(), ..GuardSample::default() });
        };
        probe.set_slow_limit_ns(slow_limit_ns)?;
        let now = probe.totals()?;
        let before = std::mem::replace(&mut self.sampled, now);
        // On a kernel that cannot go through the connections it is among the absent ones.
        let waiting = match &self.target {
            Some(target) => target.netns.run(|| probe.waiting())?.unwrap_or_default(),
            None => ServiceWaiting::default(),
        };
        let error_count = now.refused_count - before.refused_count;
        Ok(GuardSample {
            now_ns: clock_ns(),
            request_count: now.answered_count - before.answered_count + error_count,
            error_count,
            slow_count: now.slow_count - before.slow_count,
            waiting_ns: alarming_wait_ns(&waiting),
        })
    }

    /// Run time of the programs, while the kernel counts it ([`sys::bpf::RunTimeCounting`]); `None` without programs.
    ///
    /// Errors: the kernel does not say.
    pub fn run_time(&self) -> Result<Option<RunTime>, LiveError> {
        Ok(self.probe.as_ref().map(ServiceProbe::run_time).transpose()?)
    }
}

fn lower_figure(name: &str, unit: &str, scale: LiveScale) -> LiveFigure {
    LiveFigure { name: name.into(), unit: unit.into(), better: Better::Lower, scale }
}

/// Longest wait, unless so few connections wait that clients may have disappeared.
fn alarming_wait_ns(waiting: &ServiceWaiting) -> Option<u64> {
    let is_few = waiting.late_count > 0 && waiting.late_count * LATE_SHARE < waiting.active_count;
    (waiting.oldest_ns > 0 && !is_few).then_some(waiting.oldest_ns)
}

fn with_causes(error: &BpfError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
