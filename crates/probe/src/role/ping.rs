//! Round-trip measurement, in a closed or open loop.

use std::sync::atomic::Ordering;
use std::time::Duration;

use io::{Arrival, Engine};
use sys::clock::monotonic_ns;
use sys::rusage::ThreadUsage;
use wire::probe::Kind;

use super::end::{End, write};
use super::schedule::due_at_ns;

/// Time-out of a closed-loop ping.
pub(crate) const PING_TIMEOUT_NS: u64 = 100_000_000;
/// Silence after which missing answers are lost.
const LAST_ANSWERS_NS: u64 = 100_000_000;
/// Silence that ends the run when every ping was answered.
const SILENCE_NS: u64 = 10_000_000;
/// Longest wait for the last answers.
const AWAIT_MAX_NS: u64 = 1_000_000_000;

/// The later of two sequence numbers, which wrap around.
pub(super) fn later(a: u32, b: u32) -> u32 {
    if b.wrapping_sub(a) < 1 << 31 { b } else { a }
}

impl End<'_> {
    /// Receives answers. Returns their number, and true if one was to `awaited`.
    pub(super) fn take_answers<E: Engine>(
        &mut self,
        engine: &mut E,
        awaited: Option<u32>,
    ) -> Result<(usize, bool), io::IoError> {
        let mut found = false;
        let taken = engine.rx_take(&mut |arrival: Arrival<'_>| {
            // Each datagram: one reading for a batch made its later members look early.
            let now_ns = monotonic_ns();
            let Some(header) = self.accept(arrival.payload, Kind::Pong) else { return };
            self.note(0, header.reply, arrival.payload_bytes, now_ns);
            let rtt_ns = now_ns.saturating_sub(header.time_ns).max(1);
            self.latency.saturating_record(rtt_ns);
            if let Some(live) = self.steering.live {
                live.rtt_ns.store(rtt_ns, Ordering::Relaxed);
            }
            self.jitter.record(header.time_ns, now_ns);
            self.kernel_to_app(&arrival);
            found |= awaited == Some(header.sequence);
            self.answered = later(self.answered, header.sequence.wrapping_add(1));
        })?;
        Ok((taken, found))
    }

    pub(super) fn ping_pong<E: Engine>(&mut self, engine: &mut E) -> Result<(), io::IoError> {
        let limit = self.task.count.unwrap_or(u64::MAX);
        let until_ns = self.task.duration.map_or(u64::MAX, |d| self.begun_ns + d.as_nanos() as u64);
        while self.sent_count < limit && !self.stopped() {
            let sent_ns = monotonic_ns();
            if sent_ns >= until_ns {
                break;
            }
            let awaited = self.sequences[0];
            let posted = engine.tx_post(0, 1, &mut |payload| {
                write(&self.header(0, Kind::Ping, sent_ns), payload);
            })?;
            if posted == 0 {
                engine.tx_reap();
                self.check_link()?;
                continue;
            }
            self.sent_count += 1;
            let mut looks = 0u32;
            loop {
                let (taken, found) = self.take_answers(engine, Some(awaited))?;
                if found {
                    break;
                }
                looks += u32::from(taken == 0);
                let look_at_clock =
                    self.task.engine.wait == io::Wait::Block || looks.is_multiple_of(64);
                if look_at_clock && taken == 0 {
                    self.idle()?;
                    let waited_ns = monotonic_ns().saturating_sub(sent_ns);
                    if waited_ns > PING_TIMEOUT_NS || self.stopped() {
                        break;
                    }
                }
            }
            if self.sent_count.is_multiple_of(1024) {
                self.publish();
            }
        }
        self.await_last(engine)
    }

    pub(super) fn ping_open_loop<E: Engine>(
        &mut self,
        engine: &mut E,
        rate_pps: u64,
    ) -> Result<(), io::IoError> {
        // Sleeping to within 50 µs of the schedule would be half of a 10,000/s interval.
        sys::clock::set_timer_slack_ns(1);
        let rate_pps = rate_pps.max(1);
        let limit = self.task.count.unwrap_or(u64::MAX);
        let until_ns = self.task.duration.map_or(u64::MAX, |d| self.begun_ns + d.as_nanos() as u64);
        let mut rounds = 0u32;
        while self.sent_count < limit && !self.stopped() {
            let now_ns = monotonic_ns();
            if now_ns >= until_ns {
                break;
            }
            let intended_ns = self.begun_ns + due_at_ns(self.sent_count, rate_pps);
            if intended_ns <= now_ns {
                // One at a time: answers in between are received without delay. A late sender
                // catches up, and its lateness counts as latency.
                let posted = engine.tx_post(0, 1, &mut |payload| {
                    write(&self.header(0, Kind::Ping, intended_ns), payload);
                })?;
                self.sent_count += posted as u64;
            }
            let (taken, _) = self.take_answers(engine, None)?;
            if taken == 0 && self.task.engine.wait == io::Wait::Block {
                let next_ns = self.begun_ns + due_at_ns(self.sent_count, rate_pps);
                let sleep_ns = next_ns.saturating_sub(monotonic_ns()).min(20_000_000);
                if sleep_ns > 0 {
                    engine.nap(Duration::from_nanos(sleep_ns))?;
                }
            }
            rounds = rounds.wrapping_add(1);
            if rounds.is_multiple_of(4096) {
                self.publish();
                self.check_link()?;
            }
        }
        self.await_last(engine)
    }

    /// Receives answers still in flight, until none has arrived for a while: pings may be
    /// duplicated, so the number of answers is unknown.
    pub(super) fn await_last<E: Engine>(&mut self, engine: &mut E) -> Result<(), io::IoError> {
        self.idle = Some((monotonic_ns(), ThreadUsage::counted()));
        let begun_ns = monotonic_ns();
        let mut last_ns = begun_ns;
        loop {
            let now_ns = monotonic_ns();
            if self.take_answers(engine, None)?.0 > 0 {
                last_ns = now_ns;
            } else if self.task.engine.wait == io::Wait::Block {
                engine.nap(Duration::from_millis(1))?;
            }
            let complete = self.distinct_count() >= self.sent_count;
            let patience_ns = if complete { SILENCE_NS } else { LAST_ANSWERS_NS };
            if now_ns - last_ns > patience_ns || now_ns - begun_ns > AWAIT_MAX_NS {
                return Ok(());
            }
        }
    }
}
