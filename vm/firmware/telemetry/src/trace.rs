//! The trace ring: the latest events, stamped in nanoseconds and read on request.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::slot::Slot;

/// Entries of the ring; a power of two, because the slot is the entry's number under a mask.
pub const TRACE_ENTRIES: usize = 256;

macro_rules! events {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        /// A traced event.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Event { $($(#[$doc])* $name = $number,)* }

        impl Event {
            pub const ALL: &[Event] = &[$(Event::$name),*];

            /// Name in printed dumps.
            pub const fn name(self) -> &'static str {
                match self { $(Event::$name => $text),* }
            }

            /// The event with this number, if any.
            pub const fn from_number(number: u16) -> Option<Event> {
                match number { $($number => Some(Event::$name),)* _ => None }
            }
        }
    };
}

events! {
    /// Interrupt of the card. Detail: its status bits.
    Interrupt = 1, "interrupt";
    /// Frame received. Detail: bytes.
    Received = 2, "received";
    /// Frame handed to the device. Detail: bytes.
    Posted = 3, "posted";
    /// Frames sent. Detail: their number.
    Reaped = 4, "reaped";
    /// Transmit ring full. Detail: frames in it.
    Refused = 5, "refused";
    /// Completion timed out. Detail: frames outstanding.
    PollTimeout = 6, "poll-timeout";
    /// Receive task woken.
    Woken = 7, "woken";
    /// Device fault while receiving.
    RxFault = 8, "rx-fault";
    /// Device fault while sending.
    TxFault = 9, "tx-fault";
    /// Card restarted.
    Restarted = 10, "restarted";
}

/// A recorded event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Nanoseconds since the machine started.
    pub time_ns: u64,
    /// Number of the event; see [`Event::from_number`].
    pub event: u16,
    /// Meaning depends on the event.
    pub detail: u32,
}

/// Ring of trace entries. Interrupts and tasks record; a task dumps.
///
/// A recorder claims a slot by one atomic addition, so an interrupt in between gets another slot.
/// The stamp, written last, keeps half-written entries out of a dump. A recorder delayed by a whole
/// lap of the ring finds its slot taken, and its entry is lost.
pub struct Trace {
    slots: [Slot; TRACE_ENTRIES],
    next: AtomicU64,
    lost: AtomicU64,
    /// Of those that claimed a slot.
    refused: AtomicU64,
    frozen: AtomicBool,
}

const _: () = assert!(TRACE_ENTRIES.is_power_of_two());

impl Default for Trace {
    fn default() -> Self {
        Self::new()
    }
}

impl Trace {
    pub const fn new() -> Self {
        Trace {
            slots: [const { Slot { stamp: AtomicU64::new(0), words: [const { AtomicU64::new(0) }; 2] } };
                TRACE_ENTRIES],
            next: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            frozen: AtomicBool::new(false),
        }
    }

    /// Records an event; while the ring is being dumped, only counts it.
    pub fn record(&self, time_ns: u64, event: Event, detail: u32) {
        if self.frozen.load(Ordering::Acquire) {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let slot = &self.slots[number as usize & (TRACE_ENTRIES - 1)];
        let what = (event as u64) << 32 | u64::from(detail);
        if !slot.write(number, [time_ns, what]) {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Stops recording until the guard is dropped. `None` if another dump is in progress.
    pub fn freeze(&self) -> Option<Frozen<'_>> {
        if self.frozen.swap(true, Ordering::AcqRel) {
            return None;
        }
        Some(Frozen(self))
    }

    pub fn recorded_count(&self) -> u64 {
        let refused = self.refused.load(Ordering::Relaxed);
        self.next.load(Ordering::Relaxed).saturating_sub(refused)
    }

    /// Entries dropped because the ring was being dumped or their slot was taken.
    pub fn lost_count(&self) -> u64 {
        self.lost.load(Ordering::Relaxed) + self.refused.load(Ordering::Relaxed)
    }
}

/// A ring that is not being written.
pub struct Frozen<'a>(&'a Trace);

impl Frozen<'_> {
    /// The entries, oldest first, without those half-written when the ring froze.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        let end = self.0.next.load(Ordering::Relaxed);
        let start = end.saturating_sub(TRACE_ENTRIES as u64);
        (start..end).filter_map(|number| {
            let slot = &self.0.slots[number as usize & (TRACE_ENTRIES - 1)];
            let [time_ns, what] = slot.read(number)?;
            Some(Entry { time_ns, event: (what >> 32) as u16, detail: what as u32 })
        })
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        self.0.frozen.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::vec::Vec;

    use super::*;

    fn times(trace: &Trace) -> Vec<u64> {
        let frozen = trace.freeze().expect("no other dump is in progress");
        frozen.entries().map(|entry| entry.time_ns).collect()
    }

    #[test]
    fn ring_keeps_the_latest_entries_oldest_first() {
        let trace = Trace::new();
        assert_eq!(times(&trace), []);
        for time in 0..1000 {
            trace.record(time, Event::Received, 60);
        }
        assert_eq!(times(&trace), (744..1000).collect::<Vec<_>>());
    }

    #[test]
    fn recording_pauses_during_a_dump_and_resumes_after() {
        let trace = Trace::new();
        trace.record(1, Event::Received, 60);
        let frozen = trace.freeze().expect("no other dump is in progress");
        assert!(trace.freeze().is_none(), "one at a time");
        for time in 2..600 {
            trace.record(time, Event::Posted, 60);
        }
        let expected = Entry { time_ns: 1, event: Event::Received as u16, detail: 60 };
        assert_eq!(frozen.entries().collect::<Vec<_>>(), [expected]);
        assert_eq!(trace.lost_count(), 598);
        drop(frozen);
        trace.record(600, Event::Posted, 60);
        assert_eq!(times(&trace), [1, 600]);
    }

    #[test]
    fn concurrent_entries_are_complete_and_none_is_lost() {
        let trace = Trace::new();
        thread::scope(|scope| {
            for side in 0..4_u32 {
                let trace = &trace;
                scope.spawn(move || {
                    for turn in 0..20_000 {
                        let detail = side * 100_000 + turn;
                        trace.record(u64::from(detail) * 3, Event::Reaped, detail);
                    }
                });
            }
            for _ in 0..200 {
                let Some(frozen) = trace.freeze() else { continue };
                for entry in frozen.entries() {
                    assert_eq!(entry.time_ns, u64::from(entry.detail) * 3);
                }
            }
        });
        assert_eq!(trace.recorded_count() + trace.lost_count(), 80_000);
    }
}
