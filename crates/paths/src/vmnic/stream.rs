//! The host's end of a TCP stream: a Linux socket that sends or receives, and digests.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use ::io::rusage::ThreadUsage;
use sha2::{Digest, Sha256};
use wire::nettest::stream_byte;

/// Which way a stream goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the guest to the host.
    ToHost,
    /// From the host to the guest.
    ToGuest,
}

/// How long a stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// So many writes.
    Writes(u64),
    /// As many as fit in a time.
    For(Duration),
}

/// What passed at the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Passed {
    pub(super) bytes: u64,
    pub(super) digest: [u8; 32],
    pub(super) wall_ns: u64,
    pub(super) usage: ThreadUsage,
    pub(super) call_count: u64,
}

/// Silence after which the other end is taken for dead.
const PATIENCE: Duration = Duration::from_secs(20);

/// Accepts one connection and runs the host's end of the stream.
pub(super) fn serve(
    listener: &TcpListener,
    direction: Direction,
    size_bytes: usize,
    length: Length,
) -> io::Result<Passed> {
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let (begun, before) = (Instant::now(), ThreadUsage::now());
    let (digest, bytes, call_count) = match direction {
        Direction::ToHost => receive(&mut stream)?,
        Direction::ToGuest => send(&mut stream, size_bytes, length)?,
    };
    Ok(Passed {
        bytes,
        digest: digest.finalize().into(),
        wall_ns: begun.elapsed().as_nanos() as u64,
        usage: ThreadUsage::now().since(&before),
        call_count,
    })
}

fn receive(stream: &mut TcpStream) -> io::Result<(Sha256, u64, u64)> {
    let (mut digest, mut bytes, mut calls) = (Sha256::new(), 0, 0);
    let mut chunk = vec![0; 65_536];
    loop {
        let len = stream.read(&mut chunk)?;
        calls += 1;
        if len == 0 {
            return Ok((digest, bytes, calls));
        }
        digest.update(&chunk[..len]);
        bytes += len as u64;
    }
}

fn send(
    stream: &mut TcpStream,
    size_bytes: usize,
    length: Length,
) -> io::Result<(Sha256, u64, u64)> {
    let (mut digest, mut calls) = (Sha256::new(), 0);
    let chunk: Vec<u8> = (0..size_bytes).map(stream_byte).collect();
    let begun = Instant::now();
    let over = |calls: u64| match length {
        Length::Writes(count) => calls >= count,
        Length::For(time) => begun.elapsed() >= time,
    };
    while !over(calls) {
        stream.write_all(&chunk)?;
        digest.update(&chunk);
        calls += 1;
    }
    stream.shutdown(Shutdown::Write)?;
    // The other end closes when it has all.
    while stream.read(&mut [0; 64])? > 0 {}
    Ok((digest, calls * size_bytes as u64, calls))
}
