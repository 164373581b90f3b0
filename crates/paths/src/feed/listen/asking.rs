//! Asking a server for what no line brought.

use std::net::{SocketAddr, UdpSocket};

use io::clock;

use super::core::Core;
use super::error::ListenError;
use crate::feed::recovery::{self, Action, Recovery};

/// Answers taken at once.
const ANSWERS: usize = 64;

/// Requests for what is missing of the present session, and those of sessions before.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) socket: UdpSocket,
    present: Option<(wire::mold::Session, Recovery)>,
    before: recovery::Counts,
    buffer: Vec<u8>,
    refusals: u64,
    /// One past the last message that was given up: not asked for again.
    given_up_to: u64,
}

impl Asking {
    pub(super) fn open(server: SocketAddr) -> Result<Self, ListenError> {
        let any: SocketAddr = match server {
            SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
            SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
        };
        let open = || {
            let socket = UdpSocket::bind(any)?;
            socket.connect(server)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let socket = open().map_err(|source| ListenError::Recover { server, source })?;
        let (present, before) = (None, recovery::Counts::default());
        Ok(Asking { socket, present, before, buffer: vec![0; 65_536], refusals: 0, given_up_to: 0 })
    }

    /// Takes answers; how many.
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
                        let note = "the recovery server refuses (no such port there): nothing \
                                    that is missing comes back";
                        core.interval.notes.push(note.into());
                    }
                }
                Err(_) => break,
            }
        }
        taken
    }

    /// Notes what is missing and what came, and asks for what is due.
    pub(super) fn step(&mut self, core: &mut Core, now_ns: u64) {
        let Some(latest) = core.sessions.last() else { return };
        let session = latest.session;
        if self.present.as_ref().is_none_or(|(present, _)| *present != session) {
            let next = (session, Recovery::new(session, recovery::Limits::default()));
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
            // Nothing follows, but a heartbeat told that there is more.
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
                // A full buffer or a dead server is what retries are for.
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
