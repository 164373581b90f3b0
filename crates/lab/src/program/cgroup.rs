//! Control groups of version 2: one for each foreign program.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sys::supervisor::SupervisorGroup;

use super::processes;

const PREFIX: &str = "wirepath-";
/// Limit for the removal of a group whose processes were killed.
const REMOVE_MAX: Duration = Duration::from_secs(2);

/// Place in which groups are created, or the reason that there is none.
#[derive(Debug, Clone)]
pub struct CgroupParent(Result<PathBuf, String>);

impl CgroupParent {
    /// Control group of this process, in version 2 of the hierarchy, wherever it is mounted.
    ///
    /// Groups below it have the limits and the scheduling weight that a program started from the same
    /// shell has, and a service manager that ends this process's group ends them too.
    pub fn find() -> Self {
        CgroupParent(find())
    }

    /// A group that exists.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        CgroupParent(Ok(folder.into()))
    }

    /// No control groups: programs are found through /proc, and counted by rusage.
    pub fn none(why: impl Into<String>) -> Self {
        CgroupParent(Err(why.into()))
    }

    /// A group in it that a supervisor is to create, and its folder. Errors: the reason, as text.
    pub(super) fn reserve(&self) -> Result<(PathBuf, SupervisorGroup), String> {
        let parent = self.0.as_ref().map_err(Clone::clone)?;
        static SWEPT: Once = Once::new();
        SWEPT.call_once(|| sweep(parent));
        static MADE: AtomicU32 = AtomicU32::new(0);
        let own = GroupOwner::this().map_err(|error| format!("cannot read /proc/self: {error}"))?;
        let name = format!("{PREFIX}{own}-{}", MADE.fetch_add(1, Ordering::Relaxed));
        let failed = |error: io::Error| format!("cannot open {}: {error}", parent.display());
        let group = SupervisorGroup {
            parent: File::open(parent).map_err(failed)?.into(),
            name: CString::new(name.as_str()).map_err(|error| failed(error.into()))?,
        };
        Ok((parent.join(name), group))
    }
}

/// Control group of a program. Dropping it kills what is left in it, and removes it.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    id: u64,
}

impl Cgroup {
    /// A group that exists.
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let id = fs::metadata(&path)?.ino();
        Ok(Cgroup { path, id })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Identifier as BPF programs see it (`bpf_get_current_cgroup_id`): the inode of its folder.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Processes in it and in groups below it.
    pub fn processes(&self) -> Vec<u32> {
        let mut pids = Vec::new();
        add_processes(&self.path, &mut pids);
        pids
    }

    /// User and system time in nanoseconds, of all processes that are or were in it.
    pub(super) fn cpu_ns(&self) -> io::Result<(u64, u64)> {
        let text = fs::read_to_string(self.path.join("cpu.stat"))?;
        parse_cpu_stat(&text).ok_or_else(|| io::Error::other("cpu.stat without user_usec"))
    }

    /// Largest memory use of the whole group; `None` without the memory controller.
    pub(super) fn memory_bytes_max(&self) -> Option<u64> {
        fs::read_to_string(self.path.join("memory.peak")).ok()?.trim().parse().ok()
    }

    pub(super) fn kill(&self) {
        if fs::write(self.path.join("cgroup.kill"), "1").is_err() {
            // Before Linux 5.14, or it is gone.
            self.processes().into_iter().for_each(processes::kill);
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The supervisor removes it; this is for one that was killed, or was never started.
        remove(&self.path);
    }
}

fn remove(group: &Path) {
    let deadline = Instant::now() + REMOVE_MAX;
    while group.exists() {
        // Fails on Linux before 5.14, and for processes that the next round finds.
        let _ = fs::write(group.join("cgroup.kill"), "1");
        remove_folders(group);
        if Instant::now() > deadline {
            return;
        }
        if group.exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn remove_folders(group: &Path) {
    subgroups(group).for_each(|inner| remove_folders(&inner));
    // The caller checks.
    let _ = fs::remove_dir(group);
}

fn subgroups(group: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|e| e.path())
}

fn add_processes(group: &Path, pids: &mut Vec<u32>) {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    pids.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()).filter(|pid| *pid > 0));
    subgroups(group).for_each(|inner| add_processes(&inner, pids));
}

