//! CPU accounting: time of this process, softirq threads, other processes and the hypervisor.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use thiserror::Error;

use crate::tune::list_to_cpus;

/// Nanoseconds of one unit in `/proc/stat`: USER_HZ is 100 on every architecture that Linux
/// still supports but one (Alpha).
const TICK_NS: u64 = 10_000_000;

const PAGE_BYTES: usize = 4096;

#[derive(Debug, Error)]
pub enum CpuError {
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("unexpected content of {}: {text:?}", path.display())]
    Shape { path: PathBuf, text: String },
}

/// Reads the CPU accounting; its files are opened once, so that a reading costs few system calls.
#[derive(Debug)]
pub struct CpuClock {
    stat: Source,
    cpus: u64,
    /// By CPU.
    softirq_threads: Vec<(u32, Source)>,
    softirqs: Source,
    softnet: Option<Source>,
}

impl CpuClock {
    /// Finds the softirq threads and opens all files.
    ///
    /// In a container that hides kernel threads there are none, and their time reads as 0.
    pub fn open() -> Result<Self, CpuError> {
        let stat = Source::open("/proc/stat".into())?;
        let online = Source::open("/sys/devices/system/cpu/online".into())?;
        let text = online.read()?;
        let cpus = parse_list_len(&text).ok_or_else(|| online.misshapen(&text))?;
        let processes = fs::read_dir("/proc")
            .map_err(|source| CpuError::Read { path: "/proc".into(), source })?;
        let softirq_thread = |path: PathBuf| {
            let name = fs::read_to_string(path.join("comm")).ok()?;
            let cpu = name.trim().strip_prefix("ksoftirqd/")?.parse().ok()?;
            // A user program of that name has a command line.
            let is_kernel_s = fs::read(path.join("cmdline")).is_ok_and(|line| line.is_empty());
            is_kernel_s.then(|| Ok((cpu, Source::open(path.join("schedstat"))?)))
        };
        let softirq_threads = processes
            .filter_map(|entry| softirq_thread(entry.ok()?.path()))
            .collect::<Result<_, _>>()?;
        let softirqs = Source::open("/proc/softirqs".into())?;
        let softnet = Source::open("/proc/net/softnet_stat".into()).ok();
        Ok(CpuClock { stat, cpus, softirq_threads, softirqs, softnet })
    }

    /// Receive softirqs of each CPU since boot.
    ///
    /// Source: the kernel's Documentation/filesystems/proc.rst, `/proc/softirqs`.
    pub fn receive_softirqs(&self) -> Result<BTreeMap<u32, u64>, CpuError> {
        let text = self.softirqs.read_whole()?;
        parse_receive_softirqs(&text).ok_or_else(|| self.softirqs.misshapen(&text))
    }

    /// Interrupts of receive packet steering since boot, by which a CPU hands frames to another; `None`
    /// if they cannot be read.
    ///
    /// Source: softnet_seq_show of net/core/net-procfs.c, received_rps, the tenth column.
    pub fn steering_interrupts(&self) -> Option<u64> {
        let table = self.softnet.as_ref()?.read_whole().ok()?;
        table.lines().map(|cpu| u64::from_str_radix(cpu.split_whitespace().nth(9)?, 16).ok()).sum()
    }

    pub fn now(&self) -> Result<CpuTimes, CpuError> {
        Ok(self.now_by_cpu()?.0)
    }

    /// Returns [`Self::now`] and the time of each CPU.
    pub fn now_by_cpu(&self) -> Result<(CpuTimes, BTreeMap<u32, CpuTime>), CpuError> {
        // A line has a name and ten numbers of at most 20 digits.
        let stat = self.stat.read_up_to(PAGE_BYTES + 256 * self.cpus as usize)?;
        let all_ns = sys::clock::monotonic_ns() * self.cpus;
        let mut times = parse_stat(&stat, all_ns).ok_or_else(|| self.stat.misshapen(&stat))?;
        let mut by_cpu = parse_cpus(&stat);
        for (cpu, thread) in &self.softirq_threads {
            let text = thread.read()?;
            let scheduled = parse_schedstat(&text).ok_or_else(|| thread.misshapen(&text))?;
            times.softirq_threads_ns += scheduled.run_ns;
            if let Some(time) = by_cpu.get_mut(cpu) {
                time.softirq_thread_ns += scheduled.run_ns;
            }
        }
        Ok((times, by_cpu))
    }
}

