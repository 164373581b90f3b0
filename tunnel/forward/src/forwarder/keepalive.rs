//! Keepalives and their answers, which the forwarder sends by itself: they are admitted into the order like
//! frames of the port, so that they are numbered and queued like those.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::ports::{HEADROOM_BYTES, Taken};

use super::{Forwarder, Rules};
use crate::encap::PacketPlace;
use crate::keepalive::{FRAME_BYTES, KeepaliveKind, KeepaliveMessage};
use crate::order::Frame;

/// Class of a frame of the forwarder's own, until it has its outer headers. No frame of the port has it.
pub(super) const OWN: u8 = 0x40;
/// Answers are added to at most so many waiting frames: a far end that asks for more is not answered.
const ANSWERS_MAX: usize = 64;
/// Requests likewise: one for each tunnel.
const REQUESTS_MAX: usize = 1 << 12;
/// Position of the tunnel's index, in the source address; the far end does not read it.
const TUNNEL_AT: usize = 10;

/// Frames of the forwarder's own that wait to be admitted.
#[derive(Debug, Default)]
pub(super) struct OwnFrames<'p> {
    waiting: Mutex<VecDeque<Taken<'p>>>,
    /// Length of `waiting`, read without the lock.
    waiting_count: AtomicU64,
    /// Frames that the order has taken in so far.
    admitted_count: AtomicU64,
}

impl<'p> OwnFrames<'p> {
    /// Passes up to `room` frames to `push`. Returns their number.
    pub(super) fn admit(&self, room: usize, mut push: impl FnMut(Frame)) -> usize {
        if self.waiting_count.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let count = waiting.len().min(room);
        for taken in waiting.drain(..count) {
            // Far below 64 KiB.
            push(Frame::new(taken.park(), HEADROOM_BYTES as u16, FRAME_BYTES as u16, OWN));
        }
        self.waiting_count.store(waiting.len() as u64, Ordering::Relaxed);
        self.admitted_count.fetch_add(count as u64, Ordering::Relaxed);
        count
    }

    /// Frames admitted so far.
    pub(super) fn admitted_count(&self) -> u64 {
        self.admitted_count.load(Ordering::Relaxed)
    }

    /// Returns false if `waiting_max` frames wait already.
    fn push(&self, taken: Taken<'p>, waiting_max: usize) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = waiting.len() < waiting_max;
        if has_room {
            waiting.push_back(taken);
            self.waiting_count.store(waiting.len() as u64, Ordering::Relaxed);
        }
        has_room
    }
}

/// Tunnel of a frame of the forwarder's own.
pub(super) fn target_tunnel(frame: &[u8]) -> Option<u16> {
    frame.get(TUNNEL_AT..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

/// Sets the time of a request.
pub(super) fn stamp(bytes: &mut [u8], place: PacketPlace, now_ns: u64) {
    let Some(frame) = bytes.get_mut(place.at..place.at + place.len) else { return };
    if let Some(request) =
        KeepaliveMessage::read(frame).filter(|it| it.kind == KeepaliveKind::Request)
        && let Some(to) = frame.first_chunk_mut::<FRAME_BYTES>()
    {
        *to = KeepaliveMessage { time_ns: now_ns, ..request }.frame();
    }
}

impl Forwarder<'_> {
    /// Sends a message into a tunnel with the next batch. Returns false if no frame is free or too many wait.
    pub fn send_keepalive(&self, tunnel: u16, message: &KeepaliveMessage) -> bool {
        let mut taken = Vec::with_capacity(1);
        self.pool.take(&mut taken, 1);
        let Some(mut taken) = taken.pop() else { return false };
        let Some(to) = taken.bytes().get_mut(HEADROOM_BYTES..HEADROOM_BYTES + FRAME_BYTES) else {
            return false;
        };
        to.copy_from_slice(&message.frame());
        to[TUNNEL_AT..TUNNEL_AT + 2].copy_from_slice(&tunnel.to_be_bytes());
        let waiting_max = match message.kind {
            KeepaliveKind::Request => REQUESTS_MAX,
            KeepaliveKind::Answer => ANSWERS_MAX,
        };
        self.own_frames.push(taken, waiting_max)
    }

    /// Answers a request out of a tunnel, or counts an answer.
    pub(super) fn keepalive(
        &self,
        rules: &Rules,
        tunnel: usize,
        message: KeepaliveMessage,
        now_ns: u64,
    ) {
        match (message.answer(), rules.keepalives.get(tunnel)) {
            // One that cannot be sent is one that the far end counts as lost.
            (Some(answer), _) => drop(self.send_keepalive(tunnel as u16, &answer)),
            (None, Some(Some(keepalive))) => keepalive.answered(&message, now_ns),
            (None, _) => {}
        }
    }
}
