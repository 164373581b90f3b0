//! The end that connects.

use std::io;
use std::net::SocketAddr;

use hdrhistogram::Histogram;
use lab::{RunCause, cost_of};
use model::{Delivery, Throughput};
use sys::clock::monotonic_ns;
use sys::rusage::ThreadUsage;
use sys::tcp;
use wire::probe::HEADER_BYTES;

use super::stream::{Connection, digest};
use super::{DIGEST, TAIL_BYTES, TIMEOUTS, Task, TcpTraffic};
use crate::role::RoleReport;

/// Counts of a run, added up at its end.
struct Counts {
    sent_count: u64,
    answered_count: u64,
    payload_bytes: u64,
    syscall_count: u64,
    latency: Histogram<u64>,
    begun_ns: u64,
    until_ns: u64,
    begun: ThreadUsage,
}

impl Counts {
    fn start(task: &Task) -> Counts {
        let begun_ns = monotonic_ns();
        Counts {
            sent_count: 0,
            answered_count: 0,
            payload_bytes: 0,
            syscall_count: 0,
            latency: model::latency_histogram(),
            begun_ns,
            until_ns: begun_ns + task.duration.as_nanos() as u64,
            begun: ThreadUsage::counted(),
        }
    }

    fn into_report(self, segment: Option<&str>) -> RoleReport {
        let wall_ns = monotonic_ns() - self.begun_ns;
        let mut report = RoleReport {
            sent_count: self.sent_count,
            arrived: Delivery { received_count: self.answered_count, ..Delivery::default() },
            throughput: Throughput {
                interval_ns: wall_ns,
                received_count: self.answered_count,
                payload_bytes: self.payload_bytes,
            },
            cost: cost_of(&ThreadUsage::counted().since(&self.begun)),
            wall_ns,
            ..RoleReport::default()
        };
        if let Some(segment) = segment {
            report.segments.insert(segment.into(), self.latency);
        }
        report.engine.syscall_count = self.syscall_count;
        report.engine.counters.push(("tcp_payload_bytes".into(), self.payload_bytes));
        report
    }
}

pub(super) fn run(task: &Task, to: SocketAddr) -> Result<RoleReport, RunCause> {
    let mut report = match task.traffic {
        TcpTraffic::Ping => ping(task, to),
        TcpTraffic::Connect => connect(task, to),
        TcpTraffic::Flood => flood(task, to),
    }
    .map_err(|e| format!("TCP to {to}: {e}"))?;
    report.cost.syscall_count = Some(report.engine.syscall_count);
    Ok(report)
}

fn open(task: &Task, to: SocketAddr) -> io::Result<Connection> {
    Connection::new(tcp::connect(to, TIMEOUTS)?, task)
}

fn ping(task: &Task, to: SocketAddr) -> io::Result<RoleReport> {
    let mut stream = open(task, to)?;
    let request = vec![0x5a; task.message_bytes];
    let (header, body) = request.split_at(HEADER_BYTES);
    let mut answer = vec![0; task.message_bytes];
    let mut counts = Counts::start(task);
    loop {
        let sent_ns = monotonic_ns();
        if sent_ns >= counts.until_ns {
            break;
        }
        stream.write_all(header)?;
        stream.write_all(body)?;
        counts.sent_count += 1;
        counts.payload_bytes += task.message_bytes as u64;
        if !stream.read_whole(&mut answer)? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        counts.latency.saturating_record((monotonic_ns() - sent_ns).max(1));
        counts.answered_count += 1;
    }
    let mut report = counts.into_report(Some("rtt"));
    stream.report(task, &mut report);
    stream.shut()?;
    Ok(report)
}

fn connect(task: &Task, to: SocketAddr) -> io::Result<RoleReport> {
    let mut counts = Counts::start(task);
    let mut last = None;
    loop {
        let begun_ns = monotonic_ns();
        if begun_ns >= counts.until_ns {
            break;
        }
        let mut stream = open(task, to)?;
        stream.write_all(&[1])?;
        counts.sent_count += 1;
        counts.payload_bytes += 1;
        let mut answer = [0];
        if !stream.read_whole(&mut answer)? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        counts.latency.saturating_record((monotonic_ns() - begun_ns).max(1));
        counts.answered_count += 1;
        // The far end closes first, so that its port waits out the old connection, not one of ours.
        if stream.read(&mut answer)? > 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // socket(2), two options, connect(2), close(2).
        counts.syscall_count += stream.syscall_count + 5;
        stream.syscall_count = 0;
        last = Some(stream);
    }
    let mut report = counts.into_report(Some("connect"));
    if let Some(stream) = last {
        stream.report(task, &mut report);
    }
    Ok(report)
}

fn flood(task: &Task, to: SocketAddr) -> io::Result<RoleReport> {
    let mut stream = open(task, to)?;
    let message = vec![0x5a; task.message_bytes];
    let tail = tail(task);
    let mut counts = Counts::start(task);
    while monotonic_ns() < counts.until_ns {
        stream.write_all(&message)?;
        counts.sent_count += 1;
        counts.payload_bytes += message.len() as u64;
    }
    let syscalls = stream.syscall_count;
    let mut report = counts.into_report(None);
    // Outside of the measured time.
    for message in tail.chunks(task.message_bytes) {
        stream.write_all(message)?;
    }
    stream.shut()?;
    // The far end closes when it has everything; then nothing is left to be sent again.
    stream.read(&mut [0])?;
    stream.syscall_count = syscalls;
    stream.report(task, &mut report);
    report.sent_count += (tail.len() / task.message_bytes) as u64;
    for (name, count) in &mut report.engine.counters {
        if name == "tcp_payload_bytes" {
            *count += tail.len() as u64;
        }
    }
    report.engine.counters.push((DIGEST.into(), digest([&tail, &[]])));
    Ok(report)
}

/// Bytes that differ from run to run and from place to place, whole messages.
fn tail(task: &Task) -> Vec<u8> {
    let len = TAIL_BYTES.next_multiple_of(task.message_bytes);
    let mut state = task.seed;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        // Source: Steele, Lea and Flood, SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bytes.extend_from_slice(&(mixed ^ mixed >> 31).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
