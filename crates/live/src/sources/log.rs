//! Lines that a service adds to a log file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use regex::bytes::Regex;

use super::bins::ValueBins;
use super::metric::Statistic;

/// Longest line, bytes; longer ones are left out.
const LINE_BYTES_MAX: usize = 64 << 10;
const PIECE_BYTES: usize = 256 << 10;
/// Flag of open(2): a named pipe without a writer must not block.
const O_NONBLOCK: i32 = 0o4000;

/// Cumulative numbers of a log at a reading.
#[derive(Debug, Clone)]
pub(super) struct LogReading {
    at: Instant,
    bins: ValueBins,
    /// Bytes were left unread, so that the numbers lag.
    is_behind: bool,
}

impl LogReading {
    pub(super) fn since(&self, earlier: &LogReading, statistic: Statistic) -> Option<f64> {
        if self.is_behind || earlier.is_behind {
            return None;
        }
        match statistic {
            Statistic::Quantile(share) => self.bins.quantile_since(&earlier.bins, share),
            Statistic::Mean | Statistic::Value => self.bins.mean_since(&earlier.bins),
            Statistic::Rate => {
                let window = self.at.checked_duration_since(earlier.at)?.as_secs_f64();
                let count = self.bins.count().saturating_sub(earlier.bins.count());
                (window > 0.0).then(|| count as f64 / window)
            }
        }
    }
}

/// Follows a log from its end on, and from file to file when it is rotated.
#[derive(Debug)]
pub(super) struct LogFollower {
    path: PathBuf,
    regex: Regex,
    file: File,
    offset: u64,
    /// Start of a line whose end is not written yet.
    start: Vec<u8>,
    /// The line is longer than is kept.
    is_too_long: bool,
    bins: ValueBins,
    is_behind: bool,
    /// Lines whose capture is not a number.
    pub(super) unread_count: u64,
}

impl LogFollower {
    /// Errors: it cannot be opened, or is not a regular file.
    pub(super) fn open(path: &Path, regex: &Regex) -> io::Result<LogFollower> {
        let file = open(path)?;
        let offset = file.metadata()?.len();
        Ok(LogFollower {
            path: path.to_owned(),
            regex: regex.clone(),
            file,
            offset,
            start: Vec::new(),
            is_too_long: false,
            bins: ValueBins::new(),
            is_behind: false,
            unread_count: 0,
        })
    }

    /// Takes the lines that were added, for at most `limit`.
    pub(super) fn poll(&mut self, limit: Duration) -> io::Result<()> {
        let deadline = Instant::now() + limit;
        if self.file.metadata()?.len() < self.offset {
            // Copied and cut to nothing, as logrotate's `copytruncate` does.
            self.begin_file();
        }
        self.is_behind = !self.take(deadline)?;
        if self.is_behind {
            return Ok(());
        }
        // Between its renaming and the new file there is none: the old one is followed on.
        let Ok(now) = fs::metadata(&self.path) else { return Ok(()) };
        let own = self.file.metadata()?;
        if (now.dev(), now.ino()) != (own.dev(), own.ino()) {
            let Ok(file) = open(&self.path) else { return Ok(()) };
            // Lines that were added to the old one since.
            self.take(deadline)?;
            self.file = file;
            self.begin_file();
            self.is_behind = !self.take(deadline)?;
        }
        Ok(())
    }

    pub(super) fn reading(&self) -> LogReading {
        LogReading { at: Instant::now(), bins: self.bins.clone(), is_behind: self.is_behind }
    }

    fn begin_file(&mut self) {
        self.offset = 0;
        self.start.clear();
        self.is_too_long = false;
    }

