//! Messages of the control connection, their framing, and authentication by a shared secret.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hmac::{Hmac, Mac};
use lab::HostTime;
use model::{Cost, Delivery, Machine, Throughput, latency_histogram};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use sys::thread::start;

use crate::role::{RoleReport, Task};

/// TCP port of `wirepath peer`.
pub const DEFAULT_PORT: u16 = 7117;
/// Protocol version; both ends must use the same one.
pub(super) const PROTOCOL: u32 = 3;
/// Longest line accepted from an authenticated end.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Longest line accepted during the handshake.
const GREETING_BYTES_MAX: usize = 4096;
/// Maximum number of segments in a report; roles record two.
const SEGMENT_COUNT_MAX: usize = 8;
/// Maximum number of samples in a segment: years of traffic, and sums cannot overflow.
const SAMPLE_COUNT_MAX: u64 = 1 << 53;
/// Time limit for one line, from the start of the wait to its last byte.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// Interval between checks that the other end is still connected.
const WATCH_PAUSE: Duration = Duration::from_millis(20);

/// Failure of the control connection or of the far end.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// Connection refused or timed out.
    #[error("no wirepath peer answers at {at}; start one there: wirepath peer --listen {at}")]
    NotThere {
        at: SocketAddr,
        #[source]
        source: io::Error,
    },
    /// The name does not resolve to an IPv4 address.
    #[error("cannot resolve {host} to an IPv4 address")]
    Unknown { host: String },
    /// The secrets differ, or one end has none.
    #[error("the peer at {at} refused the connection: {why}")]
    Refused { at: SocketAddr, why: String },
    /// The other end uses another protocol version.
    #[error(
        "the peer uses protocol version {theirs}, this host {PROTOCOL}; run the same wirepath version at both ends"
    )]
    Version { theirs: u32 },
    /// The other end reported a failure.
    #[error("far end: {why}")]
    Far { why: String },
    /// A line that is not a valid message.
    #[error("invalid message on the control connection: {what}")]
    Garbled { what: String },
    /// The connection broke.
    #[error("the control connection broke; is the peer still running?")]
    Broken {
        #[source]
        source: io::Error,
    },
    /// The other end is connected, and sent nothing in time.
    #[error(
        "the peer did not answer within {} s; its host is busy, or its link stopped: try again, and lower \
         the load there (top, dmesg)",
        .within.as_secs_f64()
    )]
    Late { within: Duration },
    /// Capabilities or system calls could not be restricted.
    #[error("the peer could not drop privileges that it does not need")]
    Confine {
        #[source]
        source: io::Error,
    },
    /// The listening socket could not be opened.
    #[error(
        "cannot listen on {at}; if another peer runs there, choose another address with --listen"
    )]
    Listen {
        at: SocketAddr,
        #[source]
        source: io::Error,
    },
}

/// First line of the far end.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) wirepath_peer: u32,
    pub(super) version: String,
    /// Random; the near end must answer it with a proof if `secret` is true.
    pub(super) challenge: String,
    pub(super) secret: bool,
}

/// First line of the near end.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answer {
    pub(super) challenge: String,
    pub(super) proof: Option<String>,
}

/// Settings of an end's host and thread during a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// CPUs of the end; empty for all that its process may use.
    pub cpus: Vec<usize>,
    /// The end stays on the first of them.
    pub is_pinned: bool,
    /// CPUs stay out of idle states.
    pub stays_awake: bool,
}

/// Facts about the host of the far end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct HostFacts {
    pub(super) machine: Machine,
    /// Equal for ends on one machine, and different after each boot. It is not stored.
    ///
    /// Source: random(4), /proc/sys/kernel/random/boot_id.
    pub(super) boot_id: Option<String>,
}

/// Request of the near end.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ask {
    /// Open the engine and start a run.
    Run {
        task: Task,
        #[serde(default)]
        settings: Settings,
        near_port: u16,
        port: u16,
    },
    /// End the run and report.
    Stop,
}

