//! Who may use the machine: those who measure, or those who look on at a price.
//!
//! A file for each kind of work, locked for as long as a process does it: the kernel lets go of the
//! lock however that ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use thiserror::Error;

/// Work that cannot be done beside the other kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// An experiment: what others do is in its figures.
    Measuring,
    /// Following packets: every packet pays for it.
    Following,
}

/// Somebody does the other kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Busy {
    /// An experiment runs.
    #[error(
        "a `wirepath prove` runs on this machine, and following packets would be in its figures: \
         wait for it, or end it"
    )]
    Measuring,
    /// Packets are followed.
    #[error(
        "a `wirepath explain` runs on this machine, and what it takes would be in the figures: \
         wait for it, or end it"
    )]
    Following,
}

/// The right to do one kind of work, until dropped.
#[derive(Debug)]
#[must_use = "others may begin once this is dropped"]
pub struct Turn {
    /// `None` where no file can be had: nobody is asked there, and nobody kept out.
    _own: Option<File>,
}

impl Turn {
    /// Takes it, unless somebody on this machine does the other kind of work. Several may do the
    /// same kind.
    ///
    /// The files lie in `/run/lock`, or the folder for temporary files where that is missing.
    pub fn take(work: Work) -> Result<Turn, Busy> {
        let run_lock = Path::new("/run/lock");
        let chosen = std::env::var_os("WIREPATH_LOCKS").map(PathBuf::from);
        let folder = chosen.unwrap_or_else(|| match run_lock.is_dir() {
            true => run_lock.to_owned(),
            false => std::env::temp_dir(),
        });
        Turn::take_in(&folder, work)
    }

    fn take_in(folder: &Path, work: Work) -> Result<Turn, Busy> {
        let file = |work| {
            open(&folder.join(match work {
                Work::Measuring => "wirepath-measuring",
                Work::Following => "wirepath-following",
            }))
        };
        let (other, busy) = match work {
            Work::Measuring => (Work::Following, Busy::Following),
            Work::Following => (Work::Measuring, Busy::Measuring),
        };
        // Ours first: of two who begin at once, one at least sees the other.
        let own = file(work).ok().filter(|own| soon(|| own.try_lock_shared()));
        if let Ok(other) = file(other)
            && !soon(|| other.try_lock())
        {
            return Err(busy);
        }
        Ok(Turn { _own: own })
    }
}

/// Tries for a moment: others lock a file just to see whether somebody has it.
fn soon(try_lock: impl Fn() -> Result<(), TryLockError>) -> bool {
    (0..10).any(|attempt| {
        if attempt > 0 {
            thread::sleep(Duration::from_millis(5));
        }
        // A file system without locks keeps nobody out.
        !matches!(try_lock(), Err(TryLockError::WouldBlock))
    })
}

/// Anybody's file: to lock one it need not be written, and those of others may not be opened by
/// making them where the folder is everybody's.
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
        // Somebody was quicker.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => File::open(path),
        made => made,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_kinds_of_work_exclude_each_other_and_each_goes_with_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let take = |work| Turn::take_in(folder.path(), work);
        let first = take(Work::Measuring).unwrap();
        let second = take(Work::Measuring).unwrap();
        assert_eq!(take(Work::Following).unwrap_err(), Busy::Measuring);
        drop(first);
        assert_eq!(take(Work::Following).unwrap_err(), Busy::Measuring);
        drop(second);
        let following = take(Work::Following).unwrap();
        assert_eq!(take(Work::Measuring).unwrap_err(), Busy::Following);
        drop(following);
        drop(take(Work::Measuring).unwrap());
    }

    #[test]
    fn without_a_folder_nobody_is_kept_from_work() {
        let folder = Path::new("/nonexistent/folder");
        let _measuring = Turn::take_in(folder, Work::Measuring).unwrap();
        let _following = Turn::take_in(folder, Work::Following).unwrap();
    }
}
