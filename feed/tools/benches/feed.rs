//! Speed of the parts of `feed` that every telegram goes through.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use market::twse::Telegrams;
use wirepath_marketdata::arbiter::{Arbiter, ArbiterLimits, FeedLine, SequenceDomain};
use wirepath_marketdata::schedule::SendSchedule;
use wirepath_marketdata::symbols::Symbols;
use wirepath_marketdata::synthetic::{SyntheticSession, SyntheticSpec};

/// Telegrams a round: more than fit into any cache.
const TELEGRAMS: usize = 200_000;

fn datagrams(symbols: u32) -> Vec<Vec<u8>> {
    let mut session = SyntheticSession::new(&SyntheticSpec {
        symbols,
        schedule: SendSchedule::paced(1_000_000),
        ..SyntheticSpec::new(1)
    });
    let mut buffer = [0; 1472];
    let mut all = Vec::new();
    while session.sent() < TELEGRAMS as u64 {
        if let Some(written) = session.datagram(&mut buffer, 8) {
            all.push(buffer[..written.bytes].to_vec());
        }
    }
    all
}

fn decode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("feed");
    group.throughput(Throughput::Elements(TELEGRAMS as u64)).sample_size(20);
    let sent = datagrams(30_000);

    group.bench_function("decode", |bencher| {
        bencher.iter(|| {
            let telegrams = sent.iter().flat_map(|datagram| Telegrams::new(datagram));
            telegrams.filter(|telegram| telegram.is_ok()).count()
        });
    });

    let mut symbols = Symbols::new(65_536);
    group.bench_function("decode_and_keep_books_of_30000_symbols", |bencher| {
        bencher.iter(|| {
            for telegram in sent.iter().flat_map(|datagram| Telegrams::new(datagram)).flatten() {
                symbols.update(&telegram);
            }
        });
    });

    group.bench_function("arbitrate_two_lines", |bencher| {
        bencher.iter_batched_ref(
            || Arbiter::new(ArbiterLimits { from_one: true, ..ArbiterLimits::default() }),
            |arbiter| {
                let mut delivered = 0u64;
                for (now_ns, datagram) in sent.iter().enumerate() {
                    for line in [FeedLine::A, FeedLine::B] {
                        for telegram in Telegrams::new(datagram).flatten() {
                            let business = telegram.business().to_wire();
                            arbiter.offer(
                                line,
                                SequenceDomain::twse(business, telegram.format()),
                                telegram.sequence().into(),
                                now_ns as u64 * 1000,
                                telegram.bytes(),
                                &mut |_| delivered += 1,
                            );
                        }
                    }
                }
                delivered
            },
            BatchSize::PerIteration,
        );
    });

    group.bench_function("generate", |bencher| {
        let mut session =
            SyntheticSession::new(&SyntheticSpec { symbols: 30_000, ..SyntheticSpec::new(1) });
        let mut buffer = [0; 1472];
        bencher.iter(|| {
            let end = session.sent() + TELEGRAMS as u64;
            while session.sent() < end {
                session.datagram(&mut buffer, 8);
            }
        });
    });
    group.finish();
}

criterion_group!(benches, decode);
criterion_main!(benches);
