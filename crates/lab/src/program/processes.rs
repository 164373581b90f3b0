//! Processes of a program, read from /proc.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use sys::pidfd::PidFd;

const SIGKILL: i32 = 9;

/// Fields of /proc/PID/stat; times in clock ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    parent: u32,
    session: u32,
    user_ticks: u64,
    system_ticks: u64,
    /// Of children that have ended and were waited for, user and system.
    children_ticks: [u64; 2],
    start_ticks: u64,
    is_zombie: bool,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        // The name may hold any byte.
        let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
        Self::parse(&String::from_utf8_lossy(&text))
    }

    /// Source: proc_pid_stat(5); fields are counted from 1, the third follows the name.
    fn parse(text: &str) -> Option<Self> {
        let (_, after_name) = text.rsplit_once(')')?;
        let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Stat {
            parent: field(4)?.try_into().ok()?,
            session: field(6)?.try_into().ok()?,
            user_ticks: field(14)?,
            system_ticks: field(15)?,
            children_ticks: [field(16)?, field(17)?],
            start_ticks: field(22)?,
            is_zombie: matches!(*fields.first()?, "Z" | "X"),
        })
    }
}

/// Nanoseconds of a clock tick of /proc: 100 ticks a second on all architectures of Linux.
const TICK_NS: u64 = 10_000_000;

/// Start of a process in ticks since boot; `None` if there is no such process.
pub(super) fn start_ticks(pid: u32) -> Option<u64> {
    Stat::read(pid).map(|stat| stat.start_ticks)
}

/// Name of a process as tools show it; `None` if there is no such process.
pub(super) fn process_name(pid: u32) -> Option<String> {
    let name = fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(String::from_utf8_lossy(&name).trim_end().to_owned())
}

