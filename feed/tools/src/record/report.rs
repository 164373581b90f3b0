//! Result of a recording, as text and JSON.

use std::path::PathBuf;

use report::screen::Screen;
use serde::Serialize;

use crate::TEXT_COLUMN;
use crate::late::{LateDocument, LateReport};

/// Result of a recording.
#[derive(Debug, PartialEq, Eq)]
pub struct RecordReport {
    pub file: PathBuf,
    /// `frames` or `sockets`.
    pub from: &'static str,
    pub elapsed_ns: u64,
    pub packets: u64,
    pub bytes: u64,
    /// Packets dropped for lack of buffer space.
    pub dropped: u64,
    pub cut: u64,
    /// Packets without a kernel time stamp; they carry the time of reading.
    pub unstamped: u64,
    /// First and last time stamp, nanoseconds since 1970.
    pub stamps_ns: Option<(u64, u64)>,
    /// Interface that was removed, which ended the recording.
    pub gone: Option<String>,
    /// Late datagrams, of a recording that looks for them.
    pub late: Option<LateReport>,
}

/// Document of `feed record --json`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RecordDocument {
    schema: u32,
    command: &'static str,
    file: String,
    from: &'static str,
    elapsed_ns: u64,
    packet_count: u64,
    bytes: u64,
    dropped_count: u64,
    cut_count: u64,
    unstamped_count: u64,
    first_ns: Option<u64>,
    last_ns: Option<u64>,
    /// Absent without --late.
    late: Option<LateDocument>,
}

impl RecordReport {
    pub(super) fn new(file: PathBuf, from: &'static str) -> Self {
        RecordReport {
            file,
            from,
            elapsed_ns: 0,
            packets: 0,
            bytes: 0,
            dropped: 0,
            cut: 0,
            unstamped: 0,
            stamps_ns: None,
            gone: None,
            late: None,
        }
    }

    /// Counts a packet.
    pub(super) fn count(&mut self, stamp_ns: u64, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
        let (first, last) = self.stamps_ns.unwrap_or((stamp_ns, stamp_ns));
        self.stamps_ns = Some((first.min(stamp_ns), last.max(stamp_ns)));
    }

    /// Report as JSON.
    pub fn document(&self) -> RecordDocument {
        RecordDocument {
            schema: model::SCHEMA,
            command: "feed record",
            file: self.file.display().to_string(),
            from: self.from,
            elapsed_ns: self.elapsed_ns,
            packet_count: self.packets,
            bytes: self.bytes,
            dropped_count: self.dropped,
            cut_count: self.cut,
            unstamped_count: self.unstamped,
            first_ns: self.stamps_ns.map(|(first, _)| first),
            last_ns: self.stamps_ns.map(|(_, last)| last),
            late: self.late.as_ref().map(LateReport::document),
        }
    }

    /// Report as text.
    pub fn text(&self) -> String {
        let mut screen = Screen::plain().with_column(TEXT_COLUMN);
        let text = format!(
            "{} packets, {} bytes, from {} in {:.3} s into {}",
            self.packets,
            self.bytes,
            self.from,
            self.elapsed_ns as f64 / 1e9,
            self.file.display(),
        );
        screen.entry("recorded", text);
        for (count, what) in [
            (self.dropped, "packets were dropped for lack of buffer space"),
            (self.cut, "packets were truncated"),
            (self.unstamped, "packets had no kernel time stamp and carry the time of reading"),
        ] {
            if count > 0 {
                screen.entry("note", format!("{count} {what}"));
            }
        }
        if let Some(late) = &self.late {
            screen.entry("late", late.text());
        }
        screen.finish()
    }
}
