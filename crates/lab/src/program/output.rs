//! Output of a program: its first and last part, whatever its length.

use std::collections::VecDeque;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use regex::bytes::Regex;

/// Bytes kept from the start of a stream, and as many from its end.
const PART_BYTES_MAX: usize = 4 << 20;
/// Longest line that is compared with a regular expression; a longer one is compared in pieces.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Bytes of the last lines in an error.
const LAST_LINES_BYTES_MAX: usize = 2 << 10;
const LAST_LINES_MAX: usize = 10;

/// Output of an ended program. Longer output than 8 MiB lacks its middle.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    bytes: Vec<u8>,
    dropped_bytes: u64,
}

impl Output {
    /// First and last part, with a line break between them if the middle was dropped.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn dropped_bytes(&self) -> u64 {
        self.dropped_bytes
    }

    /// Last lines as text, in which bytes that are no UTF-8 are replaced.
    pub fn last_lines(&self) -> String {
        last_lines(&self.bytes)
    }
}

/// Last lines of output and standard error, each with its name.
pub(super) fn last_lines_of_both(stdout: &str, stderr: &str) -> String {
    match (stdout.trim(), stderr.trim()) {
        ("", "") => "it printed nothing".into(),
        ("", stderr) => format!("last lines of its standard error:\n{stderr}"),
        (stdout, "") => format!("last lines of its output:\n{stdout}"),
        (stdout, stderr) => {
            format!("last lines of its output:\n{stdout}\nand of its standard error:\n{stderr}")
        }
    }
}

fn last_lines(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(LAST_LINES_BYTES_MAX)..]);
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES_MAX)..].join("\n")
}

/// Reads a stream on a thread of its own until it ends or this is dropped.
#[derive(Debug)]
pub(super) struct Capture {
    shared: Arc<Shared>,
    /// Its end ends the thread.
    _stop: PipeWriter,
}

#[derive(Debug, Default)]
struct Shared {
    kept: Mutex<Kept>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Kept {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    dropped_bytes: u64,
    has_ended: bool,
    watch: Option<Watch>,
}

#[derive(Debug)]
struct Watch {
    line: Regex,
    /// Line that has not ended.
    unfinished: Vec<u8>,
    is_found: bool,
}

impl Watch {
    fn read(&mut self, mut bytes: &[u8]) {
        while !self.is_found && !bytes.is_empty() {
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let (piece, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
            self.unfinished.extend_from_slice(piece);
            let line = self.unfinished.trim_ascii_end();
            // A prompt has no line break, so an unfinished line counts too.
            self.is_found = self.line.is_match(line);
            if end.is_some() || self.unfinished.len() > LINE_BYTES_MAX {
                self.unfinished.clear();
            }
            bytes = rest;
        }
    }
}

impl Kept {
    fn add(&mut self, bytes: &[u8]) {
        if let Some(watch) = &mut self.watch {
            watch.read(bytes);
        }
        let (first, rest) = bytes.split_at(bytes.len().min(PART_BYTES_MAX - self.head.len()));
        self.head.extend_from_slice(first);
        self.tail.extend(rest);
        let excess = self.tail.len().saturating_sub(PART_BYTES_MAX);
        self.tail.drain(..excess);
        self.dropped_bytes += excess as u64;
    }
}

impl Kept {
    fn len_bytes(&self) -> u64 {
        (self.head.len() + self.tail.len()) as u64 + self.dropped_bytes
    }

    fn since(&self, mark_bytes: u64) -> Output {
        let new =
            usize::try_from(self.len_bytes().saturating_sub(mark_bytes)).unwrap_or(usize::MAX);
        let of_tail = new.min(self.tail.len());
        let dropped =
            (new - of_tail).min(usize::try_from(self.dropped_bytes).unwrap_or(usize::MAX));
        let of_head = (new - of_tail - dropped).min(self.head.len());
        let mut bytes = self.head[self.head.len() - of_head..].to_vec();
        if dropped > 0 {
            bytes.push(b'\n');
        }
        bytes.extend(self.tail.range(self.tail.len() - of_tail..));
        Output { bytes, dropped_bytes: dropped as u64 }
    }
}

impl Capture {
    pub(super) fn start(mut stream: PipeReader) -> io::Result<Self> {
        let (stopped, stop) = io::pipe()?;
        let shared = Arc::<Shared>::default();
        let (theirs, mut buffer) = (Arc::clone(&shared), vec![0; 64 << 10]);
        sys::thread::start_free("child output", move || {
            loop {
                match sys::poll::readable_set(&[stream.as_fd(), stopped.as_fd()], TEST_TIMEOUT) {
                    Ok(0) => continue,
                    Ok(ready) if ready & 2 == 0 => {}
                    _ => break,
                }
                match stream.read(&mut buffer) {
                    Ok(len @ 1..) => theirs.lock().add(&buffer[..len]),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Ok(0) | Err(_) => break,
                }
            }
            theirs.lock().has_ended = true;
            theirs.ended.notify_all();
        })
        .map_err(io::Error::other)?;
        Ok(Capture { shared, _stop: stop })
    }

    /// Looks for a line, in the kept output and from now on.
    pub(super) fn watch(&self, line: &Regex) {
        let mut kept = self.shared.lock();
        let mut watch = Watch { line: line.clone(), unfinished: Vec::new(), is_found: false };
        watch.read(&kept.head);
        let (one, other) = kept.tail.as_slices();
        watch.read(one);
        watch.read(other);
        kept.watch = Some(watch);
    }