/// Reply of the far end.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Say {
    /// Accepted; `proof` authenticates the far end if there is a secret.
    Welcome { proof: Option<String>, host: Option<Box<HostFacts>> },
    /// The engine is open.
    Ready { ip: Ipv4Addr, port: u16, ifname: String, mode: String },
    /// The run is over.
    Report {
        report: Box<WireReport>,
        /// CPU time of the far host during the run.
        #[serde(default)]
        host_time: Option<HostTime>,
    },
    /// The request failed.
    Error { why: String },
}

/// Serialised form of a [`RoleReport`].
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct WireReport {
    sent_count: u64,
    arrived: Delivery,
    too_old_count: u64,
    stray_count: u64,
    throughput: Throughput,
    jitter_ns: Option<u64>,
    /// By segment: (nanoseconds, count).
    segments: BTreeMap<String, Vec<(u64, u64)>>,
    cost: Cost,
    wall_ns: u64,
    mode: Vec<(String, String)>,
    counters: Vec<(String, u64)>,
    not_effective: Vec<(String, String)>,
    ledger_unbalanced: Option<bool>,
}

impl From<RoleReport> for WireReport {
    fn from(r: RoleReport) -> Self {
        let buckets = |h: hdrhistogram::Histogram<u64>| {
            h.iter_recorded()
                .map(|v| (v.value_iterated_to(), v.count_at_value()))
                .collect::<Vec<_>>()
        };
        WireReport {
            sent_count: r.sent_count,
            arrived: r.arrived,
            too_old_count: r.too_old_count,
            stray_count: r.stray_count,
            throughput: r.throughput,
            jitter_ns: r.jitter_ns,
            segments: r.segments.into_iter().map(|(k, h)| (k, buckets(h))).collect(),
            cost: r.cost,
            wall_ns: r.wall_ns,
            mode: r.engine.mode,
            counters: r.engine.counters,
            not_effective: r.engine.not_effective,
            ledger_unbalanced: r.engine.ledger.map(|l| !l.balances()),
        }
    }
}

impl TryFrom<WireReport> for RoleReport {
    type Error = PeerError;

    fn try_from(w: WireReport) -> Result<Self, PeerError> {
        // Each allocates a histogram of 200 KiB, however short its line.
        if w.segments.len() > SEGMENT_COUNT_MAX {
            let what = format!("a report of {} segments", w.segments.len());
            return Err(PeerError::Garbled { what });
        }
        let mut report = RoleReport {
            sent_count: w.sent_count,
            arrived: w.arrived,
            too_old_count: w.too_old_count,
            stray_count: w.stray_count,
            throughput: w.throughput,
            jitter_ns: w.jitter_ns,
            cost: bounded(w.cost),
            wall_ns: w.wall_ns,
            ..RoleReport::default()
        };
        for (segment, buckets) in w.segments {
            let mut histogram = latency_histogram();
            let total = buckets.iter().try_fold(0u64, |sum, (_, count)| sum.checked_add(*count));
            if total.is_none_or(|total| total > SAMPLE_COUNT_MAX) {
                let what = format!("a report of too many samples of {segment}");
                return Err(PeerError::Garbled { what });
            }
            for (value_ns, count) in buckets {
                histogram.saturating_record_n(value_ns.max(1), count);
            }
            report.segments.insert(segment, histogram);
        }
        report.engine.mode = w.mode;
        report.engine.counters = w.counters;
        report.engine.not_effective = w.not_effective;
        if let Some(unbalanced) = w.ledger_unbalanced {
            let count = u64::from(unbalanced);
            report.engine.counters.push(("ledger_unbalanced_count".into(), count));
        }
        Ok(report)
    }
}

/// A cost whose sums cannot overflow: the far end may send any number.
fn bounded(cost: Cost) -> Cost {
    Cost {
        user_ns: cost.user_ns.min(SAMPLE_COUNT_MAX),
        system_ns: cost.system_ns.min(SAMPLE_COUNT_MAX),
        softirq_ns: cost.softirq_ns.map(|ns| ns.min(SAMPLE_COUNT_MAX)),
        context_switch_count: cost.context_switch_count.min(SAMPLE_COUNT_MAX),
        syscall_count: cost.syscall_count.map(|count| count.min(SAMPLE_COUNT_MAX)),
    }
}

/// One end of the control connection.
#[derive(Debug)]
pub(super) struct Lines {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
    /// Received part of an incomplete line; kept across calls of `receive`.
    begun: Vec<u8>,
    /// Longest line accepted, bytes.
    line_bytes_max: usize,
}

