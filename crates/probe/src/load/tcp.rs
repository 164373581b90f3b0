//! A flood over connections: the server counts each, and answers with its counts when the client has ended it.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lab::BuiltInLoad;
use model::Throughput;
use sys::clock::monotonic_ns;
use sys::tcp::{self, Timeouts};
use sys::thread::start;

use super::{LoadError, LoadFigures};
use crate::peer::PeerError;

/// First bytes of a connection, so that a stranger's is closed.
const GREETING: &[u8; 16] = b"wirepath flood 1";
/// Bytes of a write, of a read, and that a connection may hold unsent at the end of the time.
const CHUNK_BYTES: usize = 128 << 10;
/// Longest wait for the path to take or to bring a byte.
const STALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest sleep of the server, so that it sees its end.
const POLL_TIMEOUT: Duration = Duration::from_millis(50);
/// Connections that are served at a time.
const CONNECTIONS_MAX: usize = 512;

/// Counts of the server on one connection: 24 bytes, big-endian.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    payload_bytes: u64,
    /// Of the server's clock.
    first_ns: u64,
    last_ns: u64,
}

impl Counts {
    fn to_wire(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        let fields = [self.payload_bytes, self.first_ns, self.last_ns];
        for (into, field) in bytes.chunks_exact_mut(8).zip(fields) {
            into.copy_from_slice(&field.to_be_bytes());
        }
        bytes
    }

    fn from_wire(bytes: [u8; 24]) -> Counts {
        let mut fields = bytes
            .chunks_exact(8)
            .map(|field| u64::from_be_bytes(field.try_into().expect("chunks of 8 bytes")));
        let mut next = || fields.next().unwrap_or_default();
        Counts { payload_bytes: next(), first_ns: next(), last_ns: next() }
    }
}

pub(super) fn serve(
    at: SocketAddr,
    stop: &AtomicBool,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<(), LoadError> {
    let listen = |source| PeerError::Listen { at, source };
    let listener = TcpListener::bind(at).map_err(listen)?;
    let timeouts = Timeouts { receive: POLL_TIMEOUT, send: STALL_TIMEOUT };
    tcp::set_timeouts(listener.as_fd(), timeouts).map_err(listen)?;
    tell(&format!("listening on {}", listener.local_addr().unwrap_or(at)));
    let served = AtomicUsize::new(0);
    thread::scope(|scope| {
        while !stop.load(Ordering::Relaxed) {
            // Without a descriptor left, too: connections end.
            let Ok((connection, _)) = listener.accept() else { continue };
            if served.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
                continue;
            }
            served.fetch_add(1, Ordering::Relaxed);
            let served = &served;
            // One that fails is closed without counts, which its client reports.
            let started = start(scope, "flood", move || {
                let counted = count(&connection, stop);
                served.fetch_sub(1, Ordering::Relaxed);
                counted.map_err(|error| error.to_string())
            });
            if started.refused().is_some() {
                served.fetch_sub(1, Ordering::Relaxed);
            }
        }
    });
    Ok(())
}

/// Counts the bytes of a connection to its end, and answers.
fn count(connection: &TcpStream, stop: &AtomicBool) -> io::Result<()> {
    let mut greeting = [0; GREETING.len()];
    let mut have = 0;
    while have < greeting.len() {
        match read(connection, &mut greeting[have..], stop)? {
            0 => return Ok(()),
            taken => have += taken,
        }
    }
    if greeting != *GREETING {
        return Ok(());
    }
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut counts = Counts { first_ns: monotonic_ns(), ..Counts::default() };
    loop {
        let taken = read(connection, &mut buffer, stop)?;
        if taken == 0 {
            break;
        }
        counts.last_ns = monotonic_ns();
        counts.payload_bytes += taken as u64;
    }
    (&*connection).write_all(&counts.to_wire())
}

/// Errors: nothing came for [`STALL_TIMEOUT`], or the run is over.
fn read(mut connection: &TcpStream, into: &mut [u8], stop: &AtomicBool) -> io::Result<usize> {
    let begun = Instant::now();
    loop {
        match connection.read(into) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                if begun.elapsed() > STALL_TIMEOUT || stop.load(Ordering::Relaxed) {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            read => return read,
        }
    }
}

