//! Counting of what frames suffer on the way: copies and clones by caller, flows against distinct
//! hashes, softirqs by CPU, runs of netfilter's hooks, and call stacks by time.
//!
//! BPF programs count in one window. Where the kernel does not let programs trace functions, the
//! tracepoints and counters that remain give what they can, and [`Observed::unseen`] lists the rest.

mod copies;
mod flame;
mod hooks;
mod names;
mod softnet;
mod text;

use std::time::{Duration, Instant};

use serde::Serialize;
use sys::bpf::observer::{DirectionCounts, ObserverCounts, ObserverPrograms};
use sys::bpf::{BpfError, RunTimeCounting, hook_functions};
use sys::netns::Netns;

use crate::explain::functions::is_idle;
use crate::explain::symbols::Symbols;
use crate::explain::{ObservationCost, without_counting_ns};

pub use copies::ObservedCopies;
pub use flame::FlameStacks;
pub use hooks::ObservedHook;
pub use softnet::ObservedCpu;

/// Samples of each CPU a second; not a round number, so that work with a round period is not missed.
pub const SAMPLES_PER_SECOND: u32 = 997;

/// Part of the window in which the kernel counts the programs' cost, because counting has a cost too.
const COUNTED_SHARE: f64 = 0.1;
/// Pause between two looks at the reason to stop early.
const STOP_INTERVAL: Duration = Duration::from_millis(50);

/// Result of an observation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Observed {
    pub window_ns: u64,
    /// Those that frames crossed in the window.
    pub interfaces: Vec<ObservedInterface>,
    /// True if copies, clones and runs of hooks were counted; otherwise none of them says anything.
    pub sees_functions: bool,
    /// Copies of frames, most bytes first.
    pub copies: Vec<ObservedCopies>,
    /// Clones of frames, most first.
    pub clones: Vec<ObservedCopies>,
    pub hooks: Vec<ObservedHook>,
    /// CPUs of the machine that received something.
    pub cpus: Vec<ObservedCpu>,
    pub cost: ObserverCost,
    /// Facts that cannot be seen here, each with the reason.
    pub unseen: Vec<String>,
}

/// CPU time that the observation took.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ObserverCost {
    /// Per frame that an interface received or sent, nanoseconds; `None` if it was not counted, or without frames.
    pub ns_per_frame: Option<u64>,
    /// In the whole window, nanoseconds: frames times the cost of one.
    pub total_ns: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ObservedInterface {
    /// Inode number of its network namespace.
    pub netns: u32,
    pub index: u32,
    pub name: String,
    pub received: ObservedDirection,
    pub sent: ObservedDirection,
}

/// Frames of one direction of an interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ObservedDirection {
    pub count: u64,
    /// Frames by CPU, from CPU 0 on.
    pub by_cpu: Vec<u64>,
    /// TCP and UDP frames with a hash over their ports.
    pub hashed_count: u64,
    /// Distinct flows of TCP and UDP.
    pub flows_count: u64,
    /// Distinct hashes of the frames that have one.
    pub hashes_count: u64,
}

impl ObservedDirection {
    fn new(counts: &DirectionCounts) -> Self {
        ObservedDirection {
            count: counts.by_cpu.iter().sum(),
            by_cpu: counts.by_cpu.clone(),
            hashed_count: counts.hashed,
            flows_count: counts.flows,
            hashes_count: counts.hashes,
        }
    }

    /// CPUs that handled at least a twentieth of the frames.
    pub fn cpus(&self) -> Vec<usize> {
        let enough = |count: u64| count > 0 && count * 20 >= self.count;
        (0..self.by_cpu.len()).filter(|cpu| enough(self.by_cpu[*cpu])).collect()
    }
}

impl Observed {
    /// An interface of the observed namespace; `None` if no frame crossed it.
    ///
    /// - `netns`: inode number of its network namespace.
    pub fn interface(&self, netns: u32, index: u32) -> Option<&ObservedInterface> {
        self.interfaces.iter().find(|one| (one.netns, one.index) == (netns, index))
    }

    /// Frames that interfaces received or sent.
    pub fn frames_count(&self) -> u64 {
        self.interfaces.iter().map(|one| one.received.count + one.sent.count).sum()
    }

    pub fn seconds(&self) -> f64 {
        self.window_ns as f64 / 1e9
    }
}

/// An observation that runs until it is finished or dropped.
#[derive(Debug)]
pub struct Observation {
    programs: ObserverPrograms,
    netns: Option<Netns>,
    symbols: Symbols,
    begun: Instant,
    softnet: Vec<softnet::Row>,
    cost: ObservationCost,
    unseen: Vec<String>,
}

