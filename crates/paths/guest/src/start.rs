//! Starts under traffic: frames arrive from the moment the card exists, and every start must answer.

use std::time::Duration;

use super::echo::{Echo, Kind};
use super::error::GuestError;
use super::link::{ANSWER_MAX, Endpoint, FRAME_BYTES_MAX, GUEST_IP, Link};
use super::qemu::{Boot, Machine};

/// Interval of the requests.
const INTERVAL: Duration = Duration::from_millis(2);

/// A guest that has answered its first echo.
pub struct Started {
    pub machine: Machine,
    pub link: Link,
    pub peer: Endpoint,
    /// Time from exec of QEMU to the answer.
    pub first_answer_after: Duration,
}

/// Boots a guest while requests arrive: for its address until it is known, then for an echo.
///
/// Errors: no answer within the time limit of a boot.
pub fn boot(boot: &Boot, payload_bytes: usize) -> Result<Started, GuestError> {
    let (mut machine, link, begun) = Machine::start_on_sockets(boot)?;
    let is_over = |machine: &mut Machine| machine.check(boot, begun);
    // QEMU binds the card's socket before it starts the guest.
    while link.connect().is_err() {
        is_over(&mut machine)?;
        std::thread::sleep(Duration::from_millis(1));
    }
    link.set_receive_timeout(INTERVAL)?;
    let mut frame = [0; FRAME_BYTES_MAX];
    let peer = loop {
        link.request(GUEST_IP)?;
        if let Some(len) = link.receive(&mut frame)?
            && let Some(peer) = Link::resolved(&frame[..len], GUEST_IP)?
        {
            break peer;
        }
        is_over(&mut machine)?;
    };
    let echo = Echo::new(Kind::Icmp, peer, payload_bytes)?;
    link.send(echo.frame())?;
    loop {
        match link.receive(&mut frame)? {
            Some(len) if echo.is_answered_by(&frame[..len], 0) => break,
            // An answer to an earlier request.
            Some(_) => {}
            None => link.send(echo.frame())?,
        }
        is_over(&mut machine)?;
    }
    let first_answer_after = begun.elapsed();
    link.set_receive_timeout(ANSWER_MAX)?;
    Ok(Started { machine, link, peer, first_answer_after })
}
