//! Stage latencies of one program during a trial: driver to socket, and socket to read.
//!
//! The trace is part of an experiment, so it takes no machine-wide lock of its own: the holder of
//! [`crate::exclusive::Activity::Measuring`] starts it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use hdrhistogram::Histogram;
use sys::bpf::stages::{
    BUCKETS, Narrow, StageCounts, StagePrograms, bucket_ns, missing_tracepoints,
    sockets_have_cgroups,
};
use sys::bpf::{BpfError, MissingTracepoint, RunTimeCounting, Runs};
use sys::netns::{Netns, NetnsError};
use sys::thread::{ThreadError, start_free};
use thiserror::Error;

/// From the driver to the socket: from the driver's call into the stack (`netif_rx`,
/// `napi_gro_receive`, or `netif_receive_skb` if neither came before) until the socket announces the
/// data (`sk_data_ready`). Includes GRO, RPS and the wait for the softirq, netfilter, IP, and TCP or
/// UDP; for TCP also the time in which a reader held the socket.
///
/// A packet out of a tunnel begins at the tunnel's device, one out of a bridge at the bridge.
pub const DRIVER_TO_SOCKET: &str = "driver→socket";

/// From the socket to the read: from the announcement until the system call that takes the last byte
/// of the packet returns to the system call layer (`sock_recv_length`). Includes the wake-up of a
/// reader that sleeps, all other work of a reader that does not, the system call and the copy.
pub const SOCKET_TO_READ: &str = "socket→read";

/// Time between the starts of two windows in which the kernel counts the programs' cost.
const PERIOD: Duration = Duration::from_millis(100);

/// Length of such a window. A tenth, because counting takes about as long as the programs.
const WINDOW: Duration = Duration::from_millis(10);

/// Runs of the empty program, after which the cost of counting is known well enough.
const EMPTY_RUNS: u64 = 1000;

/// Tracepoints without which no stage can be seen.
const REQUIRED: [&str; 2] = ["sk_data_ready", "sock_recv_length"];

