//! State and counters of a process at one moment, from `/proc`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sys::clock;

use super::ProgramError;
use super::group::GroupSample;
use crate::cpu::{Scheduled, parse_schedstat};
use crate::tune::list_to_cpus;

/// Most threads that are read; further ones are counted only.
const THREADS_MAX: usize = 1024;

/// One thread.
///
/// Source: proc_pid_stat(5), proc_pid_status(5), the kernel's Documentation/scheduler/sched-stats.rst.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThreadSample {
    pub name: String,
    /// CPUs that it may use, ascending.
    pub allowed: Vec<usize>,
    /// CPU that it ran on last.
    pub cpu: usize,
    /// As `SCHED_FIFO`.
    pub policy: i32,
    /// Of a real-time class, 1 to 99; else 0.
    pub priority: u32,
    pub nice: i32,
    pub minor_faults: u64,
    pub major_faults: u64,
    /// Context switches: it slept or yielded.
    pub voluntary_switches: u64,
    /// Context switches: another task took its CPU.
    pub forced_switches: u64,
    pub scheduled: Scheduled,
}

/// One process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramSample {
    pub pid: u32,
    /// Id of the process, which is `pid` unless that is one of its threads.
    pub leader: u32,
    /// CLOCK_MONOTONIC.
    pub at_ns: u64,
    pub name: String,
    /// Since boot, in ticks: tells a later process of the same id.
    started_ticks: u64,
    pub threads: BTreeMap<u32, ThreadSample>,
    /// Memory that cannot be paged out.
    pub locked_bytes: u64,
    /// Nice value of its session, and whether the scheduler groups by session.
    pub autogroup_nice: Option<i32>,
    /// By number, as `socket:[7]`; `None` without the right to see them.
    pub descriptors: Option<BTreeMap<u32, String>>,
    /// Most that it may have open; `None` for no limit.
    pub descriptor_limit: Option<u64>,
    /// Control groups that may have a quota, inner ones first.
    pub groups: Vec<GroupSample>,
}

impl ProgramSample {
    /// Reads a process, or the process of a thread.
    ///
    /// Errors: [`ProgramError::None`] if there is no such process, or it has ended and waits for its parent;
    /// [`ProgramError::Read`].
    pub fn take(pid: u32) -> Result<ProgramSample, ProgramError> {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let stat = read(&folder.join("stat"), pid)?;
        let fields = after_name(&stat).unwrap_or_default();
        if matches!(fields.first(), None | Some(&"Z" | &"X")) {
            return Err(ProgramError::None { pid });
        }
        let status = read(&folder.join("status"), pid)?;
        let limits = fs::read_to_string(folder.join("limits")).unwrap_or_default();
        Ok(ProgramSample {
            pid,
            leader: line_of(&status, "Tgid:").map_or(pid, |id| leading(id) as u32),
            at_ns: clock::monotonic_ns(),
            name: name_of(&stat),
            started_ticks: number(&fields, 19),
            threads: threads(&folder, pid)?,
            locked_bytes: line_of(&status, "VmLck:").map_or(0, |kib| leading(kib) * 1024),
            autogroup_nice: autogroup_nice(&folder),
            descriptors: descriptors(&folder).ok(),
            descriptor_limit: open_files(&limits),
            groups: GroupSample::of(pid),
        })
    }

    /// True for samples of one process: ids are used again.
    pub fn is_same_process(&self, other: &ProgramSample) -> bool {
        (self.pid, self.started_ticks) == (other.pid, other.started_ticks)
    }

    /// Inodes of its sockets, with a descriptor of each.
    pub fn sockets(&self) -> BTreeMap<u64, u32> {
        let all = self.descriptors.iter().flatten();
        all.filter_map(|(number, to)| Some((socket_inode(to)?, *number))).collect()
    }
}

/// Inode of `socket:[INODE]`.
pub(super) fn socket_inode(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

fn read(file: &Path, pid: u32) -> Result<String, ProgramError> {
    fs::read_to_string(file).map_err(|source| match source.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) => ProgramError::None { pid },
        _ => ProgramError::Read { file: file.to_owned(), source },
    })
}

fn threads(folder: &Path, pid: u32) -> Result<BTreeMap<u32, ThreadSample>, ProgramError> {
    let tasks = folder.join("task");
    let listed = fs::read_dir(&tasks).map_err(|_| ProgramError::None { pid })?;
    let ids = listed.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    // A thread may end while the others are read.
    let threads = ids
        .take(THREADS_MAX)
        .filter_map(|id: u32| Some((id, thread(&tasks.join(id.to_string())).ok()?)));
    Ok(threads.collect())
}

