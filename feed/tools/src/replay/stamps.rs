//! Intended and actual send times as CSV, written on a separate thread.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use host::output_file::create_growing;

use super::ledger::Number;
use crate::arbiter::SequenceDomain;
use crate::messages::domain_name;

/// Records per chunk.
const CHUNK_RECORDS: usize = 4096;
/// Chunks queued for the disk.
const CHUNKS: usize = 64;

/// One datagram on one line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stamp {
    pub(super) datagram: u64,
    pub(super) line: &'static str,
    /// `sent`, `copy`, `delayed`, `dropped`.
    pub(super) what: &'static str,
    pub(super) intended_ns: u64,
    /// `None` if not sent.
    pub(super) actual_ns: Option<u64>,
    pub(super) payload_bytes: usize,
}

#[derive(Debug, Default)]
struct Chunk {
    /// Stamps with their slices of `ranges`.
    records: Vec<(Stamp, usize, usize)>,
    /// Domain, first and last sequence, messages.
    ranges: Vec<(SequenceDomain, u64, u64, u64)>,
}

/// Writes stamps; the file is complete after [`StampWriter::finish`].
#[derive(Debug)]
pub(super) struct StampWriter {
    chunk: Chunk,
    sender: SyncSender<Chunk>,
    thread: JoinHandle<io::Result<()>>,
}

impl StampWriter {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let file = BufWriter::with_capacity(1 << 20, create_growing(path, true)?);
        let (sender, receiver) = sync_channel(CHUNKS);
        let thread = std::thread::Builder::new()
            .name("stamps".into())
            .spawn(move || write_all(file, &receiver))?;
        Ok(StampWriter { chunk: Chunk::default(), sender, thread })
    }

    pub(super) fn push(&mut self, stamp: Stamp, messages: &[Number]) {
        let from = self.chunk.ranges.len();
        for (domain, sequence) in messages {
            let known = self.chunk.ranges[from..].iter_mut().find(|(known, ..)| known == domain);
            match known {
                Some((_, first, last, count)) => {
                    (*first, *last) = ((*first).min(*sequence), (*last).max(*sequence));
                    *count += 1;
                }
                None => self.chunk.ranges.push((*domain, *sequence, *sequence, 1)),
            }
        }
        self.chunk.records.push((stamp, from, self.chunk.ranges.len()));
        if self.chunk.records.len() == CHUNK_RECORDS {
            // A writer's failure is returned by `finish`.
            let _ = self.sender.send(std::mem::take(&mut self.chunk));
        }
    }

    pub(super) fn finish(self) -> io::Result<()> {
        let StampWriter { chunk, sender, thread } = self;
        let _ = sender.send(chunk);
        drop(sender);
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the writing thread panicked")))
    }
}

fn write_all(mut file: impl Write, chunks: &Receiver<Chunk>) -> io::Result<()> {
    writeln!(file, "datagram,line,what,intended_ns,actual_ns,payload_bytes,messages,sequences")?;
    for chunk in chunks {
        for (stamp, from, to) in &chunk.records {
            let ranges = &chunk.ranges[*from..*to];
            let messages: u64 = ranges.iter().map(|(.., count)| count).sum();
            let actual = stamp.actual_ns.map(|ns| ns.to_string()).unwrap_or_default();
            write!(
                file,
                "{},{},{},{},{actual},{},{messages},",
                stamp.datagram, stamp.line, stamp.what, stamp.intended_ns, stamp.payload_bytes,
            )?;
            for (n, (domain, first, last, _)) in ranges.iter().enumerate() {
                let space = if n == 0 { "" } else { "; " };
                write!(file, "{space}{}: {first}-{last}", domain_name(*domain))?;
            }
            writeln!(file)?;
        }
    }
    file.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_names_times_and_sequences() {
        let (sender, receiver) = sync_channel(1);
        let stamp = Stamp {
            datagram: 7,
            line: "A",
            what: "sent",
            intended_ns: 100,
            actual_ns: Some(150),
            payload_bytes: 99,
        };
        let ranges =
            vec![(SequenceDomain::twse(1, 6), 5, 6, 2), (SequenceDomain::twse(2, 17), 9, 9, 1)];
        let dropped = Stamp { what: "dropped", actual_ns: None, ..stamp };
        let records = vec![(stamp, 0, 2), (dropped, 2, 2)];
        sender.send(Chunk { records, ranges }).expect("there is room");
        drop(sender);
        let mut out = Vec::new();
        write_all(&mut out, &receiver).expect("memory");
        let text = String::from_utf8(out).expect("text");
        let rows: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(
            rows,
            ["7,A,sent,100,150,99,3,TWSE 06: 5-6; TPEx 17: 9-9", "7,A,dropped,100,,99,0,"]
        );
    }
}
