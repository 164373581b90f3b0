//! Loops of the sending, receiving and echoing roles.

use io::{Arrival, Engine};
use sys::clock::monotonic_ns;
use wire::probe::Kind;

use super::Pace;
use super::end::{End, write};
use super::schedule::{due_at_ns, due_count, pause_until};

/// Pause of a batching, spinning receiver, so that datagrams gather; a longer one gained nothing.
/// Ends that answer never pause.
const LINGER_NS: u64 = 5_000;

/// Polls between two updates of the live counters: more frequent than the silence that ends a
/// drain.
const PUBLISH_ROUNDS: u32 = 64;

impl End<'_> {
    pub(super) fn send<E: Engine>(&mut self, engine: &mut E) -> Result<(), io::IoError> {
        let burst = self.task.engine.burst();
        let flows = self.sequences.len();
        let limit = self.task.count.unwrap_or(u64::MAX);
        let until_ns = self.task.duration.map_or(u64::MAX, |d| self.begun_ns + d.as_nanos() as u64);
        let rate_pps = match self.task.pace {
            Pace::Rate(rate) => Some(rate.max(1)),
            _ => None,
        };
        let mut flow = 0;
        let mut stuck = 0u32;
        let mut rounds = 0u32;
        while self.sent_count < limit {
            let now_ns = monotonic_ns();
            if now_ns >= until_ns || self.stopped() {
                break;
            }
            let mut want = burst.min((limit - self.sent_count).min(burst as u64) as usize);
            let mut intended_ns = now_ns;
            if let Some(rate_pps) = rate_pps {
                let due = due_count(now_ns - self.begun_ns, rate_pps);
                if due <= self.sent_count {
                    let next_ns = self.begun_ns + due_at_ns(self.sent_count, rate_pps);
                    pause_until(next_ns, self.task.engine.wait);
                    continue;
                }
                intended_ns = self.begun_ns + due_at_ns(self.sent_count, rate_pps);
                want = want.min((due - self.sent_count) as usize);
            }
            let posted = engine.tx_post(flow, want, &mut |payload| {
                write(&self.header(flow, Kind::Data, intended_ns), payload);
            })?;
            self.sent_count += posted as u64;
            flow = if flow + 1 == flows { 0 } else { flow + 1 };
            rounds = rounds.wrapping_add(1);
            if rounds.is_multiple_of(1024) {
                self.publish();
                self.check_link()?;
            }
            // The kernel empties a full ring: yield the CPU to it.
            stuck = if posted == 0 { stuck + 1 } else { 0 };
            if stuck > 64 {
                std::thread::yield_now();
                self.check_link()?;
            }
        }
        // Datagrams that were built but not sent leave before the counters are read.
        let left = engine.tx_post(flow, 0, &mut |_| {})?;
        self.sent_count += left as u64;
        Ok(())
    }

    pub(super) fn receive<E: Engine>(&mut self, engine: &mut E) -> Result<(), io::IoError> {
        let one_clock = self.task.one_clock;
        let batch = self.task.engine.batch;
        let linger = batch > 1 && self.task.engine.wait == io::Wait::Spin;
        let mut rounds = 0u32;
        loop {
            // Read before polling: everything that arrived before the stop is received, however
            // long this thread was preempted in between.
            let stopping = self.stopped();
            let taken = engine.rx_take(&mut |arrival: Arrival<'_>| {
                // Each datagram: one reading for a batch made its later members look early.
                let now_ns = monotonic_ns();
                let Some(header) = self.accept(arrival.payload, Kind::Data) else { return };
                let bytes = arrival.payload_bytes;
                self.note(usize::from(header.flow), header.sequence, bytes, now_ns);
                if one_clock {
                    let latency_ns = now_ns.saturating_sub(header.time_ns).max(1);
                    self.latency.saturating_record(latency_ns);
                }
                self.jitter.record(header.time_ns, now_ns);
                self.kernel_to_app(&arrival);
            })?;
            if taken == 0 {
                engine.rx_post();
                self.idle()?;
            }
            rounds = rounds.wrapping_add(1);
            if stopping && (taken == 0 || rounds.is_multiple_of(1024)) {
                return Ok(());
            }
            if rounds.is_multiple_of(PUBLISH_ROUNDS) {
                self.publish();
            }
            if linger && taken < batch / 2 {
                // Each poll takes the ring's cache line from the kernel's CPU, which is about to
                // write it: without this pause 1.4 Mpps, with it 1.7 (flood), 2.7 and 7.7 (storm).
                let until_ns = monotonic_ns() + LINGER_NS;
                while monotonic_ns() < until_ns {
                    std::hint::spin_loop();
                }
            }
        }
    }

    pub(super) fn echo<E: Engine>(&mut self, engine: &mut E) -> Result<(), io::IoError> {
        let mut rounds = 0u32;
        loop {
            // As in `receive`.
            let stopping = self.stopped();
            // The clock is read after the answer is sent; earlier, it would add to the round trip.
            let seen_ns = self.last_ns;
            let echoed = engine.echo(&mut |arrival: &mut Arrival<'_>| {
                // Only pings are answered: two ends that answered answers would never stop.
                let header = self.accept(arrival.payload, Kind::Ping)?;
                let bytes = arrival.payload_bytes;
                self.note(usize::from(header.flow), header.sequence, bytes, seen_ns);
                self.kernel_to_app(arrival);
                let reply = self.replies;
                self.replies = reply.wrapping_add(1);
                Some(reply)
            })?;
            if echoed.taken > 0 {
                self.seen(monotonic_ns());
            }
            self.sent_count += echoed.returned as u64;
            if echoed.taken == 0 {
                self.idle()?;
            }
            if rounds.is_multiple_of(PUBLISH_ROUNDS) {
                self.publish();
            }
            rounds = rounds.wrapping_add(1);
            if stopping && (echoed.taken == 0 || rounds.is_multiple_of(1024)) {
                return Ok(());
            }
        }
    }
}
