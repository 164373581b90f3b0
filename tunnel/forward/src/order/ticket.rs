//! Ingress: the holder of the ingress lock fills the next slot of each lane and issues its ticket.

use super::LANE_COUNT_MAX;
use super::batch_ticket::BatchTicket;
use super::frame::Frame;
use super::lane::Lane;
use super::slot::TicketSlot;
use super::sync::{AtomicU64, BATCH_FRAMES_MAX, Ordering};

/// Collects the frames admitted by the holder of the ingress lock.
///
/// Lives as long as the lock is held. If the caller panics, the frames pushed so far count as
/// dropped, so that no buffer is lost.
#[derive(Debug)]
pub struct FrameIntake<'a> {
    lanes: &'a [Lane],
    open: [Open<'a>; LANE_COUNT_MAX],
}

/// Slot of a lane that is being filled; empty beyond the last lane.
#[derive(Debug, Clone, Copy)]
struct Open<'a> {
    slot: Option<&'a TicketSlot>,
    ticket: u64,
    len: u8,
    /// Capacity in frames; 0 while the window is full.
    room: u8,
}

const CLOSED: Open<'static> = Open { slot: None, ticket: 0, len: 0, room: 0 };

impl<'a> FrameIntake<'a> {
    #[inline]
    pub(super) fn new(lanes: &'a [Lane]) -> FrameIntake<'a> {
        // Filled in place: built elsewhere, it was copied by a call in each round.
        let mut intake = FrameIntake { lanes, open: [CLOSED; LANE_COUNT_MAX] };
        for (open, lane) in intake.open.iter_mut().zip(lanes) {
            *open = reserve(lane);
        }
        intake
    }

    /// Number of frames that fit whichever lanes they go to; 0 if the window of one lane is full.
    pub fn room(&self) -> usize {
        let rooms = self.open.iter().zip(self.lanes).map(|(open, _)| open.room - open.len);
        rooms.min().unwrap_or(0).into()
    }

    /// Adds a frame to a lane. Errors: the frame, if the lane has no room.
    ///
    /// - `lane`: see [`super::lane_index`]; a lane that does not exist has no room.
    pub fn push(&mut self, lane: usize, frame: Frame) -> Result<(), Frame> {
        let Some(open) = self.open.get_mut(lane) else { return Err(frame) };
        let Some(slot) = open.slot.filter(|_| open.len < open.room) else { return Err(frame) };
        slot.set_frame(open.len.into(), frame);
        open.len += 1;
        Ok(())
    }

    /// Adds many frames to one lane. Keeps in registers what [`Self::push`] keeps in memory, at a
    /// third of the cost.
    ///
    /// - `lane`: see [`Self::push`].
    pub fn lane(&mut self, lane: usize) -> Filler<'_, 'a> {
        let open = self.open.get_mut(lane);
        let free = open.as_ref().and_then(|open| Some((open.slot?, open.len, open.room)));
        let free = free.map_or([].iter(), |(slot, len, room)| slot.between(len, room));
        Filler { open, free }
    }

    /// Issues a ticket for each lane that received frames.
    pub(super) fn issue(&mut self, mut each: impl FnMut(BatchTicket<'a>)) {
        for (open, lane) in self.open.iter_mut().zip(self.lanes) {
            let len = std::mem::take(&mut open.len);
            if len > 0 {
                let tail = &lane.tail.0;
                lane.slot(open.ticket).take(open.ticket);
                lane.set_tail(open.ticket + 1);
                tail.admitted_frames.add(len.into());
                tail.ticket_count.add(1);
                open.room = 0;
                each(BatchTicket::new(lane, open.ticket, len.into()));
            }
        }
    }
}

/// Adds frames to one lane of an [`FrameIntake`]. See [`FrameIntake::lane`].
#[derive(Debug)]
pub struct Filler<'i, 'a> {
    open: Option<&'i mut Open<'a>>,
    free: std::slice::Iter<'a, AtomicU64>,
}

impl Filler<'_, '_> {
    /// Adds a frame. Errors: the frame, if there is no room.
    #[inline]
    pub fn push(&mut self, frame: Frame) -> Result<(), Frame> {
        let Some(word) = self.free.next() else { return Err(frame) };
        word.store(frame.to_word(), Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Filler<'_, '_> {
    fn drop(&mut self) {
        if let Some(open) = &mut self.open {
            // At most `BATCH_FRAMES_MAX`.
            open.len = open.room - self.free.len() as u8;
        }
    }
}

impl Drop for FrameIntake<'_> {
    fn drop(&mut self) {
        self.issue(drop);
    }
}

/// Slot of the lane's next ticket; without room if the window is full.
fn reserve(lane: &Lane) -> Open<'_> {
    let tail = &lane.tail.0;
    let mut ticket = lane.tail_ticket();
    loop {
        if ticket - tail.head_seen.get() >= lane.window_tickets() {
            tail.head_seen.set(lane.head_ticket());
            if ticket - tail.head_seen.get() >= lane.window_tickets() {
                tail.refused_count.add(1);
                return Open { slot: None, ticket, len: 0, room: 0 };
            }
        }
        let slot = lane.slot(ticket);
        if !slot.mark().is_lost() {
            return Open { slot: Some(slot), ticket, len: 0, room: BATCH_FRAMES_MAX as u8 };
        }
        // The slot still belongs to a ticket that timed out: skip this number.
        tail.skipped_count.add(1);
        ticket += 1;
        lane.set_tail(ticket);
    }
}
