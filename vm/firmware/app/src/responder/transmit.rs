//! Sending: polled to completion or asynchronous, with one doorbell per frame or per pass.

use telemetry::{Counter, Event};
use virtio::{Frame, Memory, Registers};

use super::{POLL_TURN_US, POLL_TURNS_MAX, Platform, Responder};

impl<R: Registers, M: Memory, P: Platform> Responder<R, M, P> {
    /// Sends the first `len_bytes` of a frame by the arm's transmit function.
    pub(super) fn send(&mut self, frame: Frame, len_bytes: usize) {
        (self.plan.transmit)(self, frame, len_bytes);
    }

    /// Sends outside a pass, so rings the doorbell itself.
    pub(super) fn send_now(&mut self, frame: Frame, len_bytes: usize) {
        self.send(frame, len_bytes);
        self.driver.tx_kick();
    }

    /// Sends and waits until the device has completed all frames, in turns of [`POLL_TURN_US`].
    ///
    /// A frame whose completion times out still belongs to the device: it is not reused before the
    /// device returns it.
    pub(super) fn transmit_polled(&mut self, frame: Frame, len_bytes: usize) {
        if !self.post::<false>(frame, len_bytes) {
            return;
        }
        // The clock is read for the counter alone.
        let posted_ns = self.counts.then(|| self.platform.now_ns());
        for _ in 0..POLL_TURNS_MAX {
            self.reap();
            if self.driver.tx_posted() == 0 {
                if let Some(posted_ns) = posted_ns {
                    let waited_ns = self.platform.now_ns().saturating_sub(posted_ns);
                    self.count(Counter::TxPolled, 1);
                    self.count(Counter::TxPolledNs, waited_ns);
                }
                return;
            }
            self.counters.add(Counter::TxPollTurns, 1);
            self.platform.udelay(POLL_TURN_US);
        }
        self.reap();
        let left = self.driver.tx_posted();
        if left > 0 {
            self.counters.add(Counter::TxErrors, 1);
            self.counters.add(Counter::TxPollTimeouts, 1);
            self.trace_now(Event::PollTimeout, left.into());
            // It completes nothing more, and its interrupt waits: each frame of a pass would time out.
            if self.driver.needs_restart() {
                self.restart();
            }
        }
    }

    /// Sends without waiting. `LAZY`: reaps completed frames first. `BATCHED`: the device is shown the
    /// frame at the end of the pass.
    pub(super) fn transmit_async<const LAZY: bool, const BATCHED: bool>(
        &mut self,
        frame: Frame,
        len_bytes: usize,
    ) {
        if LAZY {
            self.reap();
        }
        self.post::<BATCHED>(frame, len_bytes);
    }

    /// Posts a frame, and kicks unless `BATCHED`. Returns false if the ring was full.
    fn post<const BATCHED: bool>(&mut self, frame: Frame, len_bytes: usize) -> bool {
        let posted = match self.driver.tx_post(frame, len_bytes) {
            Ok(()) => true,
            Err(frame) => {
                if BATCHED {
                    // The ring may be full of frames not yet shown to the device.
                    self.driver.tx_kick();
                }
                // Full. If no interrupt would report a completion, enable it, then check again:
                // a completion may have come before it was enabled.
                self.tx_armed = true;
                if self.driver.tx_enable_interrupts() {
                    self.reap_armed();
                }
                match self.driver.tx_post(frame, len_bytes) {
                    Ok(()) => true,
                    Err(frame) => {
                        self.driver.free(frame);
                        false
                    }
                }
            }
        };
        if !posted {
            self.count_refused();
            return false;
        }
        self.count(Counter::TxPackets, 1);
        self.count(Counter::TxBytes, len_bytes as u64);
        self.trace_now(Event::Posted, len_bytes as u32);
        if self.gpio {
            self.platform.toggle();
        }
        if !BATCHED {
            self.driver.tx_kick();
        }
        (self.plan.report_posted)(self, len_bytes);
        true
    }

    pub(super) fn count_refused(&mut self) {
        self.counters.add(Counter::TxErrors, 1);
        self.counters.add(Counter::TxRefused, 1);
        let left = self.driver.tx_posted();
        self.trace_now(Event::Refused, left.into());
    }

    /// Reclaims completed frames. Returns their number.
    pub(super) fn reap(&mut self) -> u16 {
        let (count, fault) = self.driver.tx_reap();
        if count > 0 {
            self.count(Counter::TxReaped, count.into());
            self.trace_too(Event::Reaped, count.into());
        }
        if let Some(fault) = fault {
            self.counters.add(Counter::TxErrors, 1);
            self.trace_now(Event::TxFault, 0);
            if fault.needs_restart() {
                self.restart();
            }
        }
        count
    }

    /// Reclaims completed frames, and enables the interrupt for the next if this arm uses one.
    pub(super) fn reap_armed(&mut self) -> u16 {
        let mut total = 0;
        loop {
            total += self.reap();
            if !self.driver.tx_wants_interrupts() {
                if self.tx_armed && total > 0 {
                    self.tx_armed = false;
                    self.driver.tx_disable_interrupts();
                }
                return total;
            }
            self.tx_armed = false;
            // Without EVENT_IDX the interrupt was never disabled.
            if !self.driver.has_event_idx() || !self.driver.tx_enable_interrupts() {
                return total;
            }
        }
    }
}
