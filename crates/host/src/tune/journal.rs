//! Journal of changed settings and their previous values.
//!
//! Each record is one line: eight hexadecimal digits of CRC-32, the record's number, the record as
//! JSON. The checksum covers number and JSON. All previous values, and all values that will be set,
//! are on disk before the first change. A truncated last line is the result of a crash and is
//! ignored; damage anywhere else is an error.

use std::collections::BTreeSet;
use std::io;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::files::Appended;
use super::identity::Identity;
use super::target::Target;
use super::value::Value;

pub const SCHEMA: u32 = 1;

#[derive(Debug, Error)]
pub enum JournalError {
    #[error("line {line} of the journal is damaged")]
    Corrupt {
        /// Counted from 1.
        line: usize,
        /// Boot of the machine that the lines before are of; `None` if there are none.
        boot: Option<String>,
        #[source]
        source: JournalRecordError,
    },
    #[error("the journal has {bytes} bytes, and {BYTES_MAX} are the maximum")]
    TooLong { bytes: usize },
    #[error(
        "the journal has schema {found}, and this program supports {SCHEMA}: use the version that \
         wrote it"
    )]
    Schema { found: u32 },
}

#[derive(Debug, Error)]
pub enum JournalRecordError {
    #[error("not text")]
    NotText,
    #[error("no checksum")]
    NoChecksum,
    #[error("wrong checksum")]
    Checksum,
    #[error("no record number")]
    NoNumber,
    #[error("record number {found} instead of {expected}")]
    Number { found: String, expected: usize },
    #[error("invalid record")]
    Syntax(#[from] serde_json::Error),
    #[error("record out of place")]
    Misplaced,
    #[error("it refers to entry {entry}, which does not exist")]
    NoEntry { entry: usize },
}

/// First record: context of the changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalHeader {
    pub schema: u32,
    pub plan: String,
    pub profile: String,
    pub interface: Option<String>,
    /// Network namespace, as the plan names it; `None` for the caller's.
    pub netns: Option<String>,
    /// Inode number of the namespace: a name may be reused for another namespace.
    pub netns_inode: u64,
    /// Device of that inode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns_device: Option<u64>,
    /// Number of the namespace that is not reused, unlike its inode; `None` before Linux 5.14.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns_cookie: Option<u64>,
    /// Name under which the plan was applied; `None` for a user's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The kernel's boot id: no change that is recorded here survives a reboot.
    pub boot: String,
    /// Process that applied the plan.
    pub pid: u32,
    /// Start, in seconds since 1970.
    pub unix_s: u64,
}

/// A knob at one target, with its previous value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub knob: String,
    pub target: Target,
    /// Value before the first change.
    pub before: Value,
    /// Value to set; `None` for a setting that is not part of the plan and may be disturbed by it.
    pub wanted: Option<Value>,
    /// Device that the target names; `None` in journals of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
}

/// One line of the file.
///
/// Tags and field names on disk are those of the first release: a journal outlives an upgrade.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub enum Record {
    /// Always the first line.
    Begin(JournalHeader),
    /// A setting that will be changed or may be disturbed; numbered from 0 in this order.
    #[serde(rename = "cell")]
    Entry(Entry),
    /// All entries are on disk: changes may begin.
    Ready,
    /// The entry is about to be set.
    #[serde(rename = "doing")]
    Started {
        #[serde(rename = "cell")]
        entry: usize,
    },
    /// The entry was set, and reads back as `found`.
    #[serde(rename = "did")]
    Completed {
        #[serde(rename = "cell")]
        entry: usize,
        found: Value,
    },
    /// The entry reads `found` because another one was set.
    #[serde(rename = "aside")]
    SideEffect {
        #[serde(rename = "cell")]
        entry: usize,
        found: Value,
    },
    /// All steps are completed.
    Applied {
        /// Deadline for confirmation, CLOCK_BOOTTIME in milliseconds; `None` if not required.
        confirm_by_ms: Option<u64>,
    },
    /// The applied steps are about to be switched off or on again.
    Switching,
    /// The steps are all off, or all on.
    Switched,
    /// The user keeps the settings.
    Confirmed,
    RollingBack {
        why: String,
        /// Entries changed by another process, with the values found before anything was restored.
        foreign: Vec<(usize, Value)>,
    },
    /// The user gives an entry up: it is not restored.
    Forgotten {
        #[serde(rename = "cell")]
        entry: usize,
    },
}

