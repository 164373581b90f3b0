//! Control groups that may limit the CPU time of a process.

use std::fs;
use std::path::{Path, PathBuf};

/// Quota and throttling of one control group, of either version.
///
/// Source: Linux, Documentation/admin-guide/cgroup-v2.rst and Documentation/scheduler/sched-bwc.rst.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSample {
    pub folder: PathBuf,
    /// File of the quota, and its content; `None` if the group has none.
    pub quota: Option<(&'static str, String)>,
    /// Periods in which its threads were stopped.
    pub throttled_count: u64,
    pub throttled_ns: u64,
}

impl GroupSample {
    /// Groups of a process or thread, inner ones first.
    pub(super) fn of(pid: u32) -> Vec<GroupSample> {
        let files = stat_files(pid);
        files.iter().filter_map(|file| GroupSample::read(file.parent()?)).collect()
    }

    fn read(folder: &Path) -> Option<GroupSample> {
        let stat = fs::read_to_string(folder.join("cpu.stat")).ok()?;
        let quota = ["cpu.max", "cpu.cfs_quota_us"].into_iter().find_map(|name| {
            let text = fs::read_to_string(folder.join(name)).ok()?.trim().to_owned();
            (!text.starts_with("max") && text != "-1").then_some((name, text))
        });
        let count = count_of(&stat, "nr_throttled");
        let throttled_ns = throttled_ns(&stat).unwrap_or(0);
        Some(GroupSample { folder: folder.into(), quota, throttled_count: count, throttled_ns })
    }
}

/// Files `cpu.stat` of the control groups of a process or thread, inner ones first.
pub(crate) fn stat_files(pid: u32) -> Vec<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let files = files_of(&groups, &mounts);
    files.into_iter().filter(|file| file.exists()).collect()
}

/// Folder of a process's control group of version 2; `None` for the root, which counts the whole machine.
pub fn own_group(pid: u32) -> Option<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let below = path.trim_start_matches('/');
    if below.is_empty() {
        return None;
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let folder = mounts.lines().find_map(|line| mount_of(line, true))?.join(below);
    folder.join("cpu.stat").exists().then_some(folder)
}

/// `cpu.stat` of each group of a process that may have a quota, in both versions of the hierarchy.
///
/// Source: cgroups(7), `/proc/PID/cgroup` and `mountinfo`.
fn files_of(groups: &str, mounts: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let is_unified = controllers.is_empty();
        if !is_unified && !controllers.split(',').any(|one| one == "cpu") {
            continue;
        }
        let Some(mount) = mounts.lines().find_map(|line| mount_of(line, is_unified)) else {
            continue;
        };
        let folder = mount.join(path.trim_start_matches('/'));
        let up_to_mount = folder.ancestors().take_while(|above| above.starts_with(&mount));
        files.extend(up_to_mount.map(|above| above.join("cpu.stat")));
    }
    files
}

/// Mount point of a line of `mountinfo`, if it is the hierarchy asked for.
fn mount_of(line: &str, is_unified: bool) -> Option<PathBuf> {
    let (place, kind) = line.split_once(" - ")?;
    let mut kind = kind.split(' ');
    let found = match kind.next()? {
        "cgroup2" => is_unified,
        "cgroup" => !is_unified && kind.nth(1)?.split(',').any(|option| option == "cpu"),
        _ => false,
    };
    found.then(|| Path::new(place.split(' ').nth(4).unwrap_or_default()).to_owned())
}

/// Time in which the threads of a group were stopped.
///
/// Source: Linux, Documentation/admin-guide/cgroup-v2.rst (microseconds), and
/// Documentation/scheduler/sched-bwc.rst (version 1, nanoseconds).
pub(crate) fn throttled_ns(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| match line.split_once(' ')? {
        ("throttled_usec", us) => us.parse::<u64>().ok()?.checked_mul(1000),
        ("throttled_time", ns) => ns.parse().ok(),
        _ => None,
    })
}

fn count_of(stat: &str, name: &str) -> u64 {
    let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(found, _)| *found == name).and_then(|(_, count)| count.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
        25 20 0:22 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
        26 20 0:23 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn groups_of_both_versions_are_read_up_to_their_roots() {
        let files = files_of("5:cpu,cpuacct:/a/b\n4:memory:/m\n0::/u\n", MOUNTS);
        let expected = ["cpu/a/b", "cpu/a", "cpu", "unified/u", "unified"];
        let expected: Vec<PathBuf> =
            expected.iter().map(|at| format!("/sys/fs/cgroup/{at}/cpu.stat").into()).collect();
        assert_eq!(files, expected);
    }

    #[test]
    fn both_versions_count_throttled_time() {
        assert_eq!(throttled_ns("nr_periods 1\nthrottled_usec 7\n"), Some(7000));
        assert_eq!(throttled_ns("nr_throttled 1\nthrottled_time 7\n"), Some(7));
        assert_eq!(throttled_ns("nr_periods 1\n"), None);
    }

    #[test]
    fn a_group_of_either_version_is_read_with_its_quota() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        assert_eq!(GroupSample::read(folder.path()), None);
        write("cpu.stat", "nr_periods 9\nnr_throttled 4\nthrottled_usec 50\n");
        write("cpu.max", "max 100000\n");
        let group = GroupSample::read(folder.path()).unwrap();
        assert_eq!((group.throttled_count, group.throttled_ns, group.quota), (4, 50_000, None));
        write("cpu.max", "20000 100000\n");
        let group = GroupSample::read(folder.path()).unwrap();
        assert_eq!(group.quota, Some(("cpu.max", "20000 100000".to_owned())));
        fs::remove_file(folder.path().join("cpu.max")).unwrap();
        write("cpu.cfs_quota_us", "-1\n");
        assert_eq!(GroupSample::read(folder.path()).unwrap().quota, None);
    }
}
