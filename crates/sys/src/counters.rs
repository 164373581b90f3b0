//! Counters of the processor: instructions, cycles, and misses of its caches, of a thread or of a control group.
//!
//! Source: perf_event_open(2).

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::Path;

use serde::{Deserialize, Serialize};
use zerocopy::IntoBytes;

use crate::perf::{CLOSE_ON_EXEC, perf_event_open};

/// Counts of the processor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HardwareCounts {
    pub instruction_count: u64,
    /// Of the core's own clock, which stands still in sleep.
    pub cycle_count: u64,
    /// Reads that the last level of the cache did not have; `None` if the processor does not count them beside the others.
    pub llc_miss_count: Option<u64>,
    /// Addresses of data that the translation buffer did not have.
    pub tlb_miss_count: Option<u64>,
}

impl HardwareCounts {
    pub fn since(&self, earlier: &HardwareCounts) -> HardwareCounts {
        HardwareCounts {
            instruction_count: self.instruction_count.saturating_sub(earlier.instruction_count),
            cycle_count: self.cycle_count.saturating_sub(earlier.cycle_count),
            llc_miss_count: growth(self.llc_miss_count, earlier.llc_miss_count),
            tlb_miss_count: growth(self.tlb_miss_count, earlier.tlb_miss_count),
        }
    }
}

fn growth(now: Option<u64>, before: Option<u64>) -> Option<u64> {
    Some(now?.saturating_sub(before?))
}

/// Type and number of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Event {
    kind: u32,
    config: u64,
}

const fn cache(cache: u32) -> Event {
    let miss = libbpf_sys::PERF_COUNT_HW_CACHE_RESULT_MISS << 16;
    let read = libbpf_sys::PERF_COUNT_HW_CACHE_OP_READ << 8;
    Event { kind: libbpf_sys::PERF_TYPE_HW_CACHE, config: (cache | read | miss) as u64 }
}

const fn hardware(number: u32) -> Event {
    Event { kind: libbpf_sys::PERF_TYPE_HARDWARE, config: number as u64 }
}

/// In the order of [`Counters::read`].
const HARDWARE: [Event; 4] = [
    hardware(libbpf_sys::PERF_COUNT_HW_INSTRUCTIONS),
    hardware(libbpf_sys::PERF_COUNT_HW_CPU_CYCLES),
    cache(libbpf_sys::PERF_COUNT_HW_CACHE_LL),
    cache(libbpf_sys::PERF_COUNT_HW_CACHE_DTLB),
];

/// Events that count from their opening until this is dropped. An event that the processor does not have is left out.
#[derive(Debug)]
struct Counters {
    /// By event: its descriptors, one for each CPU that is counted.
    events: [Vec<File>; 4],
}

/// Subject of the counts.
enum Scope<'a> {
    /// The calling thread.
    Thread,
    /// Processes of a control group while they run on these CPUs.
    Group(&'a File, &'a [usize]),
}

impl Counters {
    /// Errors: the first two events, without which the others say nothing, cannot be opened.
    fn open(events: &[Event; 4], scope: &Scope<'_>) -> io::Result<Counters> {
        let mut opened: [Vec<File>; 4] = Default::default();
        for (place, event) in events.iter().enumerate() {
            match open_event(*event, scope) {
                Ok(files) => opened[place] = files,
                Err(error) if place < 2 => return Err(error),
                Err(_) => {}
            }
        }
        Ok(Counters { events: opened })
    }

    /// `None` of an event that is not counted, or that had no counter of the processor for itself.
    fn read(&self) -> [Option<u64>; 4] {
        self.events.each_ref().map(|files| {
            let counts: Option<Vec<u64>> =
                files.iter().map(|file| read_scaled(file).ok()?).collect();
            counts.filter(|counts| !counts.is_empty()).map(|counts| counts.iter().sum())
        })
    }
}

fn open_event(event: Event, scope: &Scope<'_>) -> io::Result<Vec<File>> {
    let mut attributes = libbpf_sys::perf_event_attr {
        type_: event.kind,
        size: size_of::<libbpf_sys::perf_event_attr>() as u32,
        config: event.config,
        read_format: u64::from(
            libbpf_sys::PERF_FORMAT_TOTAL_TIME_ENABLED | libbpf_sys::PERF_FORMAT_TOTAL_TIME_RUNNING,
        ),
        ..Default::default()
    };
    // Of the kernel too: most of a packet's work is there.
    attributes.set_exclude_hv(1);
    let open = |pid: libc::pid_t, cpu: libc::c_int, flags: libc::c_ulong| {
        perf_event_open(&attributes, pid, cpu, flags | CLOSE_ON_EXEC).map(File::from)
    };
    match scope {
        Scope::Thread => Ok(vec![open(0, -1, 0)?]),
        Scope::Group(folder, cpus) => {
            const BY_GROUP: libc::c_ulong = 1 << 2;
            let group = folder.as_raw_fd();
            cpus.iter().map(|cpu| open(group, *cpu as libc::c_int, BY_GROUP)).collect()
        }
    }
}

