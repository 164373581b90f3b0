//! The log's file: the part that a trial wrote.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::book::Book;
use super::reader::LogReader;
use crate::error::OutsideError;

/// Begin of the file, which says what devices there are.
const BEGIN_BYTES: u64 = 1 << 20;
/// Part of a trial that is read: ten million events.
const TRIAL_BYTES_MAX: u64 = 1 << 30;
const PIECE_BYTES: usize = 256 << 10;

/// A log of which the part from now on is wanted.
#[derive(Debug)]
pub(crate) struct TraceLog {
    path: PathBuf,
    file: File,
    from: u64,
}

impl TraceLog {
    pub(crate) fn open(path: &Path) -> Result<TraceLog, OutsideError> {
        // To free the space of what was read, too.
        let file = File::options().read(true).write(true).open(path).map_err(log_error(path))?;
        let from = file.metadata().map_err(log_error(path))?.len();
        Ok(TraceLog { path: path.to_owned(), file, from })
    }

    /// Reads what QEMU wrote since, and frees its space. Returns the events, and the bytes above the limit, which were
    /// not read.
    pub(crate) fn read(mut self) -> Result<(Book, u64), OutsideError> {
        let read = self.read_parts();
        read.map_err(log_error(&self.path))
    }

    fn read_parts(&mut self) -> io::Result<(Book, u64)> {
        let to = self.file.metadata()?.len();
        let mut reader = LogReader::default();
        self.read_part(&mut reader, 0, self.from.min(BEGIN_BYTES))?;
        // The last line may lack its end.
        reader.push(b"\n");
        reader.book.begin();
        let read_to = to.min(self.from.saturating_add(TRIAL_BYTES_MAX));
        self.read_part(&mut reader, self.from, read_to)?;
        // Only where a file system can. QEMU writes on where it was.
        let _ = sys::sparse::free(&self.file, self.from.max(BEGIN_BYTES), to);
        Ok((reader.book, to - read_to))
    }

    fn read_part(&mut self, reader: &mut LogReader, from: u64, to: u64) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(from))?;
        let mut piece = vec![0; PIECE_BYTES];
        let mut left = to.saturating_sub(from);
        while left > 0 {
            let len = left.min(PIECE_BYTES as u64) as usize;
            let read = match self.file.read(&mut piece[..len]) {
                // It was made shorter.
                Ok(0) => break,
                Ok(read) => read,
                Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
                Err(why) => return Err(why),
            };
            reader.push(&piece[..read]);
            left -= read as u64;
        }
        Ok(())
    }
}

fn log_error(path: &Path) -> impl FnOnce(io::Error) -> OutsideError {
    move |source| OutsideError::Log { path: path.to_owned(), source }
}
