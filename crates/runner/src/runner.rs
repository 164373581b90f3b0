//! Needs of a run that its process provides.

use std::any::Any;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use host::exclusive::{Activity, ExclusiveLock};
use host::tune::JournalStore;
use model::{LoadRequest, Path};
use remote::Failure;

use crate::Database;
use crate::console::Console;

/// Folder of the journal of settings, and for tests a replacement of `/`.
#[derive(Debug, Clone)]
pub struct JournalFolder {
    pub folder: PathBuf,
    pub root: Option<PathBuf>,
}

impl Default for JournalFolder {
    fn default() -> Self {
        JournalFolder { folder: host::tune::DEFAULT_FOLDER.into(), root: None }
    }
}

impl JournalFolder {
    pub fn store(&self) -> JournalStore {
        JournalStore::new(&self.folder)
    }

    /// That of the near end of programs.
    pub(crate) fn near(&self) -> Self {
        self.below("near")
    }

    /// That of a place between the ends.
    pub(crate) fn place(&self, name: &str) -> Self {
        self.below(&format!("at-{name}"))
    }

    fn below(&self, name: &str) -> Self {
        JournalFolder { folder: self.folder.join(name), root: self.root.clone() }
    }
}

/// Takes the experiment lock; `explain` cannot run while it is held.
pub fn lock() -> Result<ExclusiveLock, Failure> {
    ExclusiveLock::acquire(Activity::Measuring)
        .map_err(|conflict| Failure::failed(conflict.to_string()))
}

/// Finds a path by its name, for a load that may be a capture.
pub type OpenPath<'a> = dyn Fn(&str, &LoadRequest) -> Result<Box<dyn Path>, Failure> + 'a;
/// Starts a process that restores the settings of a journal if this one is killed; it ends with the value.
pub type StartGuard<'a> = dyn Fn(&JournalFolder) -> Result<Box<dyn Any>, Failure> + 'a;

/// Runs requests.
pub struct Runner<'a> {
    pub find_path: &'a OpenPath<'a>,
    pub database: Database,
    pub journal: JournalFolder,
    pub start_guard: &'a StartGuard<'a>,
    /// Ends a run after the trial under way.
    pub stop: &'static AtomicBool,
    pub console: &'a dyn Console,
}

impl Runner<'_> {
    /// True once a stop was requested.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
