//! Restoring settings from the journal.

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use sys::netns::Netns;
use thiserror::Error;

use super::error::KnobError;
use super::journal::{Entry, EntryState, Journal, Phase, Record, Writer};
use super::knob::Knob;
use super::registry;
use super::store::{Lock, Store, StoreError};
use super::system::{Place, System};
use super::target::Target;
use super::value::Value;
use crate::text::chain;

/// No setting was restored.
#[derive(Debug, Error)]
pub enum RollbackError {
    #[error("nothing is applied: there is no journal at {path}")]
    Nothing { path: String },
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The namespace or the host could not be opened.
    #[error(transparent)]
    Knob(#[from] KnobError),
}

/// Outcome of the rollback for one setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RestoredSetting {
    pub knob: String,
    pub target: Target,
    /// Value before the plan was applied.
    pub before: Value,
    #[serde(flatten)]
    pub outcome: RestoreOutcome,
}

/// Outcome of the rollback for one setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum RestoreOutcome {
    /// The setting already had its previous value.
    Unchanged,
    Restored,
    /// Another process changed it to this value, which was kept.
    Foreign {
        found: Value,
    },
    /// Its interface or namespace no longer exists.
    Gone,
    Failed {
        why: String,
    },
}

/// Outcome of a rollback.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Settings that were changed or disturbed, by the plan or by another process.
    pub settings: Vec<RestoredSetting>,
    /// The machine was rebooted since, so that there was nothing to restore.
    pub is_stale: bool,
}

impl Report {
    /// Settings that could not be restored; the journal is kept while there are any.
    pub fn failures(&self) -> impl Iterator<Item = &RestoredSetting> {
        self.settings
            .iter()
            .filter(|setting| matches!(setting.outcome, RestoreOutcome::Failed { .. }))
    }

    /// Describes the first failure.
    pub fn failure(&self) -> Option<String> {
        self.settings.iter().find_map(|setting| match &setting.outcome {
            RestoreOutcome::Failed { why } => {
                Some(format!("{} of {}: {why}", setting.knob, setting.target))
            }
            _ => None,
        })
    }

    /// Settings that another process had changed.
    pub fn foreign(&self) -> impl Iterator<Item = &RestoredSetting> {
        self.settings
            .iter()
            .filter(|setting| matches!(setting.outcome, RestoreOutcome::Foreign { .. }))
    }
}

/// Restores the settings recorded in the journal of `store`.
///
/// - `root`: see [`Place::root`].
/// - `why`: reason, recorded in the journal.
///
/// It may be interrupted and repeated at any point.
pub fn rollback(
    store: &Store,
    lock: &Lock,
    root: Option<&Path>,
    why: &str,
) -> Result<Report, RollbackError> {
    let Some(journal) = store.read()? else {
        // A journal without a complete first line was begun, and no setting changed yet.
        if store.journal_file().exists() {
            store.close(lock)?;
            return Ok(Report { settings: Vec::new(), is_stale: false });
        }
        let path = store.journal_file().display().to_string();
        return Err(RollbackError::Nothing { path });
    };
    let place = Place { netns: journal.header.netns.clone(), root: root.map(Into::into) };
    let host = System::from_netns(
        Netns::current().map_err(KnobError::from)?,
        Place { netns: None, ..place.clone() },
    )?;
    if boot_id() != journal.header.boot {
        store.close(lock)?;
        return Ok(Report { settings: Vec::new(), is_stale: true });
    }
    let system = find_namespace(&journal, &place)?;
    // Settings are restored even if that cannot be recorded.
    let mut writer = store.resume(lock, &journal).ok();
    let report = undo(&journal, system.as_ref(), &host, writer.as_mut(), why);
    if report.failures().next().is_none() {
        store.close(lock)?;
    }
    Ok(report)
}

/// Finds the namespace of a journal; `None` if it no longer exists, nor do its settings.
pub(super) fn find_namespace(
    journal: &Journal,
    place: &Place,
) -> Result<Option<System>, KnobError> {
    let inode = journal.header.netns_inode;
    let is_it = |netns: &Netns| netns.inode().is_ok_and(|found| found == inode);
    if let Some(netns) = Netns::open(place.netns_file()).ok().filter(is_it) {
        return System::from_netns(netns, place.clone()).map(Some);
    }
    // The process or name that identified it may be gone while other processes use or hold it.
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes {
        let is_process = process.file_name().to_string_lossy().bytes().all(|b| b.is_ascii_digit());
        if !is_process {
            continue;
        }
        let path = process.path();
        let mut files = files_of(&path);
        if let Some(netns) = files.find_map(|file| Netns::open(file).ok().filter(is_it)) {
            return System::from_netns(netns, place.clone()).map(Some);
        }
    }
    Ok(None)
}

/// Files that may refer to the namespace of a process or to one that it holds by a descriptor.
fn files_of(process: &Path) -> impl Iterator<Item = PathBuf> {
    let held = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let held = held.map(|descriptor| descriptor.path()).filter(|file| {
        // Path at which it was opened; `/` if that name is gone. Other files are not opened: one on
        // an unreachable server would block.
        let target = std::fs::read_link(file).unwrap_or_default();
        let text = target.to_string_lossy();
        text == "/"
            || text.starts_with("net:[")
            || text.contains("/netns/")
            || text.ends_with("/ns/net")
    });
    std::iter::once(process.join("ns/net")).chain(held)
}

/// State of restoring one entry.
struct Restored<'a> {
    number: usize,
    entry: &'a Entry,
    knob: Option<&'static dyn Knob>,
    /// `None` if its namespace is gone.
    system: Option<&'a System>,
    /// Value read before the first setting was restored.
    first: Option<Value>,
    foreign: Option<Value>,
    failure: Option<String>,
    is_gone: bool,
    was_set: bool,
}

