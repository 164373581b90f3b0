//! A mesh: every pair of hosts measured in rounds of disjoint pairs, and the hosts and links that stand out.
//!
//! Pure: pairs come out, measurements go in.

mod polish;
mod rounds;
mod suspects;

pub use polish::{Fit, MeshTable, polish};
pub use remote::work::PairCell;
pub(crate) use rounds::shuffled;
pub use rounds::{ALL_PAIRS_MAX, DEGREE, HostPair, circle, rounds};
pub use suspects::{
    CONFIRMING_BLOCKS, Sign, Suspect, SuspectPlace, confirming_pairs, is_confirmed, suspects,
};
