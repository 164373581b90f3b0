//! Any telegram survives encoding and decoding; any bytes are refused without a panic.

use super::*;

fn any_symbol() -> impl Strategy<Value = Symbol> {
    prop::array::uniform6(b' '..=b'~').prop_map(|code| Symbol::from_bytes(code).expect("printable"))
}

fn any_levels(max: u64) -> impl Strategy<Value = Levels> {
    prop::collection::vec(any_level(max), 0..=5)
        .prop_map(|all| Levels::new(&all).expect("five fit"))
}

fn any_level(max: u64) -> impl Strategy<Value = Level> {
    (0..10_000_000_000u64, 0..max).prop_map(|(price, quantity)| level(price, quantity))
}

fn any_book<L: Lot>(format: impl Strategy<Value = u8>) -> impl Strategy<Value = TelegramRepr<L>> {
    let max = 100u64.pow(L::QUANTITY_BYTES as u32);
    let head = (1..=2u8, format, 0..=MAX_SEQUENCE, any_symbol());
    let state = (any::<bool>(), any::<u8>(), any::<u8>(), 0..max);
    let time = (0..MatchTime::DAY_MICROS, 0..20u8);
    let levels = (prop::option::of(any_level(max)), any_levels(max), any_levels(max));
    (head, time, state, levels).prop_map(|(head, (micros, end), state, (trade, bids, asks))| {
        let alone = state.0 && L::HAS_TRADE_ONLY;
        TelegramRepr {
            business: Business::from_wire(head.0),
            format: head.1,
            sequence: head.2,
            symbol: if end == 0 { Symbol::ZEROS } else { head.3 },
            time: MatchTime::from_micros(micros).filter(|_| end > 0),
            trade_only: state.0,
            limits: PriceLimits(state.1),
            status: Status(state.2),
            cumulative_volume: state.3,
            trade,
            bids: if alone { Levels::default() } else { bids },
            asks: if alone { Levels::default() } else { asks },
            lot: core::marker::PhantomData,
        }
    })
}

fn any_quote() -> impl Strategy<Value = QuoteRepr> {
    any_book(prop::sample::select(vec![FORMAT_QUOTE, FORMAT_WARRANT]))
}

fn any_instrument() -> impl Strategy<Value = InstrumentRepr> {
    let price = || (0..10_000_000_000u64).prop_map(Price);
    // No control characters: an escape in a text could be taken for a telegram's.
    let text = || prop::collection::vec(32u8.., 32);
    let warrant = (
        (price(), price(), price(), price(), price(), price()),
        (0..100_000_000u32, 0..100_000_000u32),
    )
        .prop_map(
            |((strike, exercised, cancelled, outstanding, upper, lower), (ratio, expiry))| {
                Warrant {
                    strike,
                    exercised: exercised.0,
                    cancelled: cancelled.0,
                    outstanding: outstanding.0,
                    ratio_hundredths: ratio,
                    upper_barrier: upper,
                    lower_barrier: lower,
                    expiry,
                }
            },
        );
    let head = (1..=2u8, 8..=9u8, 0..=MAX_SEQUENCE, any_symbol(), text(), 0..100u8);
    let numbers = (price(), price(), price(), 0..1_000_000u32, 0..1_000_000u32, 0..100u8);
    (head, numbers, warrant).prop_map(|(head, numbers, warrant)| {
        let (business, text) = (Business::from_wire(head.0), head.4);
        let pair = |at: usize| [text[at], text[at + 1]];
        let tpex = business == Business::Tpex;
        InstrumentRepr {
            business,
            version: head.1,
            sequence: head.2,
            symbol: head.3,
            name_big5: core::array::from_fn(|at| text[at]),
            industry: pair(16),
            category: pair(18),
            marker: Marker::from_wire(pair(20)),
            anomaly: head.5,
            class: tpex.then_some(text[22]),
            board: (head.1 >= 9).then_some(text[23]),
            reference: numbers.0,
            upper_limit: numbers.1,
            lower_limit: numbers.2,
            marks: Marks(core::array::from_fn(|at| text[24 + at])),
            match_cycle_s: numbers.3,
            warrant_mark: text[30],
            warrant,
            foreign: (!tpex).then_some(text[31]),
            trading_unit: numbers.4,
            currency: [text[0], text[1], text[2]],
            line: numbers.5,
        }
    })
}