    /// Returns false if the time was over before the end of the file.
    fn take(&mut self, deadline: Instant) -> io::Result<bool> {
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            self.file.seek(SeekFrom::Start(self.offset))?;
            let len = match self.file.read(&mut piece) {
                Ok(0) => return Ok(true),
                Ok(len) => len,
                Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
                Err(why) => return Err(why),
            };
            self.offset += len as u64;
            self.take_piece(&piece[..len]);
            if Instant::now() > deadline {
                return Ok(false);
            }
        }
    }

    fn take_piece(&mut self, piece: &[u8]) {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            if !self.is_too_long {
                self.start.extend_from_slice(part);
            }
            if self.start.len() > LINE_BYTES_MAX {
                self.is_too_long = true;
                self.start.clear();
            }
            if part.ends_with(b"\n") {
                if !self.is_too_long {
                    let line = std::mem::take(&mut self.start);
                    self.take_line(&line);
                }
                self.start.clear();
                self.is_too_long = false;
            }
        }
    }

    fn take_line(&mut self, line: &[u8]) {
        let Some(found) = self.regex.captures(line.trim_ascii_end()) else { return };
        let number = found.get(1).and_then(|group| std::str::from_utf8(group.as_bytes()).ok());
        match number.and_then(|text| text.parse::<f64>().ok()) {
            Some(value) if value.is_finite() && value >= 0.0 => self.bins.add(value),
            _ => self.unread_count += 1,
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const POLL_LIMIT: Duration = Duration::from_secs(60);

    fn log() -> (tempfile::TempDir, PathBuf, LogFollower) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("service.log");
        fs::write(&path, "took 999 ms\n").unwrap();
        let follower =
            LogFollower::open(&path, &Regex::new("took ([0-9.]+|-) ms").unwrap()).unwrap();
        (folder, path, follower)
    }

    fn append(path: &Path, text: &str) {
        OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
    }

    #[test]
    fn lines_are_taken_once_and_whole_through_a_rotation() {
        let (_folder, path, mut log) = log();
        let before = log.reading();
        append(&path, "took 1 ms\nother\ntook 2 ms\nto");
        log.poll(POLL_LIMIT).unwrap();
        assert_eq!(log.bins.count(), 2, "those before it was opened do not count");
        append(&path, "ok 3 ms\ntook - ms\n");
        fs::rename(&path, path.with_extension("1")).unwrap();
        log.poll(POLL_LIMIT).unwrap();
        append(&path.with_extension("1"), "took 4 ms\n");
        append(&path, "took 5 ms\n");
        log.poll(POLL_LIMIT).unwrap();
        assert_eq!((log.bins.sum, log.bins.count(), log.unread_count), (15.0, 5, 1));
        // As logrotate's copytruncate.
        fs::write(&path, "").unwrap();
        log.poll(POLL_LIMIT).unwrap();
        append(&path, "took 7 ms\n");
        log.poll(POLL_LIMIT).unwrap();
        let mean = log.reading().since(&before, Statistic::Mean);
        assert_eq!((log.bins.sum, mean), (22.0, Some(22.0 / 6.0)));
    }

    #[test]
    fn an_endless_line_is_left_out_in_bounded_memory() {
        let (_folder, path, mut log) = log();
        append(&path, &format!("took 8 ms{}", "x".repeat(3 << 20)));
        log.poll(POLL_LIMIT).unwrap();
        assert!(log.start.capacity() <= LINE_BYTES_MAX + PIECE_BYTES, "{}", log.start.capacity());
        append(&path, "\ntook 9 ms\n");
        log.poll(POLL_LIMIT).unwrap();
        assert_eq!(log.bins.sum, 9.0);
    }

    #[test]
    fn a_log_that_is_not_read_to_its_end_has_no_figure() {
        let (_folder, path, mut log) = log();
        let before = log.reading();
        append(&path, &"took 8 ms\n".repeat(PIECE_BYTES / 5));
        log.poll(Duration::ZERO).unwrap();
        assert_eq!(log.reading().since(&before, Statistic::Mean), None);
        log.poll(POLL_LIMIT).unwrap();
        assert!(
            log.reading()
                .since(&before, Statistic::Quantile(0.5))
                .is_some_and(|p50| (7.8..8.2).contains(&p50))
        );
    }

    #[test]
    fn what_is_not_a_file_is_refused() {
        let regex = Regex::new("(a)").unwrap();
        assert!(LogFollower::open("/dev/null".as_ref(), &regex).is_err());
        assert!(LogFollower::open("/no/such.log".as_ref(), &regex).is_err());
    }
}
