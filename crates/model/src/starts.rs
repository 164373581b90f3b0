//! Starts of one program within a run.
//!
//! Two starts of one program differ, by memory layout, hash seeds and the placement of buffers, although nothing was
//! changed. Trials of one start share that difference, so they are not independent of each other.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::statistics;

/// Longest restart of all programs of a block, in trials, after which they are started anew in every block.
const EVERY_BLOCK_TRIALS: u32 = 1;
/// As above, in every second block.
const EVERY_SECOND_TRIALS: u32 = 3;
/// As above, in every fourth block. Restarts that take longer would leave too little time for trials.
const EVERY_FOURTH_TRIALS: u32 = 10;

/// Share of the spread that is between starts, from which on the unit of a verdict is the start.
///
/// Of two or four trials that share a tenth of their variance, the mean varies by 5 or 14 % more than of independent
/// ones, which the reserve of the two permutation tests covers. `cargo test -p wirepath-model --test starts`.
const SHARE_MAX: f64 = 0.1;
/// Standard normal deviate of such a share that one in four runs has by chance if starts do not differ. Few starts give a
/// share above [`SHARE_MAX`] by chance more often, and the start as the unit would then cost power for nothing.
const DEVIATE_MIN: f64 = 0.674;

/// Number of blocks after which programs are started anew, so that restarts take about as long as trials at most.
///
/// - `restart`: time to start one program anew, with its trial that does not count, if it has one.
/// - `trial`: time of one trial that counts, set-up included.
/// - Returns `None` if a restart takes longer than ten trials: programs then stay as they are.
fn blocks_per_start(restart: Duration, trial: Duration) -> Option<u32> {
    if restart <= trial * EVERY_BLOCK_TRIALS {
        Some(1)
    } else if restart <= trial * EVERY_SECOND_TRIALS {
        Some(2)
    } else {
        (restart <= trial * EVERY_FOURTH_TRIALS).then_some(4)
    }
}

/// Blocks at which a session starts its programs anew: all of them at the same block, every block if that is cheap.
///
/// Restarts in every block make the blocks independent of each other, whatever differs between starts.
#[derive(Debug, Clone)]
pub struct Restarts {
    /// Fewest blocks of a start.
    least: u32,
    /// Blocks that ran since the last restart.
    blocks: u32,
    restarts: Mean,
    trials: Mean,
}

#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    sum: Duration,
    count: u32,
}

impl Mean {
    fn add(&mut self, took: Duration) {
        self.sum += took;
        self.count += 1;
    }

    fn get(&self) -> Duration {
        self.sum / self.count.max(1)
    }
}

impl Restarts {
    /// - `least`: fewest blocks of a start, however cheap it is.
    pub fn new(least: u32) -> Self {
        Restarts { least, blocks: 0, restarts: Mean::default(), trials: Mean::default() }
    }

    /// Enters a start of one program, with its trial that does not count, if it has one.
    pub fn started(&mut self, took: Duration) {
        self.restarts.add(took);
    }

    /// Enters a trial.
    pub fn ran(&mut self, took: Duration) {
        self.trials.add(took);
    }

    /// Called at the begin of each block. Returns true if the programs are to be started anew before it.
    pub fn is_due(&mut self) -> bool {
        let every = blocks_per_start(self.restarts.get(), self.trials.get());
        let is_due = self.trials.count > 0
            && every.is_some_and(|every| self.blocks >= every.max(self.least));
        self.blocks = if is_due { 1 } else { self.blocks + 1 };
        is_due
    }
}

/// Starts of the programs of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Starts {
    /// By arm: number of its starts; 0 if they are not known.
    pub(crate) counts: Vec<usize>,
    /// By block: number of its epoch, ascending from 0; empty if no start is known.
    epochs: Vec<usize>,
}

impl Starts {
    /// - `by_arm`: start of each block, `None` if it is not known.
    pub(crate) fn new(by_arm: &[Vec<Option<u32>>]) -> Self {
        let counts: Vec<usize> = by_arm
            .iter()
            .map(|starts: &Vec<Option<u32>>| starts.iter().flatten().collect::<BTreeSet<_>>().len())
            .collect();
        let epochs =
            if counts.iter().any(|count| *count > 0) { epochs(by_arm) } else { Vec::new() };
        Starts { counts, epochs }
    }

    /// True if a verdict may rest on one start: some arm's program was started once for several blocks.
    pub(crate) fn is_one(&self) -> bool {
        self.epochs.len() > 1 && self.counts.contains(&1)
    }

    /// Epochs of the blocks of a series; `None` if each block is an epoch, or starts are not known.
    pub(crate) fn shared(&self, blocks: usize) -> Option<&[usize]> {
        let epochs = self.epochs.get(..blocks)?;
        epochs.windows(2).any(|two| two[0] == two[1]).then_some(epochs)
    }
}

