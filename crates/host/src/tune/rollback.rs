//! Giving settings back.

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use sys::netns::Netns;
use thiserror::Error;

use super::error::KnobError;
use super::journal::{Cell, CellState, Journal, Phase, Record, Writer};
use super::knob::{self, Knob};
use super::store::{Lock, Store, StoreError};
use super::system::{Place, System};
use super::target::Target;
use super::value::Value;
use crate::text::chain;

/// Why nothing could be given back.
#[derive(Debug, Error)]
pub enum RollbackError {
    /// There is nothing to give back.
    #[error("nothing is applied: there is no journal at {path}")]
    Nothing {
        /// Where it would be.
        path: String,
    },
    /// The journal could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The namespace or the host could not be opened.
    #[error(transparent)]
    Knob(#[from] KnobError),
}

/// What became of one setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Given {
    /// Id of the knob.
    pub knob: String,
    /// Where.
    pub target: Target,
    /// Value from before.
    pub before: Value,
    /// What became of it.
    #[serde(flatten)]
    pub fate: Fate,
}

/// What became of one setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Fate {
    /// It was as before all along.
    Unchanged,
    /// It is as before again.
    Restored,
    /// Somebody else changed it meanwhile: it was left, or put back to that.
    Foreign {
        /// What it is.
        found: Value,
    },
    /// It went with its interface or namespace.
    Gone,
    /// It could not be given back.
    Failed {
        /// Why.
        why: String,
    },
}

/// What became of all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Settings that were changed, or disturbed, or that somebody else changed.
    pub settings: Vec<Given>,
    /// Whether the machine was started anew since, so that nothing was left to give back.
    pub is_stale: bool,
}

impl Report {
    /// Settings that could not be given back; the journal stays while there are any.
    pub fn failures(&self) -> impl Iterator<Item = &Given> {
        self.settings.iter().filter(|given| matches!(given.fate, Fate::Failed { .. }))
    }

    /// The first of them, as a sentence.
    pub fn failure(&self) -> Option<String> {
        self.settings.iter().find_map(|given| match &given.fate {
            Fate::Failed { why } => Some(format!("{} of {}: {why}", given.knob, given.target)),
            _ => None,
        })
    }

    /// Settings that somebody else had changed.
    pub fn foreign(&self) -> impl Iterator<Item = &Given> {
        self.settings.iter().filter(|given| matches!(given.fate, Fate::Foreign { .. }))
    }
}

/// Gives back what the journal of `store` says was changed.
///
/// - `root`: see [`Place::root`].
/// - `why`: goes into the journal.
///
/// May be interrupted and begun again at any point.
pub fn rollback(
    store: &Store,
    lock: &Lock,
    root: Option<&Path>,
    why: &str,
) -> Result<Report, RollbackError> {
    let Some(journal) = store.read()? else {
        // A journal without its first line was begun and nothing changed since.
        if store.journal_file().exists() {
            store.close(lock)?;
            return Ok(Report { settings: Vec::new(), is_stale: false });
        }
        let path = store.journal_file().display().to_string();
        return Err(RollbackError::Nothing { path });
    };
    let place = Place { netns: journal.header.netns.clone(), root: root.map(Into::into) };
    let host = System::of(
        Netns::current().map_err(KnobError::from)?,
        Place { netns: None, ..place.clone() },
    )?;
    if boot_id() != journal.header.boot {
        store.close(lock)?;
        return Ok(Report { settings: Vec::new(), is_stale: true });
    }
    let system = find_namespace(&journal, &place)?;
    // What cannot be written down is given back all the same.
    let mut writer = store.resume(lock, &journal).ok();
    let report = undo(&journal, system.as_ref(), &host, writer.as_mut(), why);
    if report.failures().next().is_none() {
        store.close(lock)?;
    }
    Ok(report)
}

/// The namespace of a journal; `None` when it is gone, and its settings with it.
pub(super) fn find_namespace(
    journal: &Journal,
    place: &Place,
) -> Result<Option<System>, KnobError> {
    let inode = journal.header.netns_inode;
    let is_it = |netns: &Netns| netns.inode().is_ok_and(|found| found == inode);
    if let Some(netns) = Netns::open(place.netns_file()).ok().filter(is_it) {
        return System::of(netns, place.clone()).map(Some);
    }
    // The process or the name that stood for it may be gone, and others live in it on or hold it.
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes {
        let is_process = process.file_name().to_string_lossy().bytes().all(|b| b.is_ascii_digit());
        if !is_process {
            continue;
        }
        let path = process.path();
        let mut files = files_of(&path);
        if let Some(netns) = files.find_map(|file| Netns::open(file).ok().filter(is_it)) {
            return System::of(netns, place.clone()).map(Some);
        }
    }
    Ok(None)
}

/// Files that may stand for namespaces that a process lives in, or holds by a descriptor.
fn files_of(process: &Path) -> impl Iterator<Item = PathBuf> {
    let held = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let held = held.map(|descriptor| descriptor.path()).filter(|file| {
        // Where it was opened; `/` when that name is gone. Other files are better not touched: one
        // on a dead server would hold us up.
        let target = std::fs::read_link(file).unwrap_or_default();
        let text = target.to_string_lossy();
        text == "/"
            || text.starts_with("net:[")
            || text.contains("/netns/")
            || text.ends_with("/ns/net")
    });
    std::iter::once(process.join("ns/net")).chain(held)
}

