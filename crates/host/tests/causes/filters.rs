//! Planted causes.
