//! Machine-wide lock: experiments and packet tracing exclude each other, and a measurement of a fleet and a live
//! proof exclude both and each other.
//!
//! Each activity has a file that is locked while a process is active. The kernel releases the lock
//! however the process ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use thiserror::Error;

/// An activity that cannot run beside the other one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// An experiment: its figures include the cost of tracing.
    Measuring,
    /// Packet tracing: adds a cost to every packet.
    Tracing,
    /// A proof on a running service: measures and traces alone, because its settings change the figures of all others.
    Live,
}

/// The other activity is running on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Conflict {
    #[error(
        "cannot trace packets while a `wirepath prove` runs on this machine: tracing would distort \
         its figures; wait for it, or stop it"
    )]
    Measuring,
    #[error(
        "cannot measure while packets are traced on this machine (`wirepath explain`, `feed noise`, `feed listen \
         --late`): that would distort the figures; wait for it, or stop it"
    )]
    Tracing,
    #[error(
        "cannot measure while a `wirepath fleet` measures on this machine: both would distort the other's \
         figures; wait for it, or stop it"
    )]
    Fleet,
    #[error(
        "cannot measure for a fleet while a `wirepath prove` runs on this machine: both would distort the \
         other's figures; wait for it, or stop it"
    )]
    Proving,
    #[error(
        "a live proof runs on this machine (`wirepath tune prove --live`): its settings would distort the figures, \
         and this its own; wait for it, or stop it"
    )]
    Live,
    #[error(
        "cannot prove a plan live while a `wirepath prove` runs on this machine: both would distort the other's \
         figures; wait for it, or stop it"
    )]
    LiveBesideProof,
}

/// Set in the environment of experiments that a fleet runs, which its lock lets pass.
pub const OF_FLEET: &str = "WIREPATH_OF_FLEET";

/// True while this process holds the lock of a fleet, which lets its own experiments pass.
static IS_HELD_HERE: AtomicBool = AtomicBool::new(false);

/// File that is locked by a measurement of a fleet.
const FLEET_FILE: &str = "wirepath-fleet";
const MEASURING_FILE: &str = "wirepath-measuring";
const TRACING_FILE: &str = "wirepath-following";
const LIVE_FILE: &str = "wirepath-live";

/// Holds one activity's lock until dropped.
#[derive(Debug)]
#[must_use = "the lock is released when this is dropped"]
pub struct ExclusiveLock {
    /// `None` if the lock file cannot be created; locking is then disabled.
    own: Option<File>,
    /// True for the lock of a fleet that lets experiments of this process pass.
    is_alone: bool,
}

impl Drop for ExclusiveLock {
    fn drop(&mut self) {
        if self.is_alone {
            IS_HELD_HERE.store(false, Ordering::Relaxed);
        }
        // A child that was just forked has the descriptor until it executes its program.
        let _closing_unlocks_too = self.own.as_ref().map(File::unlock);
    }
}

impl ExclusiveLock {
    /// Locks an activity. Any number of processes may hold the lock of the same one, but for [`Activity::Live`].
    ///
    /// The files are in `/run/lock`, or in the folder for temporary files if that is missing;
    /// `WIREPATH_LOCKS` names another folder.
    pub fn acquire(activity: Activity) -> Result<ExclusiveLock, Conflict> {
        let folder = folder();
        let is_of_fleet =
            IS_HELD_HERE.load(Ordering::Relaxed) || std::env::var_os(OF_FLEET).is_some();
        if activity != Activity::Tracing && !is_of_fleet && is_locked(&folder.join(FLEET_FILE)) {
            return Err(Conflict::Fleet);
        }
        ExclusiveLock::acquire_in(&folder, activity)
    }

    /// Locks the machine for one fleet: no other experiment or tracing runs or begins meanwhile, but those
    /// of this process and those with [`OF_FLEET`] in their environment.
    pub fn acquire_alone() -> Result<ExclusiveLock, Conflict> {
        let mut lock = ExclusiveLock::acquire_alone_in(&folder())?;
        lock.is_alone = true;
        IS_HELD_HERE.store(true, Ordering::Relaxed);
        Ok(lock)
    }

    fn acquire_alone_in(folder: &Path) -> Result<ExclusiveLock, Conflict> {
        let own = open(&folder.join(FLEET_FILE)).ok();
        if own.as_ref().is_some_and(|own| !retry(|| own.try_lock())) {
            return Err(Conflict::Fleet);
        }
        // Own lock first, as below.
        let others = [
            (MEASURING_FILE, Conflict::Proving),
            (TRACING_FILE, Conflict::Tracing),
            (LIVE_FILE, Conflict::Live),
        ];
        match others.into_iter().find(|(name, _)| is_locked(&folder.join(name))) {
            Some((_, conflict)) => Err(conflict),
            None => Ok(ExclusiveLock { own, is_alone: false }),
        }
    }

