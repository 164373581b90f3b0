//! One connection as both ends use it.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::Instant;

use model::PathSwitch;
use sha2::{Digest, Sha256};
use sys::{socket, tcp};

use super::{STALL_TIMEOUT, Task};
use crate::Switch;
use crate::role::RoleReport;

/// A connection with the settings of a task, whose reads and writes have [`TIMEOUTS`](super::TIMEOUTS).
pub(super) struct Connection {
    tcp: TcpStream,
    spins: bool,
    quickack: bool,
    /// The kernel had the option on after it was first set.
    has_quickack: bool,
    pub(super) syscall_count: u64,
}

impl Connection {
    pub(super) fn new(tcp: TcpStream, task: &Task) -> io::Result<Connection> {
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
        Ok(Connection { tcp, spins, quickack, has_quickack, syscall_count: 0 })
    }

    pub(super) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.syscall_count += 1;
        (&self.tcp).write_all(bytes)
    }

    /// Reads what is there, at most `into`; 0 at the end of the connection. Waits at most [`STALL_TIMEOUT`], also when the run
    /// is over: the end of a connection can be late, and can be sent again.
    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut begun = None;
        loop {
            self.syscall_count += 1;
            let got = if self.spins {
                socket::receive_now(self.tcp.as_fd(), into)
            } else {
                (&self.tcp).read(into)
            };
            match got {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    let begun = *begun.get_or_insert_with(Instant::now);
                    if begun.elapsed() > STALL_TIMEOUT {
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
        let is_off = "the kernel reads the option back as off";
        let has_nodelay = self.tcp.nodelay().unwrap_or(false);
        let has_napi = socket::incoming_napi_id(self.tcp.as_fd()).is_ok_and(|id| id != 0);
        let no_napi = "the socket's SO_INCOMING_NAPI_ID is 0: this driver names no NAPI instance, so there is \
                       nothing to poll";
        for (switch, is_asked, is_set, why) in [
            (Switch::Nodelay, task.nodelay, has_nodelay, is_off),
            (Switch::Quickack, task.quickack, self.has_quickack, is_off),
            (Switch::BusyPoll, task.busy_poll, has_napi, no_napi),
        ] {
            if is_asked && !is_set {
                report.engine.not_effective.push((switch.id().to_owned(), why.to_owned()));
            }
        }
        report.engine.syscall_count += self.syscall_count;
    }
}

/// Digest of bytes, shortened to a counter.
pub(super) fn digest(parts: [&[u8]; 2]) -> u64 {
    let mut hash = Sha256::new();
    parts.into_iter().for_each(|part| hash.update(part));
    hash.finalize().iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}
