//! CPU time of programs by function, from samples of the CPUs.
//!
//! One [`Sampler`] serves all programs of an experiment on this host. It is opened once, runs while a program is watched,
//! and names functions after a trial, never in it.

mod code;
mod demangle;
mod elf;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sys::sampling::{CpuRecord, CpuSampler};

use crate::explain::symbols::Symbols;
use code::{CodePlace, ProcessCode};

/// Time between two samples of a CPU: 99 a second, so that they do not keep step with a timer.
pub const INTERVAL_NS: u64 = 1_000_000_000 / 99;

/// Time between two looks at the rings, which are half full in a second at the earliest.
const LOOK_INTERVAL_NS: u64 = 50_000_000;
/// Most places in the code that are kept apart for a program.
const PLACES_MAX: usize = 1 << 16;
/// Most control groups of others that are remembered.
const FOREIGN_MAX: usize = 1 << 14;

/// Samples of the CPUs of this host; none where the kernel gives none.
#[derive(Debug)]
pub struct Sampler(Option<Mutex<State>>);

#[derive(Debug)]
struct State {
    cpus: CpuSampler,
    /// By a number of their own.
    watched: BTreeMap<u64, Watched>,
    next: u64,
    /// Control groups without a watched program.
    foreign: BTreeSet<u64>,
    code: ProcessCode,
    /// Records that came after the last look began.
    pending: Vec<(u64, CpuRecord)>,
    kernel: Option<Symbols>,
    looked_ns: u64,
}

/// A program.
#[derive(Debug)]
struct Watched {
    folder: PathBuf,
    /// Its control group, and those below it.
    groups: BTreeSet<u64>,
    counts: HashMap<CodePlace, u64>,
    lost_before: u64,
}

/// Code that a sample was in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SampledKind {
    Function,
    Kernel,
    /// Any code of a file that names no function there.
    File,
}

/// Samples of one function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionCount {
    /// Name of the function, or of the file that names none.
    pub name: String,
    pub kind: SampledKind,
    pub count: u64,
}

/// Functions that the processes of one program ran in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgramSamples {
    /// Most samples first.
    pub functions: Vec<FunctionCount>,
    /// Records of all programs that were lost meanwhile.
    pub lost_count: u64,
}

impl Sampler {
    /// Opens the sampler of these CPUs, but for those that the kernel keeps free of timers.
    pub fn open(cpus: &[usize]) -> Arc<Sampler> {
        let list = fs::read_to_string("/sys/devices/system/cpu/nohz_full").unwrap_or_default();
        let sampled: Vec<usize> =
            cpus.iter().copied().filter(|cpu| !is_listed(&list, *cpu)).collect();
        let opened = CpuSampler::open(&sampled, INTERVAL_NS).ok().filter(|_| !sampled.is_empty());
        Arc::new(Sampler(opened.map(|cpus| {
            Mutex::new(State {
                cpus,
                watched: BTreeMap::new(),
                next: 0,
                foreign: BTreeSet::new(),
                code: ProcessCode::default(),
                pending: Vec::new(),
                kernel: None,
                looked_ns: 0,
            })
        })))
    }

    /// No samples.
    pub fn none() -> Arc<Sampler> {
        Arc::new(Sampler(None))
    }

    /// Samples the program of a control group of version 2 from now on; `None` if that is not possible.
    ///
    /// - `folder`: of the group.
    pub fn watch(self: &Arc<Self>, folder: &Path) -> Option<SampledProgram> {
        let mut state = self.state()?;
        if state.watched.is_empty() {
            state.cpus.enable().ok()?;
        }
        let number = state.next;
        state.next += 1;
        let lost_before = state.cpus.lost_count();
        let groups = group_inodes(folder);
        state.foreign.retain(|group| !groups.contains(group));
        let watched =
            Watched { folder: folder.to_owned(), groups, counts: HashMap::new(), lost_before };
        state.watched.insert(number, watched);
        // After the sampler was enabled: what is mapped from now on is recorded.
        process_ids(folder).into_iter().for_each(|pid| state.code.read(pid));
        drop(state);
        Some(SampledProgram { sampler: self.clone(), number })
    }

