//! The journal's folder, and the lock that serialises changes.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::journal::{Journal, JournalError, Record, Writer};

/// Default folder of the journal.
pub const DEFAULT_FOLDER: &str = "/var/lib/wirepath/tune";

/// The journal could not be locked, read or written.
#[derive(Debug, Error)]
pub enum StoreError {
    #[error("another wirepath (process {pid}) is changing settings: wait for it, or stop it")]
    Busy {
        /// Process number, read from the lock file.
        pid: String,
    },
    #[error("cannot {what} {}", path.display())]
    File {
        /// Attempted operation.
        what: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "{} is damaged, so nothing was changed; it is a text file that lists the previous value of \
         each setting (`before`). Restore them by hand, then remove the file", path.display()
    )]
    Journal {
        path: PathBuf,
        #[source]
        source: JournalError,
    },
}

/// The folder of the journal.
#[derive(Debug, Clone)]
pub struct Store {
    folder: PathBuf,
}

/// Exclusive right to change settings, until dropped.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing is not enough: a child that was just forked has the descriptor until it executes its program.
        let _closing_unlocks_too = self.file.unlock();
    }
}

impl Store {
    /// - `folder`: created by the first lock.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Store { folder: folder.into() }
    }

    /// Journal of the applied plan.
    pub fn journal_file(&self) -> PathBuf {
        self.folder.join("journal")
    }

    /// Journal of the last plan that was rolled back.
    pub fn last_file(&self) -> PathBuf {
        self.folder.join("last")
    }

    /// Locks the folder against other processes that change settings.
    pub fn lock(&self) -> Result<Lock, StoreError> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)
            .map_err(|source| failed("create the folder", &self.folder, source))?;
        let path = self.folder.join("lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|source| failed("open", &path, source))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                let _unknown_stays_empty = file.take(16).read_to_string(&mut pid);
                return Err(StoreError::Busy { pid: pid.trim().to_owned() });
            }
            Err(TryLockError::Error(source)) => return Err(failed("lock", &path, source)),
        }
        file.set_len(0)
            .and_then(|()| file.write_all(format!("{}\n", std::process::id()).as_bytes()))
            .map_err(|source| failed("write", &path, source))?;
        Ok(Lock { file })
    }

    /// Reads the journal of the applied plan; `None` if no plan is applied.
    pub fn read(&self) -> Result<Option<Journal>, StoreError> {
        self.read_file(&self.journal_file())
    }

    /// Reads the journal of the last plan that was rolled back.
    pub fn read_last(&self) -> Result<Option<Journal>, StoreError> {
        self.read_file(&self.last_file())
    }

    fn read_file(&self, path: &Path) -> Result<Option<Journal>, StoreError> {
        let bytes = match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes.map_err(|source| failed("read", path, source))?,
        };
        Journal::parse(&bytes)
            .map_err(|source| StoreError::Journal { path: path.to_owned(), source })
    }

    /// Creates a journal; the records are on disk when this returns. On an error there is no journal.
    pub(super) fn begin(&self, _lock: &Lock, records: &[Record]) -> Result<Writer, StoreError> {
        let path = self.journal_file();
        let made = self.create(&path, records);
        if made.is_err() {
            // An incomplete journal correctly says that nothing was changed, but it blocks a retry.
            let _may_remain = fs::remove_file(&path);
        }
        made.map_err(|source| failed("write", &path, source))
    }

    fn create(&self, path: &Path, records: &[Record]) -> io::Result<Writer> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        let mut writer = Writer::new(file, 0);
        writer.append(records)?;
        // The directory entry has to be on disk as well.
        File::open(&self.folder)?.sync_all()?;
        Ok(writer)
    }

    /// Opens a journal that was read for appending; a truncated last line is removed.
    pub(super) fn resume(&self, _lock: &Lock, journal: &Journal) -> Result<Writer, StoreError> {
        let path = self.journal_file();
        let open = || {
            let mut file = OpenOptions::new().write(true).open(&path)?;
            file.set_len(journal.whole_bytes as u64)?;
            file.seek(SeekFrom::End(0))?;
            Ok(Writer::new(file, journal.record_count))
        };
        open().map_err(|source| failed("append to", &path, source))
    }

    /// Renames the journal to [`Self::last_file`]: no plan is applied.
    pub(super) fn close(&self, _lock: &Lock) -> Result<(), StoreError> {
        let path = self.journal_file();
        let close = || {
            fs::rename(&path, self.last_file())?;
            File::open(&self.folder)?.sync_all()
        };
        match close() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            closed => closed.map_err(|source| failed("rename", &path, source)),
        }
    }
}

fn failed(what: &'static str, path: &Path, source: io::Error) -> StoreError {
    StoreError::File { what, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_although_a_forked_child_has_its_descriptor() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path());
        let lock = store.lock().unwrap();
        let _of_the_child = lock.file.try_clone().unwrap();
        drop(lock);
        store.lock().unwrap();
    }

    #[test]
    fn busy_error_names_the_process_that_holds_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path().join("new"));
        let first = store.lock().unwrap();
        let error = store.lock().unwrap_err().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        drop(first);
        store.lock().unwrap();
    }

    #[test]
    fn error_of_a_damaged_journal_names_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path());
        assert_eq!(store.read().unwrap(), None);
        fs::write(store.journal_file(), "nonsense\nnonsense\n").unwrap();
        let error = store.read().unwrap_err();
        assert!(error.to_string().contains("journal"), "{error}");
        fs::write(store.journal_file(), "half a li").unwrap();
        assert_eq!(store.read().unwrap(), None);
    }
}
