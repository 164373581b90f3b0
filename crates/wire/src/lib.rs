//! Packet formats: what the bytes on the wire mean, and nothing else.
//!
//! Pure: no I/O, no clock, no allocation, no `std`. Whatever the bytes, parsing returns an
//! error that names the field and its offset; it never panics.
//!
//! Two layers:
//! - one file a format ([`ethernet`], [`arp`], [`ipv4`], [`ipv6`], [`udp`], [`icmp`], [`gre`],
//!   [`vxlan`], [`probe`]): a `Packet` looks at bytes that were checked once, a `Repr` (the
//!   probe's: [`probe::Header`]) is the value to build them from;
//! - [`frame`]: the fast path of the engines, which treats Ethernet, IPv4 and UDP as one
//!   header of [`frame::HEADERS_BYTES`].
//!
//! Above UDP lies what a market-data feed sends: [`twse`], or [`itch`] in [`mold`];
//! [`price`]s are exact. For tunnels, [`flow`] hashes what makes a flow, and [`ecn`] combines congestion marks.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod arp;
pub mod checksum;
pub mod ecn;
mod error;
pub mod ethernet;
pub mod flow;
pub mod frame;
#[doc(hidden)]
pub mod fuzzing;
pub mod gre;
pub mod icmp;
pub mod ipv4;
pub mod ipv6;
pub mod itch;
pub mod mold;
pub mod nettest;
pub mod price;
pub mod probe;
pub mod twse;
pub mod udp;
pub mod vxlan;

pub use error::FrameError;
