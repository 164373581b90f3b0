//! Cost of a ring entry: posted, published, taken and released, both ends on one CPU, so that no
//! cache line moves.
//!
//! `cargo bench -p wirepath-xdp --features bench`

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use wirepath_xdp::bench::PlainRing;

fn post_and_reap(c: &mut Criterion) {
    let mut group = c.benchmark_group("post_and_reap");
    for batch in [1_u64, 8, 64, 512] {
        let mut ring = PlainRing::new(2048);
        group.throughput(Throughput::Elements(batch));
        group.bench_function(BenchmarkId::from_parameter(batch), |b| {
            b.iter(|| ring.post_and_reap(black_box(batch)));
        });
    }
    group.finish();
}

criterion_group!(benches, post_and_reap);
criterion_main!(benches);
