//! Sending a datagram on a line, with its faults and its stamp.

use std::io::{Error, ErrorKind};
use std::net::{SocketAddrV4, UdpSocket};

use sys::clock;

use super::destination::is_fatal;
use super::faults::Fate;
use super::ledger::{LineLedger, Number};
use super::stamps::Stamp;
use super::{Replay, ReplayError, ReplaySource};

/// One line.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) name: &'static str,
    pub(super) to: SocketAddrV4,
    pub(super) socket: UdpSocket,
    pub(super) ledger: LineLedger,
    /// A delayed datagram: number, due time, whether it is duplicated.
    pub(super) held: Option<(u64, u64, bool)>,
    pub(super) held_payload: Vec<u8>,
    pub(super) held_messages: Vec<Number>,
}

impl Line {
    pub(super) fn send(&self, payload: &[u8]) -> Result<usize, Error> {
        match self.socket.send(payload) {
            // ICMP error for an earlier datagram (port closed). This one was not sent yet.
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => self.socket.send(payload),
            sent => sent,
        }
    }
}

/// Start time of the run, by both clocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begin {
    pub(super) monotonic_ns: u64,
    pub(super) realtime_ns: u64,
}

/// A datagram to send.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item<'a> {
    pub(super) number: u64,
    pub(super) due_ns: u64,
    pub(super) payload: &'a [u8],
    pub(super) messages: &'a [Number],
}

impl Replay {
    /// Sends the end of the session on all lines, if the protocol has one. It is not a datagram of
    /// the source: no faults are injected and it is not counted.
    pub(super) fn end_session(&mut self, buffer: &mut [u8]) -> Result<(), ReplayError> {
        let ReplaySource::Mold(session, _) = &self.source else { return Ok(()) };
        // The session is ahead by a packet that came after the end of the run.
        let Some(next_sequence) = self.next_sequence else { return Ok(()) };
        let Some(written) = session.end(buffer, next_sequence) else { return Ok(()) };
        for at in 0..self.lines.len() {
            let sent = self.lines[at].send(&buffer[..written.bytes]);
            self.outcome(at, sent)?;
        }
        Ok(())
    }

    /// Sends a datagram on a line according to its fate.
    pub(super) fn place(
        &mut self,
        line: usize,
        fate: Fate,
        item: &Item<'_>,
        begin: Begin,
    ) -> Result<(), ReplayError> {
        if fate.is_dropped {
            let name = self.lines[line].name;
            self.stamp(name, "dropped", item, begin, None);
            return Ok(());
        }
        if fate.is_delayed && self.lines[line].held.is_none() {
            let line = &mut self.lines[line];
            line.ledger.delay();
            line.held = Some((item.number, item.due_ns, fate.is_duplicated));
            line.held_payload.clear();
            line.held_payload.extend_from_slice(item.payload);
            line.held_messages.clear();
            line.held_messages.extend_from_slice(item.messages);
            return Ok(());
        }
        self.send(line, item, "sent", begin)?;
        if fate.is_duplicated {
            self.send(line, item, "copy", begin)?;
        }
        self.flush(line, begin)
    }

    /// Sends the delayed datagram.
    pub(super) fn flush(&mut self, line: usize, begin: Begin) -> Result<(), ReplayError> {
        let Some((number, due_ns, is_duplicated)) = self.lines[line].held.take() else {
            return Ok(());
        };
        let payload = std::mem::take(&mut self.lines[line].held_payload);
        let messages = std::mem::take(&mut self.lines[line].held_messages);
        let item = Item { number, due_ns, payload: &payload, messages: &messages };
        self.send(line, &item, "delayed", begin)?;
        if is_duplicated {
            self.send(line, &item, "copy", begin)?;
        }
        self.lines[line].held_payload = payload;
        self.lines[line].held_messages = messages;
        Ok(())
    }

    fn send(
        &mut self,
        at: usize,
        item: &Item<'_>,
        what: &'static str,
        begin: Begin,
    ) -> Result<(), ReplayError> {
        let line = &mut self.lines[at];
        let now_ns = clock::monotonic_ns() - begin.monotonic_ns;
        let sent = line.send(item.payload);
        match &sent {
            Ok(_) => line.ledger.sent(item.messages, item.payload.len(), what == "copy"),
            Err(_) => line.ledger.unsent(),
        }
        self.outcome(at, sent)?;
        // A delayed datagram has no schedule.
        if self.has_schedule && what == "sent" {
            self.lag.saturating_record(now_ns.saturating_sub(item.due_ns));
        }
        let name = self.lines[at].name;
        self.stamp(name, what, item, begin, Some(now_ns));
        Ok(())
    }

    /// Continues after an error that may not recur, and keeps the first.
    fn outcome(&mut self, at: usize, sent: Result<usize, Error>) -> Result<(), ReplayError> {
        let Err(source) = sent else { return Ok(()) };
        let (to, ifname) = (self.lines[at].to, self.plan.ifname.clone());
        if is_fatal(&source) {
            // The errno for a deleted interface depends on the progress of its deletion.
            if host::net::link(self.plan.ifindex).is_err() {
                return Err(io::IoError::Gone { ifname }.into());
            }
            return Err(ReplayError::Send { to, ifname, source });
        }
        self.failure.get_or_insert_with(|| format!("sending to {to}: {source}"));
        Ok(())
    }

    fn stamp(
        &mut self,
        line: &'static str,
        what: &'static str,
        item: &Item<'_>,
        begin: Begin,
        at_ns: Option<u64>,
    ) {
        if let Some(stamps) = &mut self.stamps {
            let intended = if self.has_schedule { Some(item.due_ns) } else { at_ns };
            let stamp = Stamp {
                datagram: item.number,
                line,
                what,
                intended_ns: begin.realtime_ns + intended.unwrap_or(item.due_ns),
                actual_ns: at_ns.map(|ns| begin.realtime_ns + ns),
                payload_bytes: item.payload.len(),
            };
            stamps.push(stamp, item.messages);
        }
    }
}
