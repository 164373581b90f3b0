//! A process, sampled twice, and watched in between.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sys::bpf::CallCounter;

use super::calls::{call_name, waits_for_packets};
use super::{Calls, Program, ProgramError, ProgramSample};
use crate::text::chain;

/// Least time between both samples.
const WINDOW: Duration = Duration::from_secs(1);
/// Time between looks at sockets and threads.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// Most threads that are looked at.
const THREADS_MAX: usize = 64;

/// Facts that were seen between the samples.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// UDP sockets of the process, by inode.
    pub sockets: BTreeMap<u64, SocketSeen>,
    /// Looks at each thread, by the system call that it waited in; those that found it running have no name. Empty
    /// without the right to see it.
    pub places: BTreeMap<u32, BTreeMap<String, u64>>,
}

/// A UDP socket.
///
/// Source: Linux, Documentation/networking/proc_net_tcp.rst; udp4_format_sock of net/ipv4/udp.c.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SocketSeen {
    pub port: u16,
    /// Most memory that waiting datagrams had, with the kernel's overhead.
    pub backlog_bytes_max: u64,
    /// Datagrams dropped: at the first look, and at the last one.
    pub drops_before: u64,
    pub drops: u64,
}

impl SocketSeen {
    pub fn dropped_count(&self) -> u64 {
        self.drops.saturating_sub(self.drops_before)
    }
}

impl Seen {
    /// Looks at a thread, and of these the ones that found it waiting for packets.
    pub fn waiting(&self, thread: u32) -> (u64, u64) {
        let places = self.places.get(&thread);
        let all = places.into_iter().flatten();
        all.fold((0, 0), |(looks, waiting), (name, count)| {
            (looks + count, waiting + if waits_for_packets(name) { *count } else { 0 })
        })
    }

    /// The system call in which a thread waited most often.
    pub fn usual_place(&self, thread: u32) -> Option<&str> {
        let named = self.places.get(&thread)?.iter().filter(|(name, _)| !name.is_empty());
        named.max_by_key(|(_, count)| **count).map(|(name, _)| name.as_str())
    }
}

/// A process whose first sample was taken.
#[derive(Debug)]
pub struct ProgramWatch {
    before: ProgramSample,
    begun: Instant,
    calls: Result<CallCounter, String>,
    stop: Arc<AtomicBool>,
    looking: JoinHandle<Seen>,
}

impl ProgramWatch {
    /// Takes the first sample.
    ///
    /// Errors: those of [`ProgramSample::take`].
    pub fn begin(pid: u32) -> Result<ProgramWatch, ProgramError> {
        let threads: Vec<u32> = ProgramSample::take(pid)?.threads.keys().copied().collect();
        // Takes a while, so that the first sample follows it.
        let calls = CallCounter::attach(pid, &threads[..threads.len().min(THREADS_MAX)]);
        let calls = calls.map_err(|why| chain(&why));
        let before = ProgramSample::take(pid)?;
        let stop = Arc::new(AtomicBool::new(false));
        let looking = thread::spawn({
            let (stop, inodes) = (stop.clone(), before.sockets().into_keys().collect());
            move || look(pid, &inodes, &stop)
        });
        Ok(ProgramWatch { before, begun: Instant::now(), calls, stop, looking })
    }

    /// Waits until a second has passed since the first sample, and takes the second one.
    ///
    /// Errors: [`ProgramError::Ended`], [`ProgramError::Read`].
    pub fn end(self) -> Result<Program, ProgramError> {
        let ProgramWatch { before, begun, calls, stop, looking } = self;
        thread::sleep(WINDOW.saturating_sub(begun.elapsed()));
        let sums = calls.and_then(|counter| counter.finish().map_err(|why| chain(&why)));
        stop.store(true, Ordering::Relaxed);
        // A panic there has been printed.
        let seen = looking.join().unwrap_or_default();
        let after = ProgramSample::take(before.pid).map_err(|why| match why {
            ProgramError::None { pid } => ProgramError::Ended { pid },
            why => why,
        })?;
        let mut descriptors = before.descriptors.clone().unwrap_or_default();
        descriptors.extend(after.descriptors.clone().unwrap_or_default());
        let udp: BTreeSet<u64> = seen.sockets.keys().copied().collect();
        let calls = sums.map(|sums| Calls::new(&sums, &descriptors, &udp));
        Program::between(&before, after, calls, seen)
    }
}

/// Looks until it is stopped.
fn look(pid: u32, inodes: &BTreeSet<u64>, stop: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    while !stop.load(Ordering::Relaxed) {
        for file in ["udp", "udp6"] {
            // Without IPv6 there is no such file.
            let table = fs::read_to_string(format!("/proc/{pid}/net/{file}")).unwrap_or_default();
            for (inode, look) in table.lines().skip(1).filter_map(socket) {
                if !inodes.contains(&inode) {
                    continue;
                }
                let own = seen.sockets.entry(inode).or_insert(look);
                own.backlog_bytes_max = own.backlog_bytes_max.max(look.backlog_bytes_max);
                own.drops = look.drops;
            }
        }
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for task in tasks.take(THREADS_MAX) {
            let thread = task.file_name().to_str().and_then(|id| id.parse::<u32>().ok());
            let place = fs::read_to_string(task.path().join("syscall")).ok();
            if let Some((thread, place)) = thread.zip(place) {
                let places = seen.places.entry(thread).or_default();
                *places.entry(place_name(&place)).or_default() += 1;
            }
        }
        thread::sleep(LOOK_INTERVAL);
    }
    seen
}

/// Inode and state of a line of `/proc/net/udp`.
fn socket(line: &str) -> Option<(u64, SocketSeen)> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let (_, port) = fields.get(1)?.rsplit_once(':')?;
    let (_, backlog) = fields.get(4)?.split_once(':')?;
    let drops = fields.get(12)?.parse().ok()?;
    let seen = SocketSeen {
        port: u16::from_str_radix(port, 16).ok()?,
        backlog_bytes_max: u64::from_str_radix(backlog, 16).ok()?,
        drops_before: drops,
        drops,
    };
    Some((fields.get(9)?.parse().ok()?, seen))
}

/// Name of the call of a file `syscall`; empty if the thread runs, or waits outside of one.
///
/// Source: proc_pid_syscall(5).
fn place_name(text: &str) -> String {
    let number = text.split_ascii_whitespace().next().and_then(|word| word.parse::<i64>().ok());
    number.filter(|number| *number >= 0).map_or_else(String::new, call_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_table_gives_backlog_and_drops() {
        let line = " 2146: 0100007F:2328 00000000:0000 07 00000000:00000D00 00:00000000 00000000     0        \
                    0 31337 2 00000000f00dcafe 12";
        let (inode, seen) = socket(line).unwrap();
        assert_eq!((inode, seen.port, seen.backlog_bytes_max, seen.drops), (31337, 9000, 3328, 12));
        assert_eq!(socket("junk"), None);
    }

    #[test]
    fn a_thread_that_runs_waits_in_no_call() {
        assert_eq!(place_name("running\n"), "");
        assert_eq!(place_name("-1 0x7ff 0x7fe\n"), "");
        assert_eq!(place_name(&format!("{} 0x3 0x7f 0x20\n", libc::SYS_recvfrom)), "recvfrom");
        let seen = Seen {
            places: [(7, [("recvfrom".into(), 90), (String::new(), 10)].into())].into(),
            ..Seen::default()
        };
        assert_eq!((seen.waiting(7), seen.usual_place(7)), ((100, 90), Some("recvfrom")));
        assert_eq!((seen.waiting(8), seen.usual_place(8)), ((0, 0), None));
    }
}
