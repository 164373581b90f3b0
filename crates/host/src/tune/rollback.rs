//! Restoring settings from the journal.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use sys::netns::{Netns, NetnsId};
use thiserror::Error;

use super::error::KnobError;
use super::identity::{Identity, Whereabouts, locate};
use super::journal::{Entry, EntryState, Journal, Phase, Record, Writer};
use super::knob::Knob;
use super::registry;
use super::store::{JournalStore, JournalStoreError, Lock};
use super::system::{Place, System};
use super::target::Target;
use super::value::Value;
use crate::text::chain;

/// No setting was restored.
#[derive(Debug, Error)]
pub enum RollbackError {
    #[error("nothing is applied: there is no journal at {path}")]
    Nothing { path: String },
    #[error("the journal has no entry {entry}: `wirepath tune rollback` lists those that failed")]
    NoEntry { entry: usize },
    #[error("no setting was changed yet: undo the plan with `wirepath tune rollback`")]
    TooEarly,
    #[error(transparent)]
    Store(#[from] JournalStoreError),
    /// The namespace or the host could not be opened.
    #[error(transparent)]
    Knob(#[from] KnobError),
}

/// Outcome of the rollback for one setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RestoredSetting {
    /// Number of the entry in the journal.
    pub entry: usize,
    pub knob: String,
    pub target: Target,
    /// Where it is now, if its interface was renamed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub now_at: Option<Target>,
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
    /// Its interface, queue, interrupt, CPU or namespace no longer exists.
    Gone,
    /// The name or number of its interface or interrupt belongs to another one, which was left alone.
    Replaced {
        by: String,
    },
    /// The user gave it up.
    Forgotten,
    Failed {
        why: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RollbackReport {
    /// Settings that were changed or disturbed, by the plan or by another process.
    pub settings: Vec<RestoredSetting>,
    /// The machine was rebooted since, so that there was nothing to restore.
    pub is_stale: bool,
}

impl RollbackReport {
    /// Settings that could not be restored; the journal is kept while there are any.
    pub fn failures(&self) -> impl Iterator<Item = &RestoredSetting> {
        self.settings
            .iter()
            .filter(|setting| matches!(setting.outcome, RestoreOutcome::Failed { .. }))
    }

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
    store: &JournalStore,
    lock: &Lock,
    root: Option<&Path>,
    why: &str,
) -> Result<RollbackReport, RollbackError> {
    let journal = match store.read() {
        // Damage by a power cut: nothing that it records has survived.
        Err(error) if error.boot().is_some_and(|boot| boot != boot_id()) => {
            store.close(lock)?;
            return Ok(RollbackReport { settings: Vec::new(), is_stale: true });
        }
        journal => journal?,
    };
    let Some(journal) = journal else {
        // A journal without a complete first line was begun, and no setting changed yet.
        if store.journal_file().exists() {
            store.close(lock)?;
            return Ok(RollbackReport { settings: Vec::new(), is_stale: false });
        }
        let path = store.journal_file().display().to_string();
        return Err(RollbackError::Nothing { path });
    };
    if boot_id() != journal.header.boot {
        store.close(lock)?;
        return Ok(RollbackReport { settings: Vec::new(), is_stale: true });
    }
    let place = Place { netns: journal.header.netns.clone(), root: root.map(Into::into) };
    let host = System::from_netns(
        Netns::current().map_err(KnobError::from)?,
        Place { netns: None, ..place.clone() },
    )?;
    let system = find_namespace(&journal, &place)?;
    // Settings are restored even if that cannot be recorded.
    let mut writer = store.resume(lock, &journal).ok();
    let report = undo(&journal, system.as_ref(), &host, writer.as_mut(), why);
    if report.failures().next().is_none() {
        store.close(lock)?;
    }
    Ok(report)
}

/// Gives up entries of the journal: later rollbacks leave them alone.
pub fn forget(store: &JournalStore, lock: &Lock, entries: &[usize]) -> Result<(), RollbackError> {
    let path = || store.journal_file();
    let journal = store.read()?;
    let journal =
        journal.ok_or_else(|| RollbackError::Nothing { path: path().display().to_string() })?;
    if journal.phase == Phase::Unchanged {
        return Err(RollbackError::TooEarly);
    }
    if let Some(&entry) = entries.iter().find(|entry| **entry >= journal.entries.len()) {
        return Err(RollbackError::NoEntry { entry });
    }
    let records: Vec<_> = entries.iter().map(|&entry| Record::Forgotten { entry }).collect();
    let written = store.resume(lock, &journal)?.append(&records);
    Ok(written.map_err(|source| JournalStoreError::File { what: "write", path: path(), source })?)
}

/// Finds the namespace of a journal; `None` if it no longer exists, nor do its settings.
pub(super) fn find_namespace(
    journal: &Journal,
    place: &Place,
) -> Result<Option<System>, KnobError> {
    let header = &journal.header;
    let device = match header.netns_device {
        Some(device) => device,
        None => Netns::current()?.id()?.device,
    };
    let wanted = NetnsId { device, inode: header.netns_inode };
    let open = |file: &Path| -> Result<Option<System>, KnobError> {
        let netns = Netns::open(file).ok();
        let Some(netns) = netns.filter(|netns| netns.id().is_ok_and(|id| id == wanted)) else {
            return Ok(None);
        };
        let system = System::from_netns(netns, place.clone())?;
        // The inode of a namespace that is gone may belong to another one by now.
        let is_it = header.netns_cookie.is_none() || system.netns_cookie() == header.netns_cookie;
        Ok(is_it.then_some(system))
    };
    if let Some(system) = open(&place.netns_file())? {
        return Ok(Some(system));
    }
    // The process or name that identified it may be gone while other processes use or hold it.
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes {
        let is_process = process.file_name().to_string_lossy().bytes().all(|b| b.is_ascii_digit());
        if !is_process {
            continue;
        }
        // Files of other users' processes may be anything: only the namespace itself is opened.
        let path = process.path();
        let mut files = files_of(&path);
        if let Some(file) = files.find(|file| NetnsId::of_file(file).is_ok_and(|id| id == wanted)) {
            return open(&file);
        }
    }
    Ok(None)
}

/// Files that may refer to the namespace of a process or to one that it holds by a descriptor.
fn files_of(process: &Path) -> impl Iterator<Item = PathBuf> {
    let held = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let held = held.map(|descriptor| descriptor.path()).filter(|file| {
        // Path at which it was opened; `/` if that name is gone. Of no other file the identity is read:
        // one on an unreachable server might block.
        let target = std::fs::read_link(file).unwrap_or_default();
        let text = target.to_string_lossy();
        text == "/"
            || text.starts_with("net:[")
            || text.contains("/netns/")
            || text.ends_with("/ns/net")
    });
    std::iter::once(process.join("ns/net")).chain(held)
}

struct Restored<'a> {
    number: usize,
    entry: &'a Entry,
    knob: Option<&'static dyn Knob>,
    /// `None` if its namespace is gone.
    system: Option<&'a System>,
    place: Whereabouts,
    is_forgotten: bool,
    /// Value read before the first setting was restored.
    first: Option<Value>,
    foreign: Option<Value>,
    failure: Option<String>,
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
) -> RollbackReport {
    let mut entries: Vec<Restored<'_>> = Vec::new();
    // Most entries are of one interface, which needs to be found once: its old name and identity, and its name now.
    let mut interfaces: Vec<(&str, Option<&Identity>, String)> = Vec::new();
    for (number, entry) in journal.entries.iter().enumerate() {
        let system = if entry.target.is_in_netns() { system } else { Some(host) };
        let (name, identity) = (entry.target.interface(), entry.identity.as_ref());
        let known = interfaces.iter().find(|(old, of, _)| Some(*old) == name && *of == identity);
        let place = match (known, system) {
            (Some((.., now)), _) => Whereabouts::Here(entry.target.on_interface(now)),
            (None, Some(system)) => locate(system, &entry.target, identity),
            (None, None) => Whereabouts::Gone,
        };
        if let (None, Some(name), Whereabouts::Here(target)) = (known, name, &place)
            && let Some(now) = target.interface()
        {
            interfaces.push((name, identity, now.to_owned()));
        }
        entries.push(Restored {
            number,
            entry,
            knob: registry::find_recorded(&entry.knob),
            system,
            place,
            is_forgotten: journal.forgotten.contains(&number),
            first: None,
            foreign: None,
            failure: None,
            was_set: false,
        });
    }
    let foreign_before: Option<BTreeMap<usize, &Value>> = journal
        .foreign
        .as_ref()
        .map(|foreign| foreign.iter().rev().map(|(number, value)| (*number, value)).collect());
    let is_step_begun = journal.is_switching || journal.states.contains(&EntryState::Begun);
    for restored in &mut entries {
        restored.read_first();
        if journal.phase == Phase::Unchanged {
            continue;
        }
        restored.foreign = match &foreign_before {
            // Determined by the first rollback: later changes may be its own.
            Some(foreign) => foreign.get(&restored.number).map(|value| (*value).clone()),
            None => restored.foreign_value(journal, is_step_begun),
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
        for restored in entries.iter_mut().filter(|restored| restored.is_readable()) {
            let goal = restored.foreign.clone().unwrap_or_else(|| restored.entry.before.clone());
            restored.put(goal);
        }
    }
    let settings = entries.into_iter().filter_map(|restored| restored.report(journal)).collect();
    RollbackReport { settings, is_stale: false }
}

impl Restored<'_> {
    /// The knob, and where it can be set; `None` if the entry is to be left alone.
    fn reach(&self) -> Option<(&'static dyn Knob, &System, &Target)> {
        match &self.place {
            Whereabouts::Here(target) if !self.is_forgotten => {
                Some((self.knob?, self.system?, target))
            }
            _ => None,
        }
    }

    /// False for a command, which is run once and has no value.
    fn is_readable(&self) -> bool {
        self.knob.is_none_or(|knob| knob.is_readable())
    }

    fn read_first(&mut self) {
        self.first = self.reach().and_then(|(knob, system, target)| knob.read(system, target).ok());
        self.failure = match &self.place {
            Whereabouts::Doubtful { why } => Some(why.clone()),
            _ if self.knob.is_none() => Some("this program has no such knob".to_owned()),
            _ => None,
        };
    }

    /// Returns the value if another process changed it.
    ///
    /// - `is_step_begun`: a step was under way.
    fn foreign_value(&self, journal: &Journal, is_step_begun: bool) -> Option<Value> {
        let first = self.first.as_ref()?;
        let same = |value: &Value| match self.knob {
            Some(knob) => knob.format().agrees(value.as_str(), first.as_str()),
            None => value == first,
        };
        let is_ours = same(&self.entry.before)
            || match &journal.states[self.number] {
                // Interrupted while it was set: the outcome is unknown, and probably this change.
                EntryState::Begun => true,
                EntryState::Changed(_) if journal.is_switching => true,
                EntryState::Changed(found) => same(found),
                // The witnesses of a step that was under way may have been disturbed by it.
                EntryState::Untouched => self.entry.wanted.is_none() && is_step_begun,
            };
        (!is_ours).then(|| first.clone())
    }

    /// Sets it to `goal`, unless it has that value.
    fn put(&mut self, goal: Value) {
        let Some((knob, system, target)) = self.reach() else {
            return;
        };
        let (was_set, outcome) = match knob.read(system, target) {
            Err(KnobError::Unreadable { .. }) => {
                (true, knob.set_and_verify(system, target, &goal).map(drop))
            }
            Ok(now) if now == goal => (false, Ok(())),
            Ok(_) => (true, knob.set_and_verify(system, target, &goal).map(drop)),
            Err(error) => (false, Err(error)),
        };
        let failure = outcome.err().map(|error| chain(&error));
        // The device may have disappeared since it was found.
        let moved = failure.as_ref().map(|_| locate(system, target, self.entry.identity.as_ref()));
        if let Some(place) = moved {
            self.place = place;
        }
        self.was_set |= was_set;
        self.failure = failure;
    }

    /// True if it could not be set because its queue or route no longer exists, or the interrupt has no handler.
    fn is_gone(&self) -> bool {
        let Some((_, system, target)) = self.reach() else {
            return false;
        };
        match target {
            Target::RxQueue(name, queue) => system.lacks(&format!("{name}/queues/rx-{queue}")),
            Target::TxQueue(name, queue) => system.lacks(&format!("{name}/queues/tx-{queue}")),
            Target::Irq(irq) => system.irq_action(*irq).is_some_and(|action| action.is_empty()),
            Target::Route(route) => route.is_gone(system),
            _ => false,
        }
    }

    fn report(self, journal: &Journal) -> Option<RestoredSetting> {
        let was_touched = journal.states[self.number] != EntryState::Untouched;
        if !was_touched && matches!(self.place, Whereabouts::Doubtful { .. }) {
            return None;
        }
        let is_gone = self.failure.is_some() && self.is_gone();
        let now_at = match &self.place {
            Whereabouts::Here(target) if *target != self.entry.target => Some(target.clone()),
            _ => None,
        };
        let outcome = match (self.place, self.failure, self.foreign) {
            _ if self.is_forgotten => RestoreOutcome::Forgotten,
            (Whereabouts::Gone, ..) => RestoreOutcome::Gone,
            (Whereabouts::Replaced { by }, ..) => RestoreOutcome::Replaced { by },
            _ if is_gone => RestoreOutcome::Gone,
            (_, Some(why), _) => RestoreOutcome::Failed { why },
            (_, None, Some(found)) => RestoreOutcome::Foreign { found },
            (_, None, None) if self.was_set => RestoreOutcome::Restored,
            (_, None, None) => RestoreOutcome::Unchanged,
        };
        let is_news = !matches!(
            outcome,
            RestoreOutcome::Unchanged | RestoreOutcome::Gone | RestoreOutcome::Replaced { .. }
        );
        (was_touched || is_news).then(|| RestoredSetting {
            entry: self.number,
            knob: self.entry.knob.clone(),
            target: self.entry.target.clone(),
            now_at,
            before: self.entry.before.clone(),
            outcome,
        })
    }
}

pub(super) fn boot_id() -> String {
    // Always of the machine itself, even if another folder stands for `/`.
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}
