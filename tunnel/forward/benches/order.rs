//! Cost of order restoration per packet, and gain of a second worker.
//!
//! `cargo bench -p wirepath-forward --bench order`
//!
//! The second part interleaves runs of one and of two pinned workers and prints the ratio of
//! their rates, over all pairs and over those in which no worker had to wait for a CPU. Their work
//! is a loop of some nanoseconds.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sys::affinity::{allowed_cpus, pin_to};
use sys::clock::{monotonic_ns, thread_cpu_ns};
use wirepath_forward::forwarder::Work;
use wirepath_forward::order::{
    BatchTicket, Frame, FrameSink, FrameVerdict, Order, OrderSpec, Recycled,
};

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
                    barrier.wait();
                    let (start, cpu) = (monotonic_ns(), thread_cpu_ns());
                    while turn(order, &mut tokens, batch, &mut each) {}
                    let (end, cpu) = (monotonic_ns(), thread_cpu_ns() - cpu);
                    (start, end, cpu as f64 >= 0.985 * (end - start) as f64)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no worker panics")).collect()
    });
    let start = spans.iter().map(|span| span.0).min().unwrap_or(0);
    let end = spans.iter().map(|span| span.1).max().unwrap_or(0);
    let (_, counter) = order.into_parts();
    assert_eq!((counter.forwarded, counter.disorder), (packets, 0));
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
fn pairs<W: FnMut(Frame) -> Frame>(
    (first, second): (usize, usize),
    name: &str,
    packets: u64,
    batch: usize,
    work: &(impl Fn() -> W + Sync),
) {
    const PAIRS: usize = 60;
    let (mut all, mut quiet, mut one_ns) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        let mut cpus = [&[[first, second][pair % 2]][..], &[first, second]];
        let is_two_first = pair % 4 >= 2;
        if is_two_first {
            cpus.reverse();
        }
        let mut ran = cpus.map(|cpus| run(cpus, packets, batch, work));
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
        "two workers against one, {name}, batch {batch}: {:.2} times in {} quiet pairs, {:.2} in \
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
            pairs(cpus, &name, packets, batch, &|| spin(Work::from_ns(work_ns)));
        }
    }
}

criterion_group!(benches, restore, workers);
criterion_main!(benches);
