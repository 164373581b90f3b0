//! Folders for as long as a process lives.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Once;
use std::time::Duration;

use tempfile::TempDir;

const PREFIX: &str = "wirepath-scratch-";
/// A folder younger than this may be one whose owner has not locked it yet.
const UNLOCKED_AGE: Duration = Duration::from_secs(10);

/// A folder for sockets and the like, gone when this is dropped. What a killed process left is
/// removed by the next one that makes a folder.
#[derive(Debug)]
pub struct Scratch {
    folder: TempDir,
    /// Locked until the process ends, however it ends: by that others see that we live.
    _lock: File,
}

impl Scratch {
    /// A new folder, empty and ours alone, in the system's directory for temporary files.
    ///
    /// # Errors
    ///
    /// Those of making a directory there, and of locking it.
    pub fn new() -> io::Result<Scratch> {
        let parent = std::env::temp_dir();
        static SWEPT: Once = Once::new();
        SWEPT.call_once(|| sweep(&parent, UNLOCKED_AGE));
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        let lock = File::open(folder.path())?;
        lock.try_lock()?;
        Ok(Scratch { folder, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes unlocked scratch folders of this user. Folders that cannot be removed are skipped: the new
/// one does not depend on them.
fn sweep(parent: &Path, settled_after: Duration) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    // The user that we are, as files see it.
    let Ok(us) = fs::metadata("/proc/self").map(|us| us.uid()) else { return };
    for entry in entries.flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX)
            && metadata.is_dir()
            && metadata.uid() == us;
        let settled = metadata.modified().ok().and_then(|at| at.elapsed().ok());
        if ours && settled.is_some_and(|age| age >= settled_after) {
            let path = entry.path();
            let held = File::open(&path).map(|folder| folder.try_lock().map(|()| folder));
            if let Ok(Ok(_lock)) = held {
                let _stays = fs::remove_dir_all(&path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_goes_with_its_value() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().to_owned();
        fs::write(path.join("console"), "text").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }

    #[test]
    fn folders_of_the_dead_are_swept_and_those_of_the_living_and_of_others_stay() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let path = parent.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("x"), "").unwrap();
            path
        };
        let dead = make("wirepath-scratch-dead");
        let living = make("wirepath-scratch-living");
        let other = make("wirepath-of-the-user");
        let lock = File::open(&living).unwrap();
        lock.try_lock().unwrap();
        std::os::unix::fs::symlink(&other, parent.path().join("wirepath-scratch-link")).unwrap();

        sweep(parent.path(), Duration::from_secs(60));
        assert!(dead.exists(), "too young to be sure");
        sweep(parent.path(), Duration::ZERO);
        assert!(!dead.exists());
        assert!(living.join("x").exists() && other.join("x").exists());
        drop(lock);
        sweep(parent.path(), Duration::ZERO);
        assert!(!living.exists());
    }
}
