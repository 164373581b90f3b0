//! Requests for the firmware's counters and trace, over either wire.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};

use telemetry::dump::{Answer, DumpKind, PORT, Request};
use telemetry::{Entry, Snapshot};

use super::endpoint::{ANSWER_TIMEOUT, FRAME_BYTES_MAX};
use super::error::GuestError;

/// A transport of requests and answers.
pub(super) trait DumpTransport {
    fn request(&mut self, request: &[u8]) -> Result<(), GuestError>;

    /// Receives the next datagram from the answering port. Returns false on timeout.
    fn answer(&mut self, into: &mut Vec<u8>) -> Result<bool, GuestError>;
}

pub(super) fn counters(wire: &mut impl DumpTransport, token: u16) -> Result<Snapshot, GuestError> {
    ask(wire, counters_request(token), |answer| answer.counters())
}

pub(super) fn counters_request(token: u16) -> Request {
    Request { kind: DumpKind::Counters, token }
}

/// Counters in a datagram from the answering port; `None` if it answers another request.
pub(super) fn counters_in(datagram: &[u8], token: u16) -> Result<Option<Snapshot>, GuestError> {
    let answer = Answer::parse(datagram)?;
    Ok(answer.counters().filter(|_| answer.request == counters_request(token)))
}

/// Reads the trace ring, oldest entry first.
pub(super) fn trace(wire: &mut impl DumpTransport, token: u16) -> Result<Vec<Entry>, GuestError> {
    let (mut entries, mut seen) = (Vec::new(), 0);
    ask(wire, Request { kind: DumpKind::Trace, token }, |answer| {
        entries.extend(answer.entries());
        seen += 1;
        (seen == answer.parts).then_some(())
    })?;
    Ok(entries)
}

fn ask<T>(
    wire: &mut impl DumpTransport,
    request: Request,
    mut take: impl FnMut(&Answer<'_>) -> Option<T>,
) -> Result<T, GuestError> {
    wire.request(&request.bytes())?;
    let mut datagram = Vec::with_capacity(FRAME_BYTES_MAX);
    while wire.answer(&mut datagram)? {
        let answer = Answer::parse(&datagram)?;
        if answer.request == request
            && let Some(taken) = take(&answer)
        {
            return Ok(taken);
        }
    }
    Err(GuestError::Silent { what: format!("{request:?}") })
}

/// A UDP socket, for a guest behind a TAP interface.
pub(super) struct UdpTransport(UdpSocket);

impl UdpTransport {
    /// Opens a socket in the calling thread's network namespace.
    pub(super) fn connect(guest_ip: Ipv4Addr) -> Result<UdpTransport, GuestError> {
        let opened = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| {
            socket.connect((guest_ip, PORT))?;
            socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
            Ok(socket)
        });
        opened.map(UdpTransport).map_err(GuestError::io("opening a socket to the guest"))
    }
}

impl DumpTransport for UdpTransport {
    fn request(&mut self, request: &[u8]) -> Result<(), GuestError> {
        self.0.send(request).map_err(GuestError::io("sending a request to the guest"))?;
        Ok(())
    }

    fn answer(&mut self, into: &mut Vec<u8>) -> Result<bool, GuestError> {
        into.resize(FRAME_BYTES_MAX, 0);
        loop {
            match self.0.recv(into) {
                Ok(len) => {
                    into.truncate(len);
                    return Ok(true);
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => return Ok(false),
                    // SIGSTOP and SIGCONT interrupt a receive with a time limit.
                    ErrorKind::Interrupted => {}
                    _ => return Err(GuestError::io("receiving the guest's answer")(error)),
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns prepared answers.
    struct Canned(Vec<Vec<u8>>);

    impl DumpTransport for Canned {
        fn request(&mut self, _: &[u8]) -> Result<(), GuestError> {
            Ok(())
        }

        fn answer(&mut self, into: &mut Vec<u8>) -> Result<bool, GuestError> {
            if self.0.is_empty() {
                return Ok(false);
            }
            *into = self.0.remove(0);
            Ok(true)
        }
    }

    fn parts(token: u16, entries: u32) -> Vec<Vec<u8>> {
        let all = (0..entries).map(|detail| Entry { time_ns: 1, event: 1, detail });
        let parts = Request::trace_parts(entries as usize);
        let mut all = all.into_iter();
        let datagrams = (0..parts).map(|part| {
            let mut bytes = vec![0; FRAME_BYTES_MAX];
            let len = telemetry::dump::write_trace(&mut bytes, token, part, parts, all.by_ref());
            bytes.truncate(len.unwrap());
            bytes
        });
        datagrams.collect()
    }

    #[test]
    fn parts_are_joined_and_answers_to_other_requests_skipped() {
        let mut answers = parts(7, 3);
        answers.extend(parts(8, 150));
        let entries = trace(&mut Canned(answers), 8).unwrap();
        assert_eq!(entries.len(), 150);
        assert!(entries.iter().zip(0..).all(|(entry, detail)| entry.detail == detail));
    }

    #[test]
    fn missing_part_and_malformed_answer_are_errors() {
        let mut answers = parts(8, 150);
        answers.pop();
        let error = trace(&mut Canned(answers), 8).unwrap_err();
        assert!(matches!(error, GuestError::Silent { .. }), "{error}");
        let error = counters(&mut Canned(vec![b"WPGX....".to_vec()]), 1).unwrap_err();
        assert!(matches!(error, GuestError::Dump(_)), "{error}");
    }
}
