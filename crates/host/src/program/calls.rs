//! System calls of a process, by their purpose.

use std::collections::{BTreeMap, BTreeSet};

use sys::bpf::CallSum;

use super::sample::socket_inode;

/// System calls in a window.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Calls {
    /// Calls that returned datagrams of a UDP socket.
    pub receive_count: u64,
    pub datagram_count: u64,
    /// Receive calls that found no datagram, and did not wait.
    pub empty_count: u64,
    /// Calls that returned datagrams and may return several: `recvmmsg`.
    pub batch_count: u64,
    /// Datagrams by the inode of their socket.
    pub by_socket: BTreeMap<u64, u64>,
    /// Thread that received most datagrams.
    pub receiver: Option<u32>,
    /// To descriptors that are no sockets, by descriptor.
    pub writes: BTreeMap<u32, Writes>,
    /// Connections that could not be accepted for want of a descriptor.
    pub no_descriptor_count: u64,
    /// All calls.
    pub count: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Writes {
    pub count: u64,
    pub bytes: u64,
    /// Time in the calls.
    pub ns: u64,
}

/// Calls that return one message.
const RECEIVE_ONE: [i64; 4] =
    [libc::SYS_recvfrom, libc::SYS_recvmsg, libc::SYS_read, libc::SYS_readv];
const WRITE: [i64; 3] = [libc::SYS_write, libc::SYS_writev, libc::SYS_pwrite64];
const ACCEPT: [i64; 2] = [libc::SYS_accept, libc::SYS_accept4];

impl Calls {
    /// - `descriptors`: of the process, by number.
    /// - `udp`: inodes of UDP sockets.
    pub(super) fn new(
        sums: &[CallSum],
        descriptors: &BTreeMap<u32, String>,
        udp: &BTreeSet<u64>,
    ) -> Calls {
        let mut calls = Calls::default();
        let mut by_thread = BTreeMap::<u32, u64>::new();
        for sum in sums {
            calls.count += sum.count;
            let to = sum.descriptor.and_then(|number| descriptors.get(&number));
            let inode = to.and_then(|to| socket_inode(to));
            let is_udp = inode.is_some_and(|inode| udp.contains(&inode));
            let is_batch = sum.number == libc::SYS_recvmmsg;
            match (sum.number, sum.errno) {
                (number, None) if is_udp && (is_batch || RECEIVE_ONE.contains(&number)) => {
                    let datagrams = if is_batch { sum.result_sum } else { sum.count };
                    calls.receive_count += sum.count;
                    calls.batch_count += if is_batch { sum.count } else { 0 };
                    calls.datagram_count += datagrams;
                    *by_thread.entry(sum.thread).or_default() += datagrams;
                    *calls.by_socket.entry(inode.unwrap_or(0)).or_default() += datagrams;
                }
                (number, Some(libc::EAGAIN))
                    if is_udp && (is_batch || RECEIVE_ONE.contains(&number)) =>
                {
                    calls.empty_count += sum.count;
                }
                (number, None) if WRITE.contains(&number) && inode.is_none() => {
                    let writes = calls.writes.entry(sum.descriptor.unwrap_or(0)).or_default();
                    writes.count += sum.count;
                    writes.bytes += sum.result_sum;
                    writes.ns += sum.ns;
                }
                (number, Some(libc::EMFILE | libc::ENFILE)) if ACCEPT.contains(&number) => {
                    calls.no_descriptor_count += sum.count;
                }
                _ => {}
            }
        }
        let most = by_thread.into_iter().max_by_key(|(_, datagrams)| *datagrams);
        calls.receiver = most.map(|(thread, _)| thread);
        calls
    }
}

/// Name of a system call in which threads of packet programs wait.
pub(super) fn call_name(number: i64) -> String {
    const NAMES: &[(i64, &str)] = &[
        (libc::SYS_recvfrom, "recvfrom"),
        (libc::SYS_recvmsg, "recvmsg"),
        (libc::SYS_recvmmsg, "recvmmsg"),
        (libc::SYS_read, "read"),
        (libc::SYS_readv, "readv"),
        (libc::SYS_write, "write"),
        (libc::SYS_sendto, "sendto"),
        (libc::SYS_sendmsg, "sendmsg"),
        (libc::SYS_accept, "accept"),
        (libc::SYS_accept4, "accept4"),
        (libc::SYS_epoll_pwait, "epoll_wait"),
        (libc::SYS_ppoll, "poll"),
        (libc::SYS_pselect6, "select"),
        (libc::SYS_futex, "futex"),
        (libc::SYS_nanosleep, "nanosleep"),
        (libc::SYS_clock_nanosleep, "nanosleep"),
        (libc::SYS_io_uring_enter, "io_uring_enter"),
        (libc::SYS_wait4, "wait4"),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_epoll_wait, "epoll_wait"),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_poll, "poll"),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_select, "select"),
    ];
    let known = NAMES.iter().find(|(known, _)| *known == number);
    known.map_or_else(|| format!("system call {number}"), |(_, name)| (*name).to_owned())
}

/// True for the names of calls that end when a packet comes.
pub(super) fn waits_for_packets(name: &str) -> bool {
    ["recv", "read", "epoll", "poll", "select", "io_uring"]
        .iter()
        .any(|part| name.starts_with(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_their_purpose() {
        let sum = |thread, number, descriptor, errno, count, result_sum| CallSum {
            thread,
            number,
            descriptor: Some(descriptor),
            errno,
            count,
            result_sum,
            ns: 7,
        };
        let links = [(1, "pipe:[5]"), (3, "socket:[70]"), (4, "socket:[71]"), (5, "/a file")];
        let descriptors = links.map(|(number, to)| (number, to.to_owned())).into();
        let sums = [
            sum(9, libc::SYS_recvfrom, 3, None, 10, 640),
            sum(8, libc::SYS_recvmmsg, 3, None, 2, 30),
            sum(8, libc::SYS_recvmmsg, 3, Some(libc::EAGAIN), 4, 0),
            // Of a TCP socket.
            sum(9, libc::SYS_recvfrom, 4, None, 99, 9900),
            sum(9, libc::SYS_write, 1, None, 10, 200),
            sum(9, libc::SYS_write, 4, None, 10, 200),
            sum(9, libc::SYS_read, 5, None, 3, 12),
            sum(9, libc::SYS_accept4, 4, Some(libc::EMFILE), 6, 0),
        ];
        let calls = Calls::new(&sums, &descriptors, &BTreeSet::from([70]));
        assert_eq!(
            (calls.receive_count, calls.datagram_count, calls.empty_count, calls.batch_count),
            (12, 40, 4, 2)
        );
        assert_eq!((calls.receiver, calls.by_socket), (Some(8), [(70, 40)].into()));
        assert_eq!(calls.writes, [(1, Writes { count: 10, bytes: 200, ns: 7 })].into());
        assert_eq!(calls.no_descriptor_count, 6);
    }
}
