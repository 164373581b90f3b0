//! The process that carries frames from one end to the other. After its start nothing here allocates or locks.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::fd::AsFd;
use std::time::Duration;

use model::WireSpec;
use sys::clock::{monotonic_ns, realtime_ns, set_timer_slack_ns};
use sys::forked::ForkedOwner;
use sys::packet_port::{PacketPort, PortFrame, PortHeader};
use sys::{poll, sched};
use zerocopy::IntoBytes;

use super::WireReport;
use super::counts::WireCounts;
use super::frame::{CutHeaders, Shape, cut_headers};
use super::lateness::Lateness;
use super::link::Link;
use super::losses::{Draws, Losses};
use super::store::{FRAME_BYTES_MAX, Store};

/// Sent by the owner: begin a trial, with its seed; report the counts since then.
pub(super) const BEGIN: u8 = b'b';
pub(super) const REPORT: u8 = b'r';
/// Bytes of a message of the owner: its kind and the seed.
pub(super) const MESSAGE_BYTES: usize = 9;

/// Above ordinary programs; below those that a user gives a priority of their own.
const PRIORITY: i32 = 1;
/// Segments of one super-frame are delivered together if they take at most this time on the wire.
const GROUP_NS: u64 = 100_000;
/// After an arrival the next ones are not waited for, but fetched after this time: they carry their stamps.
const REST_NS: u64 = 200_000;
/// Longest sleep: an owner that was killed is noticed by its descriptors at once.
const IDLE: Duration = Duration::from_secs(60);
/// Frames that are taken from one end before others are sent.
const BATCH: usize = 64;
/// Bytes of the smallest frame on the wire, rounded down.
const WIRE_BYTES_MIN: u64 = 84;
/// Room for a tag in front of a frame's header, which moves down by it.
const TAG_BYTES: usize = 4;
const ADDRESSES_BYTES: usize = 12;

/// Frames that were taken from a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Taken {
    Nothing,
    /// All that had arrived, or as many as there is room for.
    Some,
    /// More may be there.
    Batch,
}

/// Segments of a frame that leave together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    due_ns: u64,
    /// In the order of the queue, for those that are due together.
    number: u64,
    frame: u64,
    first: u32,
    end: u32,
    is_marked: bool,
}

#[derive(Debug, Clone, Copy)]
struct Frame {
    /// Place of the header in the stored bytes.
    start: usize,
    header: PortHeader,
    shape: Shape,
}

/// One direction of the wire.
struct Direction {
    link: Link,
    losses: Losses,
    jitter: Draws,
    jitter_ns: u64,
    reorders: bool,
    delay_ns: u64,
    store: Store<Frame>,
    parts: BinaryHeap<Reverse<Part>>,
    part_number: u64,
    /// Of the last arrival, so that stamps never go back.
    arrived_ns: u64,
    /// Of the last part, for jitter that keeps the order.
    due_ns: u64,
    counts: WireCounts,
    lateness: Lateness,
}

/// Both directions, with all memory that they need.
pub(super) struct Carrier<'a> {
    wire: WireSpec,
    /// The first is of the near end.
    ports: &'a [PacketPort; 2],
    /// The first carries from the near end.
    directions: [Direction; 2],
    is_real_time: bool,
    headers: CutHeaders,
}

const JITTER: u64 = 2;

impl Direction {
    fn new(wire: &WireSpec, number: u64) -> Self {
        // A frame takes up to a quarter more in memory than on the wire, beside its alignment.
        let bytes = wire.store_bytes() as usize;
        let part_count = bytes / WIRE_BYTES_MIN as usize + 1_024;
        Direction {
            link: Link::new(wire),
            losses: Losses::new(wire, 0, number),
            jitter: Draws::new(0, number, JITTER),
            jitter_ns: wire.jitter.as_nanos() as u64,
            reorders: wire.reorders,
            delay_ns: wire.delay.as_nanos() as u64,
            store: Store::new(bytes / 4 * 5 + 32 * FRAME_BYTES_MAX, part_count),
            parts: BinaryHeap::with_capacity(part_count),
            part_number: 0,
            arrived_ns: 0,
            due_ns: 0,
            counts: WireCounts::default(),
            lateness: Lateness::new(),
        }
    }

    /// Begins a trial. What is on the wire stays there.
    fn begin(&mut self, wire: &WireSpec, seed: u64, number: u64) {
        self.losses = Losses::new(wire, seed, number);
        self.jitter = Draws::new(seed, number, JITTER);
        self.part_number = 0;
        self.counts = WireCounts::default();
        self.lateness = Lateness::new();
    }