fn thread(folder: &Path) -> io::Result<ThreadSample> {
    let stat = fs::read_to_string(folder.join("stat"))?;
    let status = fs::read_to_string(folder.join("status"))?;
    // Kernels without it (CONFIG_SCHED_INFO) count no waiting.
    let scheduled = fs::read_to_string(folder.join("schedstat")).unwrap_or_default();
    let fields = after_name(&stat).unwrap_or_default();
    let count = |name| line_of(&status, name).map_or(0, leading);
    Ok(ThreadSample {
        name: name_of(&stat),
        allowed: line_of(&status, "Cpus_allowed_list:").and_then(list_to_cpus).unwrap_or_default(),
        cpu: number(&fields, 36) as usize,
        policy: number(&fields, 38) as i32,
        priority: number(&fields, 37) as u32,
        nice: fields.get(16).and_then(|nice| nice.parse().ok()).unwrap_or(0),
        minor_faults: number(&fields, 7),
        major_faults: number(&fields, 9),
        voluntary_switches: count("voluntary_ctxt_switches:"),
        forced_switches: count("nonvoluntary_ctxt_switches:"),
        scheduled: parse_schedstat(&scheduled).unwrap_or_default(),
    })
}

/// Fields of `stat` after the name, which may hold anything: field 3 of proc_pid_stat(5) is number 0.
fn after_name(stat: &str) -> Option<Vec<&str>> {
    Some(stat.rsplit_once(')')?.1.split_ascii_whitespace().collect())
}

/// Name of the program, in one line that is safe for a terminal.
fn name_of(stat: &str) -> String {
    let name = stat.split_once('(').and_then(|(_, rest)| rest.rsplit_once(')'));
    crate::text::printable(name.map_or("?", |(name, _)| name), 32)
}

fn number(fields: &[&str], at: usize) -> u64 {
    fields.get(at).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Rest of the line that begins with `name`.
fn line_of<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

fn leading(text: &str) -> u64 {
    text.split_ascii_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Nice value of the session's group, if the scheduler has groups of sessions.
///
/// Source: sched(7), the autogroup feature.
fn autogroup_nice(folder: &Path) -> Option<i32> {
    let enabled = fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled").ok()?;
    let text = fs::read_to_string(folder.join("autogroup")).ok()?;
    let (_, nice) = text.trim().rsplit_once(' ')?;
    if enabled.trim() == "1" { nice.parse().ok() } else { None }
}

fn descriptors(folder: &Path) -> io::Result<BTreeMap<u32, String>> {
    let entries = fs::read_dir(folder.join("fd"))?;
    Ok(entries
        .flatten()
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            let to = fs::read_link(entry.path()).ok()?;
            Some((number, crate::text::printable(&to.to_string_lossy(), 80)))
        })
        .collect())
}

/// The soft limit of `Max open files`.
fn open_files(limits: &str) -> Option<u64> {
    line_of(limits, "Max open files")?.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_is_read_and_an_absent_one_is_named() {
        let sample = ProgramSample::take(std::process::id()).unwrap();
        let own = &sample.threads[&sys::thread::id()];
        assert_eq!(own.allowed, sys::affinity::allowed_cpus().unwrap());
        assert!(own.scheduled.run_ns > 0, "{own:?}");
        // A thread that has just begun may have none.
        assert!(sample.threads.values().any(|thread| thread.minor_faults > 0), "{sample:?}");
        assert_eq!((own.policy, own.priority), (libc::SCHED_OTHER, 0));
        assert!(sample.descriptors.as_ref().unwrap().contains_key(&0));
        assert!(sample.descriptor_limit.is_some());
        let error = ProgramSample::take(4_000_000_000).unwrap_err().to_string();
        assert!(error.contains("no process 4000000000"), "{error}");
    }

    #[test]
    fn a_name_with_brackets_and_blanks_moves_no_field() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 0 11 0 12 0";
        assert_eq!(name_of(stat), "a) b (c");
        let fields = after_name(stat).unwrap();
        assert_eq!((fields[0], number(&fields, 7), number(&fields, 9)), ("S", 11, 12));
        assert_eq!(number(&fields, 40), 0);
        assert_eq!(name_of("nonsense"), "?");
    }

    #[test]
    fn limit_of_descriptors_is_the_soft_one() {
        let limits = "Limit Soft Hard Units\nMax open files            64    512   files     \n";
        assert_eq!(open_files(limits), Some(64));
        assert_eq!(open_files("Max open files unlimited unlimited files"), None);
        assert_eq!(open_files(""), None);
    }

    #[test]
    fn a_process_that_has_ended_and_waits_for_its_parent_is_none() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        let is_gone = || matches!(ProgramSample::take(pid), Err(ProgramError::None { .. }));
        assert!(testkit::until(testkit::LONG, is_gone));
        child.wait().unwrap();
    }
}
