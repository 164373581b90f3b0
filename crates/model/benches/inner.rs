//! Inner loops of the model: cost per datagram of sequence counts and jitter.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use wirepath_model::{Jitter, SequenceCounts, latency_histogram};

/// Datagrams an iteration, so that the figure is not the harness's own call.
const BATCH: u32 = 4096;

fn books(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("books");
    group.throughput(Throughput::Elements(u64::from(BATCH)));
    let mut book = SequenceCounts::new();
    let mut next = 0u32;
    group.bench_function("in order", |bencher| {
        bencher.iter(|| {
            for _ in 0..BATCH {
                black_box(book.record(black_box(next)));
                next = next.wrapping_add(1);
            }
        });
    });
    let mut book = SequenceCounts::new();
    let mut next = 0u32;
    group.bench_function("neighbours swapped", |bencher| {
        bencher.iter(|| {
            for _ in 0..BATCH {
                black_box(book.record(black_box(next ^ 1)));
                next = next.wrapping_add(1);
            }
        });
    });
    let mut jitter = Jitter::default();
    let mut now_ns = 0u64;
    group.bench_function("jitter", |bencher| {
        bencher.iter(|| {
            for step in 0..u64::from(BATCH) {
                now_ns += 1000;
                jitter.record(black_box(now_ns), black_box(now_ns + step % 64));
            }
        });
    });
    group.finish();
}

fn histogram(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("histogram");
    group.throughput(Throughput::Elements(u64::from(BATCH)));
    let mut histogram = latency_histogram();
    group.bench_function("record", |bencher| {
        bencher.iter(|| {
            for step in 0..u64::from(BATCH) {
                histogram.saturating_record(black_box(2_000 + step * 7));
            }
        });
    });
    group.finish();
}

criterion_group!(inner, books, histogram);
criterion_main!(inner);
