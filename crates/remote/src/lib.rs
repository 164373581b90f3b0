//! Calls to processes of this program: children, other builds, and ends in namespaces and on other hosts.
//!
//! A [`Service`] is a set of typed calls and answers. The end that answers begins with a [`Greeting`], which names its
//! versions; both ends refuse another version of the exchange with both named.

mod failure;
mod service;
pub mod work;

pub use failure::{Failure, INTERRUPTED_EXIT_CODE};
pub use service::{EXCHANGE, Greeting, Service};
