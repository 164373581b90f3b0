//! Proof on a running service: its figures from outside and from itself.

pub mod sources;