/// Time of one CPU since boot, or between two readings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// Idle, waiting for disks or stolen by the hypervisor, in steps of 10 ms.
    pub unused_ns: u64,
    /// Stolen by the hypervisor, in steps of 10 ms.
    pub steal_ns: u64,
    /// In its softirq thread; exact.
    pub softirq_thread_ns: u64,
}

impl CpuTime {
    pub fn since(&self, earlier: &CpuTime) -> CpuTime {
        CpuTime {
            unused_ns: self.unused_ns.saturating_sub(earlier.unused_ns),
            steal_ns: self.steal_ns.saturating_sub(earlier.steal_ns),
            softirq_thread_ns: self.softirq_thread_ns.saturating_sub(earlier.softirq_thread_ns),
        }
    }
}

/// Cores that have the given CPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cores {
    /// The given CPUs and their SMT siblings.
    pub cpus: BTreeSet<u32>,
    pub count: u64,
}

impl Cores {
    /// Those of this host. A CPU without a known sibling is a core of its own.
    pub fn of(cpus: &[usize]) -> Self {
        Cores::with(cpus, |cpu| {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            list_to_cpus(fs::read_to_string(path).ok()?.trim())
        })
    }

    fn with(cpus: &[usize], siblings: impl Fn(usize) -> Option<Vec<usize>>) -> Self {
        let mut cores = Cores::default();
        for &cpu in cpus {
            if cores.cpus.insert(cpu as u32) {
                cores.count += 1;
                cores.cpus.extend(siblings(cpu).into_iter().flatten().map(|cpu| cpu as u32));
            }
        }
        cores
    }
}

fn parse_receive_softirqs(text: &str) -> Option<BTreeMap<u32, u64>> {
    let cpus = text.lines().next()?.split_whitespace();
    let counts = text.lines().find_map(|line| line.trim().strip_prefix("NET_RX:"))?;
    cpus.zip(counts.split_whitespace())
        .map(|(cpu, count)| Some((cpu.strip_prefix("CPU")?.parse().ok()?, count.parse().ok()?)))
        .collect()
}

/// CPU time of the whole machine since boot, or between two readings; nanoseconds summed over
/// all CPUs.
///
/// All but `softirq_threads_ns` have steps of 10 ms. `idle_ns` is exact on kernels that stop the tick
/// of idle CPUs (CONFIG_NO_HZ_IDLE, nearly all), and `busy_ns` is computed as the remainder. Most
/// kernels sample their own count of busy time at the timer tick: periodic work that coincides with
/// the tick is in every sample or in none. `softirq_ns` is such a count.
/// `softirq_threads_ns` is exact, as is the time that a thread waited for its CPU
/// ([`Scheduled::wait_ns`]). No finer sum over all tasks is cheap: `/proc/schedstat` is missing
/// from many kernels, and reading every task costs more the more there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// Neither idle nor stolen by the hypervisor.
    pub busy_ns: u64,
    /// Idle, including waiting for disks.
    pub idle_ns: u64,
    /// Stolen by the hypervisor while there was work to do.
    pub steal_ns: u64,
    /// In softirqs, in threads or on top of other tasks; sampled.
    pub softirq_ns: u64,
    /// In softirq threads (`ksoftirqd/N`); part of `busy_ns`.
    pub softirq_threads_ns: u64,
}

impl CpuTimes {
    pub fn since(&self, earlier: &CpuTimes) -> CpuTimes {
        CpuTimes {
            busy_ns: self.busy_ns.saturating_sub(earlier.busy_ns),
            idle_ns: self.idle_ns.saturating_sub(earlier.idle_ns),
            steal_ns: self.steal_ns.saturating_sub(earlier.steal_ns),
            softirq_ns: self.softirq_ns.saturating_sub(earlier.softirq_ns),
            softirq_threads_ns: self.softirq_threads_ns.saturating_sub(earlier.softirq_threads_ns),
        }
    }
}

