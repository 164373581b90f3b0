//! Datagrams that one receive returned together (UDP_GRO).

use sys::udp::ReceivedDatagram;

use crate::engine::Arrival;
use crate::frames::answer_in_place;

/// Calls `each` with every datagram; returns their number.
#[inline]
pub(super) fn take(received: ReceivedDatagram<'_>, each: &mut impl FnMut(Arrival<'_>)) -> usize {
    let (stamp_ns, mut count) = (received.stamp_ns, 0);
    for payload in received.bytes.chunks_mut(received.segment_bytes.max(1)) {
        let payload_bytes = payload.len();
        each(Arrival { payload, payload_bytes, stamp_ns });
        count += 1;
    }
    count
}

/// Writes the answers into the datagrams; returns their number, and whether all of them have one.
#[inline]
pub(super) fn answer(
    received: &mut ReceivedDatagram<'_>,
    answer: &mut impl FnMut(&mut Arrival<'_>) -> Option<u32>,
) -> (usize, bool) {
    let (stamp_ns, mut count, mut is_ours) = (received.stamp_ns, 0, true);
    for payload in received.bytes.chunks_mut(received.segment_bytes.max(1)) {
        let payload_bytes = payload.len();
        let mut arrival = Arrival { payload, payload_bytes, stamp_ns };
        match answer(&mut arrival) {
            Some(reply) => answer_in_place(arrival.payload, reply),
            None => is_ours = false,
        }
        count += 1;
    }
    (count, is_ours)
}