/// Numbers of the epochs, by block: an epoch is a run of blocks within which no program was started anew.
fn epochs(by_arm: &[Vec<Option<u32>>]) -> Vec<usize> {
    let blocks = by_arm.iter().map(Vec::len).max().unwrap_or(0);
    let mut last: Vec<Option<u32>> = vec![None; by_arm.len()];
    let mut epoch = 0;
    (0..blocks)
        .map(|block| {
            let mut is_new = false;
            for (starts, last) in by_arm.iter().zip(&mut last) {
                let Some(start) = starts.get(block).copied().flatten() else { continue };
                is_new |= last.replace(start).is_some_and(|before| before != start);
            }
            epoch += usize::from(is_new);
            epoch
        })
        .collect()
}

/// Variance between starts and within them, by the method of moments.
///
/// Source: Searle, Casella and McCulloch 1992, "Variance Components", section 3.6 (one-way, unbalanced); sums of squares and
/// degrees of freedom are added over the arms.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Components {
    /// Sum of squares between epochs, and its degrees of freedom.
    between: (f64, f64),
    /// Sum of squares within epochs, and its degrees of freedom.
    within: (f64, f64),
    /// Factor of the variance between starts in the expected sum of squares between epochs.
    weight: f64,
}

impl Components {
    /// Adds the differences of an arm from its reference, by block; those of failed trials are left out.
    pub(crate) fn add(&mut self, differences: &[f64], epochs: &[usize]) {
        let groups: Vec<Vec<f64>> = groups(differences, epochs)
            .map(|group| group.iter().copied().filter(|value| value.is_finite()).collect())
            .filter(|group: &Vec<f64>| !group.is_empty())
            .collect();
        let count: usize = groups.iter().map(Vec::len).sum();
        if groups.len() < 2 {
            return;
        }
        let total = groups.iter().flatten().sum::<f64>() / count as f64;
        for group in &groups {
            let size = group.len() as f64;
            let mean = group.iter().sum::<f64>() / size;
            self.between.0 += size * (mean - total).powi(2);
            self.within.0 += group.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
            self.within.1 += size - 1.0;
            self.weight -= size * size / count as f64;
        }
        self.between.1 += groups.len() as f64 - 1.0;
        self.weight += count as f64;
    }

    /// Share of the variance that is between starts, 0 to 1; `None` if the differences do not tell.
    pub(crate) fn share(&self) -> Option<f64> {
        if self.within.1 == 0.0 || self.weight <= 0.0 {
            return None;
        }
        let within = self.within.0 / self.within.1;
        let between = ((self.between.0 - self.between.1 * within) / self.weight).max(0.0);
        (between + within > 0.0).then(|| between / (between + within))
    }

    /// True if trials of one start cannot pass for independent ones.
    pub(crate) fn is_shared(&self) -> bool {
        self.share().is_some_and(|share| share > SHARE_MAX) && self.deviate() > DEVIATE_MIN
    }

    /// Ratio of the mean squares between and within, as a standard normal deviate if nothing differs between starts.
    ///
    /// Source: Paulson 1942, Annals of Mathematical Statistics 13, 233-235 (Abramowitz and Stegun 26.6.15).
    fn deviate(&self) -> f64 {
        let ((between, freedom), (within, freedom_within)) = (self.between, self.within);
        let ratio = (between / freedom) / (within / freedom_within);
        let (a, b) = (2.0 / (9.0 * freedom), 2.0 / (9.0 * freedom_within));
        ((1.0 - b) * ratio.cbrt() - (1.0 - a)) / (b * ratio.cbrt().powi(2) + a).sqrt()
    }
}

/// Values of each epoch.
pub(crate) fn groups<'a, T>(values: &'a [T], epochs: &[usize]) -> impl Iterator<Item = &'a [T]> {
    let count = values.len().min(epochs.len());
    let ends = (1..=count).filter(move |&end| end == count || epochs[end] != epochs[end - 1]);
    let ends: Vec<usize> = ends.collect();
    let mut begin = 0;
    ends.into_iter().map(move |end| &values[std::mem::replace(&mut begin, end)..end])
}

