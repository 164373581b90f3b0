//! Transmit side of one direction: flooding, shaper, ring, and a counter for each outcome.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ports::{Pool, PortTx, Taken};
use io::IoError;
use wire::flow;

use super::counts::{ForwarderCounts, OutCounts, add, add_many};
use super::{FLOOD, Rules, frame_place};
use crate::domain::{Tag, untag};
use crate::encap::{Mark, PacketPlace};
use crate::order::{BATCH_FRAMES_MAX, Frame, FrameSink, Recycled};
use crate::pmtu::clamp_mss;
use crate::qos::Shaper;
use crate::spec::Tunnel;

/// State protected by the egress lock.
#[derive(Debug)]
pub(super) struct Egress<'p> {
    tx: PortTx<'p>,
    pool: &'p Pool,
    shaper: Option<Shaper>,
    rules: Arc<Rules>,
    counts: Arc<ForwarderCounts>,
    /// Index in `counts.out`.
    side: usize,
    now_ns: u64,
    flood_sequence: u32,
    /// Next GRE sequence number of each tunnel that has them.
    sequences: BTreeMap<Tunnel, u32>,
    reaped: Vec<Taken<'p>>,
    recycled: Vec<Taken<'p>>,
    posted: bool,
    /// Frames posted and not reclaimed.
    in_kernel_count: usize,
    /// Not in `counts` yet: one atomic addition per batch instead of one per frame.
    sent_count: u64,
    pub(super) failed: Option<IoError>,
}

impl<'p> Egress<'p> {
    pub(super) fn new(
        tx: PortTx<'p>,
        pool: &'p Pool,
        shaper: Option<Shaper>,
        rules: Arc<Rules>,
        counts: Arc<ForwarderCounts>,
        side: usize,
    ) -> Self {
        Egress {
            tx,
            pool,
            shaper,
            rules,
            counts,
            side,
            now_ns: 0,
            flood_sequence: 0,
            sequences: BTreeMap::new(),
            reaped: Vec::with_capacity(2048),
            recycled: Vec::with_capacity(BATCH_FRAMES_MAX),
            posted: false,
            in_kernel_count: 0,
            sent_count: 0,
            failed: None,
        }
    }

    /// Replaces the rules.
    pub(super) fn set_rules(&mut self, rules: &Arc<Rules>) {
        self.rules = rules.clone();
    }

    /// Reclaims sent frames and sends queued ones.
    pub(super) fn keep_up(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.reap();
        self.pump();
        // A busy kernel may have left frames in the ring.
        if self.posted || self.tx.tx_pending() > 0 {
            self.push_out();
        }
    }

    /// True if every frame that was sent has left the host, and none waits.
    pub(super) fn is_idle(&mut self) -> bool {
        self.reap();
        self.in_kernel_count == 0 && self.queued().unwrap_or(0) == 0
    }

    fn reap(&mut self) {
        self.tx.tx_reap(&mut self.reaped);
        self.in_kernel_count = self.in_kernel_count.saturating_sub(self.reaped.len());
        self.pool.give_back(self.reaped.drain(..));
    }

    /// Sends the frames that the shaper releases.
    fn pump(&mut self) {
        while self.shaper.is_some() && self.tx.tx_room(1) > 0 {
            let next = self.shaper.as_mut().and_then(|shaper| shaper.dequeue(self.now_ns));
            let Some(frame) = next else { break };
            self.post(frame);
        }
    }

    fn push_out(&mut self) {
        self.posted = false;
        let sent_count = std::mem::take(&mut self.sent_count);
        add_many(&self.counts().sent_count, sent_count);
        self.tx.tx_publish();
        if let Err(error) = self.tx.kick() {
            self.failed = Some(error);
        }
    }

    /// Replaces the shaper. Returns the number of queued frames that did not fit into the new one.
    pub(super) fn set_shaper(&mut self, shaper: Option<Shaper>, now_ns: u64) -> usize {
        self.now_ns = now_ns;
        let waiting = self.shaper.as_mut().map(Shaper::take_all).unwrap_or_default();
        self.shaper = shaper;
        let before = self.recycled.len();
        for frame in waiting {
            self.forward(frame);
        }
        let dropped = self.recycled.len() - before;
        self.flush();
        dropped
    }

    /// Frames in the queues; `None` without a shaper.
    pub(super) fn queued(&self) -> Option<usize> {
        self.shaper.as_ref().map(Shaper::frame_count)
    }

    fn counts(&self) -> &OutCounts {
        &self.counts.out[self.side]
    }

    /// Sends a frame that was not admitted.
    pub(super) fn send(&mut self, frame: Frame) {
        self.post(frame);
    }

