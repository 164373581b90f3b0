//! Round trips as fast as they go: requests are sent while a window has room, and every answer is
//! measured.
//!
//! The window counts from the highest request that was answered, so that a lost datagram, or a lost
//! answer, costs its place only until a later one is answered.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use io::{AnyEngine, Engine};
use sys::clock::monotonic_ns;
use sys::thread::start;
use wire::probe::Kind;

use super::end::{End, write};
use super::ping::later;
use super::{RoleError, RoleReport, Steering, Task};
use crate::watch::InterfaceWatch;

/// Requests in flight of load `echo-flood`: three batches of 64, one each being sent, echoed and
/// received, so that both directions are always busy. Fewer than the 256 frames that a veth queues
/// for a NAPI receiver (VETH_RING_SIZE, drivers/net/veth.c), so that the load itself loses none.
pub const WINDOW: u32 = 192;

/// Silence after which everything in flight counts as lost and the window is opened again.
const SILENCE_NS: u64 = 50_000_000;
/// Empty polls between two looks at frames that the kernel left in a ring.
const LOOKS: u32 = 64;
/// Sleep of a sender that does not spin, while its window is full.
const FULL_INTERVAL: Duration = Duration::from_micros(20);

/// Requests that may be in flight.
struct Window {
    most: u32,
    /// All requests before this one are answered or given up.
    base: u32,
    moved_ns: u64,
    reopened_count: u64,
}

impl Window {
    fn new(most: u32, now_ns: u64) -> Self {
        Window { most, base: 0, moved_ns: now_ns, reopened_count: 0 }
    }

    /// Number of requests that may be sent now.
    ///
    /// - `next`: sequence number of the next request.
    /// - `answered`: one after the highest answered one.
    fn room(&mut self, next: u32, answered: u32, now_ns: u64) -> u32 {
        let base = later(self.base, answered);
        let in_flight = next.wrapping_sub(base);
        if base != self.base || in_flight == 0 {
            (self.base, self.moved_ns) = (base, now_ns);
        } else if in_flight >= self.most && now_ns.saturating_sub(self.moved_ns) > SILENCE_NS {
            (self.base, self.moved_ns) = (next, now_ns);
            self.reopened_count += 1;
        }
        self.most.saturating_sub(next.wrapping_sub(self.base))
    }
}

/// State that a sending and a receiving thread share.
#[derive(Default)]
struct Shared {
    answered: AtomicU32,
    /// Valid once `is_sent`.
    sent_count: AtomicU64,
    is_sent: AtomicBool,
}

impl End<'_> {
    fn post_pings<E: Engine>(&mut self, engine: &mut E, want: usize) -> Result<usize, io::IoError> {
        let posted = engine.tx_post(0, want, &mut |payload| {
            let sent_ns = monotonic_ns();
            write(&self.header(0, Kind::Ping, sent_ns), payload);
        })?;
        self.sent_count += posted as u64;
        Ok(posted)
    }

    /// Sends until the task is over. `answers` receives or waits, and returns one after the highest
    /// request that was answered; its argument is true if there was nothing to send.
    fn send_window<E: Engine>(
        &mut self,
        engine: &mut E,
        most: u32,
        mut answers: impl FnMut(&mut Self, &mut E, bool) -> Result<u32, io::IoError>,
    ) -> Result<(), io::IoError> {
        let burst = self.task.engine.burst();
        let limit = self.task.count.unwrap_or(u64::MAX);
        let until_ns = self.task.duration.map_or(u64::MAX, |d| self.begun_ns + d.as_nanos() as u64);
        let mut window = Window::new(most, self.begun_ns);
        let (mut answered, mut looks, mut rounds) = (0, 0u32, 0u32);
        while self.sent_count < limit {
            let now_ns = monotonic_ns();
            if now_ns >= until_ns || self.stopped() {
                break;
            }
            let room = window.room(self.sequences[0], answered, now_ns) as usize;
            let want = room.min(burst).min((limit - self.sent_count).min(burst as u64) as usize);
            looks = if want == 0 { looks + 1 } else { 0 };
            if want > 0 || looks.is_multiple_of(LOOKS) {
                self.post_pings(engine, want)?;
            }
            answered = answers(self, engine, want == 0)?;
            rounds = rounds.wrapping_add(1);
            if rounds.is_multiple_of(1024) {
                self.publish();
                self.check_link()?;
            }
        }
        self.reopened_count = window.reopened_count;
        // Datagrams that were built but not sent leave before the counters are read.
        self.post_pings(engine, 0).map(|_| ())
    }

    /// Sends and receives on one thread.
    pub(super) fn ping_window<E: Engine>(
        &mut self,
        engine: &mut E,
        most: u32,
    ) -> Result<(), io::IoError> {
        let sleeps = self.task.engine.wait == io::Wait::Block;
        self.send_window(engine, most, |end, engine, is_full| {
            let (taken, _) = end.take_answers(engine, None)?;
            if taken == 0 && is_full && sleeps {
                engine.nap(Duration::from_millis(1))?;
            }
            Ok(end.answered)
        })?;
        self.await_last(engine)
    }

    /// The sending half; its answers arrive at [`Self::receive_half`].
    fn send_half<E: Engine>(
        &mut self,
        engine: &mut E,
        most: u32,
        shared: &Shared,
    ) -> Result<(), io::IoError> {
        let sleeps = self.task.engine.wait == io::Wait::Block;
        if sleeps {
            sys::clock::set_timer_slack_ns(1);
        }
        self.send_window(engine, most, |_, engine, is_full| {
            if is_full {
                engine.tx_reap();
                if sleeps {
                    thread::sleep(FULL_INTERVAL);
                } else {
                    std::hint::spin_loop();
                }
            }
            Ok(shared.answered.load(Ordering::Relaxed))
        })
    }

    fn receive_half<E: Engine>(
        &mut self,
        engine: &mut E,
        shared: &Shared,
    ) -> Result<(), io::IoError> {
        while !shared.is_sent.load(Ordering::Acquire) {
            let (taken, _) = self.take_answers(engine, None)?;
            shared.answered.store(self.answered, Ordering::Relaxed);
            if taken == 0 {
                engine.rx_post();
                self.idle()?;
            }
        }
        // For the wait only: the other half reports them.
        self.sent_count = shared.sent_count.load(Ordering::Relaxed);
        let waited = self.await_last(engine);
        self.sent_count = 0;
        waited
    }
}

