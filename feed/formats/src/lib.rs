#![doc = include_str!("../README.md")]
//!
//! ## Modules
//!
//! [`twse`] telegrams, and [`itch`] messages in [`mold`] packets. [`price`]s are exact.
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
