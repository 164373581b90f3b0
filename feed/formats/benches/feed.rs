//! Cost of one message of a feed. Target: one million a second on one core, order books included.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use wirepath_market::itch::{self, MAX_BYTES, Message};
use wirepath_market::mold::{MoldPacket, MoldSession, PacketWriter};
use wirepath_market::twse::{Body, Quote, QuoteRepr, Telegrams};

/// 2330, a trade, five bids and three asks: 113 bytes.
const QUOTE: &[u8; 113] = include_bytes!("../../fuzz/corpus/twse/trade_and_book");

fn quote(datagram: &[u8]) -> Option<Quote<'_>> {
    match Telegrams::new(datagram).next()?.ok()?.body() {
        Body::Quote(quote) => Some(quote),
        _ => None,
    }
}

/// Combines a value from every field, so that the compiler removes none.
#[inline]
fn touch(quote: &Quote<'_>) -> u64 {
    let mut sum = quote.symbol().to_u64() ^ u64::from(quote.sequence());
    sum ^= quote.time().map_or(0, |time| time.micros());
    sum ^= u64::from(quote.limits().0) << 8 ^ u64::from(quote.status().0);
    sum = sum.wrapping_add(quote.cumulative_volume());
    quote
        .trade()
        .into_iter()
        .chain(quote.bids())
        .chain(quote.asks())
        .fold(sum, |sum, level| sum.rotate_left(7) ^ level.price.0 ^ level.quantity << 32)
}

fn twse(c: &mut Criterion) {
    let repr = QuoteRepr::of(&quote(QUOTE).expect("it is a quote"));
    let mut buffer = [0; 131];
    assert_eq!(repr.write(&mut buffer), Ok(QUOTE.len()));
    assert_eq!(buffer[..QUOTE.len()], *QUOTE);

    // A version that is not decoded: same length, but the body's digits are not checked.
    let mut other = *QUOTE;
    (other[5], other[110]) = (0x03, QUOTE[110] ^ 0x04 ^ 0x03);
    assert!(matches!(Telegrams::new(&other).next(), Some(Ok(it)) if it.version() == 3));

    let mut group = c.benchmark_group("twse_quote");
    group.throughput(Throughput::Elements(1));
    group.bench_function("frame", |b| {
        b.iter(|| Telegrams::new(black_box(&other)).next().is_some_and(|next| next.is_ok()));
    });
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

/// A packet as full as Ethernet allows: 36 orders added.
fn packet() -> Vec<u8> {
    let mut buffer = vec![0; 1472];
    let order = include_bytes!("../../fuzz/corpus/mold_itch/add_order");
    let mut writer =
        PacketWriter::new(&mut buffer, MoldSession(*b"000000000A"), 1).expect("the header fits");
    while writer.push(order).is_ok() {}
    let len = writer.finish();
    buffer.truncate(len);
    buffer
}

fn mold_itch(c: &mut Criterion) {
    let order = include_bytes!("../../fuzz/corpus/mold_itch/add_order");
    let message = Message::parse(order).expect("it is an order");
    let packet = packet();
    let count = MoldPacket::parse(&packet).expect("it is whole").messages().count() as u64;
    let mut buffer = [0; MAX_BYTES];

    let mut group = c.benchmark_group("itch_add_order");
    group.throughput(Throughput::Elements(1));
    group.bench_function("decode", |b| b.iter(|| Message::parse(black_box(order))));
    group.bench_function("encode", |b| {
        b.iter(|| black_box(&message).write(black_box(&mut buffer)));
    });
    group.throughput(Throughput::Elements(count));
    group.bench_function("whole_packet", |b| {
        b.iter(|| {
            let packet = MoldPacket::parse(black_box(&packet)).expect("it is whole");
            packet.messages().flatten().fold(0, |sum, message| {
                match Message::parse(message.bytes).map(|message| message.body) {
                    Ok(itch::Body::AddOrder(order)) => {
                        sum ^ order.reference ^ order.price.0 ^ order.stock.to_u64()
                    }
                    _ => sum,
                }
            })
        });
    });
    group.finish();
}

criterion_group!(benches, twse, mold_itch);
criterion_main!(benches);