    /// Hands a frame to the kernel, or drops it if the ring is full.
    fn post(&mut self, frame: Frame) {
        let Some(taken) = self.pool.claim(frame.index()) else { return };
        self.post_taken(taken, frame_place(frame));
    }

    fn post_taken(&mut self, mut taken: Taken<'p>, place: PacketPlace) {
        if self.rules.has_sequence {
            self.number(&mut taken, place);
        }
        match self.tx.tx_post(taken, place.at, place.len) {
            Ok(()) => {
                self.sent_count += 1;
                self.in_kernel_count += 1;
                self.posted = true;
            }
            Err(taken) => {
                add(&self.counts().ring_full_count);
                self.recycled.push(taken);
            }
        }
    }

    /// Numbers a packet of a tunnel with sequence numbers: here, behind the queues, the order of
    /// sending is known. Receivers drop a number below the last (RFC 2890, section 2.2).
    fn number(&mut self, taken: &mut Taken<'p>, place: PacketPlace) {
        let Some(whole) = taken.bytes().get_mut(place.at..place.at + place.len) else { return };
        let mut encaps = self.rules.encaps.iter();
        let Some(encap) = encaps.find(|encap| encap.has_written(whole)) else { return };
        let next = self.sequences.entry(*encap.tunnel()).or_default();
        encap.set_sequence(whole, *next);
        *next = next.wrapping_add(1);
    }

    /// Queues a frame by its class, or drops it if the queue is full; without queues it is sent.
    fn queue(&mut self, frame: Frame) {
        let Some(shaper) = &mut self.shaper else { return self.post(frame) };
        if let Err(frame) = shaper.enqueue(frame) {
            add(&self.counts.out[self.side].tail_drop_count);
            self.recycled.extend(self.pool.claim(frame.index()));
        }
    }

    /// Queues a copy into every tunnel of the frame's network: each is a frame on the underlay.
    fn flood(&mut self, frame: Frame) {
        let class = frame.class() & !FLOOD;
        let Some(mut original) = self.pool.claim(frame.index()) else { return };
        add(&self.counts.flood_count);
        let place = frame_place(frame);
        let inner = original.bytes().get(place.at..place.at + place.len).unwrap_or(&[]);
        let flow_hash = flow::tuple(inner).crc32c();
        let rules = self.rules.clone();
        // By the rules of now: those by which it was judged may have been replaced.
        let network = rules.domains.network(Tag::outermost(inner));
        let mut was_removed = true;
        for (at, encap) in rules.encaps.iter().enumerate() {
            if Some(rules.domains.tunnel_network(at)) != network {
                continue;
            }
            was_removed = false;
            self.pool.take(&mut self.reaped, 1);
            let Some(mut copy) = self.reaped.pop() else {
                add(&self.counts().copy_failed_count);
                continue;
            };
            let range = place.at..place.at + place.len;
            if let (Some(to), Some(from)) =
                (copy.bytes().get_mut(range.clone()), original.bytes().get(range))
            {
                to.copy_from_slice(from);
            }
            self.flood_sequence = self.flood_sequence.wrapping_add(1);
            let mark = Mark { flow_hash, sequence: self.flood_sequence };
            let inner = match network {
                Some(0) | None => place,
                Some(_) => untag(copy.bytes(), place).unwrap_or(place),
            };
            if let Some(frame) = copy.bytes().get_mut(inner.at..inner.at + inner.len)
                && clamp_mss(frame, encap.inner_bytes_max())
            {
                add(&self.counts.too_big.clamped_count);
            }
            match encap.prepend(copy.bytes(), inner, mark) {
                // Buffers are far below 64 KiB.
                Ok(PacketPlace { at, len }) => {
                    self.queue(Frame::new(copy.park(), at as u16, len as u16, class));
                }
                Err(reason) => {
                    add(&self.counts.encap_drops[reason.index()]);
                    self.recycled.push(copy);
                }
            }
        }
        if was_removed {
            add(&self.counts.removed_count);
        }
        self.recycled.push(original);
    }
}

impl FrameSink for Egress<'_> {
    fn room_frames(&mut self) -> usize {
        match self.shaper {
            // Full queues drop their tail instead of blocking the order.
            Some(_) => usize::MAX,
            None => self.tx.tx_room(BATCH_FRAMES_MAX),
        }
    }

    fn forward(&mut self, frame: Frame) {
        if frame.class() & FLOOD != 0 { self.flood(frame) } else { self.queue(frame) }
    }

    fn recycle(&mut self, frame: Frame, _: Recycled) {
        self.recycled.extend(self.pool.claim(frame.index()));
    }

    fn flush(&mut self) {
        self.pump();
        self.pool.give_back(self.recycled.drain(..));
        if self.posted {
            self.push_out();
        }
    }
}
