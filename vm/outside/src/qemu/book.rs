//! Counts and stages of the events of a log.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use model::latency_histogram;

use super::line::{Event, Line, Way};
use crate::timeline::{Mark, Track};

/// Queues of all devices that are followed; further ones are left out.
const QUEUES_MAX: usize = 256;
/// Buffers that a device may hold. A queue has 1,024 at most.
const TAKEN_MAX: usize = 1 << 16;
/// Marks of the timeline that are kept: the first ones.
const MARKS_MAX: usize = 20_000;
/// Register of a 16550 that selects the divisor, and its bit.
const LINE_CONTROL: u64 = 3;
const DIVISOR_ACCESS: u64 = 0x80;

/// One virtio device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CardCounts {
    /// Doorbells by number of the queue. Of a network card, even queues are its receive queues.
    pub doorbell_counts: BTreeMap<u64, u64>,
    /// Frames that the device gave to the guest, and took from it.
    pub frames_to_guest_count: u64,
    pub frames_from_guest_count: u64,
    /// Buffers of the frames given: more than one a frame with mergeable buffers.
    pub buffers_to_guest_count: u64,
    /// Times that the device notified the guest. While the interrupt line is up, one more makes no interrupt.
    pub notification_count: u64,
}

/// Counts of the events that have no virtio device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogCounts {
    /// Interrupt lines of virtio devices on the MMIO bus that went up; `None` if there is no such device.
    pub mmio_interrupt_count: Option<u64>,
    /// Interrupts of an emulated PCnet or e1000e card; `None` if there is none.
    pub card_interrupt_count: Option<u64>,
    /// Characters that the guest wrote to its serial console; `None` if it never wrote one.
    pub console_character_count: Option<u64>,
    /// Outputs of the GPIO controller that went up; `None` if there is none.
    pub pin_rise_count: Option<u64>,
    /// Events of queues and buffers above the limits.
    pub left_out_count: u64,
}

/// Stages of frames, nanoseconds. QEMU's clock has a resolution of 1 µs.
#[derive(Debug, Clone)]
pub(crate) struct Stages {
    /// From the first frame given to the guest since its last doorbell, to the next doorbell that sends.
    pub(crate) given_to_doorbell: Histogram<u64>,
    /// From a doorbell until the device takes the first frame.
    pub(crate) doorbell_to_taken: Histogram<u64>,
    /// From when the device takes a frame until it completes it.
    pub(crate) taken_to_completed: Histogram<u64>,
    /// From a doorbell until the completion of the first frame.
    pub(crate) doorbell_to_completed: Histogram<u64>,
    /// From when the device takes a buffer for a received frame until it gives it to the guest.
    pub(crate) taken_to_given: Histogram<u64>,
}

impl Default for Stages {
    fn default() -> Self {
        Stages {
            given_to_doorbell: latency_histogram(),
            doorbell_to_taken: latency_histogram(),
            taken_to_completed: latency_histogram(),
            doorbell_to_completed: latency_histogram(),
            taken_to_given: latency_histogram(),
        }
    }
}

#[derive(Debug, Default)]
struct Queue {
    device: Option<u64>,
    number: Option<u64>,
    /// A doorbell after which nothing was taken.
    rung_ns: Option<u64>,
    counts: QueueCounts,
}

#[derive(Debug, Default)]
struct QueueCounts {
    doorbell: u64,
    notification: u64,
    /// Frames to the guest.
    given: u64,
    given_buffers: u64,
    /// Frames from the guest.
    taken: u64,
}

/// A buffer that the device has.
#[derive(Debug, Clone, Copy)]
struct Taken {
    at_ns: Option<u64>,
    /// Doorbell of which it was the first.
    rung_ns: Option<u64>,
    way: Way,
}

/// Events so far.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) counts: LogCounts,
    pub(crate) stages: Stages,
    /// CLOCK_REALTIME.
    pub(crate) marks: Vec<Mark>,
    pub(crate) has_times: bool,
    /// Virtio devices in the order in which they appear.
    devices: Vec<u64>,
    queues: BTreeMap<u64, Queue>,
    taken: BTreeMap<(u64, u64), Taken>,
    /// First frame that a device gave since the guest's last doorbell, by device.
    given_ns: BTreeMap<u64, u64>,
    mmio_level: bool,
    card_level: bool,
    divisor_access: bool,
}