fn parse_cpu_stat(text: &str) -> Option<(u64, u64)> {
    Some((time_ns(text, "user_usec")?, time_ns(text, "system_usec")?))
}

fn time_ns(cpu_stat: &str, name: &str) -> Option<u64> {
    let line = cpu_stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line?.trim().parse::<u64>().ok()?.checked_mul(1000)
}

fn read(file: &str) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| format!("cannot read {file}: {error}"))
}

fn find() -> Result<PathBuf, String> {
    let mounts = read("/proc/self/mountinfo")?;
    let own = read("/proc/self/cgroup")?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::"));
    let own = own.ok_or("this process is in no control group of version 2")?;
    let folders = folders(&mounts, own);
    if folders.is_empty() {
        return Err("control groups of version 2 are not mounted".into());
    }
    let found = folders.into_iter().find(|folder| folder.join("cgroup.procs").exists());
    let found =
        found.ok_or_else(|| format!("control group {own} is outside of the mounted hierarchy"))?;
    may_divide(&found)?;
    Ok(found)
}

/// Errors: this process may not move a program from a group into one below it. Then no group is created, which would take
/// a second start of each program.
///
/// Source: the kernel's admin-guide/cgroup-v2.rst, delegation: write access to `cgroup.procs` of the common ancestor.
fn may_divide(group: &Path) -> Result<(), String> {
    let file = group.join("cgroup.procs");
    match File::options().write(true).open(&file) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("cannot write {}: {error}", file.display())),
    }
}

/// Folders of a control group, one for each mount of version 2 that shows it.
///
/// Source: proc(5), /proc/PID/mountinfo: `36 35 98:0 ROOT MOUNT OPTIONS … - TYPE SOURCE OPTIONS`.
fn folders(mountinfo: &str, group: &str) -> Vec<PathBuf> {
    mountinfo.lines().filter_map(|line| folder(line, group)).collect()
}

fn folder(line: &str, group: &str) -> Option<PathBuf> {
    let (mount, kind) = line.split_once(" - ")?;
    if kind.split(' ').next() != Some("cgroup2") {
        return None;
    }
    let mut fields = mount.split(' ').skip(3);
    let (root, point) = (fields.next()?, fields.next()?);
    let inner = Path::new(group).strip_prefix(root).ok()?;
    Some(Path::new(point).join(inner))
}

/// Identity of a process: its namespace of process ids, its id and its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct GroupOwner {
    pid_namespace: u64,
    pid: u32,
    /// Ticks since boot.
    start: u64,
}

impl GroupOwner {
    fn this() -> io::Result<Self> {
        let pid_namespace = fs::metadata("/proc/self/ns/pid")?.ino();
        let pid = std::process::id();
        let start = processes::start_ticks(pid).ok_or(io::ErrorKind::NotFound)?;
        Ok(GroupOwner { pid_namespace, pid, start })
    }

    /// Parses the name of a group, without its prefix.
    fn parse(name: &str) -> Option<Self> {
        let parts: Result<Vec<u64>, _> = name.split('-').map(str::parse).collect();
        // The last one counts the groups of an owner.
        let [pid_namespace, pid, start, _] = parts.ok()?[..] else { return None };
        Some(GroupOwner { pid_namespace, pid: pid.try_into().ok()?, start })
    }
}

impl std::fmt::Display for GroupOwner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}-{}", self.pid_namespace, self.pid, self.start)
    }
}

