//! Order restoration: single rules, a sequential oracle, and threads that drop, panic and stop.

mod oracle;
mod rules;
mod threads;

use wirepath_forward::order::{BatchTicket, Frame, FrameSink, Order, OrderSpec, Recycled};

const SPEC: OrderSpec = OrderSpec { lanes: 1, window_tickets: 4, stuck_after_ns: 100 };

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Forwarded,
    Dropped,
    Late,
}

/// Records the delivered frames by index.
#[derive(Debug, Default)]
struct Record {
    out: Vec<(Fate, u32)>,
    flush_count: u64,
    room: Option<usize>,
}

impl FrameSink for Record {
    fn room_frames(&mut self) -> usize {
        self.room.unwrap_or(usize::MAX)
    }

    fn forward(&mut self, frame: Frame) {
        self.out.push((Fate::Forwarded, frame.index()));
        self.room = self.room.map(|room| room - 1);
    }

    fn recycle(&mut self, frame: Frame, why: Recycled) {
        let fate = if why == Recycled::Late { Fate::Late } else { Fate::Dropped };
        self.out.push((fate, frame.index()));
        self.room = self.room.map(|room| room - 1);
    }

    fn flush(&mut self) {
        self.flush_count += 1;
    }
}

fn frame(index: u32) -> Frame {
    Frame::new(index, 0, 60, 0)
}

/// A batch ticket with these frames in lane 0.
fn token<'a, X: FrameSink>(order: &'a Order<(), X>, indexes: &[u32]) -> Option<BatchTicket<'a>> {
    let mut tokens = Vec::new();
    order.admit(&mut tokens, |(), intake| {
        for index in indexes {
            let _ = intake.push(0, frame(*index));
        }
    });
    tokens.pop()
}

fn forwarded(record: &Record) -> Vec<u32> {
    record
        .out
        .iter()
        .filter(|(fate, _)| *fate == Fate::Forwarded)
        .map(|(_, index)| *index)
        .collect()
}