impl Book {
    /// Clears all counts, and keeps what is known of the devices.
    pub(crate) fn begin(&mut self) {
        for queue in self.queues.values_mut() {
            queue.counts = QueueCounts::default();
        }
        for count in [
            &mut self.counts.mmio_interrupt_count,
            &mut self.counts.card_interrupt_count,
            &mut self.counts.console_character_count,
            &mut self.counts.pin_rise_count,
        ] {
            *count = count.map(|_| 0);
        }
        self.counts.left_out_count = 0;
        self.stages = Stages::default();
        self.marks.clear();
        // Events between the two parts of the log are not known.
        self.taken.clear();
        self.given_ns.clear();
        for queue in self.queues.values_mut() {
            queue.rung_ns = None;
        }
    }

    pub(super) fn enter(&mut self, line: &Line) {
        let at_ns = line.at_ns;
        self.has_times |= at_ns.is_some();
        match line.event {
            Event::Status { device } => self.know(device),
            Event::Doorbell { device, number, queue } => self.rung(device, number, queue, at_ns),
            Event::Notification { device, queue } => {
                self.know(device);
                let Some(found) = self.queue(queue) else { return };
                found.device = Some(device);
                found.counts.notification += 1;
                self.mark(Track::Interrupts, "notification", at_ns, at_ns);
            }
            Event::Taken { queue, element, way } => {
                let Some(found) = self.queue(queue) else { return };
                let rung_ns = found.rung_ns.take();
                found.counts.taken += u64::from(way == Way::FromGuest);
                let taken = Taken { at_ns, rung_ns, way };
                if way == Way::FromGuest
                    && let Some(ns) = elapsed(rung_ns, at_ns)
                {
                    self.stages.doorbell_to_taken.saturating_record(ns);
                    self.mark(Track::Doorbells, "doorbell to taken", rung_ns, at_ns);
                }
                if self.taken.len() < TAKEN_MAX {
                    self.taken.insert((queue, element), taken);
                } else {
                    self.counts.left_out_count += 1;
                }
            }
            Event::Completed { queue, element, is_first } => {
                // One that was taken before this part of the log has no direction.
                let taken = self.taken.remove(&(queue, element));
                let Some(taken) = taken else { return };
                self.completed(queue, &taken, is_first, at_ns);
            }
            Event::MmioLine { level } => {
                let count = self.counts.mmio_interrupt_count.get_or_insert(0);
                let rises = level && !self.mmio_level;
                *count += u64::from(rises);
                self.mmio_level = level;
                self.mark_if(rises, Track::Interrupts, "interrupt line up", at_ns);
            }
            Event::CardLine { level } => {
                let count = self.counts.card_interrupt_count.get_or_insert(0);
                let rises = level && !self.card_level;
                *count += u64::from(rises);
                self.card_level = level;
                self.mark_if(rises, Track::Interrupts, "interrupt line up", at_ns);
            }
            Event::CardMessage => {
                *self.counts.card_interrupt_count.get_or_insert(0) += 1;
                self.mark(Track::Interrupts, "interrupt", at_ns, at_ns);
            }
            Event::Pl011 { register } => {
                let is_character = register == 0;
                *self.counts.console_character_count.get_or_insert(0) += u64::from(is_character);
            }
            Event::Serial { register, value } => {
                if register == LINE_CONTROL {
                    self.divisor_access = value & DIVISOR_ACCESS != 0;
                }
                let is_character = register == 0 && !self.divisor_access;
                *self.counts.console_character_count.get_or_insert(0) += u64::from(is_character);
            }
            Event::Pin { level } => {
                *self.counts.pin_rise_count.get_or_insert(0) += u64::from(level);
                self.mark_if(level, Track::Pin, "pin up", at_ns);
            }
        }
    }

