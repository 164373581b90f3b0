//! The journal's folder, and the lock that serialises changes.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

use super::files::{self, Appended};
use super::journal::{BYTES_MAX, Journal, JournalError, Record, Writer};
use crate::exclusive;

pub const DEFAULT_FOLDER: &str = "/var/lib/wirepath/tune";

/// Longest wait for a process that has done its work, or only looks.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest failure of the guard that is read.
const GUARD_BYTES_MAX: u64 = 64 << 10;

/// The journal could not be locked, read or written.
#[derive(Debug, Error)]
pub enum JournalStoreError {
    #[error("another wirepath (process {pid}) is changing settings: wait for it, or stop it")]
    Busy {
        /// Process number, read from the lock file.
        pid: String,
    },
    #[error("cannot {what} {}", path.display())]
    File {
        what: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Another user could have written it, or could replace it.
    #[error("{} {why}: it says which settings root restores, so name another folder with --state, or mend its owner and mode", path.display())]
    Untrusted { path: PathBuf, why: String },
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

impl JournalStoreError {
    /// True if this user may not read what is there.
    pub fn is_denied(&self) -> bool {
        match self {
            JournalStoreError::File { source, .. } => {
                source.kind() == io::ErrorKind::PermissionDenied
            }
            _ => false,
        }
    }

    /// Boot of the machine that a damaged journal is of, if its first line can be read.
    pub(super) fn boot(&self) -> Option<&str> {
        match self {
            JournalStoreError::Journal { source: JournalError::Corrupt { boot, .. }, .. } => {
                boot.as_deref()
            }
            _ => None,
        }
    }
}

#[derive(Debug, Clone)]
pub struct JournalStore {
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

impl JournalStore {
    /// - `folder`: created by the first lock.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        JournalStore { folder: folder.into() }
    }

    pub fn journal_file(&self) -> PathBuf {
        self.folder.join("journal")
    }

    /// Journal of the last plan that was rolled back.
    pub fn last_file(&self) -> PathBuf {
        self.folder.join("last")
    }

    /// Failures of the guard that rolls back what was not confirmed; absent if there are none.
    pub fn guard_file(&self) -> PathBuf {
        self.folder.join("guard")
    }

    /// Locks the folder against other processes that change settings. Waits a moment for one that is about
    /// to end.
    pub fn lock(&self) -> Result<Lock, JournalStoreError> {
        self.lock_within(LOCK_TIMEOUT)
    }

    /// As [`Self::lock`].
    ///
    /// - `patience`: longest wait for another process.
    pub fn lock_within(&self, patience: Duration) -> Result<Lock, JournalStoreError> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)
            .map_err(|source| failed("create the folder", &self.folder, source))?;
        let folder = fs::symlink_metadata(&self.folder)
            .map_err(|source| failed("read the owner of", &self.folder, source))?;
        if !folder.is_dir() {
            let why = "is a symbolic link".to_owned();
            return Err(JournalStoreError::Untrusted { path: self.folder.clone(), why });
        }
        trusted(&self.folder, &folder)?;
        let path = self.folder.join("lock");
        let mut file = open(
            &path,
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600),
        )?;
        match exclusive::lock_within(patience, || file.try_lock()) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                let _unknown_stays_empty = file.take(16).read_to_string(&mut pid);
                return Err(JournalStoreError::Busy { pid: pid.trim().to_owned() });
            }
            Err(TryLockError::Error(source)) => return Err(failed("lock", &path, source)),
        }
        file.set_len(0)
            .and_then(|()| file.write_all(format!("{}\n", std::process::id()).as_bytes()))
            .map_err(|source| failed("write", &path, source))?;
        Ok(Lock { file })
    }

    /// Reads the journal of the applied plan; `None` if no plan is applied.
    pub fn read(&self) -> Result<Option<Journal>, JournalStoreError> {
        self.read_file(&self.journal_file())
    }

    /// Reads the journal of the last plan that was rolled back.
    pub fn read_last(&self) -> Result<Option<Journal>, JournalStoreError> {
        self.read_file(&self.last_file())
    }

    fn read_file(&self, path: &Path) -> Result<Option<Journal>, JournalStoreError> {
        let file = match open(path, OpenOptions::new().read(true)) {
            Err(JournalStoreError::File { source, .. })
                if source.kind() == io::ErrorKind::NotFound =>
            {
                return Ok(None);
            }
            file => file?,
        };
        let damaged = |source| JournalStoreError::Journal { path: path.to_owned(), source };
        let len = file.metadata().map_err(|source| failed("read", path, source))?.len();
        if len > BYTES_MAX as u64 {
            return Err(damaged(JournalError::TooLong { bytes: len as usize }));
        }
        let mut bytes = Vec::new();
        file.take(BYTES_MAX as u64 + 1)
            .read_to_end(&mut bytes)
            .map_err(|source| failed("read", path, source))?;
        Journal::parse(&bytes).map_err(damaged)
    }

    /// Reads the last failure of the guard; `None` if there was none since the plan was applied.
    pub fn read_guard_failure(&self) -> Result<Option<String>, JournalStoreError> {
        let path = self.guard_file();
        let file = match open(&path, OpenOptions::new().read(true)) {
            Err(JournalStoreError::File { source, .. })
                if source.kind() == io::ErrorKind::NotFound =>
            {
                return Ok(None);
            }
            file => file?,
        };
        let mut bytes = Vec::new();
        let read = file.take(GUARD_BYTES_MAX).read_to_end(&mut bytes);
        read.map_err(|source| failed("read", &path, source))?;
        Ok(Some(String::from_utf8_lossy(&bytes).trim_end().to_owned()))
    }

    /// Creates a journal; the records are on disk when this returns. On an error there is no new journal,
    /// and one that was there stays.
    ///
    /// It gets its name when it is whole: a power cut leaves all of it or nothing.
    pub(super) fn begin(
        &self,
        _lock: &Lock,
        records: &[Record],
    ) -> Result<Writer, JournalStoreError> {
        let (path, draft) = (self.journal_file(), self.folder.join("draft"));
        let write = || {
            files::remove(&draft)?;
            let mut writer = Writer::new(Appended::create(&draft)?, 0);
            writer.append(records)?;
            files::link(&draft, &path)?;
            let synced = files::remove(&draft).and_then(|()| files::sync_folder(&self.folder));
            if let Err(error) = synced {
                // It correctly says that nothing was changed, but it blocks a retry.
                let _may_remain = files::remove(&path);
                return Err(error);
            }
            Ok(writer.renamed(&path))
        };
        write().map_err(|source| failed("create", &path, source))
    }

    /// Opens a journal that was read for appending; a truncated last line is removed.
    pub(super) fn resume(
        &self,
        _lock: &Lock,
        journal: &Journal,
    ) -> Result<Writer, JournalStoreError> {
        let path = self.journal_file();
        let file = Appended::resume(&path, journal.whole_bytes as u64);
        let file = file.map_err(|source| failed("append to", &path, source))?;
        Ok(Writer::new(file, journal.record_count))
    }

    /// Renames the journal to [`Self::last_file`]: no plan is applied.
    pub(super) fn close(&self, _lock: &Lock) -> Result<(), JournalStoreError> {
        let path = self.journal_file();
        let close = || {
            files::rename(&path, &self.last_file())?;
            files::remove(&self.guard_file())?;
            files::sync_folder(&self.folder)
        };
        match close() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            closed => closed.map_err(|source| failed("rename", &path, source)),
        }
    }
}