/// Restores settings in three passes: find those that another process changed, undo the steps from
/// the last to the first, and correct the side effects of undoing them.
fn undo(
    journal: &Journal,
    system: Option<&System>,
    host: &System,
    writer: Option<&mut Writer>,
    why: &str,
) -> Report {
    let mut entries: Vec<Restored<'_>> = journal
        .entries
        .iter()
        .enumerate()
        .map(|(number, entry)| Restored {
            number,
            entry,
            knob: registry::find(&entry.knob),
            system: if entry.target.is_in_netns() { system } else { Some(host) },
            first: None,
            foreign: None,
            failure: None,
            is_gone: false,
            was_set: false,
        })
        .collect();
    for restored in &mut entries {
        restored.read_first();
        if journal.phase == Phase::Unchanged {
            continue;
        }
        restored.foreign = match &journal.foreign {
            // Determined by the first rollback: later changes may be its own.
            Some(foreign) => foreign
                .iter()
                .find(|(number, _)| *number == restored.number)
                .map(|(_, value)| value.clone()),
            None => restored.foreign_value(journal),
        };
    }
    if let Some(writer) = writer
        && journal.foreign.is_none()
        && journal.phase != Phase::Unchanged
    {
        let foreign = entries.iter().filter_map(|c| Some((c.number, c.foreign.clone()?))).collect();
        // Settings are restored even if that cannot be recorded.
        let _unwritten = writer.append(&[Record::RollingBack { why: why.to_owned(), foreign }]);
    }
    if journal.phase != Phase::Unchanged {
        for restored in entries.iter_mut().rev().filter(|restored| restored.entry.wanted.is_some())
        {
            let touched = journal.states[restored.number] != EntryState::Untouched;
            if touched && restored.foreign.is_none() {
                restored.put(restored.entry.before.clone());
            }
        }
        for restored in &mut entries {
            let goal = restored.foreign.clone().unwrap_or_else(|| restored.entry.before.clone());
            restored.put(goal);
        }
    }
    let settings = entries.into_iter().filter_map(|restored| restored.report(journal)).collect();
    Report { settings, is_stale: false }
}

impl Restored<'_> {
    fn read(&self) -> Result<Value, KnobError> {
        match (self.knob, self.system) {
            (Some(knob), Some(system)) => knob.read(system, &self.entry.target),
            _ => Err(KnobError::NoTarget { target: self.entry.target.clone() }),
        }
    }

    fn read_first(&mut self) {
        self.first = self.read().ok();
        match (self.knob, self.system) {
            (None, _) => self.failure = Some("this program has no such knob".to_owned()),
            (_, None) => self.is_gone = true,
            (Some(_), Some(system)) => {
                let interface = self.entry.target.interface();
                self.is_gone = interface.is_some_and(|name| is_gone(system, name));
            }
        }
    }

    /// Returns the value if another process changed it.
    fn foreign_value(&self, journal: &Journal) -> Option<Value> {
        let first = self.first.as_ref()?;
        let same = |value: &Value| match self.knob {
            Some(knob) => knob.format().agrees(value.as_str(), first.as_str()),
            None => value == first,
        };
        let is_ours = same(&self.entry.before)
            || match &journal.states[self.number] {
                EntryState::Changed(found) => same(found),
                // Interrupted while it was set: the outcome is unknown, and probably this change.
                EntryState::Begun => true,
                // The witnesses of a step that was under way may have been disturbed by it.
                EntryState::Untouched => {
                    self.entry.wanted.is_none() && journal.states.contains(&EntryState::Begun)
                }
            };
        (!is_ours).then(|| first.clone())
    }

    /// Sets it to `goal`, unless it has that value.
    fn put(&mut self, goal: Value) {
        let (Some(knob), Some(system)) = (self.knob, self.system) else {
            return;
        };
        if self.is_gone {
            return;
        }
        let target = &self.entry.target;
        let outcome = match knob.read(system, target) {
            Ok(now) if now == goal => Ok(()),
            Ok(_) => {
                self.was_set = true;
                knob.set_and_verify(system, target, &goal).map(drop)
            }
            Err(error) => Err(error),
        };
        let failure = outcome.err().map(|error| chain(&error));
        // The interface may have been deleted since the value was read first.
        let interface = target.interface().filter(|_| failure.is_some());
        self.is_gone = interface.is_some_and(|name| is_gone(system, name));
        self.failure = failure.filter(|_| !self.is_gone);
    }

    fn report(self, journal: &Journal) -> Option<RestoredSetting> {
        let outcome = match (self.failure, self.foreign) {
            (None, _) if self.is_gone => RestoreOutcome::Gone,
            (Some(why), _) => RestoreOutcome::Failed { why },
            (None, Some(found)) => RestoreOutcome::Foreign { found },
            (None, None) if self.was_set => RestoreOutcome::Restored,
            (None, None) => RestoreOutcome::Unchanged,
        };
        let was_touched = journal.states[self.number] != EntryState::Untouched;
        (was_touched || !matches!(outcome, RestoreOutcome::Unchanged | RestoreOutcome::Gone)).then(
            || RestoredSetting {
                knob: self.entry.knob.clone(),
                target: self.entry.target.clone(),
                before: self.entry.before.clone(),
                outcome,
            },
        )
    }
}

fn is_gone(system: &System, interface: &str) -> bool {
    let listed = system.list_net(interface);
    listed.is_err_and(|error| {
        matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV))
            || error.kind() == io::ErrorKind::NotFound
    })
}

/// Returns the kernel's boot id.
pub(super) fn boot_id() -> String {
    // Always of the machine itself, even if another folder stands for `/`.
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}
