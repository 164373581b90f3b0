//! The end that accepts.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use lab::{RunCause, Signals, cost_of};
use model::{Delivery, Throughput};
use sys::clock::monotonic_ns;
use sys::rusage::ThreadUsage;
use sys::tcp;

use super::stream::{Connection, digest};
use super::{DIGEST, STALL_TIMEOUT, TAIL_BYTES, TIMEOUTS, Task, TcpTraffic};
use crate::role::RoleReport;

/// Counts of a run, added up at its end.
struct Counts<'a> {
    signals: &'a Signals<'a>,
    received_count: u64,
    sent_count: u64,
    payload_bytes: u64,
    syscall_count: u64,
    first_ns: u64,
    last_ns: u64,
    begun: ThreadUsage,
    report: RoleReport,
}

pub(super) fn serve(
    task: &Task,
    at: SocketAddr,
    signals: &Signals<'_>,
    received_count: &AtomicU64,
) -> Result<RoleReport, RunCause> {
    let failed = |e: io::Error| format!("TCP on {at}: {e}");
    let listener = TcpListener::bind(at).map_err(failed)?;
    if task.spins {
        listener.set_nonblocking(true).map_err(failed)?;
    }
    tcp::set_timeouts(listener.as_fd(), TIMEOUTS).map_err(failed)?;
    let delayed = delayed_ack_count();
    signals.ready();
    let mut counts = Counts {
        signals,
        received_count: 0,
        sent_count: 0,
        payload_bytes: 0,
        syscall_count: 0,
        first_ns: 0,
        last_ns: 0,
        begun: ThreadUsage::counted(),
        report: RoleReport::default(),
    };
    match task.traffic {
        TcpTraffic::Ping => counts.ping(task, &listener),
        TcpTraffic::Connect => counts.connect(task, &listener),
        TcpTraffic::Flood => counts.flood(task, &listener),
    }
    .map_err(failed)?;
    received_count.store(counts.received_count, Ordering::Relaxed);
    let mut report = counts.into_report();
    if let (Some(before), Some(after)) = (delayed, delayed_ack_count()) {
        let count = after.saturating_sub(before);
        report.engine.counters.push(("tcp_delayed_ack_count".into(), count));
    }
    Ok(report)
}

impl Counts<'_> {
    fn accept(&mut self, listener: &TcpListener) -> io::Result<Option<TcpStream>> {
        let begun = Instant::now();
        loop {
            self.syscall_count += 1;
            match listener.accept() {
                Ok((stream, _)) => return Ok(Some(stream)),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    if self.signals.is_stopped() {
                        return Ok(None);
                    }
                    if begun.elapsed() > STALL_TIMEOUT {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Records an arrival: CPU time before the first one was waiting, not work.
    fn seen(&mut self, payload_bytes: usize) {
        self.last_ns = monotonic_ns();
        if self.first_ns == 0 {
            self.first_ns = self.last_ns;
            self.begun = ThreadUsage::counted();
        }
        self.payload_bytes += payload_bytes as u64;
    }

    fn ping(&mut self, task: &Task, listener: &TcpListener) -> io::Result<()> {
        let Some(stream) = self.accept(listener)? else { return Ok(()) };
        let mut stream = Connection::new(stream, task)?;
        let mut message = vec![0; task.message_bytes];
        while stream.read_whole(&mut message)? {
            stream.write_all(&message)?;
            self.seen(message.len());
            self.received_count += 1;
            self.sent_count += 1;
        }
        stream.report(task, &mut self.report);
        Ok(())
    }

    fn connect(&mut self, task: &Task, listener: &TcpListener) -> io::Result<()> {
        while let Some(stream) = self.accept(listener)? {
            let mut stream = Connection::new(stream, task)?;
            let mut byte = [0];
            if stream.read_whole(&mut byte)? {
                stream.write_all(&byte)?;
                self.seen(1);
                self.received_count += 1;
                self.sent_count += 1;
            }
            // And close(2).
            self.syscall_count += stream.syscall_count + 1;
        }
        Ok(())
    }

    fn flood(&mut self, task: &Task, listener: &TcpListener) -> io::Result<()> {
        let Some(stream) = self.accept(listener)? else { return Ok(()) };
        let mut stream = Connection::new(stream, task)?;
        // A ring, so that the end of the stream is there to be digested.
        let tail_bytes = TAIL_BYTES.next_multiple_of(task.message_bytes);
        let mut ring = vec![0; tail_bytes];
        let mut at = 0;
        loop {
            let count = stream.read(&mut ring[at..])?;
            if count == 0 {
                break;
            }
            self.seen(count);
            at = (at + count) % tail_bytes;
        }
        self.received_count = self.payload_bytes / task.message_bytes as u64;
        let whole = self.payload_bytes >= tail_bytes as u64;
        let parts: [&[u8]; 2] = if whole { [&ring[at..], &ring[..at]] } else { [&ring[..at], &[]] };
        self.report.engine.counters.push((DIGEST.into(), digest(parts)));
        stream.report(task, &mut self.report);
        Ok(())
    }

    fn into_report(self) -> RoleReport {
        let used = ThreadUsage::counted().since(&self.begun);
        let interval_ns = self.last_ns - self.first_ns;
        let mut report = self.report;
        report.sent_count = self.sent_count;
        report.arrived = Delivery { received_count: self.received_count, ..Delivery::default() };
        report.throughput = Throughput {
            interval_ns,
            received_count: self.received_count,
            payload_bytes: self.payload_bytes,
        };
        report.cost = cost_of(&used);
        report.engine.syscall_count += self.syscall_count;
        report.cost.syscall_count = Some(report.engine.syscall_count);
        report.wall_ns = interval_ns;
        report.engine.counters.push(("tcp_payload_bytes".into(), self.payload_bytes));
        report
    }
}

/// Acknowledgements that the kernel delayed until its timer fired, in this network namespace.
///
/// Source: TcpExt DelayedACKs of /proc/net/netstat, kernel documentation, networking/snmp_counter.rst.
fn delayed_ack_count() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/net/netstat").ok()?;
    host::net::snmp_counter(&text, "TcpExt", "DelayedACKs")
}
