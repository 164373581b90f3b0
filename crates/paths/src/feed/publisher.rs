//! The exchange's side of a trial: sends a script on time.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

use io::clock::{monotonic_ns, realtime_ns, set_timer_slack_ns};

use super::schedule::wait_until;
use super::script::Script;

/// Head start of the first datagram, for stamping the script and warming up.
const LEAD_NS: u64 = 5_000_000;
/// Above everything that a trial runs.
const PRIORITY: i32 = 90;

/// The wall clock is set, and not only trimmed, when it moves by more than this against the
/// monotonic one.
const STEP_NS: u64 = 2_000_000;

/// The wall clock, which stamps are compared by: somebody may set it.
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

/// What was sent, and when.
#[derive(Debug)]
pub(super) struct Sent {
    /// When the script began, CLOCK_REALTIME nanoseconds.
    pub(super) begin_ns: u64,
    /// When each datagram was handed to the kernel, CLOCK_REALTIME nanoseconds.
    pub(super) at_ns: Vec<u64>,
    /// Whether no other thread could take its CPU away.
    pub(super) is_undisturbed: bool,
}

/// Sends the script from `from` to the group, in the calling thread's network namespace.
///
/// It stands for another host, where nothing of this one's load could delay it: it has a
/// real-time priority, if it may, and sleeps between the bursts, so that whatever else wants to
/// run finds its CPU and not the receiver's.
pub(super) fn publish(
    script: &mut Script,
    from: Ipv4Addr,
    group: SocketAddrV4,
) -> Result<Sent, String> {
    // The source address chooses the interface of multicast.
    let socket = UdpSocket::bind((from, 0)).map_err(|e| format!("binding to {from}: {e}"))?;
    socket.connect(group).map_err(|e| format!("connecting to {group}: {e}"))?;
    let clock = WallClock::new();
    let begin_ns = realtime_ns() + LEAD_NS;
    script.stamp(begin_ns);
    let is_undisturbed = io::sched::set_fifo(PRIORITY).is_ok();
    set_timer_slack_ns(1);
    let mut at_ns = Vec::with_capacity(script.len());
    for n in 0..script.len() {
        let due_ns = begin_ns + script.due_ns(n);
        let Some(now_ns) = wait_until(due_ns, realtime_ns, || clock.was_set()) else { break };
        at_ns.push(now_ns);
        socket.send(script.datagram(n)).map_err(|e| format!("sending to {group}: {e}"))?;
    }
    if clock.was_set() {
        return Err("the wall clock was set meanwhile, and times are told by it".into());
    }
    Ok(Sent { begin_ns, at_ns, is_undisturbed })
}
