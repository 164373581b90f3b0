use std::collections::BTreeSet;
use std::path::PathBuf;

use host::program::ProgramSample;
use host::text::chain;
use sys::bpf::kvm::{KvmCounter, KvmEvent, KvmEvents};
use sys::clock;

use super::counts::{KvmPart, OutsideCounts};
use super::error::OutsideError;
use super::qemu::TraceLog;
use super::threads;

/// Descriptor of a machine that KVM runs. Source: the kernel's virt/kvm/kvm_main.c.
const KVM_MACHINE: &str = "anon_inode:kvm-vm";

/// The machine to watch.
#[derive(Debug, Clone)]
pub struct WatchTarget {
    /// Process of the VMM.
    pub pid: u32,
    /// File of [`qemu_arguments`](crate::qemu_arguments); `None` if the machine is not QEMU's, or is not traced.
    pub trace_log: Option<PathBuf>,
    /// Speed of the console that its characters are priced at, bits per second.
    pub baud: u32,
}

/// Counts a machine's events until [`Self::end`].
#[derive(Debug)]
pub struct OutsideWatch {
    target: WatchTarget,
    began: ProgramSample,
    log: Option<TraceLog>,
    /// The reason, if it cannot be counted.
    kvm: Result<KvmCounter, String>,
}

impl OutsideWatch {
    /// Begins to count. Machines of other processes are not counted.
    ///
    /// # Errors
    /// There is no such process, or the log cannot be opened.
    pub fn begin(target: &WatchTarget) -> Result<Self, OutsideError> {
        let sample = ProgramSample::take(target.pid)?;
        let kvm = count_kvm(&sample);
        // After the programs, which take tens of milliseconds to attach.
        let log = target.trace_log.as_deref().map(TraceLog::open).transpose()?;
        let began = ProgramSample::take(target.pid)?;
        Ok(OutsideWatch { target: target.clone(), began, log, kvm })
    }

    /// Ends counting. Reads the log, so call it after the last measurement of the trial. The machine may have ended.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn end(self) -> Result<OutsideCounts, OutsideError> {
        let OutsideWatch { target, began, log, kvm } = self;
        let ended = ProgramSample::take(target.pid);
        let mut counts = OutsideCounts {
            wall_ns: clock::monotonic_ns().saturating_sub(began.at_ns),
            baud: target.baud,
            realtime_ahead_ns: clock::realtime_ns().saturating_sub(clock::monotonic_ns()),
            ..OutsideCounts::default()
        };
        let lacks = &mut counts.missing;
        match kvm.and_then(|counter| finish(counter, lacks)) {
            Ok(part) => counts.kvm = Some(part),
            Err(why) => lacks.push(format!("exits, injections, halts: {why}")),
        }
        if log.is_none() {
            lacks.push("doorbells, frames, stages, console: no trace log of QEMU was given".into());
        }
        match ended.ok().filter(|ended| ended.is_same_process(&began)) {
            Some(ended) => {
                let (threads, ended_count) = threads::between(&began, &ended, &vcpus(&counts));
                counts.threads = threads;
                if ended_count > 0 {
                    let what = format!("CPU time of {ended_count} threads that ended meanwhile");
                    counts.missing.push(what);
                }
            }
            None => {
                let what = format!("CPU and waiting time: process {} ended meanwhile", target.pid);
                counts.missing.push(what);
            }
        }
        if let Some(log) = log {
            let (book, unread_bytes) = log.read()?;
            counts.take_log(book, unread_bytes);
        }
        Ok(counts)
    }
}

fn count_kvm(sample: &ProgramSample) -> Result<KvmCounter, String> {
    let mut descriptors = sample.descriptors.iter().flat_map(|open| open.values());
    if sample.descriptors.is_some() && !descriptors.any(|to| to == KVM_MACHINE) {
        return Err(format!("process {} has no machine of KVM", sample.pid));
    }
    let threads: Vec<u32> = sample.threads.keys().copied().collect();
    KvmCounter::attach(sample.leader, &threads, true).map_err(|why| chain(&why))
}

fn finish(counter: KvmCounter, missing: &mut Vec<String>) -> Result<KvmPart, String> {
    let mut absent: Vec<&str> = counter.missing().iter().map(|one| one.name).collect();
    missing.extend(counter.missing().iter().map(ToString::to_string));
    let events = counter.finish().map_err(|why| chain(&why))?;
    if is_silent(&events) {
        absent.extend(OF_PROCESSOR);
        missing.push(format!(
            "exits by reason, injections: this kernel's KVM does not pass {}",
            OF_PROCESSOR.join(", ")
        ));
    }
    if events.lost_count > 0 {
        let count = events.lost_count;
        missing.push(format!("{count} events of KVM: more than 8192 ports, addresses and reasons"));
    }
    Ok(KvmPart { events, absent })
}

/// Tracepoints that are passed by the part of KVM that is the processor's. Others for machines without it have none
/// of them, such as PVM.
const OF_PROCESSOR: [&str; 3] = ["kvm_exit", "kvm_entry", "kvm_inj_virq"];

/// True if a guest ran and none of [`OF_PROCESSOR`] told of it.
fn is_silent(events: &KvmEvents) -> bool {
    let mut sums = events.sums.iter();
    !events.sums.is_empty()
        && !sums.any(|sum| matches!(sum.event, KvmEvent::Exit | KvmEvent::Injected))
}

/// Threads that ran a virtual CPU. Any thread may raise an interrupt.
fn vcpus(counts: &OutsideCounts) -> BTreeSet<u32> {
    let sums = counts.kvm_events().map(|events| &events.sums[..]).unwrap_or_default();
    sums.iter()
        .filter(|sum| !matches!(sum.event, KvmEvent::Line | KvmEvent::Message))
        .map(|sum| sum.thread)
        .collect()
}
