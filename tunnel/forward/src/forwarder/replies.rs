//! Answers of the forwarder itself, to the port: "too big" for packets that do not fit a tunnel.

use std::sync::atomic::Ordering;

use crate::ports::Taken;

use super::counts::add;
use super::judge::retagged;
use super::{Forwarder, Rules, Worker};
use crate::encap::PacketPlace;
use crate::order::{BATCH_FRAMES_MAX, Frame};
use crate::pmtu::{self, MtuAnswer};

/// An answer in a frame of its own.
pub(super) type Reply<'a> = (Taken<'a>, PacketPlace);

impl Forwarder<'_> {
    /// Answers the sender of a frame that is too large, if it may be answered and the rate allows it.
    ///
    /// - `place`: the frame as it enters the tunnel, without the port's tag.
    pub(super) fn answer_too_big<'a>(
        &'a self,
        rules: &Rules,
        tunnel: u16,
        (original, place): (&mut Taken<'_>, PacketPlace),
        (spare, replies): (&mut Vec<Taken<'a>>, &mut Vec<Reply<'a>>),
        now_ns: u64,
    ) {
        let counts = &self.counts.too_big;
        let Some(encap) = rules.encaps.get(usize::from(tunnel)) else { return };
        let frame = original.bytes().get(place.at..place.at + place.len).unwrap_or(&[]);
        if pmtu::answerable(frame).is_none() {
            return add(&counts.unanswered_count);
        }
        if replies.len() >= BATCH_FRAMES_MAX || !self.limiter.admits(now_ns) {
            return add(&counts.limited_count);
        }
        let Some((mut copy, at)) = self.copied(spare, original, place) else {
            return add(&self.counts.uncopied_count);
        };
        let (reply, count) = match pmtu::answer(copy.bytes(), at, encap.inner_bytes_max()) {
            MtuAnswer::V4(reply) => (reply, &counts.v4_count),
            MtuAnswer::V6(reply) => (reply, &counts.v6_count),
            MtuAnswer::None => return add(&counts.unanswered_count),
        };
        if let Some(reply) = retagged(copy.bytes(), reply, &rules.domains, tunnel.into()) {
            add(count);
            replies.push((copy, reply));
        }
    }

    /// Sends the worker's answers to the port, unless another worker sends there: then at its next turn.
    pub(super) fn send_replies(&self, worker: &mut Worker<'_>) {
        if worker.replies.is_empty() {
            return;
        }
        self.out_of_tunnels.visit(|egress| {
            for (taken, place) in worker.replies.drain(..) {
                // Buffers are far below 64 KiB.
                let frame = Frame::new(taken.park(), place.at as u16, place.len as u16, 0);
                egress.send(frame);
            }
        });
    }

    /// Limits the segment size that a TCP SYN into or out of a tunnel announces.
    #[inline]
    pub(super) fn clamp(&self, rules: &Rules, tunnel: usize, frame: &mut [u8]) {
        if let Some(encap) = rules.encaps.get(tunnel)
            && pmtu::clamp_mss(frame, encap.inner_bytes_max())
        {
            self.counts.too_big.clamped_count.fetch_add(1, Ordering::Relaxed);
        }
    }
}
