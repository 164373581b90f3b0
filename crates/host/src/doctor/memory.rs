//! How long memory takes to answer: a walk along pointers.

use std::hint::black_box;
use std::time::Instant;

use super::{Notes, Scene};

/// Bytes that are walked through; more than most caches.
const BYTES: usize = 64 << 20;
const STEPS: u32 = 200_000;

pub(super) fn look(_: &Scene, notes: &mut Notes<'_>) {
    let ns = latency_ns(BYTES / LINE_BYTES, STEPS);
    notes.fact(format!(
        "memory answers in {ns:.0} ns on average ({STEPS} dependent reads over {} MiB)",
        BYTES >> 20
    ));
}

const LINE_BYTES: usize = 64;

/// One cache line that says where the next one is.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line(u32);

/// Mean nanoseconds of a read that the next one depends on.
///
/// Source: McVoy and Staelin, "lmbench: Portable Tools for Performance Analysis", USENIX 1996,
/// section 6.2.
fn latency_ns(lines: usize, steps: u32) -> f64 {
    let ring = ring(lines);
    let mut at = 0;
    let begun = Instant::now();
    for _ in 0..steps {
        at = ring[at as usize].0;
    }
    let elapsed = begun.elapsed();
    black_box(at);
    elapsed.as_nanos() as f64 / f64::from(steps)
}

/// One cycle through all lines, in an order that no prefetcher guesses.
fn ring(lines: usize) -> Vec<Line> {
    // Sattolo's shuffle of the identity is a single cycle.
    let mut order: Vec<u32> = (0..lines as u32).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for place in (1..lines).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        order.swap(place, (state % place as u64) as usize);
    }
    order.into_iter().map(Line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_walk_visits_every_line_once() {
        for lines in [1, 2, 3, 1000] {
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
