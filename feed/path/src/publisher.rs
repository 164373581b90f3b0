//! Exchange of a trial: sends a script on schedule.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

use sys::clock::{monotonic_ns, realtime_ns, set_timer_slack_ns};

use super::error::EndError;
use super::script::Script;
use marketdata::schedule::wait_until;

/// Lead time before the first datagram, for stamping the script and warming up.
const LEAD_NS: u64 = 5_000_000;
/// Resolution of match times.
const MICROSECOND_NS: u64 = 1_000;
/// Real-time priority, above all other threads of a trial.
const PRIORITY: i32 = 90;

/// Change of the wall clock against the monotonic clock above which it was stepped, not slewed.
const STEP_NS: i64 = 2_000_000;

/// By how much the wall clock is ahead of the monotonic clock, nanoseconds: no less, and no more. The thread may lose its CPU
/// between two readings, and a guest each of its own.
#[derive(Debug, Clone, Copy)]
struct Ahead {
    least_ns: i64,
    most_ns: i64,
}

impl Ahead {
    fn now() -> Self {
        let before_ns = monotonic_ns();
        let wall_ns = realtime_ns();
        Self::between(before_ns, wall_ns, monotonic_ns())
    }

    /// - `before_ns`, `after_ns`: the monotonic clock before and after the wall clock read `wall_ns`.
    fn between(before_ns: u64, wall_ns: u64, after_ns: u64) -> Self {
        let least_ns = wall_ns.wrapping_sub(after_ns) as i64;
        Ahead { least_ns, most_ns: wall_ns.wrapping_sub(before_ns) as i64 }
    }
}

/// Detects steps of the wall clock, which all time stamps use.
struct WallClock(Ahead);

impl WallClock {
    fn new() -> Self {
        WallClock(Ahead::now())
    }

    fn was_set(&self) -> bool {
        self.was_set_at(Ahead::now())
    }

    fn was_set_at(&self, now: Ahead) -> bool {
        let moved_ns = (now.least_ns - self.0.most_ns).max(self.0.least_ns - now.most_ns);
        moved_ns > STEP_NS
    }
}

/// Start of a script that is prepared at `now_ns` (CLOCK_REALTIME): a whole microsecond.
///
/// A match time has no finer part. Without the rounding, the part that it lacks would shift every
/// `match→app` of a trial by one constant, another in each trial.
pub(super) fn begin_after(now_ns: u64) -> u64 {
    let begin_ns = now_ns + LEAD_NS;
    begin_ns - begin_ns % MICROSECOND_NS
}

/// Result of the publisher.
#[derive(Debug)]
pub(super) struct Sent {
    /// Start of the script, CLOCK_REALTIME nanoseconds.
    pub(super) begin_ns: u64,
    /// Send time of each datagram, CLOCK_REALTIME nanoseconds.
    pub(super) at_ns: Vec<u64>,
    /// The publisher had real-time priority, so it could not be preempted.
    pub(super) is_undisturbed: bool,
}

/// Sends the script from `from` to the group, in the calling thread's network namespace.
///
/// It represents another host, which the load of this one cannot delay. So it runs at real-time
/// priority if permitted, and sleeps between bursts, so that other threads run on its CPU and not
/// on the receiver's.
pub(super) fn publish(
    script: &mut Script,
    from: Ipv4Addr,
    group: SocketAddrV4,
) -> Result<Sent, EndError> {
    // The source address selects the multicast interface.
    let socket = UdpSocket::bind((from, 0)).map_err(|source| EndError::Bind { from, source })?;
    let failed = |source| EndError::Send { group, source };
    socket.connect(group).map_err(failed)?;
    let clock = WallClock::new();
    let begin_ns = begin_after(realtime_ns());
    script.stamp(begin_ns);
    let is_undisturbed = sys::sched::set_fifo(PRIORITY).is_ok();
    set_timer_slack_ns(1);
    let mut at_ns = Vec::with_capacity(script.len());
    for n in 0..script.len() {
        let due_ns = begin_ns + script.due_ns(n);
        let Some(now_ns) = wait_until(due_ns, realtime_ns, || clock.was_set()) else { break };
        at_ns.push(now_ns);
        socket.send(script.datagram(n)).map_err(failed)?;
    }
    if clock.was_set() {
        return Err(EndError::ClockSet);
    }
    Ok(Sent { begin_ns, at_ns, is_undisturbed })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn step_of_the_wall_clock_is_told_from_a_pause_between_two_readings() {
        let clock = WallClock(Ahead::between(50 * MS, 1_050 * MS, 50 * MS));
        let was_set_at = |before, wall, after| {
            clock.was_set_at(Ahead::between(before * MS, wall * MS, after * MS))
        };
        assert!(!was_set_at(90, 1_090, 90));
        // Forth and back, seen at once or over a pause.
        assert!(was_set_at(90, 1_093, 90) && was_set_at(90, 1_087, 90));
        assert!(was_set_at(90, 1_104, 100) && was_set_at(90, 1_087, 100));
        // Paused before the wall clock was read, and behind it.
        assert!(!was_set_at(90, 1_100, 100) && !was_set_at(90, 1_090, 100));
        let paused = WallClock(Ahead::between(50 * MS, 1_060 * MS, 60 * MS));
        assert!(!paused.was_set_at(Ahead::between(90 * MS, 1_090 * MS, 90 * MS)));
    }
}
