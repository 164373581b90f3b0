//! What was changed, and what was there before: the journal on disk.
//!
//! One line a record: eight hexadecimal digits of CRC-32, the record's number, the record as
//! JSON. The checksum covers number and JSON. All values from before, and all that is to be set, are
//! on disk before the first change. A last line that was cut off in the middle is what a crash
//! leaves and is dropped; damage anywhere else is an error.

use std::fs::File;
use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::target::Target;
use super::value::Value;

/// Version of the records.
pub const SCHEMA: u32 = 1;

/// Why a journal makes no sense.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum JournalError {
    /// A line is damaged.
    #[error("line {line} of the journal is damaged: {why}")]
    Corrupt {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// It is longer than any journal of ours.
    #[error("the journal has {bytes} bytes, more than any of ours")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// Another version of this program wrote it.
    #[error(
        "the journal has schema {found}, and this program knows {SCHEMA}: use the one that wrote it"
    )]
    Schema {
        /// Its schema.
        found: u32,
    },
}

/// What the journal is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Digest of the plan.
    pub plan: String,
    /// Profile of the plan.
    pub profile: String,
    /// Interface of the plan.
    pub interface: Option<String>,
    /// Network namespace, as the plan names it; `None` for the caller's.
    pub netns: Option<String>,
    /// Its inode number: the same name may come to stand for another namespace.
    pub netns_inode: u64,
    /// The kernel's id of this boot: nothing that is recorded here outlives it.
    pub boot: String,
    /// Process that applied it.
    pub pid: u32,
    /// When, in seconds since 1970.
    pub unix_s: u64,
}

/// A knob at one target, and what it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// Id of the knob.
    pub knob: String,
    /// Where.
    pub target: Target,
    /// Value before anything was changed.
    pub before: Value,
    /// Value to be set; `None` for a witness, which others may disturb.
    pub wanted: Option<Value>,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub enum Record {
    /// The first.
    Begin(Header),
    /// What will be changed or may be disturbed; cells count from 0 in this order.
    Cell(Cell),
    /// All cells are written and on disk: changes begin.
    Ready,
    /// A cell is about to be set.
    Doing {
        /// Its number.
        cell: usize,
    },
    /// A cell was set and reads like this.
    Did {
        /// Its number.
        cell: usize,
        /// What it reads.
        found: Value,
    },
    /// A cell came to read like this because another was set.
    Aside {
        /// Its number.
        cell: usize,
        /// What it reads.
        found: Value,
    },
    /// All steps are done.
    Applied {
        /// CLOCK_BOOTTIME in milliseconds by which it has to be confirmed; `None` when not.
        confirm_by_ms: Option<u64>,
    },
    /// The user wants to keep it.
    Confirmed,
    /// Values are being given back.
    RollingBack {
        /// Why.
        why: String,
        /// Cells that somebody else had changed meanwhile, with what they were then.
        foreign: Vec<(usize, Value)>,
    },
}

/// Bytes of the longest journal that is read: some 200 a record, and steps are hundreds.
const BYTES_MAX: usize = 16 << 20;

/// How far an application got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Nothing was changed yet.
    Unchanged,
    /// In the midst of its steps.
    Applying,
    /// All steps are done; by when to confirm, as in [`Record::Applied`].
    Applied(Option<u64>),
    /// Kept.
    Confirmed,
    /// In the midst of giving back.
    RollingBack,
}

/// What a journal says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journal {
    /// What it is about.
    pub header: Header,
    /// Everything changed or disturbed.
    pub cells: Vec<Cell>,
    /// Of each cell, how far it got.
    pub states: Vec<CellState>,
    /// How far the whole got.
    pub phase: Phase,
    /// Cells changed by somebody else, once rolling back has begun.
    pub foreign: Option<Vec<(usize, Value)>>,
    /// Records read, which is the number of the next.
    pub record_count: usize,
    /// Bytes up to the end of the last whole line.
    pub whole_bytes: usize,
    /// Whether the last line was cut off.
    pub is_torn: bool,
}

/// How far one cell got.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum CellState {
    /// Not touched by us.
    #[default]
    Untouched,
    /// It was about to be set, and nobody knows whether it was.
    Begun,
    /// It was set, or disturbed, and read like this.
    Changed(Value),
}

