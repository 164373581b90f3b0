//! Messages of the control connection.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use hdrhistogram::Histogram;
use lab::HostTime;
use model::{Cost, Delivery, Hardware, Machine, SAMPLE_COUNT_MAX, Throughput, latency_histogram};
use remote::RemoteError;
use serde::{Deserialize, Serialize};

use crate::role::{RoleReport, Task};

/// TCP port of `wirepath peer`.
pub const DEFAULT_PORT: u16 = 7117;
/// UDP ports of runs at the far end, unless its operator chooses others.
pub const DEFAULT_PORTS: RangeInclusive<u16> = 9000..=9999;
/// Protocol version; both ends must use the same one.
pub(super) const PROTOCOL: u32 = 5;
/// Maximum number of segments in a report; roles record two.
const SEGMENT_COUNT_MAX: usize = 8;

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
    /// The name does not resolve.
    #[error("cannot resolve {host} to an address; give HOST, HOST:PORT or [IPV6]:PORT")]
    Unknown { host: String },
    /// The secrets differ, or one end has none.
    #[error("the peer at {at} refused the connection: {why}")]
    Refused { at: SocketAddr, why: String },
    /// The other end uses another protocol version.
    #[error(
        "the other end uses protocol version {theirs} of the peer, this host {PROTOCOL}; run the same wirepath \
         version at both ends"
    )]
    Version { theirs: u32 },
    /// A near end closed the connection before it answered.
    #[error(
        "it closed the connection after the greeting of protocol version {PROTOCOL}; does it run another \
         wirepath version?"
    )]
    Unanswered,
    /// The other end reported a failure.
    #[error("far end: {why}")]
    Far { why: String },
    /// The connection broke, timed out, or carried an invalid message.
    #[error(transparent)]
    Connection(#[from] RemoteError),
    /// The connection ended during the handshake.
    #[error(
        "{at} closed the connection before the handshake was finished: it ended, or it has too many connections at \
         once; try again"
    )]
    Closed {
        at: SocketAddr,
        #[source]
        source: io::Error,
    },
    /// A near end that is connected, and neither measures nor ends.
    #[error("{what} for {seconds} s; the session is over")]
    Silent { what: &'static str, seconds: u64 },
    /// A run that the near end did not end in time.
    #[error("a run takes at most {seconds} s; the session is over")]
    TooLong { seconds: u64 },
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

impl PeerError {
    /// True if nothing came within the time limit.
    pub(super) fn is_timeout(&self) -> bool {
        matches!(self, PeerError::Connection(error) if error.is_timeout())
    }

    /// True if the connection is of no use any more.
    pub(crate) fn is_broken(&self) -> bool {
        matches!(self, PeerError::Connection(RemoteError::Lost { .. }) | PeerError::Closed { .. })
    }

    pub(super) fn invalid(what: String) -> Self {
        PeerError::Connection(RemoteError::Invalid { what })
    }
}

/// First line of the far end.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) wirepath_peer: u32,
    pub(super) version: String,
    /// Random, so that a recorded handshake is of no use.
    pub(super) challenge: String,
    /// True if a secret is required; everything after the handshake is encrypted then.
    pub(super) secret: bool,
}

/// First line of the near end.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answer {
    pub(super) wirepath_peer: u32,
    /// First message of the handshake, if there is a secret.
    pub(super) handshake: Option<String>,
}

/// Settings of an end's host and thread during a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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

/// Request of the near end. A field that this end does not know is refused: a run without that setting would be another.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Ask {
    /// Open the engine and start a run.
    Run {
        task: Box<Task>,
        #[serde(default)]
        settings: Settings,
        near_port: u16,
        port: u16,
    },
    /// End the run and report. Until then the near end sends signs of life.
    Stop,
}

/// Reply of the far end.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Say {
    /// Second message of the handshake; encryption starts behind it.
    Secured { handshake: String },
    /// Accepted.
    Welcome { host: Option<Box<HostFacts>> },
    /// The engine is open.
    Ready {
        ip: IpAddr,
        port: u16,
        ifname: String,
        mode: String,
        /// Of the interface.
        #[serde(default)]
        mtu_bytes: Option<u32>,
    },
    /// The run is over.
    Report {
        report: Box<WireReport>,
        /// CPU time of the far host during the run.
        #[serde(default)]
        host_time: Option<HostTime>,
        /// Causes of packets that it lost.
        #[serde(default)]
        losses: Vec<String>,
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
        WireReport {
            sent_count: r.sent_count,
            arrived: r.arrived,
            too_old_count: r.too_old_count,
            stray_count: r.stray_count,
            throughput: r.throughput,
            jitter_ns: r.jitter_ns,
            segments: r.segments.into_iter().map(|(k, h)| (k, buckets(&h))).collect(),
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
            return Err(PeerError::invalid(format!("a report of {} segments", w.segments.len())));
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
                return Err(PeerError::invalid(format!(
                    "a report of too many samples of {segment}"
                )));
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

/// (nanoseconds, count) of each value.
fn buckets(histogram: &Histogram<u64>) -> Vec<(u64, u64)> {
    histogram.iter_recorded().map(|v| (v.value_iterated_to(), v.count_at_value())).collect()
}

/// A cost whose sums cannot overflow: the far end may send any number.
fn bounded(cost: Cost) -> Cost {
    Cost {
        user_ns: cost.user_ns.min(SAMPLE_COUNT_MAX),
        system_ns: cost.system_ns.min(SAMPLE_COUNT_MAX),
        softirq_ns: cost.softirq_ns.map(|ns| ns.min(SAMPLE_COUNT_MAX)),
        context_switch_count: cost.context_switch_count.min(SAMPLE_COUNT_MAX),
        syscall_count: cost.syscall_count.map(|count| count.min(SAMPLE_COUNT_MAX)),
        hardware: cost.hardware.map(|of| Hardware {
            instruction_count: of.instruction_count.min(SAMPLE_COUNT_MAX),
            cycle_count: of.cycle_count.min(SAMPLE_COUNT_MAX),
            llc_miss_count: of.llc_miss_count.map(|count| count.min(SAMPLE_COUNT_MAX)),
            tlb_miss_count: of.tlb_miss_count.map(|count| count.min(SAMPLE_COUNT_MAX)),
        }),
    }
}

#[cfg(test)]
mod tests {
    use ::io::EngineSpec;

    use super::*;
    use crate::role::Pace;

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
    fn a_setting_that_this_end_does_not_know_is_refused_by_name() {
        let task = Task::new(
            ::io::Role::Echo,
            EngineSpec::plain(::io::EngineKind::Udp),
            Pace::PingPong,
            64,
        );
        let run =
            Ask::Run { task: task.into(), settings: Settings::default(), near_port: 1, port: 2 };
        let known = serde_json::to_value(run).unwrap();
        assert!(serde_json::from_value::<Ask>(known.clone()).is_ok());
        for part in ["/run", "/run/task", "/run/task/engine", "/run/settings"] {
            let mut newer = known.clone();
            newer.pointer_mut(part).unwrap()["colour"] = 7.into();
            let refused = serde_json::from_value::<Ask>(newer).unwrap_err().to_string();
            assert!(refused.contains("unknown field `colour`"), "{part}: {refused}");
        }
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
}
