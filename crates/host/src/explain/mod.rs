//! Time of packets between points of the stack on a live path, and drops.
//!
//! BPF programs at the stack's tracepoints trace each packet from point to point. This costs CPU time
//! for every packet, so they are attached in windows only, and the kernel counts their cost, which is
//! reported. No experiment should run at the same time.
//!
//! [`StageTrace`] is for experiments: it traces the packets of one program all the time, with fewer
//! points and its cost as part of the result.

mod counters;
mod drop_sentences;
mod drops;
pub(crate) mod functions;
mod headline;
mod service;
mod slices;
mod stage_trace;
mod stages;
pub(crate) mod symbols;
mod watch;

use std::time::{Duration, Instant};

pub use counters::CounterRow;
pub use drops::{DropPlace, DropRow, DropRule};
pub use functions::{FunctionRow, PlaceRow};
pub(crate) use service::find_groups;
pub use service::{ServiceError, TracedService};
pub use slices::{SLICES_MAX, Slice, Slices};
pub use stage_trace::{
    DRIVER_TO_SOCKET, SOCKET_TO_READ, StageLatencies, StageTrace, StageTraceError,
};
pub use stages::{LongestPlace, StageRow};
pub use sys::bpf::BpfError;
pub use sys::bpf::explain::TraceScope;
pub use sys::bpf::stages::Narrow;
pub use watch::{CauseEvent, CauseMoment, Watch};

use sys::bpf::explain::{Explain, Point, Seen};
use sys::bpf::{RunTimeCounting, Runs};

use crate::observer::{self, FlameStacks};
use drops::Spaces;
use symbols::Symbols;

#[derive(Debug, Clone)]
pub struct ExplainSpec {
    /// Interfaces and namespaces; all if empty.
    pub scopes: Vec<TraceScope>,
    /// Only packets of this service, from the driver to the read; its namespaces must be in `scopes`.
    pub service: Option<TracedService>,
    /// Share of the time in which packets are traced, above 0 and up to 1.
    pub duty: f64,
    /// One packet in this many is timed; all are counted.
    pub timed_one_in: u32,
    /// Samples of each CPU per second; 0 for none.
    pub samples_per_second: u32,
    /// Keep the times of single packets, for [`Observer::finish`].
    pub slices: bool,
}

/// Time between the starts of two windows.
const PERIOD: Duration = Duration::from_secs(1);

/// Share of a window in which the kernel counts the programs' cost, because counting has a cost too.
const COUNTED_SHARE: f64 = 0.1;

/// Cost of the observation while the kernel counted it: the programs without their entry and exit,
/// and without the cost of counting, which an empty program measures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ObservationCost {
    /// CPU time, nanoseconds.
    pub ns: u64,
    pub runs_count: u64,
    /// Packets whose trace began in that time.
    pub packets_count: u64,
}

impl ObservationCost {
    /// CPU time per packet in nanoseconds; `None` before the first.
    pub fn ns_per_packet(&self) -> Option<f64> {
        (self.packets_count > 0).then(|| self.ns as f64 / self.packets_count as f64)
    }
}

#[derive(Debug, Clone)]
pub struct ExplainSummary {
    /// Where packets are lost or wait, in one sentence; empty in the middle of an observation.
    pub headline: String,
    /// Time in which packets were traced.
    pub followed: Duration,
    /// Packets whose trace began.
    pub packets_count: u64,
    /// Datagrams read that arrived before the trace began, or faster than it can keep.
    pub read_unseen_count: u64,
    /// Packets whose end was not seen: the kernel freed them without a tracepoint, or another packet
    /// took their place in the table; of a service, packets whose way to the socket was not seen.
    pub evicted_count: u64,
    /// Datagrams that were put into sockets and not read while packets were traced.
    pub unread_count: u64,
    /// Times from point to point, in the order in which a packet passes them.
    pub stages: Vec<StageRow>,
    /// Drops, most frequent first.
    pub drops: Vec<DropRow>,
    /// Counters of the traced namespaces that grew by more packets than were seen to be dropped.
    pub counters: Vec<CounterRow>,
    /// Samples of the CPUs by what they were doing, most frequent first.
    pub places: Vec<PlaceRow>,
    /// Samples by the function that ran, idle CPUs left out, most frequent first.
    pub functions: Vec<FunctionRow>,
    /// Cost of the observation; zero without CAP_SYS_ADMIN, which counting requires.
    pub cost: ObservationCost,
    /// Features that the kernel does not offer.
    pub missing: Vec<String>,
}