#[derive(Debug, Error)]
pub enum StageTraceError {
    #[error("stage latencies are not supported here: {what}; needed: {needs}")]
    Unsupported { what: String, needs: &'static str },
    #[error("the stages of packets cannot be traced")]
    Bpf(#[from] BpfError),
    #[error("the network namespace of the trace cannot be read")]
    Netns(#[from] NetnsError),
    #[error("the trace has no thread")]
    Thread(#[from] ThreadError),
}

/// Stage latencies of the packets that a program read during a trace.
///
/// A packet is a UDP datagram, or a TCP segment after GRO. Packets that were never read are in no
/// count. Times are accurate to 3 %; those above 135 s count as 135 s.
#[derive(Debug, Clone)]
pub struct StageLatencies {
    /// By [`DRIVER_TO_SOCKET`] and [`SOCKET_TO_READ`]; nanoseconds. A stage that cannot be seen at all
    /// is not in it.
    pub segments: BTreeMap<&'static str, Histogram<u64>>,
    pub packets_count: u64,
    /// Packets that lack the time of a stage: more than 2,048 datagrams or 64 segments waited in one
    /// socket, or another buffer took the place in the table of arrivals.
    pub dropped_count: u64,
    /// CPU time of the programs per packet read, nanoseconds, on whichever CPU and for whichever packet
    /// they ran; counted in a tenth of the trace, without entry and exit of a program (10 to 20 ns
    /// a run). `None` if no packet was read in that tenth, or without CAP_SYS_ADMIN.
    pub cost_ns_per_packet: Option<f64>,
    /// Stages and figures that are missing or incomplete, each with the reason.
    pub missing: Vec<String>,
}

/// A trace that runs until it is stopped or dropped. Its programs end with the process.
#[derive(Debug)]
pub struct StageTrace {
    /// Dropped to stop the thread.
    running: Option<Sender<()>>,
    thread: Option<JoinHandle<Result<StageLatencies, StageTraceError>>>,
}

impl StageTrace {
    /// Starts a trace; on return all programs are attached.
    ///
    /// - `netns`: the namespace of the sockets, and of the interfaces at which packets arrive.
    /// - `narrow`: the sockets.
    ///
    /// Errors: [`StageTraceError::Unsupported`] if the kernel lacks what the stages need;
    /// [`StageTraceError::Bpf`] without CAP_BPF and CAP_PERFMON, or for no cgroup or process.
    pub fn start(netns: &Netns, narrow: Narrow) -> Result<StageTrace, StageTraceError> {
        let absent = missing_tracepoints().ok_or(StageTraceError::Unsupported {
            what: "the kernel has no type information in /sys/kernel/btf/vmlinux".into(),
            needs: "a kernel with CONFIG_DEBUG_INFO_BTF",
        })?;
        required(&absent)?;
        if matches!(narrow, Narrow::Cgroup(_)) && !sockets_have_cgroups() {
            return Err(StageTraceError::Unsupported {
                what: "sockets of this kernel have no cgroup".into(),
                needs: "a kernel with CONFIG_SOCK_CGROUP_DATA, or a list of processes",
            });
        }
        let netns = netns.inode()? as u32;
        let ((running, stopped), (report, started)) = (channel(), sync_channel(0));
        let thread = start_free("wp-stages", move || trace(netns, &narrow, report, &stopped))?;
        let trace = StageTrace { running: Some(running), thread: Some(thread) };
        match started.recv() {
            Ok(()) => Ok(trace),
            // It ended with an error.
            Err(_) => {
                trace.stop().and_then(|_| Err(ThreadError::Panicked("no start".into()).into()))
            }
        }
    }

    /// Detaches the programs and returns the latencies.
    ///
    /// Errors: [`StageTraceError::Bpf`] if the counts cannot be read.
    pub fn stop(mut self) -> Result<StageLatencies, StageTraceError> {
        self.running = None;
        let ended = self.thread.take().map(JoinHandle::join);
        ended.and_then(Result::ok).unwrap_or_else(|| {
            Err(ThreadError::Panicked("the thread of the stage trace".into()).into())
        })
    }
}

impl Drop for StageTrace {
    fn drop(&mut self) {
        self.running = None;
        if let Some(thread) = self.thread.take() {
            // Its result is not wanted.
            let _latencies = thread.join();
        }
    }
}

/// Errors: [`StageTraceError::Unsupported`] if a tracepoint is missing that both stages need.
fn required(missing: &[MissingTracepoint]) -> Result<(), StageTraceError> {
    match missing.iter().find(|missing| REQUIRED.contains(&missing.name)) {
        None => Ok(()),
        Some(missing) => Err(StageTraceError::Unsupported {
            what: missing.to_string(),
            needs: "Linux 6.3 or newer, with tracepoints sk_data_ready and sock_recv_length",
        }),
    }
}

/// Returns the effect of each missing tracepoint, and true if the stage from the driver is seen.
fn effects(missing: &[MissingTracepoint]) -> (Vec<String>, bool) {
    let is_missing = |name: &str| missing.iter().any(|missing| missing.name == name);
    let effect = |missing: &MissingTracepoint| {
        let effect = match missing.name {
            "netif_receive_skb" => format!("{DRIVER_TO_SOCKET} is not seen"),
            "tcp_probe" => {
                format!("{DRIVER_TO_SOCKET} is not seen for TCP segments that were merged")
            }
            "sched_process_fork" => "processes started during the trace are not seen".into(),
            _ => format!("{DRIVER_TO_SOCKET} begins later for drivers that use it"),
        };
        format!("{effect} ({missing})")
    };
    (missing.iter().map(effect).collect(), !is_missing("netif_receive_skb"))
}

/// Attaches the programs, reports the start, and waits for the end.
fn trace(
    netns: u32,
    narrow: &Narrow,
    report: SyncSender<()>,
    stopped: &Receiver<()>,
) -> Result<StageLatencies, StageTraceError> {
    let mut programs = StagePrograms::attach(netns, narrow)?;
    required(programs.missing())?;
    // The caller waits for it.
    let _received = report.send(());
    drop(report);

    let mut cost = Cost::default();
    while wait(stopped, PERIOD - WINDOW).is_continue() {
        cost.count(&programs, stopped)?;
    }
    programs.detach();
    let (mut missing, is_driver_seen) = effects(programs.missing());
    missing.extend(cost.refused.take());
    Ok(latencies(&programs.counts()?, is_driver_seen, cost.ns_per_packet(), missing))
}

/// Breaks if the trace is to end within `time`.
fn wait(stopped: &Receiver<()>, time: Duration) -> ControlFlow<()> {
    match stopped.recv_timeout(time) {
        Err(RecvTimeoutError::Timeout) => ControlFlow::Continue(()),
        Ok(()) | Err(RecvTimeoutError::Disconnected) => ControlFlow::Break(()),
    }
}

/// Cost of the programs while the kernel counted it.
#[derive(Debug, Default)]
struct Cost {
    all: Runs,
    /// Of the empty program, until there are enough.
    empty: Runs,
    packets_count: u64,
    /// Why the kernel does not count.
    refused: Option<String>,
}

impl Cost {
    /// Counts for one window.
    fn count(
        &mut self,
        programs: &StagePrograms,
        stopped: &Receiver<()>,
    ) -> Result<(), StageTraceError> {
        let counting = match RunTimeCounting::start() {
            Ok(counting) => counting,
            Err(why) => {
                self.refused = Some(format!("cost of the trace: {why}"));
                return Ok(());
            }
        };
        let needs_empty = self.empty.count < EMPTY_RUNS;
        let empty = needs_empty.then(|| programs.attach_empty()).transpose()?;
        let packets_before = programs.counts()?.packets;
        let before = programs.run_time()?;
        // The end of the trace also ends the window.
        let _ended = wait(stopped, WINDOW);
        let after = programs.run_time()?;
        self.packets_count += programs.counts()?.packets - packets_before;
        drop((empty, counting));
        self.all = self.all.plus(&after.all.since(&before.all));
        self.empty = self.empty.plus(&after.empty.since(&before.empty));
        Ok(())
    }

    fn ns_per_packet(&self) -> Option<f64> {
        let ns = super::without_counting_ns(self.all, self.empty);
        (self.packets_count > 0).then(|| ns as f64 / self.packets_count as f64)
    }
}

fn latencies(
    counts: &StageCounts,
    is_driver_seen: bool,
    cost_ns_per_packet: Option<f64>,
    mut missing: Vec<String>,
) -> StageLatencies {
    let mut segments = BTreeMap::from([(SOCKET_TO_READ, histogram(&counts.socket))]);
    if is_driver_seen {
        segments.insert(DRIVER_TO_SOCKET, histogram(&counts.driver));
    }
    if counts.processes_missed > 0 {
        let count = counts.processes_missed;
        missing.push(format!("packets of {count} processes: the list of processes was full"));
    }
    StageLatencies {
        segments,
        packets_count: counts.packets,
        // Without the stage every packet would be in it.
        dropped_count: if is_driver_seen { counts.dropped } else { 0 },
        cost_ns_per_packet,
        missing,
    }
}

/// Returns a histogram with the middle of each bucket.
fn histogram(buckets: &[u64]) -> Histogram<u64> {
    // Finer than the buckets, so that none is merged with its neighbour.
    let (_, highest) = bucket_ns(BUCKETS - 1);
    let mut histogram =
        Histogram::new_with_bounds(1, highest, 3).expect("constant bounds are valid");
    for (bucket, count) in buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
        let (low, high) = bucket_ns(bucket);
        histogram.saturating_record_n(low.midpoint(high), *count);
    }
    histogram
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lacking(name: &'static str) -> [MissingTracepoint; 1] {
        [MissingTracepoint { name, reason: "not in this kernel".into() }]
    }

    #[test]
    fn kernel_without_a_required_tracepoint_is_unsupported_with_the_reason() {
        for name in REQUIRED {
            let error = required(&lacking(name)).unwrap_err();
            assert!(matches!(error, StageTraceError::Unsupported { .. }), "{error}");
            let text = error.to_string();
            assert!(text.contains(name) && text.contains("6.3"), "{text}");
        }
        required(&lacking("tcp_probe")).unwrap();
    }

    #[test]
    fn other_missing_tracepoints_are_listed_with_their_effect() {
        let (effects_of, is_driver_seen) = effects(&lacking("tcp_probe"));
        assert!(is_driver_seen);
        assert!(effects_of[0].contains("TCP") && effects_of[0].contains("tcp_probe"));
        let (effects_of, is_driver_seen) = effects(&lacking("netif_receive_skb"));
        assert!(!is_driver_seen && effects_of[0].contains(DRIVER_TO_SOCKET), "{effects_of:?}");
        assert_eq!(effects(&[]), (Vec::new(), true));
    }

    #[test]
    fn histogram_keeps_every_count_within_3_percent() {
        let mut buckets = vec![0; BUCKETS];
        let marks = [(0, 5), (40, 7), (700, 11), (BUCKETS - 1, 13)];
        marks.iter().for_each(|(bucket, count)| buckets[*bucket] = *count);
        let histogram = histogram(&buckets);
        assert_eq!(histogram.len(), 36);
        for (bucket, count) in marks {
            let (low, high) = bucket_ns(bucket);
            assert_eq!(histogram.count_between(low, high), count, "{bucket}");
        }
    }

    #[test]
    fn stage_that_is_not_seen_is_absent_and_drops_nothing() {
        let counts = StageCounts {
            packets: 9,
            dropped: 9,
            processes_missed: 2,
            driver: vec![0; BUCKETS],
            socket: vec![0; BUCKETS],
        };
        let latencies = latencies(&counts, false, None, Vec::new());
        assert_eq!(latencies.segments.keys().collect::<Vec<_>>(), [&SOCKET_TO_READ]);
        assert_eq!((latencies.packets_count, latencies.dropped_count), (9, 0));
        assert!(latencies.missing[0].contains("2 processes"), "{:?}", latencies.missing);
    }
}