/// Opens a file of the folder; a link or one of another user is refused, and a pipe does not block.
fn open(path: &Path, options: &mut OpenOptions) -> Result<File, JournalStoreError> {
    let untrusted =
        |why: &str| JournalStoreError::Untrusted { path: path.to_owned(), why: why.to_owned() };
    let opened = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
    let file = opened.map_err(|source| match source.raw_os_error() {
        Some(libc::ELOOP) => untrusted("is a symbolic link"),
        _ => failed("open", path, source),
    })?;
    let metadata = file.metadata().map_err(|source| failed("read the owner of", path, source))?;
    if !metadata.is_file() {
        return Err(untrusted("is not a regular file"));
    }
    trusted(path, &metadata)?;
    Ok(file)
}

/// Refuses what another user owns or may write.
fn trusted(path: &Path, metadata: &fs::Metadata) -> Result<(), JournalStoreError> {
    let why = match (metadata.uid(), metadata.mode() & 0o022) {
        (0, 0) => return Ok(()),
        (owner, 0) if owner == sys::capability::effective_uid() => return Ok(()),
        (_, 1..) => "may be written by other users".to_owned(),
        (owner, _) => format!("belongs to user {owner}"),
    };
    Err(JournalStoreError::Untrusted { path: path.to_owned(), why })
}

