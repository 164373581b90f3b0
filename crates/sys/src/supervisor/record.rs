//! Messages between a supervisor and the process that started it.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use super::Reaped;

/// Bytes of a message: small enough for one write to be whole.
const LEN_BYTES: usize = WORDS * 8;
const WORDS: usize = 8;

/// Command to a supervisor: answer with [`Record::Usage`].
pub(super) const SEND_USAGE: u8 = b'u';
pub(super) const KILL_ALL: u8 = b'k';

/// Message of a supervisor. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Record {
    Started {
        pid: u32,
        at_ns: u64,
    },
    /// The program was not executed; position of the step in [`STEPS`](super::STEPS).
    Failed {
        step: u64,
        errno: i32,
    },
    /// The program itself has ended; descendants may be left.
    Ended {
        status: i32,
        at_ns: u64,
    },
    /// No descendant is left.
    Empty {
        at_ns: u64,
        reaped: Reaped,
    },
    Usage {
        reaped: Reaped,
    },
}

impl Record {
    /// Does not allocate, so that it may run in a forked process.
    pub(super) fn send(&self, mut to: &UnixStream) -> io::Result<()> {
        let words = match *self {
            Record::Started { pid, at_ns } => [1, u64::from(pid), at_ns, 0, 0, 0, 0, 0],
            Record::Failed { step, errno } => [2, step, errno as u64, 0, 0, 0, 0, 0],
            Record::Ended { status, at_ns } => [3, status as u64, at_ns, 0, 0, 0, 0, 0],
            Record::Empty { at_ns, reaped } => words(4, at_ns, &reaped),
            Record::Usage { reaped } => words(5, 0, &reaped),
        };
        let mut bytes = [0; LEN_BYTES];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        to.write_all(&bytes)
    }

    /// Errors: `UnexpectedEof` if the supervisor has ended; `InvalidData` for an unknown message.
    pub(super) fn receive(mut from: &UnixStream) -> io::Result<Self> {
        let mut bytes = [0; LEN_BYTES];
        from.read_exact(&mut bytes)?;
        let mut words = [0; WORDS];
        for (word, from) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_ne_bytes(from.try_into().unwrap_or_default());
        }
        let [kind, first, at_ns, ..] = words;
        let reaped = Reaped {
            user_ns: words[2],
            system_ns: words[3],
            context_switch_count: words[4],
            resident_bytes_max: words[5],
            process_count: words[6],
            last_status: words[7] as i32,
        };
        match kind {
            1 => Ok(Record::Started { pid: first as u32, at_ns }),
            2 => Ok(Record::Failed { step: first, errno: at_ns as i32 }),
            3 => Ok(Record::Ended { status: first as i32, at_ns }),
            4 => Ok(Record::Empty { at_ns: first, reaped }),
            5 => Ok(Record::Usage { reaped }),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

fn words(kind: u64, at_ns: u64, reaped: &Reaped) -> [u64; WORDS] {
    let Reaped {
        user_ns,
        system_ns,
        context_switch_count,
        resident_bytes_max,
        process_count,
        last_status,
    } = *reaped;
    [
        kind,
        at_ns,
        user_ns,
        system_ns,
        context_switch_count,
        resident_bytes_max,
        process_count,
        last_status as u64,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_as_sent() {
        let (one, other) = UnixStream::pair().unwrap();
        let reaped = Reaped {
            user_ns: 1,
            system_ns: 2,
            context_switch_count: 3,
            resident_bytes_max: 4,
            process_count: 5,
            last_status: -6,
        };
        let records = [
            Record::Started { pid: 7, at_ns: u64::MAX },
            Record::Failed { step: 3, errno: libc::ENOENT },
            Record::Ended { status: -1, at_ns: 9 },
            Record::Empty { at_ns: 8, reaped },
            Record::Usage { reaped },
        ];
        for record in records {
            record.send(&one).unwrap();
            assert_eq!(Record::receive(&other).unwrap(), record);
        }
        (&one).write_all(&[0; LEN_BYTES]).unwrap();
        assert_eq!(Record::receive(&other).unwrap_err().kind(), io::ErrorKind::InvalidData);
        drop(one);
        assert_eq!(Record::receive(&other).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
