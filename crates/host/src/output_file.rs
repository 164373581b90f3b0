//! Output files: each appears, or replaces the one before it, when it is complete.
//!
//! The text is written to a new file of a random name in the same folder and renamed, so that a full disk or a kill
//! leaves the earlier file whole. Links of other users are not followed. What is not a regular file, such as a pipe or
//! `/dev/stdout`, is written directly.
//!
//! Files that grow for hours, such as captures, have their name from the start: a reader needs them before their end.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;
use thiserror::Error;

/// A file cannot be written; the earlier one, if there is one, is whole.
#[derive(Debug, Error)]
pub enum OutputFileError {
    #[error(
        "cannot write {}: no space left on its disk; free some, or name a file on another disk",
        path.display()
    )]
    Full { path: PathBuf },
    #[error(
        "cannot write {}: it is a symbolic link of user {owner}; remove it, or name another file",
        path.display()
    )]
    ForeignLink { path: PathBuf, owner: u32 },
    #[error("cannot write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl OutputFileError {
    fn from_io(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => OutputFileError::Full { path },
            _ => OutputFileError::Write { path, source },
        }
    }

    fn is_denied(&self) -> bool {
        let denied = [ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem];
        matches!(self, OutputFileError::Write { source, .. } if denied.contains(&source.kind()))
    }
}

/// Writes a whole file.
pub fn write(path: &Path, contents: &[u8]) -> Result<(), OutputFileError> {
    let mut file = OutputFile::create(path)?;
    file.write_all(contents).map_err(|source| OutputFileError::from_io(path, source))?;
    file.finish()
}

/// A file that is written piece by piece; without [`OutputFile::finish`] the earlier one stays.
#[derive(Debug)]
pub struct OutputFile {
    path: PathBuf,
    out: Destination,
}

#[derive(Debug)]
enum Destination {
    /// A new file, and the one that it will replace.
    Beside(NamedTempFile, PathBuf),
    Direct(File),
}

impl OutputFile {
    pub fn create(path: &Path) -> Result<Self, OutputFileError> {
        let failed = |source| OutputFileError::from_io(path, source);
        let out = match Place::of(path)? {
            Place::Direct => {
                let opened = OpenOptions::new().append(true).open(path);
                Destination::Direct(opened.map_err(failed)?)
            }
            Place::File(file, earlier) => {
                let part = part_of(&file, earlier.as_ref()).map_err(failed)?;
                Destination::Beside(part, file)
            }
        };
        Ok(OutputFile { path: path.to_owned(), out })
    }

    /// Brings the file to disk and gives it its name.
    pub fn finish(self) -> Result<(), OutputFileError> {
        let failed = |source| OutputFileError::from_io(&self.path, source);
        match self.out {
            Destination::Direct(mut file) => file.flush().map_err(failed),
            Destination::Beside(part, file) => {
                // A full disk may show only here.
                part.as_file().sync_all().map_err(failed)?;
                part.persist(file).map(drop).map_err(|error| failed(error.error))
            }
        }
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.out {
            Destination::Beside(part, _) => part.write(bytes),
            Destination::Direct(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.out {
            Destination::Beside(part, _) => part.flush(),
            Destination::Direct(file) => file.flush(),
        }
    }
}

/// Creates a file that grows under its own name.
///
/// - `overwrite`: an earlier one is emptied; otherwise it is an error.
pub fn create_growing(path: &Path, overwrite: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true);
    if overwrite {
        Place::of(path).map_err(|error| match error {
            OutputFileError::Write { source, .. } => source,
            error => io::Error::other(error),
        })?;
        options.create(true).truncate(true);
    } else {
        options.create_new(true);
    }
    options.open(path)
}

/// A file that is written at the end of a run, when the process may no longer have the rights to create it.
///
/// A wrong path fails before the run. The earlier file stays as it is until the end.
#[derive(Debug)]
pub struct ReservedFile {
    path: PathBuf,
    place: Place,
    /// `None` for a pipe or a device once it was taken.
    held: Option<File>,
}

impl ReservedFile {
    pub fn create(path: &Path) -> Result<Self, OutputFileError> {
        let place = Place::of(path)?;
        let opened = match &place {
            Place::Direct => OpenOptions::new().append(true).open(path),
            Place::File(file, earlier) => {
                let mut options = OpenOptions::new();
                // One that appeared since is not this run's to remove.
                options.write(true).create_new(earlier.is_none());
                options.mode(0o666).custom_flags(libc::O_NOFOLLOW).open(file)
            }
        };
        let held = opened.map_err(|source| OutputFileError::from_io(path, source))?;
        Ok(ReservedFile { path: path.to_owned(), place, held: Some(held) })
    }

