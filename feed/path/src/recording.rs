//! A capture as the load of trials: payloads of any protocol, with a sequence number and the capture's timing.

use std::net::SocketAddrV4;
use std::path::Path;
use std::time::Duration;

use marketdata::capture::{CaptureError, Reader};
use marketdata::sequence_field::SequenceField;

/// UDP payload of an Ethernet frame of 1,500 bytes, the lab's.
const PAYLOAD_BYTES_MAX: usize = 1472;
/// Datagrams of a trial at most.
const DATAGRAMS_MAX: usize = 1 << 20;

/// Error of a capture that cannot be a load.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    #[error(transparent)]
    Capture(#[from] CaptureError),
    #[error(
        "{file} has no UDP datagram with a time; `wirepath feed decode {file}` shows its content"
    )]
    Empty { file: String },
    #[error(
        "datagram {number} of {file} has {payload_bytes} bytes; a frame of the lab holds {PAYLOAD_BYTES_MAX}"
    )]
    Long { file: String, number: u64, payload_bytes: usize },
    #[error(
        "datagram {number} of {file} has no field {field}: it has {payload_bytes} bytes; correct --sequence"
    )]
    Short { file: String, number: u64, field: SequenceField, payload_bytes: usize },
    #[error(
        "datagrams {first} and {number} of {file} both have sequence {sequence} at {field}; correct --sequence, or \
         replay one line of a capture"
    )]
    Twice { file: String, first: u64, number: u64, sequence: u64, field: SequenceField },
}

/// The first datagrams of a capture, to the destination of the very first one.
#[derive(Debug)]
pub(super) struct Recording {
    pub(super) bytes: Vec<u8>,
    pub(super) ends: Vec<usize>,
    /// Nanoseconds from the first datagram; they do not go back.
    pub(super) due_ns: Vec<u64>,
    pub(super) field: SequenceField,
    /// Sequence and index of each datagram, by sequence.
    places: Vec<(u64, u32)>,
    pub(super) payload_bytes_max: usize,
}

