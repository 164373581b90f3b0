//! Limits of an experiment, and its repetition.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{REQUEST_VERSION, TITLE_LEN_MAX};
use crate::RESOLVE;
use crate::statistics::PAIRS_MIN;

/// Blocks without which there is no verdict.
const BLOCKS_MIN: u32 = PAIRS_MIN as u32;
/// Time to spend unless another is given.
const TIME: Duration = Duration::from_secs(60);
/// Longest time of an experiment.
pub(super) const TIME_MAX: Duration = Duration::from_secs(7 * 86_400);
/// Largest resolution, as a ratio.
const RESOLVE_MAX: f64 = 1.5;

/// Limits of an experiment, and its seed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Time to spend on trials.
    #[serde(rename = "time_ns", with = "nanoseconds")]
    #[cfg_attr(feature = "schema", schemars(with = "u64"))]
    pub time: Duration,
    /// Smallest difference that the run is asked to decide, as a ratio above 1.
    pub resolve: f64,
    /// Seed of the order of trials; `None` for a random one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Minimum number of blocks before a verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_blocks: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_blocks: Option<u32>,
    /// Each arm runs uncounted before each of its trials.
    #[serde(default)]
    pub settle: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            time: TIME,
            resolve: RESOLVE,
            seed: None,
            min_blocks: None,
            max_blocks: None,
            settle: false,
        }
    }
}

/// A request of another version, limits under which no verdict is possible, or a load beyond its own.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum RequestError {
    #[error(
        "the experiment has version {theirs}, and this Wirepath reads {REQUEST_VERSION}; install the same version at \
         both ends"
    )]
    Version { theirs: u32 },
    #[error("{option} {blocks}: no verdict is possible with fewer than {BLOCKS_MIN} blocks")]
    FewBlocks { option: &'static str, blocks: u32 },
    #[error(
        "{option}: give one line of 1 to {TITLE_LEN_MAX} characters, without control characters"
    )]
    Title { option: &'static str },
    #[error("--min-blocks {min} is more than --max-blocks {max}")]
    Reversed { min: u32, max: u32 },
    #[error("--time: give more than 0 and at most 7 days")]
    Time,
    #[error("--resolve: give a percentage above 0 and up to 50, such as 2% or 0.5%")]
    Resolve,
    #[error("--rate: give 1 to 10000000 datagrams per second")]
    Rate,
    #[error("--trial: give more than 0 and at most 7 days")]
    Trial,
    #[error("--vlan: give a VLAN of 1 to 4094")]
    Vlan,
}

impl Limits {
    /// Errors: no verdict is possible under them.
    pub fn check(&self) -> Result<(), RequestError> {
        let given = [("--min-blocks", self.min_blocks), ("--max-blocks", self.max_blocks)];
        for (option, blocks) in given {
            if let Some(blocks) = blocks.filter(|&blocks| blocks < BLOCKS_MIN) {
                return Err(RequestError::FewBlocks { option, blocks });
            }
        }
        if let (Some(min), Some(max)) = (self.min_blocks, self.max_blocks)
            && min > max
        {
            return Err(RequestError::Reversed { min, max });
        }
        if self.time.is_zero() || self.time > TIME_MAX {
            return Err(RequestError::Time);
        }
        if !(self.resolve > 1.0 && self.resolve <= RESOLVE_MAX) {
            return Err(RequestError::Resolve);
        }
        Ok(())
    }
}

/// Repetition of a whole experiment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// At least 1.
    pub runs: u32,
    /// Time from the start of one run to the start of the next; `None` for one after the other.
    #[serde(
        rename = "every_ns",
        default,
        with = "nanoseconds_if_given",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
    pub every: Option<Duration>,
}

impl Default for Series {
    fn default() -> Self {
        Series { runs: 1, every: None }
    }
}

impl Series {
    pub(super) fn is_default(&self) -> bool {
        *self == Series::default()
    }
}

/// A duration as a number of nanoseconds.
pub(super) mod nanoseconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(in crate::request) fn serialize<S: Serializer>(
        time: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }

    pub(in crate::request) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_nanos)
    }
}

/// The same for one that may be absent.
pub(super) mod nanoseconds_if_given {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(in crate::request) fn serialize<S: Serializer>(
        time: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let nanoseconds = time.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        nanoseconds.serialize(serializer)
    }

    pub(in crate::request) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_under_which_no_verdict_is_possible_are_refused() {
        assert_eq!(Limits::default().check(), Ok(()));
        let second = Duration::from_secs(1);
        for bad in [
            Limits { min_blocks: Some(5), ..Limits::default() },
            Limits { max_blocks: Some(0), ..Limits::default() },
            Limits { min_blocks: Some(9), max_blocks: Some(8), ..Limits::default() },
            Limits { time: Duration::ZERO, ..Limits::default() },
            Limits { time: TIME_MAX + second, ..Limits::default() },
            Limits { resolve: 1.0, ..Limits::default() },
            Limits { resolve: f64::NAN, ..Limits::default() },
            Limits { resolve: 1.6, ..Limits::default() },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
