//! TCP streams between the guest's stack and a Linux socket, digested at both ends.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use host::lab::End;
use model::Arm;
use wire::nettest::{Mode, STREAM_PORT, report};

use super::ends::{BackEnd, Ends, MAC, Wire};
use super::guest::{PATIENCE, RAM_BYTES, RING_LOG2, run_guest};
use super::stream::{self, Passed};
pub use super::stream::{Direction, Length};
use super::vmm::{Snapshot, Spec, Task};
use super::{image, qemu, switches};
use crate::path::PathError;
use crate::text::chain;

/// For a stream of given length, however slow.
const LONG: Duration = Duration::from_secs(600);
/// Bytes of a write.
const WRITE_BYTES: usize = 50_000;

/// A stream as each of its ends saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Streamed {
    /// Bytes that the host's end sent or received.
    pub host_bytes: u64,
    /// Bytes that the guest's end did.
    pub guest_bytes: u64,
    /// Their SHA-256, by the host's end.
    pub host_digest: [u8; 32],
    /// By the guest's end.
    pub guest_digest: [u8; 32],
    /// Time at the host's end, nanoseconds.
    pub wall_ns: u64,
    /// The back end that it went through.
    pub backend: &'static str,
}

impl Streamed {
    /// Whether both ends saw the same bytes.
    pub fn is_equal(&self) -> bool {
        self.host_bytes == self.guest_bytes && self.host_digest == self.guest_digest
    }

    fn of(told: &[u64; report::LEN], passed: &Passed, backend: &'static str) -> Self {
        let mut guest_digest = [0; 32];
        let words = &told[report::DIGEST..report::DIGEST + 4];
        for (bytes, word) in guest_digest.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        Streamed {
            host_bytes: passed.bytes,
            guest_bytes: told[report::STREAM_BYTES],
            host_digest: passed.digest,
            guest_digest,
            wall_ns: passed.wall_ns,
            backend,
        }
    }
}

/// Sends `bytes`, rounded up to whole writes, one way through a lab and a guest of its own, with
/// the switches of `arm`. What both ends saw is for the caller to compare.
///
/// Errors: what is missing on this host; an end that failed.
pub fn run(arm: &Arm, direction: Direction, bytes: u64) -> Result<Streamed, PathError> {
    let image = image::load().map_err(PathError::part)?;
    let length = Length::Writes(bytes.div_ceil(WRITE_BYTES as u64));
    let stream = Stream { direction, size_bytes: WRITE_BYTES, length };
    let (measured, passed, mode) = stream.pass(&Ends::new()?, &image, arm)?;
    Ok(Streamed::of(&measured.report, &passed, mode))
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
        let (measured, passed, mode) = self.pass(ends, image, arm)?;
        agreed(&Streamed::of(&measured.report, &passed, mode))?;
        Ok((measured, passed, mode))
    }

    /// Runs it with the guest on QEMU's device; fails as the other does.
    pub(super) fn through_qemu(
        &self,
        card: qemu::Card,
        ends: &Ends,
        image: &[u8],
    ) -> Result<(qemu::Ran, Passed), PathError> {
        let (tap, guest_ip) = ends.tap();
        let far = ends.far(BackEnd::Tap);
        let (ran, passed) = self.between(far, guest_ip, |task, patience| {
            qemu::run(card, image, &task, tap, patience)
        })?;
        agreed(&Streamed::of(&ran.report, &passed, "TAP"))?;
        Ok((ran, passed))
    }

    fn pass(
        &self,
        ends: &Ends,
        image: &[u8],
        arm: &Arm,
    ) -> Result<(Snapshot, Passed, &'static str), PathError> {
        let switches = switches::of_arm(arm);
        let wire = ends.open(BackEnd::of(&switches))?;
        let Wire { sender, receiver, far, guest_ip, mode } = wire;
        let (measured, passed) = self.between(far, guest_ip, |task, patience| {
            let spec = Spec { image, ram_bytes: RAM_BYTES, mac: MAC, task, switches };
            run_guest(&spec, sender, receiver, patience)
        })?;
        Ok((measured, passed, mode))
    }

    /// The host's end at `far`, and a guest that `run` runs.
    fn between<G>(
        &self,
        far: &End,
        guest_ip: Ipv4Addr,
        run: impl FnOnce(Task, Duration) -> Result<G, PathError>,
    ) -> Result<(G, Passed), PathError> {
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
        let (ran, passed) = thread::scope(|scope| {
            let end = scope
                .spawn(|| stream::serve(&listener, self.direction, self.size_bytes, self.length));
            let ran = run(task, patience);
            if ran.is_err() {
                // Whoever waits for a connection is let go.
                let _ = far.run(|| TcpStream::connect(address).map(drop));
            }
            (ran, end.join())
        });
        let passed = passed
            .map_err(|_| host_end("panicked".into()))
            .and_then(|passed| passed.map_err(|e| host_end(chain(&e))));
        match (ran, passed) {
            (Ok(ran), Ok(passed)) => Ok((ran, passed)),
            (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
            // One of them is why the other failed.
            (Err(ran), Err(passed)) => {
                let why = format!("{}; {}", chain(&passed), chain(&ran));
                Err(PathError::End { end: "stream".into(), why })
            }
        }
    }
}

fn agreed(streamed: &Streamed) -> Result<(), PathError> {
    if streamed.is_equal() {
        return Ok(());
    }
    let Streamed { host_bytes, guest_bytes, .. } = streamed;
    Err(host_end(format!(
        "the stream is not what the guest's end says: {host_bytes} bytes here, {guest_bytes} there"
    )))
}

fn host_end(why: String) -> PathError {
    PathError::End { end: "host".into(), why }
}
