#![doc = include_str!("../README.md")]
#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod always_valid;
pub mod bets;
mod figure;
mod holm;
mod looks;
pub mod paired;
pub mod pairs;
pub mod sequential;
pub mod two_samples;
pub mod verdict;

pub use figure::{Better, CountDifference, Floor, Verdict};
pub use holm::holm;
pub use looks::{Look, blocks_min, look_after, trials_without_event};
