//! Files that hold secrets or the state of one, which no other user may change.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bits of a mode by which other users read or write.
pub const OTHERS: u32 = 0o077;
/// Bits of a mode by which other users write.
pub const OTHERS_WRITE: u32 = 0o022;

#[derive(Debug, thiserror::Error)]
pub enum PrivateFileError {
    #[error("cannot open {path}: {source}")]
    Open { path: PathBuf, source: io::Error },
    #[error("cannot read {path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    /// It is no regular file, belongs to another user, or is open to others.
    #[error("{path} {why}")]
    Untrusted { path: PathBuf, why: String },
}

/// Opens a file of this user. A link, a pipe, a file of another user, and one with bits of `refused` in its
/// mode are refused.
pub fn open(
    path: &Path,
    options: &mut OpenOptions,
    refused: u32,
) -> Result<File, PrivateFileError> {
    let untrusted = |why: String| PrivateFileError::Untrusted { path: path.to_owned(), why };
    let failed = |source| PrivateFileError::Open { path: path.to_owned(), source };
    let opened = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
    let file = opened.map_err(|source| match source.raw_os_error() {
        Some(libc::ELOOP) => untrusted("is a symbolic link; name the file itself".to_owned()),
        Some(libc::EISDIR) => untrusted("is a folder; name a file".to_owned()),
        _ => failed(source),
    })?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(untrusted("is not a regular file; name one".to_owned()));
    }
    let own = sys::capability::effective_uid();
    if metadata.uid() != own {
        let owner = metadata.uid();
        return Err(untrusted(format!("belongs to user {owner}; it must belong to user {own}")));
    }
    let mode = metadata.mode() & 0o777;
    if mode & refused != 0 {
        return Err(untrusted(format!("is open to other users (mode {mode:03o}); chmod 600")));
    }
    Ok(file)
}

/// Reads a secret that no other user can read or change. Links and pipes are followed, as mounted secrets and shells
/// make them: the file that they lead to is what counts.
///
/// - `bytes_max`: the rest of a longer file is not read.
pub fn read_text(path: &Path, bytes_max: u64) -> Result<String, PrivateFileError> {
    let failed = |source| PrivateFileError::Read { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.mode() & 0o777;
    if mode & OTHERS != 0 {
        let why = format!(
            "is open to other users (mode {mode:03o}); chmod 600, and replace the secret if they may have read it"
        );
        return Err(PrivateFileError::Untrusted { path: path.to_owned(), why });
    }
    let mut text = String::new();
    file.take(bytes_max).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
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

    fn read(path: &Path) -> Result<File, String> {
        open(path, OpenOptions::new().read(true), OTHERS).map_err(|error| error.to_string())
    }

    #[test]
    fn only_a_plain_file_of_this_user_that_is_closed_to_others_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        create(&at("key"), b"x").unwrap();
        assert!(read(&at("key")).is_ok());
        assert_eq!(create(&at("key"), b"y").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(at("key")).unwrap(), b"x", "kept");
        symlink(at("key"), at("link")).unwrap();
        assert!(read(&at("link")).unwrap_err().contains("symbolic link"));
        assert_eq!(read_text(&at("link"), 10).unwrap(), "x");
        assert!(read_text(&at("none"), 10).unwrap_err().to_string().contains("cannot read"));
        assert!(read(folder.path()).unwrap_err().contains("not a regular file"));
        assert!(read(&at("none")).unwrap_err().contains("cannot open"));
        fs::set_permissions(at("key"), fs::Permissions::from_mode(0o640)).unwrap();
        let error = read(&at("key")).unwrap_err();
        assert!(error.contains("mode 640") && error.contains("chmod 600"), "{error}");
        let error = read_text(&at("link"), 10).unwrap_err().to_string();
        assert!(error.contains("mode 640") && error.contains("chmod 600"), "{error}");
        let opened = open(&at("key"), OpenOptions::new().read(true), OTHERS_WRITE);
        assert!(opened.is_ok(), "others only read it");
        if sys::capability::effective_uid() == 0 {
            fs::set_permissions(at("key"), fs::Permissions::from_mode(0o600)).unwrap();
            std::os::unix::fs::chown(at("key"), Some(65_534), None).unwrap();
            assert!(read(&at("key")).unwrap_err().contains("belongs to user 65534"));
        }
    }
}