/// Longest journal that is read: a record has about 200 bytes, and a plan has hundreds of steps.
pub(super) const BYTES_MAX: usize = 16 << 20;

/// Progress of applying a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// No setting was changed yet.
    Unchanged,
    /// Some steps may be completed.
    Applying,
    /// All steps are completed; the deadline is that of [`Record::Applied`].
    Applied(Option<u64>),
    Confirmed,
    RollingBack,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journal {
    pub header: JournalHeader,
    pub entries: Vec<Entry>,
    pub states: Vec<EntryState>,
    pub phase: Phase,
    /// A switch of all steps was begun and has not ended.
    pub is_switching: bool,
    /// Entries changed by another process; known once rollback has begun.
    pub foreign: Option<Vec<(usize, Value)>>,
    /// Entries that the user gave up.
    pub forgotten: BTreeSet<usize>,
    /// Records read; also the number of the next one.
    pub record_count: usize,
    /// Bytes up to the end of the last complete line.
    pub whole_bytes: usize,
    /// The last line is truncated.
    pub is_torn: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum EntryState {
    #[default]
    Untouched,
    /// It was about to be set; the outcome is unknown.
    Begun,
    /// It was set, or disturbed, and read back as this value.
    Changed(Value),
}

impl Journal {
    /// Parses a journal; `None` if its first line is incomplete.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, JournalError> {
        if bytes.len() > BYTES_MAX {
            return Err(JournalError::TooLong { bytes: bytes.len() });
        }
        let mut journal: Option<Journal> = None;
        let mut start = 0;
        let mut is_torn = false;
        for line in 1.. {
            let rest = &bytes[start..];
            if rest.is_empty() {
                break;
            }
            let end = rest.iter().position(|byte| *byte == b'\n');
            let is_last = end.is_none_or(|end| start + end + 1 == bytes.len());
            let text = &rest[..end.unwrap_or(rest.len())];
            let boot = journal.as_ref().map(|journal| journal.header.boot.clone());
            let corrupt = |source| JournalError::Corrupt { line, boot: boot.clone(), source };
            let record = match decode(text, line - 1) {
                Ok(record) if end.is_some() => record,
                // Without its end, even a valid line may be the beginning of a longer one.
                _ if is_last => {
                    is_torn = true;
                    break;
                }
                Ok(_) => break,
                Err(source) => return Err(corrupt(source)),
            };
            start += end.map_or(rest.len(), |end| end + 1);
            match (&mut journal, record) {
                (None, Record::Begin(header)) if header.schema == SCHEMA => {
                    journal = Some(Journal::begun(header));
                }
                (None, Record::Begin(header)) => {
                    return Err(JournalError::Schema { found: header.schema });
                }
                (None, _) => return Err(corrupt(JournalRecordError::Misplaced)),
                (Some(journal), record) => journal.add(record).map_err(corrupt)?,
            }
            if let Some(journal) = &mut journal {
                journal.record_count = line;
                journal.whole_bytes = start;
            }
        }
        if let Some(journal) = &mut journal {
            journal.is_torn = is_torn;
        }
        Ok(journal)
    }

    fn begun(header: JournalHeader) -> Self {
        Journal {
            header,
            entries: Vec::new(),
            states: Vec::new(),
            phase: Phase::Unchanged,
            is_switching: false,
            foreign: None,
            forgotten: BTreeSet::new(),
            record_count: 0,
            whole_bytes: 0,
            is_torn: false,
        }
    }

    fn add(&mut self, record: Record) -> Result<(), JournalRecordError> {
        let state = |states: &mut Vec<EntryState>, entry: usize, state: EntryState| {
            *states.get_mut(entry).ok_or(JournalRecordError::NoEntry { entry })? = state;
            Ok(())
        };
        match (&self.phase, record) {
            (Phase::Unchanged, Record::Entry(entry)) => {
                self.entries.push(entry);
                self.states.push(EntryState::Untouched);
                Ok(())
            }
            (Phase::Unchanged, Record::Ready) => {
                self.phase = Phase::Applying;
                Ok(())
            }
            (Phase::Applying, Record::Started { entry }) => {
                state(&mut self.states, entry, EntryState::Begun)
            }
            (
                Phase::Applying,
                Record::Completed { entry, found } | Record::SideEffect { entry, found },
            ) => state(&mut self.states, entry, EntryState::Changed(found)),
            (Phase::Applying, Record::Applied { confirm_by_ms }) => {
                self.phase = Phase::Applied(confirm_by_ms);
                Ok(())
            }
            // The deadline is postponed.
            (Phase::Applied(Some(_)), Record::Applied { confirm_by_ms: Some(by_ms) }) => {
                self.phase = Phase::Applied(Some(by_ms));
                Ok(())
            }
            (Phase::Applied(None), Record::Switching) => {
                self.is_switching = true;
                Ok(())
            }
            (Phase::Applied(None), Record::Switched) => {
                self.is_switching = false;
                Ok(())
            }
            (Phase::Applied(_), Record::Confirmed) => {
                self.phase = Phase::Confirmed;
                Ok(())
            }
            (Phase::Unchanged, Record::Forgotten { .. }) => Err(JournalRecordError::Misplaced),
            (_, Record::Forgotten { entry }) if entry < self.entries.len() => {
                self.forgotten.insert(entry);
                Ok(())
            }
            (_, Record::Forgotten { entry }) => Err(JournalRecordError::NoEntry { entry }),
            (Phase::Unchanged | Phase::RollingBack, Record::RollingBack { .. }) => {
                Err(JournalRecordError::Misplaced)
            }
            (_, Record::RollingBack { foreign, .. }) => {
                if let Some((entry, _)) = foreign.iter().find(|(e, _)| *e >= self.entries.len()) {
                    return Err(JournalRecordError::NoEntry { entry: *entry });
                }
                self.phase = Phase::RollingBack;
                self.foreign = Some(foreign);
                Ok(())
            }
            _ => Err(JournalRecordError::Misplaced),
        }
    }

    /// True if it may be confirmed or rolled back under this name; `None` may do so with every journal.
    pub fn is_of(&self, owner: Option<&str>) -> bool {
        owner.is_none_or(|owner| self.header.owner.as_deref() == Some(owner))
    }

    /// The name under which it was applied, for messages.
    pub fn owner(&self) -> &str {
        self.header.owner.as_deref().unwrap_or("a user")
    }

    /// Returns the entries that are steps of the plan, with their numbers.
    pub fn steps(&self) -> impl Iterator<Item = (usize, &Entry)> {
        self.entries.iter().enumerate().filter(|(_, entry)| entry.wanted.is_some())
    }
}