/// Scheduler statistics of one thread since its start; exact nanoseconds.
///
/// Source: the kernel's Documentation/scheduler/sched-stats.rst, `/proc/PID/schedstat`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scheduled {
    pub run_ns: u64,
    pub wait_ns: u64,
}

impl Scheduled {
    pub fn now() -> Result<Self, CpuError> {
        let source = Source::open("/proc/thread-self/schedstat".into())?;
        let text = source.read()?;
        parse_schedstat(&text).ok_or_else(|| source.misshapen(&text))
    }

    pub fn since(&self, earlier: &Scheduled) -> Scheduled {
        Scheduled {
            run_ns: self.run_ns.saturating_sub(earlier.run_ns),
            wait_ns: self.wait_ns.saturating_sub(earlier.wait_ns),
        }
    }
}

/// CPU usage of a thread since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    /// Running and waiting for a CPU; exact.
    pub scheduled: Scheduled,
    /// Part of the running time in the kernel, in steps of 10 ms.
    pub system_ns: u64,
    /// Voluntary and involuntary context switches.
    pub context_switch_count: u64,
}

impl ThreadTimes {
    pub fn since(&self, earlier: &ThreadTimes) -> ThreadTimes {
        let scheduled = self.scheduled.since(&earlier.scheduled);
        let switches = self.context_switch_count.saturating_sub(earlier.context_switch_count);
        ThreadTimes {
            scheduled,
            system_ns: self.system_ns.saturating_sub(earlier.system_ns).min(scheduled.run_ns),
            context_switch_count: switches,
        }
    }
}

/// Reads the CPU usage of a thread of any process; its files are opened once, so that a reading costs
/// few system calls.
///
/// Source: the kernel's Documentation/filesystems/proc.rst, `/proc/PID/task/TID`.
#[derive(Debug)]
pub struct ThreadClock {
    schedstat: Source,
    stat: Source,
    status: Source,
}

impl ThreadClock {
    /// Opens the files of a thread, by process and thread id.
    pub fn open(pid: u32, tid: u32) -> Result<Self, CpuError> {
        let folder = PathBuf::from(format!("/proc/{pid}/task/{tid}"));
        Ok(ThreadClock {
            schedstat: Source::open(folder.join("schedstat"))?,
            stat: Source::open(folder.join("stat"))?,
            status: Source::open(folder.join("status"))?,
        })
    }

    /// Reads the current usage. Errors: the thread has ended.
    pub fn now(&self) -> Result<ThreadTimes, CpuError> {
        let text = self.schedstat.read()?;
        let scheduled = parse_schedstat(&text).ok_or_else(|| self.schedstat.misshapen(&text))?;
        let text = self.stat.read()?;
        let system_ns = parse_system_ns(&text).ok_or_else(|| self.stat.misshapen(&text))?;
        let text = self.status.read()?;
        let switches = parse_switches(&text).ok_or_else(|| self.status.misshapen(&text))?;
        Ok(ThreadTimes { scheduled, system_ns, context_switch_count: switches })
    }
}

/// Time in the kernel: field 15 of proc_pid_stat(5), after a name that may hold anything.
fn parse_system_ns(text: &str) -> Option<u64> {
    let (_, after_name) = text.rsplit_once(')')?;
    let ticks: u64 = after_name.split_ascii_whitespace().nth(12)?.parse().ok()?;
    ticks.checked_mul(TICK_NS)
}

/// Both kinds of switches, from proc_pid_status(5).
fn parse_switches(text: &str) -> Option<u64> {
    let count = |name: &str| -> Option<u64> {
        text.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
    };
    count("voluntary_ctxt_switches:")?.checked_add(count("nonvoluntary_ctxt_switches:")?)
}

#[derive(Debug)]
struct Source {
    path: PathBuf,
    file: File,
}

impl Source {
    fn open(path: PathBuf) -> Result<Self, CpuError> {
        match File::open(&path) {
            Ok(file) => Ok(Source { path, file }),
            Err(source) => Err(CpuError::Read { path, source }),
        }
    }

    fn read(&self) -> Result<String, CpuError> {
        self.read_up_to(PAGE_BYTES)
    }

