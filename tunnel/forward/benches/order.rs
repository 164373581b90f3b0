//! Cost of order restoration per packet, and gain of a second worker.
//!
//! `cargo bench -p wirepath-forward --bench order`
//!
//! The second part interleaves runs of one and of two pinned workers and prints the ratio of
//! their rates, over all pairs and over those in which no worker had to wait for a CPU. Their work
//! is a loop of some nanoseconds, and then the whole forwarder between two ports in memory.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sys::affinity::{allowed_cpus, pin_to};
use sys::clock::{monotonic_ns, thread_cpu_ns};
use wirepath_forward::decap::DecapSpec;
use wirepath_forward::encap::Encap;
use wirepath_forward::fdb::{Fdb, FdbPort, FdbSpec};
use wirepath_forward::forwarder::{Forwarder, ForwarderSpec, RulesSpec, Tuning, Work, Worker};
use wirepath_forward::order::{
    BatchTicket, Frame, FrameSink, FrameVerdict, Order, OrderSpec, Recycled,
};
use wirepath_forward::ports::{Pool, open_memory_port};
use wirepath_forward::qos::Classifier;
use wirepath_forward::spec::{Carrier, Outer, Tunnel};

const SPEC: OrderSpec = OrderSpec { lanes: 1, window_tickets: 64, stuck_after_ns: u64::MAX };

/// Counts frames and reordering.
#[derive(Default)]
struct Counter {
    forwarded: u64,
    last: u32,
    disorder: u64,
}

impl FrameSink for Counter {
    fn forward(&mut self, frame: Frame) {
        self.forwarded += 1;
        self.disorder += u64::from(frame.index().wrapping_sub(self.last) > 1 << 20);
        self.last = frame.index();
    }

    fn recycle(&mut self, _: Frame, _: Recycled) {}
}

/// Remaining frames, and number of the next one.
type Source = (u64, u32);

/// One turn of a worker. Returns true if the source has more frames.
fn turn<'a>(
    order: &'a Order<Source, Counter>,
    tokens: &mut Vec<BatchTicket<'a>>,
    batch: usize,
    work: &mut impl FnMut(Frame) -> Frame,
) -> bool {
    let mut more = true;
    order.admit(tokens, |(left, next), intake| {
        let count = batch.min(intake.room()).min(*left as usize);
        let mut lane = intake.lane(0);
        for _ in 0..count {
            let _ = lane.push(Frame::new(*next, 256, 64, 0));
            *next = next.wrapping_add(1);
        }
        drop(lane);
        *left -= count as u64;
        more = *left > 0;
    });
    for mut token in tokens.drain(..) {
        token.judge(|frame| FrameVerdict::Forward(work(frame)));
        token.publish();
    }
    order.drain(0);
    more
}

/// Locks, ticket, publication and drain by one worker; each frame is moved in its buffer, as by
/// encapsulation.
fn restore(c: &mut Criterion) {
    let mut group = c.benchmark_group("order");
    for batch in [1, 8, 64] {
        group.throughput(Throughput::Elements(batch as u64));
        let order = Order::new(SPEC, (u64::MAX, 0), Counter::default()).expect("in range");
        let mut tokens = Vec::new();
        group.bench_function(BenchmarkId::new("turn", batch), |b| {
            b.iter(|| {
                turn(&order, &mut tokens, black_box(batch), &mut |frame| frame.moved(206, 114));
            });
        });
    }
    group.finish();
}

