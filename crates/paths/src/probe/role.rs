//! The four roles of an end: what it is told, the loops, and what it reports.
//!
//! The same code runs a thread of a lab, one side of `wirepath peer`, and the `probe` commands.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use io::clock::monotonic_ns;
use io::rusage::ThreadUsage;
use io::{AnyEngine, Arrival, Engine, EngineReport, EngineSpec, Role};
use model::{Cost, Delivery, Jitter, SequenceBook, Throughput};
use serde::{Deserialize, Serialize};
use wire::probe::{HEADER_BYTES, Header, Kind};

use super::watch::Watch;

/// How long a closed-loop ping waits for its answer.
const PING_TIMEOUT_NS: u64 = 100_000_000;
/// How long the near end of an open loop waits for the last answers.
const LAST_ANSWERS_NS: u64 = 100_000_000;
/// Looks at empty rings between two looks at the clock and the link.
const IDLE_LOOKS: u32 = 256;
/// Silence after which a receiver notes what it has used so far.
const IDLE_NS: u64 = 1_000_000;
/// How long a batching, spinning receiver lets datagrams gather before it looks again; more
/// gained nothing more. Ends that answer never wait.
const LINGER_NS: u64 = 5_000;
/// Silence at the receiver after which a run is over.
const GRACE: Duration = Duration::from_millis(5);
/// Longest that draining may take.
const GRACE_MAX: Duration = Duration::from_millis(500);

/// When to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pace {
    /// As fast as the engine takes them.
    Flood,
    /// The next when the answer to the last has come (closed loop).
    PingPong,
    /// This many a second, on a fixed schedule (open loop).
    Rate(u64),
}

/// What one end is to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Its role.
    pub role: Role,
    /// Its engine.
    pub engine: EngineSpec,
    /// When it sends.
    pub pace: Pace,
    /// UDP payload of every datagram in bytes, at least [`HEADER_BYTES`].
    pub payload_bytes: usize,
    /// Source ports to send from.
    pub flows: usize,
    /// Number of the first flow, where several ends send to one.
    pub first_flow: u8,
    /// Marks this run's datagrams; others are strays. `None`: follow whoever sends.
    pub session: Option<u32>,
    /// Datagrams to send at most; `None` for no limit.
    pub count: Option<u64>,
    /// How long to send at most; `None` until told to stop.
    pub duration: Option<Duration>,
    /// Whether both ends share a clock, so that one-way latencies mean something.
    pub one_clock: bool,
}

/// Counters that another thread may read while a role runs, for a live line.
#[derive(Debug, Default)]
pub struct Live {
    /// Datagrams sent.
    pub sent_count: AtomicU64,
    /// Datagrams received.
    pub received_count: AtomicU64,
    /// The last round trip in nanoseconds.
    pub rtt_ns: AtomicU64,
}

/// What a role is steered by.
pub struct Steering<'a> {
    /// Set by others to end the run.
    pub stop: &'a AtomicBool,
    /// Read by others during the run.
    pub live: Option<&'a Live>,
    /// Watches the interface.
    pub watch: Option<Watch>,
}

/// What one end saw.
#[derive(Debug, Clone, Default)]
pub struct RoleReport {
    /// Datagrams sent, and left.
    pub sent_count: u64,
    /// What arrived; `sent_count` is the other end's to fill in.
    pub arrived: Delivery,
    /// Arrivals of this run whose sequence number was too old to judge.
    pub too_old_count: u64,
    /// Arrivals that are not of this run.
    pub stray_count: u64,
    /// Throughput of what arrived.
    pub throughput: Throughput,
    /// Jitter of what arrived (RFC 3550), nanoseconds.
    pub jitter_ns: Option<u64>,
    /// Latencies by segment.
    pub segments: std::collections::BTreeMap<String, Histogram<u64>>,
    /// Cost of this end.
    pub cost: Cost,
    /// Measured time in nanoseconds.
    pub wall_ns: u64,
    /// What the other end must have sent, by the highest number that arrived in each flow: for
    /// ends that hear nothing of the other's books.
    pub expected_count: u64,
    /// The engine's own report.
    pub engine: EngineReport,
}