    /// Reads at most so many bytes: after the lines of the CPUs, `/proc/stat` continues with a number for
    /// every interrupt.
    fn read_up_to(&self, bytes_max: usize) -> Result<String, CpuError> {
        let mut page = vec![0; bytes_max];
        let len = self
            .file
            .read_at(&mut page, 0)
            .map_err(|source| CpuError::Read { path: self.path.clone(), source })?;
        Ok(String::from_utf8_lossy(&page[..len]).into_owned())
    }

    /// Reads a file that the kernel hands out in pieces.
    fn read_whole(&self) -> Result<String, CpuError> {
        let (mut whole, mut piece) = (Vec::new(), [0; PAGE_BYTES]);
        loop {
            match self
                .file
                .read_at(&mut piece, whole.len() as u64)
                .map_err(|source| CpuError::Read { path: self.path.clone(), source })?
            {
                0 => return Ok(String::from_utf8_lossy(&whole).into_owned()),
                len => whole.extend_from_slice(&piece[..len]),
            }
        }
    }

    fn misshapen(&self, text: &str) -> CpuError {
        let text = text.lines().next().unwrap_or_default().to_owned();
        CpuError::Shape { path: self.path.clone(), text }
    }
}

/// The sum over all CPUs in the first line.
///
/// - `all_ns`: time since boot of all CPUs together.
///
/// Source: proc_stat(5): user nice system idle iowait irq softirq steal guest guest_nice.
pub(crate) fn parse_stat(text: &str, all_ns: u64) -> Option<CpuTimes> {
    let mut words = text.lines().next()?.split_whitespace();
    if words.next()? != "cpu" {
        return None;
    }
    let mut ns = || words.next()?.parse::<u64>().ok()?.checked_mul(TICK_NS);
    let (_user, _nice, _system) = (ns()?, ns()?, ns()?);
    let idle_ns = ns()? + ns()?;
    let (_irq, softirq_ns) = (ns()?, ns()?);
    let steal_ns = ns()?;
    Some(CpuTimes {
        busy_ns: all_ns.saturating_sub(idle_ns + steal_ns),
        idle_ns,
        steal_ns,
        softirq_ns,
        softirq_threads_ns: 0,
    })
}

/// Lines `cpuN` that are there whole, as [`parse_stat`] reads the first.
fn parse_cpus(text: &str) -> BTreeMap<u32, CpuTime> {
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    // The first line is that of all CPUs.
    whole
        .lines()
        .skip(1)
        .map_while(|line| {
            let mut words = line.strip_prefix("cpu")?.split_whitespace();
            let cpu = words.next()?.parse().ok()?;
            let ticks = words.map(str::parse).collect::<Result<Vec<u64>, _>>().ok()?;
            let ns = |at: usize| u64::checked_mul(*ticks.get(at)?, TICK_NS);
            let (unused_ns, steal_ns) = (ns(3)? + ns(4)? + ns(7)?, ns(7)?);
            Some((cpu, CpuTime { unused_ns, steal_ns, softirq_thread_ns: 0 }))
        })
        .collect()
}

/// How many numbers a list of the kernel's names, such as `0-3,6`.
fn parse_list_len(text: &str) -> Option<u64> {
    text.trim()
        .split(',')
        .map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            (last.parse::<u64>().ok()? + 1).checked_sub(first.parse().ok()?)
        })
        .sum()
}