    /// Takes up to a batch of frames that have arrived.
    fn take(&mut self, from: &PacketPort) -> Taken {
        for taken in 0..BATCH {
            // Without room, frames are left to the socket's buffer, which counts what it drops.
            let Some(room) = self.store.room() else { return Taken::Some };
            match from.receive(&mut room[TAG_BYTES..]) {
                Ok(Some(frame)) => self.accept(&frame),
                // An error: the interface went down, and the lab is about to end.
                Ok(None) | Err(_) if taken == 0 => return Taken::Nothing,
                Ok(None) | Err(_) => return Taken::Some,
            }
        }
        Taken::Batch
    }

    /// Schedules the frame that was received into the store's room.
    fn accept(&mut self, frame: &PortFrame) {
        let len_bytes = TAG_BYTES + frame.len_bytes;
        let Some(room) = self.store.room().and_then(|room| room.get_mut(..len_bytes)) else {
            self.counts.unplanned_drop_count += 1;
            return;
        };
        let Some(header) = room[TAG_BYTES..].first_chunk() else {
            self.counts.unplanned_drop_count += 1;
            return;
        };
        let mut header = PortHeader::read(*header);
        let has_tag = frame.vlan.is_some();
        if let Some(tag) = frame.vlan {
            // Behind the addresses, where it was.
            let moved = TAG_BYTES + PortHeader::BYTES + ADDRESSES_BYTES;
            room.copy_within(TAG_BYTES..moved, 0);
            room[moved - TAG_BYTES..moved].copy_from_slice(&tag);
            header.checksum =
                header.checksum.map(|(start, offset)| (start + TAG_BYTES as u16, offset));
            if header.segments.is_some() {
                header.header_bytes += TAG_BYTES as u16;
            }
            room[..PortHeader::BYTES].copy_from_slice(&header.write());
        }
        let start = if has_tag { 0 } else { TAG_BYTES };
        let Some(bytes) = room.get(start + PortHeader::BYTES..) else { return };
        let shape = Shape::of(bytes, &header);

        let now_ns = monotonic_ns();
        let behind_ns = realtime_ns().saturating_sub(now_ns);
        let stamped = frame.stamp_ns.map_or(now_ns, |stamp| stamp.saturating_sub(behind_ns));
        self.arrived_ns = stamped.clamp(self.arrived_ns.min(now_ns), now_ns);
        if shape.is_uncut {
            self.counts.uncut_count += 1;
        }
        let number = self.store.keep(len_bytes, Frame { start, header, shape });
        self.queue(number, &shape);
        self.store.forget_finished();
    }

    /// Puts the segments of a frame into the queue, and those that will arrive on the wire.
    fn queue(&mut self, frame: u64, shape: &Shape) {
        let mut open: Option<(Range<u32>, u64, u64, bool)> = None;
        for segment in 0..shape.segment_count {
            self.counts.segment_count += 1;
            let wire_bytes = shape.wire_bytes(segment);
            let Some(accepted) = self.link.accept(self.arrived_ns, wire_bytes) else {
                self.counts.queue_drop_count += 1;
                self.close(frame, open.take());
                continue;
            };
            if shape.is_data {
                self.counts.data_segment_count += 1;
                if self.losses.next() {
                    self.counts.lost_count += 1;
                    self.close(frame, open.take());
                    continue;
                }
            }
            let is_marked = accepted.is_marked && shape.is_ect();
            self.counts.marked_count += u64::from(is_marked);
            match &mut open {
                Some((segments, begun_ns, left_ns, marked))
                    if *marked == is_marked && accepted.left_ns - *begun_ns <= GROUP_NS =>
                {
                    (segments.end, *left_ns) = (segment + 1, accepted.left_ns);
                }
                _ => {
                    self.close(frame, open.take());
                    let begun_ns = accepted.left_ns.saturating_sub(self.link.time_ns(wire_bytes));
                    open = Some((segment..segment + 1, begun_ns, accepted.left_ns, is_marked));
                }
            }
        }
        self.close(frame, open);
    }

    /// Schedules segments that leave together.
    fn close(&mut self, frame: u64, open: Option<(Range<u32>, u64, u64, bool)>) {
        let Some((segments, _, left_ns, is_marked)) = open else { return };
        if self.parts.len() == self.parts.capacity() {
            self.counts.unplanned_drop_count += 1;
            return;
        }
        let mut due_ns = left_ns + self.delay_ns;
        if self.jitter_ns > 0 {
            let drawn = self.jitter.unit(self.part_number) * 2.0 * self.jitter_ns as f64;
            due_ns = due_ns - self.jitter_ns + drawn as u64;
            if !self.reorders {
                due_ns = due_ns.max(self.due_ns);
            }
        }
        self.due_ns = due_ns;
        self.part_number += 1;
        self.store.add_part(frame);
        self.parts.push(Reverse(Part {
            due_ns,
            number: self.part_number,
            frame,
            first: segments.start,
            end: segments.end,
            is_marked,
        }));
    }