impl RoleReport {
    /// Adds what another thread of the same end saw at the same time.
    pub fn merge(&mut self, other: RoleReport) {
        self.sent_count += other.sent_count;
        self.arrived.received_count += other.arrived.received_count;
        self.arrived.duplicated_count += other.arrived.duplicated_count;
        self.arrived.reordered_count += other.arrived.reordered_count;
        self.too_old_count += other.too_old_count;
        self.stray_count += other.stray_count;
        self.expected_count += other.expected_count;
        self.throughput.interval_ns = self.throughput.interval_ns.max(other.throughput.interval_ns);
        self.throughput.received_count += other.throughput.received_count;
        self.throughput.payload_bytes += other.throughput.payload_bytes;
        self.jitter_ns = self.jitter_ns.max(other.jitter_ns);
        for (segment, histogram) in other.segments {
            match self.segments.get_mut(&segment) {
                // All latency histograms have the same bounds, so that adding cannot fail.
                Some(own) => own.add(histogram).unwrap_or_default(),
                None => {
                    self.segments.insert(segment, histogram);
                }
            }
        }
        self.cost.user_ns += other.cost.user_ns;
        self.cost.system_ns += other.cost.system_ns;
        self.cost.context_switch_count += other.cost.context_switch_count;
        self.cost.syscall_count = match (self.cost.syscall_count, other.cost.syscall_count) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
        self.wall_ns = self.wall_ns.max(other.wall_ns);
        for (name, value) in other.engine.counters {
            match self.engine.counters.iter_mut().find(|(n, _)| *n == name) {
                // The XDP program is shared: each thread read the same counter.
                Some((n, own)) if is_shared(n) => *own = (*own).max(value),
                Some((_, own)) => *own += value,
                None => self.engine.counters.push((name, value)),
            }
        }
        self.engine.unsent_count += other.engine.unsent_count;
        self.engine.not_effective.extend(other.engine.not_effective);
    }
}

/// Whether a counter is of the XDP program, which all queues share.
fn is_shared(counter: &str) -> bool {
    ["xdp_redirected_count", "xdp_passed_count", "xdp_map_missed_count"].contains(&counter)
}

/// Runs a role to its end on an open engine.
pub fn run(
    engine: &mut AnyEngine,
    task: &Task,
    steering: Steering<'_>,
) -> Result<RoleReport, String> {
    match engine {
        AnyEngine::Udp(engine) => run_on(&mut **engine, task, steering),
        AnyEngine::Packet(engine) => run_on(&mut **engine, task, steering),
        AnyEngine::Xdp(engine) => run_on(&mut **engine, task, steering),
    }
}

/// Opens the engine that a task asks for and runs the task, in the calling thread's network
/// namespace.
pub fn open_and_run(
    task: &Task,
    local: &io::Local,
    remote: Option<&io::Remote>,
    stop: &AtomicBool,
    live: Option<&Live>,
) -> Result<RoleReport, String> {
    let mut spec = task.engine.clone();
    if matches!((task.role, task.pace), (Role::Ping, Pace::Rate(_))) {
        // The open loop naps itself, until the next datagram is due.
        spec.wait = io::Wait::Spin;
    }
    let mut engine = io::open(&spec, task.role, local, remote, task.flows, task.payload_bytes)
        .map_err(|e| chain(&e))?;
    let watch = (local.ifindex != 0).then(|| Watch::new(local.ifindex, &local.ifname)).flatten();
    run(&mut engine, task, Steering { stop, live, watch })
}

fn run_on<E: Engine>(
    engine: &mut E,
    task: &Task,
    steering: Steering<'_>,
) -> Result<RoleReport, String> {
    let mut end = End::new(task, steering);
    let ran = match (task.role, task.pace) {
        (Role::Send, _) => end.send(engine),
        (Role::Receive, _) => end.receive(engine),
        (Role::Echo, _) => end.echo(engine),
        (Role::Ping, Pace::Rate(rate_pps)) => end.ping_open_loop(engine, rate_pps),
        (Role::Ping, _) => end.ping_pong(engine),
    };
    // The engine is drained even after a failure, so that its books are closed.
    let engine = engine.finish();
    ran.map_err(|e| chain(&e))?;
    Ok(end.into_report(engine))
}

/// An error with its causes, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// State of a running role: plain fields, added up at the end.
struct End<'a> {
    task: &'a Task,
    steering: Steering<'a>,
    books: Vec<SequenceBook>,
    session: Option<u32>,
    sequences: Vec<u32>,
    sent_count: u64,
    stray_count: u64,
    received_count: u64,
    payload_bytes: u64,
    first_ns: u64,
    last_ns: u64,
    replies: u32,
    jitter: Jitter,
    latency: Histogram<u64>,
    segment: &'static str,
    kernel_to_app: Option<Histogram<u64>>,
    begun_ns: u64,
    begun: ThreadUsage,
    idle: Option<(u64, ThreadUsage)>,
    idle_looks: u32,
    quiet_at_count: u64,
}

