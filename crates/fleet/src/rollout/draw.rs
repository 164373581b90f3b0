//! Which hosts are in which stage.

use std::str::FromStr;

use model::Random;
use thiserror::Error;

use crate::mesh::shuffled;

/// Number of hosts that have the plan after a stage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Size {
    /// So many hosts.
    Hosts(usize),
    /// A share of all hosts, rounded up; above 0, 1.0 at most.
    Share(f64),
}

/// Sizes that cannot be drawn.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SizeError {
    /// Neither a number nor a percentage.
    #[error(
        "{0:?} is not a valid size of a stage; use a number of hosts such as 1, or a share such as 10%"
    )]
    Unreadable(String),
    /// A stage that adds no host.
    #[error(
        "stage {stage} adds no host: {size} of {hosts} hosts have the plan before it; give growing sizes, such as \
         1,10%,100%"
    )]
    NotGrowing {
        /// Counted from 1.
        stage: usize,
        /// Hosts that have the plan before it.
        size: usize,
        /// All hosts.
        hosts: usize,
    },
    /// More hosts than there are.
    #[error("stage {stage} has {size} hosts, and there are {hosts}; use 100% for all")]
    TooLarge {
        /// Counted from 1.
        stage: usize,
        /// Hosts asked for.
        size: usize,
        /// All hosts.
        hosts: usize,
    },
}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let unreadable = || SizeError::Unreadable(text.to_owned());
        match text.strip_suffix('%') {
            Some(number) => {
                let percent: f64 = number.parse().map_err(|_| unreadable())?;
                if percent > 0.0 && percent <= 100.0 {
                    Ok(Size::Share(percent / 100.0))
                } else {
                    Err(unreadable())
                }
            }
            None => match text.parse() {
                Ok(hosts) if hosts > 0 => Ok(Size::Hosts(hosts)),
                _ => Err(unreadable()),
            },
        }
    }
}

impl Size {
    fn of(self, hosts: usize) -> usize {
        match self {
            Size::Hosts(count) => count,
            // 10 % of 30 hosts are 3, not 4.
            Size::Share(share) => (hosts as f64 * share - 1e-9).ceil() as usize,
        }
    }
}

/// Hosts of each stage, by their places in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draw {
    order: Vec<usize>,
    /// Hosts that have the plan after each stage.
    ends: Vec<usize>,
}

impl Draw {
    /// Draws stages of these sizes.
    pub fn new(hosts: usize, sizes: &[Size], seed: u64) -> Result<Self, SizeError> {
        let mut ends: Vec<usize> = Vec::new();
        for (at, size) in sizes.iter().enumerate() {
            let (before, size) = (ends.last().copied().unwrap_or(0), size.of(hosts));
            if size > hosts {
                return Err(SizeError::TooLarge { stage: at + 1, size, hosts });
            }
            if size <= before {
                return Err(SizeError::NotGrowing { stage: at + 1, size: before, hosts });
            }
            ends.push(size);
        }
        Ok(Draw { order: shuffled((0..hosts).collect(), &mut Random::new(seed, 0)), ends })
    }

    /// Number of stages.
    pub fn stages(&self) -> usize {
        self.ends.len()
    }

    /// Hosts that get the plan in a stage.
    pub fn stage(&self, stage: usize) -> &[usize] {
        let begin = stage.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.order[begin..self.ends[stage]]
    }

    /// Hosts that no stage up to this one touches, as many as it has hosts, or all that are left.
    pub fn control(&self, stage: usize) -> &[usize] {
        let untouched = &self.order[self.ends[stage]..];
        // Those that come last: they serve as controls of the next stage, too.
        &untouched[untouched.len().saturating_sub(self.stage(stage).len())..]
    }

    /// Hosts of the first `stages` stages, newest stage first.
    pub fn newest_first(&self, stages: usize) -> Vec<usize> {
        (0..stages.min(self.stages())).rev().flat_map(|at| self.stage(at).to_vec()).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sizes(text: &str) -> Result<Vec<Size>, SizeError> {
        text.split(',').map(str::parse).collect()
    }

    #[test]
    fn sizes_are_numbers_and_shares_of_all_hosts() {
        let draw = Draw::new(30, &sizes("1,10%,100%").unwrap(), 7).unwrap();
        assert_eq!([0, 1, 2].map(|stage| draw.stage(stage).len()), [1, 2, 27]);
        assert_eq!([0, 1, 2].map(|stage| draw.control(stage).len()), [1, 2, 0]);
        for bad in ["", "0", "0%", "101%", "-1", "x", "1,,2", "NaN%"] {
            assert!(matches!(sizes(bad), Err(SizeError::Unreadable(_))), "{bad}");
        }
        let refused = |text: &str| Draw::new(4, &sizes(text).unwrap(), 7).unwrap_err();
        assert!(matches!(refused("1,10%"), SizeError::NotGrowing { stage: 2, size: 1, .. }));
        assert!(matches!(refused("5"), SizeError::TooLarge { .. }));
    }

    proptest! {
        #[test]
        fn every_host_is_in_one_stage_and_controls_are_untouched(hosts in 3usize..200, seed: u64) {
            let draw = Draw::new(hosts, &sizes("1,50%,100%").unwrap(), seed).unwrap();
            let mut all: Vec<usize> = (0..3).flat_map(|stage| draw.stage(stage).to_vec()).collect();
            for stage in 0..3 {
                let touched = draw.newest_first(stage + 1);
                prop_assert!(draw.control(stage).iter().all(|host| !touched.contains(host)));
                prop_assert!(draw.control(stage).len() <= draw.stage(stage).len());
            }
            let newest_first = draw.newest_first(3);
            prop_assert_eq!(newest_first.last(), draw.stage(0).first());
            all.sort_unstable();
            prop_assert_eq!(all, (0..hosts).collect::<Vec<_>>());
        }
    }
}