    fn acquire_in(folder: &Path, activity: Activity) -> Result<ExclusiveLock, Conflict> {
        let (own, others) = match activity {
            Activity::Measuring => {
                (MEASURING_FILE, [(TRACING_FILE, Conflict::Tracing), (LIVE_FILE, Conflict::Live)])
            }
            Activity::Tracing => {
                (TRACING_FILE, [(MEASURING_FILE, Conflict::Measuring), (LIVE_FILE, Conflict::Live)])
            }
            Activity::Live => (
                LIVE_FILE,
                [(MEASURING_FILE, Conflict::LiveBesideProof), (TRACING_FILE, Conflict::Tracing)],
            ),
        };
        // Own lock first: of two processes that start at once, at least one sees the other.
        let own = match (activity, open(&folder.join(own)).ok()) {
            (Activity::Live, Some(own)) if !retry(|| own.try_lock()) => return Err(Conflict::Live),
            (Activity::Live, own) => own,
            (_, own) => own.filter(|own| retry(|| own.try_lock_shared())),
        };
        match others.into_iter().find(|(name, _)| is_locked(&folder.join(name))) {
            Some((_, conflict)) => Err(conflict),
            None => Ok(ExclusiveLock { own, is_alone: false }),
        }
    }
}

fn folder() -> PathBuf {
    let run_lock = Path::new("/run/lock");
    let chosen = std::env::var_os("WIREPATH_LOCKS").map(PathBuf::from);
    chosen.unwrap_or_else(|| {
        if run_lock.is_dir() { run_lock.to_owned() } else { std::env::temp_dir() }
    })
}

/// True if another process holds a lock of the file.
fn is_locked(file: &Path) -> bool {
    open(file).is_ok_and(|other| !retry(|| other.try_lock()))
}

/// Tries for 45 ms: other processes lock a file briefly to test it.
fn retry(try_lock: impl Fn() -> Result<(), TryLockError>) -> bool {
    // A file system without locks refuses no process.
    !matches!(lock_within(Duration::from_millis(45), try_lock), Err(TryLockError::WouldBlock))
}

/// Tries a lock that another process may hold until it is free, for `patience` at most. Tries are counted,
/// so that a process that gets no CPU makes as many.
pub(crate) fn lock_within(
    patience: Duration,
    try_lock: impl Fn() -> Result<(), TryLockError>,
) -> Result<(), TryLockError> {
    const RETRY_INTERVAL: Duration = Duration::from_millis(5);
    for _ in 0..patience.as_millis() / RETRY_INTERVAL.as_millis() {
        match try_lock() {
            Err(TryLockError::WouldBlock) => thread::sleep(RETRY_INTERVAL),
            ended => return ended,
        }
    }
    try_lock()
}

/// Opens for reading, which suffices to lock; creates only what is missing. In a world-writable
/// folder the kernel refuses O_CREAT on files of other users.
///
/// Source: proc_sys_fs(5), protected_regular.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK);
    match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        opened => return opened,
    }
    options.write(true).create_new(true).mode(0o644);
    match options.open(path) {
        // Another process created it first.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => File::open(path),
        created => created,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activities_exclude_each_other_but_not_themselves() {
        let folder = tempfile::tempdir().unwrap();
        let acquire = |activity| ExclusiveLock::acquire_in(folder.path(), activity);
        let first = acquire(Activity::Measuring).unwrap();
        let second = acquire(Activity::Measuring).unwrap();
        assert_eq!(acquire(Activity::Tracing).unwrap_err(), Conflict::Measuring);
        drop(first);
        assert_eq!(acquire(Activity::Tracing).unwrap_err(), Conflict::Measuring);
        drop(second);
        let tracing = acquire(Activity::Tracing).unwrap();
        assert_eq!(acquire(Activity::Measuring).unwrap_err(), Conflict::Tracing);
        drop(tracing);
        drop(acquire(Activity::Measuring).unwrap());
    }

    #[test]
    fn fleet_measures_alone() {
        let folder = tempfile::tempdir().unwrap();
        let alone = || ExclusiveLock::acquire_alone_in(folder.path());
        for (activity, conflict) in
            [(Activity::Measuring, Conflict::Proving), (Activity::Tracing, Conflict::Tracing)]
        {
            let other = ExclusiveLock::acquire_in(folder.path(), activity).unwrap();
            assert_eq!(alone().unwrap_err(), conflict);
            drop(other);
        }
        let first = alone().unwrap();
        assert_eq!(alone().unwrap_err(), Conflict::Fleet);
        assert!(is_locked(&folder.path().join(FLEET_FILE)));
        drop(first);
        drop(alone().unwrap());
    }

    #[test]
    fn live_proof_excludes_experiments_tracing_fleets_and_a_second_one() {
        let folder = tempfile::tempdir().unwrap();
        let acquire = |activity| ExclusiveLock::acquire_in(folder.path(), activity);
        let live = acquire(Activity::Live).unwrap();
        for activity in [Activity::Live, Activity::Measuring, Activity::Tracing] {
            assert_eq!(acquire(activity).unwrap_err(), Conflict::Live, "{activity:?}");
        }
        assert_eq!(ExclusiveLock::acquire_alone_in(folder.path()).unwrap_err(), Conflict::Live);
        drop(live);
        for (activity, conflict) in [
            (Activity::Measuring, Conflict::LiveBesideProof),
            (Activity::Tracing, Conflict::Tracing),
        ] {
            let other = acquire(activity).unwrap();
            assert_eq!(acquire(Activity::Live).unwrap_err(), conflict);
            drop(other);
        }
        drop(acquire(Activity::Live).unwrap());
    }

    #[test]
    fn without_a_folder_locking_is_disabled() {
        let folder = Path::new("/nonexistent/folder");
        let _measuring = ExclusiveLock::acquire_in(folder, Activity::Measuring).unwrap();
        let _tracing = ExclusiveLock::acquire_in(folder, Activity::Tracing).unwrap();
    }
}
