//! Messages of the control connection, their framing, and the proof of a shared secret.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ::io::thread::start;
use hmac::{Hmac, Mac};
use model::{Cost, Delivery, Throughput, latency_histogram};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::probe::role::{RoleReport, Task};

/// TCP port of `wirepath peer`.
pub const DEFAULT_PORT: u16 = 7117;
/// Version of this protocol; the two ends must have the same.
pub(super) const PROTOCOL: u32 = 1;
/// Longest line accepted of an end that has shown who it is.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Longest line of the handshake.
const GREETING_BYTES_MAX: usize = 4096;
/// Segments of a report that are accepted: there are two.
const SEGMENT_COUNT_MAX: usize = 8;
/// Samples of a segment that are accepted: years of them, and sums do not overflow.
const SAMPLE_COUNT_MAX: u64 = 1 << 53;
/// How long the other end may take over a line, from its first byte or before to its last.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// How often a run looks whether the other end is still there.
const WATCH_PAUSE: Duration = Duration::from_millis(20);

/// Why a conversation with a peer failed.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// Nobody listens.
    #[error("no wirepath peer answers at {at}; start one there: wirepath peer --listen {at}")]
    NotThere {
        /// Address.
        at: SocketAddr,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The name does not resolve to an IPv4 address.
    #[error("{host} is no IPv4 address or name of one")]
    Unknown {
        /// As given.
        host: String,
    },
    /// The secrets differ, or one end has none.
    #[error("the peer at {at} refused us: {why}")]
    Refused {
        /// Address.
        at: SocketAddr,
        /// Its words.
        why: String,
    },
    /// The other end is another version.
    #[error(
        "the peer speaks protocol {theirs}, we speak {PROTOCOL}; run the same wirepath version at both ends"
    )]
    Version {
        /// Theirs.
        theirs: u32,
    },
    /// The other end reported a failure.
    #[error("far end: {why}")]
    Far {
        /// Its words.
        why: String,
    },
    /// A line that makes no sense.
    #[error("the other end sent something that is not our protocol: {what}")]
    Garbled {
        /// What was wrong.
        what: String,
    },
    /// The connection broke.
    #[error("the control connection broke; is the peer still running?")]
    Broken {
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// It would have more rights than it is to have.
    #[error("the peer could not give up rights that it does not need")]
    Confine {
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The address to listen on cannot be had.
    #[error("cannot listen on {at}; is another peer running there? Choose another with --listen")]
    Listen {
        /// Address.
        at: SocketAddr,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// First line of the far end.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) wirepath_peer: u32,
    pub(super) version: String,
    /// Random; to be answered with a proof when `secret` is true.
    pub(super) challenge: String,
    pub(super) secret: bool,
}

/// First line of the near end.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answer {
    pub(super) challenge: String,
    pub(super) proof: Option<String>,
}

/// What the near end asks.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ask {
    /// Get ready for a run.
    Run { task: Task, near_port: u16, port: u16 },
    /// End it and report.
    Stop,
}

/// What the far end says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Say {
    /// Accepted; with its own proof when there is a secret.
    Welcome { proof: Option<String> },
    /// The engine is open and runs.
    Ready { ip: Ipv4Addr, port: u16, ifname: String, mode: String },
    /// The run is over.
    Report { report: Box<WireReport> },
    /// It cannot.
    Error { why: String },
}

/// A [`RoleReport`] on the control connection.
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
        // Each makes a histogram of 200 KiB, however short its line.
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
            cost: w.cost,
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

/// One end of the control connection.
#[derive(Debug)]
pub(super) struct Lines {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
    /// What has come of a line whose end has not: it outlasts one look.
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

    /// The other end has shown who it is: it may send long lines.
    pub(super) fn trust(&mut self) {
        self.line_bytes_max = LINE_BYTES_MAX;
    }

    pub(super) fn send(&mut self, message: &impl Serialize) -> Result<(), PeerError> {
        let mut line =
            serde_json::to_vec(message).map_err(|e| PeerError::Garbled { what: e.to_string() })?;
        line.push(b'\n');
        self.writer.write_all(&line).map_err(|source| PeerError::Broken { source })
    }

