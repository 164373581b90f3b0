//! Where the journal lies, and who may write it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::journal::{Journal, JournalError, Record, Writer};

/// Where the journal lies unless told.
pub const DEFAULT_FOLDER: &str = "/var/lib/wirepath/tune";

/// Why the journal could not be read or written.
#[derive(Debug, Error)]
pub enum StoreError {
    /// Another process is changing settings.
    #[error("another wirepath (process {pid}) is changing settings: wait for it, or end it")]
    Busy {
        /// Its number, as it wrote it.
        pid: String,
    },
    /// The folder or a file in it cannot be had.
    #[error("cannot {what} {}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// The journal makes no sense.
    #[error(
        "{} cannot be trusted, so nothing was changed; it is text, and says what each setting was \
         (`before`). Once they are as they should be, remove it", path.display()
    )]
    Journal {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: JournalError,
    },
}

/// The folder of the journal.
#[derive(Debug, Clone)]
pub struct Store {
    folder: PathBuf,
}

/// The right to change settings, until dropped.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Store {
    /// That of this folder, which need not exist yet.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Store { folder: folder.into() }
    }

    /// The journal of what is applied.
    pub fn journal_file(&self) -> PathBuf {
        self.folder.join("journal")
    }

    /// The journal of what was applied last and is not any more.
    pub fn last_file(&self) -> PathBuf {
        self.folder.join("last")
    }

    /// Makes sure that no other process changes settings by this folder meanwhile.
    pub fn lock(&self) -> Result<Lock, StoreError> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)
            .map_err(|source| failed("make the folder", &self.folder, source))?;
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
        Ok(Lock { _file: file })
    }

    /// The journal of what is applied; `None` when nothing is.
    pub fn read(&self) -> Result<Option<Journal>, StoreError> {
        self.read_file(&self.journal_file())
    }

    /// The journal of what was applied last and given back.
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

    /// Begins a journal; the records are on disk when this returns, or there is none.
    pub(super) fn begin(&self, _lock: &Lock, records: &[Record]) -> Result<Writer, StoreError> {
        let path = self.journal_file();
        let made = self.create(&path, records);
        if made.is_err() {
            // Half a journal says that nothing was changed, which is so; but it is in the way.
            let _in_the_way = fs::remove_file(&path);
        }
        made.map_err(|source| failed("write", &path, source))
    }

    fn create(&self, path: &Path, records: &[Record]) -> io::Result<Writer> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        let mut writer = Writer::new(file, 0);
        writer.append(records)?;
        // The name has to be on disk as well.
        File::open(&self.folder)?.sync_all()?;
        Ok(writer)
    }

    /// Goes on with a journal that was read; a line that was cut off is cut away.
    pub(super) fn resume(&self, _lock: &Lock, journal: &Journal) -> Result<Writer, StoreError> {
        let path = self.journal_file();
        let open = || {
            let mut file = OpenOptions::new().write(true).open(&path)?;
            file.set_len(journal.whole_bytes as u64)?;
            file.seek(SeekFrom::End(0))?;
            Ok(Writer::new(file, journal.record_count))
        };
        open().map_err(|source| failed("go on with", &path, source))
    }

    /// Puts the journal aside: nothing is applied any more.
    pub(super) fn close(&self, _lock: &Lock) -> Result<(), StoreError> {
        let path = self.journal_file();
        let close = || {
            fs::rename(&path, self.last_file())?;
            File::open(&self.folder)?.sync_all()
        };
        match close() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            closed => closed.map_err(|source| failed("put aside", &path, source)),
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
    fn a_second_holder_is_told_who_the_first_is() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path().join("new"));
        let first = store.lock().unwrap();
        let error = store.lock().unwrap_err().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        drop(first);
        store.lock().unwrap();
    }

    #[test]
    fn a_damaged_journal_is_told_with_its_file() {
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
