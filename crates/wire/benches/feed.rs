//! What a message of a feed costs: the target is a million a second on one core, books and all.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use wirepath_wire::twse::{Body, Quote, QuoteRepr, Telegrams};

/// 2330, a trade, five bids and three asks: 113 bytes.
const QUOTE: &[u8; 113] = include_bytes!("../../../fuzz/corpus/twse/trade_and_book");

fn quote(datagram: &[u8]) -> Option<Quote<'_>> {
    match Telegrams::new(datagram).next()?.ok()?.body() {
        Body::Quote(quote) => Some(quote),
        _ => None,
    }
}

/// Every field, and something of each, so that none is left out.
#[inline]
fn touch(quote: &Quote<'_>) -> u64 {
    let mut sum = quote.symbol().to_u64() ^ u64::from(quote.sequence());
    sum ^= quote.time().map_or(0, |time| time.micros());
    sum ^= u64::from(quote.limits().0) << 8 ^ u64::from(quote.status().0);
    sum = sum.wrapping_add(quote.cumulative_volume());
    for level in quote.trade().into_iter().chain(quote.bids()).chain(quote.asks()) {
        sum = sum.rotate_left(7) ^ level.price.0 ^ level.quantity << 32;
    }
    sum
}

fn twse(c: &mut Criterion) {
    let repr = QuoteRepr::of(&quote(QUOTE).expect("it is a quote"));
    let mut buffer = [0; 131];
    assert_eq!(repr.write(&mut buffer), Ok(QUOTE.len()));
    assert_eq!(buffer[..QUOTE.len()], *QUOTE);

    let mut group = c.benchmark_group("twse_quote");
    group.throughput(Throughput::Elements(1));
    group.bench_function("frame_and_checks", |b| {
        b.iter(|| Telegrams::new(black_box(QUOTE)).next().is_some_and(|next| next.is_ok()));
    });
    group.bench_function("sequence_symbol_time", |b| {
        b.iter(|| {
            let quote = quote(black_box(QUOTE))?;
            Some((quote.sequence(), quote.symbol().to_u64(), quote.time()))
        });
    });
    group.bench_function("every_field", |b| {
        b.iter(|| quote(black_box(QUOTE)).map(|quote| touch(&quote)));
    });
    group.bench_function("to_repr", |b| {
        b.iter(|| quote(black_box(QUOTE)).map(|quote| QuoteRepr::of(&quote)));
    });
    group.bench_function("encode", |b| {
        b.iter(|| black_box(&repr).write(black_box(&mut buffer)));
    });
    group.finish();
}

criterion_group!(benches, twse);
criterion_main!(benches);
