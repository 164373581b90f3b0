//! Market-data formats: [`twse`] telegrams, and [`itch`] messages in [`mold`] packets.
//!
//! Pure: no I/O, no clock, no allocation, no `std`. Parsing never panics; malformed bytes are an
//! error that names the field and its offset. [`price`]s are exact.
#![no_std]
#![warn(missing_docs)]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod itch;
pub mod mold;
pub mod price;
pub mod twse;