impl Lines {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Lines {
            writer: stream.try_clone()?,
            reader: BufReader::new(stream),
            begun: Vec::new(),
            line_bytes_max: GREETING_BYTES_MAX,
        })
    }

    /// Raises the line limit after the other end has authenticated.
    pub(super) fn trust(&mut self) {
        self.line_bytes_max = LINE_BYTES_MAX;
    }

    pub(super) fn send(&mut self, message: &impl Serialize) -> Result<(), PeerError> {
        let mut line =
            serde_json::to_vec(message).map_err(|e| PeerError::Garbled { what: e.to_string() })?;
        line.push(b'\n');
        self.writer.write_all(&line).map_err(|source| PeerError::Broken { source })
    }

    /// Receives the next message; `None` if the other end has closed the connection.
    ///
    /// - `within`: time limit for the whole line, however slowly its bytes arrive. A partial line
    ///   is kept for the next call.
    pub(super) fn receive<T: DeserializeOwned>(
        &mut self,
        within: Duration,
    ) -> Result<Option<T>, PeerError> {
        let until = Instant::now() + within;
        while self.begun.last() != Some(&b'\n') {
            let had = self.begun.len();
            self.read_on(until).map_err(|source| PeerError::Broken { source })?;
            let is_over = self.begun.len() == had;
            if is_over && had == 0 {
                return Ok(None);
            }
            if is_over || self.begun.len() > self.line_bytes_max {
                let what = format!("line incomplete after {} bytes", self.begun.len());
                return Err(PeerError::Garbled { what });
            }
        }
        let line = std::mem::take(&mut self.begun);
        serde_json::from_slice(&line)
            .map(Some)
            .map_err(|e| PeerError::Garbled { what: e.to_string() })
    }

    /// Reads available bytes up to the end of the line. Reads nothing only if the connection is
    /// closed.
    fn read_on(&mut self, until: Instant) -> io::Result<()> {
        if self.reader.buffer().is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.writer.set_read_timeout(Some(left))?;
        }
        let come = match self.reader.fill_buf() {
            Ok(come) => come,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return self.read_on(until),
            Err(error) => return Err(error),
        };
        let len = come.iter().position(|b| *b == b'\n').map_or(come.len(), |at| at + 1);
        self.begun.extend_from_slice(&come[..len]);
        self.reader.consume(len);
        Ok(())
    }

    /// Runs `body` while another thread calls `tick` periodically, and `gone` once if the other end
    /// closes the connection. The other end must not send a message during this time.
    pub(super) fn watch<R>(
        &self,
        tick: impl Fn() + Sync,
        gone: impl Fn() + Sync,
        body: impl FnOnce() -> R,
    ) -> io::Result<R> {
        let done = AtomicBool::new(false);
        self.writer.set_nonblocking(true)?;
        let result = thread::scope(|scope| {
            let watching = start(scope, "watch", || {
                // This thread polls one socket and needs no capability. A failure is ignored here:
                // the engine's thread reports it.
                let _ = sys::capability::keep(&[]);
                let mut is_open = true;
                while !done.load(Ordering::Relaxed) {
                    thread::sleep(WATCH_PAUSE);
                    tick();
                    if is_open && !is_open_still(&self.writer) {
                        is_open = false;
                        gone();
                    }
                }
                Ok::<_, String>(())
            });
            if let Some(why) = watching.refused() {
                return Err(io::Error::other(why.to_string()));
            }
            let result = body();
            done.store(true, Ordering::Relaxed);
            Ok(result)
        });
        self.writer.set_nonblocking(false)?;
        result
    }

    /// Receives the next message. A closed connection is an error.
    pub(super) fn expect<T: DeserializeOwned>(&mut self, within: Duration) -> Result<T, PeerError> {
        match self.receive(within) {
            Ok(message) => message
                .ok_or_else(|| PeerError::Broken { source: io::ErrorKind::UnexpectedEof.into() }),
            // A read that timed out: the system calls it EAGAIN.
            Err(PeerError::Broken { source })
                if matches!(source.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
            {
                Err(PeerError::Late { within })
            }
            Err(error) => Err(error),
        }
    }
}

