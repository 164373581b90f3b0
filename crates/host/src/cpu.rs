//! Who used the machine's CPUs between two moments: us, softirq threads, others, the
//! hypervisor.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use thiserror::Error;

/// Nanoseconds of one unit in `/proc/stat`: USER_HZ is 100 on every architecture that Linux
/// still supports but one (Alpha).
const TICK_NS: u64 = 10_000_000;

/// Why the CPU accounting could not be read.
#[derive(Debug, Error)]
pub enum CpuError {
    /// A file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// File below `/proc`.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// A file has another shape than expected.
    #[error("cannot understand {}: {text:?}", path.display())]
    Shape {
        /// File below `/proc`.
        path: PathBuf,
        /// What was read.
        text: String,
    },
}

/// Reads the CPU accounting; opened once, so that a reading costs a few system calls.
#[derive(Debug)]
pub struct CpuClock {
    stat: Source,
    cpus: u64,
    softirq_threads: Vec<Source>,
}

impl CpuClock {
    /// Finds the softirq threads and opens what is read later.
    ///
    /// In a container that hides kernel threads there are none, and their time reads as 0.
    pub fn open() -> Result<Self, CpuError> {
        let stat = Source::open("/proc/stat".into())?;
        let online = Source::open("/sys/devices/system/cpu/online".into())?;
        let text = online.read()?;
        let cpus = parse_list_len(&text).ok_or_else(|| online.misshapen(&text))?;
        let processes = fs::read_dir("/proc")
            .map_err(|source| CpuError::Read { path: "/proc".into(), source })?;
        let is_softirq_thread = |path: &PathBuf| {
            let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
            // A user's program of that name has a command line.
            name.starts_with("ksoftirqd/")
                && fs::read(path.join("cmdline")).is_ok_and(|line| line.is_empty())
        };
        let softirq_threads = processes
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.join("comm").exists() && is_softirq_thread(path))
            .map(|path| Source::open(path.join("schedstat")))
            .collect::<Result<_, _>>()?;
        Ok(CpuClock { stat, cpus, softirq_threads })
    }

    /// CPU time since boot, now.
    pub fn now(&self) -> Result<CpuTimes, CpuError> {
        self.times(&self.stat.read()?)
    }

    /// [`Self::now`], and nanoseconds that each CPU did nothing for us since boot, by its number:
    /// idle, waiting for disks, or taken by the hypervisor; in steps of 10 ms.
    ///
    /// Of some sixty CPUs at most, which fill the page that is read.
    pub fn now_by_cpu(&self) -> Result<(CpuTimes, BTreeMap<u32, u64>), CpuError> {
        let stat = self.stat.read()?;
        Ok((self.times(&stat)?, parse_unused(&stat)))
    }

    fn times(&self, stat: &str) -> Result<CpuTimes, CpuError> {
        let all_ns = sys::clock::monotonic_ns() * self.cpus;
        let mut times = parse_stat(stat, all_ns).ok_or_else(|| self.stat.misshapen(stat))?;
        for thread in &self.softirq_threads {
            let text = thread.read()?;
            let scheduled = parse_schedstat(&text).ok_or_else(|| thread.misshapen(&text))?;
            times.softirq_threads_ns += scheduled.run_ns;
        }
        Ok(times)
    }
}

/// CPU time of the whole machine since boot, or between two readings; nanoseconds summed over
/// all CPUs.
///
/// All but `softirq_threads_ns` come in steps of 10 ms. `idle_ns` is exact on kernels that stop
/// the tick of idle CPUs (CONFIG_NO_HZ_IDLE, nearly all), and so `busy_ns` is what it leaves. The
/// kernel's own count of busy time is sampled at the timer tick on most: work on a schedule, which
/// is due with the tick, is seen by every sample or by none. `softirq_ns` is such a count.
/// `softirq_threads_ns` is exact, as is the time that a thread waited for its CPU
/// ([`Scheduled::wait_ns`]). No finer sum over all tasks is cheap: `/proc/schedstat` is missing
/// from many kernels, and reading every task costs more the more there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// Doing anything: neither idle nor taken by the hypervisor.
    pub busy_ns: u64,
    /// Doing nothing, waiting for disks included.
    pub idle_ns: u64,
    /// Taken by the hypervisor while there was work to do.
    pub steal_ns: u64,
    /// Seen in softirqs, within threads or on top of other tasks, by samples.
    pub softirq_ns: u64,
    /// Of the softirq threads (`ksoftirqd/N`); part of `busy_ns`.
    pub softirq_threads_ns: u64,
}

impl CpuTimes {
    /// What was used from `earlier` to `self`.
    pub fn since(&self, earlier: &CpuTimes) -> CpuTimes {
        CpuTimes {
            busy_ns: self.busy_ns.saturating_sub(earlier.busy_ns),
            idle_ns: self.idle_ns.saturating_sub(earlier.idle_ns),
            steal_ns: self.steal_ns.saturating_sub(earlier.steal_ns),
            softirq_ns: self.softirq_ns.saturating_sub(earlier.softirq_ns),
            softirq_threads_ns: self.softirq_threads_ns.saturating_sub(earlier.softirq_threads_ns),
        }
    }