fn decode(line: &[u8], expected: usize) -> Result<Record, JournalRecordError> {
    let text = std::str::from_utf8(line).map_err(|_| JournalRecordError::NotText)?;
    let (crc, rest) = text.split_once(' ').ok_or(JournalRecordError::NoChecksum)?;
    let is_hex = crc.len() == 8 && crc.bytes().all(|byte| byte.is_ascii_hexdigit());
    let crc = u32::from_str_radix(crc, 16).ok().filter(|_| is_hex);
    if crc32fast::hash(rest.as_bytes()) != crc.ok_or(JournalRecordError::NoChecksum)? {
        return Err(JournalRecordError::Checksum);
    }
    let (found, json) = rest.split_once(' ').ok_or(JournalRecordError::NoNumber)?;
    if found.parse() != Ok(expected) {
        return Err(JournalRecordError::Number { found: found.to_owned(), expected });
    }
    Ok(serde_json::from_str(json)?)
}

fn encode(record: &Record, number: usize) -> io::Result<String> {
    let text = format!("{number} {}", serde_json::to_string(record)?);
    Ok(format!("{:08x} {text}\n", crc32fast::hash(text.as_bytes())))
}

#[derive(Debug)]
pub(super) struct Writer {
    file: Appended,
    next: usize,
}