/// Bytes of an arbitrary telegram.
fn any_telegram() -> impl Strategy<Value = Vec<u8>> {
    let written = |write: &dyn Fn(&mut [u8]) -> Result<usize, EncodeError>| {
        let mut buffer = vec![0; 256];
        let len = write(&mut buffer).expect("it is sound");
        buffer.truncate(len);
        buffer
    };
    let other = (0..100u8, 0..100u8, 0..=MAX_SEQUENCE, prop::collection::vec(32u8.., 0..200));
    prop_oneof![
        any_quote().prop_map(move |repr| written(&|buffer| repr.write(buffer))),
        any_book::<SingleShares>(Just(FORMAT_ODD_LOT))
            .prop_map(move |repr| written(&|buffer| repr.write(buffer))),
        any_instrument().prop_map(move |repr| written(&|buffer| repr.write(buffer))),
        other.prop_map(move |(format, version, sequence, body)| {
            let business = Business::Other(3);
            let repr = OtherRepr { business, format, version, sequence, body: &body };
            written(&|buffer| repr.write(buffer))
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn quotes_survive_the_wire(repr in any_quote()) {
        let mut bytes = [0; 131];
        let len = repr.write(&mut bytes).expect("it is sound");
        let telegram = only(&bytes[..len]);
        prop_assert_eq!(QuoteRepr::of(&quote_of(&telegram)), repr);
    }

    #[test]
    fn odd_lots_survive_the_wire(repr in any_book::<SingleShares>(Just(FORMAT_ODD_LOT))) {
        let mut bytes = [0; 155];
        let len = repr.write(&mut bytes).expect("it is sound");
        let telegram = only(&bytes[..len]);
        let Body::OddLot(odd_lot) = telegram.body() else { panic!("no odd lot: {telegram:?}") };
        prop_assert_eq!(OddLotRepr::of(&odd_lot), repr);
    }

    #[test]
    fn instruments_survive_the_wire(repr in any_instrument()) {
        let mut bytes = [0; 114];
        let len = repr.write(&mut bytes).expect("it is sound");
        let telegram = only(&bytes[..len]);
        let Body::Instrument(it) = telegram.body() else { panic!("no instrument: {telegram:?}") };
        prop_assert_eq!(InstrumentRepr::of(&it), repr);
    }

    #[test]
    fn one_broken_byte_costs_one_telegram(
        telegrams in prop::collection::vec(any_telegram(), 1..6),
        which: prop::sample::Index,
        at: prop::sample::Index,
        flip in 1..=255u8,
    ) {
        let broken = which.index(telegrams.len());
        let starts: Vec<usize> = telegrams
            .iter()
            .scan(0, |end, bytes| { *end += bytes.len(); Some(*end - bytes.len()) })
            .collect();
        let mut datagram = telegrams.concat();
        datagram[starts[broken] + at.index(telegrams[broken].len())] ^= flip;
        let found: Vec<_> = Telegrams::new(&datagram).collect();
        prop_assert_eq!(found.len(), telegrams.len(), "{:?}", found);
        for (number, found) in found.iter().enumerate() {
            match found {
                Ok(telegram) => {
                    prop_assert!(number != broken);
                    prop_assert_eq!(telegram.offset(), starts[number]);
                }
                Err(error) => {
                    prop_assert_eq!(number, broken);
                    prop_assert_eq!(error.offset, starts[number]);
                    prop_assert_eq!(error.skipped_bytes, telegrams[number].len());
                }
            }
        }
    }

    #[test]
    fn hostile_datagram_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        crate::fuzzing::twse(&bytes);
    }

    #[test]
    fn telegrams_in_any_mixture_hold(
        telegrams in prop::collection::vec(any_telegram(), 1..6),
        noise in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut datagram = telegrams.concat();
        for (at, byte) in noise {
            let at = at.index(datagram.len());
            datagram[at] = byte;
        }
        crate::fuzzing::twse(&datagram);
    }
}