pub(super) fn all() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Living descendants of a process, without itself.
pub(super) fn descendants(of: u32) -> Vec<u32> {
    let mut children = BTreeMap::<u32, Vec<u32>>::new();
    for pid in all() {
        if let Some(stat) = Stat::read(pid) {
            children.entry(stat.parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut next = children.remove(&of).unwrap_or_default();
    while let Some(pid) = next.pop() {
        next.extend(children.remove(&pid).unwrap_or_default());
        found.push(pid);
    }
    found.retain(|pid| Stat::read(*pid).is_some_and(|stat| !stat.is_zombie));
    found
}

/// Sends a signal to each process that is still one of `members`, which is read a second time: an id may
/// be another process's by now.
pub(super) fn signal(pids: &[u32], signals: &[i32], members: impl Fn() -> Vec<u32>) {
    let opened: Vec<(u32, PidFd)> =
        pids.iter().filter_map(|pid| Some((*pid, PidFd::open(*pid).ok()?))).collect();
    let members = members();
    for (_, pidfd) in opened.iter().filter(|(pid, _)| members.contains(pid)) {
        for signal in signals {
            // One that has ended needs none.
            let _ = pidfd.send(*signal);
        }
    }
}

pub(super) fn kill(pid: u32) {
    if let Ok(pidfd) = PidFd::open(pid) {
        // One that has ended needs none.
        let _ = pidfd.send(SIGKILL);
    }
}

/// Kills the processes of a session, whose leader is not reaped: its id is no other's.
pub(super) fn kill_session(leader: u32) {
    for pid in all().into_iter().filter(|pid| *pid != leader) {
        if Stat::read(pid).is_some_and(|stat| stat.session == leader) {
            kill(pid);
        }
    }
}

/// "12 (redis-server), 13 (sh)".
pub(super) fn named(pids: &[u32]) -> String {
    let named = pids.iter().map(|pid| (pid, process_name(*pid).unwrap_or_else(|| "ended".into())));
    named.map(|(pid, name)| format!("{pid} ({name})")).collect::<Vec<_>>().join(", ")
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Living {
    /// With children that were waited for.
    pub(super) user_ns: u64,
    pub(super) system_ns: u64,
    /// Of living threads.
    pub(super) context_switch_count: u64,
    /// Largest resident size that any one of them has had.
    pub(super) resident_bytes_max: u64,
}

/// Sum over living processes; one that ends meanwhile is left out.
pub(super) fn living(pids: &[u32]) -> Living {
    let mut sum = Living::default();
    for pid in pids {
        let Some(stat) = Stat::read(*pid).filter(|stat| !stat.is_zombie) else { continue };
        // The clock has the exact sum, the ticks its shares.
        let ticks = stat.user_ticks + stat.system_ticks;
        let cpu_ns = sys::clock::cpu_ns_of(*pid).unwrap_or(ticks * TICK_NS);
        let user_ns = match ticks {
            0 => cpu_ns,
            _ => (u128::from(cpu_ns) * u128::from(stat.user_ticks) / u128::from(ticks)) as u64,
        };
        let [user_ticks, system_ticks] = stat.children_ticks;
        sum.user_ns += user_ns + user_ticks * TICK_NS;
        sum.system_ns += cpu_ns - user_ns + system_ticks * TICK_NS;
        sum.context_switch_count += context_switches(*pid);
        let resident = status_field(&format!("/proc/{pid}/status"), "VmHWM:").unwrap_or(0) * 1024;
        sum.resident_bytes_max = sum.resident_bytes_max.max(resident);
    }
    sum
}

/// Largest resident size that any one of the processes has had.
pub(super) fn resident_bytes_max(pids: &[u32]) -> u64 {
    let files = pids.iter().map(|pid| format!("/proc/{pid}/status"));
    files.filter_map(|file| status_field(&file, "VmHWM:")).max().unwrap_or(0) * 1024
}

/// Present resident size of this process.
pub(super) fn own_resident_bytes() -> u64 {
    status_field("/proc/self/status", "VmRSS:").unwrap_or(0) * 1024
}

fn context_switches(pid: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads
        .filter_map(|thread| {
            let text = fs::read_to_string(thread.path().join("status")).ok()?;
            Some(
                field(&text, "voluntary_ctxt_switches:")?
                    + field(&text, "nonvoluntary_ctxt_switches:")?,
            )
        })
        .sum()
}

fn status_field(path: &str, name: &str) -> Option<u64> {
    field(&fs::read_to_string(path).ok()?, name)
}

fn field(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim().trim_end_matches(" kB").parse().ok()
}

/// Inodes of the sockets that a process has open; `None` if they cannot be read.
pub(super) fn socket_inodes(pid: u32) -> Option<Vec<u64>> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
    Some(entries.filter_map(|entry| socket_inode(&entry)).collect())
}

fn socket_inode(entry: &fs::DirEntry) -> Option<u64> {
    let target = fs::read_link(entry.path()).ok()?;
    let target = target.as_os_str().as_bytes().strip_prefix(b"socket:[")?.strip_suffix(b"]")?;
    std::str::from_utf8(target).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_stat_line_is_read_whatever_the_name() {
        let line = "12 (a) S 1 (x) S 7 12 12 0 -1 4194560 1 2 3 4 50 60 70 80 20 0 1 0 999 1 1";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.parent, stat.session), (7, 12));
        assert_eq!((stat.user_ticks, stat.system_ticks), (50, 60));
        assert_eq!((stat.children_ticks, stat.start_ticks), ([70, 80], 999));
        assert!(!stat.is_zombie && Stat::parse("12 (a) Z 1").is_none());
    }

    #[test]
    fn this_process_has_a_start_a_name_a_size_and_its_sockets() {
        let own = std::process::id();
        assert!(start_ticks(own).unwrap() > 0 && all().contains(&own));
        assert!(!process_name(own).unwrap().is_empty());
        assert!(own_resident_bytes() > 0 && resident_bytes_max(&[own]) >= own_resident_bytes() / 2);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&socket));
        let inode = fs::metadata(link).unwrap().ino();
        assert!(socket_inodes(own).unwrap().contains(&inode));
        let used = living(&[own]);
        assert!(used.user_ns + used.system_ns > 0 && used.context_switch_count > 0, "{used:?}");
    }
}