    /// True if the line of [`watch`](Self::watch) was seen.
    pub(super) fn is_line_seen(&self) -> bool {
        self.shared.lock().watch.as_ref().is_some_and(|watch| watch.is_found)
    }

    pub(super) fn last_lines(&self) -> String {
        let kept = self.shared.lock();
        if kept.tail.is_empty() {
            return last_lines(&kept.head);
        }
        let from = kept.tail.len().saturating_sub(LAST_LINES_BYTES_MAX);
        last_lines(&kept.tail.range(from..).copied().collect::<Vec<u8>>())
    }

    pub(super) fn len_bytes(&self) -> u64 {
        self.shared.lock().len_bytes()
    }

    /// Output behind a mark, as far as it is kept.
    pub(super) fn since(&self, mark_bytes: u64) -> Output {
        self.shared.lock().since(mark_bytes)
    }

    /// Waits for the end of the stream, at most `limit`.
    pub(super) fn wait_end(&self, limit: Duration) {
        drop(self.ended(limit));
    }

    fn ended(&self, limit: Duration) -> MutexGuard<'_, Kept> {
        let waited =
            self.shared.ended.wait_timeout_while(self.shared.lock(), limit, |kept| !kept.has_ended);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Output up to the end of the stream, or after `limit`.
    pub(super) fn finish(self, limit: Duration) -> Output {
        let mut kept = self.ended(limit);
        let mut bytes = std::mem::take(&mut kept.head);
        if kept.dropped_bytes > 0 {
            bytes.push(b'\n');
        }
        let (one, other) = kept.tail.as_slices();
        bytes.extend_from_slice(one);
        bytes.extend_from_slice(other);
        Output { bytes, dropped_bytes: kept.dropped_bytes }
    }
}

/// Time between two looks at nothing.
const TEST_TIMEOUT: Duration = Duration::from_secs(3600);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(line: &str) -> Watch {
        Watch { line: Regex::new(line).unwrap(), unfinished: Vec::new(), is_found: false }
    }

    fn finds(line: &str, pieces: &[&str]) -> bool {
        let mut watch = watch(line);
        pieces.iter().for_each(|piece| watch.read(piece.as_bytes()));
        watch.is_found
    }

    #[test]
    fn lines_are_found_across_pieces_and_not_across_line_breaks() {
        assert!(finds("^ready$", &["star", "ting\nrea", "dy\r\n"]));
        assert!(finds("ready> ", &["x\nready>  "]) || finds("ready>", &["x\nready> "]));
        assert!(!finds("^ready$", &["not ready\nready?\n"]));
        assert!(!finds("a.b", &["a\nb\n"]));
        let long = "x".repeat(3 * LINE_BYTES_MAX);
        assert!(finds("^ready$", &[&long, "\nready\n"]));
    }

    #[test]
    fn first_and_last_part_are_kept_and_the_middle_is_counted() {
        let mut kept = Kept::default();
        let line = |i: u64| format!("{i:063}\n");
        let count = (2 * PART_BYTES_MAX as u64 / 64) + 1000;
        (0..count).for_each(|i| kept.add(line(i).as_bytes()));
        assert_eq!((kept.head.len(), kept.tail.len()), (PART_BYTES_MAX, PART_BYTES_MAX));
        assert_eq!(kept.dropped_bytes, 64_000);
        assert!(kept.head.starts_with(line(0).as_bytes()));
        let tail = kept.tail.make_contiguous();
        assert!(tail.ends_with(line(count - 1).as_bytes()));
    }

    #[test]
    fn output_behind_a_mark_is_that_of_one_trial() {
        let mut kept = Kept::default();
        kept.add(b"first\n");
        let mark = kept.len_bytes();
        assert_eq!(kept.since(mark).bytes(), b"");
        kept.add(b"second\n");
        assert_eq!(kept.since(mark).bytes(), b"second\n");
        assert_eq!(kept.since(0).bytes(), b"first\nsecond\n");
        let fill = vec![b'x'; 2 * PART_BYTES_MAX];
        kept.add(&fill);
        assert_eq!(kept.dropped_bytes, 13);
        let mark = kept.len_bytes() - 3;
        kept.add(b"last");
        assert_eq!(kept.since(mark).bytes(), b"xxxlast");
        let all = kept.since(0);
        assert_eq!((all.bytes().len(), all.dropped_bytes()), (2 * PART_BYTES_MAX + 1, 17));
        assert!(all.bytes().starts_with(b"first") && all.bytes().ends_with(b"xlast"));
        // A mark within the part that was dropped: only what is kept behind it.
        let late = kept.since(PART_BYTES_MAX as u64 + 1);
        assert_eq!((late.bytes()[0], late.dropped_bytes()), (b'\n', 16));
    }

    #[test]
    fn last_lines_are_short_and_are_text() {
        let many = (0..100).map(|i| format!("line {i}\n")).collect::<String>();
        let lines = last_lines(many.as_bytes());
        assert!(lines.starts_with("line 90\n") && lines.ends_with("line 99"), "{lines}");
        assert_eq!(last_lines(b""), "");
        assert!(last_lines(&[0xff; 10_000]).chars().count() <= LAST_LINES_BYTES_MAX);
    }
}
