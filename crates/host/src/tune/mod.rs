//! Settings of an interface for as long as a guard lives.

mod coalescing;
mod ring;

pub use coalescing::NoCoalescing;
pub use ring::LargeRing;
