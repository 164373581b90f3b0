//! Receiving: in the interrupt, in a task, or echoes in the interrupt and the rest in the task.

use net::{Kind, Outcome};
use telemetry::dump::{PORT, Request};
use telemetry::{Counter, Event};
use virtio::net::{FRAME_BYTES_MAX, Received};
use virtio::{Frame, Memory, Registers};

use super::{BACKLOG, Dump, Platform, Responder};
use crate::Switch;

/// Maximum frames of a pass. At its end a task handles the card's interrupts that came meanwhile; with
/// `batching`, answers are shown to the device and buffers returned to it then.
const PASS: usize = 16;

impl<R: Registers, M: Memory, P: Platform> Responder<R, M, P> {
    /// Baseline: handles every frame in the interrupt. `BUDGET`: at most one pass of them, and the
    /// task the rest.
    pub(super) fn in_interrupt<
        const IN_PLACE: bool,
        const LAZY: bool,
        const BATCHED: bool,
        const BUDGET: bool,
    >(
        &mut self,
    ) {
        let mut total = 0;
        while !self.rx_left {
            let count = self.pass::<IN_PLACE, BATCHED>();
            total += count;
            if BUDGET && total >= PASS {
                self.leave_to_task();
            } else if count < PASS && !self.rx_more_in_interrupt() {
                break;
            }
        }
        self.finish_interrupt::<LAZY>(total > 0);
    }

    /// Enables the receive interrupt after a pass that ran dry. Returns true if more frames have come.
    fn rx_more_in_interrupt(&self) -> bool {
        // Without EVENT_IDX the interrupt was never disabled.
        self.driver.has_event_idx() && self.driver.rx_enable_interrupts()
    }

    /// Leaves received frames to the task; the card does not interrupt for others until it is done.
    fn leave_to_task(&mut self) {
        self.rx_left = true;
        self.counters.add(Counter::RxHandovers, 1);
        self.driver.rx_disable_interrupts();
        self.platform.wake_receiver();
    }

    /// The interrupt only wakes the task.
    pub(super) fn in_task<const LAZY: bool>(&mut self) {
        let any = self.driver.rx_has_used();
        if any {
            self.driver.rx_disable_interrupts();
            self.platform.wake_receiver();
        }
        self.finish_interrupt::<LAZY>(any);
    }

    /// Answers echoes in place in the interrupt; wakes the task for other frames. `BUDGET`: looks at one
    /// pass of frames at most, and leaves the rest to the task.
    pub(super) fn echoes_in_interrupt<const LAZY: bool, const BATCHED: bool, const BUDGET: bool>(
        &mut self,
    ) {
        let mut total = 0;
        while !self.rx_left {
            let mut count = 0;
            while count < PASS
                && self.backlog_len < BACKLOG
                && let Some(received) = self.next_received()
            {
                count += 1;
                if let Err(received) = self.answer_in_place(received) {
                    self.put_backlog(received);
                }
                self.end_frame::<BATCHED>();
            }
            total += count;
            self.end_pass::<BATCHED>(count);
            if self.backlog_len == BACKLOG {
                // The task takes the rest from the ring.
                self.driver.rx_disable_interrupts();
                break;
            }
            if BUDGET && total >= PASS {
                self.leave_to_task();
            } else if count < PASS && !self.rx_more_in_interrupt() {
                break;
            }
        }
        if self.backlog_len > 0 {
            self.platform.wake_receiver();
        }
        self.finish_interrupt::<LAZY>(total > 0);
    }

    /// Handles some frames in the task. Returns true if it must be called again.
    ///
    /// Interrupts may be allowed meanwhile, if that of the card is left until it returns.
    pub fn receive_some(&mut self) -> bool {
        (self.plan.task)(self)
    }

    pub(super) fn task_pass<const BATCHED: bool>(&mut self) -> bool {
        let mut count = 0;
        while count < PASS
            && let Some(received) = self.take_backlog().or_else(|| self.next_received())
        {
            count += 1;
            self.handle(received);
            self.end_frame::<BATCHED>();
        }
        self.end_pass::<BATCHED>(count);
        // Process, enable, check again: a frame that arrived in between raises no interrupt.
        if count == PASS || self.driver.rx_enable_interrupts() {
            return true;
        }
        self.rx_left = false;
        false
    }

    /// In poll mode, interrupts only report completed sends.
    pub(super) fn of_completions<const LAZY: bool>(&mut self) {
        self.finish_interrupt::<LAZY>(false);
    }

    /// True in poll mode: the receive ring is polled and raises no interrupt.
    pub fn is_polled(&self) -> bool {
        self.switches.has(Switch::PollMode)
    }

    /// True if the receive ring holds frames.
    pub fn has_received(&self) -> bool {
        self.driver.rx_has_used()
    }

    /// Handles frames in the ring, if any. Called by the task of lowest priority while
    /// [`Self::is_polled`].
    pub fn poll(&mut self) -> bool {
        (self.plan.poll)(self)
    }

    pub(super) fn poll_pass<const IN_PLACE: bool, const BATCHED: bool>(&mut self) -> bool {
        self.pass::<IN_PLACE, BATCHED>() > 0
    }

    /// Handles frames in the ring, at most one pass. Returns their number.
    fn pass<const IN_PLACE: bool, const BATCHED: bool>(&mut self) -> usize {
        let mut count = 0;
        while count < PASS
            && let Some(received) = self.next_received()
        {
            count += 1;
            let left = if IN_PLACE { self.answer_in_place(received) } else { Err(received) };
            if let Err(received) = left {
                self.handle(received);
            }
            self.end_frame::<BATCHED>();
        }
        self.end_pass::<BATCHED>(count);
        count
    }