/// An observation that runs until it is dropped.
#[derive(Debug)]
pub struct Observer {
    explain: Explain,
    service: Option<TracedService>,
    duty: f64,
    symbols: Symbols,
    followed: Duration,
    counted: ObservationCost,
    slices: Slices,
    /// At the first start.
    counted_before: Option<counters::Before>,
    scopes: Vec<TraceScope>,
    /// In addition to those of `explain`.
    missing: Vec<String>,
}

impl Observer {
    /// Loads the programs; tracing has not begun.
    ///
    /// # Errors
    /// [`BpfError::Permission`] without CAP_BPF and CAP_PERFMON; [`BpfError::Invalid`] for a share
    /// out of range or too many scopes; [`BpfError::Unsupported`] for a service before Linux 6.3;
    /// [`BpfError::Load`] if the kernel refuses.
    pub fn new(spec: &ExplainSpec) -> Result<Observer, BpfError> {
        if !(spec.duty > 0.0 && spec.duty <= 1.0) {
            let what = format!("packets traced {} % of the time", spec.duty * 100.0);
            return Err(BpfError::Invalid { what: format!("{what}; give 1 to 100") });
        }
        let service = spec.service.clone();
        let by = service.as_ref().map(TracedService::by);
        let explain = Explain::load(
            &spec.scopes,
            by,
            spec.timed_one_in,
            spec.samples_per_second,
            spec.slices,
        )?;
        if let Some(service) = &service {
            explain.add_sockets(service.inodes(), service.ports())?;
        }
        let symbols = Symbols::read();
        let mut missing = Vec::new();
        if symbols.are_hidden() {
            missing.push("names of kernel functions: /proc/kallsyms hides addresses".to_owned());
        }
        let (duty, followed) = (spec.duty, Duration::ZERO);
        Ok(Observer {
            explain,
            service,
            duty,
            symbols,
            followed,
            counted: ObservationCost::default(),
            slices: Slices::default(),
            counted_before: None,
            scopes: spec.scopes.clone(),
            missing,
        })
    }

    /// Begins tracing; otherwise [`Self::period`] does.
    ///
    /// # Errors
    /// [`BpfError`] if the programs cannot be attached.
    pub fn start(&mut self) -> Result<(), BpfError> {
        self.explain.start()?;
        self.counted_before.get_or_insert_with(|| counters::Before::read(&self.scopes));
        Ok(())
    }

    /// Observes for one period; returns early if `stop` returns true.
    ///
    /// # Errors
    /// [`BpfError`] if the programs cannot be attached or read.
    pub fn period(&mut self, at_most: Duration, stop: impl Fn() -> bool) -> Result<(), BpfError> {
        let period = PERIOD.min(at_most);
        let window = period.mul_f64(self.duty);
        // Sockets that the service opened meanwhile.
        if let Some(service) = &self.service {
            self.explain.add_sockets(service.inodes(), [])?;
        }
        self.start()?;
        let begun = Instant::now();
        self.count_cost(window.mul_f64(COUNTED_SHARE), &stop)?;
        self.wait(window.saturating_sub(begun.elapsed()), &stop);
        // At full duty, the next window continues this one.
        if self.duty < 1.0 {
            self.explain.stop();
        }
        self.followed += begun.elapsed();
        if self.duty < 1.0 {
            self.wait(period.saturating_sub(begun.elapsed()), &stop);
        }
        Ok(())
    }