    fn rung(&mut self, device: u64, number: u64, queue: u64, at_ns: Option<u64>) {
        self.know(device);
        let Some(found) = self.queue(queue) else { return };
        (found.device, found.number) = (Some(device), Some(number));
        found.counts.doorbell += 1;
        found.rung_ns = found.rung_ns.or(at_ns);
        self.mark(Track::Doorbells, "doorbell", at_ns, at_ns);
        // Odd queues of a network card send. Source: virtio 1.2, 5.1.2.
        if number % 2 == 1
            && let Some(ns) = elapsed(self.given_ns.remove(&device), at_ns)
        {
            self.stages.given_to_doorbell.saturating_record(ns);
        }
    }

    fn completed(&mut self, queue: u64, taken: &Taken, is_first: bool, at_ns: Option<u64>) {
        let ns = elapsed(taken.at_ns, at_ns);
        match taken.way {
            Way::Both => {}
            Way::ToGuest => {
                let Some(found) = self.queue(queue) else { return };
                found.counts.given += u64::from(is_first);
                found.counts.given_buffers += 1;
                if let (Some(device), Some(at_ns)) = (found.device, at_ns) {
                    self.given_ns.entry(device).or_insert(at_ns);
                }
                if let Some(ns) = ns {
                    self.stages.taken_to_given.saturating_record(ns);
                    self.mark(Track::ToGuest, "taken to given", taken.at_ns, at_ns);
                }
            }
            Way::FromGuest => {
                if let Some(ns) = ns {
                    self.stages.taken_to_completed.saturating_record(ns);
                    self.mark(Track::FromGuest, "taken to completed", taken.at_ns, at_ns);
                }
                if let Some(ns) = elapsed(taken.rung_ns, at_ns) {
                    self.stages.doorbell_to_completed.saturating_record(ns);
                }
            }
        }
    }

    /// Counts of the virtio devices, in the order in which they appeared.
    pub(crate) fn cards(&self) -> Vec<CardCounts> {
        let mut cards: Vec<CardCounts> =
            self.devices.iter().map(|_| CardCounts::default()).collect();
        for queue in self.queues.values() {
            let at = queue.device.and_then(|device| self.position(device));
            // A queue without a notification in either direction: of the only device.
            let Some(card) = cards.get_mut(at.unwrap_or(0)) else { continue };
            let counts = &queue.counts;
            if let Some(number) = queue.number {
                *card.doorbell_counts.entry(number).or_insert(0) += counts.doorbell;
            }
            card.frames_to_guest_count += counts.given;
            card.frames_from_guest_count += counts.taken;
            card.buffers_to_guest_count += counts.given_buffers;
            card.notification_count += counts.notification;
        }
        cards
    }

    fn position(&self, device: u64) -> Option<usize> {
        self.devices.iter().position(|known| *known == device)
    }

    fn know(&mut self, device: u64) {
        if self.position(device).is_none() && self.devices.len() < QUEUES_MAX {
            self.devices.push(device);
        }
    }

    /// `None`, counted, above the limit.
    fn queue(&mut self, queue: u64) -> Option<&mut Queue> {
        if self.queues.len() >= QUEUES_MAX && !self.queues.contains_key(&queue) {
            self.counts.left_out_count += 1;
            return None;
        }
        Some(self.queues.entry(queue).or_default())
    }

    fn mark_if(&mut self, is_wanted: bool, track: Track, name: &'static str, at_ns: Option<u64>) {
        if is_wanted {
            self.mark(track, name, at_ns, at_ns);
        }
    }

    fn mark(&mut self, track: Track, name: &'static str, from: Option<u64>, to: Option<u64>) {
        if let (Some(begin_ns), Some(end_ns)) = (from, to)
            && self.marks.len() < MARKS_MAX
        {
            self.marks.push(Mark { track, name, begin_ns, end_ns });
        }
    }
}

/// Zero if QEMU's threads wrote in another order than their clocks say.
fn elapsed(from_ns: Option<u64>, to_ns: Option<u64>) -> Option<u64> {
    Some(to_ns?.saturating_sub(from_ns?))
}
