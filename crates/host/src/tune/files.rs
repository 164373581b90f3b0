//! Changes of the journal's folder, each of which a power cut may lose until it is synced.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file that is appended to.
#[derive(Debug)]
pub(super) struct Appended {
    file: File,
    path: PathBuf,
}

impl Appended {
    /// Creates a file. Errors: there is one.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        note(|| Change::Create(path.to_owned()));
        Ok(Appended { file, path: path.to_owned() })
    }

    /// Opens a file at its end, after cutting it to `len_bytes`.
    pub(super) fn resume(path: &Path, len_bytes: u64) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.append(true).custom_flags(libc::O_NOFOLLOW).open(path)?;
        if file.metadata()?.len() != len_bytes {
            file.set_len(len_bytes)?;
            note(|| Change::Cut(path.to_owned(), len_bytes));
        }
        Ok(Appended { file, path: path.to_owned() })
    }

    /// Appends in one write.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        note(|| Change::Append(self.path.clone(), bytes.to_vec()));
        Ok(())
    }

    /// All that was appended is on disk when this returns.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()?;
        note(|| Change::Sync(self.path.clone()));
        Ok(())
    }

    /// Name of the file from now on, which the caller gave it.
    pub(super) fn renamed(self, path: &Path) -> Self {
        Appended { path: path.to_owned(), ..self }
    }
}

/// Gives a file a second name. Errors: the name is taken.
pub(super) fn link(from: &Path, to: &Path) -> io::Result<()> {
    fs::hard_link(from, to)?;
    note(|| Change::Link(from.to_owned(), to.to_owned()));
    Ok(())
}

pub(super) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    note(|| Change::Rename(from.to_owned(), to.to_owned()));
    Ok(())
}

pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(()) => {
            note(|| Change::Remove(path.to_owned()));
            Ok(())
        }
    }
}

pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()?;
    note(|| Change::SyncFolder);
    Ok(())
}

/// One change, as tests of power cuts record them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    Create(PathBuf),
    Cut(PathBuf, u64),
    Append(PathBuf, Vec<u8>),
    Sync(PathBuf),
    Link(PathBuf, PathBuf),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
    SyncFolder,
}

#[cfg(not(test))]
fn note(_: impl FnOnce() -> Change) {}

#[cfg(test)]
fn note(change: impl FnOnce() -> Change) {
    RECORD.with_borrow_mut(|record| record.push(change()));
}

#[cfg(test)]
thread_local! {
    static RECORD: std::cell::RefCell<Vec<Change>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Takes the changes that this thread has made.
#[cfg(test)]
pub(super) fn recorded() -> Vec<Change> {
    RECORD.take()
}