    /// Makes the kernel count the programs' cost for `time`.
    fn count_cost(&mut self, time: Duration, stop: &impl Fn() -> bool) -> Result<(), BpfError> {
        let counting = match RunTimeCounting::start() {
            Ok(counting) => counting,
            Err(why) => {
                let what = format!("cost of the observation: {why}");
                if !self.missing.contains(&what) {
                    self.missing.push(what);
                }
                return Ok(());
            }
        };
        let empty = self.explain.attach_empty()?;
        let packets_before = packets_of(&self.explain.seen()?);
        let before = self.explain.run_time()?;
        self.wait(time, stop);
        let after = self.explain.run_time()?;
        let packets = packets_of(&self.explain.seen()?) - packets_before;
        drop((empty, counting));
        let (all, empty) = (after.all.since(&before.all), after.empty.since(&before.empty));
        self.counted.packets_count += packets;
        self.counted.ns += without_counting_ns(all, empty);
        self.counted.runs_count += all.count;
        Ok(())
    }

    /// Waits in short sleeps, so that an interruption takes effect quickly and no slice is lost.
    fn wait(&mut self, time: Duration, stop: &impl Fn() -> bool) {
        let begun = Instant::now();
        while !stop() {
            self.slices.take_from(&mut self.explain);
            let left = time.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
    }

    /// Ends the observation, and returns its results with the times of single packets; these are none
    /// unless [`ExplainSpec::slices`] asked for them.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn finish(mut self) -> Result<(ExplainSummary, Slices), BpfError> {
        self.explain.stop();
        self.slices.take_from(&mut self.explain);
        self.slices.lost_count += self.explain.seen()?.slices_lost_count;
        Ok((self.located_summary()?, self.slices))
    }

    /// Call stacks of the samples so far.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn stacks(&self) -> Result<FlameStacks, BpfError> {
        Ok(observer::stacks(&self.explain.seen()?.samples, &self.symbols))
    }

    /// As [`Self::summary`], with places, counters and a headline: reads rules, sockets and processes.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn located_summary(&self) -> Result<ExplainSummary, BpfError> {
        let mut spaces = Spaces::default();
        let grown = self.counted_before.as_ref().map(|before| before.growth(&mut spaces));
        let mut summary = self.summary()?;
        drops::locate(&mut summary.drops, &mut spaces, &self.symbols);
        stages::locate(&mut summary.stages, &mut spaces);
        summary.counters = counters::rows(&grown.unwrap_or_default(), &spaces, &summary.drops);
        summary.headline = headline::of(&summary);
        Ok(summary)
    }

    /// Returns the results so far, without places.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn summary(&self) -> Result<ExplainSummary, BpfError> {
        let seen = self.explain.seen()?;
        let (places, functions) = functions::rows(&seen.samples, &self.symbols);
        let mut missing: Vec<String> =
            self.missing.iter().chain(self.explain.missing()).cloned().collect();
        if seen.drops_lost_count > 0 {
            missing.push(format!("{} drops: there were too many kinds", seen.drops_lost_count));
        }
        Ok(ExplainSummary {
            headline: String::new(),
            counters: Vec::new(),
            followed: self.followed,
            packets_count: packets_of(&seen),
            read_unseen_count: seen.read_unseen_count,
            evicted_count: seen.evicted_count,
            unread_count: seen.unread_count,
            stages: stages::rows(&seen),
            drops: drops::rows(&seen, &self.symbols),
            places,
            functions,
            cost: self.counted,
            missing,
        })
    }
}

/// Run time without the cost of counting it, which is that of an empty run.
pub(crate) fn without_counting_ns(all: Runs, empty: Runs) -> u64 {
    let floor_ns = (empty.ns * all.count).checked_div(empty.count).unwrap_or(0);
    all.ns.saturating_sub(floor_ns)
}

/// Packets whose trace began.
fn packets_of(seen: &Seen) -> u64 {
    let began = seen.stages.iter().filter(|((from, _), _)| *from == Point::Nowhere);
    began.map(|(_, stage)| stage.count).sum()
}
