//! Retransmission requests for messages that no line carried.

use std::net::{SocketAddr, UdpSocket};

use sys::clock;

use super::core::Core;
use super::error::ListenError;
use crate::recovery::{self, Action, Recovery};

/// Replies received per call.
const ANSWERS: usize = 64;

/// Retransmission of the current session, with the counts of earlier ones.
#[derive(Debug)]
pub(super) struct Retransmit {
    pub(super) socket: UdpSocket,
    present: Option<(market::mold::MoldSession, Recovery)>,
    before: recovery::Counts,
    buffer: Vec<u8>,
    refusals: u64,
    /// One past the last abandoned message, which is not requested again.
    given_up_to: u64,
}

/// A socket that talks to `server` alone and never blocks.
fn connected(server: SocketAddr) -> std::io::Result<UdpSocket> {
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(server)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

impl Retransmit {
    pub(super) fn open(server: SocketAddr) -> Result<Self, ListenError> {
        let socket = connected(server).map_err(|source| ListenError::Recover { server, source })?;
        let (present, before) = (None, recovery::Counts::default());
        Ok(Retransmit {
            socket,
            present,
            before,
            buffer: vec![0; 65_536],
            refusals: 0,
            given_up_to: 0,
        })
    }

    /// Receives replies; returns their number.
    pub(super) fn take(&mut self, core: &mut Core) -> usize {
        let mut taken = 0;
        while taken < ANSWERS {
            match self.socket.recv(&mut self.buffer) {
                Ok(len) => {
                    taken += 1;
                    let header = core.answer(&self.buffer[..len]);
                    if let (Some(header), Some((_, recovery))) = (header, &mut self.present) {
                        recovery.reply(&header, clock::monotonic_ns());
                    }
                }
                Err(e) if e.kind() == std::io::ErrorKind::ConnectionRefused => {
                    self.refusals += 1;
                    if self.refusals == 1 {
                        let note = "the recovery server refuses connections (port closed): \
                                    missing messages cannot be recovered";
                        core.interval.notes.push(note.into());
                    }
                }
                Err(_) => break,
            }
        }
        taken
    }

    /// Updates the missing messages and sends due requests.
    pub(super) fn step(&mut self, core: &mut Core, now_ns: u64) {
        let Some(latest) = core.recovering_session() else { return };
        let session = latest.session;
        if self.present.as_ref().is_none_or(|(present, _)| *present != session) {
            let next = (session, Recovery::new(session, recovery::RecoveryLimits::default()));
            if let Some((_, old)) = self.present.replace(next) {
                self.before += *old.counts();
            }
            self.given_up_to = 0;
        }
        let Some((_, recovery)) = &mut self.present else { return };
        let (domain, next_sequence) = (latest.domain, latest.next_sequence);
        for sequence in core.brought.drain(..) {
            recovery.received(sequence);
        }
        if core.arbiter.held() > 0 {
            core.arbiter.open_gaps(|gap| {
                if gap.domain == domain {
                    recovery.gap(gap.first, gap.count, now_ns);
                }
            });
        } else if core.arbiter.books().next().is_some() {
            // Nothing is held, but a heartbeat announced further messages.
            let book = core.arbiter.books().find(|book| book.domain == domain);
            if let Some(highest) = book.and_then(|book| book.highest) {
                let first = self.given_up_to.max(highest + 1);
                let behind = next_sequence.saturating_sub(first);
                if behind > 0 {
                    recovery.gap(first, behind, now_ns);
                }
            }
        }
        while let Some(action) = recovery.poll(now_ns) {
            match action {
                // A full buffer or an unreachable server is handled by retries.
                Action::Request(request) => drop(self.socket.send(&request.to_bytes())),
                Action::GaveUp { first, count } => {
                    self.given_up_to = self.given_up_to.max(first + count);
                }
            }
        }
    }

    pub(super) fn due_ns(&self, now_ns: u64) -> Option<u64> {
        self.present.as_ref().and_then(|(_, recovery)| recovery.due_ns(now_ns))
    }

    pub(super) fn counts(&self) -> recovery::Counts {
        let mut counts = self.before;
        if let Some((_, recovery)) = &self.present {
            counts += *recovery.counts();
        }
        counts
    }
}
