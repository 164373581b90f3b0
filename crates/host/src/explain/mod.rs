//! Where the time of a packet goes on a live path, and where packets end.
//!
//! BPF programs at the stack's tracepoints follow each packet from point to point. That costs CPU
//! time for every packet, so they are there in windows only, and what they cost is counted by the
//! kernel and told. No experiment should run meanwhile.

mod functions;
mod stages;
mod symbols;

use std::time::{Duration, Instant};

pub use functions::{FunctionRow, PlaceRow};
pub use stages::{DropRow, StageRow};
pub use sys::bpf::BpfError;
pub use sys::bpf::explain::Scope;

use sys::bpf::explain::{Explain, Point, RunTimeCounting, Seen};

use symbols::Symbols;

/// What is to be observed.
#[derive(Debug, Clone)]
pub struct Spec {
    /// Interfaces and namespaces; everything when empty.
    pub scopes: Vec<Scope>,
    /// Share of the time in which packets are followed, above 0 and up to 1.
    pub duty: f64,
    /// Of so many packets one is timed; all are counted.
    pub timed_one_in: u32,
    /// How often a second each CPU is looked at; 0 for never.
    pub samples_per_second: u32,
}

/// From the start of one window to that of the next.
const PERIOD: Duration = Duration::from_secs(1);

/// Share of a window in which the kernel counts what the programs take: counting has a price too.
const COUNTED_SHARE: f64 = 0.1;

/// What the observation itself took while the kernel counted it: the programs alone, without
/// their entry and exit, and without what counting takes (an empty program tells).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// CPU time, nanoseconds.
    pub ns: u64,
    /// Runs of a program.
    pub runs_count: u64,
    /// Packets that began to be followed meanwhile.
    pub packets_count: u64,
}

impl Cost {
    /// CPU time a packet, nanoseconds; `None` before the first.
    pub fn ns_per_packet(&self) -> Option<f64> {
        (self.packets_count > 0).then(|| self.ns as f64 / self.packets_count as f64)
    }
}

/// What was seen.
#[derive(Debug, Clone)]
pub struct Summary {
    /// How long packets were followed.
    pub followed: Duration,
    /// Packets that began to be followed.
    pub packets_count: u64,
    /// Datagrams read that came before they were followed, or faster than can be kept.
    pub read_unseen_count: u64,
    /// Packets whose story was cut short because another took their place in the table.
    pub evicted_count: u64,
    /// Times from point to point, in the order in which a packet passes them.
    pub stages: Vec<StageRow>,
    /// Drops, most frequent first.
    pub drops: Vec<DropRow>,
    /// Samples of the CPUs by what they were doing, most frequent first.
    pub places: Vec<PlaceRow>,
    /// Samples by the function that ran, idle CPUs left out, most frequent first.
    pub functions: Vec<FunctionRow>,
    /// What this took; nothing without CAP_SYS_ADMIN, which counting needs.
    pub cost: Cost,
    /// What the kernel did not offer.
    pub missing: Vec<String>,
}

/// An observation that goes on until it is dropped.
#[derive(Debug)]
pub struct Observer {
    explain: Explain,
    duty: f64,
    symbols: Symbols,
    followed: Duration,
    counted: Cost,
    /// Beyond what `explain` misses.
    missing: Vec<String>,
}

impl Observer {
    /// Loads what is needed; nothing is observed yet.
    ///
    /// # Errors
    /// [`BpfError::Permission`] without CAP_BPF and CAP_PERFMON; [`BpfError::Invalid`] for a share
    /// out of range or too many scopes; [`BpfError::Load`] where the kernel refuses.
    pub fn new(spec: &Spec) -> Result<Observer, BpfError> {
        if !(spec.duty > 0.0 && spec.duty <= 1.0) {
            let what = format!("packets followed {} % of the time", spec.duty * 100.0);
            return Err(BpfError::Invalid { what: format!("{what}; give 1 to 100") });
        }
        let explain = Explain::load(&spec.scopes, spec.timed_one_in, spec.samples_per_second)?;
        let symbols = Symbols::read();
        let mut missing = Vec::new();
        if symbols.are_hidden() {
            missing.push("names of kernel functions: /proc/kallsyms hides addresses".to_owned());
        }
        let (duty, followed) = (spec.duty, Duration::ZERO);
        Ok(Observer { explain, duty, symbols, followed, counted: Cost::default(), missing })
    }

    /// Begins to follow packets; [`Self::period`] does it otherwise.
    ///
    /// # Errors
    /// [`BpfError`] when the programs cannot be put in place.
    pub fn start(&mut self) -> Result<(), BpfError> {
        self.explain.start()
    }

    /// Observes for one period; returns early when `stop` says so.
    ///
    /// # Errors
    /// [`BpfError`] when the programs cannot be put in place or read.
    pub fn period(&mut self, at_most: Duration, stop: impl Fn() -> bool) -> Result<(), BpfError> {
        let period = PERIOD.min(at_most);
        let window = period.mul_f64(self.duty);
        self.explain.start()?;
        let begun = Instant::now();
        self.count_cost(window.mul_f64(COUNTED_SHARE), &stop)?;
        wait(window.saturating_sub(begun.elapsed()), &stop);
        // At full duty the next window goes on with this one.
        if self.duty < 1.0 {
            self.explain.stop();
        }
        self.followed += begun.elapsed();
        if self.duty < 1.0 {
            wait(period.saturating_sub(begun.elapsed()), &stop);
        }
        Ok(())
    }

    /// Has the kernel count what the programs take for a while.
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
        wait(time, stop);
        let after = self.explain.run_time()?;
        let packets = packets_of(&self.explain.seen()?) - packets_before;
        drop((empty, counting));
        let (all, empty) = (after.all.since(&before.all), after.empty.since(&before.empty));
        // Counting a run takes as long as a run that does nothing.
        let floor_ns = (empty.ns * all.count).checked_div(empty.count).unwrap_or(0);
        self.counted.packets_count += packets;
        self.counted.ns += all.ns.saturating_sub(floor_ns);
        self.counted.runs_count += all.count;
        Ok(())
    }

    /// All that was seen so far.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn summary(&self) -> Result<Summary, BpfError> {
        let seen = self.explain.seen()?;
        let (places, functions) = functions::of(&seen.samples, &self.symbols);
        Ok(Summary {
            followed: self.followed,
            packets_count: packets_of(&seen),
            read_unseen_count: seen.read_unseen_count,
            evicted_count: seen.evicted_count,
            stages: stages::of(&seen),
            drops: stages::drops_of(&seen, &self.symbols),
            places,
            functions,
            cost: self.counted,
            missing: self.missing.iter().chain(self.explain.missing()).cloned().collect(),
        })
    }
}

/// Packets that began to be followed.
fn packets_of(seen: &Seen) -> u64 {
    let began = seen.stages.iter().filter(|((from, _), _)| *from == Point::Nowhere);
    began.map(|(_, stage)| stage.count).sum()
}

/// In short sleeps, so that whoever interrupts is heard.
fn wait(time: Duration, stop: &impl Fn() -> bool) {
    let begun = Instant::now();
    while !stop() {
        let left = time.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
}