impl<'a> End<'a> {
    fn new(task: &'a Task, steering: Steering<'a>) -> Self {
        let segment = if task.role == Role::Ping { "rtt" } else { "send→app" };
        End {
            task,
            steering,
            books: (0..task.flows.clamp(1, 256)).map(|_| SequenceBook::new()).collect(),
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
            kernel_to_app: task.engine.stamps.then(model::latency_histogram),
            begun_ns: monotonic_ns(),
            begun: ThreadUsage::now(),
            idle: None,
            idle_looks: 0,
            quiet_at_count: 0,
        }
    }

    fn stopped(&self) -> bool {
        self.steering.stop.load(Ordering::Relaxed)
    }

    /// Once in a while: is the link still there?
    fn check_link(&mut self) -> Result<(), io::IoError> {
        self.steering.watch.as_mut().map_or(Ok(()), Watch::check)
    }

    fn publish(&self) {
        if let Some(live) = self.steering.live {
            live.sent_count.store(self.sent_count, Ordering::Relaxed);
            live.received_count.store(self.received_count, Ordering::Relaxed);
        }
    }

    fn header(&mut self, flow: usize, kind: Kind, time_ns: u64) -> Header {
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

    /// Checks that a datagram is of this run; follows a new sender when told to follow.
    fn accept(&mut self, payload: &[u8]) -> Option<Header> {
        let header = Header::parse(payload).ok().filter(|h| h.kind != Kind::Stop);
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

    /// A new sender: its books begin anew.
    fn restart(&mut self) {
        for book in &mut self.books {
            *book = SequenceBook::new();
        }
        self.replies = 0;
        self.received_count = 0;
        self.payload_bytes = 0;
        self.first_ns = 0;
    }

    /// Enters one arrival into the books of its flow.
    fn note(&mut self, flow: usize, sequence: u32, payload_bytes: usize, now_ns: u64) {
        if self.first_ns == 0 {
            self.first_ns = now_ns;
            if self.task.role == Role::Receive || self.task.role == Role::Echo {
                // What was used before the first arrival was waiting, not work.
                self.begun_ns = now_ns;
                self.begun = ThreadUsage::now();
            }
        }
        self.last_ns = now_ns;
        self.received_count += 1;
        self.payload_bytes += payload_bytes as u64;
        while self.books.len() <= flow {
            self.books.push(SequenceBook::new());
        }
        if let Some(book) = self.books.get_mut(flow) {
            book.record(sequence);
        }
    }

    /// A look that found nothing: notes the cost so far once silence begins, watches the link.
    fn idle(&mut self) -> Result<(), io::IoError> {
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

    fn send<E: Engine>(&mut self, engine: &mut E) -> Result<(), io::IoError> {
        let burst = self.task.engine.burst();
        let flows = self.sequences.len();
        let limit = self.task.count.unwrap_or(u64::MAX);
        let until_ns = self.task.duration.map_or(u64::MAX, |d| self.begun_ns + d.as_nanos() as u64);
        let rate_pps = match self.task.pace {
            Pace::Rate(rate) => Some(rate.max(1)),
            _ => None,
        };
        let mut flow = 0;
        let mut stuck = 0u32;
        let mut rounds = 0u32;
        while self.sent_count < limit {
            let now_ns = monotonic_ns();
            if now_ns >= until_ns || self.stopped() {
                break;
            }
            let mut want = burst.min((limit - self.sent_count).min(burst as u64) as usize);
            let mut intended_ns = now_ns;
            if let Some(rate_pps) = rate_pps {
                let due = due_count(now_ns - self.begun_ns, rate_pps);
                if due <= self.sent_count {
                    let next_ns = self.begun_ns + due_at_ns(self.sent_count, rate_pps);
                    pause_until(next_ns, self.task.engine.wait);
                    continue;
                }
                intended_ns = self.begun_ns + due_at_ns(self.sent_count, rate_pps);
                want = want.min((due - self.sent_count) as usize);
            }
            let posted = engine.tx_post(flow, want, &mut |payload| {
                write(&self.header(flow, Kind::Data, intended_ns), payload);
            })?;
            self.sent_count += posted as u64;
            flow = if flow + 1 == flows { 0 } else { flow + 1 };
            rounds = rounds.wrapping_add(1);
            if rounds.is_multiple_of(1024) {
                self.publish();
                self.check_link()?;
            }
            // A full ring empties without us only as fast as the kernel works: let it.
            stuck = if posted == 0 { stuck + 1 } else { 0 };
            if stuck > 64 {
                std::thread::yield_now();
                self.check_link()?;
            }
        }
        // What was built but not taken goes out before the books are closed.
        let left = engine.tx_post(flow, 0, &mut |_| {})?;
        self.sent_count += left as u64;
        Ok(())
    }

    fn receive<E: Engine>(&mut self, engine: &mut E) -> Result<(), io::IoError> {
        let one_clock = self.task.one_clock;
        let batch = self.task.engine.batch;
        let linger = batch > 1 && self.task.engine.wait == io::Wait::Spin;
        let mut rounds = 0u32;
        loop {
            let mut now_ns = 0;
            let taken = engine.rx_take(&mut |arrival: Arrival<'_>| {
                if now_ns == 0 {
                    now_ns = monotonic_ns();
                }
                let Some(header) = self.accept(arrival.payload) else { return };
                let bytes = arrival.payload_bytes;
                self.note(usize::from(header.flow), header.sequence, bytes, now_ns);
                if one_clock {
                    let latency_ns = now_ns.saturating_sub(header.time_ns).max(1);
                    self.latency.saturating_record(latency_ns);
                }
                self.jitter.record(header.time_ns, now_ns);
                self.kernel_to_app(&arrival);
            })?;
            if taken == 0 {
                engine.rx_post();
                self.idle()?;
            }
            rounds = rounds.wrapping_add(1);
            if (taken == 0 || rounds.is_multiple_of(1024)) && self.stopped() {
                return Ok(());
            }
            if rounds.is_multiple_of(4096) {
                self.publish();
            }
            if linger && taken < batch / 2 {
                // Each look takes the ring's cache line from the kernel's CPU, which is about to
                // write it: without this pause 1.4 Mpps, with it 1.7 (flood), 2.7 and 7.7 (storm).
                let until_ns = monotonic_ns() + LINGER_NS;
                while monotonic_ns() < until_ns {
                    std::hint::spin_loop();
                }
            }
        }
    }

    /// From the kernel's stamp to here, where the kernel stamps; both are wall-clock times.
    fn kernel_to_app(&mut self, arrival: &Arrival<'_>) {
        if let (Some(histogram), Some(stamp_ns)) = (self.kernel_to_app.as_mut(), arrival.stamp_ns) {
            let taken_ns = io::clock::realtime_ns().saturating_sub(stamp_ns).max(1);
            histogram.saturating_record(taken_ns);
        }
    }

    fn echo<E: Engine>(&mut self, engine: &mut E) -> Result<(), io::IoError> {
        let mut rounds = 0u32;
        loop {
            let mut now_ns = 0;
            let echoed = engine.echo(&mut |arrival: &mut Arrival<'_>| {
                if now_ns == 0 {
                    now_ns = monotonic_ns();
                }
                let header = self.accept(arrival.payload)?;
                let bytes = arrival.payload_bytes;
                self.note(usize::from(header.flow), header.sequence, bytes, now_ns);
                self.kernel_to_app(arrival);
                let reply = self.replies;
                self.replies = reply.wrapping_add(1);
                Some(reply)
            })?;
            self.sent_count += echoed.returned as u64;
            if echoed.taken == 0 {
                self.idle()?;
            }
            rounds = rounds.wrapping_add(1);
            if (echoed.taken == 0 || rounds.is_multiple_of(1024)) && self.stopped() {
                return Ok(());
            }
        }
    }

    /// Takes answers; returns how many there were and whether one was to `awaited`.
    fn take_answers<E: Engine>(
        &mut self,
        engine: &mut E,
        awaited: Option<u32>,
    ) -> Result<(usize, bool), io::IoError> {
        let mut found = false;
        let mut now_ns = 0;
        let taken = engine.rx_take(&mut |arrival: Arrival<'_>| {
            if now_ns == 0 {
                now_ns = monotonic_ns();
            }
            let Some(header) = self.accept(arrival.payload).filter(|h| h.kind == Kind::Pong) else {
                return;
            };
            self.note(0, header.reply, arrival.payload_bytes, now_ns);
            let rtt_ns = now_ns.saturating_sub(header.time_ns).max(1);
            self.latency.saturating_record(rtt_ns);
            if let Some(live) = self.steering.live {
                live.rtt_ns.store(rtt_ns, Ordering::Relaxed);
            }
            self.jitter.record(header.time_ns, now_ns);
            self.kernel_to_app(&arrival);
            found |= awaited == Some(header.sequence);
        })?;
        Ok((taken, found))
    }

