//! A mesh: every pair of hosts measured in rounds of disjoint pairs, and the hosts and links that stand out.
//!
//! Pure: pairs come out, measurements go in.

mod polish;
mod rounds;
mod suspects;

pub use polish::{Fit, Table, polish};
pub use remote::work::PairCell;
pub(crate) use rounds::shuffled;
pub use rounds::{ALL_PAIRS_MAX, DEGREE, Pair, circle, rounds};
pub use suspects::{
    CONFIRMING_BLOCKS, Place, Sign, Suspect, confirming_pairs, is_confirmed, suspects,
};