/// One connection at its end.
struct Flow {
    sent_bytes: u64,
    counts: Counts,
    retransmit_count: u64,
}

pub(super) fn run(
    load: &BuiltInLoad,
    flows: u16,
    at: SocketAddr,
    time: Duration,
    stop: &AtomicBool,
) -> Result<LoadFigures, LoadError> {
    let timeouts = Timeouts { receive: STALL_TIMEOUT, send: STALL_TIMEOUT };
    let connected = (0..flows).map(|_| tcp::connect(at, timeouts)).collect::<io::Result<Vec<_>>>();
    let connected = connected.map_err(|source| LoadError::NoServer {
        at,
        load: *load,
        source: Some(source),
    })?;
    let begun_ns = monotonic_ns();
    let until = Instant::now() + time;
    let flows = thread::scope(|scope| {
        let running: Vec<_> = connected
            .iter()
            .map(|connection| start(scope, "flood", move || flood(connection, at, until, stop)))
            .collect();
        running.into_iter().map(|thread| thread.end()).collect::<Result<Vec<Flow>, LoadError>>()
    })?;
    let wall_ns = monotonic_ns() - begun_ns;
    let first_ns = flows.iter().map(|flow| flow.counts.first_ns).min().unwrap_or(0);
    let last_ns = flows.iter().map(|flow| flow.counts.last_ns).max().unwrap_or(0);
    let bytes = flows.iter().map(|flow| flow.sent_bytes).sum();
    Ok(LoadFigures {
        wall_ns,
        arrived: Throughput {
            interval_ns: last_ns.saturating_sub(first_ns),
            received_count: 0,
            payload_bytes: bytes,
        },
        sent_bytes: bytes,
        retransmit_count: Some(flows.iter().map(|flow| flow.retransmit_count).sum()),
        ..LoadFigures::default()
    })
}

/// Errors: the path takes no byte, or the server counted other bytes.
fn flood(
    mut connection: &TcpStream,
    at: SocketAddr,
    until: Instant,
    stop: &AtomicBool,
) -> Result<Flow, LoadError> {
    let failed = |what| move |source| LoadError::Tcp { at, what, source };
    // Bytes that are unsent at the end of the time delay the answer.
    tcp::limit_unsent(connection.as_fd(), CHUNK_BYTES as u32)
        .map_err(failed("TCP_NOTSENT_LOWAT"))?;
    connection.write_all(GREETING).map_err(failed("writing"))?;
    let chunk = vec![0x5a; CHUNK_BYTES];
    let mut sent_bytes = 0;
    while Instant::now() < until && !stop.load(Ordering::Relaxed) {
        match connection.write(&chunk) {
            Ok(count) => sent_bytes += count as u64,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(failed("the path took no byte")(e)),
        }
    }
    connection.shutdown(std::net::Shutdown::Write).map_err(failed("ending the stream"))?;
    let mut answer = [0; 24];
    connection.read_exact(&mut answer).map_err(failed("the server gave no counts"))?;
    let counts = Counts::from_wire(answer);
    if counts.payload_bytes != sent_bytes {
        let received_bytes = counts.payload_bytes;
        return Err(LoadError::Counts { at, sent_bytes, received_bytes });
    }
    let retransmit_count =
        tcp::statistics(connection.as_fd()).map_or(0, |counted| counted.retransmit_count.into());
    Ok(Flow { sent_bytes, counts, retransmit_count })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_a_connection_survive_the_wire() {
        let counts = Counts { payload_bytes: u64::MAX, first_ns: 1, last_ns: 1 << 40 };
        assert_eq!(Counts::from_wire(counts.to_wire()), counts);
    }

    #[test]
    fn a_stranger_gets_no_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        near.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        count(&far, &AtomicBool::new(false)).unwrap();
        drop(far);
        let mut answer = Vec::new();
        // The end of the connection, or its reset, as bytes were left unread.
        let _ = near.read_to_end(&mut answer);
        assert_eq!(answer, b"");
    }
}
