//! Late datagrams in a recording: an entry of a journal for each, in a block of pcapng that Wireshark shows beside
//! the datagrams.
//!
//! Source: draft-ietf-opsawg-pcapng, systemd Journal Export Block; systemd, Journal Export Formats.

use std::fmt;

use host::interruptions::{Cause, CauseKind};
use host::text::printable;

const OVER_NS: &str = "WIREPATH_LATE_OVER_NS";
const STAMP_NS: &str = "WIREPATH_LATE_STAMP_NS";
const WAITED_NS: &str = "WIREPATH_LATE_WAITED_NS";
const CAUSE: &str = "WIREPATH_LATE_CAUSE";
const DETAIL: &str = "WIREPATH_LATE_DETAIL";
const BEYOND_COUNT: &str = "WIREPATH_LATE_BEYOND_COUNT";
const LOST_COUNT: &str = "WIREPATH_LATE_LOST_COUNT";
/// Longest detail that is read, characters; the kernel's names have 15.
const DETAIL_MAX: usize = 64;

/// A note about late datagrams. Times are nanoseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Note {
    /// Datagrams are late that wait this long.
    Over { at_ns: u64, over_ns: u64 },
    /// A late datagram, by its time stamp.
    Late { stamp_ns: u64, waited_ns: u64, cause: Cause },
    /// Late datagrams that are not explained, and kernel events that were not traced.
    Counts { at_ns: u64, beyond_count: u64, lost_count: u64 },
}

/// Entry of a journal.
impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Note::Over { at_ns, .. }
        | Note::Late { stamp_ns: at_ns, .. }
        | Note::Counts { at_ns, .. }) = self;
        writeln!(f, "__REALTIME_TIMESTAMP={}\nSYSLOG_IDENTIFIER=wirepath", at_ns / 1000)?;
        match self {
            Note::Over { over_ns, .. } => {
                writeln!(f, "MESSAGE=datagrams that wait {over_ns} ns or longer are late")?;
                writeln!(f, "{OVER_NS}={over_ns}")
            }
            Note::Late { stamp_ns, waited_ns, cause } => {
                // Any task may choose its name.
                let detail = printable(&cause.detail, DETAIL_MAX);
                let cause = Cause { kind: cause.kind, detail };
                writeln!(f, "MESSAGE=a datagram waited {waited_ns} ns: {cause}")?;
                writeln!(f, "{STAMP_NS}={stamp_ns}\n{WAITED_NS}={waited_ns}")?;
                writeln!(f, "{CAUSE}={}\n{DETAIL}={}", cause.kind.name(), cause.detail)
            }
            Note::Counts { beyond_count, lost_count, .. } => {
                writeln!(
                    f,
                    "MESSAGE={beyond_count} late datagrams are not explained, {lost_count} kernel events not traced"
                )?;
                writeln!(f, "{BEYOND_COUNT}={beyond_count}\n{LOST_COUNT}={lost_count}")
            }
        }
    }
}

impl Note {
    /// Reads an entry; `None` if it is not one of these.
    pub(crate) fn parse(entry: &[u8]) -> Option<Note> {
        let text = std::str::from_utf8(entry).ok()?;
        let field =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        let number = |name: &str| field(name)?.parse::<u64>().ok();
        let at_ns = || Some(number("__REALTIME_TIMESTAMP")?.saturating_mul(1000));
        if let Some(over_ns) = number(OVER_NS) {
            return Some(Note::Over { at_ns: at_ns()?, over_ns });
        }
        if let Some(waited_ns) = number(WAITED_NS) {
            let name = field(CAUSE)?;
            let kind = CauseKind::ALL.into_iter().find(|kind| kind.name() == name)?;
            let detail = printable(field(DETAIL).unwrap_or_default(), DETAIL_MAX);
            let cause = Cause { kind, detail };
            return Some(Note::Late { stamp_ns: number(STAMP_NS)?, waited_ns, cause });
        }
        Some(Note::Counts {
            at_ns: at_ns()?,
            beyond_count: number(BEYOND_COUNT)?,
            lost_count: number(LOST_COUNT)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn late(detail: &str) -> Note {
        let cause = Cause { kind: CauseKind::Preemption, detail: detail.into() };
        Note::Late { stamp_ns: 1_790_000_000_123_456_789, waited_ns: 63_200, cause }
    }

    #[test]
    fn notes_are_read_as_they_were_written() {
        let at_ns = 1_790_000_000_123_456_000;
        let notes = [
            Note::Over { at_ns, over_ns: 50_000 },
            late("hog"),
            late(""),
            Note::Counts { at_ns, beyond_count: 4, lost_count: u64::MAX },
        ];
        for note in notes {
            let text = note.to_string();
            assert!(text.lines().all(|line| line.contains('=')), "{text}");
            assert_eq!(Note::parse(text.as_bytes()), Some(note), "{text}");
        }
    }

    #[test]
    fn the_name_of_a_task_cannot_add_a_field_or_move_a_cursor() {
        let text = late("a\nWIREPATH_LATE_OVER_NS=1\n\x1b[2J").to_string();
        let read = Note::parse(text.as_bytes());
        assert_eq!(read, Some(late("aWIREPATH_LATE_OVER_NS=1[2J")), "{text}");
        let forged = text.replace("DETAIL=a", "DETAIL=\x07a");
        assert_eq!(Note::parse(forged.as_bytes()), read);
    }

    #[test]
    fn other_entries_are_not_notes() {
        let right = late("hog").to_string();
        for (from, to) in [
            ("preemption\n", "haste\n"),
            ("WAITED_NS=63200", "WAITED_NS=-1"),
            ("STAMP_NS=1", "STAMP_NS=99999999999999999999"),
            ("WIREPATH_", "OTHER_"),
        ] {
            let other = right.replace(from, to);
            assert_ne!(other, right);
            assert_eq!(Note::parse(other.as_bytes()), None, "{other}");
        }
        assert_eq!(Note::parse(b"__REALTIME_TIMESTAMP=1\nMESSAGE=started\n"), None);
        assert_eq!(Note::parse(b"\xff\xfe"), None);
        assert_eq!(Note::parse(b""), None);
    }
}