/// Returns packets per second, and true if every worker had a CPU to itself.
///
/// - `work`: makes what a worker does with each frame.
fn run<W: FnMut(Frame) -> Frame>(
    workers: &[usize],
    packets: u64,
    batch: usize,
    work: &(impl Fn() -> W + Sync),
) -> (f64, bool) {
    let order = Order::new(SPEC, (packets, 0), Counter::default()).expect("in range");
    let barrier = Barrier::new(workers.len());
    let spans: Vec<(u64, u64, bool)> = thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter()
            .map(|cpu| {
                let (order, barrier) = (&order, &barrier);
                scope.spawn(move || {
                    pin_to(&[*cpu]).expect("the CPU is allowed");
                    let (mut tokens, mut each) = (Vec::new(), work());
                    timed(barrier, || while turn(order, &mut tokens, batch, &mut each) {})
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no worker panics")).collect()
    });
    let (_, counter) = order.into_parts();
    assert_eq!((counter.forwarded, counter.disorder), (packets, 0));
    rate(packets, &spans)
}

/// Runs a worker's loop once all are ready. Returns its begin and its end, and true if it had its CPU to itself.
fn timed(barrier: &Barrier, body: impl FnOnce()) -> (u64, u64, bool) {
    barrier.wait();
    let (start, cpu) = (monotonic_ns(), thread_cpu_ns());
    body();
    let (end, cpu) = (monotonic_ns(), thread_cpu_ns() - cpu);
    (start, end, cpu as f64 >= 0.985 * (end - start) as f64)
}

/// Packets per second of all workers, and true if every one had its CPU to itself.
fn rate(packets: u64, spans: &[(u64, u64, bool)]) -> (f64, bool) {
    let start = spans.iter().map(|span| span.0).min().unwrap_or(0);
    let end = spans.iter().map(|span| span.1).max().unwrap_or(0);
    (packets as f64 * 1e9 / (end - start) as f64, spans.iter().all(|span| span.2))
}

/// A loop, chained, so that no packet starts before the previous one is done.
fn spin(work: Work) -> impl FnMut(Frame) -> Frame {
    let mut worked = 0;
    move |frame| {
        worked = work.spin(worked);
        frame.moved((worked >> 60) as u16, 64)
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// One worker against two, in pairs.
#[expect(clippy::print_stdout, reason = "a benchmark reports where it is run")]
///
/// - `run`: by the CPUs of the workers; returns packets per second, and true if every worker had a CPU to itself.
fn pairs((first, second): (usize, usize), name: &str, run: impl Fn(&[usize]) -> (f64, bool)) {
    const PAIRS: usize = 60;
    let (mut all, mut quiet, mut one_ns) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        let mut cpus = [&[[first, second][pair % 2]][..], &[first, second]];
        let is_two_first = pair % 4 >= 2;
        if is_two_first {
            cpus.reverse();
        }
        let mut ran = cpus.map(&run);
        if is_two_first {
            ran.reverse();
        }
        let [one, two] = ran;
        all.push(two.0 / one.0);
        one_ns.push(1e9 / one.0);
        if one.1 && two.1 {
            quiet.push(two.0 / one.0);
        }
    }
    println!(
        "two workers against one, {name}: {:.2} times in {} quiet pairs, {:.2} in \
         all {PAIRS}; one worker takes {:.1} ns a packet",
        median(&mut quiet),
        quiet.len(),
        median(&mut all),
        median(&mut one_ns),
    );
}

#[expect(clippy::print_stdout, reason = "a benchmark reports where it is run")]
fn workers(_: &mut Criterion) {
    let cpus = allowed_cpus().expect("the kernel reports the allowed CPUs");
    let [first, second, ..] = cpus[..] else {
        println!("two workers: skipped, there is one CPU");
        return;
    };
    let cpus = (first, second);
    for work_ns in [35, 100] {
        let (name, packets) = (format!("{work_ns} ns of work"), 15_000_000 / (work_ns + 3));
        for batch in [16, 64] {
            pairs(cpus, &format!("{name}, batch {batch}"), |workers| {
                run(workers, packets, batch, &|| spin(Work::from_ns(work_ns)))
            });
        }
    }
    for (name, carrier) in
        [("VXLAN", Carrier::Vxlan { vni: 42 }), ("GRETAP", Carrier::Gretap { key: Some(7) })]
    {
        for len in [64, 512, 1400] {
            pairs(cpus, &format!("whole forwarder, {name}, frames of {len} bytes"), |workers| {
                forward(workers, carrier, len)
            });
        }
    }
}

/// Frames that one run of the whole forwarder moves.
const FORWARDED: u64 = 300_000;

/// The whole forwarder between two ports in memory, which need no CPU: it receives, looks the station up, encapsulates,
/// restores the order and sends. Returns as [`run`] does.
fn forward(workers: &[usize], carrier: Carrier, len: usize) -> (f64, bool) {
    let pool = Pool::allocate(2048, 4096).expect("8 MiB of frames");
    let ends = ["10.0.0.1", "10.0.0.2"].map(|end| end.parse().expect("valid address"));
    let tunnel = Tunnel { local: ends[0], remote: ends[1], carrier };
    let outer = Outer::suggested(&tunnel, [2; 6], [4; 6]);
    let encap = Encap::new(tunnel, Outer { mtu_bytes: 9000, ..outer }).expect("valid tunnel");
    let mut frame = vec![0x5a; len];
    let (station, sender) = ([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]);
    let header = [
        0x08, 0x00, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 168, 0, 1, 192, 168, 0, 2,
        0x10, 0, 0x20, 0,
    ];
    frame[..6].copy_from_slice(&station);
    frame[6..12].copy_from_slice(&sender);
    frame[12..12 + header.len()].copy_from_slice(&header);
    frame[16..18].copy_from_slice(&(len as u16 - 14).to_be_bytes());
    let (port, _) = open_memory_port(&pool, &frame, FORWARDED);
    let (underlay, sent) = open_memory_port(&pool, &frame, 0);
    let ageing = FdbSpec { entry_count_max: 256, ageing_ns: u64::MAX, seed: 1 };
    let mut fdb = Fdb::new(ageing);
    fdb.learn(0, station, FdbPort::Tunnel(0), monotonic_ns());
    let spec = ForwarderSpec {
        rules: RulesSpec {
            encaps: vec![encap],
            vlans: Vec::new(),
            keepalives: Vec::new(),
            decap: DecapSpec { tunnels: vec![tunnel], ..DecapSpec::default() },
            learns: true,
            classifier: Classifier::new(0),
            policer: None,
        },
        fdb,
        shaper: None,
        order: OrderSpec { lanes: 1, window_tickets: 64, stuck_after_ns: u64::MAX },
        tuning: Tuning::default(),
        is_unfinished: [false; 2],
        fast: None,
    };
    let forwarder = Forwarder::new(&pool, port, underlay, spec).expect("in range");
    let barrier = Barrier::new(workers.len());
    let spans: Vec<(u64, u64, bool)> = thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter()
            .map(|cpu| {
                let (forwarder, barrier, sent) = (&forwarder, &barrier, &sent);
                scope.spawn(move || {
                    pin_to(&[*cpu]).expect("the CPU is allowed");
                    let mut worker = Worker::default();
                    timed(barrier, || {
                        while sent.frame_count() < FORWARDED {
                            forwarder.turn(&mut worker, monotonic_ns()).expect("memory takes all");
                        }
                    })
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no worker panics")).collect()
    });
    assert_eq!((sent.frame_count(), sent.reordered_count()), (FORWARDED, 0));
    let counts = forwarder.counts();
    assert!(
        counts.iter().all(|(name, count)| !name.contains("dropped") || *count == 0),
        "{counts:?}"
    );
    rate(FORWARDED, &spans)
}

criterion_group!(benches, restore, workers);
criterion_main!(benches);
