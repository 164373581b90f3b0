//! Programs that may not open another descriptor.

use std::collections::{HashMap, HashSet};

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, SocketProcess};
use crate::causes::finding::{Confidence, Finding, Notes, Severity, finding};
use crate::net::{TcpSocket, TcpState};

pub(super) const CAUSE: Cause = Cause {
    title: "A program has as many descriptors open as it may, so that accept and connect fail",
    symptom: "Clients connect and then hang; the program logs `Too many open files`, or uses a whole CPU and \
              answers none; new connections are refused after its queue is full. A restart helps for a while.",
    evidence: "Count of /proc/PID/fd against `Max open files` of /proc/PID/limits, with connections that wait at \
               its listeners (Recv-Q of `ss -ltn`) and its sockets in CLOSE-WAIT; /proc/sys/fs/file-nr for the \
               whole kernel.",
    remedy: "A higher limit: `prlimit --pid PID --nofile=N`, and LimitNOFILE= of its unit; close what leaks \
             (CLOSE-WAIT).",
    undo: "`prlimit --pid PID --nofile=OLD`.",
    references: &[
        "getrlimit(2), RLIMIT_NOFILE",
        "accept(2), EMFILE",
        "esnet/iperf#493",
        "yesodweb/wai#928",
        "projecteru/redis-cerberus#29",
    ],
    ..Cause::new("emfile", check)
};

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    let owners = evidence.owners();
    let here: HashMap<u64, &TcpSocket> =
        window.after.tcp.iter().map(|one| (u64::from(one.inode), one)).collect();
    let udp: HashSet<u64> = window.after.udp.iter().map(|one| one.inode.into()).collect();
    for (pid, process) in &owners.processes {
        if !process.sockets.iter().any(|inode| here.contains_key(inode) || udp.contains(inode)) {
            continue;
        }
        let limits = evidence.system.read_host(&format!("proc/{pid}/limits")).unwrap_or_default();
        let Some(limit) = open_files(&limits) else { continue };
        let sockets = process.sockets.iter().filter_map(|inode| here.get(inode).copied());
        if let Some(found) = judge(*pid, process, limit, &sockets.collect::<Vec<_>>()) {
            notes.find(found);
        }
    }
    if owners.is_partial {
        notes.unseen("descriptors of some processes: needs root");
    }
    let table = evidence.system.read_host("proc/sys/fs/file-nr").unwrap_or_default();
    if let Some(found) = of_kernel(&table) {
        notes.find(found);
    }
}

/// Soft and hard limit of open files.
///
/// - `limits`: text of `/proc/PID/limits`.
fn open_files(limits: &str) -> Option<(u64, u64)> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let mut words = line.split_whitespace().map(|word| word.parse().unwrap_or(u64::MAX));
    Some((words.next()?, words.next()?))
}

/// - `sockets`: those of the process in this namespace.
fn judge(
    pid: u32,
    process: &SocketProcess,
    (soft, hard): (u64, u64),
    sockets: &[&TcpSocket],
) -> Option<Finding> {
    let count = process.descriptor_count;
    if u128::from(count) * 10 < u128::from(soft) * 9 {
        return None;
    }
    let listeners = sockets.iter().filter(|one| one.state == TcpState::Listen);
    let waiting: Vec<_> = listeners.filter(|one| one.receive_queue > 0).collect();
    let leaked = sockets.iter().filter(|one| one.state == TcpState::CloseWait).count();
    let name = &process.name;
    let (severity, confidence, what) = match (count >= soft, waiting.first()) {
        (true, Some(one)) => (
            Severity::High,
            Confidence::Now,
            format!(
                "{name} has all {soft} descriptors open that it may: {} connections wait at its port {}, and \
                 accept fails",
                one.receive_queue,
                one.local.port()
            ),
        ),
        (true, None) => (
            Severity::Medium,
            Confidence::SetUp,
            format!(
                "{name} has all {soft} descriptors open that it may: the next accept or connect fails"
            ),
        ),
        (false, _) => (
            Severity::Low,
            Confidence::SetUp,
            format!("{name} has {count} of the {soft} descriptors open that it may"),
        ),
    };
    let mut found = finding(severity, what)
        .seen(confidence)
        .read(
            format!("/proc/{pid}/fd"),
            format!("{count} descriptors, {} of them sockets", process.sockets.len()),
        )
        .read(format!("/proc/{pid}/limits: Max open files"), format!("{soft}, at most {hard}"));
    for one in waiting {
        let limit = one.send_queue;
        found = found.read(
            format!("sock_diag: listener of TCP port {}", one.local.port()),
            format!("{} connections wait, and {limit} may", one.receive_queue),
        );
    }
    if leaked > 0 {
        let state = "sock_diag: its sockets in CLOSE-WAIT";
        found = found
            .read(state, format!("{leaked}: their far ends have closed, and the program has not"));
    }
    let most = soft.saturating_mul(4).max(4096);
    Some(
        found
            .because(
                "accept(2) and socket(2) fail with EMFILE at the limit; the kernel still completes connections \
                 until the listener's queue is full, so that clients hang and are not refused",
            )
            .effect("connections that wait are accepted at once")
            .risk("if descriptors leak, the higher limit is reached later: find sockets in CLOSE-WAIT first")
            .change(
                format!("prlimit --pid {pid} --nofile={most}:{}, and the same in its unit (LimitNOFILE=)", most.max(hard)),
                format!("prlimit --pid {pid} --nofile={soft}:{hard}"),
            ),
    )
}

/// - `table`: text of `/proc/sys/fs/file-nr`: open files, 0, and the most.
fn of_kernel(table: &str) -> Option<Finding> {
    let numbers: Vec<u64> = table.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [open, _, most] = numbers[..] else { return None };
    if u128::from(open) * 10 < u128::from(most) * 9 {
        return None;
    }
    let severity = if open >= most { Severity::High } else { Severity::Low };
    Some(
        finding(severity, format!("{open} of {most} files are open that the whole kernel allows"))
            .read("/proc/sys/fs/file-nr", table)
            .because("accept(2), socket(2) and open(2) of every program without CAP_SYS_ADMIN fail with ENFILE at fs.file-max (proc(5))")
            .effect("programs can open files and sockets")
            .risk("memory: about 1 KiB for each file")
            .change(format!("sysctl -w fs.file-max={}", most.saturating_mul(2)), format!("sysctl -w fs.file-max={most}")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn severity(descriptor_count: u64) -> Option<Severity> {
        let process =
            SocketProcess { name: "server (process 7)".into(), descriptor_count, sockets: vec![1] };
        judge(7, &process, (100, 100), &[]).map(|found| found.severity)
    }

    #[test]
    fn limits_are_read_and_judged_by_the_count() {
        let text = "Limit  Soft Limit  Hard Limit  Units\nMax open files            16         unlimited   files\n";
        assert_eq!(open_files(text), Some((16, u64::MAX)));
        assert_eq!(open_files("Max stack size 1 2 bytes\n"), None);
        assert_eq!(
            (severity(50), severity(90), severity(100)),
            (None, Some(Severity::Low), Some(Severity::Medium))
        );
    }

    #[test]
    fn table_of_the_kernel_is_judged_by_what_is_left() {
        assert_eq!(of_kernel("500 0 1000"), None);
        assert_eq!(of_kernel("1000 0 1000").unwrap().severity, Severity::High);
        assert_eq!(of_kernel("9 0 9223372036854775807"), None);
    }
}