impl Recording {
    /// Reads the datagrams of the first `length` of a capture, at most about a million.
    pub(super) fn read(
        path: &Path,
        field: SequenceField,
        length: Duration,
    ) -> Result<Recording, RecordingError> {
        let file = path.display().to_string();
        let mut reader = Reader::open(path)?;
        let mut recording = Recording {
            bytes: Vec::new(),
            ends: Vec::new(),
            due_ns: Vec::new(),
            field,
            places: Vec::new(),
            payload_bytes_max: 0,
        };
        let mut numbers = Vec::new();
        let mut begin: Option<(u64, SocketAddrV4)> = None;
        while recording.ends.len() < DATAGRAMS_MAX {
            let datagram = match reader.next_datagram() {
                Ok(Some(datagram)) => datagram,
                Ok(None) => break,
                // Packets of an unsupported link type in between.
                Err(CaptureError::Link { .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            let (Some(stamp_ns), Some(to)) = (datagram.stamp_ns, datagram.destination) else {
                continue;
            };
            let (begin_ns, destination) = *begin.get_or_insert((stamp_ns, to));
            if to != destination {
                continue;
            }
            let due_ns = stamp_ns.saturating_sub(begin_ns);
            if due_ns >= length.as_nanos() as u64 {
                break;
            }
            recording.add(&file, datagram.number, datagram.payload, due_ns)?;
            numbers.push(datagram.number);
        }
        if recording.ends.is_empty() {
            return Err(RecordingError::Empty { file });
        }
        recording.sort(file, &numbers)?;
        Ok(recording)
    }

    fn add(
        &mut self,
        file: &str,
        number: u64,
        payload: &[u8],
        due_ns: u64,
    ) -> Result<(), RecordingError> {
        let (file, payload_bytes, field) = (file.to_owned(), payload.len(), self.field);
        if payload_bytes > PAYLOAD_BYTES_MAX {
            return Err(RecordingError::Long { file, number, payload_bytes });
        }
        let Some(sequence) = field.read(payload) else {
            return Err(RecordingError::Short { file, number, field, payload_bytes });
        };
        self.places.push((sequence, self.ends.len() as u32));
        self.bytes.extend_from_slice(payload);
        self.ends.push(self.bytes.len());
        self.due_ns.push(due_ns.max(self.due_ns.last().copied().unwrap_or(0)));
        self.payload_bytes_max = self.payload_bytes_max.max(payload_bytes);
        Ok(())
    }

    fn sort(&mut self, file: String, numbers: &[u64]) -> Result<(), RecordingError> {
        self.places.sort_unstable();
        match self.places.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            None => Ok(()),
            Some(pair) => Err(RecordingError::Twice {
                file,
                first: numbers[pair[0].1 as usize],
                number: numbers[pair[1].1 as usize],
                sequence: pair[0].0,
                field: self.field,
            }),
        }
    }

    /// Index of an arrived datagram; `None` if it is not of the recording.
    #[inline]
    pub(super) fn place(&self, payload: &[u8]) -> Option<usize> {
        let sequence = self.field.read(payload)?;
        let at = self.places.binary_search_by_key(&sequence, |(known, _)| *known).ok()?;
        Some(self.places[at].1 as usize)
    }
}

#[cfg(test)]
mod tests {
    use marketdata::capture::{CapturedInterface, LinkType, Writer};

    use super::*;

    /// A capture of payloads with the number at offset 4, 1 ms apart.
    fn capture(name: &str, numbers: &[u32]) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("wirepath-{name}-{}", std::process::id()));
        let file = std::fs::File::create(&path).expect("a file");
        let interface = CapturedInterface { name: "none", link: LinkType::RawIp };
        let mut writer = Writer::new(file, &interface, "test").expect("a capture");
        let [from, line, other] =
            [9, 10_000, 20_000].map(|port| SocketAddrV4::new([239, 1, 1, 1].into(), port));
        for (n, number) in numbers.iter().enumerate() {
            let payload = [&[7; 4][..], &number.to_be_bytes(), b"opaque"].concat();
            let stamp_ns = 1_000_000_000 + n as u64 * 1_000_000;
            writer.datagram(stamp_ns, from, line, &payload).expect("written");
            // The other line is not replayed.
            writer.datagram(stamp_ns, from, other, &payload).expect("written");
        }
        writer.flush().expect("flushed");
        path
    }

    #[test]
    fn datagrams_of_one_line_are_found_by_their_number_and_due_as_captured() {
        let path = capture("recording", &[500, 499, 7, 8]);
        let field = "be32@4".parse().expect("a field");
        let recording = Recording::read(&path, field, Duration::from_millis(3)).expect("readable");
        std::fs::remove_file(&path).expect("removed");
        // The fourth is due after 3 ms.
        assert_eq!(recording.due_ns, [0, 1_000_000, 2_000_000]);
        for (n, payload) in recording.bytes.chunks(14).enumerate() {
            assert_eq!(recording.place(payload), Some(n));
        }
        assert_eq!((recording.place(&[0; 14]), recording.place(&[0; 3])), (None, None));
    }

    #[test]
    fn a_wrong_field_is_named_with_the_datagrams() {
        let path = capture("twice", &[1, 2, 1]);
        let read = |field: &str| {
            let field = field.parse().expect("a field");
            Recording::read(&path, field, Duration::from_secs(1)).expect_err(&field.to_string())
        };
        let why = read("be32@4").to_string();
        assert!(why.contains("datagrams 1 and 5") && why.contains("sequence 1 at be32@4"), "{why}");
        let why = read("be64@8").to_string();
        assert!(why.contains("has no field be64@8"), "{why}");
        std::fs::remove_file(&path).expect("removed");
    }
}
