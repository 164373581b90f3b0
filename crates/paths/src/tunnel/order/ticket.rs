//! Taking frames in: inside the ingress gate, each lane's next slot fills up and becomes a
//! ticket.

use super::LANE_COUNT_MAX;
use super::frame::Frame;
use super::lane::Lane;
use super::slot::Slot;
use super::sync::BATCH_FRAMES_MAX;
use super::token::Token;

/// Where whoever has the ingress gate puts the frames it takes in.
///
/// Lives as long as the gate is held. If the caller panics in there, what was pushed until
/// then is settled as dropped, so that no buffer is lost.
#[derive(Debug)]
pub struct Intake<'a> {
    lanes: &'a [Lane],
    open: [Open<'a>; LANE_COUNT_MAX],
}

/// The slot of a lane that is being filled; none beyond the last lane.
#[derive(Debug, Clone, Copy)]
struct Open<'a> {
    slot: Option<&'a Slot>,
    ticket: u64,
    len: u8,
    /// Frames that fit; none while the window is full.
    room: u8,
}

impl<'a> Intake<'a> {
    pub(super) fn new(lanes: &'a [Lane]) -> Intake<'a> {
        let mut open = [Open { slot: None, ticket: 0, len: 0, room: 0 }; LANE_COUNT_MAX];
        for (open, lane) in open.iter_mut().zip(lanes) {
            *open = reserve(lane);
        }
        Intake { lanes, open }
    }

    /// Frames that can be pushed now whatever their lanes, 0 when one of the windows is full.
    pub fn room(&self) -> usize {
        let rooms = self.open.iter().zip(self.lanes).map(|(open, _)| open.room - open.len);
        rooms.min().unwrap_or(0).into()
    }

    /// Takes a frame into a lane; gives it back when the lane has no room.
    ///
    /// - `lane`: see [`super::lane_of`]; one that does not exist has no room.
    pub fn push(&mut self, lane: usize, frame: Frame) -> Result<(), Frame> {
        let Some(open) = self.open.get_mut(lane) else { return Err(frame) };
        let Some(slot) = open.slot.filter(|_| open.len < open.room) else { return Err(frame) };
        slot.set_frame(open.len.into(), frame);
        open.len += 1;
        Ok(())
    }

    /// Draws a ticket for each lane that got frames.
    pub(super) fn issue(&mut self, mut each: impl FnMut(Token<'a>)) {
        for (open, lane) in self.open.iter_mut().zip(self.lanes) {
            let len = std::mem::take(&mut open.len);
            if len > 0 {
                let tail = &lane.tail.0;
                lane.slot(open.ticket).take(open.ticket);
                lane.set_tail(open.ticket + 1);
                tail.admitted_frames.add(len.into());
                tail.ticket_count.add(1);
                open.room = 0;
                each(Token::new(lane, open.ticket, len.into()));
            }
        }
    }
}

impl Drop for Intake<'_> {
    fn drop(&mut self) {
        self.issue(drop);
    }
}

/// The slot for the next ticket of a lane, or one without room when the window is full.
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
        // A worker that was passed still has this slot: this ticket goes to nobody.
        tail.skipped_count.add(1);
        ticket += 1;
        lane.set_tail(ticket);
    }
}