fn send_on<E: Engine>(
    engine: &mut E,
    task: &Task,
    steering: Steering<'_>,
    most: u32,
    shared: &Shared,
) -> Result<RoleReport, RoleError> {
    let mut end = End::new(task, steering);
    let ran = end.send_half(engine, most, shared);
    shared.sent_count.store(end.sent_count, Ordering::Relaxed);
    shared.is_sent.store(true, Ordering::Release);
    let engine = engine.finish();
    ran?;
    Ok(end.into_report(engine))
}

fn receive_on<E: Engine>(
    engine: &mut E,
    task: &Task,
    steering: Steering<'_>,
    shared: &Shared,
) -> Result<RoleReport, RoleError> {
    let mut end = End::new(task, steering);
    let ran = end.receive_half(engine, shared);
    let engine = engine.finish();
    ran?;
    Ok(end.into_report(engine))
}

fn pin_thread(cpus: &[usize]) -> Result<(), RoleError> {
    sys::affinity::pin_to(cpus).map_err(|why| {
        RoleError::Thread(format!("a thread cannot run on the CPUs {cpus:?}: {why}"))
    })
}

/// Runs the halves of an end, each on a thread on its share of `cpus`.
pub(super) fn run_halves(
    (mut tx, mut rx): (AnyEngine, AnyEngine),
    most: u32,
    cpus: &[usize],
    task: &Task,
    watch: Option<InterfaceWatch>,
    stop: &AtomicBool,
) -> Result<RoleReport, RoleError> {
    let (sending, receiving) = cpus.split_at(cpus.len() / 2);
    let shared = &Shared::default();
    let (sent, received) = thread::scope(|scope| {
        let receiver = start(scope, "near-rx", || {
            let steering = Steering { stop, live: None, watch: None };
            let received = pin_thread(receiving).and_then(
                |()| io::on_engine!(&mut rx, engine => receive_on(engine, task, steering, shared)),
            );
            // Without a receiver the sender would go on, from silence to silence.
            stop.fetch_or(received.is_err(), Ordering::Relaxed);
            received
        });
        let steering = Steering { stop, live: None, watch };
        let sent = pin_thread(sending).and_then(
            |()| io::on_engine!(&mut tx, engine => send_on(engine, task, steering, most, shared)),
        );
        shared.is_sent.store(true, Ordering::Release);
        (sent, receiver.end())
    });
    let mut report = sent?;
    report.merge(received?);
    let threads = format!("sender on CPUs {sending:?}, receiver on CPUs {receiving:?}");
    report.engine.mode.push(("threads".into(), threads));
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_follows_the_highest_answer_and_reopens_after_silence() {
        let mut window = Window::new(10, 0);
        assert_eq!(window.room(0, 0, 1), 10);
        assert_eq!(window.room(10, 0, 2), 0, "full");
        assert_eq!(window.room(10, 4, 3), 4, "numbers 0 to 3 were answered, or lost");
        assert_eq!(window.room(14, 2, 4), 0, "an answer out of order opens nothing");
        assert_eq!(window.room(14, 4, 3 + SILENCE_NS), 0);
        assert_eq!((window.room(14, 4, 4 + SILENCE_NS), window.reopened_count), (10, 1));
        assert_eq!(window.room(24, 14, 5 + SILENCE_NS), 0, "silence is counted anew");
        let mut wrapped = Window { base: u32::MAX - 1, ..Window::new(10, 0) };
        assert_eq!(wrapped.room(3, 1, 1), 8);
    }
}
