//! Sending: polled to completion, or fire and forget, one doorbell a frame or one a pass.

use observe::{Counter, Event};
use virtio::{Frame, Memory, Registers};

use super::{POLL_TURN_US, POLL_TURNS_MAX, Platform, Station};

impl<R: Registers, M: Memory, P: Platform> Station<R, M, P> {
    /// Sends the first `len_bytes` of a frame, the way of this arm.
    pub(super) fn send(&mut self, frame: Frame, len_bytes: usize) {
        (self.plan.transmit)(self, frame, len_bytes);
    }

    /// Sends outside of a pass: nobody else would ring for it.
    pub(super) fn send_now(&mut self, frame: Frame, len_bytes: usize) {
        self.send(frame, len_bytes);
        self.driver.tx_kick();
    }

    /// Waits until the device has sent all it has, in turns of [`POLL_TURN_US`].
    ///
    /// A frame whose completion does not come in time stays the device's: it is not used again
    /// before it has come back.
    pub(super) fn transmit_polled(&mut self, frame: Frame, len_bytes: usize) {
        if !self.post::<false>(frame, len_bytes) {
            return;
        }
        for _ in 0..POLL_TURNS_MAX {
            self.reap();
            if self.driver.tx_posted() == 0 {
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
        }
    }

    /// Leaves the frame to the device. `LAZY`: after reaping what it has sent meanwhile.
    /// `BATCHED`: the end of the pass shows it to the device.
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

    /// Hands a frame over, and rings unless `BATCHED`; false when the ring was full.
    fn post<const BATCHED: bool>(&mut self, frame: Frame, len_bytes: usize) -> bool {
        let posted = match self.driver.tx_post(frame, len_bytes) {
            Ok(()) => true,
            Err(frame) => {
                if BATCHED {
                    // Full of frames that the device may not have been shown yet.
                    self.driver.tx_kick();
                }
                // Full. If nobody would tell us when that changes: ask to be told, and look
                // again, as it may have changed before we asked.
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
        self.counters.add(Counter::TxPackets, 1);
        self.counters.add(Counter::TxBytes, len_bytes as u64);
        self.trace_now(Event::Posted, len_bytes as u32);
        if self.gpio {
            self.platform.toggle();
        }
        if !BATCHED {
            self.driver.tx_kick();
        }
        (self.plan.tell_posted)(self, len_bytes);
        true
    }

    pub(super) fn count_refused(&mut self) {
        self.counters.add(Counter::TxErrors, 1);
        self.counters.add(Counter::TxRefused, 1);
        let left = self.driver.tx_posted();
        self.trace_now(Event::Refused, left.into());
    }

    /// Takes back what was sent.
    pub(super) fn reap(&mut self) -> u16 {
        let (count, fault) = self.driver.tx_reap();
        if count > 0 {
            self.counters.add(Counter::TxReaped, count.into());
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

    /// Takes back what was sent, and arms the interrupt for the next if this arm wants one.
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
            // Without EVENT_IDX the interrupt was never turned off.
            if !self.driver.has_event_idx() || !self.driver.tx_enable_interrupts() {
                return total;
            }
        }
    }
}