impl Journal {
    /// Reads one; `None` when it has not even its first line.
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
            let corrupt = |why: String| JournalError::Corrupt { line, why };
            let record = match decode(text, line - 1) {
                Ok(record) if end.is_some() => record,
                // Without its end, even a line that reads well may be the beginning of another.
                _ if is_last => {
                    is_torn = true;
                    break;
                }
                Ok(_) => break,
                Err(why) => return Err(corrupt(why)),
            };
            start += end.map_or(rest.len(), |end| end + 1);
            match (&mut journal, record) {
                (None, Record::Begin(header)) if header.schema == SCHEMA => {
                    journal = Some(Journal::begun(header));
                }
                (None, Record::Begin(header)) => {
                    return Err(JournalError::Schema { found: header.schema });
                }
                (None, _) => return Err(corrupt("the first record is not its beginning".into())),
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

    fn begun(header: Header) -> Self {
        Journal {
            header,
            cells: Vec::new(),
            states: Vec::new(),
            phase: Phase::Unchanged,
            foreign: None,
            record_count: 0,
            whole_bytes: 0,
            is_torn: false,
        }
    }

    /// Takes the next record; says why when it cannot come here.
    fn add(&mut self, record: Record) -> Result<(), String> {
        let misplaced = || Err("this record cannot come here".to_owned());
        let state = |states: &mut Vec<CellState>, cell: usize, state: CellState| {
            let place = states.get_mut(cell).ok_or_else(|| format!("there is no cell {cell}"))?;
            *place = state;
            Ok(())
        };
        match (&self.phase, record) {
            (Phase::Unchanged, Record::Cell(cell)) => {
                self.cells.push(cell);
                self.states.push(CellState::Untouched);
                Ok(())
            }
            (Phase::Unchanged, Record::Ready) => {
                self.phase = Phase::Applying;
                Ok(())
            }
            (Phase::Applying, Record::Doing { cell }) => {
                state(&mut self.states, cell, CellState::Begun)
            }
            (Phase::Applying, Record::Did { cell, found } | Record::Aside { cell, found }) => {
                state(&mut self.states, cell, CellState::Changed(found))
            }
            (Phase::Applying, Record::Applied { confirm_by_ms }) => {
                self.phase = Phase::Applied(confirm_by_ms);
                Ok(())
            }
            (Phase::Applied(_), Record::Confirmed) => {
                self.phase = Phase::Confirmed;
                Ok(())
            }
            (Phase::Unchanged | Phase::RollingBack, Record::RollingBack { .. }) => misplaced(),
            (_, Record::RollingBack { foreign, .. }) => {
                if foreign.iter().any(|(cell, _)| *cell >= self.cells.len()) {
                    return Err("it names a cell that there is not".to_owned());
                }
                self.phase = Phase::RollingBack;
                self.foreign = Some(foreign);
                Ok(())
            }
            _ => misplaced(),
        }
    }

    /// Cells that are steps, with their numbers.
    pub fn steps(&self) -> impl Iterator<Item = (usize, &Cell)> {
        self.cells.iter().enumerate().filter(|(_, cell)| cell.wanted.is_some())
    }
}

fn decode(line: &[u8], number: usize) -> Result<Record, String> {
    let text = std::str::from_utf8(line).map_err(|_| "it is not text".to_owned())?;
    let (crc, rest) = text.split_once(' ').ok_or("it has no checksum")?;
    let is_hex = crc.len() == 8 && crc.bytes().all(|byte| byte.is_ascii_hexdigit());
    let crc = u32::from_str_radix(crc, 16).ok().filter(|_| is_hex).ok_or("it has no checksum")?;
    if crc32fast::hash(rest.as_bytes()) != crc {
        return Err("its checksum does not match".to_owned());
    }
    let (own, json) = rest.split_once(' ').ok_or("it has no number")?;
    if own.parse() != Ok(number) {
        return Err(format!("it is record {own} and should be {number}"));
    }
    serde_json::from_str(json).map_err(|error| format!("it is no record: {error}"))
}

fn encode(record: &Record, number: usize) -> io::Result<String> {
    let text = format!("{number} {}", serde_json::to_string(record)?);
    Ok(format!("{:08x} {text}\n", crc32fast::hash(text.as_bytes())))
}

/// Adds records to a journal.
#[derive(Debug)]
pub(super) struct Writer {
    file: File,
    next: usize,
}

impl Writer {
    /// Goes on after `next` records; the file is at its end.
    pub(super) fn new(file: File, next: usize) -> Self {
        Writer { file, next }
    }