    /// CPU time taken by others: all that was busy but neither ours nor the softirq threads'.
    ///
    /// - `own_ns`: what our threads and children used in the same time.
    /// - 0 when the steps of `busy_ns` hide it.
    pub fn others_ns(&self, own_ns: u64) -> u64 {
        self.busy_ns.saturating_sub(own_ns).saturating_sub(self.softirq_threads_ns)
    }
}

/// What the scheduler says of one thread since it began; exact nanoseconds.
///
/// Source: the kernel's Documentation/scheduler/sched-stats.rst, `/proc/PID/schedstat`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scheduled {
    /// Time on a CPU.
    pub run_ns: u64,
    /// Time runnable but not running, because others had the CPU.
    pub wait_ns: u64,
}

impl Scheduled {
    /// Of the calling thread.
    pub fn now() -> Result<Self, CpuError> {
        let source = Source::open("/proc/thread-self/schedstat".into())?;
        let text = source.read()?;
        parse_schedstat(&text).ok_or_else(|| source.misshapen(&text))
    }

    /// What was added from `earlier` to `self`.
    pub fn since(&self, earlier: &Scheduled) -> Scheduled {
        Scheduled {
            run_ns: self.run_ns.saturating_sub(earlier.run_ns),
            wait_ns: self.wait_ns.saturating_sub(earlier.wait_ns),
        }
    }
}

/// What a thread has used since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    /// Running and waiting for a CPU; exact.
    pub scheduled: Scheduled,
    /// Of the running time: in the kernel, nanoseconds, in steps of 10 ms.
    pub system_ns: u64,
    /// Voluntary and involuntary context switches.
    pub context_switch_count: u64,
}

impl ThreadTimes {
    /// What was added from `earlier` to `self`.
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

/// Reads what a thread of any process has used; opened once, so that a reading costs a few
/// system calls.
///
/// Source: the kernel's Documentation/filesystems/proc.rst, `/proc/PID/task/TID`.
#[derive(Debug)]
pub struct ThreadClock {
    schedstat: Source,
    stat: Source,
    status: Source,
}

impl ThreadClock {
    /// Of a thread, by the kernel's numbers of its process and itself.
    pub fn open(pid: u32, tid: u32) -> Result<Self, CpuError> {
        let folder = PathBuf::from(format!("/proc/{pid}/task/{tid}"));
        Ok(ThreadClock {
            schedstat: Source::open(folder.join("schedstat"))?,
            stat: Source::open(folder.join("stat"))?,
            status: Source::open(folder.join("status"))?,
        })
    }

    /// Up to now. An error once the thread has ended.
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

/// A file of the kernel that is read again and again.
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

    /// The first page at most: all that is wanted stands there, and `/proc/stat` goes on with
    /// a number for every interrupt.
    fn read(&self) -> Result<String, CpuError> {
        let mut page = [0; 4096];
        let len = self
            .file
            .read_at(&mut page, 0)
            .map_err(|source| CpuError::Read { path: self.path.clone(), source })?;
        Ok(String::from_utf8_lossy(&page[..len]).into_owned())
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
fn parse_stat(text: &str, all_ns: u64) -> Option<CpuTimes> {
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
fn parse_unused(text: &str) -> BTreeMap<u32, u64> {
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let line = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split_whitespace();
        let cpu = words.next()?.parse().ok()?;
        let ticks = words.map(str::parse).collect::<Result<Vec<u64>, _>>().ok()?;
        let unused = *ticks.get(3)? + *ticks.get(4)? + *ticks.get(7)?;
        Some((cpu, unused.checked_mul(TICK_NS)?))
    };
    // The first line is that of all CPUs.
    whole.lines().skip(1).map_while(line).collect()
}

/// How many numbers a list of the kernel's names, such as `0-3,6`.
fn parse_list_len(text: &str) -> Option<u64> {
    let range = |range: &str| -> Option<u64> {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        (last.parse::<u64>().ok()? + 1).checked_sub(first.parse().ok()?)
    };
    text.trim().split(',').map(range).sum()
}

fn parse_schedstat(text: &str) -> Option<Scheduled> {
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
        let found = parse_unused(text);
        assert_eq!(found, BTreeMap::from([(0, 53 * TICK_NS), (3, TICK_NS)]));
        let found = parse_unused("cpu  9 9 9 9 9 9 9 9\ncpu0 1 2 3 40 5 6 7 8\nintr 5 4 3\n");
        assert_eq!(found, BTreeMap::from([(0, 53 * TICK_NS)]));
        assert_eq!(parse_unused("cpu  1 2"), BTreeMap::new());
    }

    #[test]
    fn others_are_what_neither_we_nor_softirq_threads_used() {
        let times = CpuTimes { busy_ns: 100, softirq_threads_ns: 10, ..CpuTimes::default() };
        assert_eq!(times.others_ns(60), 30);
        assert_eq!(times.others_ns(95), 0);
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
