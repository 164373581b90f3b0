//! Packet formats: what the bytes on the wire mean, and nothing else.
//!
//! Pure: no I/O, no clock, no allocation, no `std`. Whatever the bytes, parsing returns an
//! error that names the field and its offset; it never panics.
//!
//! Two layers:
//! - one file a format ([`ethernet`], [`arp`], [`ipv4`], [`udp`], [`icmp`], [`probe`]): a
//!   `Packet` looks at bytes that were checked once, a `Repr` (the probe's: [`probe::Header`])
//!   is the value to build them from;
//! - [`frame`]: the fast path of the engines, which treats Ethernet, IPv4 and UDP as one
//!   header of [`frame::HEADERS_BYTES`].
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod arp;
pub mod checksum;
mod error;
pub mod ethernet;
pub mod frame;
#[doc(hidden)]
pub mod fuzzing;
pub mod icmp;
pub mod ipv4;
pub mod nettest;
pub mod probe;
pub mod udp;

pub use error::FrameError;
