#![doc = include_str!("../README.md")]
//!
//! ## Modules
//!
//! - one file per format ([`ethernet`], [`arp`], [`ipv4`], [`ipv6`], [`udp`], [`icmp`], [`gre`],
//!   [`vxlan`], [`probe`]): a `Packet` is a view of checked bytes, a `Repr` (for the probe
//!   [`probe::Header`]) the value to build them from;
//! - [`frame`]: the fast path of the engines, which treats Ethernet, IPv4 and UDP as one
//!   header of [`frame::HEADERS_BYTES`].
//!
//! [`image`] is the version of a guest's image. For tunnels, [`flow`] hashes flows, [`ecn`] combines congestion
//! marks and [`offload`] does what a sender left to a device.
#![no_std]
#![warn(missing_docs)]
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
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod gre;
pub mod icmp;
pub mod image;
pub mod ipv4;
pub mod ipv6;
pub mod offload;
pub mod probe;
pub mod udp;
pub mod vxlan;

pub use error::FrameError;