impl Writer {
    /// Continues after `next` records; the file is positioned at its end.
    pub(super) fn new(file: Appended, next: usize) -> Self {
        Writer { file, next }
    }

    /// Appends records in one write; they are on disk when this returns.
    pub(super) fn append(&mut self, records: &[Record]) -> io::Result<()> {
        self.append_unsynced(records)?;
        self.file.sync()
    }

    /// Appends records in one write, which a power cut may lose.
    pub(super) fn append_unsynced(&mut self, records: &[Record]) -> io::Result<()> {
        let mut text = String::new();
        for (offset, record) in records.iter().enumerate() {
            text.push_str(&encode(record, self.next + offset)?);
        }
        self.next += records.len();
        self.file.append(text.as_bytes())
    }

    /// The same of a file that has another name by now.
    pub(super) fn renamed(self, path: &std::path::Path) -> Self {
        Writer { file: self.file.renamed(path), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value {
        Value::new(text).unwrap()
    }

    fn records() -> Vec<Record> {
        let header = JournalHeader {
            schema: SCHEMA,
            plan: "0123456789abcdef".into(),
            profile: "latency".into(),
            interface: Some("eth0".into()),
            netns: None,
            netns_inode: 4_026_531_840,
            netns_device: Some(4),
            netns_cookie: Some(12),
            owner: Some("rollout-1".into()),
            boot: "b".into(),
            pid: 7,
            unix_s: 1_700_000_000,
        };
        let target = Target::RxQueue("eth0".into(), 0);
        let entry = |wanted| Entry {
            knob: "rps-cpus".into(),
            target: target.clone(),
            before: value("0"),
            wanted,
            identity: Some(Identity::Interrupt { action: "eth0-rx".into() }),
        };
        vec![
            Record::Begin(header),
            Record::Entry(entry(Some(value("3")))),
            Record::Entry(entry(None)),
            Record::Ready,
            Record::Started { entry: 0 },
            Record::Completed { entry: 0, found: value("3") },
            Record::SideEffect { entry: 1, found: value("1") },
            Record::Applied { confirm_by_ms: Some(12) },
            Record::Confirmed,
            Record::RollingBack { why: "asked".into(), foreign: vec![(1, value("2"))] },
            Record::Forgotten { entry: 1 },
        ]
    }

    fn text(records: &[Record]) -> String {
        records.iter().enumerate().map(|(number, r)| encode(r, number).unwrap()).collect()
    }

    #[test]
    fn phase_is_known_after_every_record() {
        let all = records();
        let phase = |count: usize| {
            let journal = Journal::parse(text(&all[..count]).as_bytes()).unwrap().unwrap();
            (journal.phase, journal.states)
        };
        assert_eq!(Journal::parse(b"").unwrap(), None);
        assert_eq!(phase(3), (Phase::Unchanged, vec![EntryState::Untouched; 2]));
        assert_eq!(phase(4).0, Phase::Applying);
        assert_eq!(phase(5).1[0], EntryState::Begun);
        let changed = |text| EntryState::Changed(value(text));
        assert_eq!(phase(7), (Phase::Applying, vec![changed("3"), changed("1")]));
        assert_eq!(phase(8).0, Phase::Applied(Some(12)));
        assert_eq!(phase(9).0, Phase::Confirmed);
        assert_eq!(phase(10).0, Phase::RollingBack);
        let last = Journal::parse(text(&all).as_bytes()).unwrap().unwrap();
        assert!(last.phase == Phase::RollingBack && last.forgotten == [1].into());
    }

    #[test]
    fn deadline_is_that_of_the_last_record_and_is_not_added_later() {
        let applied = |confirm_by_ms| Record::Applied { confirm_by_ms };
        let phase_after = |more: &[Record]| {
            let all: Vec<Record> = records()[..8].iter().chain(more).cloned().collect();
            Journal::parse(text(&all).as_bytes()).map(|journal| journal.unwrap().phase)
        };
        assert!(
            phase_after(&[applied(Some(99))]).is_ok_and(|phase| phase == Phase::Applied(Some(99)))
        );
        assert!(phase_after(&[Record::Switching]).is_err(), "these settings wait for an answer");
        assert!(phase_after(&[Record::Confirmed, applied(Some(99)), Record::Ready]).is_err());
    }

    #[test]
    fn truncated_journal_reads_as_its_complete_lines() {
        let whole = text(&records());
        for cut in 0..whole.len() {
            let journal = Journal::parse(&whole.as_bytes()[..cut]).unwrap();
            let lines = whole[..cut].matches('\n').count();
            assert_eq!(journal.as_ref().map_or(0, |j| j.record_count), lines, "{cut}");
            if let Some(journal) = journal {
                assert_eq!(journal.is_torn, !whole[..cut].ends_with('\n'), "{cut}");
                assert!(whole[..journal.whole_bytes].ends_with('\n'));
            }
        }
    }

    #[test]
    fn flipped_bit_before_the_last_line_is_an_error_that_names_the_line() {
        let whole = text(&records());
        let last = whole.trim_end().rfind('\n').unwrap() + 1;
        // Without its end, the line before the last becomes part of a truncated one.
        for place in 0..last - 1 {
            for bit in [0, 3, 6] {
                let mut bytes = whole.clone().into_bytes();
                bytes[place] ^= 1 << bit;
                // Upper and lower case of a hexadecimal digit are the same number.
                if bytes[place].eq_ignore_ascii_case(&whole.as_bytes()[place]) {
                    continue;
                }
                let line = whole[..place].matches('\n').count() + 1;
                match Journal::parse(&bytes) {
                    Err(JournalError::Corrupt { line: found, .. }) => assert_eq!(found, line),
                    other => panic!("{place} {bit}: {other:?}"),
                }
            }
        }
    }

    #[test]
    fn records_out_of_place_are_refused() {
        let all = records();
        for order in
            [vec![1], vec![0, 4], vec![0, 3, 1], vec![0, 3, 8], vec![0, 0], vec![0, 9], vec![0, 10]]
        {
            let some: Vec<_> = order.iter().map(|number| all[*number].clone()).collect();
            // A complete line follows, so that the wrong one is not the last.
            let mut lines = text(&some);
            lines.push_str(&encode(&Record::Ready, some.len()).unwrap());
            assert!(
                matches!(Journal::parse(lines.as_bytes()), Err(JournalError::Corrupt { .. })),
                "{order:?}"
            );
        }
        let missing = text(&all[..3]).replacen(&encode(&all[1], 1).unwrap(), "", 1);
        assert!(Journal::parse((missing + "x\n").as_bytes()).is_err(), "a line is missing");
    }

    #[test]
    fn journals_of_versions_without_identities_are_read() {
        let of_today = text(&records()[..4]);
        let older = of_today.lines().map(|line| {
            let body = line[9..]
                .replace(",\"netns_device\":4,\"netns_cookie\":12,\"owner\":\"rollout-1\"", "")
                .replace(r#","identity":{"of":"interrupt","action":"eth0-rx"}"#, "");
            format!("{:08x} {body}\n", crc32fast::hash(body.as_bytes()))
        });
        let older: String = older.collect();
        assert!(!older.contains("identity") && !older.contains("cookie"), "{older}");
        let journal = Journal::parse(older.as_bytes()).unwrap().unwrap();
        assert_eq!((journal.header.netns_cookie, journal.entries.len()), (None, 2));
        assert!(journal.is_of(None) && !journal.is_of(Some("rollout-1")));
        assert!(journal.entries.iter().all(|entry| entry.identity.is_none()));
    }

    #[test]
    fn unknown_schema_is_refused() {
        let Record::Begin(header) = records().remove(0) else { unreachable!() };
        let other = Record::Begin(JournalHeader { schema: 9, ..header });
        let error = Journal::parse(text(&[other]).as_bytes()).unwrap_err();
        assert!(matches!(error, JournalError::Schema { found: 9 }), "{error}");
    }
}