    pub fn write(mut self, contents: &[u8]) -> Result<(), OutputFileError> {
        let failed = |source| OutputFileError::from_io(&self.path, source);
        let mut held = self.held.take().expect("it is taken once");
        let written = match &self.place {
            Place::Direct => held.write_all(contents).map_err(failed),
            Place::File(file, _) => match write(file, contents) {
                // The folder is another user's, and the right to write there was dropped.
                Err(error) if error.is_denied() => overwrite(&held, contents).map_err(failed),
                written => written,
            },
        };
        if written.is_err() {
            self.held = Some(held);
        }
        written
    }
}

impl Drop for ReservedFile {
    fn drop(&mut self) {
        if let (Some(_), Place::File(file, None)) = (&self.held, &self.place) {
            // Empty, and made by this run.
            let _may_stay = fs::remove_file(file);
        }
    }
}

/// Replaces the content of an open file. The new one is written after the old one first, so that a full disk is
/// found while the old one is whole.
fn overwrite(file: &File, contents: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    let earlier_bytes = file.metadata()?.len();
    let fits = file.write_all_at(contents, earlier_bytes).and_then(|()| file.sync_all());
    if let Err(error) = fits {
        file.set_len(earlier_bytes)?;
        return Err(error);
    }
    file.write_all_at(contents, 0)?;
    file.set_len(contents.len() as u64)?;
    file.sync_all()
}

#[derive(Debug)]
enum Place {
    /// A regular file, through links of this user, and the earlier one there.
    File(PathBuf, Option<Metadata>),
    /// A pipe, a device, or an open descriptor of this process.
    Direct,
}

impl Place {
    fn of(path: &Path) -> Result<Self, OutputFileError> {
        /// As in the kernel (`MAXSYMLINKS`).
        const LINKS_MAX: usize = 40;
        let failed = |source| OutputFileError::from_io(path, source);
        let mut file = path.to_owned();
        for _ in 0..LINKS_MAX {
            let metadata = match fs::symlink_metadata(&file) {
                Ok(metadata) => metadata,
                Err(error) if error.kind() == ErrorKind::NotFound && file.file_name().is_some() => {
                    return Ok(Place::File(file, None));
                }
                Err(error) => return Err(failed(error)),
            };
            if metadata.is_file() {
                return Ok(Place::File(file, Some(metadata)));
            }
            if metadata.is_dir() {
                return Err(failed(ErrorKind::IsADirectory.into()));
            }
            if !metadata.is_symlink() || is_in_procfs(&file) {
                return Ok(Place::Direct);
            }
            let owner = metadata.uid();
            if owner != 0 && owner != sys::capability::effective_uid() {
                return Err(OutputFileError::ForeignLink { path: path.to_owned(), owner });
            }
            let target = fs::read_link(&file).map_err(failed)?;
            file = folder_of(&file).join(target);
        }
        Err(failed(io::Error::other("too many symbolic links")))
    }
}

fn device_number(path: &Path) -> Option<u64> {
    fs::metadata(path).map(|metadata| metadata.dev()).ok()
}

/// True for a link of `/proc/PID/fd`: behind it is an open file, whatever its text.
fn is_in_procfs(link: &Path) -> bool {
    let proc = device_number(Path::new("/proc/self"));
    proc.is_some() && device_number(folder_of(link)) == proc
}

fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// A new file beside another one, with its owner and permissions.
fn part_of(file: &Path, earlier: Option<&Metadata>) -> io::Result<NamedTempFile> {
    if earlier.is_some() {
        // A file that may not be written is not replaced either.
        drop(OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW).open(file)?);
    }
    let mut builder = tempfile::Builder::new();
    builder.prefix(".wirepath-").suffix(".part").permissions(Permissions::from_mode(0o666));
    let part = builder.tempfile_in(folder_of(file))?;
    if let Some(earlier) = earlier {
        let own = part.as_file().metadata()?;
        if (own.uid(), own.gid()) != (earlier.uid(), earlier.gid()) {
            // Only root gives files to other users.
            let _may_stay = fchown(part.as_file(), Some(earlier.uid()), Some(earlier.gid()));
        }
        part.as_file().set_permissions(earlier.permissions())?;
    }
    Ok(part)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::{chown, lchown, symlink};

