//! Counters shared by interrupts and tasks.

use core::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A counter. The order is that of the dump: add new ones at the end.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum Counter { $($(#[$doc])* $name,)* }

        impl Counter {
            /// All counters, in the order of the dump.
            pub const ALL: &[Counter] = &[$(Counter::$name),*];

            /// Name in printed dumps.
            pub const fn name(self) -> &'static str {
                match self { $(Counter::$name => $text),* }
            }
        }
    };
}

counters! {
    /// Valid frames received.
    RxPackets = "rx_packets",
    /// Their bytes, without the virtio header.
    RxBytes = "rx_bytes",
    /// Invalid receive completions.
    RxErrors = "rx_errors",
    /// Frames handed to the device to send.
    TxPackets = "tx_packets",
    /// Their bytes.
    TxBytes = "tx_bytes",
    /// Frames that could not be sent, and invalid completions.
    TxErrors = "tx_errors",
    /// Of the errors: the transmit ring was full.
    TxRefused = "tx_refused",
    /// Of the errors: a polled completion timed out. The frame may still be sent.
    TxPollTimeouts = "tx_poll_timeouts",
    /// Turns of 10 microseconds spent polling for completions.
    TxPollTurns = "tx_poll_turns",
    /// Frames reclaimed after sending.
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
    /// Of those: in place, before the default handling.
    AnsweredInPlace = "answered_in_place",
    /// UDP echoes answered.
    AnsweredUdp = "answered_udp",
    /// Dumps sent.
    AnsweredDump = "answered_dump",
    /// Invalid frames, and frames for other hosts.
    Ignored = "ignored",
    /// Restarts of the card after it failed.
    Restarts = "restarts",
    /// Interrupts of the network card that nested in another.
    InterruptsNested = "interrupts_nested",
    /// Gauge: frames in the pool.
    FramesFree = "frames_free",
    /// Gauge: frames held by the driver.
    FramesHeld = "frames_held",
    /// Gauge: frames posted to the device for receiving.
    FramesReceive = "frames_receive",
    /// Gauge: frames posted to the device for sending.
    FramesTransmit = "frames_transmit",
    /// Gauge: slots of the receive ring.
    RxRingFrames = "rx_ring_frames",
    /// Gauge: slots of the transmit ring.
    TxRingFrames = "tx_ring_frames",
    /// Gauge: negotiated virtio features.
    Features = "features",
    /// Gauge: the switch word.
    Switches = "switches",
    /// Gauge: context switches.
    ContextSwitches = "context_switches",
    /// Gauge: trace entries recorded.
    TraceRecorded = "trace_recorded",
    /// Gauge: trace entries dropped because the ring was being dumped or their slot was taken.
    TraceLost = "trace_lost",
    /// Gauge: nanoseconds since the machine started.
    UptimeNs = "uptime_ns",
    /// Times that the device was shown new receive buffers.
    RxShown = "rx_shown",
    /// Of those: with a doorbell.
    RxDoorbells = "rx_doorbells",
    /// Times that the device was shown new frames to send.
    TxShown = "tx_shown",
    /// Of those: with a doorbell.
    TxDoorbells = "tx_doorbells",
    /// Frames sent as a table of descriptors.
    TxTables = "tx_tables",
    /// Receive passes that found a frame.
    RxPasses = "rx_passes",
    /// Gauge: ticks of the kernel, one every millisecond, without those missed.
    Ticks = "ticks",
    /// Gauge: ticks missed, because they were due while another waited.
    TicksMissed = "ticks_missed",
    /// Ticks that the ticker, the most urgent task, has served.
    TicksServed = "ticks_served",
    /// Nanoseconds from when each of those was due until the ticker ran.
    TickLateNs = "tick_late_ns",
    /// Gauge: the longest of those since the counters were last dumped.
    TickLateNsMax = "tick_late_ns_max",
    /// Interrupts that left received frames to the task because their budget was spent.
    RxHandovers = "rx_handovers",
    /// Sends whose completion was seen by polling.
    TxPolled = "tx_polled",
    /// Nanoseconds from when each of those was handed to the device until then.
    TxPolledNs = "tx_polled_ns",
}

impl Counter {
    /// True for counts of packets, and of the interrupts and wake-ups that each brings: zero while
    /// the firmware has `no-counters` on.
    pub const fn is_per_packet(self) -> bool {
        use Counter::*;
        matches!(
            self,
            RxPackets
                | RxBytes
                | TxPackets
                | TxBytes
                | TxReaped
                | Interrupts
                | InterruptsIdle
                | RxWakes
                | AnsweredArp
                | AnsweredIcmp
                | AnsweredInPlace
                | AnsweredUdp
                | TxPolled
                | TxPolledNs
        )
    }
}

pub const COUNTERS: usize = Counter::ALL.len();

/// Counters shared by interrupts and tasks: each addition is one atomic operation, so an interrupt
/// in between loses no count.
pub struct Counters([AtomicU64; COUNTERS]);

impl Default for Counters {
    fn default() -> Self {
        Self::new()
    }
}

impl Counters {
    pub const fn new() -> Self {
        Counters([const { AtomicU64::new(0) }; COUNTERS])
    }

    pub fn add(&self, counter: Counter, more: u64) {
        self.0[counter as usize].fetch_add(more, Ordering::Relaxed);
    }

    pub fn set(&self, counter: Counter, value: u64) {
        self.0[counter as usize].store(value, Ordering::Relaxed);
    }

    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize].load(Ordering::Relaxed)
    }

    pub fn snapshot(&self) -> Snapshot {
        Snapshot(core::array::from_fn(|index| self.0[index].load(Ordering::Relaxed)))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot(pub [u64; COUNTERS]);

impl Snapshot {
    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn concurrent_additions_all_count() {
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
