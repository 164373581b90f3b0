//! Confirmation of applied settings within a time, or their rollback.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::apply::{ApplyError, Unconfirmed};
use super::journal::{Journal, Phase, Record};
use super::rollback::{RollbackReport, boot_id, rollback};
use super::store::{JournalStore, JournalStoreError};
use crate::text::chain;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Confirmation {
    /// The user keeps the settings.
    Confirmed,
    /// Another process rolled them back.
    Undone,
    RolledBack {
        cause: Unconfirmed,
        report: RollbackReport,
    },
}

/// Waits for a confirmation; rolls back after the deadline or if `stop` is set.
///
/// - `tick`: called every 100 ms with the remaining milliseconds.
pub fn await_confirmation(
    store: &JournalStore,
    root: Option<&Path>,
    mut confirm_by_ms: u64,
    stop: &AtomicBool,
    tick: &mut dyn FnMut(u64),
) -> Result<Confirmation, ApplyError> {
    loop {
        let left_ms = confirm_by_ms.saturating_sub(boot_clock_ms());
        let is_over = left_ms == 0 || stop.load(Ordering::Relaxed);
        let cause = if left_ms == 0 { Unconfirmed::TimedOut } else { Unconfirmed::Stopped };
        let stuck = |failure: String| ApplyError::Stuck { cause: Box::new(cause.into()), failure };
        // A process that confirms or rolls back at this moment holds the lock, and decides.
        let lock = match is_over.then(|| store.lock_within(Duration::ZERO)) {
            None | Some(Err(JournalStoreError::Busy { .. })) => None,
            Some(Ok(lock)) => Some(lock),
            Some(Err(error)) => return Err(stuck(chain(&error))),
        };
        match store.read().map(|journal| journal.map(|journal| journal.phase)) {
            Ok(Some(Phase::Confirmed)) => return Ok(Confirmation::Confirmed),
            Ok(None) => return Ok(Confirmation::Undone),
            // It was postponed, if need be at the last moment.
            Ok(Some(Phase::Applied(Some(by_ms)))) if by_ms > confirm_by_ms => {
                confirm_by_ms = by_ms;
                continue;
            }
            Ok(Some(_)) => {}
            // A file that cannot be opened now is retried until the deadline.
            Err(JournalStoreError::File { .. }) if !is_over => {}
            Err(error) => return Err(stuck(chain(&error))),
        }
        if let Some(lock) = lock {
            let report = rollback(store, &lock, root, &cause.to_string())
                .map_err(|error| stuck(chain(&error)))?;
            return match report.failure() {
                None => Ok(Confirmation::RolledBack { cause, report }),
                Some(failure) => Err(stuck(failure)),
            };
        }
        tick(left_ms);
        std::thread::sleep(Duration::from_millis(left_ms.clamp(1, 100)));
    }
}

/// Confirms the applied settings.
///
/// - `owner`: refuse settings that were not applied under this name.
pub fn confirm(store: &JournalStore, owner: Option<&str>) -> Result<Journal, ApplyError> {
    answer(store, owner, &Record::Confirmed, Phase::Confirmed)
}

/// Postpones the rollback of unconfirmed settings: it comes `within` from now. Settings that are confirmed
/// already stay so.
///
/// - `owner`: refuse settings that were not applied under this name.
pub fn postpone(
    store: &JournalStore,
    owner: Option<&str>,
    within: Duration,
) -> Result<Journal, ApplyError> {
    let confirm_by_ms = Some(deadline_ms(within));
    answer(store, owner, &Record::Applied { confirm_by_ms }, Phase::Applied(confirm_by_ms))
}

/// Records the answer to settings that wait for one.
fn answer(
    store: &JournalStore,
    owner: Option<&str>,
    record: &Record,
    phase: Phase,
) -> Result<Journal, ApplyError> {
    // Asked without the lock first: a question that comes too early must not keep it from the process that is about to apply.
    current(store, owner)?;
    // An answer to settings that are being changed is not meant for those that come.
    let lock = store.lock_within(Duration::ZERO)?;
    let journal = current(store, owner)?;
    match journal.phase {
        Phase::Confirmed | Phase::Applied(None) => return Ok(journal),
        Phase::Applied(Some(by_ms)) if boot_clock_ms() <= by_ms => {}
        Phase::Applied(Some(_)) => return Err(ApplyError::ConfirmedTooLate),
        _ => return Err(ApplyError::ConfirmedTooEarly),
    }
    let mut writer = store.resume(&lock, &journal)?;
    writer.append(std::slice::from_ref(record)).map_err(|source: io::Error| {
        let path = store.journal_file();
        JournalStoreError::File { what: "write", path, source }
    })?;
    Ok(Journal { phase, ..journal })
}

/// Reads the journal of settings that were applied under `owner`. Those of an earlier boot are gone.
fn current(store: &JournalStore, owner: Option<&str>) -> Result<Journal, ApplyError> {
    let journal = store.read()?.filter(|journal| journal.header.boot == boot_id());
    let journal = journal.ok_or(ApplyError::NothingToConfirm)?;
    match owner.filter(|owner| !journal.is_of(Some(owner))) {
        None => Ok(journal),
        Some(owner) => {
            let found = journal.owner().to_owned();
            Err(ApplyError::OtherOwner { owner: owner.to_owned(), found })
        }
    }
}

/// Time on [`boot_clock_ms`] at which `within` has passed.
pub(super) fn deadline_ms(within: Duration) -> u64 {
    boot_clock_ms().saturating_add(u64::try_from(within.as_millis()).unwrap_or(u64::MAX))
}

/// CLOCK_BOOTTIME in milliseconds: it advances while the machine is suspended and cannot be set.
pub fn boot_clock_ms() -> u64 {
    sys::clock::boottime_ns() / 1_000_000
}
