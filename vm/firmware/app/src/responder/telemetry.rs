//! Reporting: a line per packet, or counters and dumps on request.

use net::UDP_PAYLOAD_OFFSET;
use telemetry::dump::{self, ANSWER_BYTES_MAX, DumpKind, PORT};
use telemetry::{Counter, Entry, Snapshot};
use virtio::net::FRAME_BYTES_MAX;
use virtio::{Memory, Registers};

use super::{Dump, Platform, Responder};

/// Gauges of the kernel and its tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KernelGauges {
    pub context_switches: u64,
    pub interrupts_nested: u64,
    pub ticks: u64,
    pub ticks_missed: u64,
    /// Longest lateness of the ticker since the last snapshot.
    pub tick_late_ns_max: u64,
}

impl<R: Registers, M: Memory, P: Platform> Responder<R, M, P> {
    pub(super) fn report_nothing(&mut self, _len_bytes: usize) {}

    pub(super) fn print_received(&mut self, len_bytes: usize) {
        let count = self.counters.get(Counter::RxPackets);
        self.platform.print(format_args!("virtio-net: rx packet {count}, {len_bytes} bytes\n"));
    }

    pub(super) fn print_posted(&mut self, len_bytes: usize) {
        let count = self.counters.get(Counter::TxPackets);
        self.platform.print(format_args!("virtio-net: tx packet {count}, {len_bytes} bytes\n"));
    }

    /// All counters, with gauges updated: those of the kernel are passed.
    pub fn snapshot(&mut self, kernel: KernelGauges) -> Snapshot {
        // A completion that waits for a lazy reap is not a frame in flight.
        self.reap();
        let ledger = self.driver.ledger();
        let (rx_ring, tx_ring) = self.driver.ring_frames();
        let stats = self.driver.notify_stats();
        for (gauge, value) in [
            (Counter::FramesFree, ledger.free_count.into()),
            (Counter::FramesHeld, ledger.held_count.into()),
            (Counter::FramesReceive, ledger.receive_count.into()),
            (Counter::FramesTransmit, ledger.transmit_count.into()),
            (Counter::RxRingFrames, rx_ring.into()),
            (Counter::TxRingFrames, tx_ring.into()),
            (Counter::Features, self.driver.features()),
            (Counter::Switches, self.switches.word().into()),
            (Counter::ContextSwitches, kernel.context_switches),
            (Counter::InterruptsNested, kernel.interrupts_nested),
            (Counter::TraceRecorded, self.trace.recorded_count()),
            (Counter::TraceLost, self.trace.lost_count()),
            (Counter::UptimeNs, self.platform.now_ns()),
            (Counter::RxShown, stats.rx_shown_count),
            (Counter::RxDoorbells, stats.rx_doorbell_count),
            (Counter::TxShown, stats.tx_shown_count),
            (Counter::TxDoorbells, stats.tx_doorbell_count),
            (Counter::TxTables, stats.tx_table_count),
            (Counter::RxPasses, self.passes_count),
            (Counter::Ticks, kernel.ticks),
            (Counter::TicksMissed, kernel.ticks_missed),
            (Counter::TickLateNsMax, kernel.tick_late_ns_max),
        ] {
            self.counters.set(gauge, value);
        }
        self.counters.snapshot()
    }

    /// Sends the counters. Returns false if the transmit ring was full; retry later.
    pub fn send_counters(&mut self, dump: &Dump, snapshot: &Snapshot) -> bool {
        self.send_dump(dump, |bytes| dump::write_counters(bytes, dump.request.token, snapshot))
    }

    /// Sends one part of the trace. Returns false if the transmit ring was full.
    pub fn send_trace(
        &mut self,
        dump: &Dump,
        part: u16,
        parts: u16,
        entries: impl Iterator<Item = Entry>,
    ) -> bool {
        debug_assert_eq!(dump.request.kind, DumpKind::Trace);
        self.send_dump(dump, |bytes| {
            dump::write_trace(bytes, dump.request.token, part, parts, entries)
        })
    }

    fn send_dump(&mut self, dump: &Dump, write: impl FnOnce(&mut [u8]) -> Option<usize>) -> bool {
        self.reap();
        let (_, slots) = self.driver.ring_frames();
        if self.driver.tx_posted() == slots {
            return false;
        }
        let Some(frame) = self.driver.take_free() else { return false };
        let identity = self.identity;
        let written = self.driver.with_frame(&frame, FRAME_BYTES_MAX, |bytes| {
            let room = bytes.get_mut(UDP_PAYLOAD_OFFSET..UDP_PAYLOAD_OFFSET + ANSWER_BYTES_MAX)?;
            let payload_bytes = write(room)?;
            net::write_datagram(bytes, &identity, PORT, &dump.from, payload_bytes).ok()
        });
        let Some(len_bytes) = written else {
            self.driver.free(frame);
            return true;
        };
        self.counters.add(Counter::AnsweredDump, 1);
        self.send_now(frame, len_bytes);
        true
    }
}
