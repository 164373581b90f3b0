//! TCP streams between the guest's stack and a Linux socket, digested at both ends.

use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use model::Arm;
use wire::nettest::{Mode, STREAM_PORT, report};

use super::ends::{Ends, MAC, Wire};
use super::guest::{PATIENCE, RAM_BYTES, RING_LOG2, run_guest};
use super::stream::{self, Passed};
pub use super::stream::{Direction, Length};
use super::vmm::{Snapshot, Spec, Task};
use super::{image, switches};
use crate::path::PathError;

/// For a stream of given length, however slow.
const LONG: Duration = Duration::from_secs(600);
/// Bytes of a write.
const WRITE_BYTES: usize = 50_000;

/// A stream on which both ends agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Streamed {
    /// Bytes that passed.
    pub bytes: u64,
    /// Their SHA-256, the same at both ends.
    pub digest: [u8; 32],
    /// Time at the host's end, nanoseconds.
    pub wall_ns: u64,
}

/// Sends at least `bytes` one way through a lab and a guest of its own, with the switches of
/// `arm`.
///
/// Errors: what is missing on this host; and when one end saw other bytes than the other.
pub fn run(arm: &Arm, direction: Direction, bytes: u64) -> Result<Streamed, PathError> {
    let image = image::load().map_err(PathError::part)?;
    let length = Length::Writes(bytes.div_ceil(WRITE_BYTES as u64));
    let stream = Stream { direction, size_bytes: WRITE_BYTES, length };
    let (_, passed, _) = stream.through(&Ends::new()?, &image, arm)?;
    Ok(Streamed { bytes: passed.bytes, digest: passed.digest, wall_ns: passed.wall_ns })
}

/// A TCP stream to be run.
pub(super) struct Stream {
    pub(super) direction: Direction,
    /// Bytes of a write.
    pub(super) size_bytes: usize,
    pub(super) length: Length,
}

impl Stream {
    /// Runs it with the switches of an arm; fails unless both ends agree on every byte.
    pub(super) fn through(
        &self,
        ends: &Ends,
        image: &[u8],
        arm: &Arm,
    ) -> Result<(Snapshot, Passed, &'static str), PathError> {
        let switches = switches::of_arm(arm);
        let Wire { sender, receiver, far, guest_ip, mode } = ends.open(switches.shared_ring)?;
        let address = (far.ip, STREAM_PORT);
        let listener = far.run(|| TcpListener::bind(address)).map_err(PathError::part)?;
        let listener = listener.map_err(PathError::part)?;
        let (count, time, patience) = match self.length {
            Length::Writes(count) => (count, Duration::ZERO, LONG),
            Length::For(time) => (0, time, time + PATIENCE),
        };
        let task = Task {
            mode: match self.direction {
                Direction::ToHost => Mode::TcpSend,
                Direction::ToGuest => Mode::TcpReceive,
            },
            count,
            duration_us: time.as_micros() as u64,
            digest: true,
            tx_ring_log2: RING_LOG2,
            rx_ring_log2: RING_LOG2,
            ip: guest_ip,
            peer_ip: far.ip,
            ..Task::send(self.size_bytes as u64, 0)
        };
        let spec = Spec { image, ram_bytes: RAM_BYTES, mac: MAC, task, switches };
        let (measured, passed) = thread::scope(|scope| {
            let end = scope
                .spawn(|| stream::serve(&listener, self.direction, self.size_bytes, self.length));
            let measured = run_guest(&spec, sender, receiver, patience);
            if measured.is_err() {
                // Whoever waits for a connection is let go.
                let _ = far.run(|| TcpStream::connect(address).map(drop));
            }
            (measured, end.join())
        });
        let measured = measured?;
        let host_end = |why: String| PathError::End { end: "host".into(), why };
        let passed = passed.map_err(|_| host_end("panicked".into()))?;
        let passed = passed.map_err(|e| host_end(e.to_string()))?;
        let told = &measured.report;
        let digest: Vec<u8> =
            told[report::DIGEST..report::DIGEST + 4].iter().flat_map(|w| w.to_le_bytes()).collect();
        if told[report::STREAM_BYTES] != passed.bytes || digest != passed.digest {
            return Err(host_end(format!(
                "the stream is not what the guest's end says: {} bytes here, {} there",
                passed.bytes,
                told[report::STREAM_BYTES]
            )));
        }
        Ok((measured, passed, mode))
    }
}