/// Removes groups whose owner was killed together with its supervisor.
fn sweep(parent: &Path) {
    let Ok(own) = GroupOwner::this() else { return };
    for group in subgroups(parent) {
        let name = group.file_name().and_then(|name| name.to_str());
        let owner = name.and_then(|name| name.strip_prefix(PREFIX)).and_then(GroupOwner::parse);
        // Ids of another namespace mean nothing here.
        let is_left = owner.is_some_and(|owner| {
            owner.pid_namespace == own.pid_namespace
                && processes::start_ticks(owner.pid) != Some(owner.start)
        });
        if is_left {
            remove(&group);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn the_folder_is_found_beside_version_1_and_in_a_container() {
        let beside = "24 22 0:21 / /sys rw - sysfs sysfs rw\n\
            33 30 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
            41 30 0:36 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        assert_eq!(folders(beside, "/"), [Path::new("/sys/fs/cgroup/unified")]);
        assert_eq!(folders(beside, "/a/b"), [Path::new("/sys/fs/cgroup/unified/a/b")]);
        let container = "41 30 0:36 /pod /sys/fs/cgroup ro shared:4 - cgroup2 cgroup rw\n";
        assert_eq!(folders(container, "/pod/x"), [Path::new("/sys/fs/cgroup/x")]);
        assert!(folders(container, "/other").is_empty());
        assert!(folders("", "/").is_empty());
    }

    #[test]
    fn a_group_that_may_not_be_divided_is_refused_before_a_program_is_started() {
        let folder = tempfile::tempdir().unwrap();
        let why = may_divide(folder.path()).unwrap_err();
        assert!(why.contains("cannot write") && why.contains("cgroup.procs"), "{why}");
        fs::write(folder.path().join("cgroup.procs"), "").unwrap();
        assert_eq!(may_divide(folder.path()), Ok(()));
    }

    #[test]
    fn names_of_groups_name_their_owner() {
        let own = GroupOwner::this().unwrap();
        assert_eq!(GroupOwner::parse(&format!("{own}-7")), Some(own));
        for name in ["", "1-2-3", "1-2-3-4-5", "a-2-3-4", "1-99999999999-3-4", "test-1-2-3"] {
            assert_eq!(GroupOwner::parse(name), None, "{name}");
        }
    }

    #[test]
    fn groups_of_dead_owners_are_removed_and_those_of_others_are_kept() {
        let parent = match find() {
            Ok(parent) => parent,
            Err(why) => return testkit::skip("cgroup", why),
        };
        let mut ended = Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let own = GroupOwner::this().unwrap();
        let dead = GroupOwner { pid: ended.id(), ..own };
        let reused = GroupOwner { start: own.start + 1, ..own };
        let elsewhere = GroupOwner { pid_namespace: 1, ..dead };
        let names = [dead, reused, own, elsewhere].map(|owner| format!("{PREFIX}{owner}-99999"));
        let groups = names.map(|name| parent.join(name));
        for group in &groups {
            if let Err(error) = fs::create_dir(group) {
                return testkit::skip("cgroup", error);
            }
        }
        fs::create_dir(groups[0].join("inner")).unwrap();
        let mut left = Command::new("sleep").arg("600").spawn().unwrap();
        fs::write(groups[0].join("inner/cgroup.procs"), left.id().to_string()).unwrap();
        sweep(&parent);
        assert_eq!(groups.each_ref().map(|group| group.exists()), [false, false, true, true]);
        groups[2..].iter().for_each(|group| fs::remove_dir(group).unwrap());
        assert_eq!(left.wait().unwrap().signal(), Some(9));
    }

    #[test]
    fn cpu_time_is_read_with_and_without_the_controller() {
        let text = "usage_usec 30\nuser_usec 20\nsystem_usec 10\nnice_usec 0\n";
        assert_eq!(parse_cpu_stat(text), Some((20_000, 10_000)));
        assert_eq!(parse_cpu_stat("usage_usec 30\n"), None);
        assert_eq!(parse_cpu_stat("user_usec x\nsystem_usec 1\n"), None);
    }
}
