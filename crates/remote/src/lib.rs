//! Calls to processes of this program: children, other builds, and ends in namespaces and on other hosts.
//!
//! A [`Service`] is a set of typed calls and answers. A [`Caller`] starts the end that answers (`wirepath answer NAME`)
//! as a child, as another build, in a namespace of this host, or on another host by ssh; that end reads the calls from
//! [`Calls`]. Both ends begin with a [`Greeting`] and refuse another version of the exchange with both named.
//!
//! A message is one line of JSON of limited length. The calling end sends an empty line every [`HEARTBEAT_INTERVAL`],
//! and the answering end ends after [`SILENCE_LIMIT`] without a line: sshd notices a connection that broke only after
//! hours. The answering end sends none, because it may be measuring; the calling end limits its wait for an answer.
//!
//! [`FarHost`] is a far end with a `wirepath peer`, to which near ends connect by TCP. Such a [`tcp::Connection`] has the
//! same framing and heartbeat; it is encrypted if there is a shared secret, and trusts no end before that has greeted.

mod caller;
mod calls;
mod error;
mod failure;
mod far;
#[doc(hidden)]
pub mod fuzzing;
mod heartbeat;
mod lines;
pub mod path;
mod service;
pub mod tcp;
pub mod work;

pub use caller::Caller;
pub use calls::{Calls, NearEndGone};
pub use error::RemoteError;
pub use failure::Failure;
pub use far::{FarHost, FarOptions, address_between};
pub use heartbeat::Heartbeat;
pub use lines::{HEARTBEAT_INTERVAL, LINE_BYTES_MAX, LineBuffer, SILENCE_LIMIT, TooLong};
pub use service::{EXCHANGE, Greeting, Service};
