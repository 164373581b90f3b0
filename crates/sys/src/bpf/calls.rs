//! System calls of one process (bpf/calls.bpf.c).

use std::os::fd::AsRawFd;

use libbpf_rs::Link;
use zerocopy::FromBytes;

use super::error::BpfError;
use super::object::{Loaded, Opened, embedded, shared_types};
use super::process::{configured_process, recognising_events};
use super::tracing::Tracepoints;
use crate::capability::Capability;

mod types {
    use super::shared_types;

    shared_types!("calls");
}

const TRACEPOINTS: [(&str, &str); 2] = [("call_begins", "sys_enter"), ("call_ends", "sys_exit")];

/// Calls of one thread with one number, descriptor and outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallSum {
    /// The thread's id in the first process namespace.
    pub thread: u32,
    /// As `libc::SYS_read`.
    pub number: i64,
    /// First argument, if that is small enough for a descriptor.
    pub descriptor: Option<u32>,
    /// `None` if they succeeded.
    pub errno: Option<i32>,
    pub count: u64,
    /// Sum of the results: bytes, messages, or whatever the call returns.
    pub result_sum: u64,
    /// Time between entry and exit.
    pub ns: u64,
}

/// Programs that count the system calls of a process until they are dropped.
///
/// While they are attached, each system call of the machine takes the kernel's slower way, by about 0.1 µs.
#[derive(Debug)]
pub struct CallCounter {
    // Before the object, so that they are detached first.
    links: Vec<Link>,
    loaded: Loaded,
}

impl CallCounter {
    /// Attaches the programs. Outside of the first process namespace, the process is recognised at the first context
    /// switch of one of the threads.
    ///
    /// - `process`, `threads`: ids in the caller's process namespace.
    ///
    /// # Errors
    /// [`BpfError::Permission`] without CAP_BPF and CAP_PERFMON; [`BpfError::Load`] if the kernel refuses.
    pub fn attach(process: u32, threads: &[u32]) -> Result<CallCounter, BpfError> {
        let tracepoints = Tracepoints::of_this_kernel(&TRACEPOINTS);
        let config = types::config { process: configured_process(process), spans: 0 };
        let loaded = Opened::open("calls", embedded!("calls"))?
            .needs(&[Capability::Bpf, Capability::Perfmon])
            .config(&config)?
            .without(&tracepoints.absent_programs())
            .load()?;
        let mut links = Vec::new();
        for event in recognising_events(threads) {
            let link = loaded.program("switches")?.attach_perf_event(event.as_raw_fd());
            // The link owns the descriptor now.
            links.extend(link.inspect(|_| event.give_away()));
        }
        links.extend(tracepoints.attach(&loaded)?.0);
        Ok(CallCounter { links, loaded })
    }

    /// Detaches the programs, and returns what they counted.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn finish(mut self) -> Result<Vec<CallSum>, BpfError> {
        self.links.clear();
        let entries = self.loaded.map("sums")?;
        Ok(entries.entries()?.filter_map(|(key, value)| call_sum(&key, &value)).collect())
    }
}

/// `None` if the bytes have another length.
fn call_sum(key: &[u8], value: &[u8]) -> Option<CallSum> {
    let key = types::call::read_from_bytes(key).ok()?;
    let sum = types::call_sum::read_from_bytes(value).ok()?;
    Some(CallSum {
        thread: key.thread,
        number: key.number.into(),
        descriptor: (key.descriptor != u32::MAX).then_some(key.descriptor),
        errno: i32::try_from(key.error).ok().filter(|errno| *errno != 0),
        count: sum.count,
        result_sum: sum.result,
        ns: sum.ns,
    })
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn calls_of_a_thread_are_counted_with_their_descriptor_and_their_outcome() {
        let counter = match CallCounter::attach(std::process::id(), &[crate::thread::id()]) {
            Ok(counter) => counter,
            Err(why) => return testkit::skip("bpf", why.to_string()),
        };
        // A context switch, for a process namespace of its own.
        std::thread::sleep(std::time::Duration::from_millis(1));
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let address = socket.local_addr().unwrap();
        for _ in 0..50 {
            assert!(socket.recv(&mut [0; 16]).is_err());
            socket.send_to(&[7; 5], address).unwrap();
            assert_eq!(socket.recv(&mut [0; 16]).unwrap(), 5);
        }
        let descriptor = socket.as_raw_fd() as u32;
        let sums = counter.finish().unwrap();
        let find = |number, errno| {
            let mut own = sums.iter().filter(|sum| sum.descriptor == Some(descriptor));
            own.find(|sum| sum.number == number && sum.errno == errno).copied().unwrap()
        };
        let received = find(libc::SYS_recvfrom, None);
        assert_eq!((received.count, received.result_sum), (50, 250), "{sums:?}");
        let empty = find(libc::SYS_recvfrom, Some(libc::EAGAIN));
        assert_eq!((empty.count, empty.result_sum), (50, 0), "{sums:?}");
        assert_eq!(find(libc::SYS_sendto, None).thread, received.thread);
        assert!(received.ns > 0);
    }
}
