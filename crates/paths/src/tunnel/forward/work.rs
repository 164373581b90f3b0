//! Extra work on a packet, so that a lab can show what workers are worth when there is more to
//! do than headers.

use std::hint::black_box;

/// So many rounds of a multiplication that waits for the one before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    rounds: u32,
}

const ROUNDS_TRIED: u32 = 20_000;
const TRIES: u32 = 20;

impl Work {
    /// Work that takes about `ns` nanoseconds on this CPU at its present speed.
    pub fn of_ns(ns: u64) -> Work {
        if ns == 0 {
            return Work::default();
        }
        let took_ns = (0..TRIES)
            .map(|n| {
                let begun_ns = io::clock::monotonic_ns();
                black_box(Work { rounds: ROUNDS_TRIED }.spin(u64::from(n)));
                io::clock::monotonic_ns() - begun_ns
            })
            .min()
            .unwrap_or(1);
        Work { rounds: (u64::from(ROUNDS_TRIED) * ns / took_ns.max(1)) as u32 }
    }

    /// Whether there is none.
    pub fn is_none(self) -> bool {
        self.rounds == 0
    }

    /// Does it.
    ///
    /// - `before`: what the last call returned. The chain goes on from there: chains that begin
    ///   anew with each packet overlap in the CPU, and 35 ns of them took 20.
    #[inline]
    pub fn spin(self, before: u64) -> u64 {
        let mut value = before | 1;
        for _ in 0..self.rounds {
            value = black_box(value.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        }
        value
    }
}
