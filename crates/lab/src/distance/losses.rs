//! Losses that are decided by a number for each segment, so that they are the same in every run of a seed.

use model::WireSpec;

/// Independent numbers of one direction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Draws {
    key: u64,
}

impl Draws {
    pub(super) fn new(seed: u64, direction: u64, purpose: u64) -> Self {
        Draws { key: mix(mix(seed) ^ mix(direction << 8 | purpose)) }
    }

    /// Uniform in `[0, 1)`, a function of the seed and the index alone.
    pub(super) fn unit(&self, index: u64) -> f64 {
        (mix(self.key.wrapping_add(index.wrapping_mul(GOLDEN))) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Source: Steele, Lea and Flood, Fast splittable pseudorandom number generators (OOPSLA 2014), `mix64` of SplitMix64.
fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(GOLDEN);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Losses of one direction, in the order of its data segments.
///
/// With bursts, a chain of two states, of which one loses all. Source: Gilbert 1960.
#[derive(Debug, Clone)]
pub(super) struct Losses {
    draws: Draws,
    index: u64,
    loss: f64,
    /// Probabilities to begin and to end a burst; `None` for independent losses.
    burst: Option<(f64, f64)>,
    is_lossy: bool,
}

impl Losses {
    pub(super) fn new(wire: &WireSpec, seed: u64, direction: u64) -> Self {
        const LOSS: u64 = 1;
        let (loss, end) = (wire.loss(), 1.0 / f64::from(wire.burst.max(1)));
        Losses {
            draws: Draws::new(seed, direction, LOSS),
            index: 0,
            loss,
            burst: (wire.burst > 1).then_some((loss * end / (1.0 - loss), end)),
            is_lossy: false,
        }
    }

    /// True if the next data segment is lost.
    pub(super) fn next(&mut self) -> bool {
        let drawn = self.draws.unit(self.index);
        self.index += 1;
        let Some((begin, end)) = self.burst else { return drawn < self.loss };
        self.is_lossy = if self.is_lossy { drawn >= end } else { drawn < begin };
        self.is_lossy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(wire: &str, seed: u64, direction: u64, count: usize) -> Vec<bool> {
        let mut losses = Losses::new(&wire.parse().unwrap(), seed, direction);
        (0..count).map(|_| losses.next()).collect()
    }

    #[test]
    fn losses_are_those_of_the_seed_and_the_direction() {
        const WIRE: &str = "delay=20ms,rate=100mbit,loss=10%";
        assert_eq!(lost(WIRE, 7, 0, 2_000), lost(WIRE, 7, 0, 2_000));
        assert_ne!(lost(WIRE, 7, 0, 2_000), lost(WIRE, 7, 1, 2_000));
        assert_ne!(lost(WIRE, 7, 0, 2_000), lost(WIRE, 8, 0, 2_000));
    }

    #[test]
    fn share_and_length_of_losses_are_those_asked_for() {
        const COUNT: usize = 1_000_000;
        for (wire, share, length) in [
            ("delay=20ms,rate=100mbit", 0.0, 0.0),
            ("delay=20ms,rate=100mbit,loss=0.1%", 0.001, 1.0),
            ("delay=20ms,rate=100mbit,loss=10%", 0.1, 1.0 / 0.9),
            ("delay=20ms,rate=100mbit,loss=1%,burst=5", 0.01, 5.0),
        ] {
            let lost = lost(wire, 3, 1, COUNT);
            let all = lost.iter().filter(|lost| **lost).count() as f64;
            let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
            assert!((all / COUNT as f64 - share).abs() <= share * 0.12, "{wire}: {all}");
            if share > 0.0 {
                assert!((all / bursts / length - 1.0).abs() < 0.05, "{wire}: {}", all / bursts);
            }
        }
    }
}
