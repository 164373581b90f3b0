//! Starts under traffic: frames arrive from the moment the card exists, and every start must answer.

use std::time::Duration;

use super::echo::{Echo, EchoKind};
use super::error::GuestError;
use super::link::{ANSWER_TIMEOUT, Endpoint, FRAME_BYTES_MAX, GUEST_IP, GuestLink};
use super::qemu::{Boot, GuestMachine};

/// Interval of the requests.
const REQUEST_INTERVAL: Duration = Duration::from_millis(2);

/// A guest that has answered its first echo.
pub struct StartedGuest {
    pub machine: GuestMachine,
    pub link: GuestLink,
    pub peer: Endpoint,
    /// Time from exec of QEMU to the answer.
    pub first_answer_after: Duration,
}

/// Boots a guest while requests arrive: for its address until it is known, then for an echo.
///
/// Errors: no answer within the time limit of a boot.
pub fn boot(boot: &Boot, payload_bytes: usize) -> Result<StartedGuest, GuestError> {
    let (mut machine, link, begun) = GuestMachine::start_on_sockets(boot)?;
    // QEMU binds the card's socket before it starts the guest.
    while link.connect().is_err() {
        machine.check(boot, begun)?;
        std::thread::sleep(Duration::from_millis(1));
    }
    link.set_receive_timeout(REQUEST_INTERVAL)?;
    let mut frame = [0; FRAME_BYTES_MAX];
    let peer = loop {
        link.request(GUEST_IP)?;
        if let Some(len) = link.receive(&mut frame)?
            && let Some(peer) = GuestLink::resolved(&frame[..len], GUEST_IP)?
        {
            break peer;
        }
        machine.check(boot, begun)?;
    };
    let echo = Echo::new(EchoKind::Icmp, peer, payload_bytes)?;
    link.send(echo.frame())?;
    loop {
        match link.receive(&mut frame)? {
            Some(len) if echo.is_answered_by(&frame[..len], 0) => break,
            // An answer to an earlier request.
            Some(_) => {}
            None => link.send(echo.frame())?,
        }
        machine.check(boot, begun)?;
    }
    let first_answer_after = begun.elapsed();
    link.set_receive_timeout(ANSWER_TIMEOUT)?;
    Ok(StartedGuest { machine, link, peer, first_answer_after })
}