impl Observation {
    /// Starts one.
    ///
    /// - `netns`: namespace of the interfaces; `None` for all.
    /// - `samples_per_second`: of each CPU, for the call stacks; 0 for none.
    ///
    /// # Errors
    /// [`BpfError::Permission`] without CAP_BPF and CAP_PERFMON; [`BpfError::Load`] if the kernel refuses.
    pub fn start(netns: Option<Netns>, samples_per_second: u32) -> Result<Observation, BpfError> {
        let inode = netns.as_ref().and_then(|netns| netns.inode().ok());
        let mut programs =
            ObserverPrograms::load(inode.map(|inode| inode as u32), samples_per_second)?;
        // Before the start: reading them takes tens of milliseconds, and privileges that the caller may give up.
        let symbols = Symbols::read();
        programs.start()?;
        Ok(Observation {
            programs,
            netns,
            symbols,
            begun: Instant::now(),
            softnet: softnet::read(),
            cost: ObservationCost::default(),
            unseen: Vec::new(),
        })
    }

    /// Observes for `time`, and counts the observation's cost in a part of it; returns early if `stop` returns true.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn wait(&mut self, time: Duration, stop: impl Fn() -> bool) -> Result<(), BpfError> {
        let begun = Instant::now();
        self.count_cost(time.mul_f64(COUNTED_SHARE), &stop)?;
        sleep(time.saturating_sub(begun.elapsed()), &stop);
        Ok(())
    }

    /// Counts the observation's cost for `time`.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn count_cost(&mut self, time: Duration, stop: &impl Fn() -> bool) -> Result<(), BpfError> {
        let counting = match RunTimeCounting::start() {
            Ok(counting) => counting,
            Err(why) => {
                self.unseen.push(format!("cost of the observation: {why}"));
                return Ok(());
            }
        };
        let empty = self.programs.attach_empty()?;
        let frames_before = frames_count(&self.programs.counts()?);
        let before = self.programs.run_time()?;
        sleep(time, stop);
        let after = self.programs.run_time()?;
        let frames = frames_count(&self.programs.counts()?) - frames_before;
        drop((empty, counting));
        let (all, empty) = (after.all.since(&before.all), after.empty.since(&before.empty));
        self.cost.packets_count += frames;
        self.cost.ns += without_counting_ns(all, empty);
        self.cost.runs_count += all.count;
        Ok(())
    }

    /// Ends the observation; returns its counts, and the call stacks by time.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn finish(mut self) -> Result<(Observed, FlameStacks), BpfError> {
        let window = self.begun.elapsed();
        self.programs.stop()?;
        let softnet = softnet::read();
        let (counts, symbols) = (self.programs.counts()?, &self.symbols);
        let names = names::interfaces(self.netns.as_ref());
        let mut unseen = std::mem::take(&mut self.unseen);
        unseen.extend(self.programs.missing().iter().cloned());
        if symbols.are_hidden() {
            unseen.push("names of kernel functions: /proc/kallsyms hides addresses".to_owned());
        }
        if counts.unlisted_count > 0 {
            let count = counts.unlisted_count;
            unseen.push(format!("{count} flows and hashes: there was room for 32,768"));
        }
        let interfaces: Vec<ObservedInterface> = counts
            .interfaces
            .iter()
            .map(|(place, counts)| ObservedInterface {
                netns: place.netns,
                index: place.ifindex,
                name: names::of(&names, *place),
                received: ObservedDirection::new(&counts.received),
                sent: ObservedDirection::new(&counts.sent),
            })
            .collect();
        let (copies, clones) = copies::rows(&counts.copies, symbols, &names);
        let sees_functions = self.programs.sees_functions();
        let mut observed = Observed {
            window_ns: window.as_nanos() as u64,
            interfaces,
            sees_functions,
            copies,
            clones,
            hooks: hooks::rows(&counts.hooks),
            cpus: softnet::rows(&self.softnet, &softnet, &counts.softirqs),
            cost: ObserverCost::default(),
            unseen,
        };
        if let (false, Some(netns)) = (sees_functions, &self.netns) {
            observed.hooks = hooks::computed(&hook_functions(netns).unwrap_or_default(), &observed);
        }
        let frames = observed.frames_count() as f64;
        let ns_per_frame = self.cost.ns_per_packet();
        observed.cost.ns_per_frame = ns_per_frame.map(|ns| ns as u64);
        observed.cost.total_ns = ns_per_frame.map(|ns| (ns * frames) as u64);
        Ok((observed, stacks(&counts.samples, symbols)))
    }
}

/// Call stacks of samples, without those of idle CPUs.
pub(crate) fn stacks(samples: &[(Vec<u64>, u64)], symbols: &Symbols) -> FlameStacks {
    let mut stacks = FlameStacks::default();
    for (chain, count) in samples {
        let mut chain: Vec<String> = chain.iter().map(|address| symbols.name(*address)).collect();
        if !is_idle(&chain) {
            chain.reverse();
            stacks.add(chain, *count);
        }
    }
    stacks
}

fn frames_count(counts: &ObserverCounts) -> u64 {
    let directions = counts.interfaces.values().flat_map(|one| [&one.received, &one.sent]);
    directions.flat_map(|direction| &direction.by_cpu).sum()
}

fn sleep(time: Duration, stop: &impl Fn() -> bool) {
    let begun = Instant::now();
    while !stop() {
        let left = time.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(STOP_INTERVAL));
    }
}
