//! Proof on a running service: its figures from outside and from itself, and the conduct of the experiment.

pub mod conduct;
pub mod sources;
