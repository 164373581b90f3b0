//! One connection as both ends use it.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::Instant;

use model::NotEffective;
use sha2::{Digest, Sha256};
use sys::{socket, tcp};

use super::{PATIENCE, Task};
use crate::Switch;
use crate::role::RoleReport;

/// A connection with the settings of a task, whose reads and writes have [`TIMEOUTS`](super::TIMEOUTS).
pub(super) struct Stream {
    tcp: TcpStream,
    spins: bool,
    quickack: bool,
    /// The kernel had the option on after it was first set.
    has_quickack: bool,
    pub(super) syscall_count: u64,
}

impl Stream {
    pub(super) fn new(tcp: TcpStream, task: &Task) -> io::Result<Stream> {
        if task.nodelay {
            tcp.set_nodelay(true)?;
        }
        if task.busy_poll {
            socket::set_busy_poll(tcp.as_fd(), true)?;
        }
        let (spins, quickack) = (task.spins, task.quickack);
        if quickack {
            tcp::set_quickack(tcp.as_fd())?;
        }
        let has_quickack = quickack && tcp::is_quickack(tcp.as_fd())?;
        Ok(Stream { tcp, spins, quickack, has_quickack, syscall_count: 0 })
    }

    pub(super) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.syscall_count += 1;
        (&self.tcp).write_all(bytes)
    }

    /// Reads what is there, at most `into`; 0 at the end of the connection. Waits at most [`PATIENCE`], also when the run
    /// is over: the end of a connection can be late, and can be sent again.
    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut begun = None;
        loop {
            self.syscall_count += 1;
            let got = match self.spins {
                true => socket::receive_now(self.tcp.as_fd(), into),
                false => (&self.tcp).read(into),
            };
            match got {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    let begun = *begun.get_or_insert_with(Instant::now);
                    if begun.elapsed() > PATIENCE {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    std::hint::spin_loop();
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Ok(count) => {
                    if self.quickack && count > 0 {
                        self.syscall_count += 1;
                        tcp::set_quickack(self.tcp.as_fd())?;
                    }
                    return Ok(count);
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Fills `into`. Returns false if the connection ended before its first byte.
    pub(super) fn read_whole(&mut self, into: &mut [u8]) -> io::Result<bool> {
        let mut have = 0;
        while have < into.len() {
            match self.read(&mut into[have..])? {
                0 if have == 0 => return Ok(false),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => have += count,
            }
        }
        Ok(true)
    }

    /// Ends this direction.
    pub(super) fn shut(&self) -> io::Result<()> {
        self.tcp.shutdown(std::net::Shutdown::Write)
    }

    /// Adds what the kernel counted, and the switches that it does not report as set.
    pub(super) fn report(&self, task: &Task, report: &mut RoleReport) {
        if let Ok(counted) = tcp::statistics(self.tcp.as_fd()) {
            report.engine.counters.extend([
                ("tcp_retransmit_count".into(), counted.retransmit_count.into()),
                ("tcp_segments_sent_count".into(), counted.sent_count.into()),
                ("tcp_segments_with_payload_count".into(), counted.sent_with_payload_count.into()),
            ]);
        }
        let set = |switch: Switch, asked: bool, is_set: bool| {
            (asked && !is_set)
                .then(|| NotEffective::new(switch, "the kernel reads the option back as off"))
        };
        let nodelay = set(Switch::Nodelay, task.nodelay, self.tcp.nodelay().unwrap_or(false));
        let quickack = set(Switch::Quickack, task.quickack, self.has_quickack);
        let napi = || socket::incoming_napi_id(self.tcp.as_fd()).map(|id| id != 0);
        let busy = (task.busy_poll && !napi().unwrap_or(false)).then(|| {
            let why = "the socket's SO_INCOMING_NAPI_ID is 0: this driver names no NAPI instance, so \
                       there is nothing to poll";
            NotEffective::new(Switch::BusyPoll, why)
        });
        let all = nodelay.into_iter().chain(quickack).chain(busy);
        report.engine.not_effective.extend(all.map(|n| (n.switch, n.why)));
        report.engine.syscall_count += self.syscall_count;
    }
}

/// Digest of bytes, shortened to a counter.
pub(super) fn digest(parts: [&[u8]; 2]) -> u64 {
    let mut hash = Sha256::new();
    parts.into_iter().for_each(|part| hash.update(part));
    hash.finalize().iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}