    use super::*;
    use crate::text::chain;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_file_is_whole_or_the_earlier_one_stays_and_keeps_its_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        write(&path, b"first").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let mut unfinished = OutputFile::create(&path).unwrap();
        unfinished.write_all(b"half").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"first", "not yet");
        drop(unfinished);
        assert_eq!((fs::read(&path).unwrap(), names(folder.path()).len()), (b"first".to_vec(), 1));
        write(&path, b"second").unwrap();
        assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"second".to_vec(), 0o640));
        assert_eq!(names(folder.path()), ["page.html"]);
        let refused = |path: &Path| chain(&write(path, b"x").unwrap_err());
        let error = refused(&folder.path().join("none/page"));
        assert!(error.contains("none/page: No such file"), "{error}");
        let error = refused(folder.path());
        assert!(error.contains("directory"), "{error}");
    }

    #[test]
    fn own_links_are_followed_and_those_of_other_users_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        write(&path("real"), b"1").unwrap();
        symlink("real", path("link")).unwrap();
        symlink("later", path("dangling")).unwrap();
        symlink("loop", path("loop")).unwrap();
        write(&path("link"), b"2").unwrap();
        write(&path("dangling"), b"3").unwrap();
        assert_eq!(fs::read(path("real")).unwrap(), b"2");
        assert_eq!(fs::read(path("later")).unwrap(), b"3");
        assert!(fs::symlink_metadata(path("link")).unwrap().is_symlink());
        assert!(write(&path("loop"), b"4").is_err());
        if sys::capability::effective_uid() != 0 {
            return testkit::skip("root", "only root gives links to other users");
        }
        for name in ["link", "dangling"] {
            lchown(path(name), Some(65_534), None).unwrap();
            let error = write(&path(name), b"5").unwrap_err();
            assert!(matches!(error, OutputFileError::ForeignLink { owner: 65_534, .. }), "{error}");
            assert!(ReservedFile::create(&path(name)).is_err());
            assert!(create_growing(&path(name), true).is_err());
            assert!(create_growing(&path(name), false).is_err());
        }
        assert_eq!(fs::read(path("real")).unwrap(), b"2");
        // A file of another user stays that user's.
        chown(path("real"), Some(65_534), Some(65_534)).unwrap();
        write(&path("real"), b"6").unwrap();
        let metadata = fs::metadata(path("real")).unwrap();
        assert_eq!((metadata.uid(), fs::read(path("real")).unwrap()), (65_534, b"6".to_vec()));
    }

    #[test]
    fn pipes_and_open_descriptors_are_written_directly() {
        use std::os::fd::AsRawFd;
        let (mut reader, writer) = io::pipe().unwrap();
        let path = PathBuf::from(format!("/proc/self/fd/{}", writer.as_raw_fd()));
        write(&path, b"through").unwrap();
        ReservedFile::create(&path).unwrap().write(b" the pipe").unwrap();
        drop(writer);
        let mut read = String::new();
        reader.read_to_string(&mut read).unwrap();
        assert_eq!(read, "through the pipe");
        // As a shell's redirection: its descriptor stays with the file.
        let folder = tempfile::tempdir().unwrap();
        let mut file = File::create(folder.path().join("out")).unwrap();
        write(&PathBuf::from(format!("/dev/fd/{}", file.as_raw_fd())), b"page").unwrap();
        file.write_all(b"more").unwrap();
        assert_eq!(names(folder.path()), ["out"]);
        write(Path::new("/dev/null"), b"x").unwrap();
    }

    #[test]
    fn a_reserved_file_keeps_the_earlier_one_until_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page");
        drop(ReservedFile::create(&path).unwrap());
        assert!(names(folder.path()).is_empty(), "a run without a page leaves none");
        ReservedFile::create(&path).unwrap().write(b"first").unwrap();
        let reserved = ReservedFile::create(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"first");
        drop(ReservedFile::create(&path).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"first", "not ours to remove");
        reserved.write(b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        // Where the folder cannot be written any more.
        let held = OpenOptions::new().write(true).open(&path).unwrap();
        overwrite(&held, b"3rd").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"3rd");
    }
}
