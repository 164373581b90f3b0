//! Memory latency, measured by pointer chasing.

use std::hint::black_box;
use std::time::Instant;

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::Notes;

pub(super) const CAUSE: Cause = Cause {
    title: "Memory is slow to read",
    symptom: "every packet costs more than on a similar machine",
    evidence: "median latency of dependent reads over 64 MiB, measured; a fact without a finding",
    remedy: "faster memory or another NUMA node",
    undo: "as before",
    references: &["McVoy and Staelin, lmbench, USENIX 1996"],
    ..Cause::new("memory", check)
};

/// Size of the walk; larger than most caches.
const BYTES: usize = 64 << 20;
/// Reads of one slice, and slices: preemption spoils some of them.
const STEPS: u32 = 2_000;
const SLICES: usize = 21;

fn check(_: &Evidence, notes: &mut Notes<'_>) {
    let mut slices_ns = latencies_ns(BYTES / LINE_BYTES);
    slices_ns.sort_by(f64::total_cmp);
    notes.fact(format!(
        "memory latency is {:.0} ns (median of {SLICES} walks of {STEPS} dependent reads over {} MiB; \
         fastest {:.0} ns)",
        slices_ns[SLICES / 2],
        BYTES >> 20,
        slices_ns[0]
    ));
}

const LINE_BYTES: usize = 64;

/// One cache line with the index of the next one.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line(u32);

/// Mean latency of dependent reads in nanoseconds, for each slice.
///
/// Source: McVoy and Staelin, "lmbench: Portable Tools for Performance Analysis", USENIX 1996,
/// section 6.2.
fn latencies_ns(lines: usize) -> [f64; SLICES] {
    let ring = ring(lines);
    let mut at = 0;
    std::array::from_fn(|_| {
        let begun = Instant::now();
        for _ in 0..STEPS {
            at = ring[at as usize].0;
        }
        let elapsed = begun.elapsed();
        black_box(at);
        elapsed.as_nanos() as f64 / f64::from(STEPS)
    })
}

/// One cycle through all lines, in an order that a prefetcher cannot predict.
///
/// - `lines`: a power of two.
///
/// Source: Hull and Dobell, "Random Number Generators", SIAM Review 1962: an odd increment and a multiplier of
/// 1 modulo 4 make the sequence visit all numbers.
fn ring(lines: usize) -> Vec<Line> {
    let mask = lines as u32 - 1;
    (0..lines as u32).map(|at| Line(at.wrapping_mul(669_765).wrapping_add(12_345) & mask)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_walk_visits_every_line_once() {
        for lines in [1, 2, 4, 1 << 16] {
            let ring = ring(lines);
            let (mut at, mut visited) = (0, 0);
            loop {
                at = ring[at].0 as usize;
                visited += 1;
                if at == 0 {
                    break;
                }
            }
            assert_eq!(visited, lines);
        }
        assert_eq!(size_of::<Line>(), LINE_BYTES);
    }
}
