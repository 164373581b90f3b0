//! Control groups whose threads are stopped by their CPU quota.

use std::os::unix::fs::MetadataExt;

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Losses};
use crate::causes::finding::{Confidence, Finding, Notes, Severity, finding};

pub(super) const CAUSE: Cause = Cause {
    title: "The CPU quota of a control group stops its threads",
    symptom: "requests take 50 or 100 ms more at random, while the container's average CPU use is below its \
              limit",
    evidence: "cpu.stat of the group: nr_throttled and throttled_usec (throttled_time) grow; cpu.max or \
               cpu.cfs_quota_us",
    remedy: "a larger quota or none (cpu.max), fewer threads that run at once, CPUs of its own (cpuset)",
    undo: "the old quota",
    counters: &["nr_throttled", "throttled_usec"],
    references: &[
        "Documentation/scheduler/sched-bwc.rst",
        "https://github.com/kubernetes/kubernetes/issues/67577",
    ],
    ..Cause::new("cfs", check)
};

/// Share of the periods in which a group waits, from which it is reported, and is high, percent.
const SHARE: u64 = 25;
const LARGE_SHARE: u64 = 75;
/// Periods of the past from which their share is judged.
const MANY: u64 = 1000;
/// Groups with findings, and processes of one that are looked at.
const GROUPS_MAX: usize = 8;
const PROCESSES_MAX: usize = 256;

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    if window.latest("groups not read").is_some() {
        notes.unseen("quotas of some control groups: there are more than 2000");
    }
    let waited = window.of_prefix("group ").filter_map(|(name, waited)| {
        let folder = name.strip_suffix(" nr_throttled").filter(|_| waited.total > 0)?;
        let severity = judge(waited, window.row("group", folder, "nr_periods"))?;
        Some((folder, severity, window.row("group", folder, "throttled_usec")))
    });
    let mut waited: Vec<_> = waited.collect();
    waited.sort_by_key(|(_, severity, time)| std::cmp::Reverse((*severity, time.now)));
    let mut left = GROUPS_MAX;
    for (folder, severity, time) in waited {
        // A group whose programs are in another namespace delays no packet of this one.
        let Some(program) = program(view, folder).filter(|_| left > 0) else { continue };
        left -= 1;
        let [throttled, periods] =
            ["nr_throttled", "nr_periods"].map(|counter| window.row("group", folder, counter));
        notes.find(describe(folder, &program, severity, [throttled, periods, time]));
    }
}

/// `None` if the group waits rarely.
fn judge(throttled: Losses, periods: Losses) -> Option<Severity> {
    let share = |throttled: u64, periods: u64| throttled * 100 / periods.max(1);
    match share(throttled.now, periods.now) {
        LARGE_SHARE.. => Some(Severity::High),
        SHARE.. => Some(Severity::Medium),
        _ if throttled.now > 0 => Some(Severity::Low),
        _ if periods.total >= MANY && share(throttled.total, periods.total) >= SHARE => {
            Some(Severity::Low)
        }
        _ => None,
    }
}

/// The first program of a group, or of those below it, that is in the examined network namespace.
fn program(view: &Evidence, folder: &str) -> Option<String> {
    let wanted = view.system.netns().inode().ok()?;
    let mut folders = vec![std::path::PathBuf::from(folder)];
    let mut left = PROCESSES_MAX;
    while let Some(folder) = folders.pop() {
        let below = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let below = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        folders.extend(below.map(|entry| entry.path()).take(left));
        let pids = std::fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        for pid in pids.lines() {
            left = left.checked_sub(1)?;
            let netns = view.system.host_path(&format!("proc/{pid}/ns/net"));
            if std::fs::metadata(netns).is_ok_and(|file| file.ino() == wanted) {
                let comm = view.system.read_host(&format!("proc/{pid}/comm")).unwrap_or_default();
                return Some(format!("{comm} (process {pid})"));
            }
        }
    }
    None
}

/// - `counts`: periods with a wait, periods, and time that threads waited, microseconds.
fn describe(folder: &str, program: &str, severity: Severity, counts: [Losses; 3]) -> Finding {
    let [throttled, periods, waited] = counts;
    let (what, confidence) = if throttled.now > 0 {
        let share = throttled.now * 100 / periods.now.max(1);
        (format!("in {share} % of its periods now"), Confidence::Now)
    } else {
        let share = throttled.total * 100 / periods.total.max(1);
        (format!("in {share} % of its periods until now"), Confidence::Before)
    };
    let read = |file: &str| std::fs::read_to_string(format!("{folder}/{file}")).ok();
    let (file, quota, free) = match (read("cpu.max"), read("cpu.cfs_quota_us")) {
        (Some(max), _) => ("cpu.max", max, "max"),
        (_, quota) => ("cpu.cfs_quota_us", quota.unwrap_or_default(), "-1"),
    };
    let quota = quota.trim();
    let ms = waited.now as f64 / 1e3;
    finding(severity, format!("{program} is stopped by the CPU quota of its group {what}: packets wait meanwhile"))
        .seen(confidence)
        .costs(format!("{ms:.0} ms of waiting of its threads within the window"))
        .read(format!("{folder}/cpu.stat: nr_throttled"), throttled.evidence())
        .read(format!("{folder}/cpu.stat: nr_periods"), periods.evidence())
        .read(format!("{folder}/{file}"), quota)
        .because(
            "a group that has used its quota stops until its period of 100 ms ends, however idle the CPUs are \
             (Documentation/scheduler/sched-bwc.rst)",
        )
        .effect("its threads run when packets arrive")
        .risk("without a quota it may take CPU time of other groups; its manager may set it again")
        .change(
            format!("echo {free} > {folder}/{file}   (or a larger limit where its manager sets it)"),
            format!("echo {quota} > {folder}/{file}"),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn losses(now: u64, total: u64) -> Losses {
        Losses { now, total, window: std::time::Duration::from_secs(1) }
    }

    #[test]
    fn group_is_reported_by_the_share_of_its_periods() {
        assert_eq!(judge(losses(9, 9), losses(10, 10)), Some(Severity::High));
        assert_eq!(judge(losses(3, 9), losses(10, 10)), Some(Severity::Medium));
        assert_eq!(judge(losses(1, 9), losses(10, 10)), Some(Severity::Low));
        assert_eq!(judge(losses(0, 400), losses(10, 1000)), Some(Severity::Low), "until now");
        assert_eq!(judge(losses(0, 20), losses(10, 1000)), None);
        assert_eq!(judge(losses(0, 20), losses(10, 20)), None, "a short past");
    }
}
