//! TCP streams between the guest's stack and a Linux socket, digested at both ends if asked to.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use guest_pages::{Mode, STREAM_PORT, report};
use lab::End;
use model::Arm;

use super::host_stream::{self, Passed};
pub use super::host_stream::{Length, StreamDirection};
use super::run_guest::{BOOT_TIMEOUT, RING_LOG2, Ran, run_guest, spec};
use super::topology::{BackEnd, Topology, Wire};
use super::{image, qemu};
use host::text::chain;
use model::PathError;
use vmm::GuestTask;

/// Time limit of a stream of given length.
const COUNTED_TIMEOUT: Duration = Duration::from_secs(600);
const WRITE_BYTES: usize = 50_000;

/// Time for which the last listener may live on. A monitor that another session of this process forks at
/// that moment has a copy of it, which it closes once it has its own descriptors.
const REBIND_TIMEOUT: Duration = Duration::from_secs(10);

/// Listens for the guest's stream.
fn listen(ip: Ipv4Addr) -> io::Result<TcpListener> {
    let begun = Instant::now();
    loop {
        match TcpListener::bind((ip, STREAM_PORT)) {
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse && begun.elapsed() < REBIND_TIMEOUT =>
            {
                thread::sleep(Duration::from_millis(1));
            }
            listener => return listener,
        }
    }
}

/// Counts and digests of a stream at both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Streamed {
    pub host_bytes: u64,
    pub guest_bytes: u64,
    /// SHA-256 at the host; zeros, as in the guest, if the stream was not digested.
    pub host_digest: [u8; 32],
    /// SHA-256 in the guest.
    pub guest_digest: [u8; 32],
    /// Duration at the host.
    pub wall_ns: u64,
    pub backend: &'static str,
}

impl Streamed {
    /// True if both ends have the same bytes.
    pub fn is_equal(&self) -> bool {
        self.host_bytes == self.guest_bytes && self.host_digest == self.guest_digest
    }

    fn new(page: &[u64; report::LEN], passed: &Passed, backend: &'static str) -> Self {
        let mut guest_digest = [0; 32];
        let words = &page[report::DIGEST..report::DIGEST + 4];
        for (bytes, word) in guest_digest.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        Streamed {
            host_bytes: passed.bytes,
            guest_bytes: page[report::STREAM_BYTES],
            host_digest: passed.digest,
            guest_digest,
            wall_ns: passed.wall_ns,
            backend,
        }
    }
}

/// Sends `bytes`, rounded up to whole writes, in one direction through a new lab and guest with the
/// switches of `arm`. The caller compares both ends.
///
/// Errors: missing support on this host; an end that failed.
pub fn run(arm: &Arm, direction: StreamDirection, bytes: u64) -> Result<Streamed, PathError> {
    let image = image::load().map_err(PathError::part)?;
    let length = Length::Writes(bytes.div_ceil(WRITE_BYTES as u64));
    let stream = Stream { direction, size_bytes: WRITE_BYTES, length, is_digested: true };
    let (ran, passed, mode) = stream.pass(&Topology::new()?, &image, arm)?;
    Ok(Streamed::new(&ran.measured.report, &passed, mode))
}

/// Parameters of a TCP stream.
pub(super) struct Stream {
    pub(super) direction: StreamDirection,
    /// Bytes of a write.
    pub(super) size_bytes: usize,
    pub(super) length: Length,
    /// Both ends compute the SHA-256 of the stream. In the guest it takes longer than the rest of the
    /// fast arms, so judged trials go without.
    pub(super) is_digested: bool,
}

impl Stream {
    /// Runs the stream with the switches of an arm. Errors: the ends differ.
    pub(super) fn through(
        &self,
        ends: &Topology,
        image: &[u8],
        arm: &Arm,
    ) -> Result<(Ran, Passed, &'static str), PathError> {
        let (ran, passed, mode) = self.pass(ends, image, arm)?;
        agreed(&Streamed::new(&ran.measured.report, &passed, mode))?;
        Ok((ran, passed, mode))
    }

    /// Runs the stream with the guest on QEMU's device. Errors: the ends differ.
    pub(super) fn through_qemu(
        &self,
        card: qemu::QemuCard,
        ends: &Topology,
        image: &[u8],
    ) -> Result<(qemu::Ran, Passed), PathError> {
        let (tap, guest_ip) = ends.tap();
        let far = ends.far(BackEnd::Tap);
        let (ran, passed) = self.between(far, guest_ip, |task, patience| {
            qemu::run(card, image, &task, tap, patience)
        })?;
        agreed(&Streamed::new(&ran.report, &passed, "TAP"))?;
        Ok((ran, passed))
    }

    fn pass(
        &self,
        ends: &Topology,
        image: &[u8],
        arm: &Arm,
    ) -> Result<(Ran, Passed, &'static str), PathError> {
        let back_end = BackEnd::new(arm);
        let Wire { far, guest_ip, mode } = ends.wire(back_end);
        let (ran, passed) = self.between(far, guest_ip, |task, patience| {
            run_guest(&spec(image, arm, task), |ram| ends.open(back_end, Some(ram)), patience)
        })?;
        Ok((ran, passed, mode))
    }

    /// Runs the host's end at `far` and a guest by `run`.
    fn between<G>(
        &self,
        far: &End,
        guest_ip: Ipv4Addr,
        run: impl FnOnce(GuestTask, Duration) -> Result<G, PathError>,
    ) -> Result<(G, Passed), PathError> {
        let listener = far.run(|| listen(far.ip)).map_err(PathError::part)?;
        let listener = listener.map_err(PathError::part)?;
        let (count, time, patience) = match self.length {
            Length::Writes(count) => (count, Duration::ZERO, COUNTED_TIMEOUT),
            Length::For(time) => (0, time, time + BOOT_TIMEOUT),
        };
        let task = GuestTask {
            mode: match self.direction {
                StreamDirection::ToHost => Mode::TcpSend,
                StreamDirection::ToGuest => Mode::TcpReceive,
            },
            count,
            duration_us: time.as_micros() as u64,
            digest: self.is_digested,
            tx_ring_log2: RING_LOG2,
            rx_ring_log2: RING_LOG2,
            ip: guest_ip,
            peer_ip: far.ip,
            ..GuestTask::send(self.size_bytes as u64, 0)
        };
        let (ran, passed) = thread::scope(|scope| {
            let end = scope.spawn(|| {
                let &Stream { direction, size_bytes, length, is_digested, .. } = self;
                host_stream::serve(&listener, direction, size_bytes, length, is_digested)
            });
            let ran = run(task, patience);
            if ran.is_err() {
                // Ends accept() at the host.
                let _ = far.run(|| TcpStream::connect((far.ip, STREAM_PORT)).map(drop));
            }
            (ran, end.join())
        });
        let passed = passed
            .map_err(|_| host_end("panicked".into()))
            .and_then(|passed| passed.map_err(|e| host_end(chain(&e))));
        match (ran, passed) {
            (Ok(ran), Ok(passed)) => Ok((ran, passed)),
            (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
            // Either may have caused the other.
            (Err(ran), Err(passed)) => {
                let why = format!("{}; {}", chain(&passed), chain(&ran));
                Err(PathError::at("stream", why))
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
        "the stream differs: {host_bytes} bytes at the host, {guest_bytes} in the guest"
    )))
}

fn host_end(why: String) -> PathError {
    PathError::at("host", why)
}
