//! Connections whose data has no answer, and how long.

use std::collections::HashMap;
use std::net::IpAddr;

use super::connections::{Connection, connections};
use crate::causes::evidence::Window;
use crate::net::{TcpSocket, TcpState, TcpTimer};

/// Most time between two retransmissions, milliseconds.
///
/// Source: net/tcp.h, TCP_RTO_MAX.
const RTO_MS_MAX: u64 = 120_000;
/// Retransmissions without an answer from which a connection has stalled: 1.4 s at least.
const RETRIES: u8 = 3;
/// Pause before the first unanswered data from which a device may have forgotten the connection, milliseconds: if the
/// far end answers others, and if nothing is known about it.
const PAUSE_MS: (u64, u64) = (3_000, 30_000);

/// A connection whose data has no answer.
pub(super) struct Stalled<'a> {
    pub(super) socket: &'a TcpSocket,
    /// Time since the first unanswered data, milliseconds, computed from the timer.
    pub(super) stalled_ms: u64,
    /// Time before that in which the far end was silent, milliseconds.
    pub(super) pause_ms: u64,
    /// The far end's address has answered on other connections meanwhile.
    pub(super) is_peer_alive: bool,
}

impl Stalled<'_> {
    /// A device on the way has forgotten it, rather than the far end being gone.
    pub(super) fn is_forgotten(&self) -> bool {
        self.pause_ms >= if self.is_peer_alive { PAUSE_MS.0 } else { PAUSE_MS.1 }
    }
}

/// Connections on which nothing came within the window, and which have retransmitted three times and more.
pub(super) fn stalled(window: &Window) -> Vec<Stalled<'_>> {
    let open = connections(window);
    let (stalled, others): (Vec<_>, Vec<_>) = open.into_iter().partition(is_stalled);
    if stalled.is_empty() {
        return Vec::new();
    }
    let mut last_heard_ms: HashMap<IpAddr, u64> = HashMap::new();
    for one in others.iter().filter(|one| one.after.state != TcpState::SynSent) {
        let heard = last_heard_ms.entry(one.after.remote.ip()).or_insert(u64::MAX);
        *heard = (*heard).min(one.after.info.last_ack_recv.into());
    }
    let found = stalled.iter().map(|one| {
        let socket = one.after;
        let stalled_ms = since_first_ms(socket);
        let heard = last_heard_ms.get(&socket.remote.ip()).copied().unwrap_or(u64::MAX);
        Stalled {
            socket,
            stalled_ms,
            pause_ms: u64::from(socket.info.last_ack_recv).saturating_sub(stalled_ms),
            is_peer_alive: heard < stalled_ms,
        }
    });
    found.collect()
}

fn is_stalled(one: &Connection<'_>) -> bool {
    let socket = one.after;
    socket.state != TcpState::SynSent
        && socket.timer == TcpTimer::Retransmit
        && socket.retry_count >= RETRIES
        && one.growth(|info| info.segs_in.into()) == 0
        && one.acked_bytes() == 0
}

/// Time since the first of some retransmissions that double their timeout, milliseconds.
fn since_first_ms(socket: &TcpSocket) -> u64 {
    let info = &socket.info;
    let now_ms = u64::from(info.rto) / 1000;
    let backoff = u32::from(info.backoff).min(32);
    let first_ms =
        if now_ms < RTO_MS_MAX { now_ms >> backoff } else { u64::from(info.rtt) / 1000 + 200 };
    waits_ms(first_ms, backoff) + now_ms.saturating_sub(socket.timer_ms.into())
}

/// Sum of some timeouts of which each is twice the one before, milliseconds.
pub(super) fn waits_ms(first_ms: u64, count: u32) -> u64 {
    (0..count).map(|number| first_ms.saturating_mul(1 << number.min(20)).min(RTO_MS_MAX)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_double_up_to_two_minutes() {
        assert_eq!(waits_ms(200, 0), 0);
        assert_eq!(waits_ms(200, 3), 1_400);
        // The kernel's documentation has 924.6 s for 15 retries.
        assert_eq!(waits_ms(200, 16), 924_600);
        assert_eq!(waits_ms(1000, 7), 127_000);
    }
}