    fn ping_pong<E: Engine>(&mut self, engine: &mut E) -> Result<(), io::IoError> {
        let limit = self.task.count.unwrap_or(u64::MAX);
        let until_ns = self.task.duration.map_or(u64::MAX, |d| self.begun_ns + d.as_nanos() as u64);
        while self.sent_count < limit && !self.stopped() {
            let sent_ns = monotonic_ns();
            if sent_ns >= until_ns {
                break;
            }
            let awaited = self.sequences[0];
            let posted = engine.tx_post(0, 1, &mut |payload| {
                write(&self.header(0, Kind::Ping, sent_ns), payload);
            })?;
            if posted == 0 {
                engine.tx_reap();
                self.check_link()?;
                continue;
            }
            self.sent_count += 1;
            let mut looks = 0u32;
            loop {
                let (taken, found) = self.take_answers(engine, Some(awaited))?;
                if found {
                    break;
                }
                looks += u32::from(taken == 0);
                let look_at_clock = self.task.engine.wait == io::Wait::Block || looks.is_multiple_of(64);
                if look_at_clock && taken == 0 {
                    self.idle()?;
                    let waited_ns = monotonic_ns().saturating_sub(sent_ns);
                    if waited_ns > PING_TIMEOUT_NS || self.stopped() {
                        break;
                    }
                }
            }
            if self.sent_count.is_multiple_of(1024) {
                self.publish();
            }
        }
        self.await_last(engine)
    }