    /// Adds records in one write; they are on disk when this returns.
    pub(super) fn append(&mut self, records: &[Record]) -> io::Result<()> {
        let mut text = String::new();
        for (offset, record) in records.iter().enumerate() {
            text.push_str(&encode(record, self.next + offset)?);
        }
        self.file.write_all(text.as_bytes())?;
        self.next += records.len();
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value {
        Value::new(text).unwrap()
    }

    fn records() -> Vec<Record> {
        let header = Header {
            schema: SCHEMA,
            plan: "0123456789abcdef".into(),
            profile: "latency".into(),
            interface: Some("eth0".into()),
            netns: None,
            netns_inode: 4_026_531_840,
            boot: "b".into(),
            pid: 7,
            unix_s: 1_700_000_000,
        };
        let target = Target::RxQueue("eth0".into(), 0);
        let cell = |wanted| Cell {
            knob: "rps-cpus".into(),
            target: target.clone(),
            before: value("0"),
            wanted,
        };
        vec![
            Record::Begin(header),
            Record::Cell(cell(Some(value("3")))),
            Record::Cell(cell(None)),
            Record::Ready,
            Record::Doing { cell: 0 },
            Record::Did { cell: 0, found: value("3") },
            Record::Aside { cell: 1, found: value("1") },
            Record::Applied { confirm_by_ms: Some(12) },
            Record::Confirmed,
            Record::RollingBack { why: "asked".into(), foreign: vec![(1, value("2"))] },
        ]
    }

    fn text(records: &[Record]) -> String {
        records.iter().enumerate().map(|(number, r)| encode(r, number).unwrap()).collect()
    }

    #[test]
    fn a_journal_says_how_far_it_got_after_every_record() {
        let all = records();
        let phase = |count: usize| {
            let journal = Journal::parse(text(&all[..count]).as_bytes()).unwrap().unwrap();
            (journal.phase, journal.states)
        };
        assert_eq!(Journal::parse(b""), Ok(None));
        assert_eq!(phase(3), (Phase::Unchanged, vec![CellState::Untouched; 2]));
        assert_eq!(phase(4).0, Phase::Applying);
        assert_eq!(phase(5).1[0], CellState::Begun);
        let changed = |text| CellState::Changed(value(text));
        assert_eq!(phase(7), (Phase::Applying, vec![changed("3"), changed("1")]));
        assert_eq!(phase(8).0, Phase::Applied(Some(12)));
        assert_eq!(phase(9).0, Phase::Confirmed);
        assert_eq!(phase(10).0, Phase::RollingBack);
    }

    #[test]
    fn a_journal_cut_anywhere_reads_as_its_whole_lines() {
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
    fn a_flipped_bit_before_the_last_line_is_an_error_that_names_the_line() {
        let whole = text(&records());
        let last = whole.trim_end().rfind('\n').unwrap() + 1;
        // Without its end, the line before the last becomes part of one that was cut off.
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
        for order in [vec![1], vec![0, 4], vec![0, 3, 1], vec![0, 3, 8], vec![0, 0], vec![0, 9]] {
            let some: Vec<_> = order.iter().map(|number| all[*number].clone()).collect();
            // Behind it a whole line, so that the wrong one is not the last.
            let mut lines = text(&some);
            lines.push_str(&encode(&Record::Ready, some.len()).unwrap());
            assert!(
                matches!(Journal::parse(lines.as_bytes()), Err(JournalError::Corrupt { .. })),
                "{order:?}"
            );
        }
        let missing = text(&all[..3]).replacen(&encode(&all[1], 1).unwrap(), "", 1);
        assert!(Journal::parse((missing + "x\n").as_bytes()).is_err(), "a line was taken out");
    }

    #[test]
    fn another_schema_is_told() {
        let Record::Begin(header) = records().remove(0) else { unreachable!() };
        let other = Record::Begin(Header { schema: 9, ..header });
        assert_eq!(
            Journal::parse(text(&[other]).as_bytes()),
            Err(JournalError::Schema { found: 9 })
        );
    }
}
