//! State of a running role, shared by all roles: counters, idling, the report.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use hdrhistogram::Histogram;
use io::{Arrival, EngineReport, Role};
use lab::cost_of;
use model::{Cost, Delivery, Jitter, SequenceCounts, Throughput};
use sys::clock::monotonic_ns;
use sys::rusage::ThreadUsage;
use wire::probe::{Header, Kind};

use super::{RoleReport, Steering, Task};
use crate::watch::InterfaceWatch;

/// Empty polls between two checks of the clock and the link.
const IDLE_LOOKS: u32 = 256;
/// Silence after which a receiver records its cost so far.
const IDLE_NS: u64 = 1_000_000;

/// State of a running role: plain fields, added up at the end.
pub(super) struct End<'a> {
    pub(super) task: &'a Task,
    pub(super) steering: Steering<'a>,
    pub(super) books: Vec<SequenceCounts>,
    pub(super) session: Option<u32>,
    pub(super) sequences: Vec<u32>,
    pub(super) sent_count: u64,
    pub(super) stray_count: u64,
    pub(super) received_count: u64,
    pub(super) payload_bytes: u64,
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
    pub(super) replies: u32,
    pub(super) jitter: Jitter,
    pub(super) latency: Histogram<u64>,
    pub(super) segment: &'static str,
    pub(super) kernel_to_app: Option<Histogram<u64>>,
    pub(super) begun_ns: u64,
    pub(super) begun: ThreadUsage,
    pub(super) idle: Option<(u64, ThreadUsage)>,
    pub(super) idle_looks: u32,
    pub(super) quiet_at_count: u64,
    pub(super) published: (u64, u64),
    pub(super) sender_count: u64,
    /// One after the highest request that was answered.
    pub(super) answered: u32,
    /// Times that a window was reopened after silence.
    pub(super) reopened_count: u64,
}

impl<'a> End<'a> {
    pub(super) fn new(task: &'a Task, steering: Steering<'a>) -> Self {
        let segment = if task.role == Role::Ping { "rtt" } else { "send→app" };
        End {
            task,
            steering,
            books: (0..task.flows.clamp(1, 256)).map(|_| SequenceCounts::new()).collect(),
            session: task.session,
            sequences: vec![0; task.flows.clamp(1, 256)],
            sent_count: 0,
            stray_count: 0,
            received_count: 0,
            payload_bytes: 0,
            first_ns: 0,
            last_ns: 0,
            replies: 0,
            jitter: Jitter::default(),
            latency: model::latency_histogram(),
            segment,
            kernel_to_app: (task.engine.stamps != io::Stamps::Off).then(model::latency_histogram),
            begun_ns: monotonic_ns(),
            begun: ThreadUsage::now(),
            idle: None,
            idle_looks: 0,
            quiet_at_count: 0,
            published: (0, 0),
            sender_count: 0,
            answered: 0,
            reopened_count: 0,
        }
    }

    pub(super) fn stopped(&self) -> bool {
        self.steering.stop.load(Ordering::Relaxed)
    }

    pub(super) fn check_link(&mut self) -> Result<(), io::IoError> {
        self.steering.watch.as_mut().map_or(Ok(()), InterfaceWatch::check)
    }

    /// Adds the progress since the last call: several threads may share the counters.
    pub(super) fn publish(&mut self) {
        let Some(live) = self.steering.live else { return };
        let (sent, received) = self.published;
        live.sent_count.fetch_add(self.sent_count.saturating_sub(sent), Ordering::Relaxed);
        live.received_count
            .fetch_add(self.received_count.saturating_sub(received), Ordering::Relaxed);
        self.published = (self.sent_count, self.received_count);
    }

    pub(super) fn header(&mut self, flow: usize, kind: Kind, time_ns: u64) -> Header {
        let sequence = self.sequences[flow];
        self.sequences[flow] = sequence.wrapping_add(1);
        let session = self.session.unwrap_or(0);
        Header {
            kind,
            flow: self.task.first_flow.wrapping_add(flow as u8),
            session,
            sequence,
            reply: 0,
            time_ns,
        }
    }

    /// Returns the header of a datagram of this run and of `kind`. Without a fixed session, a new
    /// sender is followed.
    pub(super) fn accept(&mut self, payload: &[u8], kind: Kind) -> Option<Header> {
        let header = Header::parse(payload).ok().filter(|h| h.kind == kind);
        let known = self.session;
        match header {
            Some(h) if known == Some(h.session) => Some(h),
            Some(h) if self.task.session.is_none() => {
                self.session = Some(h.session);
                self.restart();
                Some(h)
            }
            _ => {
                self.stray_count += 1;
                None
            }
        }
    }

    /// Resets all counters for a new sender.
    pub(super) fn restart(&mut self) {
        for book in &mut self.books {
            *book = SequenceCounts::new();
        }
        self.sender_count += 1;
        self.replies = 0;
        self.received_count = 0;
        self.published.1 = 0;
        self.payload_bytes = 0;
        self.first_ns = 0;
        self.sent_count = 0;
        self.published.0 = 0;
        self.idle = None;
        self.quiet_at_count = 0;
        self.jitter = Jitter::default();
        self.latency.reset();
        if let Some(histogram) = self.kernel_to_app.as_mut() {
            histogram.reset();
        }
    }