pub(crate) fn parse_schedstat(text: &str) -> Option<Scheduled> {
    let mut words = text.split_whitespace().map(str::parse);
    Some(Scheduled { run_ns: words.next()?.ok()?, wait_ns: words.next()?.ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_thread_s_figures_grow_while_it_works() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .expect("there is a shell");
        let clock = ThreadClock::open(child.id(), child.id()).expect("it runs");
        let before = clock.now().expect("it runs");
        let worked = (0..2000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            clock.now().expect("it runs").since(&before).scheduled.run_ns > 20_000_000
        });
        child.kill().expect("it runs");
        child.wait().expect("it ran");
        assert!(worked);
        assert!(clock.now().is_err(), "a thread that is gone has no figures");
    }

    #[test]
    fn thread_files_are_read_whatever_its_name() {
        let stat = "7 (CPU 0/) S 1) R 1 7 7 0 -1 4194304 9 0 0 0 250 31 0 0 20 0 1 0 5 0 0";
        assert_eq!(parse_system_ns(stat), Some(310_000_000));
        assert_eq!(parse_system_ns("7 (x) R 1"), None);
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t2\n";
        assert_eq!(parse_switches(status), Some(7));
        assert_eq!(parse_switches("voluntary_ctxt_switches:\t5\n"), None);
    }

    #[test]
    fn the_line_of_all_cpus_is_read_in_its_order() {
        let tick = TICK_NS;
        let text = "cpu  1 2 3 40 5 6 7 8 9 10\ncpu0 9 9 9 9 9 9 9 9 9 9\n";
        let times = parse_stat(text, 100 * tick).unwrap();
        assert_eq!((times.busy_ns, times.idle_ns), (47 * tick, 45 * tick));
        assert_eq!((times.steal_ns, times.softirq_ns), (8 * tick, 7 * tick));
        assert_eq!(parse_stat("cpu 1 2 3\n", tick), None);
        assert_eq!(parse_stat("intr 1 2 3 4 5 6 7 8\n", tick), None);
        assert_eq!(["0", "0-3", "0-1,4,6-7\n"].map(parse_list_len), [Some(1), Some(4), Some(5)]);
        assert_eq!(["", "3-1", "a"].map(parse_list_len), [None; 3]);
        assert_eq!(parse_schedstat("5 6 7\n"), Some(Scheduled { run_ns: 5, wait_ns: 6 }));
        assert_eq!(parse_schedstat("5"), None);
    }

    #[test]
    fn each_cpu_has_its_line_and_one_cut_short_has_none() {
        let text = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 3 40 5 6 7 8 9 10\ncpu3 1 1 1 1 0 1 1 0 0 0\n\
                    cpu4 1 1 1 1";
        let time = |unused: u64, steal: u64| CpuTime {
            unused_ns: unused * TICK_NS,
            steal_ns: steal * TICK_NS,
            softirq_thread_ns: 0,
        };
        assert_eq!(parse_cpus(text), BTreeMap::from([(0, time(53, 8)), (3, time(1, 0))]));
        let found = parse_cpus("cpu  9 9 9 9 9 9 9 9\ncpu0 1 2 3 40 5 6 7 8\nintr 5 4 3\n");
        assert_eq!(found, BTreeMap::from([(0, time(53, 8))]));
        assert_eq!(parse_cpus("cpu  1 2"), BTreeMap::new());
    }

    #[test]
    fn cores_have_the_siblings_of_their_cpus() {
        let cores = Cores::with(&[1, 33, 2, 99], |cpu: usize| {
            (cpu < 64).then(|| vec![cpu % 32, cpu % 32 + 32])
        });
        assert_eq!(cores, Cores { cpus: [1, 2, 33, 34, 99].into(), count: 3 });
        assert!(Cores::of(&[0]).cpus.contains(&0));
    }

    #[test]
    fn receive_softirqs_are_read_by_cpu() {
        let text = "         CPU0   CPU2\n  NET_TX:   1   2\n  NET_RX:   30   4\n   BLOCK: 0 9\n";
        assert_eq!(parse_receive_softirqs(text), Some(BTreeMap::from([(0, 30), (2, 4)])));
        assert_eq!(parse_receive_softirqs("  CPU0\n NET_RX: x\n"), None);
        assert_eq!(parse_receive_softirqs("  CPU0\n"), None);
        let clock = CpuClock::open().unwrap();
        assert!(clock.receive_softirqs().is_ok_and(|found| !found.is_empty()));
        assert!(clock.steering_interrupts().is_some());
    }

    #[test]
    fn work_shows_up_as_busy_and_as_run() {
        let clock = CpuClock::open().unwrap();
        let (times, scheduled) = (clock.now().unwrap(), Scheduled::now().unwrap());
        // Four units of the coarse clock.
        while Scheduled::now().unwrap().since(&scheduled).run_ns < 4 * TICK_NS {
            std::hint::spin_loop();
        }
        let used = clock.now().unwrap().since(&times);
        assert!(used.busy_ns > 0, "{used:?}");
    }
}
