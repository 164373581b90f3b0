//! The exchange's side of a trial: sends a script on time.

use std::hint;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

use io::clock::realtime_ns;

use super::script::Script;

/// Head start of the first datagram, for stamping the script and warming up.
const LEAD_NS: u64 = 5_000_000;

/// What was sent, and when.
#[derive(Debug)]
pub(super) struct Sent {
    /// When the script began, CLOCK_REALTIME nanoseconds.
    pub(super) begin_ns: u64,
    /// When each datagram was handed to the kernel, CLOCK_REALTIME nanoseconds.
    pub(super) at_ns: Vec<u64>,
}

/// Sends the script from `from` to the group, in the calling thread's network namespace. Spins
/// until each datagram is due: it stands for another host, whose CPU is its own.
pub(super) fn publish(
    script: &mut Script,
    from: Ipv4Addr,
    group: SocketAddrV4,
) -> Result<Sent, String> {
    // The source address chooses the interface of multicast.
    let socket = UdpSocket::bind((from, 0)).map_err(|e| format!("binding to {from}: {e}"))?;
    socket.connect(group).map_err(|e| format!("connecting to {group}: {e}"))?;
    let begin_ns = realtime_ns() + LEAD_NS;
    script.stamp(begin_ns);
    let mut at_ns = Vec::with_capacity(script.len());
    for n in 0..script.len() {
        let due_ns = begin_ns + script.due_ns(n);
        let mut now_ns = realtime_ns();
        while now_ns < due_ns {
            hint::spin_loop();
            now_ns = realtime_ns();
        }
        at_ns.push(now_ns);
        socket.send(script.datagram(n)).map_err(|e| format!("sending to {group}: {e}"))?;
    }
    Ok(Sent { begin_ns, at_ns })
}