    /// Counts a wake-up of the receive task.
    pub fn woken(&mut self) {
        self.count(Counter::RxWakes, 1);
        self.trace_now(Event::Woken, 0);
    }

    /// Ends one frame: unless `BATCHED`, posts a new receive buffer now.
    fn end_frame<const BATCHED: bool>(&mut self) {
        if !BATCHED {
            self.refill();
        }
    }

    /// Ends a pass of `count` frames. Kicks TX before refilling RX: answers are latency-critical, the
    /// refill is not.
    fn end_pass<const BATCHED: bool>(&mut self, count: usize) {
        if count > 0 {
            self.passes_count += 1;
        }
        if BATCHED {
            self.driver.tx_kick();
        }
        // Buffers returned by faults, or refilled late, are posted in either case.
        self.refill();
    }

    /// Posts receive buffers for the frames taken, and notifies the device.
    fn refill(&mut self) {
        self.driver.rx_refill();
        self.driver.rx_kick();
    }

    /// Returns the next valid frame; counts invalid ones.
    fn next_received(&mut self) -> Option<Received> {
        loop {
            match self.driver.rx_take()? {
                Ok(received) => {
                    let len = received.len_bytes;
                    self.count(Counter::RxPackets, 1);
                    self.count(Counter::RxBytes, len as u64);
                    self.trace_too(Event::Received, len as u32);
                    if self.gpio {
                        self.platform.toggle();
                    }
                    (self.plan.report_received)(self, len);
                    return Some(received);
                }
                Err(fault) => {
                    self.counters.add(Counter::RxErrors, 1);
                    self.trace_now(Event::RxFault, 0);
                    if fault.needs_restart() {
                        self.restart();
                        return None;
                    }
                }
            }
        }
    }

    /// Default handling: copies the frame, answers from the copy, returns the buffer to the ring.
    fn handle(&mut self, received: Received) {
        let Received { frame, len_bytes } = received;
        match self.driver.take_free() {
            Some(answer) => {
                self.driver.copy(&frame, &answer, len_bytes);
                self.answer(answer, len_bytes);
            }
            // No free frame: treated like a full transmit ring.
            None => self.count_refused(),
        }
        // After the answer: it is latency-critical, the receive ring is not.
        self.driver.rx_post(frame);
    }

    /// Turns a request into its answer, and sends it.
    fn answer(&mut self, frame: Frame, len_bytes: usize) {
        let identity = self.identity;
        let outcome =
            self.driver.with_frame(&frame, len_bytes, |bytes| net::answer(bytes, &identity));
        match outcome {
            Outcome::Answer { kind, len_bytes } => {
                let counter = match kind {
                    Kind::Arp => Counter::AnsweredArp,
                    Kind::Icmp => Counter::AnsweredIcmp,
                    Kind::Udp => Counter::AnsweredUdp,
                };
                self.count(counter, 1);
                self.send(frame, len_bytes);
                return;
            }
            Outcome::Datagram { from, port: PORT, payload } => {
                let request = self.driver.with_frame(&frame, FRAME_BYTES_MAX, |bytes| {
                    bytes.get(payload).map(Request::parse)
                });
                match request {
                    Some(Ok(request)) => self.put_dump(Dump { request, from }),
                    _ => self.counters.add(Counter::Ignored, 1),
                }
            }
            Outcome::Datagram { .. } | Outcome::Other | Outcome::Bad(_) => {
                self.counters.add(Counter::Ignored, 1);
            }
        }
        self.driver.free(frame);
    }

    /// Turns an echo into its reply in its own buffer and sends that. Returns any other frame.
    fn answer_in_place(&mut self, received: Received) -> Result<(), Received> {
        let identity = self.identity;
        let turned = self.driver.with_frame(&received.frame, received.len_bytes, |bytes| {
            net::echo_in_place(bytes, &identity)
        });
        let Some(len_bytes) = turned else { return Err(received) };
        self.count(Counter::AnsweredIcmp, 1);
        self.count(Counter::AnsweredInPlace, 1);
        self.send(received.frame, len_bytes);
        Ok(())
    }

    fn finish_interrupt<const LAZY: bool>(&mut self, any_received: bool) {
        let reaped = if !LAZY || any_received || self.tx_armed { self.reap_armed() } else { 0 };
        if !any_received && reaped == 0 {
            self.count(Counter::InterruptsIdle, 1);
        }
    }

    fn put_backlog(&mut self, received: Received) {
        let slot = (self.backlog_head + self.backlog_len) % BACKLOG;
        self.backlog[slot] = Some(received);
        self.backlog_len += 1;
    }

    fn take_backlog(&mut self) -> Option<Received> {
        let received = self.backlog[self.backlog_head].take()?;
        self.backlog_head = (self.backlog_head + 1) % BACKLOG;
        self.backlog_len -= 1;
        Some(received)
    }

    fn put_dump(&mut self, dump: Dump) {
        match self.dumps.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => {
                *slot = Some(dump);
                self.platform.wake_dumper();
            }
            None => self.counters.add(Counter::Ignored, 1),
        }
    }

    /// Returns the next queued dump request.
    pub fn take_dump(&mut self) -> Option<Dump> {
        self.dumps.iter_mut().find_map(Option::take)
    }
}