/// The count as if the event had had a counter all the time; `None` if it had none while it was enabled.
fn read_scaled(mut file: &File) -> io::Result<Option<u64>> {
    let mut words = [0_u64; 3];
    file.read_exact(words.as_mut_bytes())?;
    let [count, enabled_ns, running_ns] = words;
    Ok(scaled(count, enabled_ns, running_ns))
}

/// - `enabled_ns`, `running_ns`: time for which the event was wanted, and had a counter.
fn scaled(count: u64, enabled_ns: u64, running_ns: u64) -> Option<u64> {
    match running_ns {
        0 if enabled_ns == 0 => Some(count),
        0 => None,
        _ if running_ns >= enabled_ns => Some(count),
        _ => {
            u64::try_from(u128::from(count) * u128::from(enabled_ns) / u128::from(running_ns)).ok()
        }
    }
}

fn counts(read: [Option<u64>; 4]) -> Option<HardwareCounts> {
    let [instructions, cycles, llc_miss_count, tlb_miss_count] = read;
    Some(HardwareCounts {
        instruction_count: instructions?,
        cycle_count: cycles?,
        llc_miss_count,
        tlb_miss_count,
    })
}

thread_local! {
    /// Opened at the first use in a thread; `None` where the kernel gives no counters.
    static THREAD_COUNTERS: Option<Counters> = Counters::open(&HARDWARE, &Scope::Thread).ok();
}

/// Counts of the calling thread since its first call; `None` where the kernel gives none.
pub(crate) fn thread_counts() -> Option<HardwareCounts> {
    THREAD_COUNTERS.try_with(|counters| counts(counters.as_ref()?.read())).ok().flatten()
}

/// Counts of all processes of a control group, from its opening on.
#[derive(Debug)]
pub struct GroupCounters(Counters);

impl GroupCounters {
    /// - `folder`: of the group, below a mount of version 2.
    /// - `cpus`: on which its processes may run.
    ///
    /// Errors: ENOENT or EOPNOTSUPP if the processor's counters are not given to this kernel; EACCES without CAP_PERFMON.
    pub fn open(folder: &Path, cpus: &[usize]) -> io::Result<GroupCounters> {
        Counters::open(&HARDWARE, &Scope::Group(&File::open(folder)?, cpus)).map(GroupCounters)
    }

    /// `None` if another user of the counters left none.
    pub fn read(&self) -> Option<HardwareCounts> {
        counts(self.0.read())
    }
}

/// Reason why this kernel gives no counters of the processor; `None` if it does.
pub fn why_unsupported() -> Option<String> {
    let error = Counters::open(&HARDWARE, &Scope::Thread).err()?;
    Some(match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            "kernel.perf_event_paranoid forbids them to this user".to_owned()
        }
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => {
            "the kernel has no driver for the processor's counters, as in most virtual machines"
                .to_owned()
        }
        _ => error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn software(number: u32) -> Event {
        Event { kind: libbpf_sys::PERF_TYPE_SOFTWARE, config: number as u64 }
    }

    /// Events that every kernel counts, in place of the processor's; the third does not exist.
    const RECORDED: [Event; 4] = [
        software(libbpf_sys::PERF_COUNT_SW_CONTEXT_SWITCHES),
        software(libbpf_sys::PERF_COUNT_SW_TASK_CLOCK),
        software(9_999),
        software(libbpf_sys::PERF_COUNT_SW_PAGE_FAULTS),
    ];

    fn sleep_ten_times() {
        (0..10).for_each(|_| std::thread::sleep(std::time::Duration::from_micros(100)));
    }

    #[test]
    fn events_of_a_thread_count_what_it_does_and_nothing_of_others() {
        let Ok(counters) = Counters::open(&RECORDED, &Scope::Thread) else {
            return testkit::skip("root", "perf_event_paranoid forbids it");
        };
        let before = counts(counters.read()).unwrap();
        sleep_ten_times();
        let own = counts(counters.read()).unwrap().since(&before);
        assert!(own.instruction_count >= 10 && own.cycle_count > 0, "{own:?}");
        assert_eq!(own.llc_miss_count, None, "an event that the kernel does not have");
        assert!(own.tlb_miss_count.is_some(), "{own:?}");
        let after = counts(counters.read()).unwrap();
        std::thread::spawn(|| (0..20).for_each(|_| sleep_ten_times())).join().unwrap();
        let beside = counts(counters.read()).unwrap().since(&after);
        assert!(beside.instruction_count < 100, "{beside:?}");
    }

    #[test]
    fn shared_counters_are_scaled_and_one_that_never_ran_has_no_count() {
        assert_eq!(scaled(10, 100, 100), Some(10));
        assert_eq!(scaled(10, 100, 25), Some(40));
        assert_eq!(scaled(0, 0, 0), Some(0), "it was never wanted");
        assert_eq!(scaled(0, 100, 0), None);
        assert_eq!(scaled(u64::MAX, 100, 1), None);
    }

    #[test]
    fn a_host_has_counters_or_says_why_not() {
        let counted = thread_counts();
        assert_eq!(counted.is_none(), why_unsupported().is_some(), "{counted:?}");
    }
}
