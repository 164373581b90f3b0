//! A wire that is slower than memory: frames leave at the rate of a link.

use sys::clock::monotonic_ns;

use super::backend::Sender;
use crate::bus::{InPlace, Posted};
use crate::lance::Sent;

/// Maximum backlog of the link, nanoseconds: the queue in front of it. Longer than a tick, so that the
/// link is still busy when the device polls again a tick later.
const QUEUE_NS: u64 = 4_000_000;
/// Bytes on the wire that are not the frame's: preamble, check sequence, gap.
const EXTRA_BYTES: u64 = 8 + 4 + 12;

/// Another back end behind a link of limited rate. What finds the queue full waits in the
/// device's ring.
pub struct PacedSender {
    behind: Box<dyn Sender>,
    bits_per_second: u64,
    /// When the link will have sent all that it was given.
    free_at_ns: u64,
}

impl PacedSender {
    /// A link of `bits_per_second`, in front of `behind`.
    pub fn new(behind: Box<dyn Sender>, bits_per_second: u64) -> Self {
        PacedSender { behind, bits_per_second: bits_per_second.max(1), free_at_ns: 0 }
    }

    fn send_at(&mut self, now_ns: u64, frame: &[u8]) -> Sent {
        if self.is_full(now_ns) {
            return Sent::Busy;
        }
        let sent = self.behind.send(frame);
        if sent == Sent::Taken {
            self.occupy(now_ns, frame.len() as u64);
        }
        sent
    }

    fn is_full(&self, now_ns: u64) -> bool {
        self.free_at_ns > now_ns + QUEUE_NS
    }

    /// Adds a frame's time on the link.
    fn occupy(&mut self, now_ns: u64, frame_bytes: u64) {
        let bits = (frame_bytes + EXTRA_BYTES) * 8;
        let time_ns = bits * 1_000_000_000 / self.bits_per_second;
        self.free_at_ns = self.free_at_ns.max(now_ns) + time_ns;
    }
}

impl Sender for PacedSender {
    fn send(&mut self, frame: &[u8]) -> Sent {
        self.send_at(monotonic_ns(), frame)
    }

    fn flush(&mut self) {
        self.behind.flush();
    }

    fn unsent_count(&self) -> u64 {
        self.behind.unsent_count()
    }

    fn call_count(&self) -> u64 {
        self.behind.call_count()
    }

    fn refused_count(&self) -> u64 {
        self.behind.refused_count()
    }

    fn in_place(&mut self) -> Option<&mut dyn InPlace> {
        self.behind.in_place().is_some().then_some(self as &mut dyn InPlace)
    }
}

/// Of a back end behind the link that has guest memory; [`Sender::in_place`] returns `None` for others.
impl InPlace for PacedSender {
    fn post_send(&mut self, at: u32, len_bytes: u32) -> Posted {
        let now_ns = monotonic_ns();
        if self.is_full(now_ns) {
            return Posted::Busy;
        }
        let place = self.behind.in_place();
        let posted = place.map_or(Posted::Refused, |place| place.post_send(at, len_bytes));
        if posted == Posted::Taken {
            self.occupy(now_ns, len_bytes.into());
        }
        posted
    }

    fn take_sent(&mut self) -> Option<u32> {
        self.behind.in_place()?.take_sent()
    }

    fn post_receive(&mut self, at: u32) -> Posted {
        self.behind.in_place().map_or(Posted::Refused, |place| place.post_receive(at))
    }

    fn take_received(&mut self) -> Option<(u32, u32)> {
        self.behind.in_place()?.take_received()
    }

    fn cancel(&mut self) {
        if let Some(place) = self.behind.in_place() {
            place.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CountingSink;

    #[test]
    fn link_of_a_hundred_megabits_takes_8127_full_frames_a_second() {
        let mut link = PacedSender::new(Box::new(CountingSink::default()), 100_000_000);
        let mut taken = 0;
        // Asked again every microsecond, for a second.
        for now_us in 0..1_000_000_u64 {
            taken += u64::from(link.send_at(now_us * 1000, &[0; 1514]) == Sent::Taken);
        }
        // 1,538 bytes each, and the queue on top.
        let queue = QUEUE_NS / 123_040 + 1;
        assert!((8127..=8127 + queue + 1).contains(&taken), "{taken}");
    }

    #[test]
    fn idle_link_saves_nothing_up() {
        let mut link = PacedSender::new(Box::new(CountingSink::default()), 100_000_000);
        assert_eq!(link.send_at(0, &[0; 1514]), Sent::Taken);
        let later_ns = 10_000_000_000;
        let taken = (0..1000).filter(|_| link.send_at(later_ns, &[0; 1514]) == Sent::Taken).count();
        assert_eq!(taken as u64, QUEUE_NS / 123_040 + 1);
    }
}
