//! Files that hold secrets, which no other user may read or change.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::user_file;

/// Bits of a mode by which other users read or write.
const OTHERS: u32 = 0o077;
/// Bits of a mode by which other users write.
const OTHERS_WRITE: u32 = 0o022;

#[derive(Debug, thiserror::Error)]
pub enum PrivateFileError {
    #[error("cannot read {path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    /// It is open to other users.
    #[error("{path} {why}")]
    Untrusted { path: PathBuf, why: String },
}

/// Reads a secret that no other user can read or change. Links and pipes are followed, as mounted secrets and shells
/// make them: the file that they lead to is what counts.
///
/// - `bytes_max`: a longer file is an error.
pub fn read_text(path: &Path, bytes_max: u64) -> Result<String, PrivateFileError> {
    let failed = |source| PrivateFileError::Read { path: path.to_owned(), source };
    let untrusted = |why: String| PrivateFileError::Untrusted { path: path.to_owned(), why };
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let mode = metadata.mode() & 0o777;
    if mode & OTHERS != 0 {
        return Err(untrusted(format!(
            "is open to other users (mode {mode:03o}); chmod 600, and replace the secret if they may have read it"
        )));
    }
    let (owner, own) = (metadata.uid(), sys::capability::effective_uid());
    if !may_own_secrets(owner, own, user_of_sudo()) {
        return Err(untrusted(format!(
            "belongs to user {owner} and can be read and replaced by that user; it must belong to user {own}: chown it, and \
             replace the secret"
        )));
    }
    user_file::read_open(&file, bytes_max).and_then(user_file::text).map_err(failed)
}

/// True if a secret of `owner` is one of this process's user: its own file, root's, or that of the user that called sudo.
fn may_own_secrets(owner: u32, own: u32, user_of_sudo: Option<u32>) -> bool {
    owner == own || owner == 0 || (own == 0 && Some(owner) == user_of_sudo)
}

/// The user that called sudo. Only root reads it: its environment is its own or sudo's.
fn user_of_sudo() -> Option<u32> {
    std::env::var("SUDO_UID").ok()?.parse().ok()
}

/// Succeeds if only this user, or root, can have written the file: it and its folder belong to this user, and no other user
/// may write to either. The folder counts because other files beside it, such as the log of a database, do.
pub fn check_written_by_this_user(path: &Path) -> Result<(), PrivateFileError> {
    let failed = |source| PrivateFileError::Read { path: path.to_owned(), source };
    let file = path.canonicalize().map_err(failed)?;
    let own = sys::capability::effective_uid();
    for path in [Some(file.as_path()), file.parent()].into_iter().flatten() {
        let metadata = path.metadata().map_err(failed)?;
        let (owner, mode) = (metadata.uid(), metadata.mode() & 0o777);
        let why = if owner != own {
            format!("belongs to user {owner}; if you trust what is in it, `chown {own}` it")
        } else if mode & OTHERS_WRITE != 0 {
            format!(
                "can be written by other users (mode {mode:03o}); `chmod go-w` it if you trust what is in it"
            )
        } else {
            continue;
        };
        return Err(PrivateFileError::Untrusted { path: path.to_owned(), why });
    }
    Ok(())
}

/// Makes a new file, readable by its owner alone, with this content on disk. Errors: there is one.
pub fn create(path: &Path, content: &[u8]) -> io::Result<File> {
    use std::io::Write;
    let mut options = OpenOptions::new();
    let mut file = options.read(true).write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    file.sync_all()?;
    sync_folder(path)?;
    Ok(file)
}

/// Brings the name of a file to disk.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn secrets_belong_to_their_user_to_root_or_to_the_user_of_sudo() {
        assert!(may_own_secrets(1000, 1000, None) && may_own_secrets(0, 1000, None));
        assert!(may_own_secrets(1000, 0, Some(1000)));
        assert!(!may_own_secrets(1000, 0, None) && !may_own_secrets(1001, 0, Some(1000)));
        assert!(!may_own_secrets(1001, 1000, Some(1001)), "only root was called by sudo");
        let folder = tempfile::tempdir().unwrap();
        create(&folder.path().join("key"), b"long").unwrap();
        let error = read_text(&folder.path().join("key"), 3).unwrap_err().to_string();
        assert!(error.contains("at most 3 bytes"), "{error}");
    }

    #[test]
    fn file_that_another_user_could_have_written_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("history.db");
        create(&file, b"x").unwrap();
        let checked = || check_written_by_this_user(&file).map_err(|error| error.to_string());
        assert_eq!(checked(), Ok(()));
        for (path, mode) in [(folder.path(), 0o777), (folder.path(), 0o770), (&file, 0o666)] {
            let before = fs::metadata(path).unwrap().permissions();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            assert!(checked().unwrap_err().contains("chmod go-w"), "{mode:o}");
            fs::set_permissions(path, before).unwrap();
        }
        assert_eq!(checked(), Ok(()));
        if sys::capability::effective_uid() != 0 {
            return testkit::skip("root", "only root gives files to other users");
        }
        for path in [folder.path(), &file] {
            std::os::unix::fs::chown(path, Some(65_534), None).unwrap();
            let error = checked().unwrap_err();
            assert!(error.contains("65534") && error.contains("chown 0"), "{error}");
            std::os::unix::fs::chown(path, Some(0), None).unwrap();
        }
        // A link in a folder of this user leads to what another one wrote.
        let link = folder.path().join("link");
        symlink(&file, &link).unwrap();
        std::os::unix::fs::chown(&file, Some(65_534), None).unwrap();
        assert!(check_written_by_this_user(&link).is_err());
    }

    #[test]
    fn only_a_file_of_this_user_that_is_closed_to_others_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        create(&path("key"), b"x").unwrap();
        assert_eq!(create(&path("key"), b"y").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(path("key")).unwrap(), b"x", "kept");
        symlink(path("key"), path("link")).unwrap();
        assert_eq!(read_text(&path("link"), 10).unwrap(), "x");
        assert!(read_text(&path("none"), 10).unwrap_err().to_string().contains("cannot read"));
        fs::set_permissions(path("key"), fs::Permissions::from_mode(0o640)).unwrap();
        let error = read_text(&path("link"), 10).unwrap_err().to_string();
        assert!(error.contains("mode 640") && error.contains("chmod 600"), "{error}");
        if sys::capability::effective_uid() == 0 {
            fs::set_permissions(path("key"), fs::Permissions::from_mode(0o600)).unwrap();
            std::os::unix::fs::chown(path("key"), Some(65_534), None).unwrap();
            let error = read_text(&path("key"), 10).unwrap_err().to_string();
            assert!(error.contains("belongs to user 65534"), "{error}");
        }
    }
}