/// True if the kernel has seen neither a close nor a reset by the other end.
fn is_open_still(stream: &TcpStream) -> bool {
    match stream.peek(&mut [0]) {
        Ok(len) => len > 0,
        Err(e) => matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
    }
}

/// 32 random bytes as hexadecimal digits.
pub(super) fn challenge() -> io::Result<String> {
    host::random::random_hex()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn keyed(secret: &str, end: &str, ours: &str, theirs: &str) -> Hmac<Sha256> {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes a key of any length");
    for part in ["wirepath peer 1", end, ours, theirs] {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part.as_bytes());
    }
    mac
}

/// Proof that `end` (`near` or `far`) knows the secret, bound to both challenges.
///
/// Including the role prevents reflection of a proof. Source: RFC 2104 (HMAC) with SHA-256.
pub(super) fn proof(secret: &str, end: &str, far: &str, near: &str) -> String {
    hex(&keyed(secret, end, far, near).finalize().into_bytes())
}

/// Verifies a proof in constant time.
pub(super) fn proven(secret: &str, end: &str, far: &str, near: &str, proof: &str) -> bool {
    let bytes: Option<Vec<u8>> = (proof.len() == 64 && proof.is_ascii())
        .then(|| {
            (0..64).step_by(2).map(|i| u8::from_str_radix(&proof[i..i + 2], 16).ok()).collect()
        })
        .flatten();
    bytes.is_some_and(|bytes| keyed(secret, end, far, near).verify_slice(&bytes).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_valid_only_for_its_secret_role_and_challenges() {
        let good = proof("s3cret", "near", "aa", "bb");
        assert!(proven("s3cret", "near", "aa", "bb", &good));
        assert!(!proven("other", "near", "aa", "bb", &good));
        assert!(!proven("s3cret", "far", "aa", "bb", &good), "reflected");
        assert!(!proven("s3cret", "near", "ab", "b", &good), "split differently");
        for bad in ["", "zz", &good[..62], &"é".repeat(32)] {
            assert!(!proven("s3cret", "near", "aa", "bb", bad));
        }
    }

    #[test]
    fn a_peer_that_is_late_is_not_called_a_broken_connection() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut lines = Lines::new(near).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        far.write_all(b"{").unwrap();
        let late = lines.expect::<Say>(Duration::from_millis(20)).unwrap_err().to_string();
        assert!(late.contains("did not answer within 0.02 s"), "{late}");
        drop(far);
        let broken = lines.expect::<Say>(Duration::from_secs(60)).unwrap_err().to_string();
        assert!(!broken.contains("did not answer"), "{broken}");
    }

    #[test]
    fn a_report_survives_the_connection() {
        let mut report = RoleReport { sent_count: 7, ..RoleReport::default() };
        let mut histogram = latency_histogram();
        histogram.record_n(1234, 5).unwrap();
        report.segments.insert("rtt".into(), histogram);
        let wire: WireReport = report.into();
        let text = serde_json::to_string(&wire).unwrap();
        let back: RoleReport =
            serde_json::from_str::<WireReport>(&text).unwrap().try_into().unwrap();
        assert_eq!(back.sent_count, 7);
        assert_eq!(back.segments["rtt"].count_at(1234), 5);
    }

    #[test]
    fn a_report_of_many_segments_is_refused_before_memory_is_allocated() {
        let segments = (0..1000).map(|n| (n.to_string(), Vec::new())).collect();
        let wire = WireReport { segments, ..WireReport::default() };
        let refused = RoleReport::try_from(wire).unwrap_err().to_string();
        assert!(refused.contains("a report of 1000 segments"), "{refused}");
    }

    #[test]
    fn a_report_whose_sample_count_overflows_is_refused() {
        let segments = [("rtt".to_owned(), vec![(1, u64::MAX), (2, 1)])].into();
        let wire = WireReport { segments, ..WireReport::default() };
        let refused = RoleReport::try_from(wire).unwrap_err().to_string();
        assert!(refused.contains("too many samples of rtt"), "{refused}");
    }

    #[test]
    fn challenges_differ() {
        assert_ne!(challenge().unwrap(), challenge().unwrap());
    }
}