    fn state(&self) -> Option<MutexGuard<'_, State>> {
        Some(self.0.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A program that is sampled until this is dropped.
#[derive(Debug)]
pub struct SampledProgram {
    sampler: Arc<Sampler>,
    number: u64,
}

impl SampledProgram {
    /// Takes what the kernel has recorded. To be called many times a second, so that nothing is lost.
    pub fn poll(&self) {
        if let Some(mut state) = self.sampler.state() {
            let now_ns = sys::clock::monotonic_ns();
            if now_ns >= state.looked_ns + LOOK_INTERVAL_NS {
                state.looked_ns = now_ns;
                state.take(now_ns);
            }
        }
    }

    /// Samples since the beginning, by function.
    pub fn end(self) -> ProgramSamples {
        let Some(mut state) = self.sampler.state() else { return ProgramSamples::default() };
        state.take(u64::MAX);
        let Some(watched) = state.watched.remove(&self.number) else {
            return ProgramSamples::default();
        };
        state.stop_if_unused();
        state.named(watched)
    }
}

impl Drop for SampledProgram {
    fn drop(&mut self) {
        if let Some(mut state) = self.sampler.state()
            && state.watched.remove(&self.number).is_some()
        {
            state.stop_if_unused();
        }
    }
}

impl State {
    /// Takes all records, and counts the samples before a time. Later ones wait, because records of another CPU may have
    /// been before them.
    fn take(&mut self, until_ns: u64) {
        let State { cpus, pending, .. } = self;
        cpus.take(|at_ns, record| pending.push((at_ns, record)));
        pending.sort_by_key(|(at_ns, _)| *at_ns);
        let count = pending.partition_point(|(at_ns, _)| *at_ns <= until_ns);
        let records: Vec<_> = pending.drain(..count).collect();
        records.into_iter().for_each(|(_, record)| self.apply(record));
    }

    fn apply(&mut self, record: CpuRecord) {
        match record {
            CpuRecord::Forked { pid, parent } => self.code.fork(pid, parent),
            CpuRecord::Executed { pid } => self.code.execute(pid),
            CpuRecord::Mapped { pid, mapping } => self.code.map(pid, mapping),
            CpuRecord::Sample(sample) => {
                let Some(number) = self.owner(sample.group) else { return };
                let place = if sample.is_kernel {
                    CodePlace::Kernel { address: sample.address }
                } else {
                    self.code.place(sample.pid, sample.address)
                };
                let Some(watched) = self.watched.get_mut(&number) else { return };
                let is_full = watched.counts.len() >= PLACES_MAX;
                let place = if is_full { CodePlace::Unknown } else { place };
                *watched.counts.entry(place).or_default() += 1;
            }
        }
    }

    /// Number of the program that a control group belongs to. One that was made since is looked for once.
    fn owner(&mut self, group: u64) -> Option<u64> {
        let found = self.known_owner(group);
        if found.is_some() || self.foreign.contains(&group) || self.foreign.len() >= FOREIGN_MAX {
            return found;
        }
        self.watched.values_mut().for_each(|of| of.groups.extend(group_inodes(&of.folder)));
        let found = self.known_owner(group);
        if found.is_none() {
            self.foreign.insert(group);
        }
        found
    }

    fn known_owner(&self, group: u64) -> Option<u64> {
        self.watched.iter().find(|(_, of)| of.groups.contains(&group)).map(|(number, _)| *number)
    }

    fn stop_if_unused(&mut self) {
        if self.watched.is_empty() {
            // A timer that still runs costs time, and nothing else.
            let _ = self.cpus.disable();
            self.cpus.take(|_, _| ());
            self.pending.clear();
            self.code.forget_processes();
            self.foreign.clear();
        }
    }

    fn named(&mut self, watched: Watched) -> ProgramSamples {
        let mut by_name = BTreeMap::<(SampledKind, String), u64>::new();
        for (place, count) in watched.counts {
            let name = match place {
                CodePlace::Kernel { address } => {
                    let kernel = self.kernel.get_or_insert_with(Symbols::read);
                    let name = if kernel.are_hidden() {
                        "the kernel".to_owned()
                    } else {
                        kernel.name(address)
                    };
                    (SampledKind::Kernel, name)
                }
                CodePlace::File { file, offset_bytes } => {
                    match self.code.files.function(file, offset_bytes) {
                        Some(name) => (SampledKind::Function, name),
                        None => (SampledKind::File, self.code.files.name(file)),
                    }
                }
                CodePlace::Unknown => (SampledKind::File, "code that is not known".to_owned()),
            };
            *by_name.entry(name).or_default() += count;
        }
        let mut functions: Vec<FunctionCount> = by_name
            .into_iter()
            .map(|((kind, name), count)| FunctionCount { name, kind, count })
            .collect();
        functions.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
        let lost_count = self.cpus.lost_count().saturating_sub(watched.lost_before);
        ProgramSamples { functions, lost_count }
    }
}

/// A control group and those below it, by the inodes of their folders.
fn group_inodes(folder: &Path) -> BTreeSet<u64> {
    let mut groups = BTreeSet::new();
    each_group(folder, &mut |group| {
        groups.extend(fs::metadata(group).map(|metadata| metadata.ino()));
    });
    groups
}

fn process_ids(folder: &Path) -> Vec<u32> {
    let mut pids = Vec::new();
    each_group(folder, &mut |group| {
        let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        pids.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
    });
    pids
}

fn each_group(folder: &Path, each: &mut impl FnMut(&Path)) {
    each(folder);
    let inner = fs::read_dir(folder).into_iter().flatten().flatten();
    let inner = inner.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    inner.for_each(|entry| each_group(&entry.path(), each));
}

/// True if a list of the kernel's, such as `0-3,6`, has a CPU.
fn is_listed(list: &str, cpu: usize) -> bool {
    list.trim().split(',').any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let ends = first.parse::<usize>().ok().zip(last.parse().ok());
        ends.is_some_and(|(first, last)| (first..=last).contains(&cpu))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_without_a_timer_are_left_out() {
        assert!(is_listed("2-5,9\n", 3) && is_listed("2-5,9\n", 9));
        assert!(!is_listed("2-5,9\n", 6) && !is_listed("\n", 0) && !is_listed("(null)\n", 0));
    }

    #[test]
    fn a_sampler_without_rights_watches_nothing() {
        assert!(Sampler::none().watch(Path::new("/")).is_none());
    }
}
