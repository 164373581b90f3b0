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
const STEP_NS: u64 = 2_000_000;

/// Detects steps of the wall clock, which all time stamps use.
struct WallClock {
    ahead_ns: u64,
}

impl WallClock {
    fn ahead_ns() -> u64 {
        realtime_ns().wrapping_sub(monotonic_ns())
    }

    fn new() -> Self {
        WallClock { ahead_ns: Self::ahead_ns() }
    }

    fn was_set(&self) -> bool {
        let moved_ns = Self::ahead_ns().wrapping_sub(self.ahead_ns) as i64;
        moved_ns.unsigned_abs() > STEP_NS
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