    /// Sends what is due.
    fn send_due(&mut self, to: &PacketPort, headers: &mut CutHeaders) {
        for _ in 0..BATCH {
            let now_ns = monotonic_ns();
            match self.parts.peek() {
                Some(Reverse(part)) if part.due_ns <= now_ns => {}
                _ => return,
            }
            let Some(Reverse(part)) = self.parts.pop() else { return };
            if self.send(&part, to, headers).is_some() {
                self.counts.delivered_count += u64::from(part.end - part.first);
            } else {
                self.counts.unplanned_drop_count += 1;
            }
            // Until it was delivered, which the receiver's stack does in this process.
            self.lateness.record(now_ns - part.due_ns);
            self.store.part_left(part.frame);
        }
    }

    /// `None` if it could not be sent.
    fn send(&mut self, part: &Part, to: &PacketPort, headers: &mut CutHeaders) -> Option<()> {
        let (_, frame) = self.store.get(part.frame)?;
        let Frame { start, header, shape } = *frame;
        let is_whole = part.first == 0 && part.end == shape.segment_count;
        if is_whole && part.is_marked {
            shape.mark(self.store.get_mut(part.frame)?.get_mut(start + PortHeader::BYTES..)?);
        }
        let (bytes, _) = self.store.get(part.frame)?;
        if is_whole {
            return to.send([bytes.get(start..)?, &[]]).ok();
        }
        let frame = bytes.get(start + PortHeader::BYTES..)?;
        let segments = part.first..part.end;
        let (len_bytes, payload) = shape.cut(frame, &header, &segments, part.is_marked, headers)?;
        to.send([headers.get(..len_bytes)?, frame.get(payload)?]).ok()
    }

    fn next_due_ns(&self) -> Option<u64> {
        self.parts.peek().map(|Reverse(part)| part.due_ns)
    }

    fn counts(&self) -> WireCounts {
        WireCounts {
            late_ns_p50: self.lateness.quantile_ns(0.5),
            late_ns_p99: self.lateness.quantile_ns(0.99),
            late_ns_max: self.lateness.ns_max,
            ..self.counts
        }
    }
}

impl<'a> Carrier<'a> {
    pub(super) fn new(wire: &WireSpec, ports: &'a [PacketPort; 2]) -> Self {
        Carrier {
            wire: wire.clone(),
            ports,
            directions: [0, 1].map(|number| Direction::new(wire, number)),
            is_real_time: false,
            headers: cut_headers(),
        }
    }

    /// Carries frames until the owner ends or closes its connection.
    pub(super) fn run(mut self, owner: &ForkedOwner) {
        self.is_real_time = sched::set_fifo(PRIORITY).is_ok();
        set_timer_slack_ns(1);
        self.directions.iter_mut().for_each(|direction| direction.store.touch());
        loop {
            let [near, far] = self.ports;
            let [forward, back] = &mut self.directions;
            let taken = forward.take(near).max(back.take(far));
            forward.send_due(far, &mut self.headers);
            back.send_due(near, &mut self.headers);

            let now_ns = monotonic_ns();
            let due = [forward.next_due_ns(), back.next_due_ns()].into_iter().flatten().min();
            let wait =
                due.map_or(IDLE, |due_ns| Duration::from_nanos(due_ns.saturating_sub(now_ns)));
            let all = [owner.connection().as_fd(), owner.process(), near.as_fd(), far.as_fd()];
            let (watched, wait) = if taken == Taken::Batch {
                (&all[..2], Duration::ZERO)
            } else if taken == Taken::Some {
                (&all[..2], wait.min(Duration::from_nanos(REST_NS)))
            } else {
                (&all[..], wait)
            };
            match poll::readable_set(watched, wait) {
                Ok(ready) if ready & 0b10 != 0 => return,
                Ok(ready) if ready & 0b01 != 0 => {
                    if self.answer(owner).is_err() {
                        return;
                    }
                }
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }

    /// Obeys a message. Errors: the owner has closed the connection.
    fn answer(&mut self, owner: &ForkedOwner) -> io::Result<()> {
        let mut message = [0; MESSAGE_BYTES];
        let mut connection = owner.connection();
        connection.read_exact(&mut message)?;
        let [kind, seed @ ..] = message;
        for (direction, port) in self.directions.iter_mut().zip(self.ports) {
            // Reading them resets the kernel's.
            direction.counts.unplanned_drop_count += port.take_drop_count().unwrap_or(0);
        }
        if kind == BEGIN {
            for (direction, number) in self.directions.iter_mut().zip(0..) {
                direction.begin(&self.wire, u64::from_ne_bytes(seed), number);
            }
        }
        let real_time_count = u64::from(self.is_real_time);
        let [forward, back] =
            self.directions.each_ref().map(|of| WireCounts { real_time_count, ..of.counts() });
        connection.write_all(WireReport { forward, back }.as_bytes())
    }
}