/// One cell with what it takes to restore it.
struct Restored<'a> {
    number: usize,
    cell: &'a Cell,
    knob: Option<&'static dyn Knob>,
    /// `None` when its namespace is gone.
    system: Option<&'a System>,
    /// What it read before anything was undone.
    first: Option<Value>,
    foreign: Option<Value>,
    failure: Option<String>,
    is_gone: bool,
    was_set: bool,
}

/// Undoes, in three passes: judge who changed what, undo the steps from the last to the first, and
/// put right what undoing them disturbed.
fn undo(
    journal: &Journal,
    system: Option<&System>,
    host: &System,
    writer: Option<&mut Writer>,
    why: &str,
) -> Report {
    let mut cells: Vec<Restored<'_>> = journal
        .cells
        .iter()
        .enumerate()
        .map(|(number, cell)| Restored {
            number,
            cell,
            knob: knob::find(&cell.knob),
            system: if cell.target.is_in_netns() { system } else { Some(host) },
            first: None,
            foreign: None,
            failure: None,
            is_gone: false,
            was_set: false,
        })
        .collect();
    for restored in &mut cells {
        restored.look();
        if journal.phase == Phase::Unchanged {
            continue;
        }
        restored.foreign = match &journal.foreign {
            // Judged when it was first begun: since then the changes may be ours.
            Some(foreign) => foreign
                .iter()
                .find(|(number, _)| *number == restored.number)
                .map(|(_, value)| value.clone()),
            None => restored.judge(journal),
        };
    }
    if let Some(writer) = writer
        && journal.foreign.is_none()
        && journal.phase != Phase::Unchanged
    {
        let foreign = cells.iter().filter_map(|c| Some((c.number, c.foreign.clone()?))).collect();
        // It is given back even when that cannot be written down.
        let _unwritten = writer.append(&[Record::RollingBack { why: why.to_owned(), foreign }]);
    }
    if journal.phase != Phase::Unchanged {
        for restored in cells.iter_mut().rev().filter(|restored| restored.cell.wanted.is_some()) {
            let touched = journal.states[restored.number] != CellState::Untouched;
            if touched && restored.foreign.is_none() {
                restored.put(restored.cell.before.clone());
            }
        }
        for restored in &mut cells {
            let goal = restored.foreign.clone().unwrap_or_else(|| restored.cell.before.clone());
            restored.put(goal);
        }
    }
    let settings = cells.into_iter().filter_map(|restored| restored.report(journal)).collect();
    Report { settings, is_stale: false }
}

impl Restored<'_> {
    fn read(&self) -> Result<Value, KnobError> {
        match (self.knob, self.system) {
            (Some(knob), Some(system)) => knob.read(system, &self.cell.target),
            _ => Err(KnobError::NoTarget { target: self.cell.target.clone() }),
        }
    }

    fn look(&mut self) {
        self.first = self.read().ok();
        match (self.knob, self.system) {
            (None, _) => self.failure = Some("this program has no such knob".to_owned()),
            (_, None) => self.is_gone = true,
            (Some(_), Some(system)) => {
                let interface = self.cell.target.interface();
                self.is_gone = interface.is_some_and(|name| is_gone(system, name));
            }
        }
    }

    /// What somebody else made of it.
    fn judge(&self, journal: &Journal) -> Option<Value> {
        let first = self.first.as_ref()?;
        let same = |value: &Value| match self.knob {
            Some(knob) => knob.format().agrees(value.as_str(), first.as_str()),
            None => value == first,
        };
        let is_ours = same(&self.cell.before)
            || match &journal.states[self.number] {
                CellState::Changed(found) => same(found),
                // Being set when we were killed: nobody can tell, and it is likely ours.
                CellState::Begun => true,
                // The witnesses of a step that was under way may have been disturbed by it.
                CellState::Untouched => {
                    self.cell.wanted.is_none() && journal.states.contains(&CellState::Begun)
                }
            };
        (!is_ours).then(|| first.clone())
    }

    /// Sets it to `goal` unless it is that.
    fn put(&mut self, goal: Value) {
        let (Some(knob), Some(system)) = (self.knob, self.system) else {
            return;
        };
        if self.is_gone {
            return;
        }
        let target = &self.cell.target;
        let outcome = match knob.read(system, target) {
            Ok(now) if now == goal => Ok(()),
            Ok(_) => {
                self.was_set = true;
                knob.set_and_verify(system, target, &goal).map(drop)
            }
            Err(error) => Err(error),
        };
        self.failure = outcome.err().map(|error| chain(&error));
    }

    fn report(self, journal: &Journal) -> Option<Given> {
        let fate = match (self.failure, self.foreign) {
            (None, _) if self.is_gone => Fate::Gone,
            (Some(why), _) => Fate::Failed { why },
            (None, Some(found)) => Fate::Foreign { found },
            (None, None) if self.was_set => Fate::Restored,
            (None, None) => Fate::Unchanged,
        };
        let was_touched = journal.states[self.number] != CellState::Untouched;
        (was_touched || !matches!(fate, Fate::Unchanged | Fate::Gone)).then(|| Given {
            knob: self.cell.knob.clone(),
            target: self.cell.target.clone(),
            before: self.cell.before.clone(),
            fate,
        })
    }
}

fn is_gone(system: &System, interface: &str) -> bool {
    let listed = system.list_net(interface);
    listed.is_err_and(|error| {
        matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV))
            || error.kind() == io::ErrorKind::NotFound
    })
}

/// The kernel's id of this boot.
pub(super) fn boot_id() -> String {
    // Of the machine itself: a folder that stands for `/` is booted with it.
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}
