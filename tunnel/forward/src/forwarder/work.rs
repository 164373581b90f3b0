//! Extra CPU work per packet, so that a lab can measure workers that do more than add headers.

use std::hint::black_box;

/// Number of multiplications, each dependent on the previous one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    rounds: u32,
}

const ROUNDS_TRIED: u32 = 20_000;
const TRIES: u32 = 20;

impl Work {
    /// Work of about `ns` nanoseconds on this CPU at its current speed.
    pub fn from_ns(ns: u64) -> Work {
        if ns == 0 {
            return Work::default();
        }
        let took_ns = (0..TRIES)
            .map(|n| {
                let begun_ns = sys::clock::monotonic_ns();
                black_box(Work { rounds: ROUNDS_TRIED }.spin(u64::from(n)));
                sys::clock::monotonic_ns() - begun_ns
            })
            .min()
            .unwrap_or(1);
        Work { rounds: (u64::from(ROUNDS_TRIED) * ns / took_ns.max(1)) as u32 }
    }

    /// True if there is no extra work.
    pub fn is_none(self) -> bool {
        self.rounds == 0
    }

    /// Runs the work.
    ///
    /// - `before`: result of the last call, which continues the dependency chain. Chains that
    ///   restart with each packet overlap in the CPU: 35 ns of work took 20.
    #[inline]
    pub fn spin(self, before: u64) -> u64 {
        let mut value = before | 1;
        for _ in 0..self.rounds {
            value = black_box(value.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        }
        value
    }
}