    fn ping_open_loop<E: Engine>(
        &mut self,
        engine: &mut E,
        rate_pps: u64,
    ) -> Result<(), io::IoError> {
        // Sleeping to within 50 µs of the schedule would be half of a 10,000/s interval.
        io::clock::set_timer_slack_ns(1);
        let rate_pps = rate_pps.max(1);
        let limit = self.task.count.unwrap_or(u64::MAX);
        let until_ns = self.task.duration.map_or(u64::MAX, |d| self.begun_ns + d.as_nanos() as u64);
        let mut rounds = 0u32;
        while self.sent_count < limit && !self.stopped() {
            let now_ns = monotonic_ns();
            if now_ns >= until_ns {
                break;
            }
            let intended_ns = self.begun_ns + due_at_ns(self.sent_count, rate_pps);
            if intended_ns <= now_ns {
                // One at a time: answers in between are taken without delay. A late sender
                // catches up, and what it was late counts into the latency.
                let posted = engine.tx_post(0, 1, &mut |payload| {
                    write(&self.header(0, Kind::Ping, intended_ns), payload);
                })?;
                self.sent_count += posted as u64;
            }
            let (taken, _) = self.take_answers(engine, None)?;
            if taken == 0 && self.task.engine.wait == io::Wait::Block {
                let next_ns = self.begun_ns + due_at_ns(self.sent_count, rate_pps);
                let sleep_ns = next_ns.saturating_sub(monotonic_ns()).min(20_000_000);
                if sleep_ns > 0 {
                    engine.nap(Duration::from_nanos(sleep_ns))?;
                }
            }
            rounds = rounds.wrapping_add(1);
            if rounds.is_multiple_of(4096) {
                self.publish();
                self.check_link()?;
            }
        }
        self.await_last(engine)
    }

    /// Waits for answers that are still on their way.
    fn await_last<E: Engine>(&mut self, engine: &mut E) -> Result<(), io::IoError> {
        self.idle = Some((monotonic_ns(), ThreadUsage::now()));
        let until_ns = monotonic_ns() + LAST_ANSWERS_NS;
        while self.distinct_count() < self.sent_count && monotonic_ns() < until_ns {
            if self.take_answers(engine, None)?.0 == 0 && self.task.engine.wait == io::Wait::Block {
                engine.nap(Duration::from_millis(1))?;
            }
        }
        Ok(())
    }

    /// Arrivals of distinct sequence numbers.
    fn distinct_count(&self) -> u64 {
        self.books.iter().map(SequenceBook::first_arrival_count).sum()
    }