fn failed(what: &'static str, path: &Path, source: io::Error) -> JournalStoreError {
    JournalStoreError::File { what, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_lock_ends_although_a_forked_child_has_its_descriptor() {
        let folder = tempfile::tempdir().unwrap();
        let store = JournalStore::new(folder.path());
        let lock = store.lock().unwrap();
        let _of_the_child = lock.file.try_clone().unwrap();
        drop(lock);
        store.lock().unwrap();
    }

    #[test]
    fn busy_error_names_the_process_that_holds_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let store = JournalStore::new(folder.path().join("new"));
        let first = store.lock().unwrap();
        let error = store.lock_within(Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        drop(first);
        store.lock().unwrap();
    }

    #[test]
    fn process_that_is_about_to_end_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let store = JournalStore::new(folder.path());
        let first = store.lock().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(100));
                drop(first);
            });
            store.lock().unwrap();
        });
    }

    fn why(outcome: Result<impl std::fmt::Debug, JournalStoreError>) -> String {
        match outcome.unwrap_err() {
            JournalStoreError::Untrusted { why, .. } => why,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn folder_that_another_user_could_write_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let store = JournalStore::new(&state);
        drop(store.lock().unwrap());
        for mode in [0o770, 0o707, 0o1777] {
            fs::set_permissions(&state, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(why(store.lock()), "may be written by other users", "{mode:o}");
        }
        fs::set_permissions(&state, fs::Permissions::from_mode(0o755)).unwrap();
        drop(store.lock().unwrap());
        std::os::unix::fs::chown(&state, Some(65_534), None).unwrap();
        assert_eq!(why(store.lock()), "belongs to user 65534");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path(), &link).unwrap();
        assert_eq!(why(JournalStore::new(&link).lock()), "is a symbolic link");
    }

    #[test]
    fn links_in_the_folder_are_neither_followed_nor_cut() {
        let folder = tempfile::tempdir().unwrap();
        let store = JournalStore::new(folder.path().join("state"));
        drop(store.lock().unwrap());
        let victim = folder.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        let lock = folder.path().join("state/lock");
        fs::remove_file(&lock).unwrap();
        std::os::unix::fs::symlink(&victim, &lock).unwrap();
        assert_eq!(why(store.lock()), "is a symbolic link");
        std::os::unix::fs::symlink(&victim, store.journal_file()).unwrap();
        assert_eq!(why(store.read()), "is a symbolic link");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        // A journal of another user says what root would set.
        fs::remove_file(store.journal_file()).unwrap();
        fs::write(store.journal_file(), "x").unwrap();
        std::os::unix::fs::chown(store.journal_file(), Some(65_534), None).unwrap();
        assert_eq!(why(store.read()), "belongs to user 65534");
    }

    #[test]
    fn journal_that_is_there_stays_when_another_cannot_be_created() {
        let folder = tempfile::tempdir().unwrap();
        let store = JournalStore::new(folder.path());
        let lock = store.lock().unwrap();
        fs::write(store.journal_file(), "half a li").unwrap();
        let refused = store.begin(&lock, &[Record::Ready]).unwrap_err();
        assert!(matches!(refused, JournalStoreError::File { what: "create", .. }), "{refused}");
        assert_eq!(fs::read_to_string(store.journal_file()).unwrap(), "half a li");
    }

    #[test]
    fn journal_beyond_the_limit_is_refused_before_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let store = JournalStore::new(folder.path());
        // Sparse: as many bytes as memory could never hold.
        File::create(store.journal_file()).unwrap().set_len(1 << 42).unwrap();
        let error = store.read().unwrap_err();
        let source = JournalError::TooLong { bytes: 1 << 42 };
        assert!(crate::text::chain(&error).contains(&source.to_string()), "{error}");
    }

    #[test]
    fn error_of_a_damaged_journal_names_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let store = JournalStore::new(folder.path());
        assert_eq!(store.read().unwrap(), None);
        fs::write(store.journal_file(), "nonsense\nnonsense\n").unwrap();
        let error = store.read().unwrap_err();
        assert!(error.to_string().contains("journal"), "{error}");
        fs::write(store.journal_file(), "half a li").unwrap();
        assert_eq!(store.read().unwrap(), None);
    }
}
