//! TCP and its sockets.

mod listen_queue;

use super::Cause;

pub(super) const CAUSES: &[Cause] = &[Cause::new("listen-queue", listen_queue::check)];