    /// Records an arrival at `now_ns`; 0 for an unknown time.
    pub(super) fn seen(&mut self, now_ns: u64) {
        if now_ns == 0 {
            return;
        }
        if self.first_ns == 0 {
            self.first_ns = now_ns;
            if self.task.role == Role::Receive || self.task.role == Role::Echo {
                // CPU time before the first arrival was waiting, not work.
                self.begun_ns = now_ns;
                self.begun = ThreadUsage::now();
            }
        }
        self.last_ns = now_ns;
    }

    /// Records one arrival of a flow.
    pub(super) fn note(&mut self, flow: usize, sequence: u32, payload_bytes: usize, now_ns: u64) {
        self.seen(now_ns);
        self.received_count += 1;
        self.payload_bytes += payload_bytes as u64;
        while self.books.len() <= flow {
            self.books.push(SequenceCounts::new());
        }
        if let Some(book) = self.books.get_mut(flow) {
            book.record(sequence);
        }
    }

    /// After an empty poll: records the cost so far once silence begins, checks the link.
    pub(super) fn idle(&mut self) -> Result<(), io::IoError> {
        self.idle_looks += 1;
        if self.task.engine.wait == io::Wait::Spin && !self.idle_looks.is_multiple_of(IDLE_LOOKS) {
            std::hint::spin_loop();
            return Ok(());
        }
        self.publish();
        let now_ns = monotonic_ns();
        let silent = self.received_count > 0 && now_ns.saturating_sub(self.last_ns) > IDLE_NS;
        if silent && self.quiet_at_count != self.received_count {
            self.quiet_at_count = self.received_count;
            self.idle = Some((now_ns, ThreadUsage::now()));
        }
        self.check_link()
    }

    /// Records the time from the kernel's stamp, if there is one, to now; both are wall-clock
    /// times.
    pub(super) fn kernel_to_app(&mut self, arrival: &Arrival<'_>) {
        if let (Some(histogram), Some(stamp_ns)) = (self.kernel_to_app.as_mut(), arrival.stamp_ns) {
            let taken_ns = sys::clock::realtime_ns().saturating_sub(stamp_ns).max(1);
            histogram.saturating_record(taken_ns);
        }
    }

    /// Arrivals of distinct sequence numbers.
    pub(super) fn distinct_count(&self) -> u64 {
        self.books.iter().map(SequenceCounts::first_arrival_count).sum()
    }

    pub(super) fn into_report(self, mut engine: EngineReport) -> RoleReport {
        let (end_ns, end_usage) = self.idle.unwrap_or_else(|| (monotonic_ns(), ThreadUsage::now()));
        let used = end_usage.since(&self.begun);
        let duplicated_count = self.books.iter().map(SequenceCounts::duplicated_count).sum();
        let arrived = Delivery {
            sent_count: 0,
            received_count: self.received_count,
            duplicated_count: Some(duplicated_count),
            reordered_count: self.books.iter().map(SequenceCounts::reordered_count).sum(),
        };
        let sent_count = self.sent_count.saturating_sub(engine.unsent_count);
        let mut segments = BTreeMap::new();
        if !self.latency.is_empty() {
            segments.insert(self.segment.to_owned(), self.latency);
        }
        if self.received_count > 0 && self.kernel_to_app.as_ref().is_some_and(|h| h.is_empty()) {
            let why = match self.task.engine.stamps {
                io::Stamps::Hardware => {
                    "none of the datagrams carried a stamp of the NIC: the driver promised them and \
                     delivered none (ethtool -T IF, receive filters); use --stamps software"
                }
                _ => "none of the datagrams carried a stamp of the kernel",
            };
            engine.not_effective.push(("stamps".into(), why.into()));
        }
        if let Some(histogram) = self.kernel_to_app.filter(|h| !h.is_empty()) {
            segments.insert("kernel→app".to_owned(), histogram);
        }
        engine.counters.push(("stray_count".into(), self.stray_count));
        if self.sender_count > 0 {
            // The counters are of the last sender.
            engine.counters.push(("sender_count".into(), self.sender_count));
        }
        if self.reopened_count > 0 {
            engine.counters.push(("window_reopened_count".into(), self.reopened_count));
        }
        if let Some(flaps) = self.steering.watch.as_ref().map(|w| w.flap_count).filter(|n| *n > 0) {
            engine.counters.push(("link_flap_count".into(), flaps));
        }
        RoleReport {
            sent_count,
            too_old_count: self.books.iter().map(SequenceCounts::too_old_count).sum(),
            stray_count: self.stray_count,
            throughput: Throughput {
                interval_ns: self.last_ns.saturating_sub(self.first_ns),
                received_count: self.received_count,
                payload_bytes: self.payload_bytes,
            },
            jitter_ns: self.jitter.jitter_ns(),
            arrived,
            segments,
            cost: Cost { syscall_count: Some(engine.syscall_count), ..cost_of(&used) },
            wall_ns: end_ns.saturating_sub(self.begun_ns),
            expected_count: self
                .books
                .iter()
                .filter_map(SequenceCounts::highest)
                .map(|h| u64::from(h) + 1)
                .sum(),
            engine,
        }
    }
}

/// Writes a header to a payload that has room for it: every task's payload was checked to be
/// at least [`PAYLOAD_BYTES_MIN`] when its engine was opened.
#[inline]
pub(super) fn write(header: &Header, payload: &mut [u8]) {
    let written = header.write(payload);
    debug_assert!(written.is_ok());
}
