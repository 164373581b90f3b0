//! UDP and multicast.

mod errors;
mod rcvbuf;

use super::Cause;

pub(super) const CAUSES: &[Cause] = &[
    Cause::new("udp-rcvbuf", rcvbuf::check),
    Cause::new("protocol-errors", errors::protocol_errors),
];