    fn into_report(self, mut engine: EngineReport) -> RoleReport {
        let (end_ns, end_usage) = self.idle.unwrap_or_else(|| (monotonic_ns(), ThreadUsage::now()));
        let used = end_usage.since(&self.begun);
        let sum = |f: fn(&SequenceBook) -> u64| self.books.iter().map(f).sum::<u64>();
        let arrived = Delivery {
            sent_count: 0,
            received_count: self.received_count,
            duplicated_count: sum(SequenceBook::duplicated_count),
            reordered_count: sum(SequenceBook::reordered_count),
        };
        let sent_count = self.sent_count.saturating_sub(engine.unsent_count);
        let mut segments = std::collections::BTreeMap::new();
        if !self.latency.is_empty() {
            segments.insert(self.segment.to_owned(), self.latency);
        }
        if let Some(histogram) = self.kernel_to_app.filter(|h| !h.is_empty()) {
            segments.insert("kernel→app".to_owned(), histogram);
        }
        engine.counters.push(("stray_count".into(), self.stray_count));
        if let Some(flaps) = self.steering.watch.as_ref().map(|w| w.flap_count).filter(|n| *n > 0) {
            engine.counters.push(("link_flap_count".into(), flaps));
        }
        RoleReport {
            sent_count,
            too_old_count: sum(SequenceBook::too_old_count),
            stray_count: self.stray_count,
            throughput: Throughput {
                interval_ns: self.last_ns.saturating_sub(self.first_ns),
                received_count: self.received_count,
                payload_bytes: self.payload_bytes,
            },
            jitter_ns: self.jitter.jitter_ns(),
            arrived,
            segments,
            cost: Cost {
                user_ns: used.user_ns,
                system_ns: used.system_ns,
                softirq_ns: None,
                context_switch_count: used.context_switch_count,
                syscall_count: Some(engine.syscall_count),
            },
            wall_ns: end_ns.saturating_sub(self.begun_ns),
            expected_count: self
                .books
                .iter()
                .filter_map(SequenceBook::highest)
                .map(|h| u64::from(h) + 1)
                .sum(),
            engine,
        }
    }
}

/// Writes a header to a payload that has room for it: every task's payload was checked to be
/// at least [`PAYLOAD_BYTES_MIN`] when its engine was opened.
#[inline]
fn write(header: &Header, payload: &mut [u8]) {
    let written = header.write(payload);
    debug_assert!(written.is_ok());
}

/// Datagrams due after `elapsed_ns` of a schedule that begins with one at 0.
fn due_count(elapsed_ns: u64, rate_pps: u64) -> u64 {
    (u128::from(elapsed_ns) * u128::from(rate_pps) / 1_000_000_000) as u64 + 1
}

/// When datagram `n` of a schedule is due, nanoseconds from its begin.
fn due_at_ns(n: u64, rate_pps: u64) -> u64 {
    (u128::from(n) * 1_000_000_000 / u128::from(rate_pps)) as u64
}

/// Waits for a point of CLOCK_MONOTONIC as the engine waits: asleep or spinning.
fn pause_until(until_ns: u64, wait: io::Wait) {
    let left_ns = until_ns.saturating_sub(monotonic_ns()).min(20_000_000);
    if wait == io::Wait::Block && left_ns > 60_000 {
        std::thread::sleep(Duration::from_nanos(left_ns - 50_000));
    } else {
        std::hint::spin_loop();
    }
}

/// Waits until the receiver behind `live` has taken nothing for a while.
pub fn drain(live: &Live) {
    let begun = Instant::now();
    let mut last = (live.received_count.load(Ordering::Relaxed), Instant::now());
    while begun.elapsed() < GRACE_MAX && last.1.elapsed() < GRACE {
        std::thread::sleep(Duration::from_millis(1));
        let now = live.received_count.load(Ordering::Relaxed);
        if now != last.0 {
            last = (now, Instant::now());
        }
    }
}

/// Smallest payload that carries the header.
pub const PAYLOAD_BYTES_MIN: usize = HEADER_BYTES;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_is_due_when_it_says() {
        for rate_pps in [1, 3, 10_000, 3_333_333] {
            for n in [0, 1, 2, 999, 1_000_000] {
                let at = due_at_ns(n, rate_pps);
                assert!(due_count(at + 1, rate_pps) > n, "{n} at {rate_pps}");
                assert!(at == 0 || due_count(at - 1, rate_pps) <= n + 1);
            }
        }
    }
}
