//! The levels of a book by value, as they were sent.

use super::book::{Book, Lot, PRICE_BYTES};
use super::odd_lot::SingleShares;
use super::quote::RoundLot;
use super::value::{Level, Levels};

/// Bytes of the widest levels, those of an odd lot.
const BYTES_MAX: usize = 2 * Levels::MAX * level_bytes::<SingleShares>();

/// Bids and asks, packed as in the telegram and decoded when they are read.
///
/// A program keeps tens of thousands of books, of which each telegram changes one that is in no near
/// cache: packed levels take 110 bytes in place of 160, and most are replaced before they are read.
#[derive(Debug, Clone, Copy)]
pub struct Depth {
    packed: [u8; BYTES_MAX],
    level_bytes: u8,
    bid_count: u8,
    ask_count: u8,
}

impl Default for Depth {
    /// No levels.
    fn default() -> Self {
        let level_bytes = const { level_bytes::<RoundLot>() as u8 };
        Depth { packed: [0; BYTES_MAX], level_bytes, bid_count: 0, ask_count: 0 }
    }
}

impl Depth {
    /// Replaces the levels by those of a telegram.
    #[inline]
    pub fn set<L: Lot>(&mut self, book: &Book<'_, L>) {
        let (bids, asks) = (book.bids(), book.asks());
        (self.bid_count, self.ask_count) = (bids.len() as u8, asks.len() as u8);
        self.level_bytes = const { level_bytes::<L>() as u8 };
        let sent = book.packed_sides();
        if let Some(packed) = self.packed.get_mut(..sent.len()) {
            packed.copy_from_slice(sent);
        }
    }

    /// Bids, the best first.
    #[inline]
    pub fn bids(&self) -> impl ExactSizeIterator<Item = Level> {
        self.side(0, self.bid_count)
    }

    /// Asks, the best first.
    #[inline]
    pub fn asks(&self) -> impl ExactSizeIterator<Item = Level> {
        self.side(self.bid_count, self.ask_count)
    }

    #[inline]
    fn side(&self, before: u8, count: u8) -> impl ExactSizeIterator<Item = Level> {
        let level_bytes = usize::from(self.level_bytes);
        let from = usize::from(before) * level_bytes;
        let side = self.packed.get(from..from + usize::from(count) * level_bytes);
        side.unwrap_or_default().chunks(level_bytes).map(level)
    }
}

const fn level_bytes<L: Lot>() -> usize {
    PRICE_BYTES + L::QUANTITY_BYTES
}

/// A packed level of either lot, which its length tells apart.
#[inline]
fn level(packed: &[u8]) -> Level {
    match (packed.try_into(), packed.try_into()) {
        (Ok(round), _) => RoundLot::level(round),
        (_, Ok(odd)) => SingleShares::level(odd),
        _ => Level::default(),
    }
}

#[cfg(test)]
mod tests {
    use core::marker::PhantomData;
    use std::vec::Vec;

    use super::super::{
        Body, Business, MatchTime, Price, PriceLimits, Status, Symbol, TelegramRepr, Telegrams,
    };
    use super::*;

    fn telegram<L: Lot>(format: u8, bids: &[Level], asks: &[Level]) -> Vec<u8> {
        let repr: TelegramRepr<L> = TelegramRepr {
            business: Business::Twse,
            format,
            sequence: 1,
            symbol: Symbol::new("2330").unwrap(),
            time: MatchTime::from_micros(1),
            trade_only: false,
            limits: PriceLimits(0),
            status: Status(0),
            cumulative_volume: 0,
            trade: Some(Level { price: Price(77), quantity: 7 }),
            bids: Levels::new(bids).unwrap(),
            asks: Levels::new(asks).unwrap(),
            lot: PhantomData,
        };
        let mut buffer = [0; 200];
        let bytes = repr.write(&mut buffer).unwrap();
        buffer[..bytes].to_vec()
    }

    #[test]
    fn levels_of_both_lots_are_those_of_the_last_telegram() {
        let all: Vec<Level> = (1..=10)
            .map(|n| Level { price: Price(1_000_000 * n + 1), quantity: 10_000 * n })
            .collect();
        let mut depth = Depth::default();
        assert_eq!((depth.bids().len(), depth.asks().len()), (0, 0));
        for (bids, asks) in [(0, 5), (5, 5), (3, 0), (1, 2), (0, 0)] {
            let (bids, asks) = (&all[..bids], &all[5..5 + asks]);
            for bytes in
                [telegram::<RoundLot>(6, bids, asks), telegram::<SingleShares>(23, bids, asks)]
            {
                match Telegrams::new(&bytes).next().unwrap().unwrap().body() {
                    Body::Quote(quote) => depth.set(&quote),
                    Body::OddLot(odd) => depth.set(&odd),
                    other => panic!("{other:?}"),
                }
                assert_eq!(depth.bids().collect::<Vec<_>>(), bids);
                assert_eq!(depth.asks().collect::<Vec<_>>(), asks);
            }
        }
    }
}
