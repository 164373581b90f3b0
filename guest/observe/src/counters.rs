//! Counters that interrupts and tasks add to alike.

use core::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// What is counted. The order is that of the dump: new ones go to the end.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum Counter { $($(#[$doc])* $name,)* }

        impl Counter {
            /// All of them, in the order of the dump.
            pub const ALL: &[Counter] = &[$(Counter::$name),*];

            /// Name in printed dumps.
            pub const fn name(self) -> &'static str {
                match self { $(Counter::$name => $text),* }
            }
        }
    };
}

counters! {
    /// Frames received and good.
    RxPackets = "rx_packets",
    /// Their bytes, without the virtio header.
    RxBytes = "rx_bytes",
    /// Receive buffers that came back with something wrong.
    RxErrors = "rx_errors",
    /// Frames handed to the device to send.
    TxPackets = "tx_packets",
    /// Their bytes.
    TxBytes = "tx_bytes",
    /// Frames that could not be sent, and completions with something wrong.
    TxErrors = "tx_errors",
    /// Of the errors: the transmit ring was full.
    TxRefused = "tx_refused",
    /// Of the errors: a polled completion did not come in time. The frame may go out yet.
    TxPollTimeouts = "tx_poll_timeouts",
    /// Turns of 10 microseconds spent polling for completions.
    TxPollTurns = "tx_poll_turns",
    /// Frames that the device gave back after sending.
    TxReaped = "tx_reaped",
    /// Interrupts of the network card.
    Interrupts = "interrupts",
    /// Of those: without a frame received or sent.
    InterruptsIdle = "interrupts_idle",
    /// Times that the receive task was woken.
    RxWakes = "rx_wakes",
    /// ARP requests answered.
    AnsweredArp = "answered_arp",
    /// ICMP echoes answered.
    AnsweredIcmp = "answered_icmp",
    /// Of those: in place, before the normal way.
    AnsweredInPlace = "answered_in_place",
    /// UDP echoes answered.
    AnsweredUdp = "answered_udp",
    /// Dumps sent.
    AnsweredDump = "answered_dump",
    /// Frames not for us, or wrong, and not answered.
    Ignored = "ignored",
    /// Restarts of the card after it failed.
    Restarts = "restarts",
    /// Interrupt of the network card that nested in another.
    InterruptsNested = "interrupts_nested",
    /// Gauge: frames in the pool.
    FramesFree = "frames_free",
    /// Gauge: frames in our hands.
    FramesHeld = "frames_held",
    /// Gauge: frames with the device to receive.
    FramesReceive = "frames_receive",
    /// Gauge: frames with the device to send.
    FramesTransmit = "frames_transmit",
    /// Gauge: slots of the receive ring.
    RxRingFrames = "rx_ring_frames",
    /// Gauge: slots of the transmit ring.
    TxRingFrames = "tx_ring_frames",
    /// Gauge: virtio features agreed on.
    Features = "features",
    /// Gauge: the switch word.
    Switches = "switches",
    /// Gauge: context switches.
    ContextSwitches = "context_switches",
    /// Gauge: trace entries recorded.
    TraceRecorded = "trace_recorded",
    /// Gauge: trace entries not recorded, because the ring was being dumped.
    TraceLost = "trace_lost",
    /// Gauge: nanoseconds since the machine started.
    UptimeNs = "uptime_ns",
    /// Times that the device was shown new frames to receive into.
    RxShown = "rx_shown",
    /// Of those: with the doorbell rung.
    RxDoorbells = "rx_doorbells",
    /// Times that the device was shown new frames to send.
    TxShown = "tx_shown",
    /// Of those: with the doorbell rung.
    TxDoorbells = "tx_doorbells",
    /// Frames to send that were handed over as a table of descriptors.
    TxTables = "tx_tables",
    /// Passes of receiving that found a frame.
    RxPasses = "rx_passes",
}

/// Number of counters.
pub const COUNTERS: usize = Counter::ALL.len();

/// The counters, shared by interrupts and tasks: each addition is one atomic operation, so none
/// gets lost when an interrupt falls between.
pub struct Counters([AtomicU64; COUNTERS]);

impl Default for Counters {
    fn default() -> Self {
        Self::new()
    }
}

impl Counters {
    /// All zero.
    pub const fn new() -> Self {
        Counters([const { AtomicU64::new(0) }; COUNTERS])
    }

    /// Adds to one.
    pub fn add(&self, counter: Counter, more: u64) {
        self.0[counter as usize].fetch_add(more, Ordering::Relaxed);
    }

    /// Sets a gauge.
    pub fn set(&self, counter: Counter, value: u64) {
        self.0[counter as usize].store(value, Ordering::Relaxed);
    }

    /// The value of one.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize].load(Ordering::Relaxed)
    }

    /// The values of all.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(core::array::from_fn(|index| self.0[index].load(Ordering::Relaxed)))
    }
}

/// Values of all counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot(pub [u64; COUNTERS]);

impl Snapshot {
    /// The value of one.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn additions_from_several_sides_at_once_all_count() {
        let counters = Counters::new();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..50_000).for_each(|_| counters.add(Counter::RxPackets, 1)));
            }
        });
        assert_eq!(counters.get(Counter::RxPackets), 200_000);
        assert_eq!(counters.snapshot().get(Counter::RxBytes), 0);
    }

    #[test]
    fn names_are_unique() {
        let mut names: std::vec::Vec<_> = Counter::ALL.iter().map(|one| one.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), COUNTERS);
    }
}
