//! Files that hold secrets, which no other user may read or change.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bits of a mode by which other users read or write.
const OTHERS: u32 = 0o077;

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

    #[test]
    fn only_a_file_that_is_closed_to_others_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        create(&at("key"), b"x").unwrap();
        assert_eq!(create(&at("key"), b"y").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(at("key")).unwrap(), b"x", "kept");
        symlink(at("key"), at("link")).unwrap();
        assert_eq!(read_text(&at("link"), 10).unwrap(), "x");
        assert!(read_text(&at("none"), 10).unwrap_err().to_string().contains("cannot read"));
        fs::set_permissions(at("key"), fs::Permissions::from_mode(0o640)).unwrap();
        let error = read_text(&at("link"), 10).unwrap_err().to_string();
        assert!(error.contains("mode 640") && error.contains("chmod 600"), "{error}");
    }
}