    /// The next message; `None` when the other end has closed. Its last byte must have come
    /// `within` so long, however the others dribble in; what has come by then is kept.
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
                let what = format!("a line that breaks off after {} bytes", self.begun.len());
                return Err(PeerError::Garbled { what });
            }
        }
        let line = std::mem::take(&mut self.begun);
        serde_json::from_slice(&line)
            .map(Some)
            .map_err(|e| PeerError::Garbled { what: e.to_string() })
    }

    /// Takes what has come, to the end of the line at most; nothing is taken at the end of the
    /// connection only.
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

    /// Runs `body` while another thread calls `tick` now and then, and `gone` once when the other
    /// end has closed. The other end must have nothing to say meanwhile.
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
                // It looks at one socket. What it is refused, the threads that matter are too.
                let _ = ::io::capability::keep(&[]);
                let mut is_open = true;
                while !done.load(Ordering::Relaxed) {
                    thread::sleep(WATCH_PAUSE);
                    tick();
                    if is_open && !is_open_still(&self.writer) {
                        is_open = false;
                        gone();
                    }
                }
                Ok(())
            });
            if let Some(why) = watching.refused() {
                return Err(io::Error::other(why));
            }
            let result = body();
            done.store(true, Ordering::Relaxed);
            Ok(result)
        });
        self.writer.set_nonblocking(false)?;
        result
    }

    /// The next message, where the end of the connection is an error.
    pub(super) fn expect<T: DeserializeOwned>(&mut self, within: Duration) -> Result<T, PeerError> {
        let closed = || PeerError::Broken { source: io::ErrorKind::UnexpectedEof.into() };
        self.receive(within)?.ok_or_else(closed)
    }
}

/// Whether the other end has neither closed nor died, as far as the kernel knows.
fn is_open_still(stream: &TcpStream) -> bool {
    match stream.peek(&mut [0]) {
        Ok(len) => len > 0,
        Err(e) => matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
    }
}

/// 32 random bytes as hexadecimal digits.
pub(super) fn challenge() -> io::Result<String> {
    let mut bytes = [0u8; 32];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(hex(&bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn keyed(secret: &str, who: &str, ours: &str, theirs: &str) -> Hmac<Sha256> {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes a key of any length");
    for part in ["wirepath peer 1", who, ours, theirs] {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part.as_bytes());
    }
    mac
}

/// Proof that `who` (`near` or `far`) knows the secret, bound to both challenges.
///
/// Source: RFC 2104 (HMAC) over SHA-256; the role keeps a proof from being sent back.
pub(super) fn proof(secret: &str, who: &str, far: &str, near: &str) -> String {
    hex(&keyed(secret, who, far, near).finalize().into_bytes())
}

/// Whether a proof is right; takes the same time wherever it is wrong.
pub(super) fn proven(secret: &str, who: &str, far: &str, near: &str, proof: &str) -> bool {
    let bytes: Option<Vec<u8>> = (proof.len() == 64 && proof.is_ascii())
        .then(|| {
            (0..64).step_by(2).map(|i| u8::from_str_radix(&proof[i..i + 2], 16).ok()).collect()
        })
        .flatten();
    bytes.is_some_and(|bytes| keyed(secret, who, far, near).verify_slice(&bytes).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_its_secret_role_and_challenges_only() {
        let good = proof("s3cret", "near", "aa", "bb");
        assert!(proven("s3cret", "near", "aa", "bb", &good));
        assert!(!proven("other", "near", "aa", "bb", &good));
        assert!(!proven("s3cret", "far", "aa", "bb", &good), "sent back to us");
        assert!(!proven("s3cret", "near", "ab", "b", &good), "split differently");
        for bad in ["", "zz", &good[..62], &"é".repeat(32)] {
            assert!(!proven("s3cret", "near", "aa", "bb", bad));
        }
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
    fn a_report_of_many_segments_is_refused_before_it_takes_memory() {
        let segments = (0..1000).map(|n| (n.to_string(), Vec::new())).collect();
        let wire = WireReport { segments, ..WireReport::default() };
        let refused = RoleReport::try_from(wire).unwrap_err().to_string();
        assert!(refused.contains("a report of 1000 segments"), "{refused}");
    }

    #[test]
    fn a_report_of_more_samples_than_can_be_summed_up_is_refused() {
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
