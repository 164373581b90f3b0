//! Sources of datagrams for a replay.

use std::fs::File;
use std::net::SocketAddrV4;

use super::ReplayError;
use crate::capture::{CaptureError, Reader};
use crate::protocol::{CaptureFlows, Protocol, Recognised};
use crate::synthetic::{MoldSession, SyntheticSession};

/// UDP payload of an Ethernet frame of 1,500 bytes.
const FRAME_PAYLOAD_BYTES: usize = 1472;

/// Source of datagrams.
#[derive(Debug)]
pub enum ReplaySource {
    /// A capture, or a file of telegrams.
    File(Box<Reader<File>>),
    /// A session of the Taiwan exchanges, and the number of telegrams per datagram.
    Twse(Box<SyntheticSession>, usize),
    /// A session of ITCH in MoldUDP64, and the number of messages per datagram.
    Mold(Box<MoldSession>, usize),
}

/// Next datagram of a source, in the buffer.
pub(super) struct Next {
    pub(super) bytes: usize,
    pub(super) stamp_ns: Option<u64>,
    /// `None` if it is of another protocol.
    pub(super) protocol: Option<Protocol>,
    /// Index of its destination in the filter; `None` if all go to all lines.
    from: Option<usize>,
}

impl Next {
    pub(super) fn lines(&self, lines: usize) -> [bool; 2] {
        match self.from {
            None => [true, lines > 1],
            Some(0) => [true, false],
            Some(_) => [false, lines > 1],
        }
    }
}

impl Next {
    fn synthetic(bytes: usize, protocol: Protocol) -> Self {
        Next { bytes, stamp_ns: None, protocol: Some(protocol), from: None }
    }
}

impl ReplaySource {
    pub(super) fn next(
        &mut self,
        buffer: &mut [u8],
        from: &[SocketAddrV4],
        flows: &mut CaptureFlows,
    ) -> Result<Option<Next>, ReplayError> {
        let reader = match self {
            ReplaySource::Twse(session, telegrams) => {
                // Limited to one frame.
                let room = buffer.len().min(FRAME_PAYLOAD_BYTES);
                return Ok(session
                    .datagram(&mut buffer[..room], *telegrams)
                    .map(|written| Next::synthetic(written.bytes, Protocol::Twse)));
            }
            ReplaySource::Mold(session, messages) => {
                let room = buffer.len().min(FRAME_PAYLOAD_BYTES);
                return Ok(session
                    .datagram(&mut buffer[..room], *messages)
                    .map(|written| Next::synthetic(written.bytes, Protocol::Mold)));
            }
            ReplaySource::File(reader) => reader,
        };
        loop {
            let datagram = match reader.next_datagram() {
                Ok(Some(datagram)) => datagram,
                Ok(None) => return Ok(None),
                // Packets of an unsupported link type in between.
                Err(CaptureError::Link { .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            let place = match (from.is_empty(), datagram.destination) {
                (true, _) => None,
                (false, Some(to)) => match from.iter().position(|wanted| *wanted == to) {
                    Some(place) => Some(place),
                    None => continue,
                },
                (false, None) => continue,
            };
            let bytes = datagram.payload.len();
            let Some(into) = buffer.get_mut(..bytes) else { continue };
            into.copy_from_slice(datagram.payload);
            let protocol = match flows.recognise(datagram.destination, datagram.payload) {
                Recognised::As(protocol) => Some(protocol),
                Recognised::Foreign { .. } => None,
            };
            let stamp_ns = datagram.stamp_ns;
            return Ok(Some(Next { bytes, stamp_ns, protocol, from: place }));
        }
    }
}