/// One value for each epoch: the median of its blocks; 0 if a failure of the arm and one of its reference cancel out.
pub(crate) fn by_start(values: &[f64], epochs: &[usize]) -> Vec<f64> {
    groups(values, epochs).map(|group| statistics::median(group).unwrap_or(0.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    fn starts(of: &[u32]) -> Vec<Option<u32>> {
        of.iter().map(|&start| (start > 0).then_some(start)).collect()
    }

    #[test]
    fn epoch_ends_where_any_program_is_started_anew() {
        let arms = [starts(&[1, 1, 2, 2, 2]), starts(&[7, 0, 8, 8, 9]), starts(&[0, 0, 0, 0, 0])];
        let known = Starts::new(&arms);
        assert_eq!(known.epochs, [0, 0, 1, 1, 2]);
        assert_eq!(known.counts, [2, 3, 0]);
        assert_eq!(known.shared(5), Some(&[0, 0, 1, 1, 2][..]));
        assert_eq!(known.shared(1), None);
        let each = Starts::new(&[starts(&[1, 2, 3])]);
        assert_eq!((each.counts, each.epochs.len()), (vec![3], 3));
        assert_eq!(Starts::new(&[starts(&[1, 2, 3])]).shared(3), None);
        assert_eq!(Starts::new(&[starts(&[0, 0])]).shared(2), None);
    }

    #[test]
    fn restart_is_the_rarer_the_longer_it_takes() {
        let expected = [Some(1), Some(2), Some(2), Some(4), Some(4), None];
        assert_eq!(
            [100, 101, 300, 301, 1000, 1001].map(|restart_ms| {
                blocks_per_start(Duration::from_millis(restart_ms), Duration::from_millis(100))
            }),
            expected
        );
    }

    #[test]
    fn programs_are_started_anew_in_time_for_independent_blocks() {
        let due = |least, restart_ms| -> Vec<bool> {
            let mut restarts = Restarts::new(least);
            restarts.started(Duration::from_millis(restart_ms));
            (0..8)
                .map(|_| {
                    let is_due = restarts.is_due();
                    restarts.ran(Duration::from_millis(100));
                    is_due
                })
                .collect()
        };
        // A session has just been opened before the first block.
        assert_eq!(due(1, 50), [false, true, true, true, true, true, true, true]);
        assert_eq!(due(2, 50), due(1, 200));
        assert_eq!(due(1, 200), [false, false, true, false, true, false, true, false]);
        assert_eq!(due(1, 900), [false, false, false, false, true, false, false, false]);
        assert_eq!(due(1, 2000), [false; 8]);
    }

    #[test]
    fn share_of_a_case_worked_by_hand() {
        // Means 2, 5, 8 and 5 over all; squares between 2 * (9 + 0 + 9) = 36 with 2 degrees, within 3 * 2 = 6 with 3.
        // Within 2, between (36 - 2 * 2) / (6 - 12 / 6) = 8.
        let mut of = Components::default();
        of.add(&[1.0, 3.0, 4.0, 6.0, 7.0, 9.0], &[0, 0, 1, 1, 2, 2]);
        assert!((of.share().unwrap() - 0.8).abs() < 1e-12, "{of:?}");
        // Equal means: the estimate between is negative, so it is 0.
        let mut none = Components::default();
        none.add(&[1.0, 3.0, 3.0, 1.0], &[0, 0, 1, 1]);
        assert_eq!(none.share(), Some(0.0));
        // One trial a start, one start, and no value.
        for (values, epochs) in [(&[1.0, 2.0][..], &[0, 1][..]), (&[1.0, 2.0], &[0, 0]), (&[], &[])]
        {
            let mut of = Components::default();
            of.add(values, epochs);
            assert_eq!(of.share(), None);
        }
    }

    #[test]
    fn share_of_few_starts_that_may_be_chance_is_not_taken_for_one() {
        let shared = |values: &[f64]| {
            let mut of = Components::default();
            of.add(values, &[0, 0, 1, 1, 2, 2]);
            of
        };
        assert!(shared(&[1.0, 3.0, 4.0, 6.0, 7.0, 9.0]).is_shared());
        let slight = shared(&[1.0, 3.0, 1.5, 3.5, 3.0, 5.0]);
        // Squares between 13/3 with 2 degrees, within 6 with 3: a ratio of 13/12, above which are (1 + 2/3 * 13/12)^-1.5
        // = 44 %.
        assert!((slight.deviate() - 0.15).abs() < 0.05, "{}", slight.deviate());
        assert!(!slight.is_shared());
    }

    #[test]
    fn known_shares_are_estimated_without_bias_and_failures_are_left_out() {
        for known in [0.0f64, 0.5, 0.9] {
            let mut random = Random::new(9, (known * 10.0) as u64);
            let mut shares = Vec::new();
            for _ in 0..300 {
                let mut of = Components::default();
                let epochs: Vec<usize> = (0..24).map(|block| block / 3).collect();
                for _ in 0..2 {
                    let mut own = 0.0;
                    let mut values: Vec<f64> = (0..24)
                        .map(|block| {
                            if block % 3 == 0 {
                                own = random.normal() * known.sqrt();
                            }
                            own + random.normal() * (1.0 - known).sqrt()
                        })
                        .collect();
                    values[7] = f64::INFINITY;
                    of.add(&values, &epochs);
                }
                shares.push(of.share().unwrap());
            }
            let median = statistics::median(&shares).unwrap();
            println!("share {known}: median estimate {median:.3}");
            assert!((median - known).abs() < 0.04, "{known}: {median}");
        }
    }

    #[test]
    fn one_value_for_each_start() {
        let values = [1.0, 3.0, f64::INFINITY, f64::NEG_INFINITY, f64::INFINITY, 1.0, 5.0];
        let by_start = by_start(&values, &[0, 0, 1, 1, 2, 2, 3]);
        assert_eq!(by_start, [2.0, 0.0, f64::INFINITY, 5.0]);
    }
}
