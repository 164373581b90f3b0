//! Reading of directories without allocation, for use between fork and exec.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Deepest folders that [`remove_tree`] removes.
const DEPTH_MAX: u32 = 16;

/// Opens a directory below another; an absolute path needs no other.
pub(super) fn open(at: Option<BorrowedFd<'_>>, path: &CStr) -> io::Result<OwnedFd> {
    let at = at.map_or(libc::AT_FDCWD, |fd| fd.as_raw_fd());
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: the path is a string that outlives the call.
    let fd = unsafe { libc::openat(at, path.as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: openat(2) returned a new descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Opens a file for writing.
pub(super) fn open_file(at: BorrowedFd<'_>, name: &CStr) -> io::Result<File> {
    let flags = libc::O_WRONLY | libc::O_CLOEXEC;
    // SAFETY: the name is a string that outlives the call.
    let fd = unsafe { libc::openat(at.as_raw_fd(), name.as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: openat(2) returned a new descriptor without another owner.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

pub(super) fn create(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    // SAFETY: the name is a string that outlives the call.
    let rc = unsafe { libc::mkdirat(parent.as_raw_fd(), name.as_ptr(), 0o755) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Calls `each` with the name of every entry, and true for a directory.
///
/// Source: getdents64(2), `struct linux_dirent64`: inode and offset of 8 bytes, length of 2, type of
/// 1, name.
pub(super) fn for_each(
    directory: BorrowedFd<'_>,
    mut each: impl FnMut(&CStr, bool),
) -> io::Result<()> {
    const LENGTH_AT: usize = 16;
    const TYPE_AT: usize = 18;
    const NAME_AT: usize = 19;
    let mut buffer = [0_u8; 4096];
    loop {
        let fd = directory.as_raw_fd();
        // SAFETY: the kernel writes at most the length of the buffer, which outlives the call.
        let len =
            unsafe { libc::syscall(libc::SYS_getdents64, fd, buffer.as_mut_ptr(), buffer.len()) };
        let Ok(len) = usize::try_from(len) else { return Err(io::Error::last_os_error()) };
        if len == 0 {
            return Ok(());
        }
        let mut rest = buffer.get(..len).unwrap_or_default();
        while let Some([low, high]) = rest.get(LENGTH_AT..TYPE_AT) {
            let entry_len = usize::from(u16::from_ne_bytes([*low, *high]));
            let Some((entry, after)) = rest.split_at_checked(entry_len.max(NAME_AT)) else { break };
            let is_directory = entry[TYPE_AT] == libc::DT_DIR;
            if let Ok(name) = CStr::from_bytes_until_nul(&entry[NAME_AT..]) {
                each(name, is_directory);
            }
            rest = after;
        }
    }
}

/// Removes a tree of directories, such as a control group with those below it. Files in it are the
/// kernel's, which go with their directory.
pub(super) fn remove_tree(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    remove(parent, name, DEPTH_MAX)
}

fn remove(parent: BorrowedFd<'_>, name: &CStr, depth_left: u32) -> io::Result<()> {
    let unlink = || {
        // SAFETY: the name is a string that outlives the call.
        let rc = unsafe { libc::unlinkat(parent.as_raw_fd(), name.as_ptr(), libc::AT_REMOVEDIR) };
        if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    let error = match unlink() {
        Ok(()) => return Ok(()),
        Err(error) => error,
    };
    if error.kind() == io::ErrorKind::NotFound {
        return Ok(());
    }
    if depth_left == 0 {
        return Err(error);
    }
    let directory = open(Some(parent), name)?;
    for_each(directory.as_fd(), |entry, is_directory| {
        if is_directory && entry != c"." && entry != c".." {
            // An entry that stays makes the last removal fail.
            let _ = remove(directory.as_fd(), entry, depth_left - 1);
        }
    })?;
    unlink()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::ffi::CString;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn every_entry_is_listed_and_a_tree_of_folders_is_removed() {
        let folder = std::env::temp_dir().join(format!("wirepath-dir-{}", std::process::id()));
        for i in 0..300 {
            fs::create_dir_all(folder.join(format!("a/long-name-of-a-folder-{i}"))).unwrap();
        }
        let path = |path: &std::path::Path| CString::new(path.as_os_str().as_bytes()).unwrap();
        let a = open(None, &path(&folder.join("a"))).unwrap();
        let mut names = BTreeSet::new();
        for_each(a.as_fd(), &mut |name: &CStr, is_directory: bool| {
            assert!(is_directory);
            names.insert(name.to_owned());
        })
        .unwrap();
        assert_eq!(names.len(), 302, "with . and ..");
        let parent = open(None, &path(folder.parent().unwrap())).unwrap();
        let name = CString::new(folder.file_name().unwrap().as_bytes()).unwrap();
        remove_tree(parent.as_fd(), &name).unwrap();
        assert!(!folder.exists());
        remove_tree(parent.as_fd(), &name).unwrap();
    }
}
